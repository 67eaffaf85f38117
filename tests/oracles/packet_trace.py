"""Links of varying rate, plainly: a walk over rows of a trace; generators as lists, from the same random numbers."""

import math
from collections.abc import Iterator
from typing import Any

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import LINK_KEY, TRACE_COUNTER
from ccenv.network.links import LinkTrace, load_trace

DIFS_S, SLOT_S, SIFS_S, BLOCK_ACK_S, WINDOW = 16e-6 + 2 * 9e-6, 9e-6, 16e-6, 50e-6, 15


class ReferenceTrace:
    """What a link can carry, read from its beginning to its end and again."""

    def __init__(self, kind: str, rows: list[tuple[float, float, float]], length_s: float) -> None:
        self.kind, self.rows, self.length_s = kind, rows, length_s
        self._walk = self._pieces()
        self.begin_s, self.end_s, self.value, self.delay_s = next(self._walk)
        self.unused = self.value

    def _pieces(self) -> Iterator[tuple[float, float, float, float]]:
        begin_s = 0.0
        while True:
            for number, (time_s, value, delay_s) in enumerate(self.rows):
                last = number + 1 == len(self.rows)
                yield begin_s + time_s, begin_s + (self.length_s if last else self.rows[number + 1][0]), value, delay_s
            begin_s += self.length_s

    def _step(self) -> None:
        self.begin_s, self.end_s, self.value, self.delay_s = next(self._walk)
        self.unused = self.value

    def served_s(self, now_s: float, size_bytes: float) -> float:
        """Return when a packet that is begun now has left."""
        if self.kind == "rate":
            at_s = now_s
            while True:
                if at_s < self.end_s:
                    if self.value * (self.end_s - at_s) >= size_bytes:
                        return min(self.end_s, at_s + size_bytes / self.value)
                    size_bytes -= self.value * (self.end_s - at_s)
                    at_s = self.end_s
                self._step()
        while self.begin_s < now_s:
            self._step()
        while self.unused < size_bytes - 1e-6:
            size_bytes -= self.unused
            self._step()
        self.unused = max(0.0, self.unused - size_bytes)
        return self.begin_s


def reference_trace(spec: Any, seed: int, index: int) -> ReferenceTrace | None:
    """Return the trace of a link, or None for a constant rate."""
    if spec.trace:
        trace: LinkTrace = load_trace(spec.trace)
        return ReferenceTrace(trace.kind, [(t, v, d) for t, v, _, d in trace.rows.tolist()], trace.length_s)
    return None if spec.generator is None else made(spec.generator, seed, index)


def made(spec: Any, seed: int, index: int) -> ReferenceTrace:
    """Return what a generator makes."""

    def u(counter: float) -> float:
        return uniform(float(seed), 0.0, LINK_KEY + index, TRACE_COUNTER + counter)

    if spec.kind == "cellular":
        return _cellular(spec, u)
    return _leo(spec, u) if spec.kind == "leo" else _wifi(spec, u)


def _cellular(spec: Any, u: Any) -> ReferenceTrace:
    low, high = 0.05 * spec.mean_Bps, 1.95 * spec.mean_Bps
    rate, outage, rows = low + (high - low) * u(0.0), False, []
    count = max(1, math.floor(spec.length_s / 0.02 + 0.5))
    for row in range(count):
        rate += spec.volatility * spec.mean_Bps * math.sqrt(3.0 * 0.02) * (2.0 * u(2.0 * row + 1.0) - 1.0)
        while not low <= rate <= high:
            rate = 2.0 * (low if rate < low else high) - rate
        if spec.outage_s == 0 or row == 0:
            outage = False
        elif outage:
            outage = u(2.0 * row + 2.0) < math.exp(-0.02 / spec.outage_s)
        else:
            outage = u(2.0 * row + 2.0) < spec.outages_per_min / 60.0 * 0.02
        rows.append((row * 0.02, 0.0 if outage else rate, 0.0))
    return ReferenceTrace("rate", rows, count * 0.02)


def _leo(spec: Any, u: Any) -> ReferenceTrace:
    rows = []
    slots = math.ceil(spec.length_s / 15.0 - 1e-9)
    for slot in range(slots):
        own, delay, dark, *wobbles = (u(slot * 18.0 + k) for k in range(18))
        rate, begin_s = spec.mean_Bps * (1.0 + spec.spread * (2.0 * own - 1.0)), slot * 15.0
        rows.append((begin_s, 0.0, spec.delay_s * delay))
        for second, wobble in enumerate(wobbles):
            at_s = begin_s + (spec.handover_s * dark if second == 0 else second)
            rows.append((at_s, rate * (1.0 + spec.wobble * (2.0 * wobble - 1.0)), spec.delay_s * delay))
    return ReferenceTrace("rate", rows, slots * 15.0)


def _wifi(spec: Any, u: Any) -> ReferenceTrace:
    cycle_s = (1.0 + spec.stations) * (spec.txop_s + DIFS_S + SLOT_S * WINDOW / 2 + SIFS_S + BLOCK_ACK_S)
    rows, at_s, drawn = [], 0.0, 0.0
    for _ in range(max(1, math.ceil(spec.length_s / cycle_s))):
        own = False
        while not own:
            at_s += DIFS_S + SLOT_S * math.floor((WINDOW + 1.0) * u(drawn)) + spec.txop_s
            own = u(drawn + 1.0) < 1.0 / (1.0 + spec.stations)
            drawn += 2.0
            if not own:
                at_s += SIFS_S + BLOCK_ACK_S
        rows.append((at_s, spec.mean_Bps * cycle_s * (1.0 + spec.fading * (2.0 * u(drawn) - 1.0)), 0.0))
        drawn += 1.0
        at_s += SIFS_S + BLOCK_ACK_S
    return ReferenceTrace("opportunities", rows, at_s)
