"""``ccenv/PacketDuel-v0``: controlled flows against delay elements, as a PettingZoo parallel environment."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.interface import Interface
from ccenv.base.errors import InputError, require_extra
from ccenv.envs.common.adapters import FRAMES_PER_SECOND, check_render_mode, draw
from ccenv.envs.common.episodes import as_numbers
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import (
    FlowActions,
    check_interface,
    controlled_flows,
    limits,
    make_core,
    make_decider,
    read_services,
    service_space,
)

require_extra("pettingzoo", "duel")

from pettingzoo import ParallelEnv  # noqa: E402  (only after the check that names the extra)

_ID = "ccenv/PacketDuel-v0"
NETWORK = "network"
DEFAULTS: dict[str, Any] = {"scenario": "duel", "clock": {"every": "rtt", "common": True}}


class PacketDuelEnv(ParallelEnv[str, np.ndarray, Any]):
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

    metadata: ClassVar[dict[str, Any]] = {
        "name": "packet_duel_v0",
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "is_parallelizable": True,
    }

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
        self.render_mode = render_mode
        record = check_render_mode(render_mode)
        self._core = make_core(1, checked, interface, dict.fromkeys(flows, make_decider(interface)), record, per_flow=True)
        self._seen = Interface.model_validate({"signals": "network"})
        self._flows = {f"sender_{flow}": row for row, flow in enumerate(flows)}
        self.possible_agents = [*self._flows, NETWORK]
        self.agents: list[str] = []
        self._actions = FlowActions(len(flows), checked.n_actions)
        self._levels, self._boxes = checked.n_actions, len(boxes)
        low, high = limits(interface, 1)
        self.observation_spaces = {name: spaces.Box(low, high, dtype=np.float32) for name in self._flows}
        self.observation_spaces[NETWORK] = spaces.Box(*limits(self._seen, len(flows)), dtype=np.float32)
        self.action_spaces: dict[str, Any] = {name: FlowActions(1, checked.n_actions).space for name in self._flows}
        self.action_spaces[NETWORK] = service_space(len(boxes), checked.n_actions)

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
        services = read_services(as_numbers(actions[NETWORK]), (1, self._boxes), self._levels)
        flow_rewards = self._core.advance(self._actions.values(asked[None], 1), services)[0]
        rewards = {name: float(value) for name, value in zip(self._flows, flow_rewards, strict=True)} | {
            NETWORK: -float(flow_rewards.sum())
        }
        truncated = bool(self._core.truncated()[0])
        infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        if truncated:
            means = self._core.means(np.ones(1, np.bool_))[0]
            for name, row in zip(self._flows, means, strict=True):
                infos[name] = dict(zip(self._core.term_names, map(float, row), strict=True))
        ends, terminations = dict.fromkeys(self.agents, truncated), dict.fromkeys(self.agents, False)
        if truncated:
            self.agents = []
        return self._observe(), rewards, terminations, ends, infos

    def render(self) -> np.ndarray | None:
        """Return an image of the episode so far: curves and queue."""
        return None if self.render_mode is None else draw(self._core, 0)

    def close(self) -> None:
        """Release nothing: there are no windows or files."""

    def _observe(self) -> dict[str, np.ndarray]:
        seen = self._core.observations()[0]
        network = self._core.signals(self._seen.numbers)[0].reshape(-1)
        return {**{name: seen[row].copy() for name, row in self._flows.items()}, NETWORK: network}
