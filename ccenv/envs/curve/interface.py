"""Tasks whose flows use signals and actions of the tables (``ccenv.agents.interface``), also with one policy for all flows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.interface import OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.agents.interface.rewards import N_TERMS
from ccenv.agents.interface.user import OwnReward
from ccenv.base.errors import InputError
from ccenv.engine.curve.watch import Watch
from ccenv.envs.common.episodes import Actions
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathSource
from ccenv.envs.curve.settings import EnvSettings, TableReward, weigh
from ccenv.envs.curve.task import RateAction, SenderTask
from ccenv.network.adversary import Adversary


class SharedSenderTask(SenderTask):
    """B networks with n controlled flows as B n rows: flow i of network b is row ``b * n + i``.

    A row observes its own flow, sets its rate, and is rewarded for it: its utilisation is its share of the link, its loss is its
    own; the queue is common to all, and ``jain`` compares the bytes delivered of all flows. Rows of a network start and end
    together. Arguments are those of ``SenderTask``.
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
        """Set the rates by actions (B n, 1), or (B n,) discrete ones, and take one step; return the rewards (B n,)."""
        terms = self.core.advance(self._action.rates_Bps(self.core, actions))
        rewards: np.ndarray = weigh(terms.reshape(-1, terms.shape[2]), self.weights)
        return rewards

    def observe(self) -> np.ndarray:
        """Return each row's observation of its own flow: (B n, N_OBSERVATION)."""
        return self.core.observations()[:, self.flows].reshape(len(self.flows) * self.core.num_envs, -1)


class WatchedFlows:
    """The n controlled flows of a core, observed and driven through an interface.

    Attributes:
        levels: number of values of each discrete action; 0: continuous ones.
        table_weights: (N_TERMS,) of a reward by the table's terms; None: own_reward, or the curve environments' own terms.
        own_reward: a user-defined reward, or None.
    """

    def __init__(self, core: Core, settings: EnvSettings, n: int) -> None:
        self._core = core
        self.levels = settings.n_actions if settings.is_discrete else 0
        self._actions = flow_actions(n, self.levels)
        self.own_reward = settings.reward if isinstance(settings.reward, OwnReward) else None
        self.table_weights = settings.reward.vector() if isinstance(settings.reward, TableReward) else None

    @property
    def has_reward(self) -> bool:
        """Whether the reward is computed from measures: by the table's terms, or in Python."""
        return self.table_weights is not None or self.own_reward is not None

    @property
    def _watches(self) -> list[tuple[slice, Watch]]:
        return [(part, engine.watch) for part, engine in self._core.engines()]

    def _begin(self) -> None:
        """Begin the flows of environments that were reset since the last call."""
        for _, watch in self._watches:
            fresh = np.flatnonzero(watch.fresh)
            if len(fresh):
                watch.begin(fresh)

    def act(self, actions: np.ndarray) -> None:
        """Set rates and windows by actions (B, n). Raises InputError as ``Actions.read`` does."""
        self._begin()
        asked = self._actions.read(actions, self._core.num_envs)
        for part, watch in self._watches:
            watch.act(np.ascontiguousarray(asked[part]))

    def measure(self) -> None:
        """End the interval of all flows."""
        for part, watch in self._watches:
            watch.measure(np.arange(part.stop - part.start))

    def rates_Bps(self, actions: np.ndarray) -> np.ndarray:
        """Return the pacing rates that actions (B, n) in [-1, 1] would set, (B, n); the flows only note the actions."""
        return np.concatenate([watch.rates_Bps(np.ascontiguousarray(actions[part])) for part, watch in self._watches])

    def rewards(self) -> np.ndarray:
        """Return the reward of each flow in the newest interval, by the table's terms or in Python: (B, n)."""
        terms = np.concatenate([watch.terms() for _, watch in self._watches])
        if self.own_reward is not None:
            return self.own_reward.values(terms)
        weights = np.zeros(N_TERMS) if self.table_weights is None else self.table_weights
        rewards: np.ndarray = weigh(terms.reshape(-1, N_TERMS), weights)
        return rewards.reshape(terms.shape[:2])

    def observations(self) -> np.ndarray:
        """Return the flows' observations: a new (B, n, width) float32 array."""
        self._begin()
        return np.concatenate([watch.observations() for _, watch in self._watches])


