"""Boxes of programs of four rates, and the kernel that covers them with counterexamples.

A *box* is the product of a set of conditions for each branch and a set of rates for each leaf, one bit mask per hole. A trace's
run of one program depends on few of its holes: the truth of the conditions evaluated, and the rate of the leaf that fired. All
programs of the box that agree on these run identically and break together; the rest is cut into boxes again, decision by
decision. No box is listed program by program.
"""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.proofs.synthesis.query.classes import MOST_BITS, MOST_SAMPLES, PAST
from ccenv.proofs.synthesis.search.kernel import CURVES, LARGE_LOSS, MISLED, MISSED, simulate

HOLES = 7
"""Three conditions (outer, inner of then, inner of else), then four rates."""

MOST_PARTS = HOLES * MOST_BITS
"""Most parts into which a box is cut at once, since each cut removes a bit."""

RATES = 4

_ONE = np.uint64(1)
_MOST_DECISIONS = 3 * MOST_SAMPLES


@kernel(inline="always")
def _lowest(mask: np.uint64) -> int:
    out = 0
    while (mask >> np.uint64(out)) & _ONE == 0:
        out += 1
    return out


@kernel(inline="always")
def _first_program(box, row) -> None:
    for hole in range(HOLES):
        row[hole] = _lowest(box[hole])


@kernel(nogil=True)
def first_programs(boxes) -> np.ndarray:
    """Return (n, HOLES) int64: the first program of each box."""
    out = np.zeros((len(boxes), HOLES), np.int64)
    for i in range(len(boxes)):
        _first_program(boxes[i], out[i])
    return out


@kernel
def timed_masks(conditions) -> np.ndarray:
    """Return (MOST_SAMPLES + PAST,) masks of the conditions on delays that hold at each qdel_L."""
    out = np.zeros(MOST_SAMPLES + PAST, np.uint64)
    for qdel in range(len(out)):
        for i in range(len(conditions)):
            if conditions[i].timed == 1 and conditions[i].qdel * qdel + conditions[i].Rm > 0:
                out[qdel] |= _ONE << np.uint64(i)
    return out


@kernel
def _untimed_mask(conditions, C_L: int, C_U: int, alpha: int, probed: int, q_U: int) -> np.uint64:
    out = np.uint64(0)
    for i in range(len(conditions)):
        c = conditions[i]
        if c.timed == 0 and c.C_L * C_L + c.C_U * C_U + c.alpha * alpha + c.C_L_lambda * probed + c.q_U * q_U > 0:
            out |= _ONE << np.uint64(i)
    return out


@kernel(nogil=True)
def masks_at(conditions, points) -> np.ndarray:
    """Return (n,) masks of the conditions on bounds that hold at each of (n, 3) points C_L, C_U, MSS/Rm."""
    out = np.zeros(len(points), np.uint64)
    for k in range(len(points)):
        out[k] = _untimed_mask(conditions, points[k, 0], points[k, 1], points[k, 2], 0, 0)
    return out


