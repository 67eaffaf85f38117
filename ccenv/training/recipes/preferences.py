"""One policy for many preferences ("Multi-objective congestion control", EuroSys 2022: MOCC): weights of objectives as inputs."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from ccenv.envs.curve.distribution import draw_numbers
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.agents.interface.rewards import TERM_NUMBERS
from ccenv.training.recipes.settings import PreferenceSettings

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
