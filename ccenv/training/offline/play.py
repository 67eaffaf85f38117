"""Episodes of a behaviour: what a flow saw, did and was rewarded for at each of its decisions.

A sender that is no policy over signals is watched. Its action is the one of ``cwnd_exp2`` that would have changed its window as
it did until its next decision: a = log2(W' / W) / step, clipped to [-1, 1], with W the smaller of its window and its pacing rate
times its smoothed RTT (before any RTT sample the Rm that it is told).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.sender import PolicySender, Sender
from ccenv.engine.compiled.policies import PolicyBatch
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.interface import WatchedFlows
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.task import SharedPacketTask, watched_core
from ccenv.network.laws import check_trace
from ccenv.simulation.packet_trace import check_packet_trace
from ccenv.training.offline.config import DataConfig, DataPart, sees_signals


@dataclass(frozen=True)
class Episode:
    """An episode of a flow with n transitions."""

    observations: np.ndarray  # (n + 1, width) float32
    actions: np.ndarray  # (n, 1) float32 in [-1, 1]
    rewards: np.ndarray  # (n,) float64

    @property
    def content(self) -> bytes:
        """Its numbers as bytes, for hashes."""
        return b"".join(np.ascontiguousarray(array).tobytes() for array in (self.observations, self.actions, self.rewards))


class _PacketWorld:
    """Networks of the packet engine."""

    def __init__(self, config: DataConfig, part: DataPart, sender: Sender, networks: int, record: bool) -> None:
        settings = config.packet_settings(part)
        self.core: PacketCore
        if isinstance(sender, PolicySender) and sees_signals(sender):
            task = SharedPacketTask(networks, settings, record)
            batch = PolicyBatch(sender, networks * task.rows_per_env)
            self.core = task.core
            self.step: Callable[[], Any] = lambda: task.step(batch.actions(task.observe())[:, None])
        else:
            self.core = watched_core(networks, settings, sender, record=record)
            self.step = self.core.advance

    @property
    def rows(self) -> tuple[np.ndarray, ...]:
        """Decisions (rows,), observations (rows, width), rewards (rows,) and measures (rows,)."""
        core = self.core
        return (
            core.decides.reshape(-1),
            core.observations().reshape(core.num_envs * len(core.flows), -1),
            core.rewards.reshape(-1).copy(),
            core.measures.reshape(-1),
        )


class _CurveWorld:
    """Paths of the curve engine, on which all controlled flows decide once per Rm."""

    def __init__(self, config: DataConfig, part: DataPart, sender: Sender, networks: int, record: bool) -> None:
        settings = config.curve_settings(part)
        flows = settings.external_flows()
        senders = [sender if flow in flows else other for flow, other in enumerate(settings.build_senders())]
        groups = np.eye(len(senders), dtype=np.bool_)[flows]
        adversary = settings.build_adversary()
        self.core = Core(
            networks, settings, senders=senders, adversary=adversary, groups=groups, record=record, watched=tuple(flows)
        )
        self._flows, self._watched = flows, WatchedFlows(self.core, settings, len(flows))

    def step(self) -> None:
        self.core.advance()
        self._watched.measure()

    @property
    def rows(self) -> tuple[np.ndarray, ...]:
        """See ``_PacketWorld``."""
        n = self.core.num_envs * len(self._flows)
        seen = self._watched.observations().reshape(n, -1)  # begins flows that are new
        measures = np.concatenate([engine.watch.measured[:, self._flows] for _, engine in self.core.engines()])
        rewards = self._watched.rewards().reshape(-1) if self.core.elapsed[0] else np.zeros(n)
        return np.ones(n, np.bool_), seen, rewards, measures.reshape(-1)


def play(config: DataConfig, part: DataPart, seed: int, networks: int, record: bool = False) -> tuple[list[Episode], Any]:
    """Play one episode in each of some networks.

    Returns the episodes of the controlled flows, network by network, and the core that played them. ``seed`` is that of
    ``Core.reset``: network b of it is the same however many are played.
    """
    sender = part.sender()
    world = (_PacketWorld if part.packet is not None else _CurveWorld)(config, part, sender, networks, record)
    world.core.reset(seed=seed)
    steps = [world.rows]
    while not world.core.truncated().all():
        world.step()
        steps.append(world.rows)
    return list(_episodes(config, steps, own_actions=sees_signals(sender))), world.core


def _episodes(config: DataConfig, steps: list[tuple[np.ndarray, ...]], *, own_actions: bool) -> Iterator[Episode]:
    decides, seen, rewards, measures = (np.stack(columns) for columns in zip(*steps, strict=True))
    step_log2 = config.packet_settings().interface().action_row[1]
    rtt_s = np.where(measures["srtt_s"] > 0, measures["srtt_s"], measures["told_rtt_s"])
    windows = np.log2(np.maximum(np.minimum(measures["cwnd_bytes"], measures["rate_Bps"] * rtt_s), 1.0))
    for row in range(decides.shape[1]):
        at = np.flatnonzero(decides[:, row])
        asked = measures["action"][at[1:], row] if own_actions else np.diff(windows[at, row]) / step_log2
        yield Episode(
            seen[at, row], np.clip(asked, -1.0, 1.0).astype(np.float32)[:, None], rewards[at[1:], row].astype(np.float64)
        )


def broken_laws(config: DataConfig, part: DataPart, seed: int, episodes: list[Episode]) -> list[str]:
    """Play the first networks of a chunk again with a record, and check them against the laws of their model.

    Returns what is wrong, network by network: the law that is broken, or that the episode is another one; "" for a legal network.
    """
    again, core = play(config, part, seed, config.checked, record=True)
    flows = len(again) // config.checked
    problems = []
    for network in range(config.checked):
        trace = core.trace(network)
        violations = check_trace(trace) if part.packet is None else check_packet_trace(trace)
        same = all(
            one.content == other.content
            for one, other in zip(again[network * flows :][:flows], episodes[network * flows :][:flows], strict=True)
        )
        problems.append(violations[0].message if violations else "" if same else "another episode than the one in the data set")
    return problems
