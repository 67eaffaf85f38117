"""Senders, jitter boxes and receivers of the plain packet reference (``oracles.packet``)."""

import math
from collections import deque
from typing import Any

from ccenv.agents.callbacks import ACK, LOSS, TICK
from ccenv.agents.sender import ClassicSender, HeldSender, Sender, bare
from ccenv.base.random import uniform
from ccenv.engine.packet.beliefs import RATE_HOLDER
from ccenv.engine.packet.engine import RTO_MIN_S, TICK_S
from ccenv.engine.packet.layout import ACK_COUNTER
from ccenv.engine.packet.receiver import MULTIPLE_TOLERANCE
from ccenv.engine.packet.spec import FlowSpec, NetworkSpec
from ccenv.engine.packet.transport import (
    DUPLICATE_THRESHOLD,
    INITIAL_RTO_S,
    MAX_BURST_BYTES,
    MAX_RTO_S,
    WINDOW_SLACK_BYTES,
    SMALL_BURSTS_Bps,
)
from oracles.packet_link import NEVER, LogRow, Packet
from oracles.packet_path import ReferencePath
from oracles.packet_rack import ReferenceRack
from oracles.packet_work import ReferenceWork
from oracles.plain import PlainRecord, plain_sender


class ReferenceFlow(ReferencePath, ReferenceWork):
    """Sender, jitter box and receiver of one flow."""

    def __init__(
        self,
        spec: FlowSpec,
        index: int,
        sender: Sender,
        network: NetworkSpec,
        seed: int,
        log: list[LogRow],
        inner: ClassicSender | None = None,
    ) -> None:
        self.spec, self.index, self.seed, self.mss, self.log = spec, index, seed, network.mss_of(index), log
        self.proxy = sender if isinstance(sender, HeldSender) else None
        self.hold_s = self.proxy.target_s if self.proxy else 0.0
        self.hold_change_s = spec.start_s + (self.proxy.window_s if self.proxy else NEVER)
        self.held_rtts_s: list[float] = []
        cca = bare(sender)
        self.cca = plain_sender(cca if isinstance(cca, ClassicSender) else inner or RATE_HOLDER)
        cca = self.cca
        self.return_s = network.return_s(index)
        self.route, self.back = network.route_of(index), network.back_of(index)
        self.state = PlainRecord(cca.state, **cca.parameters)
        self.state.mss_bytes, self.state.seed, self.state.flow = self.mss, seed, index
        self.started = False
        self.sent: dict[int, Packet] = {}  # outstanding, and what has not been covered by an ACK yet
        self.in_network: set[int] = set()
        self.arrived: deque[Packet] = deque()  # at the receiver, ACK not yet at the sender
        self.acks: deque[tuple[float, int]] = deque()
        self.unacked: list[Packet] = []
        self.ack_deadline_s = NEVER
        self.received: set[int] = set()
        self.confirmed: set[int] = set()
        self.resend: deque[int] = deque()
        self.next_tx = self.next_segment = 0
        self.acked_later: list[int] = []
        self.recovery_tx, self.newest_lost_tx, self.highest_tx = -1, -2, -1
        self.recovery_point, self.acked_below, self.by_rto = 0, 0, False
        self.receive_window: float = math.inf  # segments beyond the first that is not acknowledged
        self.acked_count = 0
        self.inflight_bytes = self.delivered_bytes = self.delivered_s = self.first_sent_s = 0.0
        self.next_send_s, self.wake_s, self.rto_at_s = 0.0, NEVER, NEVER
        self.burst_left = 0
        self.backoff = 1.0
        self.handshake_s = spec.rtt_s if spec.handshake else 0.0
        self.srtt_s = self.rttvar_s = self.rtt_s = 0.0
        self.min_rtt_s = NEVER
        self.round_end_bytes = self.app_limited_until_bytes = 0.0
        self.offered: float = NEVER
        self.app_next_s = NEVER
        self.app_draws = 0.0
        self.ack_draws = self.ack_batch_end_s = 0.0
        self.begin_path()
        self.held: deque[tuple[float, Packet]] = deque()
        self.decisions = 0
        self.sent_bytes = self.dropped_bytes = self.random_lost_bytes = self.found_lost_bytes = 0.0
        self.goodput_bytes = 0.0
        self.resent_bytes = self.rtt_sum_s = self.one_way_sum_s = self.timeouts = 0.0
        self.finished_s = NEVER
        self.marked_bytes = 0.0
        self.monitor: Any = None
        self.rack = ReferenceRack(self) if spec.recovery == "rack" else None

    # --- receiver ---------------------------------------------------------------------------------------------------

    def deliver(self, packet: Packet, now_s: float) -> None:
        """Take a packet at the receiver."""
        if self.ack_deadline_s < now_s:
            self.acknowledge(self.ack_deadline_s)
        self.log.append((now_s, "deliver", self.index, -1, packet.tx, packet.segment))
        self.one_way_sum_s += now_s - packet.sent_s
        in_order = len(self.received) == packet.segment > max(self.received, default=-1)  # just those before it have arrived
        if packet.segment not in self.received:
            self.received.add(packet.segment)
            self.goodput_bytes += self.mss
        self.arrived.append(packet)
        self.unacked.append(packet)
        every = 1 if packet.segment < self.spec.receiver.quick_acks else self.spec.receiver.ack_every
        if not in_order or len(self.unacked) >= every:
            self.acknowledge(now_s)
        elif len(self.unacked) == 1:
            self.ack_deadline_s = now_s + self.spec.receiver.ack_timeout_s

    def acknowledge(self, now_s: float) -> None:
        """Send an ACK for everything received."""
        newest = self.unacked[-1]
        self.unacked.clear()
        self.ack_deadline_s = NEVER
        if self.spec.ack_path and self.loses_ack():
            return
        if self.back:
            ack = Packet(self, newest.tx, newest.segment, now_s, 0.0, 0.0, 0.0, False, 0.0, 0.0, is_ack=True)
            self.outgoing.append((now_s, ack))
        else:
            self.bring_ack(newest.tx, now_s + self.return_s)

    def bring_ack(self, tx: int, at_s: float) -> None:
        """Let an ACK arrive at the sender at a time, or when those collected on their way do."""
        receiver = self.spec.receiver
        if receiver.aggregation == "interval":
            at_s = math.ceil(at_s / receiver.aggregate_s - MULTIPLE_TOLERANCE) * receiver.aggregate_s
        elif receiver.aggregation == "batch":
            while self.ack_batch_end_s < at_s:
                draw = uniform(float(self.seed), 0.0, float(self.index), ACK_COUNTER + self.ack_draws)
                self.ack_batch_end_s += receiver.aggregate_s * draw
                self.ack_draws += 1.0
            at_s = self.ack_batch_end_s
        if receiver.merge and self.acks and self.acks[-1][0] == at_s:
            self.acks.pop()
        self.acks.append((at_s, tx))

    # --- sender -----------------------------------------------------------------------------------------------------

    def time_s(self) -> float:
        """Return when the flow has something to do next."""
        if not self.started:
            return self.spec.start_s
        next_ack_s = self.acks[0][0] + self.hold_s if self.acks else NEVER
        if self.back:
            next_ack_s = min(next_ack_s, self.ack_deadline_s)
        elif not self.acks:
            next_ack_s = self.ack_deadline_s + self.return_s
        return min(self.wake_s, self.rto_at_s, next_ack_s)

    def rto_s(self) -> float:
        """Return the RTO with its back-off."""
        base = INITIAL_RTO_S if self.srtt_s == 0.0 else max(RTO_MIN_S, self.srtt_s + 4.0 * self.rttvar_s)
        return min(base * self.backoff, MAX_RTO_S)

    def act(self, now_s: float) -> None:
        """Start, take an ACK, or time out."""
        if not self.started:
            self.started = True
            self.cca.init(self.state)
            self.srtt_s, self.rttvar_s = self.handshake_s, 0.5 * self.handshake_s
            self.begin_work()
            return
        if self.ack_deadline_s <= now_s if self.back else not self.acks and self.ack_deadline_s + self.return_s <= now_s:
            self.acknowledge(self.ack_deadline_s)
        if self.acks and self.acks[0][0] + self.hold_s <= now_s:
            self._take_ack(self.acks.popleft()[1], now_s)
        elif self.rto_at_s <= now_s:
            self.rto_at_s = NEVER
            if self.rack and self.rack.timer != "rto":
                if self.rack.take_timer(now_s):
                    self._lose(self.rack.late(False, now_s), False, now_s)
                    self.rack.arm(now_s)
            elif self.inflight_bytes > 0.0:
                lost = [p for p in self.sent.values() if not p.acked and not p.lost]
                self.timeouts += 1.0
                self.backoff *= 2.0
                self._lose(self.rack.late(True, now_s) if self.rack else lost, True, now_s)
                if self.rack:
                    self.rack.arm(now_s)

    def _hold_anew(self, proxy: HeldSender, now_s: float) -> None:
        """[Delta] Algorithm 1."""
        self.held_rtts_s.append(self.rtt_s)
        if now_s >= self.hold_change_s:
            propagation_s = min(self.held_rtts_s) - self.hold_s
            self.hold_s, self.held_rtts_s = max(0.0, proxy.target_s - propagation_s), []
            self.hold_change_s = now_s + proxy.window_s

    def _take_ack(self, last_tx: int, now_s: float) -> None:
        acked = marked = 0.0
        in_order = self._acked_in_order()
        covered: list[Packet] = []
        while not covered or covered[-1].tx != last_tx:
            covered.append(self.arrived.popleft())
        self.log.append((now_s, "ack", self.index, -1, last_tx, covered[-1].segment))
        for packet in covered:
            if self.rack:
                self.rack.see(packet)
            self.in_network.discard(packet.tx)
            if not packet.lost:
                self.inflight_bytes -= self.mss
            packet.acked = True
            self.acked_count += 1
            if packet.segment not in self.confirmed:
                self.confirmed.add(packet.segment)
                acked += self.mss
                marked += self.mss if packet.marked else 0.0
        packet = max(covered, key=lambda p: p.tx)
        before, self.highest_tx = self.highest_tx, max(self.highest_tx, packet.tx)
        rtt_s = now_s - packet.sent_s
        if self.srtt_s == 0.0:
            self.srtt_s, self.rttvar_s = rtt_s, 0.5 * rtt_s
        else:
            self.rttvar_s += 0.25 * (abs(self.srtt_s - rtt_s) - self.rttvar_s)
            self.srtt_s += 0.125 * (rtt_s - self.srtt_s)
        self.rtt_s, self.min_rtt_s = rtt_s, min(self.min_rtt_s, rtt_s)
        self.marked_bytes += marked
        if self.monitor is not None:
            self.monitor.hear(now_s)
        if self.proxy and self.proxy.mode == "lambda":
            self._hold_anew(self.proxy, now_s)
        self.rtt_sum_s += rtt_s
        self.delivered_bytes += acked
        interval_s = max(now_s - packet.delivered_s, packet.sent_s - packet.first_sent_s)
        self.first_sent_s, self.delivered_s = packet.sent_s, now_s
        self.backoff = 1.0
        self.rto_at_s = now_s + self.rto_s() if self.inflight_bytes > 0.0 else NEVER
        if self.delivered_bytes > self.app_limited_until_bytes:
            self.app_limited_until_bytes = 0.0
        round_start = packet.delivered_bytes >= self.round_end_bytes
        if round_start:
            self.round_end_bytes = self.delivered_bytes
        if acked > 0.0:
            signal = PlainRecord(
                ACK, now_s=now_s, acked_bytes=acked, delivered_bytes=self.delivered_bytes, rtt_s=rtt_s, min_rtt_s=self.min_rtt_s,
                delivery_rate_Bps=(self.delivered_bytes - packet.delivered_bytes) / interval_s,
                inflight_bytes=self.inflight_bytes,
                round_start=float(round_start), app_limited=float(packet.app_limited), ecn_fraction=marked / acked,
                mss_bytes=self.mss, prior_delivered_bytes=packet.delivered_bytes,
                tx_inflight_bytes=packet.inflight_bytes if self.cca.per_packet else 0.0,
                lost_since_bytes=self.found_lost_bytes - packet.lost_bytes if self.cca.per_packet else 0.0,
                recovering=float(self._recovers() or self._holds(in_order)), handshake_s=self.handshake_s,
                held_s=0.0 if self.burst_left else max(0.0, self.next_send_s - now_s),
            )  # fmt: skip
            self.cca.on_ack(self.state, signal)
        if self.rack:
            self.rack.hear(covered, acked, before)
            self._lose(self.rack.late(False, now_s), False, now_s)
            self.rack.arm(now_s)
            self.sent = {tx: p for tx, p in self.sent.items() if not p.acked and not p.lost}
            return
        acked_txs = sorted(p.tx for p in self.sent.values() if p.acked)
        lost = [
            p
            for p in self.sent.values()
            if p.tx <= self.highest_tx
            and not p.acked
            and not p.lost
            and sum(tx > p.tx for tx in acked_txs[-DUPLICATE_THRESHOLD:]) >= DUPLICATE_THRESHOLD
        ]
        self._lose(lost, False, now_s)
        oldest = min((p.tx for p in self.sent.values() if not p.acked and not p.lost), default=self.next_tx)
        keep = acked_txs[-DUPLICATE_THRESHOLD] if len(acked_txs) >= DUPLICATE_THRESHOLD else 0
        self.sent = {tx: p for tx, p in self.sent.items() if tx >= min(oldest, keep)}

    def _recovers(self) -> bool:
        """Tell whether fast recovery lasts: something sent before its end is not acknowledged."""
        if self.by_rto or self.spec.recovery == "flight":
            return False
        return self._acked_in_order() < self.recovery_point

    def _holds(self, before: int) -> bool:
        """Tell whether an ACK is a duplicate that lets no window grow."""
        return self.spec.duplicate_acks == "hold" and self._acked_in_order() == before

    def _acked_in_order(self) -> int:
        """Return the first segment that is not acknowledged."""
        while self.acked_below in self.confirmed:
            self.acked_below += 1
        return self.acked_below

    def _lose(self, found: list[Packet], timeout: bool, now_s: float) -> None:
        found = sorted(found, key=lambda p: p.tx)
        for lost in [[packet] for packet in found] if self.cca.per_packet else [found]:
            self._hear_loss(lost, timeout, now_s)

    def _hear_loss(self, lost: list[Packet], timeout: bool, now_s: float) -> None:
        if not lost:
            return
        told: dict[str, float] = {}
        for packet in lost:
            packet.lost = True
            self.resend.append(packet.segment)
            self.inflight_bytes -= self.mss
            self.found_lost_bytes += self.mss
        if timeout or self.spec.recovery == "flight":
            new_episode = lost[-1].tx > self.recovery_tx
        else:  # RFC 6675 s.5: one reduction until all that was sent before it is acknowledged in order
            new_episode = max(packet.segment for packet in lost) >= self.recovery_point
        if new_episode:
            self.recovery_tx = self.next_tx - 1
        if new_episode or timeout:
            self.recovery_point, self.by_rto = self.next_segment, timeout
        if self.rack:
            self.rack.lose(timeout, new_episode)
        if self.cca.per_packet:
            (packet,) = lost
            told = {
                "tx_inflight_bytes": packet.inflight_bytes,
                "lost_since_bytes": self.found_lost_bytes - packet.lost_bytes,
                "app_limited": float(packet.app_limited),
                "contiguous": float(packet.tx - 1 == self.newest_lost_tx),
            }
            self.newest_lost_tx = packet.tx
        signal = PlainRecord(
            LOSS, now_s=now_s, lost_bytes=len(lost) * self.mss, inflight_bytes=self.inflight_bytes,
            delivered_bytes=self.delivered_bytes, timeout=float(timeout), new_episode=float(new_episode), mss_bytes=self.mss,
            **told,
        )  # fmt: skip
        self.cca.on_loss(self.state, signal)
        if self.inflight_bytes <= 0.0:
            self.rto_at_s = NEVER

    def tick(self, now_s: float) -> None:
        """Tell the CCA that time has passed."""
        signal = PlainRecord(
            TICK, now_s=now_s, dt_s=TICK_S, inflight_bytes=self.inflight_bytes, delivered_bytes=self.delivered_bytes,
            min_rtt_s=self.min_rtt_s, mss_bytes=self.mss,
        )  # fmt: skip
        self.cca.on_tick(self.state, signal)

    def packets_to_send(self, now_s: float) -> Any:
        """Yield packets as long as window, pacing and application allow."""
        first_tx = self.next_tx
        yield from self._packets_to_send(now_s, first_tx)
        if self.rack and self.next_tx > first_tx:
            self.rack.after_sending(now_s)

    def _packets_to_send(self, now_s: float, first_tx: int) -> Any:
        self.wake_s = NEVER
        while now_s < self.spec.stop_s:
            self.offer_work(now_s)
            full = self.inflight_bytes > 0.0 and self.inflight_bytes + self.mss > self.state.cwnd_bytes + WINDOW_SLACK_BYTES
            if full and not (self.rack and self.rack.beyond_window and self.next_tx == first_tx):
                self.burst_left = 0
                return
            while self.resend and self.resend[0] in self.confirmed:
                self.resend.popleft()
            if not self.resend and self.next_segment >= self.offered:
                self.burst_left = 0
                self.app_limited_until_bytes = max(self.delivered_bytes + self.inflight_bytes, self.mss)
                self.wake_s = self.app_next_s
                if self.inflight_bytes <= 0.0 and self.app_next_s == NEVER and self.finished_s == NEVER:
                    self.finished_s = now_s
                return
            if not self.resend and self.next_segment - self._acked_in_order() >= self.receive_window:
                self.burst_left = 0
                return
            if self.next_send_s > now_s and self.burst_left == 0:
                self.wake_s = self.next_send_s
                return
            yield self._transmit(now_s)

    def _burst(self) -> int:
        rate_Bps = float(self.state.pacing_rate_Bps)
        if rate_Bps < SMALL_BURSTS_Bps:
            return 1
        return max(2, int(min(self.spec.burst_s * rate_Bps, MAX_BURST_BYTES) // self.mss))

    def _transmit(self, now_s: float) -> Packet:
        if self.resend:
            segment = self.resend.popleft()
            self.resent_bytes += self.mss
        else:
            segment = self.next_segment
            self.next_segment += 1
        if self.inflight_bytes <= 0.0:
            self.first_sent_s = self.delivered_s = now_s
        packet = Packet(
            self, self.next_tx, segment, now_s, self.delivered_bytes, self.delivered_s, self.first_sent_s,
            self.app_limited_until_bytes > 0.0, self.inflight_bytes + self.mss, self.found_lost_bytes,
        )  # fmt: skip
        self.sent[packet.tx] = packet
        if self.rack:
            self.rack.times_sent[segment] += 1
        self.next_tx += 1
        self.inflight_bytes += self.mss
        self.sent_bytes += self.mss
        if self.rto_at_s == NEVER:
            self.rto_at_s = now_s + self.rto_s()
        if self.state.pacing_rate_Bps < NEVER:
            if self.spec.burst_s > 0.0:
                self.burst_left = (self.burst_left or self._burst()) - 1
            self.next_send_s = max(self.next_send_s, now_s) + self.mss / self.state.pacing_rate_Bps
        return packet
