"""The core of the packet environments: batched steps without autoreset, and resets under a mask.

A step of a network lasts until a controlled flow must decide, or with a common clock until all must. Flows that do not decide
keep their rates and windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ccenv.agents.interface.interface import Interface
from ccenv.agents.interface.rewards import N_TERMS, TERMS
from ccenv.agents.interface.signals import MEASURES
from ccenv.agents.interface.user import OwnReward
from ccenv.agents.sender import Sender
from ccenv.attacks.boxes.game import pattern_rows
from ccenv.base.errors import EngineError, InputError
from ccenv.engine.packet.layout import ERROR_ADVERSARY, ERROR_EVENTS, ERROR_SENDER, ordered
from ccenv.engine.packet.monitor import Decider
from ccenv.envs.common.episodes import Episodes
from ccenv.envs.packet.episodes import Draws, build
from ccenv.envs.packet.kernel import CoreArrays, ask, look, observe, put_signals
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_trace
from ccenv.simulation.ranges import ScenarioDistribution
from ccenv.simulation.scenario import Scenario

MAX_EVENTS = 1_000_000_000_000  # of an episode: its length in decisions and seconds is bounded
LOG_ROWS = 2_000_000  # of the packet log of a network that is recorded


class PacketCore(Episodes):
    """A batch of networks drawn from a scenario distribution.

    Args:
        num_envs: B.
        senders: by their names in flows, all that the distribution may draw.
        deciders: of the M monitored flows, whose decisions the caller makes.
        own_reward: a user-defined reward in place of their weighted sum, or None.
        within: (B, ranges, 2) the part of each range that an environment draws from, as ends in [0, 1]; None: all of it.
        adversaries: of delay elements, by name.
        record: keep the data for ``trace``.
        per_flow: means are per flow, not over all flows.
        patterns: (B, ADVERSARY_SLOTS) patterns of ``external`` delay elements (``Pattern.words``); None: the caller plays them.

    Attributes:
        flows: (M,) indices of the monitored flows.
        counts: (B, M) decisions of each monitored flow in the episode so far.
        tells_time: each step's info holds the networks' time.
    """

    term_names = tuple(term.name for term in TERMS)
    stored: ClassVar[dict[str, str]] = {**Episodes.stored, "_counts": "counts", "_seen": "_seen", "_decides": "_decides"}

    def __init__(
        self,
        num_envs: int,
        *,
        distribution: ScenarioDistribution,
        senders: Mapping[str, Sender],
        deciders: Mapping[int, Decider],
        interface: Interface,
        weights: Mapping[str, float],
        adversaries: Mapping[str, ScriptedAdversary] | None = None,
        episode_decisions: int = 400,
        staggered: bool = False,
        start_rate_share: tuple[float, float] | None = None,
        threads: int = 1,
        record: bool = False,
        per_flow: bool = False,
        patterns: np.ndarray | None = None,
        own_reward: OwnReward | None = None,
        within: np.ndarray | None = None,
    ) -> None:
        self.flows = np.array(sorted(deciders), np.int64)
        M = len(self.flows)
        super().__init__(num_envs, episode_decisions, (M, N_TERMS), staggered)
        self._made_with = {
            **{"distribution": distribution, "senders": senders, "deciders": deciders, "interface": interface},
            **{"weights": weights, "adversaries": adversaries, "episode_decisions": episode_decisions},
            **{"staggered": staggered, "start_rate_share": start_rate_share, "threads": threads, "record": record},
            **{"num_envs": num_envs, "per_flow": per_flow, "patterns": patterns, "own_reward": own_reward},
            "within": within,
        }
        self._within = within
        self._patterns, self._pattern_rows = patterns, pattern_rows(distribution.largest)
        self.per_flow, self.tells_time, self.own_reward = per_flow, False, own_reward
        self.distribution, self.interface, self._recording = distribution, interface, record
        self._numbers, self._has_extra = interface.numbers, interface.extra is not None
        self._weights = np.array([weights.get(term.name, 0.0) for term in TERMS])
        log = LOG_ROWS if record else 0
        self._source, self.batch = build(
            num_envs, distribution, senders, deciders, adversaries or {}, start_rate_share, threads, packet_log=log
        )
        self._boxed = [i for i, flow in enumerate(distribution.largest.flows) if flow.jitter.kind == "adversary"]
        self._all = np.arange(num_envs)
        self._until_s = np.full(num_envs, distribution.largest.duration_s)
        self._seen = np.zeros((num_envs, M, interface.history, len(self._numbers)), np.float32)
        self._decides = np.zeros((num_envs, M), np.bool_)
        self.terms = np.zeros((num_envs, M, N_TERMS))
        self.rewards = np.zeros((num_envs, M))
        self.counts = np.zeros((num_envs, M))
        self._scenarios: list[Scenario | None] = [None] * num_envs
        self._blank = np.zeros(1, MEASURES)
        self._blank["mss_bytes"], self._blank["interval_s"] = distribution.largest.mss_bytes, 1.0
        self._idle = np.zeros(len(self._numbers))
        put_signals(self._blank[0], self._numbers, self._idle)
        self._start(self._all)

    def _start(self, indices: np.ndarray) -> None:
        """Begin episodes and run each network to its first decision."""
        if not len(indices):
            return
        draws = self._draw(indices)
        self._begin(indices, draws.stagger)
        self.counts[indices] = 0.0
        self.batch.begin(indices, draws.beginnings)
        self.check()
        if self._patterns is not None:
            self.batch.box_words[np.ix_(indices, self._pattern_rows)] = self._patterns[indices, None]
        if self._recording:
            for row, b in enumerate(indices.tolist()):
                self._scenarios[b] = draws.scenario(self.distribution, row)
        self.batch.arrays.measures[indices] = self._blank
        self._seen[indices] = self._idle
        self._run(indices)

    def _draw(self, indices: np.ndarray) -> Draws:
        within = None if self._within is None else self._within[indices]
        return self._source.draw(*self.keys(indices), within)

    def _run(self, indices: np.ndarray | None = None) -> None:
        """Run to the next decisions, in all networks or only in some."""
        rows = self._all if indices is None else indices
        self.batch.advance(self._until_s, MAX_EVENTS, rows)
        self.check()
        observe(self.batch.arrays, rows, self.own_arrays)

    @property
    def own_arrays(self) -> CoreArrays:
        """The core's own arrays, not copies, for kernels that advance its networks."""
        return CoreArrays(
            self._until_s, self.elapsed, self.lengths, self._decides, self._numbers, self._weights, self._seen, self.terms,
            self.rewards, self.sums, self.counts,
        )  # fmt: skip

    def check(self) -> None:
        """Raise EngineError for the first error in a network."""
        errors = self.batch.arrays.run["error"][:, 0]
        if not errors.any():
            return
        b = int(np.flatnonzero(errors)[0])
        run = self.batch.arrays.run[b, 0]
        flow, at = int(run["error_flow"]), f"environment {b} at {run['now_s']:.6g} s"
        messages = {
            ERROR_SENDER: f"flow {flow}: its sender set a window or rate that is not above 0",
            ERROR_ADVERSARY: f"flow {flow}: its adversary made a move that is no number",
            ERROR_EVENTS: f"more than {MAX_EVENTS} events",
        }
        raise EngineError(f"{at}: {messages.get(int(errors[b]), 'a network was drawn that cannot be built')}")

    def advance(self, actions: np.ndarray | None = None, services: np.ndarray | None = None) -> np.ndarray:
        """Take one step.

        Args:
            actions: (B, M) in [-1, 1], read for the flows that decide; None: flows are only observed.
            services: (B, boxes) in [0, 1] for external delay elements: the share of held packets to release every 10 ms until
                the next step.

        Returns:
            (B, M) rewards of the intervals that ended; 0 for flows that do not decide. Valid until the next step.
        """
        if actions is not None:
            ask(self.batch.arrays.monitors, actions)
        if services is not None:
            self.batch.box_words[:, : services.shape[1], 0] = services
        self._run()
        self.elapsed += 1
        if self.own_reward is not None:
            measured = self.measured
            self.rewards[measured] = self.own_reward.values(self.terms[measured])
        return self.rewards

    def truncated(self) -> np.ndarray:
        """Return a new (B,) bool array of the environments whose episode has ended."""
        over: np.ndarray = super().truncated() | ~self._decides.any(axis=1)
        return over

    def means(self, mask: np.ndarray) -> np.ndarray:
        """Return the mean of each term over the decisions of the episode so far, for the n environments in the mask.

        Its shape is (n, 1, N_TERMS) over all flows; with ``per_flow`` (n, M, N_TERMS).
        """
        sums, counts = self.sums[mask], self.counts[mask]
        if not self.per_flow:
            sums, counts = sums.sum(axis=1, keepdims=True), counts.sum(axis=1, keepdims=True)
        means: np.ndarray = sums / np.maximum(counts, 1.0)[:, :, None]
        return means

    def step_info(self, rows_per_env: int = 1) -> dict[str, np.ndarray]:
        """Return the time of each network, once per row, with ``tells_time``; else nothing."""
        return {"time_s": np.repeat(self.now_s, rows_per_env)} if self.tells_time else {}

    @property
    def decides(self) -> np.ndarray:
        """Monitored flows that are to decide now: a new (B, M) bool array."""
        return self._decides.copy()

    @property
    def measured(self) -> np.ndarray:
        """Monitored flows that have just ended an interval, whose terms are in ``terms``: a new (B, M) bool array."""
        mask: np.ndarray = self._decides & (self.batch.arrays.monitors["decisions"][:, : len(self.flows)] > 0)
        return mask

    def observations(self) -> np.ndarray:
        """Return the observations of the monitored flows: a new (B, M, width of the interface) float32 array."""
        seen = self._seen.reshape(self.num_envs, len(self.flows), -1).copy()
        return self.interface.with_extra(seen) if self._has_extra else seen

    def signals(self, numbers: np.ndarray) -> np.ndarray:
        """Return the signals with some numbers, (n,), of each monitored flow's newest decision: (B, M, n) float32."""
        out = np.empty((self.num_envs, len(self.flows), len(numbers)), np.float32)
        look(self.batch.arrays, numbers, out)
        return out

    @property
    def measures(self) -> np.ndarray:
        """Measures of the newest decision of each monitored flow: a new (B, M) MEASURES array."""
        return np.copy(self.batch.arrays.measures[:, : len(self.flows)])

    def flow(self, name: str) -> np.ndarray:
        """Return a copy of a field of all flows, (B, flows)."""
        return np.copy(self.batch.arrays.flows[name])

    def link(self, name: str) -> np.ndarray:
        """Return a copy of a field of all links, (B, links)."""
        return np.copy(self.batch.arrays.links[name])

    @property
    def now_s(self) -> np.ndarray:
        """Simulated time of each network, (B,)."""
        return np.copy(self.batch.arrays.run["now_s"][:, 0])

    @property
    def n_boxes(self) -> int:
        """Number of delay elements with an adversary."""
        return len(self._boxed)

    @property
    def bytes_per_env(self) -> float:
        """Memory of the state, in bytes per environment."""
        return self.batch.bytes_per_network

    def trace(self, env: int = 0) -> Trace:
        """Return the trace of an environment's episode so far, at the bottleneck (``ccenv.simulation.packet_trace``).

        Needs ``record=True`` and one drop-tail link.
        """
        return packet_trace(self.played(env), ordered(self.batch.packet_log(env), float(self.now_s[env])))

    def played(self, env: int) -> Scenario:
        """Return the scenario of an environment's episode, with its duration so far. Needs ``record=True``."""
        scenario = self._scenarios[env]
        if scenario is None:
            raise InputError("the environment was built without record: there is no trace")
        return scenario.model_copy(update={"duration_s": max(float(self.now_s[env]), 1e-9)})

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of everything that decides the future, as named plain arrays."""
        arrays = self._counters()
        for name, array in self.batch.state().items():
            arrays[f"batch.{name}"] = array.reshape(-1).view(np.uint8)
        return arrays

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a result of ``state``, also in another process. Raises InputError if it does not fit."""
        counters = self._read_counters(state)
        self.batch.set_state({name[6:]: array for name, array in state.items() if name.startswith("batch.")})
        self._set_counters(counters)
        self._seeded = True
        if self._recording:
            draws = self._draw(self._all)
            self._scenarios = [draws.scenario(self.distribution, b) for b in range(self.num_envs)]

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle by rebuilding: compiled kernels and addresses cannot be copied."""
        return {"made_with": self._made_with, "seeded": self._seeded, "state": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild, and continue where the copy was taken."""
        self.__init__(**state["made_with"])  # type: ignore[misc]
        self.set_state(state["state"])
        self._seeded = state["seeded"]
