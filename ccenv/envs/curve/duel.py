"""``ccenv/Duel-v0``: flows against the network, as a PettingZoo parallel environment, and batches of such duels.

Each external flow is an agent, and so is the network unless it is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.interface import OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.base.config import validate
from ccenv.base.errors import InputError, did_you_mean, unknown_name
from ccenv.envs.common.adapters import check_render_mode
from ccenv.envs.common.agents import AgentsEnv
from ccenv.envs.common.episodes import as_numbers
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.interface import WatchedFlows, flow_actions
from ccenv.envs.curve.network import DEFAULTS, NetworkAction, network_limits, observe_network
from ccenv.envs.curve.settings import EXTERNAL, REWARD_TERMS, EnvSettings, RewardWeights, read_settings, weigh
from ccenv.envs.curve.task import RateAction
from ccenv.network.adversary import ExternalAdversary

NETWORK = "network"
GAMES = ("zero_sum", "general")
Arrays = dict[str, np.ndarray]


class DuelTask:
    """B networks; in each, every external flow is an agent, and so is an external network.

    Raises InputError without an external flow, or if a network reward does not apply.

    Args:
        settings: ``senders`` names at least one ``"external"``; ``adversary`` is external for a duel, else fixed.
        game: ``"zero_sum"`` or ``"general"``: how the network is rewarded.
        network_reward: weights of the network's reward in a general game; by default those of ``ccenv/Network-v0``.

    Attributes:
        agents: ``sender_0``, ... by flow, then ``network``.
    """

    def __init__(
        self,
        num_envs: int,
        settings: EnvSettings,
        game: Literal["zero_sum", "general"] = "zero_sum",
        network_reward: RewardWeights | dict[str, float] | None = None,
        record: bool = False,
    ) -> None:
        if game not in GAMES:
            raise InputError(f"unknown game {game!r}.{did_you_mean(game, GAMES)}")
        if network_reward is not None and game == "zero_sum":
            raise InputError("network_reward is given, but in a zero_sum game the network's reward is minus the senders'")
        senders, adversary = settings.build_senders(), settings.build_adversary()
        flows = [i for i, name in enumerate(settings.senders) if name == EXTERNAL]
        if not flows:
            raise InputError("senders names no 'external' flow: there is no sender to play")
        self.num_envs = num_envs
        self._flows = {f"sender_{i}": i for i in flows}
        self._moves = NetworkAction(settings, len(senders)) if isinstance(adversary, ExternalAdversary) else None
        self.agents = (*self._flows, *([NETWORK] if self._moves else []))
        groups = np.concatenate([np.eye(len(senders), dtype=np.bool_)[flows], np.ones((1, len(senders)), np.bool_)])
        self.core = Core(num_envs, settings, senders=senders, adversary=adversary, groups=groups, record=record)
        self._rates = RateAction(settings, np.array(flows))
        interface = settings.interface
        self._watched = None if interface is None else WatchedFlows(self.core, settings, len(flows))
        self.weights = settings.reward.vector() if isinstance(settings.reward, RewardWeights) else np.zeros(len(REWARD_TERMS))
        chosen = DEFAULTS["reward"] if network_reward is None else network_reward
        self._network_weights = None if game == "zero_sum" else validate(RewardWeights, chosen, "network_reward").vector()
        levels = settings.n_actions if settings.is_discrete else 0
        low, high = (OBSERVATION_LOW, OBSERVATION_HIGH) if interface is None else interface.limits()
        self.observation_spaces: dict[str, spaces.Box] = {name: spaces.Box(low, high, dtype=np.float32) for name in self._flows}
        self.action_spaces: dict[str, Any] = {name: flow_actions(1, levels).space for name in self._flows}
        if self._moves is not None:
            self.observation_spaces[NETWORK] = spaces.Box(*network_limits(len(senders)), dtype=np.float32)
            self.action_spaces[NETWORK] = self._moves.space

    def step(self, actions: Mapping[str, Any]) -> Arrays:
        """Take one step with the actions (B, n) or (B,) of every agent; return their rewards, (B,) each.

        Raises InputError for an action that is missing or of a wrong shape.
        """
        missing = [name for name in self.agents if name not in actions]
        if missing:
            raise InputError(f"no action for {', '.join(missing)}")
        B = self.num_envs
        flow_actions = []
        for name in self._flows:
            numbers = as_numbers(actions[name])
            if numbers.size != B:
                raise InputError(f"actions of {name} of shape {numbers.shape}; one number for each of {B} environments is needed")
            flow_actions.append(numbers.reshape(B))
        moves = None if self._moves is None else self._moves.moves(actions[NETWORK], B)
        rewards = dict(zip(self._flows, self._play(np.stack(flow_actions, axis=1), moves).T, strict=True))
        if self._moves is not None:
            total = sum(rewards.values())
            of_all = self.core.last_terms[:, -1]
            rewards[NETWORK] = -total if self._network_weights is None else weigh(of_all, self._network_weights)
        return rewards

    def _play(self, actions: np.ndarray, moves: np.ndarray | None) -> np.ndarray:
        """Take one step with the flows' actions (B, n); return their rewards, (B, n)."""
        if self._watched is None:
            terms = self.core.advance(self._rates.rates_Bps(self.core, actions), moves)
        else:
            self._watched.act(actions)
            terms = self.core.advance(moves=moves)
            self._watched.measure()
            if self._watched.has_reward:
                return self._watched.rewards()
        return np.stack([weigh(terms[:, place], self.weights) for place in range(len(self._flows))], axis=1)

    def observe(self) -> Arrays:
        """Return the observations of every agent: new float32 arrays (B, n)."""
        if self._watched is None:
            seen = self.core.observations()[:, list(self._flows.values())]
        else:
            seen = self._watched.observations()
        out = {name: seen[:, place].copy() for place, name in enumerate(self._flows)}
        if self._moves is not None:
            out[NETWORK] = observe_network(self.core)
        return out

    def means(self, mask: np.ndarray) -> dict[str, Arrays]:
        """Return each agent's mean of each reward term over the episodes of some environments, (sum(mask),) each."""
        means = self.core.means(mask)
        return {
            name: {term: means[:, place, index].copy() for index, term in enumerate(REWARD_TERMS)}
            for place, name in enumerate(self.agents)
        }


