"""Scores of many belief programs at once: the same paths, moves and numbers as ``evaluate_in_world``, one batch per model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.distribution import PathDistribution, PathSource, path_rows
from ccenv.envs.curve.reward import TERMS, interval_terms, weigh
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings
from ccenv.agents.sender import ProgramSender, Sender
from ccenv.agents.programs import Program
from ccenv.training.evaluation import MEASURE_RTTS, WARMUP_RTTS
from ccenv.training.path_sets import PathSet, path_seed

LARGEST_BATCH = 16_384  # environments of one engine; more are done in turns
_COUNTS = ("S", "L", "acked", "delay_byte_s")


@dataclass(frozen=True)
class Scores:
    """Means over paths, one entry per program: arrays (n,)."""

    score: np.ndarray
    utilisation: np.ndarray
    queue_bdp: np.ndarray
    loss: np.ndarray
    delay_rtts: np.ndarray
    jain: np.ndarray


class ProgramScorer:
    """Scores belief programs on one fixed set of paths of a world, with its competitors, models, grid and network.

    Args:
        world: settings of the environment, with one external flow.
        n_paths: number of paths, divided among the models.
        path_set: where the paths come from.
        seed: which paths of the set, and which moves of the network.
        warmup_rtts: round trips before the measurement.
        measure_rtts: round trips measured.
    """

    def __init__(
        self,
        world: EnvSettings,
        n_paths: int,
        path_set: PathSet,
        seed: int,
        *,
        warmup_rtts: int = WARMUP_RTTS,
        measure_rtts: int = MEASURE_RTTS,
    ) -> None:
        self.n_paths = n_paths
        self._world, self._warmup, self._measure = world, warmup_rtts, measure_rtts
        self._flows = world.build_senders()
        self._own = world.senders.index(EXTERNAL)
        paths = world.paths
        cold = paths.model_copy(update={"seeded_share": 0.0}) if isinstance(paths, PathDistribution) else paths
        self._source = PathSource(cold, world.steps_per_rtt, len(self._flows))
        lanes = np.arange(n_paths)
        seeds = np.full(n_paths, path_seed(path_set, seed))
        self._episodes = self._source.draw(seeds, lanes, np.zeros(n_paths, np.int64))
        bounds = np.linspace(0, n_paths, min(len(world.models), n_paths) + 1).round().astype(int)
        self._parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]

    def scores(self, programs: Sequence[Program]) -> Scores:
        """Score programs; the result of one does not depend on the others."""
        turn = max(1, LARGEST_BATCH // self.n_paths)
        terms = np.concatenate([self._terms(programs[i : i + turn]) for i in range(0, len(programs), turn)])
        return Scores(weigh(terms, self._world.reward.vector()), *(terms[:, column].copy() for column in range(len(TERMS))))

    def _terms(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the mean terms of the reward: (len(programs), len(TERMS))."""
        senders = [ProgramSender(program.name, program) for program in programs]
        world, own = self._world, np.arange(len(self._flows))[None] == self._own
        sums = np.zeros((len(programs), len(TERMS)))
        for part, model in zip(self._parts, world.models, strict=False):
            n = part.stop - part.start
            which = np.tile(np.arange(part.start, part.stop), len(senders))
            engine = CurveEngine(
                path_rows(self._episodes.paths, which),
                model=model,
                senders=[self._with(sender) for sender in senders for _ in range(n)],
                adversary=world.build_adversary(),
                steps_per_rtt=world.steps_per_rtt,
                loss_detection=world.loss_detection,
                beliefs=world.belief_settings(),
                history_rtts=self._source.history_rtts,
            )
            engine.reset(keys=self._episodes.keys[which])
            engine.advance(self._warmup * world.steps_per_rtt)
            before = engine.totals()
            terms = np.zeros((len(which), len(TERMS)))
            rtt_s = engine.flow("rtt_s")
            for _ in range(self._measure):
                engine.advance(world.steps_per_rtt)
                after = engine.totals()
                terms += interval_terms(
                    np.stack([after[name] - before[name] for name in _COUNTS]),
                    after["capacity"] - before["capacity"],
                    engine.queue_bytes / (engine.env("link_rate_now_Bps") * rtt_s.min(axis=1)),
                    rtt_s,
                    own,
                )[:, 0]
                before = after
            sums += (terms / self._measure).reshape(len(senders), n, len(TERMS)).sum(axis=1)
        return sums / self.n_paths

    def _with(self, sender: Sender) -> list[Sender]:
        """Return the senders of all flows of a path."""
        return [sender if flow == self._own else other for flow, other in enumerate(self._flows)]
