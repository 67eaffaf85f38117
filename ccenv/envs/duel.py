"""``ccenv/Duel-v0``: flows and network play each other, as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces

from ccenv.engine.compiled.observation import OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.envs.adapters import FRAMES_PER_SECOND, check_render_mode, draw
from ccenv.envs.core import Core
from ccenv.envs.network import NetworkAction
from ccenv.envs.network_observation import network_limits, observe_network
from ccenv.envs.reward import TERMS, RewardWeights, weigh
from ccenv.envs.settings import EXTERNAL, read_settings
from ccenv.envs.task import RateAction
from ccenv.errors import InputError, did_you_mean, require_extra
from ccenv.network.adversary import ExternalAdversary

require_extra("pettingzoo", "duel")

from pettingzoo import ParallelEnv  # noqa: E402  (only after the check that names the extra)

_ID = "ccenv/Duel-v0"
NETWORK = "network"
GAMES = ("zero_sum", "general")


class DuelEnv(ParallelEnv[str, np.ndarray, Any]):
    """Let every controlled flow and the network be an agent of its own.

    ## Description
    The agents ``sender_0``, ``sender_1``, ... (one per ``"external"`` flow, numbered by flow) choose rates, the agent
    ``network`` makes the network's legal moves. All act at the same time, once per propagation round trip.

    ## Observation Space
    Senders: the ten elements of ``ccenv/Sender-v0`` of their own flow. Network: the elements of ``ccenv/Network-v0``.

    ## Action Space
    Senders: `Box(-1, 1, (1,))`, log2(rate / C_L) = 3a (or `Discrete(n_actions)`). Network: `Box(0, 1, (n,))` as in
    ``ccenv/Network-v0``.

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
    ``game`` and ``network_reward``; the fields of ``ccenv.envs.settings.EnvSettings`` except ``adversary``; exactly one of
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
        if game not in GAMES:
            raise InputError(f"unknown game {game!r}.{did_you_mean(game, GAMES)}")
        if network_reward is not None and game == "zero_sum":
            raise InputError("network_reward is given, but in a zero_sum game the network's reward is minus the senders'")
        both = read_settings(settings, _ID, {"adversary": EXTERNAL})
        senders = both.build_senders()
        adversary = both.build_adversary()
        flows = [i for i, name in enumerate(both.senders) if name == EXTERNAL]
        if not flows:
            raise InputError("senders names no 'external' flow: there is no sender to play")
        if not isinstance(adversary, ExternalAdversary):
            raise InputError("adversary is fixed, but the network is an agent here: leave it out")
        self.render_mode = render_mode
        self._flows = {f"sender_{i}": i for i in flows}
        self.possible_agents = [*self._flows, NETWORK]
        self.agents: list[str] = []
        groups = np.concatenate([np.eye(len(senders), dtype=np.bool_)[flows], np.ones((1, len(senders)), np.bool_)])
        record = check_render_mode(render_mode)
        self._core = Core(1, both, senders=senders, adversary=adversary, groups=groups, record=record)
        self._rate_action = RateAction(both, np.array(flows))
        self._moves = NetworkAction(both, len(senders))
        self._weights = both.reward.vector()
        self._network_weights = _network_weights(game, network_reward)
        one = RateAction(both, np.array(flows[:1])).space
        self.observation_spaces: dict[str, spaces.Box] = {
            name: spaces.Box(OBSERVATION_LOW, OBSERVATION_HIGH, dtype=np.float32) for name in self._flows
        }
        self.observation_spaces[NETWORK] = spaces.Box(*network_limits(len(senders)), dtype=np.float32)
        self.action_spaces: dict[str, Any] = {
            name: spaces.Discrete(int(one.n)) if isinstance(one, spaces.Discrete) else spaces.Box(-1.0, 1.0, (1,), np.float32)
            for name in self._flows
        }
        self.action_spaces[NETWORK] = self._moves.space

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
        self._core.reset(seed=seed)
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
        asked = np.array([np.ravel(actions[name])[0] for name in self._flows])
        terms = self._core.advance(
            self._rate_action.rates_Bps(self._core, asked[None]), self._moves.moves(np.asarray(actions[NETWORK])[None])
        )[0]
        own = weigh(terms[:-1], self._weights)
        network = -own.sum() if self._network_weights is None else weigh(terms[-1:], self._network_weights)[0]
        rewards = {name: float(value) for name, value in zip(self.possible_agents, [*own, network], strict=True)}
        truncated = bool(self._core.truncated()[0])
        infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        if truncated:
            means = self._core.means(np.ones(1, np.bool_))[0]
            infos = {
                name: dict(zip(TERMS, map(float, row), strict=True))
                for name, row in zip(self.possible_agents, means, strict=True)
            }
        ends = dict.fromkeys(self.agents, truncated)
        terminations = dict.fromkeys(self.agents, False)
        if truncated:
            self.agents = []
        return self._observe(), rewards, terminations, ends, infos

    def render(self) -> np.ndarray | None:
        """Return a picture of the episode so far: curves and queue."""
        return None if self.render_mode is None else draw(self._core, 0)

    def close(self) -> None:
        """Release nothing: there are no windows or files."""

    def _observe(self) -> dict[str, np.ndarray]:
        seen = self._core.observations()[0]
        return {**{name: seen[i].copy() for name, i in self._flows.items()}, NETWORK: observe_network(self._core)[0].copy()}


def _network_weights(game: str, given: RewardWeights | dict[str, float] | None) -> np.ndarray | None:
    from ccenv.config import validate
    from ccenv.envs.network import DEFAULTS

    if game == "zero_sum":
        return None
    return validate(RewardWeights, DEFAULTS["reward"] if given is None else given, "network_reward").vector()