class DuelSide:
    """One agent of a batch of duels as a task: the other agents are functions of their observations.

    ``CcenvVecEnv(DuelSide(...))`` trains it with Stable-Baselines3.

    Args:
        agent: the learner.
        others: every other agent -> function from observations (B, n) to actions.
    """

    rows_per_env = 1

    def __init__(self, duel: DuelTask, agent: str, others: Mapping[str, Callable[[np.ndarray], np.ndarray]]) -> None:
        if agent not in duel.agents:
            raise unknown_name("agent", agent, duel.agents)
        missing = [name for name in duel.agents if name != agent and name not in others]
        if missing:
            raise InputError(f"nobody plays {', '.join(missing)}: give a function from observations to actions")
        self._duel, self._agent, self._others = duel, agent, dict(others)
        self.core = duel.core
        self.single_observation_space = duel.observation_spaces[agent]
        self.single_action_space = duel.action_spaces[agent]

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Take one step against the others; return the agent's rewards (B,)."""
        seen = self._duel.observe()
        played = {name: act(seen[name]) for name, act in self._others.items() if name != self._agent}
        return self._duel.step({**played, self._agent: actions})[self._agent]

    def observe(self) -> np.ndarray:
        """Return the agent's observations, (B, n)."""
        return self._duel.observe()[self._agent]