class WatchedTask(SenderTask):
    """Control the flows whose sender is external, over an interface of the tables.

    An interval ends with each environment step, for all controlled flows at once. The first observation of an episode is that of
    an idle flow.

    Args:
        settings: whose ``interface`` is not None; ``senders`` names at least one ``"external"``.
        adversaries: one per environment, in place of the settings' adversary.
        source: source of episodes, in place of the settings' paths.
        shared: each controlled flow is its own row, with its own observation and reward; otherwise one row has the observations
            of all of them, in order, and the mean of their rewards.

    Attributes:
        table_weights, own_reward: as of ``WatchedFlows``.
    """

    def __init__(
        self,
        num_envs: int,
        settings: EnvSettings,
        record: bool = False,
        adversaries: Sequence[Adversary] | None = None,
        source: PathSource | None = None,
        *,
        shared: bool = False,
    ) -> None:
        interface = settings.interface
        if interface is None:
            raise InputError("signals, action and reward are those of the belief interface: nothing is measured")
        self.interface = interface
        self._shared = shared
        super().__init__(num_envs, settings, record, adversaries, source)
        n = len(self.flows)
        self._watched = WatchedFlows(self.core, settings, n)
        self.levels = self._watched.levels
        per_row = 1 if shared else n
        self.rows = self.flows[:, None] if shared else self.flows[None]
        self.rows_per_env = n if shared else 1
        low, high = (np.tile(limit, per_row) for limit in interface.limits())
        self.single_observation_space = spaces.Box(low, high, dtype=np.float32)
        self.single_action_space = flow_actions(per_row, self.levels).space
        self.own_reward, self.table_weights = self._watched.own_reward, self._watched.table_weights

    def _groups(self, n_flows: int) -> np.ndarray:
        return np.eye(n_flows, dtype=np.bool_)[self.flows] if self._shared else super()._groups(n_flows)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Let the actions set rates and windows and take one step; return the rewards (B * rows_per_env,).

        Raises InputError for actions of a wrong shape, NaN, or invalid indices of discrete actions.

        Args:
            actions: (B, n) in [-1, 1], numbers outside are clipped, or indices of the discrete values.
        """
        self._watched.act(actions)
        terms = self.core.advance()
        self._watched.measure()
        if not self._watched.has_reward:
            of_rows: np.ndarray = weigh(terms.reshape(-1, terms.shape[2]), self.weights)
            return of_rows
        rewards = self.flow_rewards()
        return rewards.ravel() if self._shared else rewards.mean(axis=1)

    def rates_Bps(self, actions: np.ndarray) -> np.ndarray:
        """Return the pacing rates that actions (B, n) in [-1, 1] would set, (B, n); the flows only note the actions."""
        return self._watched.rates_Bps(actions)

    def drive(self, rates_Bps: np.ndarray) -> None:
        """Take a step at these rates, (B, n) bytes/s, whatever the action."""
        rates = np.full((self.core.num_envs, self.core.n_flows), np.nan)
        rates[:, self.flows] = rates_Bps
        self.core.advance(rates)
        self._watched.measure()

    def flow_rewards(self) -> np.ndarray:
        """Return the reward of each controlled flow in the newest step, by the table's terms: (B, n)."""
        return self._watched.rewards()

    def observe(self) -> np.ndarray:
        """Return the controlled flows' observations: (B * rows_per_env, flows of a row * width of the interface)."""
        return self._watched.observations().reshape(self.core.num_envs * self.rows_per_env, -1)


def flow_actions(n: int, levels: int) -> Actions:
    """Return n actions in [-1, 1], continuous (levels 0) or with ``levels`` evenly spaced values each."""
    return Actions(n, 2.0 * np.arange(levels) / (levels - 1) - 1.0 if levels else None)


def sender_task(
    num_envs: int,
    settings: EnvSettings,
    record: bool = False,
    adversaries: Sequence[Adversary] | None = None,
    source: PathSource | None = None,
    *,
    shared: bool = False,
) -> SenderTask:
    """Return the task of an agent that controls senders according to the settings; arguments as of ``WatchedTask``."""
    if settings.interface is not None:
        return WatchedTask(num_envs, settings, record, adversaries, source, shared=shared)
    return (SharedSenderTask if shared else SenderTask)(num_envs, settings, record, adversaries, source)