@kernel
def _equal_rates(rates, chosen: int, C_L: int, alpha: int, probed: int, q_U: int) -> np.uint64:
    """Return the rates that send the same as the chosen one here, integer and non-integer ones apart."""
    out = np.uint64(0)
    r = rates[chosen]
    doubled_chosen = r.C_L * C_L + r.alpha * alpha + r.C_L_lambda * probed + r.q_U * q_U
    for i in range(len(rates)):
        r = rates[i]
        doubled = r.C_L * C_L + r.alpha * alpha + r.C_L_lambda * probed + r.q_U * q_U
        same = doubled % 2 == doubled_chosen % 2 and max(doubled // 2, alpha) == max(doubled_chosen // 2, alpha)
        if same:
            out |= _ONE << np.uint64(i)
    return out


@kernel
def decisions(trace, row, conditions, rates, timed, curves, holes, masks) -> int:
    """List the decisions of a run of ``simulate``: programs that agree on them run identically up to the last step run.

    ``row`` is the program, indices of three conditions and four rates; ``timed`` comes from :func:`timed_masks` and ``curves``
    from ``simulate``, with rates of 0 in steps that were not run. ``holes`` (n,) int64 is filled with the hole of each decision,
    ``masks`` (n,) uint64 with the conditions or rates that decide equally. Returns the number of decisions.
    """
    count = 0
    D, alpha = trace.jitter, trace.alpha
    spent, lower, upper, delays = curves[5], curves[6], curves[7], curves[3]
    untimed = np.uint64(0)
    for t in range(1, trace.samples):
        if spent[t] == 0:
            break
        C_L, C_U, probed, q_U = lower[t - 1], upper[t - 1], curves[10, t - 1], curves[11, t - 1]
        changed = (
            t == 1
            or lower[t - 2] != C_L
            or upper[t - 2] != C_U
            or (trace.probes == 1 and (probed != curves[10, t - 2] or q_U != curves[11, t - 2]))
        )
        if changed:
            untimed = _untimed_mask(conditions, C_L, C_U, alpha, probed, q_U)
        true = untimed | timed[max(0, delays[t - 1] - D)]
        first = (true >> np.uint64(row[0])) & _ONE == 1
        inner = 1 if first else 2
        second = (true >> np.uint64(row[inner])) & _ONE == 1
        leaf = (3 if second else 4) if first else (5 if second else 6)
        holes[count], masks[count] = 0, true if first else ~true
        holes[count + 1], masks[count + 1] = inner, true if second else ~true
        holes[count + 2], masks[count + 2] = leaf, _equal_rates(rates, row[leaf], C_L, alpha, probed, q_U)
        count += 3
    return count


@kernel(inline="always")
def _narrow(box, stack, size: int, hole: int, mask: np.uint64) -> int:
    """Narrow one hole of a box and push the rest onto the stack; returns the new size of the stack."""
    rest = box[hole] & ~mask
    if rest != 0:
        stack[size] = box
        stack[size, hole] = rest
        size += 1
        box[hole] &= mask
    return size


@kernel(nogil=True)
def cover(stack, size, traces, goals, order, conditions, rates, exact, pending, most):
    """Refute boxes until none is left, ``pending`` is full, the stack has no room or ``most`` boxes were visited.

    Args:
        stack: (capacity, HOLES) uint64; the first ``size`` rows are the boxes to cover, the last one first.
        size: number of boxes.
        traces: TRACE records.
        goals: GOAL records.
        order: (n_traces,) int64, the order of traces; one that breaks a program moves to the front.
        conditions: CONDITION records, at most 64.
        rates: RATE records, at most 64.
        exact: also cut boxes whose first program no trace breaks, into programs that no trace breaks, and others.
        pending: (n, HOLES) uint64, filled with boxes whose first program (``exact``: every program) no trace breaks.
        most: boxes to visit.

    Returns:
        tuple: boxes left on the stack, boxes pending.
    """
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
    row = np.zeros(HOLES, np.int16)  # as replay and score have them: simulate is compiled once
    holes, masks = np.zeros(_MOST_DECISIONS, np.int64), np.zeros(_MOST_DECISIONS, np.uint64)
    box = np.zeros(HOLES, np.uint64)
    timed = timed_masks(conditions)
    waiting = seen = 0
    while size > 0 and waiting < len(pending) and size + MOST_PARTS <= len(stack) and seen < most:
        seen += 1
        size -= 1
        box[:] = stack[size]
        _first_program(box, row)
        killer = -1
        for position in range(len(order)):
            number = order[position]
            curves[5, :] = 0
            outcome = simulate(traces[number], goals[number], RATES, row, conditions, rates, curves)
            if outcome in (MISSED, LARGE_LOSS, MISLED):
                killer = number
                for later in range(position, 0, -1):
                    order[later] = order[later - 1]
                order[0] = number
                break
        if killer >= 0:
            for k in range(decisions(traces[killer], row, conditions, rates, timed, curves, holes, masks)):
                size = _narrow(box, stack, size, holes[k], masks[k])
            continue
        if exact:
            for number in range(len(traces)):
                curves[5, :] = 0
                simulate(traces[number], goals[number], RATES, row, conditions, rates, curves)
                for k in range(decisions(traces[number], row, conditions, rates, timed, curves, holes, masks)):
                    size = _narrow(box, stack, size, holes[k], masks[k])
        pending[waiting] = box
        waiting += 1
    return size, waiting
