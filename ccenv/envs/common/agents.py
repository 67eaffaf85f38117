"""PettingZoo's parallel interface: several agents act at the same time in one environment of a core."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ccenv.base.errors import InputError, require_extra
from ccenv.envs.common.adapters import FRAMES_PER_SECOND, draw

require_extra("pettingzoo", "duel")

from pettingzoo import ParallelEnv  # noqa: E402  (only after the check that names the extra)


class AgentsEnv(ParallelEnv[str, np.ndarray, Any]):
    """An environment whose agents all act at once.

    Attributes:
        core: of one environment; its first groups of flows are the first agents.
        possible_agents: all agents, in the order of their infos.
        agents: those of the episode that runs; none after its end.
        observation_spaces, action_spaces: by agent, always the same objects.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "is_parallelizable": True,
    }
    possible_agents: list[str] = []  # noqa: RUF012

    def __init__(self, core: Any, render_mode: str | None, observations: dict[str, Any], actions: dict[str, Any]) -> None:
        self.core, self.render_mode = core, render_mode
        self.observation_spaces, self.action_spaces = observations, actions
        self.possible_agents = list(observations)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Box:
        """Return an agent's observation space."""
        space: spaces.Box = self.observation_spaces[agent]
        return space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return an agent's action space."""
        space: spaces.Space[Any] = self.action_spaces[agent]
        return space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Start the next episode, or with a seed the first one of that seed. No options are used."""
        self.core.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._observe(), self._infos(False)

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Take one step with the actions of all agents. Raises InputError if an agent's action is missing."""
        missing = [name for name in self.agents if name not in actions]
        if missing:
            raise InputError(f"no action for {', '.join(missing)}")
        rewards = self._play(actions)
        over = bool(self.core.truncated()[0])
        infos = self._infos(over)
        ends, none = dict.fromkeys(self.agents, over), dict.fromkeys(self.agents, False)
        if over:
            self.agents = []
        return self._observe(), rewards, *((ends, none) if self.core.terminates else (none, ends)), infos

    def render(self) -> np.ndarray | None:
        """Return an image of the episode so far: curves and queue."""
        return None if self.render_mode is None else draw(self.core, 0)

    def close(self) -> None:
        """Release nothing: there are no windows or files."""

    def _play(self, actions: dict[str, Any]) -> dict[str, float]:
        """Take a step; return the rewards."""
        raise NotImplementedError

    def _observe(self) -> dict[str, np.ndarray]:
        """Return new observations of all agents."""
        raise NotImplementedError

    def _infos(self, over: bool) -> dict[str, dict[str, Any]]:
        """Return the infos of a step: of an episode's last one the mean of each reward term of the agent's flows."""
        infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        means = self.core.means(np.ones(1, np.bool_))[0].tolist() if over else []
        return infos | {name: dict(zip(self.core.term_names, row, strict=True)) for name, row in zip(infos, means, strict=False)}
