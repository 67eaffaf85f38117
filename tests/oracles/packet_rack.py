"""RACK-TLP of the plain packet reference, along the pseudo-code of RFC 8985: every segment is looked at every time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ccenv.engine.packet.transport import ROUNDING_S
from oracles.packet_link import NEVER, Packet

if TYPE_CHECKING:
    from oracles.packet_flow import ReferenceFlow


class ReferenceRack:
    """What one sender knows (s.5.3), and its one timer."""

    def __init__(self, flow: ReferenceFlow) -> None:
        self.flow = flow
        self.fack = -1
        self.reordering_seen = False
        self.mult, self.persist = 1, 16
        self.dsack_round: int | None = None
        self.recovery_point: int | None = None
        self.rtt_s = self.window_s = 0.0
        self.times_sent: Counter[int] = Counter()
        self.timer = "rto"
        self.rto_expires_s = NEVER
        self.probe: Packet | None = None
        self.samples = self.samples_at_probe = 0
        self.beyond_window = ""

    def _una(self) -> int:
        return next(s for s in range(self.flow.next_segment + 1) if s not in self.flow.confirmed)

    def _outstanding(self) -> list[Packet]:
        return [p for p in self.flow.sent.values() if not p.acked and not p.lost]

    def see(self, packet: Packet) -> None:
        """Step 3: one that was sent once arrives behind later ones."""
        if packet.segment not in self.flow.confirmed:
            self.reordering_seen |= packet.segment < self.fack and self.times_sent[packet.segment] == 1
            self.fack = max(self.fack, packet.segment)

    def hear(self, covered: list[Packet], acked_bytes: float, highest_before: int) -> None:
        """Steps 2 and 4, after the ACK was taken."""
        flow = self.flow
        una = self._una()
        self.samples += 1
        self.beyond_window = ""
        if flow.highest_tx > highest_before:
            self.rtt_s = flow.rtt_s
        leaves = self.recovery_point is not None and una >= self.recovery_point
        if leaves:
            self.recovery_point = None
        if self.dsack_round is not None and una >= self.dsack_round:
            self.dsack_round = None
        if self.dsack_round is None and round(acked_bytes / flow.mss) < len(covered):
            self.dsack_round = flow.next_segment
            self.mult += 1
            self.persist = 16
        elif leaves:
            self.persist -= 1
            if self.persist <= 0:
                self.mult = 1
        if una == flow.next_segment:
            for copy in self._outstanding():
                copy.lost = True
            flow.inflight_bytes, flow.rto_at_s = 0.0, NEVER
        self.set_window()

    def _sacked(self) -> int:
        una = self._una()
        return sum(segment > una for segment in self.flow.confirmed)

    def set_window(self) -> None:
        """Step 4, last part."""
        few = not self.reordering_seen and (self.recovery_point is not None or self._sacked() >= 3)
        self.window_s = 0.0 if few else min(self.mult * self.flow.min_rtt_s / 4, self.flow.srtt_s)

    def late(self, by_rto: bool, now_s: float) -> list[Packet]:
        """Return what is lost: step 5, or s.6.3."""
        una = self._una()
        return [
            p
            for p in self._outstanding()
            if (by_rto and p.segment == una)
            or ((by_rto or p.tx < self.flow.highest_tx) and p.sent_s + self.rtt_s + self.window_s - now_s <= ROUNDING_S)
        ]

    def lose(self, by_rto: bool, new_episode: bool) -> None:
        """Enter recovery."""
        if by_rto:
            self.beyond_window = "retransmission"
        if new_episode or by_rto:
            self.recovery_point = self.flow.next_segment if self._una() < self.flow.next_segment else None

    def arm(self, now_s: float) -> None:
        """Choose the timer after an ACK or a timer."""
        flow = self.flow
        self.timer, flow.rto_at_s, self.rto_expires_s = "rto", NEVER, NEVER
        if flow.inflight_bytes <= 0.0:
            return
        self.rto_expires_s = now_s + flow.rto_s()
        holes = [p for p in self._outstanding() if p.tx < flow.highest_tx]
        if holes:
            self.timer = "reordering"
            flow.rto_at_s = max(p.sent_s + self.rtt_s + self.window_s for p in holes)
        else:
            self._wait_for_probe(now_s)

    def _wait_for_probe(self, now_s: float) -> None:
        flow = self.flow
        self.timer, flow.rto_at_s = "rto", self.rto_expires_s
        if self.recovery_point is None and self._sacked() == 0 and self.samples:
            wait_s = 2 * flow.srtt_s
            if round(flow.inflight_bytes / flow.mss) <= 1 and flow.spec.receiver.ack_every > 1:
                wait_s += flow.spec.receiver.ack_timeout_s
            self.timer, flow.rto_at_s = "probe", min(now_s + wait_s, self.rto_expires_s)

    def take_timer(self, now_s: float) -> bool:
        """Take the reordering timer (True) or that of a probe."""
        flow = self.flow
        if self.timer == "reordering":
            self.set_window()
            return True
        self.timer = "rto"
        flow.rto_at_s = self.rto_expires_s = now_s + flow.rto_s()
        if (self.probe is None or self.probe.acked or self.probe.lost) and self.samples > self.samples_at_probe:
            if flow.next_segment >= flow.offered:
                flow.resend.append(flow.next_segment - 1)
            self.beyond_window = "probe"
            self.samples_at_probe = self.samples
            flow.next_send_s = min(flow.next_send_s, now_s)
        return False

    def after_sending(self, now_s: float) -> None:
        """Choose the timer after packets were sent."""
        flow = self.flow
        probe, self.beyond_window = self.beyond_window == "probe", ""
        if probe:
            self.probe = flow.sent[flow.next_tx - 1]
        if probe or self.rto_expires_s == NEVER:
            self.rto_expires_s = now_s + flow.rto_s()
        if probe:
            self.timer, flow.rto_at_s = "rto", self.rto_expires_s
        elif self.timer != "reordering":
            self._wait_for_probe(now_s)
