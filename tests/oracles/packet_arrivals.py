"""Transfers that come and go, plainly: each is a new object; slots only say which number it has."""

import math
from collections.abc import Sequence
from typing import Any

from ccenv.agents.sender import Sender
from ccenv.engine.packet.spec import NetworkSpec, WorkloadSpec
from oracles.packet import PacketReference
from oracles.packet_flow import ReferenceFlow
from oracles.packet_link import NEVER


class ArrivalsReference(PacketReference):
    """A run of a network with arrivals in one of its flows."""

    def __init__(self, network: NetworkSpec, senders: Sequence[Sender], *, seed: int = 0) -> None:
        """Lay out slots as flows that never start."""
        flows, kinds = [], []
        self.free: list[int] = []
        self.waiting: list[tuple[float, float, int]] = []
        for index, flow in enumerate(network.flows):
            if flow.arrivals is None:
                flows.append(flow)
                kinds.append(senders[index])
                continue
            slowest = min(network.links[link].rate_Bps for link in network.route_of(index))
            times_s, sizes = flow.arrivals.drawn(seed, index, flow.start_s, slowest)
            self.waiting = [(t, size, row) for row, (t, size) in enumerate(zip(times_s.tolist(), sizes.tolist(), strict=True))]
            self.free = list(range(len(flows), len(flows) + flow.arrivals.slots))
            never = flow.model_copy(update={"arrivals": None, "start_s": NEVER})
            flows += [never] * flow.arrivals.slots
            kinds += [senders[index]] * flow.arrivals.slots
        self.kinds, self.slots = kinds, set(self.free)
        self.done: dict[int, float] = {}
        self.row_of: dict[int, int] = {}
        super().__init__(network.model_copy(update={"flows": tuple(flows)}), kinds, seed=seed)

    def _next(self) -> tuple[float, int, Any]:
        time_s, rank, happen = super()._next()
        if self.waiting and self.waiting[0][0] < time_s:
            return self.waiting[0][0], 1 << 30, self._come
        return time_s, rank, happen

    def _come(self, now_s: float) -> None:
        _, size, row = self.waiting.pop(0)
        if not self.free:
            return
        slot = self.free.pop(0)
        old = self.flows[slot]
        packets = max(1, math.ceil(size / self.network.mss_bytes))
        work = WorkloadSpec(kind="finite", size_bytes=packets * self.network.mss_bytes)
        spec = self.network.flows[slot].model_copy(update={"start_s": now_s, "workload": work})
        new = ReferenceFlow(spec, slot, self.kinds[slot], self.network, self.seed, self.log)
        new.state.flow = len(self.flows) + row
        new.next_tx, new.recovery_tx = old.next_tx, old.next_tx - 1
        new.sent_bytes, new.goodput_bytes, new.dropped_bytes = old.sent_bytes, old.goodput_bytes, old.dropped_bytes
        new.last_release_s, new.batch_end_s, new.jitter_draws = old.last_release_s, old.batch_end_s, old.jitter_draws
        self.flows[slot] = new
        self.row_of[slot] = row
        self._act(new, now_s)

    def _send(self, flow: ReferenceFlow, now_s: float) -> None:
        super()._send(flow, now_s)
        if flow.index not in self.slots or not flow.started or flow.finished_s == NEVER:
            return
        self.done[self.row_of[flow.index]] = flow.finished_s
        if not flow.in_network and not flow.acks and not flow.unacked:
            flow.started = False
            flow.spec = flow.spec.model_copy(update={"start_s": NEVER})
            self.free.insert(0, flow.index)
