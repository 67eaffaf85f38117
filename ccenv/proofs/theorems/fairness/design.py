"""Find gains and tables in floating point: the fixed point of the barrier of docs/fairness.md at the nodes of a grid.

Nothing here is trusted: what is found is rounded to exact numbers, and every condition on these is a query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError

CELLS, COARSE_CELLS, FEW_CELLS = 84, 44, 22
FAST = 1e-3
"""From this gain on, and where rates are free, cells are wider: V moves further over two RTTs, but stays within the next cell.
They are widest where D is above LARGE_D, too, since two RTTs are longer there."""
LARGE_D = 0.5
LEAST_W = 0.6
LARGEST_X = (2.0, 2.3, 2.6, 2.9, 3.3, 3.7, 4.1, 4.5, 5.0, 5.7, 6.5, 7.3, 8.2, 9.1, 10.0, 12.0, 15.0, 20.0)
"""Ends of the grid that are tried, as w^2."""
SLOPES = np.linspace(0.35, 0.9, 12)
"""Shares of ln s that B D may be."""
MARGIN = 2e-3  # of the tables beyond their fixed point: rounding, and lines between nodes
KINK = 3e-3  # L leaves 1 at the first node where it could be above 1 by so much
ENTROPY_MARGIN = 1.03
LONGEST_RTTS = 100.0
ROUNDS = 300
ENDS = (slice(None, -1), slice(1, None))
FREE_ROUNDS = 100  # afterwards the node where L leaves 1 moves upwards only


class Design(StrictModel):
    """What is asked for (docs/fairness.md)."""

    fairness: float = 3.0  # s, above 1
    jitter: float = 1.0  # D in Rm
    shares: float = 100.0  # mu+ over mu-, the range of C/N
    utilisation: float = 0.65  # kappa
    gain: float = 1.2e-4  # g per Rm
    freedom: float = 1.0  # f, 1 or more: each rate may be anything within a factor f of the rule's, at all times
    # e in Rm: by how much delays may look shorter, because Rm is taken for longer, or tokens serve bytes early
    early: float = 0.0
    unlike: float = 0.0  # beta: Rm of flows are 1 - beta to 1

    @property
    def view(self) -> float:
        """How far apart the departures of the bytes are that two flows see."""
        return self.jitter + self.early + self.unlike


LIMITS = {
    "fairness": (1.05, 16.0),
    "jitter": (0.02, 4.0),
    "shares": (1.5, 1e5),
    "utilisation": (0.05, 0.95),
    "gain": (1e-6, 0.02),
    "freedom": (1.0, 2.0),
    "early": (0.0, 1.0),
    "unlike": (0.0, 0.95),
}


def design_of(values: dict[str, float]) -> Design:
    """Return a design. Raises InputError for an unknown name or a value out of range, one line."""
    design = validate(Design, values, "ever_delay: --set")
    for name, (low, high) in LIMITS.items():
        if not low <= getattr(design, name) <= high:
            raise InputError(f"ever_delay: {name} is {getattr(design, name):g}; it must be {low:g} to {high:g}")
    if design.early + design.unlike > 1:
        raise InputError("ever_delay: early and unlike are more than 1 together: a byte would be seen before it leaves")
    return design


@dataclass(frozen=True)
class Found:
    """Floating tables of a design; the grid's first and last node are the band's ends."""

    slope: float  # B
    entropy: float  # K
    rtt_rtts: float  # largest RTT
    # at the nodes w, low, high and the cost of the drift at the band's top; in the cells rise and fall
    nodes: dict[str, np.ndarray]


def log_specht(spread: float) -> float:
    """Return the logarithm of Specht's ratio."""
    chord = math.log(spread) / (spread - 1)
    return chord - 1 - math.log(chord)