class DuelVectorEnv:
    """A batch of ``num_envs`` duels with SAME_STEP autoreset; spaces are of one environment, by agent."""

    def __init__(self, task: DuelTask) -> None:
        self.task = task
        self.agents, self.num_envs = task.agents, task.num_envs
        self.observation_spaces, self.action_spaces = task.observation_spaces, task.action_spaces

    def reset(self, seed: int | Sequence[int | None] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Start new episodes everywhere; return each agent's observations, (B, n), and an empty info."""
        self.task.core.reset(seed=seed)
        return self.task.observe(), {}

    def step(self, actions: Mapping[str, Any]) -> tuple[Arrays, Arrays, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step with the actions of all agents.

        Returns:
            tuple: observations by agent, of the new episode if one has ended; rewards by agent, (B,); terminated, always false;
            truncated, (B,); info for ended episodes: ``final_obs`` (by agent, (B, n), zero elsewhere), ``final_info`` (by agent
            and reward term, (B,)) and their mask ``_final_obs``.
        """
        rewards = self.task.step(actions)
        over = self.task.core.truncated()
        seen = self.task.observe()
        info: dict[str, Any] = {}
        if over.any():
            info["_final_obs"] = over
            info["final_obs"] = {name: np.where(over[:, None], array, 0.0).astype(np.float32) for name, array in seen.items()}
            info["final_info"] = {
                name: {term: _spread(values, over) for term, values in means.items()}
                for name, means in self.task.means(over).items()
            }
            self.task.core.reset(over)
            fresh = self.task.observe()
            for name, array in seen.items():
                array[over] = fresh[name][over]
        return seen, rewards, np.zeros(self.num_envs, np.bool_), over, info


def _spread(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    out = np.zeros(len(mask))
    out[mask] = values
    return out


_ID = "ccenv/Duel-v0"


class DuelEnv(AgentsEnv):
    """Make every controlled flow and the network an agent.

    ## Description
    The agents ``sender_0``, ``sender_1``, ... (one per ``"external"`` flow, numbered by flow) choose rates, the agent
    ``network`` makes the network's legal moves. All act at the same time, once per propagation round trip.

    ## Observation Space
    Senders: the ten elements of ``ccenv/Sender-v0`` of their own flow, or the named ``signals``. Network: the elements of
    ``ccenv/Network-v0``.

    ## Action Space
    Senders: `Box(-1, 1, (1,))`, log2(rate / C_L) = 3a, or what the named ``action`` sets (or `Discrete(n_actions)`). Network:
    `Box(0, 1, (n,))` as in ``ccenv/Network-v0``.

    ## Rewards
    Each sender: the weighted sum (``reward``) of the terms of its own flow (``jain``: of all flows); its utilisation is its share
    of the link, so that the shares of all flows add up to the link's utilisation. Network: with ``game="zero_sum"`` minus the sum
    of the senders' rewards; with ``game="general"`` the weighted sum (``network_reward``) of the terms of all flows together.

    ## Starting State
    As in Sender-v0.

    ## Episode End
    All agents are truncated together after ``episode_rtts`` (64) round trips; the infos of the last step hold the episode's
    mean of each reward term of the own flow (network: of all flows).

    ## Arguments
    ``game``; ``network_reward`` (by default as in ``ccenv/Network-v0``); the fields of ``ccenv.envs.curve.settings.EnvSettings``
    except ``adversary``; exactly one of ``models``; ``render_mode`` None or ``"rgb_array"``.

    ## Version History
    * v0: initial version (observation version 1).
    """

    metadata: ClassVar[dict[str, Any]] = {**AgentsEnv.metadata, "name": "duel_v0"}

    def __init__(
        self,
        render_mode: str | None = None,
        game: Literal["zero_sum", "general"] = "zero_sum",
        network_reward: RewardWeights | dict[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self._set_task(_duel(1, game, network_reward, settings, check_render_mode(render_mode)), render_mode)

    def _set_task(self, task: DuelTask, render_mode: str | None) -> None:
        self._task = task
        super().__init__(task.core, render_mode, task.observation_spaces, task.action_spaces)

    def _play(self, actions: dict[str, Any]) -> dict[str, float]:
        single = {name: as_numbers(actions[name]) for name in self.possible_agents}
        rewards = self._task.step({name: action[None] for name, action in single.items()})
        return {name: float(values[0]) for name, values in rewards.items()}

    def _observe(self) -> dict[str, np.ndarray]:
        return {name: array[0].copy() for name, array in self._task.observe().items()}


class FlowsEnv(DuelEnv):
    """Make every controlled flow an agent on a fixed network: parameter sharing and independent learners.

    As ``DuelEnv`` without the agent ``network``: ``adversary`` is fixed, as in ``ccenv/Sender-v0``. All agents have the same
    spaces.
    """

    metadata: ClassVar[dict[str, Any]] = {**DuelEnv.metadata, "name": "flows_v0"}

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        checked = read_settings(settings, "FlowsEnv")
        if checked.adversary == EXTERNAL:
            raise InputError("adversary is 'external', but only the flows are agents here; for both see ccenv/Duel-v0")
        self._set_task(DuelTask(1, checked, record=check_render_mode(render_mode)), render_mode)


def make_duels(
    num_envs: int,
    game: Literal["zero_sum", "general"] = "zero_sum",
    network_reward: RewardWeights | dict[str, float] | None = None,
    **settings: Any,
) -> DuelVectorEnv:
    """Build a batch of duels; arguments as ``DuelEnv``."""
    return DuelVectorEnv(_duel(num_envs, game, network_reward, settings, False))


def _duel(
    num_envs: int,
    game: Literal["zero_sum", "general"],
    network_reward: RewardWeights | dict[str, float] | None,
    settings: dict[str, Any],
    record: bool,
) -> DuelTask:
    both = read_settings(settings, _ID, {"adversary": EXTERNAL})
    if both.adversary != EXTERNAL:
        raise InputError("adversary is fixed, but the network is an agent here: leave it out")
    return DuelTask(num_envs, both, game, network_reward, record)
