"""Parameter sharing: each controlled flow is a row of its own, and one policy decides for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.observation import OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.envs.curve.distribution import PathSource
from ccenv.envs.curve.reward import weigh
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.curve.task import RateAction, SenderTask
from ccenv.network.adversary import Adversary


class SharedSenderTask(SenderTask):
    """B networks with n controlled flows as B n rows: flow i of network b is row ``b * n + i``.

    A row sees its own flow, sets its rate, and is rewarded for it: its utilisation is its share of the link, its loss its own;
    the queue is common to all, and ``jain`` compares the bytes delivered to all flows. Rows of a network start and end together.

    Args:
        num_envs: B.
        settings: ``senders`` names at least one ``"external"``.
        record: keep what rendering needs.
        adversaries: one network's player per environment in place of the settings' one.
        source: where episodes come from, in place of the settings' paths.
    """

    def __init__(
        self,
        num_envs: int,
        settings: EnvSettings,
        record: bool = False,
        adversaries: Sequence[Adversary] | None = None,
        source: PathSource | None = None,
    ) -> None:
        super().__init__(num_envs, settings, record, adversaries, source)
        self.rows = self.flows[:, None]
        self.rows_per_env = len(self.flows)
        self.single_observation_space = spaces.Box(OBSERVATION_LOW, OBSERVATION_HIGH, dtype=np.float32)
        self.single_action_space = RateAction(settings, self.flows[:1]).space

    def _groups(self, n_flows: int) -> np.ndarray:
        return np.eye(n_flows, dtype=np.bool_)[self.flows]

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Set the rates and take one step; return the rewards (B n,).

        Args:
            actions: (B n, 1), or (B n,) where they are discrete.
        """
        terms = self.core.advance(self._action.rates_Bps(self.core, actions))
        rewards: np.ndarray = weigh(terms.reshape(-1, terms.shape[2]), self.weights)
        return rewards

    def observe(self) -> np.ndarray:
        """Return what each row sees of its own flow: (B n, N_OBSERVATION)."""
        return self.core.observations()[:, self.flows].reshape(len(self.flows) * self.core.num_envs, -1)
