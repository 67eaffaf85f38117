"""Controlled flows as agents, alone or against delay elements (``ccenv/PacketDuel-v0``): PettingZoo parallel environments."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.interface import Interface
from ccenv.base.errors import InputError
from ccenv.envs.common.adapters import check_render_mode
from ccenv.envs.common.agents import AgentsEnv
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import (
    SharedPacketTask,
    check_interface,
    controlled_flows,
    flow_actions,
    limits,
    make_core,
    make_decider,
    service_actions,
)

_ID = "ccenv/PacketDuel-v0"
NETWORK = "network"
DEFAULTS: dict[str, Any] = {"scenario": "duel", "clock": {"every": "rtt", "common": True}}


class PacketDuelEnv(AgentsEnv):
    """Make every controlled flow an agent, and the delay elements of the network together another one.

    ## Description
    The agents ``sender_0``, ``sender_1``, ... (one per flow whose sender is ``external``, numbered by flow) set rates or windows,
    the agent ``network`` controls the delay elements whose adversary is ``external``. All act at the same time (``clock`` is
    common), by default once per propagation RTT of the first controlled flow.

    ## Observation Space
    Senders: that of ``ccenv/Packet-v0`` for their own flow. Network: the signals of the set ``network`` (as in
    ``ccenv/PacketNetwork-v0``) of all controlled flows.

    ## Action Space
    Senders: `Box(-1, 1, (1,))`, as in ``ccenv/Packet-v0`` (or `Discrete(n_actions)`). Network: as in ``ccenv/PacketNetwork-v0``.

    ## Rewards
    Each sender: the weighted sum (``reward``) of the terms of its own flow. Network: minus the sum of the senders' rewards.

    ## Starting State
    As in ``ccenv/Packet-v0``. A flow that has not begun, or is over, keeps its observation; its action is not read.

    ## Episode End
    All agents are truncated together, as in ``ccenv/Packet-v0``; the infos of the last step hold the episode's mean of each
    reward term of the own flow.

    ## Arguments
    The fields of ``ccenv.envs.packet.settings.PacketSettings``; ``clock`` must be common; ``render_mode`` is None or
    ``"rgb_array"``.

    ## Version History
    * v0: initial version (interface version 1).
    """

    metadata: ClassVar[dict[str, Any]] = {**AgentsEnv.metadata, "name": "packet_duel_v0"}

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        checked = read_packet_settings(settings, _ID, DEFAULTS)
        distribution, interface = checked.distribution, checked.interface()
        flows = controlled_flows(distribution)
        boxes = [flow.jitter.adversary for flow in distribution.largest.flows if flow.jitter.kind == "adversary"]
        if not flows:
            raise InputError(f"{distribution.where}: no flow has the sender 'external': there is no sender to play")
        if not boxes or set(boxes) != {EXTERNAL}:
            raise InputError(
                f"{distribution.where}: the network plays all jitter boxes of kind adversary, and there must be one: give each "
                f"'adversary: external' (got {boxes})"
            )
        if not checked.clock.common:
            raise InputError(f"{_ID}: the clock must be common: all agents act at the same time")
        if checked.link_rate_min_share is not None:
            raise InputError(f"{_ID}: link_rate_min_share is for ccenv/PacketNetwork-v0")
        check_interface(interface, distribution, flows)
        watched = dict.fromkeys(flows, make_decider(interface))
        core = make_core(1, checked, interface, watched, check_render_mode(render_mode), per_flow=True)
        self._seen = Interface.model_validate({"signals": "network"})
        self._flows = {f"sender_{flow}": row for row, flow in enumerate(flows)}
        self._actions = flow_actions(len(flows), checked.n_actions)
        self._services = service_actions(len(boxes), checked.n_actions)
        low, high = limits(interface, 1)
        observations = {name: spaces.Box(low, high, dtype=np.float32) for name in self._flows}
        observations[NETWORK] = spaces.Box(*limits(self._seen, len(flows)), dtype=np.float32)
        actions: dict[str, Any] = {name: flow_actions(1, checked.n_actions).space for name in self._flows}
        actions[NETWORK] = self._services.space
        super().__init__(core, render_mode, observations, actions)

    def _play(self, actions: dict[str, Any]) -> dict[str, float]:
        asked = np.array([np.ravel(actions[name])[0] for name in self._flows])
        services = self._services.read(actions[NETWORK], 1)
        rewards = self.core.advance(self._actions.read(asked[None], 1), services)[0]
        return {name: float(value) for name, value in zip(self._flows, rewards, strict=True)} | {NETWORK: -float(rewards.sum())}

    def _observe(self) -> dict[str, np.ndarray]:
        seen = self.core.observations()[0]
        network = self.core.signals(self._seen.numbers)[0].reshape(-1)
        return {**{name: seen[row].copy() for name, row in self._flows.items()}, NETWORK: network}


FLOWS_DEFAULTS: dict[str, Any] = {"scenario": "four", "clock": {"every": "rtt", "common": True}}


class PacketFlowsEnv(AgentsEnv):
    """Make every controlled flow an agent: parameter sharing and independent learners.

    The agents are ``sender_0``, ``sender_1``, ..., one per flow whose sender is ``external``. Each observes its own flow, sets
    its rate or window and has its own reward, as a row of ``SharedPacketTask``. ``clock`` must be common: all act at the same
    time. All agents have the same spaces and are truncated together.
    """

    metadata: ClassVar[dict[str, Any]] = {**AgentsEnv.metadata, "name": "packet_flows_v0"}

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        checked = read_packet_settings(settings, "PacketFlowsEnv", FLOWS_DEFAULTS)
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
