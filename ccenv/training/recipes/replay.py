"""Replay of paths on which the policy has most to gain: a curriculum by regret over the parameters of paths.

Prioritised level replay ([PLR] equations 1 to 3) with the positive value loss as the estimate of regret ([Dual-curriculum]
section 4). A level is the start of an episode: path, initial beliefs and the network's random numbers.
"""

from __future__ import annotations

import itertools

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel
from ccenv.base.random import uniform
from ccenv.envs.curve.distribution import Draws, PathDistribution, PathSource

_REPLAY, _CHOICE = 1000, 1001  # indices of an episode's random numbers, beyond those that decide its path
_NO_LEVEL = (-1, -1)  # the level of an environment before its first episode


class ReplaySettings(StrictModel):
    """Settings of the replay of levels.

    Attributes:
        share: share of new episodes that replay a stored level, once ``size`` levels are stored.
        size: stored levels: those with the highest regret.
        temperature: of the ranks of regret: at 1 the n-th rank has weight 1/n; lower values favour the highest more.
        staleness: share of the probability that is proportional to the time since a level was last played.
    """

    share: float = Field(default=0.5, ge=0, le=1)
    size: int = Field(default=256, ge=2, le=65_536)
    temperature: float = Field(default=0.3, gt=0, le=10)
    staleness: float = Field(default=0.1, ge=0, le=1)


class ReplayedPaths(PathSource):
    """Random paths, a share of them replayed.

    The level of an episode depends on its key and on the regrets known when it began, and stays fixed during the episode, also
    after :meth:`set_state`.
    """

    def __init__(self, distribution: PathDistribution, steps_per_rtt: int, num_envs: int, settings: ReplaySettings) -> None:
        super().__init__(distribution, steps_per_rtt, 1)
        self._settings = settings
        self._scores: dict[tuple[int, int], float] = {}
        self._played: dict[tuple[int, int], int] = {}  # number of the segment in which a level was scored last
        self._segments = 0
        self._keys = np.full((num_envs, 2), -1)  # seed and episode of the environment's newest draw
        self._levels = np.full((num_envs, 2), -1)  # lane and episode of its level
        self._begun: list[list[tuple[int, int]]] = [[] for _ in range(num_envs)]

    def draw(self, seeds: np.ndarray, lanes: np.ndarray, episodes: np.ndarray) -> Draws:
        for seed, lane, episode in zip(seeds.tolist(), lanes.tolist(), episodes.tolist(), strict=True):
            if tuple(self._keys[lane].tolist()) != (seed, episode):
                self._keys[lane] = seed, episode
                self._levels[lane] = self._choose(seed, lane, episode)
                self._begun[lane].append((int(self._levels[lane, 0]), int(self._levels[lane, 1])))
        chosen = self._levels[lanes]
        return super().draw(seeds, chosen[:, 0], chosen[:, 1])

    def _choose(self, seed: int, lane: int, episode: int) -> tuple[int, int]:
        store_full = len(self._scores) >= self._settings.size
        if not store_full or uniform(seed, lane, episode, _REPLAY) >= self._settings.share:
            return lane, episode
        levels = list(self._scores)
        number = np.searchsorted(np.cumsum(self.probabilities()), uniform(seed, lane, episode, _CHOICE), side="right")
        return levels[min(int(number), len(levels) - 1)]

    def probabilities(self) -> np.ndarray:
        """Return the probability of each stored level to be replayed next, in the order in which they were stored."""
        scores = np.array(list(self._scores.values()))
        ranks = np.empty(len(scores))
        ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
        by_rank = ranks ** (-1 / self._settings.temperature)
        age = np.array([self._segments - self._played[level] for level in self._scores], np.float64)
        by_age = age if age.sum() else np.ones(len(age))
        share = self._settings.staleness
        return np.asarray((1 - share) * by_rank / by_rank.sum() + share * by_age / by_age.sum())

    def begin(self, fresh: np.ndarray) -> None:
        """Count episodes from here; ``fresh``, (B,) bool, marks environments at the start of an episode."""
        for lane, is_fresh in enumerate(fresh.tolist()):
            newest = (int(self._levels[lane, 0]), int(self._levels[lane, 1]))
            self._begun[lane] = [_NO_LEVEL, newest] if is_fresh else [newest]

    def score(self, advantages: np.ndarray, episode_starts: np.ndarray) -> None:
        """Update the regrets of a rollout's levels from its advantages and episode starts, (T, B) each."""
        gains = np.maximum(advantages, 0.0)
        for lane in range(gains.shape[1]):
            starts = np.flatnonzero(episode_starts[:, lane]).tolist()
            cuts = [0, *(start for start in starts if start > 0), len(gains)]
            if starts[:1] == [0]:
                self._begun[lane].pop(0)
            for number, (first, last) in enumerate(itertools.pairwise(cuts)):
                if number:
                    self._begun[lane].pop(0)
                self._remember(self._begun[lane][0], float(gains[first:last, lane].mean()))

    def _remember(self, level: tuple[int, int], score: float) -> None:
        self._segments += 1
        if level not in self._scores and len(self._scores) >= self._settings.size:
            lowest = min(self._scores, key=lambda one: self._scores[one])
            if self._scores[lowest] >= score:
                return
            del self._scores[lowest], self._played[lowest]
        self._scores[level] = score
        self._played[level] = self._segments

    def state(self) -> dict[str, np.ndarray]:
        return {
            "levels": np.array([*self._scores], np.int64).reshape(-1, 2),
            "scores": np.array([*self._scores.values()]),
            "played": np.array([self._played[level] for level in self._scores], np.int64),
            "segments": np.array([self._segments]),
            "keys": self._keys.copy(),
            "current": self._levels.copy(),
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state of :meth:`state`."""
        levels = [(lane, episode) for lane, episode in state["levels"].tolist()]
        self._scores = dict(zip(levels, state["scores"].tolist(), strict=True))
        self._played = dict(zip(levels, state["played"].tolist(), strict=True))
        self._segments = int(state["segments"][0])
        self._keys, self._levels = state["keys"].copy(), state["current"].copy()
