"""The core of the curve environments: batched steps without autoreset, and resets under a mask.

Adapters translate actions, observations and rewards; the core runs the paths.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccenv.agents.sender import ExternalSender, Sender
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine, Snapshot
from ccenv.envs.common.episodes import Episodes, read_array
from ccenv.envs.curve.distribution import Draws, PathSource
from ccenv.envs.curve.settings import REWARD_TERMS, EnvSettings, interval_terms
from ccenv.network.adversary import Adversary
from ccenv.network.trace import Trace

_FLOW_COUNTS = ("S", "L", "acked", "delay_byte_s")


class Core(Episodes):
    """A batch of environments: paths, engine, episode lengths, reward terms.

    Args:
        num_envs: B.
        adversary: of the network, or one per environment.
        groups: (G, N) bool, the flows of each row of reward terms.
        record: keep the data for ``trace``.
        source: source of episodes, in place of the settings' paths.
        watched: flows that are observed over the settings' interface while their own senders decide.
    """

    term_names = REWARD_TERMS

    def __init__(
        self,
        num_envs: int,
        settings: EnvSettings,
        *,
        senders: Sequence[Sender],
        adversary: Adversary | Sequence[Adversary],
        groups: np.ndarray,
        record: bool = False,
        source: PathSource | None = None,
        watched: Sequence[int] = (),
    ) -> None:
        self.decision_steps = settings.decision_steps or settings.steps_per_rtt
        steps = settings.episode_rtts * settings.steps_per_rtt // self.decision_steps
        if steps < 2:
            raise InputError(
                f"episodes of {settings.episode_rtts} Rm hold fewer than two steps of {self.decision_steps} engine steps"
            )
        super().__init__(num_envs, steps, (len(groups), len(REWARD_TERMS)), settings.staggered)
        self._made_with = {"num_envs": num_envs, "settings": settings, "senders": senders, "adversary": adversary}
        self._made_with |= {"groups": groups, "record": record, "source": source, "watched": watched}
        self.n_flows = len(senders)
        self.settings = settings
        self._source = source or PathSource(settings.paths, settings.steps_per_rtt, self.n_flows)
        self.groups = np.ascontiguousarray(groups, dtype=np.bool_)
        self.last_terms = np.zeros_like(self.sums)
        episodes = self._source.draw(*self.keys())
        adversaries = list(adversary) if isinstance(adversary, Sequence) else [adversary] * num_envs
        if len(adversaries) != num_envs:
            raise InputError(f"{len(adversaries)} adversaries for {num_envs} environments")
        self._parts = split_batch(num_envs, len(settings.models))
        self._engines = [
            CurveEngine(
                episodes.part(part).paths,
                model=model,
                senders=list(senders),
                adversary=adversaries[part],
                steps_per_rtt=settings.steps_per_rtt,
                loss_detection=settings.loss_detection,
                beliefs=settings.belief_settings(),
                history_rtts=self._source.history_rtts,
                threads=settings.threads,
                interface=settings.interface if watched or any(isinstance(one, ExternalSender) for one in senders) else None,
                watched=watched,
                record=record,
            )
            for part, model in zip(self._parts, settings.models, strict=False)
        ]
        self._counts = self._read_counts()

    def _start(self, indices: np.ndarray) -> None:
        episodes = self._source.draw(*self.keys(indices))
        self._begin(indices, episodes.stagger)
        for part, engine in zip(self._parts, self._engines, strict=True):
            inside = slice(*np.searchsorted(indices, [part.start, part.stop]))
            local = indices[inside] - part.start
            if len(local):
                _reset_engine(engine, local, episodes.part(inside))
        for counts in self._counts.values():
            counts[indices] = 0.0

    def advance(self, rates_Bps: np.ndarray | None = None, moves: np.ndarray | None = None) -> np.ndarray:
        """Take one environment step.

        Args:
            rates_Bps: (B, N) bytes/s for external flows, NaN for the others.
            moves: (B, 2 + 2 N) in [0, 1] for an external adversary.

        Returns:
            (B, G, len(TERMS)) terms of the step.
        """
        for part, engine in zip(self._parts, self._engines, strict=True):
            engine.advance(
                self.decision_steps,
                actions=None if rates_Bps is None else rates_Bps[part],
                moves=None if moves is None else moves[part],
            )
        self.elapsed += 1
        before, now = self._counts, self._read_counts()
        self._counts = now
        rtt_s = self.flow("rtt_s")
        terms: np.ndarray = interval_terms(
            np.stack([now[name] - before[name] for name in _FLOW_COUNTS]),
            now["capacity"] - before["capacity"],
            self.queue_bytes / (self.env("link_rate_now_Bps") * rtt_s.min(axis=1)),
            rtt_s,
            self.groups,
        )
        self.sums += terms
        self.last_terms = terms
        return terms

    def step_info(self, rows_per_env: int = 1) -> dict[str, np.ndarray]:
        """Return reward terms and time of the last step for the first ``rows_per_env`` groups; empty without ``step_info``."""
        if not self.settings.step_info:
            return {}
        terms = self.last_terms[:, :rows_per_env].reshape(-1, len(REWARD_TERMS))
        out = {f"step_{name}": terms[:, index].copy() for index, name in enumerate(REWARD_TERMS)}
        return out | {"time_s": np.repeat(self.env("step") * self.env("dt_s"), rows_per_env)}

    def engines(self) -> list[tuple[slice, CurveEngine]]:
        """Return the engines with their environments, for kernels that advance them without this core."""
        return list(zip(self._parts, self._engines, strict=True))

    def count_again(self) -> None:
        """Read the engines' counts again, after a kernel has advanced them."""
        self._counts = self._read_counts()

    def _read_counts(self) -> dict[str, np.ndarray]:
        parts = [engine.totals() for engine in self._engines]
        return {name: _join([totals[name] for totals in parts]) for name in (*_FLOW_COUNTS, "capacity")}

    def flow(self, name: str) -> np.ndarray:
        """Return a copy of a field of all flows, (B, N)."""
        return _join([engine.flow(name) for engine in self._engines])

    def env(self, name: str) -> np.ndarray:
        """Return a copy of a field of all environments, (B,)."""
        return _join([engine.env(name) for engine in self._engines])

    @property
    def delivered_bytes(self) -> np.ndarray:
        """Bytes delivered of each flow in its episode so far, (B, N)."""
        return self._read_counts()["S"].copy()

    @property
    def queue_bytes(self) -> np.ndarray:
        """Bytes waiting at the bottleneck, (B,)."""
        return _join([engine.queue_bytes for engine in self._engines])

    def observations(self) -> np.ndarray:
        """Return the belief observation of every flow: a new (B, N, N_OBSERVATION) float32 array."""
        return _join([engine.observations() for engine in self._engines])

    def trace(self, env: int = 0) -> Trace:
        """Return the trace of an environment's episode so far. Needs ``record=True``."""
        for part, engine in zip(self._parts, self._engines, strict=True):
            if part.start <= env < part.stop:
                return engine.trace(env - part.start)
        raise InputError(f"environment {env} of {self.num_envs}")

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of everything that decides the future, as named plain arrays."""
        arrays = self._counters()
        for index, engine in enumerate(self._engines):
            for name, array in engine.snapshot().arrays.items():
                arrays[f"engine{index}.{name}"] = np.frombuffer(array.tobytes(), np.uint8)
        return arrays

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore a result of ``state``, also in another process. Raises InputError if it does not fit."""
        counters = self._read_counters(state)
        snapshots = [
            Snapshot({name: read_array(state, f"engine{index}.{name}", a) for name, a in engine.snapshot().arrays.items()})
            for index, engine in enumerate(self._engines)
        ]
        self._restore(counters, snapshots)
        self._seeded = True

    def _restore(self, counters: dict[str, np.ndarray], snapshots: list[Snapshot]) -> None:
        self._set_counters(counters)
        self._start(np.arange(self.num_envs))  # the paths of the episodes, which the snapshots do not hold
        self._set_counters(counters)
        for engine, snapshot in zip(self._engines, snapshots, strict=True):
            engine.restore(snapshot)
        self._counts = self._read_counts()

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle by rebuilding: compiled kernels and addresses cannot be copied."""
        snapshots = [engine.snapshot() for engine in self._engines]
        return {"made_with": self._made_with, "seeded": self._seeded, "own": self._counters(), "snapshots": snapshots}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild, and continue where the copy was taken."""
        self.__init__(**state["made_with"])  # type: ignore[misc]
        self._restore(state["own"], state["snapshots"])
        self._seeded = state["seeded"]


def split_batch(num_envs: int, n_models: int) -> list[slice]:
    """Divide the environments of a batch among several models."""
    bounds = np.linspace(0, num_envs, min(n_models, num_envs) + 1).round().astype(int)
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(bounds)]


def _reset_engine(engine: CurveEngine, indices: np.ndarray, episodes: Draws) -> None:
    mask = np.zeros(engine.n_envs, np.bool_)
    mask[indices] = True
    seeds = np.zeros(engine.n_envs)
    seeds[indices] = episodes.initial_C_L_Bps
    engine.set_initial_C_L(seeds, mask)
    engine.reset(mask, episodes.paths, episodes.keys)


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
