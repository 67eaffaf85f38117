"""From floating tables to exact ones, and what follows from these: wider tables for looks into the past, and every constant."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from ccenv.proofs.theorems.fairness.design import Design, Found, log_specht

DIGITS = 6  # of a number of the tables
LOG_DIGITS = 12  # of the bounds of a logarithm
DERIVED_DIGITS = 9  # of the wider tables
DRIFT_MARGIN = 1.003
DRIFT_ROUNDS = 3
LEAST_DRIFT = 0.01


def down(value: Fraction | float, digits: int = DIGITS) -> Fraction:
    """Return the next multiple of a power of ten below."""
    return Fraction(math.floor(Fraction(value) * 10**digits), 10**digits)


def up(value: Fraction | float, digits: int = DIGITS) -> Fraction:
    """Return the next multiple of a power of ten above."""
    return Fraction(math.ceil(Fraction(value) * 10**digits), 10**digits)


def log_bounds(value: Fraction) -> tuple[Fraction, Fraction]:
    """Return bounds of a natural logarithm in LOG_DIGITS digits: ln x = n ln 2 + 2 artanh((y - 1)/(y + 1)), x = y 2^n."""
    power = 0
    while value > Fraction(4, 3):
        value, power = value / 2, power + 1
    while value < Fraction(2, 3):
        value, power = value * 2, power - 1
    low, high = _near_one(value)
    # ln 2 = ln(4/3) + ln(3/2)
    two_low, two_high = (one + other for one, other in zip(_near_one(Fraction(4, 3)), _near_one(Fraction(3, 2)), strict=True))
    ends = (power * two_low, power * two_high)
    return down(low + min(ends), LOG_DIGITS), up(high + max(ends), LOG_DIGITS)


def _near_one(value: Fraction) -> tuple[Fraction, Fraction]:
    part = (value - 1) / (value + 1)
    power, total = part, Fraction(0)
    for odd in range(1, 42, 2):
        total += power / odd
        power *= part * part
    rest = abs(power) / (1 - part * part)
    return 2 * (total - rest), 2 * (total + rest)


@dataclass(frozen=True)
class Tables:
    """Exact numbers of a certificate. ``low`` and ``high`` are at the nodes ``w``, ``rise`` and ``fall`` in the cells.

    The names are those of :mod:`ccenv.proofs.certificates.fairness.reading`.
    """

    jitter: Fraction
    utilisation: Fraction
    shares: Fraction
    fairness: Fraction
    freedom: Fraction
    early_by: Fraction
    unlike: Fraction
    slope: Fraction
    gain: Fraction
    entropy: Fraction
    curvature: Fraction
    w: tuple[Fraction, ...]
    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    rise: tuple[Fraction, ...]
    fall: tuple[Fraction, ...]

    @property
    def free(self) -> Fraction:
        """f^2."""
        return self.freedom**2

    @property
    def view(self) -> Fraction:
        """How far apart the departures of the bytes are that two flows see."""
        return self.jitter + self.early_by + self.unlike

    @property
    def newest(self) -> Fraction:
        """The least X that a flow sees."""
        return max(Fraction(1), self.low[0] - self.early_by)

    def seen(self, table: tuple[Fraction, ...], cell: int) -> tuple[Fraction, Fraction]:
        """Return the least X that flows see, at both ends of a cell, where X is at least what the table says."""
        left, right = table[cell] - self.early_by, table[cell + 1] - self.early_by
        return (Fraction(1), Fraction(1)) if self.early_by > 0 and min(left, right) < 1 else (left, right)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.w) - 1

    def steep(self, table: tuple[Fraction, ...], cell: int) -> Fraction:
        """Return the slope of a table in a cell."""
        return (table[cell + 1] - table[cell]) / (self.w[cell + 1] - self.w[cell])

    def around(self, values: list[Fraction] | tuple[Fraction, ...], cell: int) -> Fraction:
        """Return the largest of a value per cell in a cell and its neighbours."""
        return max(values[max(cell - 1, 0) : cell + 2])

    @cached_property
    def up(self) -> list[Fraction]:
        """By how much V may have risen over one RTT, for each cell."""
        return [up(self.gain * self.around(self.rise, k) * self.longest(k), LOG_DIGITS) for k in range(self.cells)]

    @cached_property
    def down(self) -> list[Fraction]:
        """By how much V may have fallen over one RTT."""
        return [up(self.gain * self.around(self.fall, k) * self.longest(k), LOG_DIGITS) for k in range(self.cells)]

    def lag(self, node: int) -> Fraction:
        """Return the most by which V is above V - 2 g B w^2 q at a node."""
        return 2 * self.gain * self.slope * self.w[node] ** 2 / self.free * (self.high[node] - 1)

    def longest(self, cell: int) -> Fraction:
        """Return the largest RTT of a byte sent while w was in the cell or beside it."""
        return self.high[min(cell + 2, self.cells)] + self.jitter

    def _wider(self, table: tuple[Fraction, ...], shifts: list[Fraction], sign: int) -> tuple[Fraction, ...]:
        steep = [self.steep(table, k) for k in range(self.cells)]
        moves = [self.around(steep, k) * shifts[k] for k in range(self.cells)]
        drifts: list[Fraction] = []
        for node, (at, value) in enumerate(zip(self.w, table, strict=True)):
            most = max(moves[max(node - 1, 0) : node + 1])
            moved = up(value + most * at, DERIVED_DIGITS) if sign > 0 else down(value - most * at, DERIVED_DIGITS)
            drifts.append(max(moved, drifts[-1]) if sign > 0 and drifts else moved)
        return tuple(drifts)

    @cached_property
    def late(self) -> tuple[Fraction, ...]:
        """H+: at least H where w was up to one RTT ago."""
        return self._wider(self.high, [x + x**2 for x in self.down], 1)

    @cached_property
    def latest(self) -> tuple[Fraction, ...]:
        """H++: at least H where w was up to two RTTs ago."""
        return self._wider(self.high, [2 * x + 4 * x**2 for x in self.down], 1)

    @cached_property
    def early(self) -> tuple[Fraction, ...]:
        """L-: at most L where w was up to one RTT ago."""
        return self._wider(self.low, list(self.up), -1)

    @cached_property
    def earliest(self) -> tuple[Fraction, ...]:
        """L--: at most L where w was up to two RTTs ago."""
        return self._wider(self.low, [2 * x for x in self.up], -1)

    @cached_property
    def exponent(self) -> Fraction:
        """B (D + e + g Q (D + e + beta)), the bound of v_i - v_j."""
        return self.slope * (self.jitter + self.early_by + self.gain * (self.high[-1] - 1) * self.view)

    @cached_property
    def spread(self) -> Fraction:
        """A bound of e^(v_i - v_j)."""
        spread = up(math.exp(self.exponent), 9)
        while log_bounds(spread)[0] < self.exponent:
            spread += Fraction(1, 10**9)
        return spread

    @cached_property
    def ratio(self) -> Fraction:
        """A bound of the ratio of two rates."""
        square = self.free**2 * self.spread**2 * (1 + self.view / self.utilisation / self.newest)
        ratio = up(math.sqrt(square), 4)
        return ratio if ratio**2 >= square else ratio + Fraction(1, 10**4)

    @cached_property
    def offset(self) -> Fraction:
        """theta+, rounded up."""
        return up(log_bounds(self.w[0])[1] + self.slope * (self.late[0] + self.jitter - 1) + self.entropy)

    @cached_property
    def rtt_rtts(self) -> Fraction:
        """The largest RTT."""
        return self.high[-1] + self.jitter

    @cached_property
    def start(self) -> Fraction:
        """How far v may be below the map inside the invariant, rounded up."""
        return up(max(self.rise) + self.exponent, 4)

    @cached_property
    def relief(self) -> Fraction:
        """How far v may be above the map inside the invariant, rounded up."""
        return up(max(self.fall) + self.exponent, 4)


def exact_tables(design: Design, found: Found) -> Tables:
    """Round a design's tables to exact numbers, each to its safe side."""
    nodes = found.nodes
    w = tuple(down(float(value)) for value in nodes["w"])
    low = [max(Fraction(1), down(float(value))) for value in nodes["low"]]
    high = [up(float(value)) for value in nodes["high"]]
    for table in (low, high):
        for node in range(1, len(table)):
            table[node] = max(table[node], table[node - 1])
    rise, fall = (tuple(up(DRIFT_MARGIN * float(value), 4) for value in nodes[name]) for name in ("rise", "fall"))
    slope, gain = down(found.slope), Fraction(str(design.gain))
    queue = float(high[-1] - 1)
    spread = math.exp(float(slope) * (design.jitter + design.early + design.gain * queue * design.view))
    entropy = max(up(found.entropy), up(log_specht(spread) * (1 + 1e-6)))
    tables = Tables(
        jitter=Fraction(str(design.jitter)),
        utilisation=Fraction(str(design.utilisation)),
        shares=Fraction(str(design.shares)),
        fairness=Fraction(str(design.fairness)),
        freedom=Fraction(str(design.freedom)),
        early_by=Fraction(str(design.early)),
        unlike=Fraction(str(design.unlike)),
        slope=slope,
        gain=gain,
        entropy=entropy,
        curvature=up(1.1 * float(np.max(nodes["cost"])), 6),
        w=w,
        low=tuple(low),
        high=tuple(high),
        rise=rise,
        fall=fall,
    )
    for _ in range(DRIFT_ROUNDS):
        rise, fall = _drift(tables)
        tables = replace(tables, rise=rise, fall=fall)
    return tables


def _drift(tables: Tables) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """Return what V'/g and -V'/g are at most in each cell, by what they are at its ends, with a margin."""
    rises, falls = [], []
    for node, w in enumerate(tables.w):
        lag, square = tables.lag(node), (1 - tables.curvature) * w**2 / tables.free * (1 - 2 * tables.lag(node))
        late = tables.late[node] + tables.jitter
        shortest = min(tables.seen(tables.early, cell)[node - cell] for cell in (node - 1, node) if 0 <= cell < tables.cells)
        rises.append(float(tables.slope * (late - shortest) + tables.entropy))
        falls.append(float(tables.slope * (late - square) + tables.entropy + lag))
    return _in_cells(rises), _in_cells(falls)


def _in_cells(values: list[float]) -> tuple[Fraction, ...]:
    """Return the larger of a value at the two ends of each cell, with a margin, rounded up."""
    return tuple(up(max(LEAST_DRIFT, DRIFT_MARGIN * max(ends)), 4) for ends in pairwise(values))
