"""The packet engine as plain Python: slow, without rings or records, to hold the kernel to (tests/packet).

Packets are objects, queues are deques, what a sender knows is kept in dictionaries by transmission number; the next event is
the smallest (time, source) of all. CCAs and adversaries run as plain Python functions. Everything that can be said in two
ways is said in the other way than in the kernel; the numbers must be equal to the last bit.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ccenv.agents.callbacks import MOVE, VIEW
from ccenv.agents.sender import PolicySender, ProgramSender, Sender, ShieldSender, bare
from ccenv.base.random import uniform
from ccenv.engine.packet.engine import TICK_S
from ccenv.engine.packet.layout import LOSS_COUNTER
from ccenv.engine.packet.monitor import Decider
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.network.adversary import ScriptedAdversary
from oracles.packet_flow import ReferenceFlow
from oracles.packet_grid import ReferenceGrid
from oracles.packet_link import NEVER, LogRow, Packet, ReferenceLink, new_record
from oracles.packet_monitor import ReferencePacketMonitor, wake


class PacketReference:
    """One run of a network, like ``PacketEngine``; receive windows and event bounds are not modelled."""

    def __init__(
        self,
        network: NetworkSpec,
        senders: Sequence[Sender],
        *,
        adversaries: Mapping[str, ScriptedAdversary] | None = None,
        seed: int = 0,
        deciders: Mapping[int, Decider] | None = None,
        decide: Callable[[int, int], float] | None = None,
    ) -> None:
        """Build it.

        Args:
            network: links and flows.
            senders: one per flow.
            adversaries: of jitter boxes.
            seed: of all random numbers.
            deciders: of the monitored flows.
            decide: gives the action of a flow's n-th decision.
        """
        deciders = dict(deciders or {})
        self.decide = decide or (lambda flow, number: 0.0)
        self.decisions: list[tuple[int, dict[str, float]]] = []
        self.network, self.seed, self.events = network, seed, 0
        self.log: list[LogRow] = []
        self.links = [ReferenceLink(s, i, network.mss_bytes, seed, self.log, s.rate_Bps) for i, s in enumerate(network.links)]
        for index, link in enumerate(self.links):
            link.mixed, link.largest_bytes = network.is_mixed(index), max(network.sizes_on(index))
        self.flows = [self._flow(i, senders[i], deciders.get(i)) for i in range(len(network.flows))]
        steps = [(s.time_s, i, s.rate_Bps) for i, spec in enumerate(network.links) for s in spec.rate_steps]
        self.changes = deque(sorted(steps))
        self.pipes: dict[tuple[int, int], deque[tuple[float, Packet]]] = {
            (f.index, hop): deque() for f in self.flows for hop in range(len(f.route)) if hop > 0 or f.spec.access_s > 0
        }
        self.back: dict[tuple[int, int], deque[tuple[float, Packet]]] = {
            (f.index, hop): deque() for f in self.flows for hop in range(len(f.back))
        }
        self.boxes = [f for f in self.flows if f.spec.jitter.kind == "adversary"]
        self.players = {f.index: (adversaries or {})[f.spec.jitter.adversary] for f in self.boxes}
        self.views = {f.index: self._view(f) for f in self.boxes}
        self.box_states = {i: new_record(p.state, **p.parameters) for i, p in self.players.items()}
        self.grids = []
        for flow, sender in zip(self.flows, senders, strict=True):
            inner = bare(sender)
            if isinstance(inner, (ProgramSender, PolicySender, ShieldSender)):
                self.grids.append(ReferenceGrid(flow, sender, inner, network, seed))
            elif flow.index in deciders and deciders[flow.index].watches_beliefs:
                self.grids.append(ReferenceGrid(flow, sender, None, network, seed))
        self.leader: ReferencePacketMonitor | None = None
        self.monitors = [ReferencePacketMonitor(self, self.flows[i], d, network) for i, d in sorted(deciders.items())]
        self.ticks = 1

    def _flow(self, index: int, sender: Sender, decider: Decider | None) -> ReferenceFlow:
        inner = decider.inner if decider else None
        return ReferenceFlow(self.network.flows[index], index, sender, self.network, self.seed, self.log, inner)

    def _view(self, flow: ReferenceFlow) -> Any:
        link, rtt_s = self.network.links[flow.route[-1]], flow.spec.rtt_s
        return new_record(
            VIEW, dt_s=TICK_S, steps_per_rtt=rtt_s / TICK_S, flow=flow.index, n_flows=len(self.flows), rtt_s=rtt_s,
            jitter_s=flow.spec.jitter.max_s, link_rate_Bps=link.rate_Bps, buffer_bytes=link.buffer_bytes,
            mss_bytes=self.network.mss_bytes, seed=self.seed,
        )  # fmt: skip

    def _next(self) -> tuple[float, int, Any]:
        """Return time, rank and what happens, of the next event."""
        sources: list[tuple[float, Any]] = [(self.changes[0][0] if self.changes else NEVER, self._change)]
        sources += [(link.finish_s, lambda t, k=link: self._leave(k, t)) for link in self.links]
        sources += [(flow.time_s(), lambda t, f=flow: self._act(f, t)) for flow in self.flows]
        for flow in self.flows:
            sources += [
                (p[0][0] if p else NEVER, lambda t, k=k: self._emerge(k, t)) for k, p in self.pipes.items() if k[0] == flow.index
            ]
            sources += [
                (p[0][0] if p else NEVER, lambda t, k=k: self._emerge_ack(k, t))
                for k, p in self.back.items()
                if k[0] == flow.index
            ]
            if flow.spec.reordering:
                sources.append((flow.late[0][0] if flow.late else NEVER, lambda t, f=flow: self._come_late(f, t)))
        sources += [(self._box_time_s(flow), lambda t, f=flow: self._decide(f, t)) for flow in self.boxes]
        sources += [(grid.next_s, lambda t, g=grid: self._grid(g, t)) for grid in self.grids]
        sources += [(monitor.next_s, lambda t, m=monitor: self._wake(m, t)) for monitor in self.monitors]
        sources.append((self.ticks * TICK_S, self._tick))
        rank = min(range(len(sources)), key=lambda i: (sources[i][0], i))
        return sources[rank][0], rank, sources[rank][1]

    def advance(self, until_s: float) -> None:
        """Process all events up to and including until_s."""
        while True:
            now_s, _, happen = self._next()
            if now_s > until_s:
                return
            self.events += 1
            happen(now_s)

    def _change(self, now_s: float) -> None:
        _, index, rate_Bps = self.changes.popleft()
        self.links[index].set_rate(rate_Bps, now_s)

    def _tick(self, now_s: float) -> None:
        for flow in self.flows:
            if flow.started and now_s < flow.spec.stop_s:
                flow.tick(now_s)
        self.ticks += 1
        for flow in self.flows:
            self._send(flow, now_s)

    def _grid(self, grid: ReferenceGrid, now_s: float) -> None:
        flow = grid.flow
        monitor = next((m for m in self.monitors if m.flow is flow and m.inside), None)
        rate_Bps = grid.step(None if monitor is None else lambda lo, hi: monitor.choose(lo, hi, now_s))
        if grid.sender is None:
            self._send(flow, now_s)
            return
        if flow.next_send_s > now_s and rate_Bps > 0:
            flow.next_send_s = now_s + (flow.next_send_s - now_s) * (flow.state.pacing_rate_Bps / rate_Bps)
        flow.state.cwnd_bytes, flow.state.pacing_rate_Bps = NEVER, rate_Bps
        self._send(flow, now_s)

    def _wake(self, monitor: ReferencePacketMonitor, now_s: float) -> None:
        for flow in wake(self, monitor, now_s):
            self._send(flow, now_s)

    def _act(self, flow: ReferenceFlow, now_s: float) -> None:
        flow.act(now_s)
        self._post(flow)
        self._send(flow, now_s)

    def _send(self, flow: ReferenceFlow, now_s: float) -> None:
        if not flow.started:
            return
        loss_rate = flow.spec.loss_rate
        for packet in flow.packets_to_send(now_s):
            self.log.append((now_s, "send", flow.index, -1, packet.tx, packet.segment))
            lost = loss_rate > 0 and uniform(float(self.seed), 0.0, float(flow.index), LOSS_COUNTER + packet.tx) < loss_rate
            if flow.loses(packet) or lost:
                flow.random_lost_bytes += flow.mss
                self.log.append((now_s, "drop", flow.index, -1, packet.tx, packet.segment))
                continue
            flow.in_network.add(packet.tx)
            if flow.spec.access_s > 0:
                self.pipes[flow.index, 0].append((now_s + flow.spec.access_s, packet))
            else:
                self.links[flow.route[0]].enqueue(packet, now_s)

    def _emerge(self, key: tuple[int, int], now_s: float) -> None:
        packet = self.pipes[key].popleft()[1]
        packet.hop = key[1]
        self.links[self.flows[key[0]].route[key[1]]].enqueue(packet, now_s)

    def _leave(self, link: ReferenceLink, now_s: float) -> None:
        packet = link.finish(now_s)
        flow, arrival_s = packet.flow, link.arrival_s(packet, now_s)
        if packet.is_ack:
            if packet.hop + 1 < len(flow.back):
                self.back[flow.index, packet.hop + 1].append((arrival_s, packet))
            else:
                flow.bring_ack(packet.tx, arrival_s + flow.return_s)
        elif packet.hop + 1 < len(flow.route):
            self.pipes[flow.index, packet.hop + 1].append((arrival_s, packet))
        elif flow.spec.jitter.kind == "adversary":
            flow.held.append((now_s, packet))
        else:
            flow.reach(packet, flow.release_s(arrival_s))
        self._post(flow)

    def _post(self, flow: ReferenceFlow) -> None:
        """Bring the ACKs that a receiver has sent on their way to their first link."""
        while flow.outgoing:
            self.back[flow.index, 0].append(flow.outgoing.popleft())

    def _emerge_ack(self, key: tuple[int, int], now_s: float) -> None:
        packet = self.back[key].popleft()[1]
        packet.hop = key[1]
        self.links[self.flows[key[0]].back[key[1]]].enqueue(packet, now_s)

    def _come_late(self, flow: ReferenceFlow, now_s: float) -> None:
        flow.deliver(flow.late.popleft()[1], now_s)
        self._post(flow)

    def _box_time_s(self, flow: ReferenceFlow) -> float:
        decision_s = flow.decisions * TICK_S
        return min(decision_s, flow.held[0][0] + flow.spec.jitter.max_s) if flow.held else decision_s

    def _decide(self, flow: ReferenceFlow, now_s: float) -> None:
        share = 0.0
        link = self.links[flow.route[-1]]
        extra_s = link.spec.delay_s  # as in the kernel, the last link's delay follows on the return path
        if flow.decisions * TICK_S <= now_s:
            view, player, state = self.views[flow.index], self.players[flow.index], self.box_states[flow.index]
            view.now_s, view.step = now_s, flow.decisions
            view.held_bytes, view.queue_bytes = len(flow.held) * flow.mss, len(link.queue) * flow.mss
            if flow.decisions == 0:
                flow.return_s += extra_s
                player.init(state, view)
            move = new_record(MOVE)
            player.play(state, view, move)
            share = min(1.0, max(0.0, float(move.service)))
            flow.decisions += 1
        while flow.held and flow.held[0][0] + flow.spec.jitter.max_s <= now_s:
            flow.deliver(flow.held.popleft()[1], now_s)
        for _ in range(int(share * len(flow.held) + 0.5)):
            flow.deliver(flow.held.popleft()[1], now_s)
        self._post(flow)
