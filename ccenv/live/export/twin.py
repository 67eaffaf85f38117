"""The plain reference of the exported C (``belief.bpf.c.in``) in Python's integers, over recorded ACKs.

The C scans a ring of steps; the reference keeps the whole history. All numbers must be equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ccenv.agents.programs import UNIT_OF, Expression, Leaf, Program
from ccenv.agents.sender import PolicySender
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.live.export.bpf import (
    LOSS_LAG_STEPS,
    MAX_STEPS,
    POSITION_BITS,
    USER,
    export_constants,
    require_chooser,
    rounding_slack,
    unanswered_position,
    whole_terms,
)
from ccenv.live.export.policy import WholePolicy, belief_signals

# An ACK as the hooks see it; the first record is the start of the flow, with the handshake's RTT.
ACK_DTYPE = np.dtype(
    [
        ("now_us", "<u8"),
        ("rtt_us", "<i4"),  # of the newest acknowledged packet; negative: it was sent twice, or none was acknowledged
        ("delivered", "<u4"),
        ("lost", "<u4"),
        ("data_segs_out", "<u4"),
        ("in_flight", "<u4"),
        ("app_limited", "<u4"),
        ("reord_seen", "<u4"),
        ("mss", "<u4"),
        ("answer", "<u8"),  # of a chooser outside the kernel: number of the decision << 32 | position
    ],
    align=True,
)
# Beliefs and rates after an ACK.
STATE_DTYPE = np.dtype(
    [
        *((name, "<u8") for name in ("step", "C_L", "C_U", "C_L_lambda", "q_U", "qdel_L_steps", "qdel_U")),
        *((name, "<u8") for name in ("rate", "pacing_rate_Bps", "lo", "hi")),
        ("utilised", "<u4"),
        ("cwnd", "<u4"),
        ("position", "<u4"),  # in the interval from lo to hi, in 1 / (1 << POSITION_BITS); of shields
        ("asked", "<u4"),  # number of the newest decision; of shields
    ],
    align=True,
)
UNBOUNDED = 2**64 - 1
_U32 = 2**32
_TIE = 4
_MAX_RTT_US = 2**30
_SAMPLES, _BEYOND_PACKETS, _NEAR_PACKETS, _MAX_ACKED = 8, 2, 6, 2
_START_SEGMENTS = 4


class Twin:
    """The reference of one flow.

    Attributes:
        served: S by step: packets delivered, unwrapped.
        entered: lower and upper bound of E, by step.
        busy: steps in which the link was certainly utilised.
        C_L, C_U, C_L_lambda: packets per step, times 2**fraction_bits.
        period: step in which the period began.
        since: step before which no window begins.
        first: first step of the grid.
        step: newest step taken.
        jitter: D in steps.
    """

    def __init__(
        self, program: Program, *, rtt_s: float | None = None, jitter_s: float = 0.0, chooser: str | PolicySender | None = None
    ) -> None:
        """Take the arguments of ``export_bpf``."""
        require_chooser(program, chooser)
        self.chooser, self.lo, self.hi, self.asked = chooser, 0, 0, 0
        self._unanswered = 0 if chooser is None else unanswered_position(chooser)
        self._policy = WholePolicy.of(chooser) if isinstance(chooser, PolicySender) else None
        self.position, self._answered = self._unanswered, 0
        self.program, self.constants = program, export_constants(program, rtt_s=rtt_s, jitter_s=jitter_s)
        self._one = 1 << self.constants.fraction_bits
        self._min_rate, self._rate_limit = self._one // STEPS_PER_RTT, self._one << 20
        self.C_L = self.rate = self._min_rate
        self.C_U, self.C_L_lambda = UNBOUNDED, 0
        self.q_U = self.qdel_L_steps = self.qdel_U = 0
        self.rtt_us = self.step = self.first = self.since = self.period = self.jitter = 0
        self.utilised = self.loss = False
        self.pacing_rate_Bps, self.cwnd = 0, _START_SEGMENTS
        self._delivered = 0  # unwrapped, after the last ACK
        self._begun = False

    def run(self, acks: Iterable[Any]) -> np.ndarray:
        """Return the states (STATE_DTYPE) after each of the records (ACK_DTYPE)."""
        states = []
        for ack in acks:
            values = {name: int(ack[name]) for name in ACK_DTYPE.names or ()}
            if self._begun:
                self._take(values)
            else:
                self._begin(values)
            states.append(tuple(int(getattr(self, name)) for name in STATE_DTYPE.names or ()))
        return np.array(states, dtype=STATE_DTYPE)

    def _begin(self, ack: dict[str, int]) -> None:
        self._begun = True
        self._sampled = False
        self._last = ack
        self._counter = ack["delivered"]
        self._sent_at_step = self._sent_at_decision = ack["data_segs_out"]
        self._lost_at_decision = ack["lost"]
        self._decided_us = ack["now_us"]
        rtt_us = self.constants.rtt_us or max(0, ack["rtt_us"])
        if rtt_us:
            self._start_grid(ack, min(max(rtt_us, self.constants.shortest_rtt_us), _MAX_RTT_US))
            self._interval = (0, 0, ack["in_flight"])
            self._decide()
            self._send(ack)

    def _start_grid(self, ack: dict[str, int], rtt_us: int) -> None:
        c = self.constants
        if self.rtt_us:
            self.C_L = max(self.C_L * rtt_us // self.rtt_us, self._min_rate)
            if self.chooser is None:
                self.rate = max(self.rate * rtt_us // self.rtt_us, self._min_rate)
            else:
                self.lo = max(self.lo * rtt_us // self.rtt_us, self._min_rate)
                self.hi = max(self.hi * rtt_us // self.rtt_us, self.lo)
                self.rate = self._inside()
        self.rtt_us = rtt_us
        jitter_steps = -(-STEPS_PER_RTT * c.jitter_us // rtt_us)
        self.jitter = max(1, jitter_steps)
        self._rounding = jitter_steps + 1 - self.jitter
        self._base_us = max(0, ack["now_us"] - rtt_us)
        self.first = self.step = self.since = self.period = self._decision = self.step + c.ring
        self.served = {self.first: self._delivered}
        self.entered = {self.first: (self._delivered, self._delivered + ack["in_flight"])}
        self._settled = self.first + 1
        self._sampled_delivered = self._delivered
        self.busy: set[int] = set()
        self._busy_from = self._busy_until = 0  # 1/8 us after the base
        self._marked = self.first
        self.C_U = self._first_C_U = UNBOUNDED
        self.C_L_lambda = self._min_rate
        self._first_C_L = self.C_L
        self._fresh_C_L = self._fresh_C_L_lambda = 0
        self._idle = 0
        self._samples: list[tuple[int, int]] = []
        self.q_U = min(ack["in_flight"] * self._one, self._one << 22)

    def _newest_before(self, time_us: int) -> int:
        if time_us <= self._base_us:
            return self.first - 1
        return self.first + (STEPS_PER_RTT * (time_us - self._base_us) - 1) // self.rtt_us

    def _take(self, ack: dict[str, int]) -> None:
        before, now_us = self._delivered, ack["now_us"]
        self._delivered += (ack["delivered"] - self._counter) % _U32
        self._counter = ack["delivered"]
        self._sampled = ack["rtt_us"] >= 0 and self._delivered != before
        rtt_us = max(1, min(ack["rtt_us"], _MAX_RTT_US))
        shortest_us = max(rtt_us, self.constants.shortest_rtt_us)
        if self._sampled and (not self.rtt_us or shortest_us < self.rtt_us):
            self._start_grid(ack, shortest_us)
            self._sent_at_step = ack["data_segs_out"]
            self._sent_step = self.first - 1
            self._note_delay(now_us, rtt_us)
        elif self.rtt_us:
            self._advance(ack, before, now_us, rtt_us)
        if self._sampled:
            self._samples.append((max(0, now_us - rtt_us), self._delivered))
            self._sampled_delivered = self._delivered
        self._last = ack
        if not self.rtt_us:
            return
        if self.chooser == USER and self._answered != self.asked and ack["answer"] >> 32 == self.asked:
            self._answered = self.asked
            self.position = min(ack["answer"] % _U32, 1 << POSITION_BITS)
            self.rate = self._inside()
        if self.step >= self._decision:
            self.loss = ack["lost"] != self._lost_at_decision
            sent, lost = ack["data_segs_out"] - self._sent_at_decision, ack["lost"] - self._lost_at_decision
            self._interval = (sent % _U32, lost % _U32, ack["in_flight"])
            self._decide()
            self._decided_us = now_us
            self._sent_at_decision, self._lost_at_decision = ack["data_segs_out"], ack["lost"]
        self._send(ack)

    def _advance(self, ack: dict[str, int], before: int, now_us: int, rtt_us: int) -> None:
        newest = self._newest_before(now_us) - STEPS_PER_RTT
        steps = newest - self.step
        if steps > MAX_STEPS:
            self.step = self.since = newest
            self.served[newest] = before
            self._idle = 0
            self.utilised = False
        if self._sampled:
            sent_us = max(0, now_us - rtt_us)
            self._sent_step = self._newest_before(sent_us)
            for y in range(max(self._settled, self._sent_step + 2 - self.constants.ring), self._sent_step + 1):
                self.entered[y] = (self._sampled_delivered, self._delivered - 1)
            self._settled = max(self._settled, self._sent_step + 1)
            waited = self._time_after_base(now_us) - (STEPS_PER_RTT + self.jitter) * self.rtt_us
            if waited > 0:
                self._cover(self._time_after_base(sent_us), waited)
        if ack["lost"] != self._last["lost"]:
            self._idle = 0
            if not ack["reord_seen"] and self._delivered - before <= _MAX_ACKED:
                self._cover_loss(before)
        for n in range(self.step + 1, newest + 1):
            self._take_step(n, before)
        if steps > 0:
            drained = min(steps - 1, 2**16) * self.C_L_lambda
            sent = (ack["data_segs_out"] - self._sent_at_step) % _U32
            bound = max(0, max(0, self.q_U - drained) + sent * self._one - self.C_L_lambda)
            self.q_U = min(bound, ack["in_flight"] * self._one, self._one << 22)
            self._sent_at_step = ack["data_segs_out"]
        if self._sampled:
            self._note_delay(now_us, rtt_us)

    def _time_after_base(self, time_us: int) -> int:
        return max(0, STEPS_PER_RTT * (time_us - self._base_us))

    def _cover(self, start: int, end: int) -> None:
        if end < start or end < self._busy_from:
            return
        if start > self._busy_until:
            self._busy_from, self._busy_until = start, end
        else:
            self._busy_from, self._busy_until = min(self._busy_from, start), max(self._busy_until, end)
        first = self.first + -(-self._busy_from // self.rtt_us) + 1
        first = max(first, self._marked + 1, self.step + 2 * MAX_STEPS - self.constants.ring)
        last = self.first + self._busy_until // self.rtt_us
        if first <= last:
            self.busy.update(range(first, last + 1))
            self._marked = last

    def _cover_loss(self, before: int) -> None:
        near = [
            sent_us for sent_us, delivered in self._samples[-_SAMPLES:] if _BEYOND_PACKETS <= before - delivered <= _NEAR_PACKETS
        ]
        if near and near[0] > self._base_us:
            self._cover(self._time_after_base(near[0]), self._time_after_base(near[-1]))

    def _take_step(self, n: int, before: int) -> None:
        x = n - self.jitter
        is_late = self._sampled and x > self._sent_step
        self.step = n
        self.served[n] = before
        self._idle = self._idle + 1 if self._sampled and not is_late and x > self.first else 0
        self._narrow_lambda(n, x)
        bound = 0
        for t in range(max(self.since, n - self.constants.window_steps), n):
            bound = max(bound, (before - self.served[t]) * self._one // (n - t + self.jitter))
        bound = min(bound, self._rate_limit)
        self._fresh_C_L = max(self._fresh_C_L, bound)
        self.C_L = max(self.C_L, bound)
        for end in (n, n - LOSS_LAG_STEPS):
            self._narrow_upper(end)
        self.utilised = x in self.busy or x - LOSS_LAG_STEPS in self.busy
        due = n - self.period >= self.constants.period_steps
        if due or self.C_L > self.C_U:
            changed = self._time_out()
            if changed:
                self.C_L_lambda = max(self._fresh_C_L_lambda, self._min_rate)
            if changed or due:
                self._first_C_L, self._first_C_U = self.C_L, self.C_U
                self._fresh_C_L = self._fresh_C_L_lambda = 0
                self.since = self.period = n

    def _narrow_lambda(self, n: int, x: int) -> None:
        probe = self.constants.probe_steps
        if self._idle <= probe or x - probe < self.since:
            return
        sent = min(self.entered[x][0], self.served[n]) - self.entered[x - probe][1]
        bound = min(max(0, sent) * self._one // (probe + self.jitter), self._rate_limit)
        self.C_L_lambda = max(self.C_L_lambda, bound)
        self._fresh_C_L_lambda = max(self._fresh_C_L_lambda, bound)

    def _narrow_upper(self, end: int) -> None:
        for t in range(end - self.jitter - 1, max(self.since, end - self.constants.window_steps) - 1, -1):
            if t + 1 not in self.busy:
                return
            bound = -(-(self.served[end] - self.served[t]) * self._one // (end - t - self.jitter))
            if bound < self._rate_limit:
                self.C_U = min(self.C_U, bound)

    def _time_out(self) -> bool:
        c, lower, upper = self.constants, self.C_L, self.C_U
        if upper == UNBOUNDED or c.tight.denominator * upper > c.tight.numerator * lower + _TIE:
            return False
        empty, lower_moved, upper_moved = lower > upper, lower > self._first_C_L, upper < self._first_C_U
        if empty and lower_moved and upper_moved:
            self.C_L, self.C_U = max(upper, self._min_rate), lower
            return True
        lower_far = lower > c.moved * self._first_C_L
        upper_far = self._first_C_U == UNBOUNDED or upper * c.moved < self._first_C_U
        lower_out = not lower_moved and ((upper_moved and empty) or not upper_far)
        upper_out = not upper_moved and ((lower_moved and empty) or not lower_far)
        if lower_out:
            self.C_L = max(self._fresh_C_L, self._min_rate)
        if upper_out:
            grown = max(self.C_L, -(-c.expand.numerator * upper // c.expand.denominator))
            self.C_U = grown if grown < self._rate_limit else UNBOUNDED
        return lower_out or upper_out

    def _note_delay(self, now_us: int, rtt_us: int) -> None:
        steps = self._newest_before(now_us) - STEPS_PER_RTT - self._sent_step - self._rounding - self.jitter
        hidden = 0 if self.constants.rtt_us else self.jitter + 1
        self.qdel_L_steps = max(0, steps)
        self.qdel_U = min(STEPS_PER_RTT * max(0, rtt_us - self.rtt_us) + hidden * self.rtt_us, 2**33)

    def _decide(self) -> None:
        rule = self.program.rule
        values = self._inputs()
        while not isinstance(rule, Leaf):
            if isinstance(rule.condition, str):
                holds = self.utilised if rule.condition == "utilised" else self.loss
            else:
                total = self._sum(rule.condition, values)
                holds = total is not None and (total == UNBOUNDED or total > rounding_slack(rule.condition))
            rule = rule.then if holds else rule.otherwise
        self._decision = self.step + STEPS_PER_RTT * rule.hold_rtts
        rates = [self._rate(end, values) for end in rule.ends]
        if self.chooser is None:
            self.rate = rates[0]
            return
        self.lo, self.hi = rates[0], max(rates)
        if self._answered != self.asked and self.chooser == USER:
            self.position = self._unanswered
        if self._policy is not None:
            signals = belief_signals(self, self.constants.fraction_bits, UNBOUNDED, *self._interval)
            self.position = self._policy.position(signals)
        self.asked += 1
        self.rate = self._inside()

    def _inside(self) -> int:
        return self.lo + ((self.hi - self.lo) * self.position >> POSITION_BITS)

    def _rate(self, expression: Expression, values: dict[str, int]) -> int:
        total = self._sum(expression, values)
        if total is None:
            rate = 0
        elif total == UNBOUNDED:
            rate = self._rate_limit
        else:
            rate = total // whole_terms(expression)[1]
        return min(max(rate, self._min_rate), self._rate_limit)

    def _inputs(self) -> dict[str, int]:
        values = dict.fromkeys(UNIT_OF, 0)
        values |= {"C_L": self.C_L, "C_U": self.C_U, "C_L_lambda": self.C_L_lambda, "rate": self.rate, "q_U": self.q_U}
        values |= {"MSS/Rm": self._min_rate, "q_U/Rm": self.q_U // STEPS_PER_RTT, "MSS": self._one}
        return values | {"qdel_L": self.qdel_L_steps * self.rtt_us, "qdel_U": self.qdel_U, "Rm": STEPS_PER_RTT * self.rtt_us}

    @staticmethod
    def _sum(expression: Expression, values: dict[str, int]) -> int | None:
        """Return the sum over the common denominator; with an unbounded C_U UNBOUNDED, or None if it is subtracted."""
        terms, _ = whole_terms(expression)
        sign = dict(terms).get("C_U", 0)
        if sign and values["C_U"] == UNBOUNDED:
            return UNBOUNDED if sign > 0 else None
        return sum(coefficient * values[name] for name, coefficient in terms)

    def _send(self, ack: dict[str, int]) -> None:
        coarse = self.rate >> (self.constants.fraction_bits - 12)
        size = coarse * ack["mss"]
        quotient, remainder = min(size // self.rtt_us, 2**38), size % self.rtt_us
        per_s = STEPS_PER_RTT * 10**6
        pace = (quotient * per_s + remainder * per_s // self.rtt_us) >> 12
        elapsed_us = min(max(0, ack["now_us"] - self._decided_us), 2**27)
        planned = (coarse * elapsed_us // self.rtt_us * STEPS_PER_RTT) >> 12
        sent = (ack["data_segs_out"] - self._sent_at_decision) % _U32
        if not ack["app_limited"] and sent + 1 < planned:
            pace *= 2
        per_rtt = STEPS_PER_RTT * self.rate
        cwnd = (64 * per_rtt // self._one) + 64
        if ack["data_segs_out"] < 10:
            cwnd = max(per_rtt // self._one, 2)
        self.pacing_rate_Bps, self.cwnd = max(pace, 1), cwnd
