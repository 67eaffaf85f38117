"""Curricula by the gap to a baseline ([Genet]): boxes of a scenario's ranges in which a policy falls furthest behind it.

A box is a part of each range, with ends in [0, 1] of the uniform number that the range is drawn from, so that a logarithmic range
is cut in its logarithm and a choice by index. :class:`PreferenceTask` trains one policy for many preferences, with the weights of
the objectives as inputs ("Multi-objective congestion control", EuroSys 2022: MOCC).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ccenv.agents import make_sender
from ccenv.agents.interface.rewards import TERM_NUMBERS, TERMS
from ccenv.agents.sender import ClassicSender, PolicySender, ShieldSender
from ccenv.base.errors import InputError
from ccenv.base.random import uniform
from ccenv.envs.curve.distribution import draw_numbers
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import SharedPacketTask, watched_core
from ccenv.training.evaluation import WARMUP_SHARE, cold_task
from ccenv.training.path_sets import PathSet, path_seed
from ccenv.training.recipes.settings import GapSettings, PreferenceSettings


def draw_boxes(gap: GapSettings, seed: int, round_: int, n_ranges: int) -> np.ndarray:
    """Draw the boxes that a round compares: (boxes, n_ranges, 2) ends in [0, 1]."""
    key = int(uniform(seed, round_, 0, 0) * 2**31)
    first = np.random.Generator(np.random.Philox(key=[key, 1])).random((gap.boxes, n_ranges)) * (1.0 - gap.width)
    return np.stack([first, first + gap.width], axis=-1)


def find_gap(
    settings: PacketSettings, policy: PolicySender | ShieldSender, gap: GapSettings, seed: int, round_: int
) -> np.ndarray:
    """Return the box, (n_ranges, 2), in which the policy falls furthest behind the baseline, which must be a classic CCA."""
    boxes = draw_boxes(gap, seed, round_, len(settings.distribution.leaves))
    within = np.repeat(boxes, gap.networks, axis=0)
    cold = settings.model_copy(update={"episode_decisions": gap.decisions})
    task, batch = cold_task(cold, policy, len(within), within=within)
    policy_rewards = _mean_reward(task.core, cold, seed + round_, lambda: task.step(batch.actions(task.observe())[:, None]))
    core = baseline_core(cold, gap.baseline, within)
    baseline_rewards = _mean_reward(core, cold, seed + round_, core.advance)
    gaps = (baseline_rewards - policy_rewards).reshape(gap.boxes, gap.networks).mean(axis=1)
    worst: np.ndarray = boxes[int(np.argmax(gaps))]
    return worst


def baseline_core(settings: PacketSettings, name: str, within: np.ndarray) -> PacketCore:
    """Return networks whose controlled flows run a classic CCA, measured at the times when the policy would decide."""
    sender = make_sender(name)
    if not isinstance(sender, ClassicSender):
        raise InputError(f"recipe.gap.baseline: {name!r} is no classic CCA")
    return watched_core(len(within), settings.model_copy(update={"staggered": False, "start_rate_share": None}), sender, within)


def _mean_reward(core: PacketCore, settings: PacketSettings, number: int, step: Any) -> np.ndarray:
    """Play an episode; return the mean reward of the decisions of each network after its warm-up, (B,)."""
    core.reset(seed=path_seed(PathSet.TRAIN, number))
    warmup = round(WARMUP_SHARE * core.episode_steps)
    sums, counts = core.sums.copy(), core.counts.copy()
    for decision in range(core.episode_steps):
        if decision == warmup:
            sums, counts = core.sums.copy(), core.counts.copy()
        if core.truncated().all():
            break
        step()
    decisions = np.maximum((core.counts - counts).sum(axis=1), 1.0)
    terms = (core.sums - sums).sum(axis=1) / decisions[:, None]
    weights = np.array([settings.weights.get(term.name, 0.0) for term in TERMS])
    rewards: np.ndarray = terms @ weights
    return rewards


def assign_boxes(num_envs: int, share: float, promoted: np.ndarray, n_ranges: int) -> np.ndarray:
    """Return the box that each environment draws from, (num_envs, n_ranges, 2).

    Every promotion assigns ``share`` of all environments to its box and leaves the others as they were, so a newer box has more
    environments than an older one. ``promoted`` is (n, n_ranges, 2), the oldest first.
    """
    within = np.tile(np.array([0.0, 1.0]), (num_envs, n_ranges, 1))
    position = (np.arange(num_envs) + 0.5) / num_envs  # of each environment on the shares, the newest box first
    ends = 1.0 - (1.0 - share) ** np.arange(1, len(promoted) + 1)
    promotion_of_env = np.searchsorted(ends, position)
    for row, box in enumerate(promotion_of_env.tolist()):
        if box < len(promoted):
            within[row] = promoted[len(promoted) - 1 - box]
    return within


_LANES = 2**40  # offset of the random numbers of preferences, beyond every environment


class PreferenceTask(SharedPacketTask):
    """Flows whose observation ends with the weights of their objectives, and whose reward is the weighted sum."""

    def __init__(self, num_envs: int, settings: PacketSettings, preferences: PreferenceSettings) -> None:
        super().__init__(num_envs, settings)
        self._preferences, names = preferences, list(preferences.objectives)
        self._default = np.array([preferences.default[name] for name in names])
        self._terms = np.zeros((len(TERM_NUMBERS), len(names)))
        for column, name in enumerate(names):
            for term, weight in preferences.objectives[name].items():
                self._terms[TERM_NUMBERS[term], column] = weight
        seen = self.single_observation_space
        low, high = np.append(seen.low, np.zeros(len(names))), np.append(seen.high, np.ones(len(names)))
        self.single_observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def preferences(self) -> np.ndarray:
        """Return the weights of the objectives in the episode of each row, (rows, objectives)."""
        if self._preferences.only:
            return np.tile(self._default, (self.core.num_envs * self.rows_per_env, 1))
        seeds, lanes, episodes = self.core.keys()
        u = draw_numbers(seeds, lanes + _LANES, episodes, len(self._default))
        shares = -np.log(np.maximum(1.0 - u, 1e-300)).T  # exponential numbers over their sum are even on the simplex
        return np.repeat(shares / shares.sum(axis=1, keepdims=True), self.rows_per_env, axis=0)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Take a step; return the rows' rewards by their own preferences."""
        super().step(actions)
        objectives = self.core.terms.reshape(-1, len(TERM_NUMBERS)) @ self._terms
        rewards: np.ndarray = (objectives * self.preferences()).sum(axis=1) * self.core.measured.reshape(-1)
        return rewards

    def observe(self) -> np.ndarray:
        """Return the observation of each row's flow, and its preference."""
        return np.append(super().observe(), self.preferences().astype(np.float32), axis=1)
