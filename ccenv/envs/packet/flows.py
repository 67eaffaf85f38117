"""Controlled flows of packet networks as agents, as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ccenv.base.errors import InputError, require_extra
from ccenv.envs.common.adapters import FRAMES_PER_SECOND, check_render_mode, draw
from ccenv.envs.common.episodes import episode_metrics
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import SharedPacketTask

require_extra("pettingzoo", "duel")

from pettingzoo import ParallelEnv  # noqa: E402  (only after the check that names the extra)

DEFAULTS: dict[str, Any] = {"scenario": "four", "clock": {"every": "rtt", "common": True}}


class PacketFlowsEnv(ParallelEnv[str, np.ndarray, Any]):
    """Make every controlled flow an agent: parameter sharing and independent learners.

    The agents are ``sender_0``, ``sender_1``, ..., one per flow whose sender is ``external``. Each observes its own flow, sets
    its rate or window and has its own reward, as a row of ``SharedPacketTask``. ``clock`` must be common: all act at the same
    time. All agents have the same spaces and are truncated together.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "packet_flows_v0",
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "is_parallelizable": True,
    }

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        checked = read_packet_settings(settings, "PacketFlowsEnv", DEFAULTS)
        if not checked.clock.common:
            raise InputError("PacketFlowsEnv: the clock must be common: all agents act at the same time")
        self.render_mode = render_mode
        self._task = SharedPacketTask(1, checked, check_render_mode(render_mode))
        self.possible_agents = [f"sender_{flow}" for flow in self._task.core.flows]
        self.agents: list[str] = []
        self.observation_spaces = dict.fromkeys(self.possible_agents, self._task.single_observation_space)
        self.action_spaces = dict.fromkeys(self.possible_agents, self._task.single_action_space)

    def observation_space(self, agent: str) -> spaces.Box:
        """Return an agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return an agent's action space, always the same object."""
        return self.action_spaces[agent]

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
        agents = list(self.agents)
        rewards = self._task.step(np.array([np.ravel(actions[name])[0] for name in agents]))
        over = bool(self._task.core.truncated()[0])
        infos: dict[str, dict[str, Any]] = {name: {} for name in agents}
        if over:
            metrics = episode_metrics(self._task.core, np.ones(1, np.bool_), len(agents))
            infos = {name: {term: float(values[row]) for term, values in metrics.items()} for row, name in enumerate(agents)}
            self.agents = []
        ends, terminations = dict.fromkeys(agents, over), dict.fromkeys(agents, False)
        return self._observe(), dict(zip(agents, map(float, rewards), strict=True)), terminations, ends, infos

    def render(self) -> np.ndarray | None:
        """Return an image of the episode so far: curves and queue."""
        return None if self.render_mode is None else draw(self._task.core, 0)

    def close(self) -> None:
        """Release nothing: there are no windows or files."""

    def _observe(self) -> dict[str, np.ndarray]:
        seen = self._task.observe()
        return {name: seen[row].copy() for row, name in enumerate(self.possible_agents)}
