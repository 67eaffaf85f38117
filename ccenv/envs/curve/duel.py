"""``ccenv/Duel-v0``: flows and network play each other, as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces

from ccenv.envs.common.adapters import FRAMES_PER_SECOND, check_render_mode, draw
from ccenv.envs.curve.batches_duel import DuelTask, DuelVectorEnv
from ccenv.envs.curve.core import as_numbers
from ccenv.envs.curve.reward import RewardWeights
from ccenv.envs.curve.settings import EXTERNAL, read_settings
from ccenv.base.errors import InputError, require_extra

require_extra("pettingzoo", "duel")

from pettingzoo import ParallelEnv  # noqa: E402  (only after the check that names the extra)

_ID = "ccenv/Duel-v0"


class DuelEnv(ParallelEnv[str, np.ndarray, Any]):
    """Let every controlled flow and the network be an agent of its own.

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
    ``game`` and ``network_reward``; the fields of ``ccenv.envs.curve.settings.EnvSettings`` except ``adversary``; exactly one of
    ``models``; ``render_mode`` None or ``"rgb_array"``.

    ## Version History
    * v0: initial version (observation version 1).
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "duel_v0",
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        render_mode: str | None = None,
        game: Literal["zero_sum", "general"] = "zero_sum",
        network_reward: RewardWeights | dict[str, float] | None = None,
        **settings: Any,
    ) -> None:
        """Build the environment.

        Args:
            render_mode: None or ``"rgb_array"``.
            game: ``"zero_sum"`` or ``"general"``.
            network_reward: weights of the network's reward in a general game; by default those of ``ccenv/Network-v0``.
            **settings: fields of ``EnvSettings``.
        """
        self.render_mode = render_mode
        self._task = _duel(1, game, network_reward, settings, check_render_mode(render_mode))
        self.possible_agents = list(self._task.agents)
        self.agents: list[str] = []
        self.observation_spaces, self.action_spaces = self._task.observation_spaces, self._task.action_spaces

    def observation_space(self, agent: str) -> spaces.Box:
        """Return an agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return an agent's action space, always the same object."""
        space: spaces.Space[Any] = self.action_spaces[agent]
        return space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Start the next episode, or with a seed the first one of that seed. No options are used."""
        self._task.core.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._observe(), {name: {} for name in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Take one step with the actions of all agents.

        Raises:
            InputError: if an agent's action is missing.
        """
        missing = [name for name in self.agents if name not in actions]
        if missing:
            raise InputError(f"no action for {', '.join(missing)}")
        single = {name: as_numbers(actions[name]) for name in self.possible_agents}
        found = self._task.step({name: action[None] for name, action in single.items()})
        rewards = {name: float(values[0]) for name, values in found.items()}
        truncated = bool(self._task.core.truncated()[0])
        infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        if truncated:
            means = self._task.means(np.ones(1, np.bool_))
            infos = {name: {term: float(values[0]) for term, values in own.items()} for name, own in means.items()}
        ends = dict.fromkeys(self.agents, truncated)
        terminations = dict.fromkeys(self.agents, False)
        if truncated:
            self.agents = []
        return self._observe(), rewards, terminations, ends, infos

    def render(self) -> np.ndarray | None:
        """Return a picture of the episode so far: curves and queue."""
        return None if self.render_mode is None else draw(self._task.core, 0)

    def close(self) -> None:
        """Release nothing: there are no windows or files."""

    def _observe(self) -> dict[str, np.ndarray]:
        return {name: array[0].copy() for name, array in self._task.observe().items()}


class FlowsEnv(DuelEnv):
    """Let every controlled flow be an agent of its own on a network that is fixed: parameter sharing and independent learners.

    As ``DuelEnv`` without the agent ``network``: ``adversary`` is the network's player, as in ``ccenv/Sender-v0``. All agents
    have the same spaces.
    """

    metadata: ClassVar[dict[str, Any]] = {**DuelEnv.metadata, "name": "flows_v0"}

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        """Build the environment.

        Args:
            render_mode: None or ``"rgb_array"``.
            **settings: fields of ``EnvSettings``.
        """
        self.render_mode = render_mode
        checked = read_settings(settings, "FlowsEnv")
        if checked.adversary == EXTERNAL:
            raise InputError("adversary is 'external', but only the flows are agents here; for both see ccenv/Duel-v0")
        self._task = DuelTask(1, checked, record=check_render_mode(render_mode))
        self.possible_agents = list(self._task.agents)
        self.agents = []
        self.observation_spaces, self.action_spaces = self._task.observation_spaces, self._task.action_spaces


def make_duels(
    num_envs: int,
    game: Literal["zero_sum", "general"] = "zero_sum",
    network_reward: RewardWeights | dict[str, float] | None = None,
    **settings: Any,
) -> DuelVectorEnv:
    """Build a batch of duels; arguments as ``DuelEnv``.

    Args:
        num_envs: number of environments.
        game: ``"zero_sum"`` or ``"general"``.
        network_reward: weights of the network's reward in a general game.
        **settings: fields of ``EnvSettings``.
    """
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