def find(design: Design) -> Found:
    """Return the design with the least RTT.

    Raises:
        InputError: if there is none; names the nearest that exists.
    """
    shape = search_design(design)
    if shape is not None:
        return shape
    for name, factors in (("shares", (0.5, 0.2, 0.05)), ("gain", (0.5, 0.2, 0.05)), ("fairness", (1.2, 1.5, 2.0, 3.0))):
        for factor in factors:
            value = factor * getattr(design, name)
            if LIMITS[name][0] <= value <= LIMITS[name][1] and search_design(design.model_copy(update={name: value})) is not None:
                raise InputError(f"{told(design)}: no table exists; the nearest that does has {name} {value:g}")
    raise InputError(
        f"{told(design)}: no table exists, nor with a twentieth of the range or of the gain, or 3 times the fairness"
    )


def told(design: Design) -> str:
    """Return a design in one line."""
    return "ever_delay: " + ", ".join(f"{name} {value:g}" for name, value in design.model_dump().items())


def search_design(design: Design) -> Found | None:
    """Return the tables of a design with the least RTT; None: there are none."""
    best: Found | None = None
    for share in SLOPES:
        slope = share * math.log(design.fairness / design.freedom**2) / (design.jitter + design.early)
        largest = slope * (design.jitter + design.early + 12 * design.gain * design.view)
        if slope <= 0 or largest >= math.log(design.fairness):
            continue
        entropy = ENTROPY_MARGIN * log_specht(math.exp(largest))
        for top in LARGEST_X:
            shape = _within(design, slope, entropy, largest, top)
            if shape is not None:
                best = shape if best is None or shape.rtt_rtts < best.rtt_rtts else best
                break
    return best


def _within(design: Design, slope: float, entropy: float, largest: float, top: float) -> Found | None:
    """Return the band of one grid that a design asks for, or None."""
    cells = CELLS
    if design.gain >= FAST or design.freedom > 1:
        cells = COARSE_CELLS if design.jitter <= LARGE_D else FEW_CELLS
    w = np.exp(np.linspace(math.log(LEAST_W), 0.5 * math.log(top), cells + 1))
    nodes = fixed_point(design.jitter, slope, entropy, design.gain, w, design.freedom**2, design.early)
    if nodes is None:
        return None
    idle = np.flatnonzero(nodes["load"] < 1.002 * design.utilisation)
    first = int(idle[-1]) + 1 if len(idle) else 0
    if first > cells - 6:
        return None
    newest = max(1.0, nodes["low"][first] - design.early)
    ratio = design.freedom**2 * math.exp(largest) * math.sqrt(1 + design.view / design.utilisation / newest)
    if ratio > 0.9995 * design.fairness:
        return None
    y, cost = nodes["lag"], np.maximum.accumulate(nodes["cost"])
    lowest = np.log(w) + slope * (nodes["late"] + design.jitter - 1) + entropy
    highest = np.log(w) - y + slope * ((1 - 1.1 * cost) * w**2 / design.freedom**2 * (1 - 2 * y) - 1)
    lasts = np.flatnonzero(highest >= lowest[first] + math.log(design.shares) + 0.02)
    lasts = lasts[lasts > first + 4]
    if not len(lasts):
        return None
    part = slice(first, int(lasts[0]) + 1)
    inner = slice(first, int(lasts[0]))
    kept = {name: values[inner if name in ("rise", "fall") else part] for name, values in nodes.items()}
    kept["cost"] = cost[part]
    return Found(slope, entropy, float(kept["high"][-1] + design.jitter), kept)


