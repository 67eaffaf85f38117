"""Tasks of agents in the packet core: control flows, or the network's delay elements and link rate (the ``strong`` model)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from ccenv.adversaries.scripted import keep
from ccenv.agents.callbacks import ADVERSARY_STATE
from ccenv.agents.interface.interface import Interface
from ccenv.agents.interface.signals import PACKET, SIGNAL_NUMBERS, signal
from ccenv.agents.programs import Program
from ccenv.agents.sender import ClassicSender, ExternalSender, Sender, ShieldSender, bare
from ccenv.attacks.boxes.players import PATTERN
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.registry import load_target
from ccenv.engine.compiled.calls import unowned
from ccenv.engine.packet.kernel import network_of
from ccenv.engine.packet.layout import ordered
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.sources import set_source, sources_of
from ccenv.envs.common.episodes import Actions
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.settings import PacketSettings
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_trace
from ccenv.simulation.ranges import ScenarioDistribution

MOVED = "_moved"


@kernel(nogil=True)
def move_link(arrays, b, share, least_share):  # type: ignore[no-untyped-def]
    """Set the rate of the only link of a network, also for the rest of a packet in service; return the rate in bytes/s.

    Args:
        arrays: ``ccenv.engine.packet.kernel.PacketArrays`` of a batch.
        b: index of the network.
        share: 0: the smallest legal rate, 1: the rate drawn for the episode.
        least_share: smallest legal rate, as a share of the drawn one.
    """
    a = network_of(unowned(arrays), b)
    run, ln, box = a.run[0], a.links[0], a.boxes[0]
    rate_Bps = box.link_rate_Bps * (least_share + share * (1.0 - least_share))
    now_s = run.now_s
    ln.capacity_bytes += ln.rate_Bps * (now_s - ln.capacity_s)
    ln.capacity_s = now_s
    if ln.busy == 1:
        ln.finish_s = now_s + (ln.finish_s - now_s) * (ln.rate_Bps / rate_Bps)
        sources = sources_of(run.n_links, run.n_flows, run.n_pipes, run.n_boxes, run.n_grids, run.n_monitors)
        set_source(run, sources.links, ln.finish_s)
    ln.rate_Bps = rate_Bps
    return rate_Bps


class RateCore(PacketCore):
    """A batch of networks of one link each, whose rate moves between ``least_share`` of the drawn rate and that rate."""

    def __init__(self, num_envs: int, *, least_share: float, **made_with: Any) -> None:
        _check_link(made_with["distribution"], least_share)
        self.least_share = least_share
        rows = made_with["episode_decisions"] + 1 if made_with["record"] else 0
        self._moved = np.zeros((num_envs, rows, 2))  # time and rate of each step's move, of networks that are recorded
        super().__init__(num_envs, **made_with)
        self._made_with["least_share"] = least_share

    def advance(self, actions: np.ndarray | None = None, services: np.ndarray | None = None) -> np.ndarray:
        """Take one step (``PacketCore.advance``); the last column of services is the link's rate as a position in its range."""
        if services is None:
            raise InputError("the link's rate is a move of the network's agent: services are needed")
        for b, share in enumerate(services[:, -1].tolist()):
            rate_Bps = move_link(self.batch.arrays, b, share, self.least_share)
            if self._recording:
                self._moved[b, self.elapsed[b]] = self.batch.arrays.run["now_s"][b, 0], rate_Bps
        return super().advance(actions, services[:, :-1])

    def trace(self, env: int = 0) -> Trace:
        """Return an environment's episode so far (``PacketCore.trace``) as a trace of the strong model."""
        played = self.played(env)
        moves = [tuple(row) for row in self._moved[env, : self.elapsed[env]].tolist()]
        rows = ordered(self.batch.packet_log(env), float(self.now_s[env]))
        return packet_trace(played, rows, least_rate_share=self.least_share, moves=moves)

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of everything that decides the future, and the moves so far of recorded networks."""
        return super().state() | {MOVED: self._moved.copy()}

    def set_state(self, state: Any) -> None:
        """Restore a result of ``state``. Raises InputError if it does not fit."""
        if MOVED not in state or state[MOVED].nbytes != self._moved.nbytes:
            raise InputError(f"environment state without a fitting {MOVED!r}")
        super().set_state({name: array for name, array in state.items() if name != MOVED})
        self._moved[...] = np.frombuffer(state[MOVED].tobytes()).reshape(self._moved.shape)


def _check_link(distribution: ScenarioDistribution, least_share: float) -> None:
    """Refuse networks whose link rate cannot be a move: several links, rate steps, rates that may become too small."""
    largest = distribution.largest
    if len(largest.links) > 1 or largest.links[0].rate_steps:
        raise InputError(f"{distribution.where}: link_rate_min_share needs one link, without rate_steps")
    for scenario, flow in itertools.product(distribution.corners, range(len(largest.flows))):
        slowest_Bps = least_share * scenario.links[0].rate_Bps
        if slowest_Bps * scenario.flows[flow].rtt_s < scenario.mss_bytes:
            raise InputError(
                f"{distribution.where}: link_rate_min_share {least_share:g} leaves flow {flow} less than a segment per RTT "
                f"({slowest_Bps * 8e-6:g} Mbit/s, {scenario.flows[flow].rtt_s * 1e3:g} ms)"
            )


# Looked up at run time.
_LOAD_SENDER = "ccenv.agents.load:load_sender"
_MAKE_ADVERSARY = "ccenv.adversaries:make_adversary"


def play(state: Any, view: Any, move: Any) -> None:
    """Release the share that was set from outside."""
    move.service = state.s0


OUTSIDE_BOX = ScriptedAdversary(EXTERNAL, ADVERSARY_STATE, keep, play, {"s0": 1.0})


def make_senders(distribution: ScenarioDistribution, shield: Program | None = None) -> dict[str, Sender]:
    """Return all senders that a distribution may draw, by name; external ones run inside the shield, if there is one."""
    names = [flow.sender for flow in distribution.largest.flows]
    for leaf in distribution.leaves:
        if leaf.place[-1] == "sender":
            names += leaf.choices
    load = load_target(_LOAD_SENDER)
    outside: Sender = ExternalSender() if shield is None else ShieldSender(shield.name, shield, EXTERNAL)
    return {name: outside if name == EXTERNAL else load(name) for name in dict.fromkeys(names)}


def controlled_flows(distribution: ScenarioDistribution) -> list[int]:
    """Return the externally controlled flows. Raises InputError for a random choice that includes 'external'."""
    for leaf in distribution.leaves:
        if leaf.place[-1] == "sender" and EXTERNAL in leaf.choices:
            raise InputError(f"{distribution.where}: {leaf.name}: 'external' cannot be one of several choices")
    return [index for index, flow in enumerate(distribution.largest.flows) if flow.sender == EXTERNAL]


def make_boxes(distribution: ScenarioDistribution) -> dict[str, ScriptedAdversary]:
    """Return the adversaries of delay elements by name; the agent is ``external``."""
    made: dict[str, ScriptedAdversary] = {}
    for flow in distribution.largest.flows:
        name = flow.jitter.adversary
        if name and name not in made:
            made[name] = OUTSIDE_BOX if name == EXTERNAL else load_target(_MAKE_ADVERSARY)(name)
            if not isinstance(made[name], ScriptedAdversary):
                raise InputError(f"adversary {name!r} is not scripted; a jitter box needs a scripted adversary, or 'external'")
    return made


def check_interface(interface: Interface, distribution: ScenarioDistribution, flows: list[int]) -> None:
    """Raise InputError for signals and actions that these flows cannot have."""
    for row in interface.rows:
        if PACKET not in row.engines:
            raise InputError(f"signal {row.name!r} is not known per packet")
        if row.needs == "finite":
            bulk = [flow for flow in flows if distribution.largest.flows[flow].workload.kind == "bulk"]
            if bulk:
                raise InputError(f"signal {row.name!r} needs an application that ends; flow {bulk[0]} is bulk")


def make_decider(interface: Interface) -> Decider:
    """Return the decider of controlled flows: the caller, through an interface."""
    inner = None
    if interface.inner:
        sender = bare(load_target(_LOAD_SENDER)(interface.inner))
        if not isinstance(sender, ClassicSender):
            raise InputError(f"inner CCA {interface.inner!r} is no CCA of its own; a classic one is needed")
        inner = sender
    return Decider(interface=interface, inner=inner)


def make_core(
    num_envs: int,
    settings: PacketSettings,
    interface: Interface,
    deciders: Mapping[int, Decider],
    record: bool,
    per_flow: bool = False,
    patterns: np.ndarray | None = None,
    within: np.ndarray | None = None,
    played: Mapping[str, Sender] | None = None,
) -> PacketCore:
    """Return the core of some settings; ``played`` replaces senders of the scenario, by name."""
    distribution = settings.distribution
    adversaries = make_boxes(distribution) | ({} if patterns is None else {EXTERNAL: PATTERN})
    least = settings.link_rate_min_share
    make = PacketCore if least is None else partial(RateCore, least_share=least)
    return make(
        num_envs,
        distribution=distribution,
        senders=make_senders(distribution, settings.shield_program()) | dict(played or {}),
        deciders=deciders,
        interface=interface,
        weights=settings.weights,
        own_reward=settings.own_reward,
        adversaries=adversaries,
        episode_decisions=settings.episode_decisions,
        staggered=settings.staggered,
        start_rate_share=settings.start_rate_share,
        threads=settings.threads,
        record=record,
        per_flow=per_flow,
        patterns=patterns,
        within=within,
    )


def watched_core(
    num_envs: int, settings: PacketSettings, sender: Sender, within: np.ndarray | None = None, record: bool = False
) -> PacketCore:
    """Return networks in which another sender replaces the controlled flows, observed at a policy's decision times.

    ``within`` is the part of each range that each network draws from, (B, ranges, 2) as ends in [0, 1]; None: all of it.
    """
    watched = dict.fromkeys(controlled_flows(settings.distribution), Decider(clock=settings.clock))
    return make_core(num_envs, settings, settings.interface(), watched, record, True, None, within, {EXTERNAL: sender})


def limits(interface: Interface, flows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest values of an observation of several flows, float32."""
    low, high = interface.limits()
    return np.tile(low, flows), np.tile(high, flows)


