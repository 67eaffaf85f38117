"""The gap to a baseline ([Genet]): where in its scenario's ranges a policy falls behind a classic CCA by most.

A box is a part of each range: ends in [0, 1] of the numbers that a range is drawn from, so that a logarithmic range is cut in its
logarithm, and a choice in its places.

One policy for many preferences ("Multi-objective congestion control", EuroSys 2022: MOCC): weights of objectives as inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ccenv.agents import make_sender
from ccenv.agents.interface.rewards import TERM_NUMBERS, TERMS
from ccenv.agents.sender import ClassicSender, ContractSender, PolicySender
from ccenv.base.errors import InputError
from ccenv.base.random import uniform
from ccenv.envs.curve.distribution import draw_numbers
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import SharedPacketTask, watched_core
from ccenv.training.evaluation import WARMUP_SHARE, cold_task
from ccenv.training.path_sets import PathSet, path_seed
from ccenv.training.recipes.settings import GapSettings, PreferenceSettings


def boxes_of(gap: GapSettings, seed: int, round_: int, n_ranges: int) -> np.ndarray:
    """Return the boxes that a round compares: (boxes, n_ranges, 2) ends in [0, 1]."""
    key = int(uniform(seed, round_, 0, 0) * 2**31)
    first = np.random.Generator(np.random.Philox(key=[key, 1])).random((gap.boxes, n_ranges)) * (1.0 - gap.width)
    return np.stack([first, first + gap.width], axis=-1)


def find_gap(
    settings: PacketSettings, policy: PolicySender | ContractSender, gap: GapSettings, seed: int, round_: int
) -> np.ndarray:
    """Return the box in which the policy falls behind the baseline by most: (n_ranges, 2).

    Raises:
        InputError: for a baseline that is no classic CCA.
    """
    boxes = boxes_of(gap, seed, round_, len(settings.distribution.leaves))
    within = np.repeat(boxes, gap.networks, axis=0)
    cold = settings.model_copy(update={"episode_decisions": gap.decisions})
    task, batch = cold_task(cold, policy, len(within), within=within)
    own = _mean_reward(task.core, cold, seed + round_, lambda: task.step(batch.actions(task.observe())[:, None]))
    watched = baseline_core(cold, gap.baseline, within)
    other = _mean_reward(watched, cold, seed + round_, watched.advance)
    gaps = (other - own).reshape(gap.boxes, gap.networks).mean(axis=1)
    found: np.ndarray = boxes[int(np.argmax(gaps))]
    return found


def baseline_core(settings: PacketSettings, name: str, within: np.ndarray) -> PacketCore:
    """Return networks in which a classic CCA plays the controlled flows, watched at the times when the policy would decide."""
    sender = make_sender(name)
    if not isinstance(sender, ClassicSender):
        raise InputError(f"recipe.gap.baseline: {name!r} is no classic CCA")
    return watched_core(settings.model_copy(update={"staggered": False, "start_rate_share": None}), sender, within)


def _mean_reward(core: PacketCore, settings: PacketSettings, number: int, step: Any) -> np.ndarray:
    """Play an episode; return the mean reward of the decisions of each network after its warm-up, (B,)."""
    core.reset(seed=path_seed(PathSet.TRAIN, number))
    warmup = round(WARMUP_SHARE * core.episode_steps)
    sums, counts = core.sums, core.counts
    for at in range(core.episode_steps):
        if at == warmup:
            sums, counts = core.sums, core.counts
        if core.truncated().all():
            break
        step()
    decisions = np.maximum((core.counts - counts).sum(axis=1), 1.0)
    terms = (core.sums - sums).sum(axis=1) / decisions[:, None]
    weights = np.array([settings.weights.get(term.name, 0.0) for term in TERMS])
    found: np.ndarray = terms @ weights
    return found


def drawn_within(num_envs: int, share: float, promoted: np.ndarray, n_ranges: int) -> np.ndarray:
    """Return what part of each range each environment draws from.

    Every promotion gives a share of all environments to its box and leaves the others as they were, so that of two boxes the
    newer one has more.

    Args:
        num_envs: environments.
        share: of a promoted box.
        promoted: (n, n_ranges, 2), the oldest first.
        n_ranges: of the scenario.

    Returns:
        np.ndarray: (num_envs, n_ranges, 2).
    """
    within = np.tile(np.array([0.0, 1.0]), (num_envs, n_ranges, 1))
    place = (np.arange(num_envs) + 0.5) / num_envs  # of each environment on the shares, the newest box first
    ends = 1.0 - (1.0 - share) ** np.arange(1, len(promoted) + 1)
    which = np.searchsorted(ends, place)
    for row, box in enumerate(which.tolist()):
        if box < len(promoted):
            within[row] = promoted[len(promoted) - 1 - box]
    return within


_LANES = 2**40  # of the numbers that preferences are drawn from: no environment has one of them


class PreferenceTask(SharedPacketTask):
    """Flows whose observation ends with the weights of their objectives, and whose reward is the weighted sum.

    Args:
        num_envs: B.
        settings: of ``ccenv/Packet-v0``.
        preferences: objectives, and the preference where none is drawn.
    """

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
        seeds, lanes, episodes = self.core.keys
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
        """Return what is seen of each row's flow, and its preference."""
        return np.append(super().observe(), self.preferences().astype(np.float32), axis=1)