def fixed_point(
    jitter: float, slope: float, entropy: float, gain: float, w: np.ndarray, free: float = 1.0, advance: float = 0.0
) -> dict[str, Any] | None:
    """Return tables that the barrier holds at the nodes, or None where it does not settle; ``free`` is f^2, ``advance`` e."""
    square, step = w * w, np.diff(w)
    low = np.maximum(1.0, square / (1 + jitter))
    high = np.maximum(1.0, square * np.sqrt(square / low))
    rise = fall = _of_cells(slope * (high + jitter - low) + entropy)
    kink = 0
    for round_ in range(ROUNDS):
        steep_high, steep_low = np.diff(high) / step, np.diff(low) / step
        queue = np.maximum(high - 1, 0.0)
        lag = np.minimum(2 * gain * slope * square / free * queue, 0.4)
        longest = np.append(high[2:], high[-1]) + jitter
        up, down = (np.minimum(gain * _around(drift) * longest, 0.25) for drift in (rise, fall))
        moved, back = _around(steep_high), _around(steep_low)
        late = np.maximum.accumulate(high + w * _at_nodes(moved * (down + down**2)))
        latest = np.maximum.accumulate(high + w * _at_nodes(moved * (2 * down + 4 * down**2)))
        early, earliest = low - w * _at_nodes(back * up), np.maximum(low - w * _at_nodes(back * 2 * up), 0.3)
        cost = np.minimum(4 * gain * _at_nodes(fall) * queue / (1 - 2 * lag), 0.5)
        ease, press = np.minimum(steep_high * w[1:] * gain * fall, 0.8), steep_low * w[1:] * gain * rise
        rises = (slope * (late[end] + jitter - seen) + entropy for end, seen in zip(ENDS, _seen(early, advance), strict=True))
        rise = np.clip(np.maximum(*rises), 0.05, 60.0)
        top = (1 - cost) * square / free * (1 - 2 * lag)
        fall = np.clip(_of_cells(slope * (late + jitter - top) + entropy + lag), 0.05, 60.0)
        least = square / (latest + jitter) / free
        tops, bottoms = [], []
        for end, seen in zip(ENDS, _seen(earliest, advance), strict=True):
            fastest = np.sqrt(square[end] * free / seen) * (1 + down + down**2)
            tops.append((square[end] * free / (1 - ease) ** 2 + advance) * np.maximum(1.0, fastest))
            bottoms.append(square[end] / free / (1 + press) ** 2 * np.minimum(1.0, np.sqrt(least[end]) / (1 + up + up**2)))
        above = np.maximum(np.append(tops[0], tops[1][-1]), np.append(tops[0][0], tops[1]))
        below = np.minimum(np.append(bottoms[0], bottoms[1][-1]), np.append(bottoms[0][0], bottoms[1]))
        new_high = np.minimum(np.maximum.accumulate(np.maximum(1.0, above) * (1 + MARGIN)), 200.0)
        new_low = np.maximum.accumulate(np.maximum(1.0, (1 - MARGIN) * (below - jitter)))
        kink = max(int(np.argmax(new_low > 1 + KINK)), kink if round_ > FREE_ROUNDS else 0)
        new_low[: kink + 1] = 1.0
        change = max(float(np.abs(new_high / high - 1).max()), float(np.abs(new_low - low).max()))
        high, low = 0.5 * (high + new_high), 0.5 * (low + new_low)
        if change < 1e-7:
            break
    if change > 1e-5 or high[-3] > LONGEST_RTTS:
        return None
    load = w / np.sqrt(free * (late + jitter))
    return {"w": w, "low": low, "high": high, "rise": rise, "fall": fall, "late": late, "lag": lag, "cost": cost, "load": load}


def _seen(table: np.ndarray, advance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the least X that flows see, at the left and right ends of the cells, where X is at least what the table says."""
    left, right = table[:-1] - advance, table[1:] - advance
    short = (np.minimum(left, right) < 1) & (advance > 0)
    return np.where(short, 1.0, left), np.where(short, 1.0, right)


def _of_cells(values: np.ndarray) -> np.ndarray:
    """Return the larger of a value at the two ends of each cell."""
    return np.asarray(np.maximum(values[:-1], values[1:]))


def _at_nodes(values: np.ndarray) -> np.ndarray:
    """Return the larger of a value in the two cells at each node."""
    return np.asarray(np.maximum(np.append(values, values[-1]), np.append(values[0], values)))


def _around(values: np.ndarray) -> np.ndarray:
    """Return the largest of a value in each cell and its neighbours."""
    ends = np.concatenate([values[:1], values, values[-1:]])
    return np.asarray(np.maximum(np.maximum(ends[:-2], ends[1:-1]), ends[2:]))
