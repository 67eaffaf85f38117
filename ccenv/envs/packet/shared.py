"""Parameter sharing per packet: each controlled flow is a row of its own, and one policy decides for all of them."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import FlowActions, PacketTask, limits
from ccenv.errors import InputError


class SharedPacketTask(PacketTask):
    """B networks with n controlled flows as B n rows: flow i of network b is row ``b * n + i``.

    A row sees its own flow, sets its rate or window, and is rewarded for it; the rewards' terms say which of them are common.
    Rows of a network start and end together. A flow that does not decide at a step, since it has not started or has stopped,
    sees the same as before, and its action is not read; its reward is 0.

    Args:
        num_envs: B.
        settings: with several controlled flows, ``clock.common`` must be set: all decide at once.
        record: keep what rendering needs.

    Raises:
        InputError: for several controlled flows without a common clock.
    """

    def __init__(self, num_envs: int, settings: PacketSettings, record: bool = False) -> None:
        super().__init__(num_envs, settings, record)
        flows = len(self.core.flows)
        if flows > 1 and not settings.clock.common:
            raise InputError("clock: flows that share a policy must decide at once; set common: true")
        self.rows_per_env = flows
        self.single_observation_space = spaces.Box(*limits(self.interface, 1), dtype=np.float32)
        self.single_action_space = FlowActions(1, settings.n_actions).space

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Set what the actions say and run to the next decision; return each row's reward (B n,).

        Args:
            actions: (B n, 1), or (B n,) where they are discrete.
        """
        rewards: np.ndarray = self.core.advance(self._actions.values(actions, self.core.num_envs)).ravel()
        return rewards

    def observe(self) -> np.ndarray:
        """Return what each row sees of its own flow: (B n, history * signals)."""
        return self.core.observations().reshape(self.core.num_envs * self.rows_per_env, -1)