def flow_actions(n: int, levels: int | None) -> Actions:
    """Return n actions in [-1, 1], with ``levels`` evenly spaced values (None: continuous)."""
    return Actions(n, None if levels is None else np.linspace(-1.0, 1.0, levels))


def service_actions(moves: int, levels: int | None) -> Actions:
    """Return the actions of the network's agent, in [0, 1], with ``levels`` evenly spaced values (None: continuous)."""
    return Actions(moves, None if levels is None else np.arange(levels) / (levels - 1), low=0.0)


class PacketTask:
    """Control the flows whose sender is external, jointly.

    Args:
        settings: the scenario names at least one ``external`` sender.
        patterns: (B, ADVERSARY_SLOTS) patterns of ``external`` delay elements in each environment; None: there are none.
        within: (B, ranges, 2) the part of each range that an environment draws from, as ends in [0, 1]; None: all of it.
    """

    shared = False  # whether each flow is a row

    def __init__(
        self,
        num_envs: int,
        settings: PacketSettings,
        record: bool = False,
        patterns: np.ndarray | None = None,
        within: np.ndarray | None = None,
    ) -> None:
        distribution, self.interface = settings.distribution, settings.interface()
        flows = controlled_flows(distribution)
        if not flows:
            raise InputError(f"{distribution.where}: no flow has the sender 'external': there is nothing to control")
        if patterns is None and EXTERNAL in make_boxes(distribution):
            raise InputError(
                f"{distribution.where}: a jitter box is 'external', but the agent controls flows; for both see "
                "ccenv/PacketDuel-v0"
            )
        check_interface(self.interface, distribution, flows)
        if settings.critic_signals and not self.shared:
            raise InputError(
                "critic_signals are for the critic of flows that share a policy: use make_sb3(..., shared_policy=True)"
            )
        if settings.link_rate_min_share is not None:
            raise InputError("link_rate_min_share is a move of the network's agent: it is for ccenv/PacketNetwork-v0")
        critic = [signal(name) for name in settings.critic_signals]
        self._critic = np.array([SIGNAL_NUMBERS[row.name] for row in critic], np.int64)
        decider = make_decider(self.interface)
        self.core = make_core(
            num_envs, settings, self.interface, dict.fromkeys(flows, decider), record, self.shared, patterns, within
        )
        self.core.tells_time = settings.raw
        self.rows_per_env = len(flows) if self.shared else 1
        self._actions, self._raw, self.levels = flow_actions(len(flows), settings.n_actions), settings.raw, settings.n_actions
        together = len(flows) // self.rows_per_env
        low, high = limits(self.interface, together)
        low, high = np.append(low, [row.low for row in critic]), np.append(high, [row.high for row in critic])
        self.single_observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self.single_action_space = flow_actions(together, settings.n_actions).space

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Apply the actions and run to the next decision; return the rewards of the rows."""
        rewards = self.core.advance(self._actions.read(actions, self.core.num_envs))
        if self.shared:
            return rewards.reshape(-1).copy()
        mean: np.ndarray = rewards.sum(axis=1) / rewards.shape[1]
        return mean

    def observe(self) -> np.ndarray:
        """Return the observations of the controlled flows, in order: (rows, flows of a row * history * signals).

        Signals for critics follow.
        """
        seen = self.core.observations().reshape(self.core.num_envs * self.rows_per_env, -1)
        if not len(self._critic):
            return seen
        return np.concatenate([seen, self.core.signals(self._critic).reshape(len(seen), -1)], axis=1)

    def infos(self) -> dict[str, np.ndarray]:
        """Return the infos of a step: the flows that are to decide, their rewards, and with ``raw`` their measures."""
        infos = {"decides": self.core.decides, "rewards": self.core.rewards.copy()}
        if self._raw:
            measures = self.core.measures
            infos |= {name: measures[name] for name in measures.dtype.names or ()}
        return infos


class SharedPacketTask(PacketTask):
    """Control each flow whose sender is external by itself: a row of the batch is a flow, so all of them share one policy.

    Rows of flows that do not decide stay in the batch: their actions are not read and their rewards are 0.
    """

    shared = True


class PacketNetworkTask:
    """Control the delay elements: the scenario has at least one with an ``external`` adversary, and no external sender."""

    def __init__(self, num_envs: int, settings: PacketSettings, record: bool = False) -> None:
        distribution, self.interface = settings.distribution, settings.interface()
        if controlled_flows(distribution):
            raise InputError(
                f"{distribution.where}: a sender is 'external', but the agent controls the network; for both see "
                "ccenv/PacketDuel-v0"
            )
        boxes = [flow.jitter.adversary for flow in distribution.largest.flows if flow.jitter.kind == "adversary"]
        if not boxes or set(boxes) != {EXTERNAL}:
            raise InputError(
                f"{distribution.where}: the agent plays all jitter boxes of kind adversary, and there must be one: give each "
                f"'adversary: external' (got {boxes})"
            )
        check_interface(self.interface, distribution, [])
        watched = Decider(clock=settings.clock.model_copy(update={"common": True}))
        n = len(distribution.largest.flows)
        self.core = make_core(num_envs, settings, self.interface, dict.fromkeys(range(n), watched), record)
        self.levels, self.rows_per_env = settings.n_actions, 1
        self.single_observation_space = spaces.Box(*limits(self.interface, n), dtype=np.float32)
        self.n_moves = len(boxes) + (settings.link_rate_min_share is not None)
        self._actions = service_actions(self.n_moves, self.levels)
        self.single_action_space = self._actions.space

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Set the released shares and the link's rate, run to the next decision, and return the mean rewards (B,)."""
        rewards = self.core.advance(services=self._actions.read(actions, self.core.num_envs))
        mean: np.ndarray = rewards.sum(axis=1) / rewards.shape[1]
        return mean

    def observe(self) -> np.ndarray:
        """Return the observations of all flows, in order: (B, n * history * signals)."""
        return self.core.observations().reshape(self.core.num_envs, -1)

    def infos(self) -> dict[str, np.ndarray]:
        """Return the rewards by flow."""
        return {"rewards": self.core.rewards.copy()}
