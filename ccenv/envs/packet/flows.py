"""Controlled flows of packet networks as agents, as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ccenv.base.errors import InputError
from ccenv.envs.common.adapters import check_render_mode
from ccenv.envs.common.agents import AgentsEnv
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import SharedPacketTask

DEFAULTS: dict[str, Any] = {"scenario": "four", "clock": {"every": "rtt", "common": True}}


class PacketFlowsEnv(AgentsEnv):
    """Make every controlled flow an agent: parameter sharing and independent learners.

    The agents are ``sender_0``, ``sender_1``, ..., one per flow whose sender is ``external``. Each observes its own flow, sets
    its rate or window and has its own reward, as a row of ``SharedPacketTask``. ``clock`` must be common: all act at the same
    time. All agents have the same spaces and are truncated together.
    """

    metadata: ClassVar[dict[str, Any]] = {**AgentsEnv.metadata, "name": "packet_flows_v0"}

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        checked = read_packet_settings(settings, "PacketFlowsEnv", DEFAULTS)
        if not checked.clock.common:
            raise InputError("PacketFlowsEnv: the clock must be common: all agents act at the same time")
        self._task = task = SharedPacketTask(1, checked, check_render_mode(render_mode))
        names = [f"sender_{flow}" for flow in task.core.flows]
        observations, actions = (
            dict.fromkeys(names, task.single_observation_space),
            dict.fromkeys(names, task.single_action_space),
        )
        super().__init__(task.core, render_mode, observations, actions)

    def _play(self, actions: dict[str, Any]) -> dict[str, float]:
        rewards = self._task.step(np.array([np.ravel(actions[name])[0] for name in self.agents]))
        return dict(zip(self.agents, map(float, rewards), strict=True))

    def _observe(self) -> dict[str, np.ndarray]:
        seen = self._task.observe()
        return {name: seen[row].copy() for row, name in enumerate(self.possible_agents)}
