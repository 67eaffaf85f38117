"""The game of attacks on curves: moves in, the goal's outcome out, with every engine step counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ccenv.agents.sender import ExternalSender, Sender
from ccenv.attacks.goals import UTILISATION, Goal, goal_of
from ccenv.attacks.windows import ANY_WINDOW, Claim, SampleLog, samples_of
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine, Snapshot
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import FIRST_SERVICE, RATE, WASTE, Adversary, MlpAdversary, RecordedAdversary
from ccenv.network.path import Model, Path, get_model, make_grid
from ccenv.network.trace import Trace

SERVICE = FIRST_SERVICE  # of flow 0
KIND = (1.0, 1.0, 1.0, 0.0)  # benign moves of one flow: immediate delivery, no tokens hoarded, the fastest link, no loss
MOST_STEPS = 100_000  # per run: a search holds the moves of several hundred runs at a time
CHUNK = 256  # environments per engine: larger batches gain nothing and need memory


@dataclass(frozen=True)
class Scene:
    """The attack scenario: everything that decides a game besides the moves, as :func:`ccenv.attacks.run.attack` explains it.

    In proof timing (``smt``) K is 1, and an oracle tells the losses.
    """

    sender: Sender
    path: Path
    model: str
    timing: str = "engine"
    steps_per_rtt: int = 8
    warmup_rtts: int = 60
    window_rtts: int = 60
    calm_rtts: int = 0
    seed: int = 0
    claim: Claim = ANY_WINDOW
    goal: str = UTILISATION

    def __post_init__(self) -> None:
        if isinstance(self.sender, ExternalSender):
            raise InputError("an external sender cannot be attacked: its rate comes from outside")
        least = goal_of(self.goal).least_flows
        if self.path.n_flows < least:
            raise InputError(f"goal {self.goal!r} needs at least {least} flows; the path has {self.path.n_flows}")
        if self.timing == "smt" and (self.path.n_flows > 1 or self.goal != UTILISATION):
            raise InputError("timing 'smt' has one flow and the goal 'utilisation'")
        get_model(self.model)
        if self.timing == "smt" and self.steps_per_rtt != 1:
            raise InputError(f"timing 'smt' needs steps_per_rtt 1, not {self.steps_per_rtt}")
        for name, low in (("warmup_rtts", 0), ("window_rtts", 1), ("calm_rtts", 0), ("seed", 0), ("steps_per_rtt", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= 1_000_000:
                raise InputError(f"{name} is {value!r}; it must be a whole number from {low} to 1000000")
        n_steps = (self.warmup_rtts + self.window_rtts) * self.steps_per_rtt
        if n_steps > MOST_STEPS:
            raise InputError(f"warmup_rtts, window_rtts and steps_per_rtt make runs of {n_steps} steps; at most {MOST_STEPS}")
        if self.calm_rtts >= self.warmup_rtts + self.window_rtts:
            raise InputError(
                f"calm_rtts is {self.calm_rtts}: nothing is left to attack in {self.warmup_rtts + self.window_rtts} Rm"
            )
        if self.timing == "smt" and self.window_rtts < self.claim.samples - 1:
            raise InputError(
                f"window_rtts is {self.window_rtts}; windows of T = {self.claim.samples} need {self.claim.samples - 1}"
            )
        make_grid(self.path, self.steps_per_rtt)


@dataclass
class Found:
    """The result of a search."""

    adversary: Adversary | None = None  # the playable moves; None if there is only a trace
    trace: Trace | None = None  # of the worst run, if the search recorded it itself (another path, several flows)
    first_row: int | None = None  # row of that trace at which the measured window starts, if not the scenario's
    # of constructions: name -> whether it held, or the measured value
    preconditions: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)  # JSON-ready details that explain or replicate the finding
    player: Any = None  # per packet, in place of the adversary, that of the delay elements


class Game:
    """Plays moves against the sender of an attack scenario."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.flow_steps = 0  # engine steps of flows spent so far
        self.report: Callable[[int], None] | None = None

    @cached_property
    def model(self) -> Model:
        return get_model(self.scene.model)

    @cached_property
    def goal(self) -> Goal:
        return goal_of(self.scene.goal)

    @cached_property
    def kind(self) -> np.ndarray:
        """The moves of a benign network, (2 + 2 N,)."""
        n_flows = self.scene.path.n_flows
        return np.array([*KIND[:SERVICE], *([KIND[SERVICE]] * n_flows), *([KIND[SERVICE + 1]] * n_flows)])

    @property
    def n_steps(self) -> int:
        """Engine steps of one run."""
        return (self.scene.warmup_rtts + self.scene.window_rtts) * self.scene.steps_per_rtt

    @property
    def run_flow_steps(self) -> int:
        """Engine steps of all flows in one run."""
        return self.n_steps * self.scene.path.n_flows

    @property
    def first_row(self) -> int:
        return self.scene.warmup_rtts * self.scene.steps_per_rtt

    @property
    def calm_steps(self) -> int:
        """Steps with a benign network at the start."""
        return self.scene.calm_rtts * self.scene.steps_per_rtt

    @cached_property
    def open_moves(self) -> tuple[int, ...]:
        """Columns of the moves that model and path leave open. Raises InputError if there are none."""
        path, flows = self.scene.path, self.scene.path.flows
        jitter = [self.model.has_jitter and flow.jitter_s > 0 for flow in flows]
        hoards = self.model.hoards_tokens and jitter[0]
        varies = self.model.varies_rate and (path.link_rate_min_Bps, path.link_rate_max_Bps) != (None, None)
        is_open = {WASTE: hoards, RATE: varies}
        for i, flow in enumerate(flows):  # if tokens are hoarded, flow 0's service is that of all flows
            is_open[SERVICE + i] = jitter[i] and (i == 0 or not self.model.hoards_tokens)
            is_open[SERVICE + len(flows) + i] = flow.loss_budget > 0
        columns = tuple(column for column in sorted(is_open) if is_open[column])
        if not columns:
            raise InputError(
                f"model {self.model.name!r} on this path leaves the network no choice: no jitter, no rate range, no loss budget"
            )
        return columns

    @property
    def open_names(self) -> tuple[str, ...]:
        """Names of the open moves; those of several flows end in the flow's number."""
        n_flows = self.scene.path.n_flows
        each = [""] if n_flows == 1 else [f"_{i}" for i in range(n_flows)]
        names = ["waste", "rate", *(f"service{end}" for end in each), *(f"loss{end}" for end in each)]
        return tuple(names[column] for column in self.open_moves)

    def moves(self, values: np.ndarray) -> np.ndarray:
        """Return complete moves (B, n_steps, 2 + 2 N) from repeated patterns (B, length, number of open moves) in [0, 1]."""
        B, length, _ = values.shape
        out = np.empty((B, self.n_steps, len(self.kind)))
        out[:] = self.kind
        rows = np.arange(self.n_steps - self.calm_steps) % length
        out[:, self.calm_steps :, self.open_moves] = values[:, rows]
        return out

    def engine(
        self, adversaries: Adversary | Sequence[Adversary], n_envs: int, record: bool = False, paths: PathArrays | None = None
    ) -> CurveEngine:
        """Return an engine for a batch of this game; every environment draws the same random numbers."""
        scene = self.scene
        engine = CurveEngine(
            [scene.path] * n_envs if paths is None else paths,
            model=scene.model,
            senders=[scene.sender] * scene.path.n_flows,
            adversary=adversaries,
            steps_per_rtt=scene.steps_per_rtt,
            seed=scene.seed,
            timing=scene.timing,
            loss_detection="oracle" if scene.timing == "smt" else "acks",
            record=record,
        )
        if n_envs > 1:
            engine.reset(keys=np.zeros(n_envs))
        return engine

    def outcome(self, change: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the goal's outcome, (B,), of an increase of the engine's totals; lower is worse for the sender."""
        names = {"sent": "A", "lost": "L", "delivered": "S", "all_delivered": "S", "capacity": "capacity"}
        names |= {"delay_sum": "delay_byte_s", "delay_weight": "acked"}
        return self.goal.outcome({name: change[total] for name, total in names.items()})

    def play(self, moves: np.ndarray) -> np.ndarray:
        """Return the goal's outcomes under moves (B, n_steps, 2 + 2 N); lower is worse for the sender."""
        return self.play_adversaries([RecordedAdversary("search", row) for row in moves])

    def play_adversaries(self, adversaries: Sequence[Adversary]) -> np.ndarray:
        """Return the goal's outcomes against several adversaries; lower is worse for the sender."""
        groups = [adversaries[i : i + CHUNK] for i in range(0, len(adversaries), CHUNK)]
        return np.concatenate([self._play(group, None)["outcome"] for group in groups])

    def play_paths(self, moves: np.ndarray, paths: PathArrays | None) -> dict[str, np.ndarray]:
        """Play moves on one path each (None: the scenario's); return outcome, sent, lost and queue_bdp, (B,) each.

        ``sent`` and ``lost`` are bytes of the measured window, ``queue_bdp`` is the queue at its end in units of C*Rm.
        """
        return self._play([RecordedAdversary("search", row) for row in moves], paths)

    def _play(self, adversaries: Sequence[Adversary], paths: PathArrays | None) -> dict[str, np.ndarray]:
        engine = self._start_engine(adversaries, paths)
        engine.advance(self.first_row - int(engine.env("step")[0]))
        before = engine.totals()
        if self.scene.timing == "smt":
            log = SampleLog(engine)
            for _ in range(self.n_steps - self.first_row):
                engine.advance(1)
                log.take()
            outcome = self.scene.claim.worst(log.samples())
        else:
            engine.advance(self.n_steps - self.first_row)
        self.count(engine, self.n_steps)
        after = engine.totals()
        change = {name: after[name] - before[name] for name in after}
        if self.scene.timing != "smt":
            outcome = self.outcome(change)
        bdp = engine.env("link_rate_Bps") * engine.flow("rtt_s")[:, 0]
        return {
            "outcome": outcome,
            "sent": change["A"].sum(axis=1),
            "lost": change["L"].sum(axis=1),
            "queue_bdp": engine.queue_bytes / bdp,
        }

    def _start_engine(self, adversaries: Sequence[Adversary], paths: PathArrays | None) -> CurveEngine:
        """Return an engine at its start; for policies, which have no recorded moves, after the benign beginning."""
        engine = self.engine(adversaries, len(adversaries), paths=paths)
        if self.calm_steps == 0 or not any(isinstance(one, MlpAdversary) for one in adversaries):
            return engine
        quiet = self.engine(RecordedAdversary("kind", self.kind[None]), len(adversaries), paths=paths)
        quiet.advance(self.calm_steps)
        arrays = dict(quiet.snapshot().arrays)
        for name in ("adversary_kind", "adversary_index"):
            arrays["_env"][name] = engine.env(name)
        engine.restore(Snapshot(arrays))
        return engine

    def moves_of(self, adversary: Adversary) -> np.ndarray:
        """Return the moves of an adversary in one run, (n_steps, 2 + 2 N); the run is counted."""
        engine = self._start_engine([adversary], None)
        first = int(engine.env("step")[0])
        out = np.tile(self.kind, (self.n_steps, 1))
        for row in out[first:]:
            engine.advance(1)
            moves = engine.snapshot().arrays["_flow_moves"]
            row[:] = (moves["waste"][0], moves["rate"][0], *moves["service"], *moves["loss"])
        self.count(engine, self.n_steps)
        clipped: np.ndarray = np.clip(out, 0.0, 1.0)
        return clipped

    def require_one_flow(self, name: str) -> None:
        """Raise InputError for an adversary of one flow and the goal utilisation in another game."""
        if self.scene.path.n_flows > 1 or self.scene.goal != UTILISATION:
            raise InputError(
                f"adversary {name!r} attacks the utilisation of one flow; this is the goal {self.scene.goal!r} with "
                f"{self.scene.path.n_flows} flows"
            )

    def count(self, engine: CurveEngine, steps: int) -> None:
        self.flow_steps += engine.n_envs * engine.n_flows * steps
        if self.report is not None:
            self.report(self.flow_steps)

    def trace(self, adversary: Adversary) -> Trace:
        """Return the trace of one complete run against an adversary, which is not counted."""
        engine = self.engine(adversary, 1, record=True)
        engine.advance(self.n_steps)
        return engine.trace(0)

    def measure(self, trace: Trace, first_row: int | None = None) -> float:
        """Return the game's utilisation of a trace from a row on (by default after the warm-up); see also ``goal.measure``."""
        first = self.first_row if first_row is None else first_row
        if self.scene.timing == "smt":
            return float(self.scene.claim.worst(samples_of(trace, first))[0])
        window = slice(first + 1, None)
        capacity = float(trace.link_rate_Bps[window].sum()) * trace.header.dt_s
        return float((trace.S[-1] - trace.S[first]).sum()) / capacity


def generator(seed: int, name: str) -> np.random.Generator:
    """Return a counter-based generator that depends only on a seed and the name of the search."""
    key = int.from_bytes(name.encode()[:8].ljust(8, b"\0"), "little")
    return np.random.Generator(np.random.Philox(key=[seed, key]))
