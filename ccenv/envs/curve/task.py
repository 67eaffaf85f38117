"""The task of an agent that controls senders: spaces, actions, observations and rewards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.interface import OBSERVATION_HIGH, OBSERVATION_LOW, SENDER_V0, Interface
from ccenv.agents.interface.user import OwnReward
from ccenv.base.errors import InputError
from ccenv.envs.common.episodes import Actions
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathSource
from ccenv.envs.curve.settings import EnvSettings, weigh
from ccenv.network.adversary import Adversary, ExternalAdversary

ACTION_RANGE_LOG2 = 3.0  # a box action a sets log2(rate / C_L) = 3a, as the kernel does for learned senders


class RateAction(Actions):
    """Actions on the rates of some flows: log2(rate / C_L), or inside a shield the position in its interval."""

    def __init__(self, settings: EnvSettings, flows: np.ndarray) -> None:
        super().__init__(len(flows), np.linspace(-1.0, 1.0, settings.n_actions) if settings.action == "discrete" else None)
        self.flows = flows
        self._inside = settings.shield is not None

    def rates_Bps(self, core: Core, actions: np.ndarray) -> np.ndarray:
        """Return rates for ``Core.advance``. Raises InputError as ``read`` does.

        Args:
            core: provides C_L, the base of an action, and MSS/Rm, the smallest rate.
            actions: (B, n), or (B,) for one discrete flow.

        Returns:
            (B, N) bytes/s, or positions in [0, 1] inside a shield; NaN for flows that are not controlled.
        """
        numbers = self.read(actions, core.num_envs)
        chosen: np.ndarray
        if self._inside:
            chosen = 0.5 * (numbers + 1.0)
        else:
            floor = core.env("mss_bytes")[:, None] / core.flow("rtt_s")[:, self.flows]
            chosen = np.maximum(core.flow("C_L_Bps")[:, self.flows] * np.exp2(ACTION_RANGE_LOG2 * numbers), floor)
        if self.n == core.n_flows:
            return chosen
        rates = np.full((core.num_envs, core.n_flows), np.nan)
        rates[:, self.flows] = chosen
        return rates


class SenderTask:
    """Control the flows whose sender is external, jointly.

    Args:
        settings: ``senders`` names at least one ``"external"``.
        adversaries: one per environment, in place of the settings' adversary.
        source: source of episodes, in place of the settings' paths.
    """

    interface: Interface = SENDER_V0

    def __init__(
        self,
        num_envs: int,
        settings: EnvSettings,
        record: bool = False,
        adversaries: Sequence[Adversary] | None = None,
        source: PathSource | None = None,
    ) -> None:
        senders = settings.build_senders()
        self.flows = np.array(settings.external_flows(), np.int64)
        if not len(self.flows):
            raise InputError("senders names no 'external' flow: there is nothing to control")
        adversary = settings.build_adversary()
        if isinstance(adversary, ExternalAdversary):
            raise InputError("adversary is 'external', but the agent controls senders; for both see ccenv/Duel-v0")
        groups = self._groups(len(senders))
        network = adversaries or adversary
        self.core = Core(num_envs, settings, senders=senders, adversary=network, groups=groups, record=record, source=source)
        self._action = RateAction(settings, self.flows)
        self.rows = self.flows[None]  # one row sees and controls all of them together
        self.rows_per_env = 1
        self.levels = 0 if self._action.values is None else len(self._action.values)
        self.weights = np.zeros(0) if isinstance(settings.reward, OwnReward) else settings.reward.vector()
        low, high = (np.tile(limit, len(self.flows)) for limit in (OBSERVATION_LOW, OBSERVATION_HIGH))
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.single_action_space = self._action.space

    def _groups(self, n_flows: int) -> np.ndarray:
        """Return the flows that each row is rewarded for: (rows, N) bool."""
        groups = np.zeros((1, n_flows), np.bool_)
        groups[0, self.flows] = True
        return groups

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Set the rates and take one step; return the rewards (B,)."""
        rewards: np.ndarray = weigh(self.core.advance(self._action.rates_Bps(self.core, actions))[:, 0], self.weights)
        return rewards

    def observe(self) -> np.ndarray:
        """Return the beliefs of the controlled flows, in order: (B, n * N_OBSERVATION)."""
        seen = self.core.observations()
        return (seen if len(self.flows) == self.core.n_flows else seen[:, self.flows]).reshape(self.core.num_envs, -1)
