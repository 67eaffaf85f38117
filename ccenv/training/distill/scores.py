"""Scores of many belief programs at once: the same paths, moves and numbers as ``evaluate_sender``, one batch per model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ccenv.adversary import Adversary
from ccenv.engine.curve import CurveEngine
from ccenv.envs.distribution import PathDistribution, PathSource, path_rows
from ccenv.envs.mixture import MoveMixture
from ccenv.envs.reward import RewardWeights
from ccenv.programs import Program
from ccenv.sender import ProgramSender
from ccenv.training.evaluation import MODELS

LARGEST_BATCH = 16_384  # environments of one engine; more are done in turns


@dataclass(frozen=True)
class Scores:
    """Means over paths, one entry per program: arrays (n,)."""

    score: np.ndarray
    utilisation: np.ndarray
    queue_bdp: np.ndarray
    loss: np.ndarray
    delay_rtts: np.ndarray


class ProgramScorer:
    """Scores belief programs on one fixed set of paths.

    Args:
        n_paths: number of paths, divided among ``cbr_delay`` and ``ccac``.
        seed: of the paths and the network's moves.
        steps_per_rtt: K.
        warmup_rtts: round trips before the measurement.
        measure_rtts: round trips measured.
        adversary: the network's player; by default the mixture that training meets.
        weights: of the score's terms.
    """

    def __init__(
        self,
        n_paths: int,
        seed: int,
        *,
        steps_per_rtt: int = 4,
        warmup_rtts: int = 60,
        measure_rtts: int = 64,
        adversary: Adversary | None = None,
        weights: RewardWeights | None = None,
    ) -> None:
        self.n_paths = n_paths
        self._K, self._warmup, self._measure = steps_per_rtt, warmup_rtts, measure_rtts
        self._source = PathSource(PathDistribution(seeded_share=0.0), steps_per_rtt, 1)
        lanes = np.arange(n_paths)
        self._episodes = self._source.draw(np.full(n_paths, seed), lanes, np.zeros(n_paths, np.int64))
        bounds = np.linspace(0, n_paths, len(MODELS) + 1).round().astype(int)
        self._parts = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
        self._adversary = MoveMixture().adversary() if adversary is None else adversary
        self._weights = weights or RewardWeights()

    def scores(self, programs: Sequence[Program]) -> Scores:
        """Score programs; the result of one does not depend on the others."""
        turn = max(1, LARGEST_BATCH // self.n_paths)
        parts = [self._terms(programs[i : i + turn]) for i in range(0, len(programs), turn)]
        used, queue, loss, delay = np.concatenate(parts, axis=1)
        w = self._weights
        # Jain's index of one flow is 1.
        score = w.utilisation * used + w.queue * queue + w.loss * loss + w.delay * delay + w.jain
        return Scores(score, used, queue, loss, delay)

    def _terms(self, programs: Sequence[Program]) -> np.ndarray:
        """Return utilisation, queue, loss and delay: (4, len(programs))."""
        senders = [ProgramSender(program.name, program) for program in programs]
        sums = np.zeros((4, len(programs)))
        for part, model in zip(self._parts, MODELS, strict=True):
            n = part.stop - part.start
            which = np.tile(np.arange(part.start, part.stop), len(senders))
            engine = CurveEngine(
                path_rows(self._episodes.paths, which),
                model=model,
                senders=[[sender] for sender in senders for _ in range(n)],
                adversary=self._adversary,
                steps_per_rtt=self._K,
                history_rtts=self._source.history_rtts,
            )
            engine.reset(keys=self._episodes.keys[which])
            engine.advance(self._warmup * self._K)
            before = last = engine.totals()
            queue, delay = np.zeros((2, len(which)))
            rtt_s = engine.flow("rtt_s")[:, 0]
            for _ in range(self._measure):
                engine.advance(self._K)
                queue += engine.queue_bytes / (engine.env("link_rate_now_Bps") * rtt_s)
                after = engine.totals()
                acked = (after["acked"] - last["acked"])[:, 0]
                waited = (after["delay_byte_s"] - last["delay_byte_s"])[:, 0]
                delay += np.where(acked > 0, waited / np.maximum(acked, 1e-300) / rtt_s, 0.0)
                last = after
            capacity = after["capacity"] - before["capacity"]
            used, lost = ((after[name] - before[name])[:, 0] / capacity for name in ("S", "L"))
            terms = np.stack([used, queue / self._measure, lost, delay / self._measure]).reshape(4, len(senders), n)
            sums += terms.sum(axis=2)
        return sums / self.n_paths
