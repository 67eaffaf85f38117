"""Measures of rates, delays and times as plain functions of numbers, shared by the metrics of both engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccenv.base.errors import InputError

UNDEFINED = math.nan
"""Value of an undefined measure."""


def jain(shares: Any) -> float:
    """Return Jain's index (sum x)^2 / (N sum x^2), in [1/N, 1], of N shares >= 0 in any unit; not a number if all are 0.

    Reference: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination", DEC-TR-301, 1984.
    """
    x = np.asarray(shares, dtype=np.float64)
    total = float(x.sum())
    return total * total / (len(x) * float((x * x).sum())) if total > 0 else UNDEFINED


def jain_or_one(rates: Any) -> float:
    """Return Jain's index, 1 where no flow has anything. Reference: as ``jain``; [BBR-fluid] s.4.3.1."""
    index = jain(rates)
    return 1.0 if math.isnan(index) else index


def percent(part: float, whole: float) -> float:
    """Return a share in per cent, 0 of nothing."""
    return 100.0 * float(part) / float(whole) if whole > 0 else 0.0


def starvation_ratio(throughputs: Any) -> float:
    """Return the largest over the smallest of N throughputs >= 0 in any unit.

    It is infinite if a flow got nothing and another something; not a number if none got anything or N = 1.

    Reference: [Starvation] s.4.2, definition 2, and s.5.
    """
    x = np.asarray(throughputs, dtype=np.float64)
    if len(x) < 2 or not x.max() > 0:
        return UNDEFINED
    return float(x.max() / x.min()) if x.min() > 0 else math.inf


def s_fairness(times_s: Any, delivered_bytes: Any) -> float:
    """Return the smallest s for which a run looks s-fair: the largest ratio of throughputs over its second half.

    A network is s-fair if from some finite time on the ratio stays below s; of a finite run the second half stands for "from
    some time on". ``delivered_bytes``, (T, N), are cumulative at ascending times, (T,). The ratio is infinite if a flow has got
    nothing; not a number for one flow.

    Reference: [Starvation] s.4.2, definition 2.
    """
    times, delivered = np.asarray(times_s, dtype=np.float64), np.asarray(delivered_bytes, dtype=np.float64)
    second_half = delivered[(times >= times[-1] / 2) & (times > 0)]
    ratios = [starvation_ratio(row) for row in second_half if row.max() > 0]
    return max(ratios) if ratios else UNDEFINED


def harm(alone: float, together: float, *, sign: float = 1.0) -> float:
    """Return how much worse a flow fares with a competitor than alone, as a share; negative if the competitor helps.

    That is (alone - together) / alone of a metric where higher is better (``sign`` 1, as for throughput), and
    (together - alone) / together where lower is (-1, as for delay).

    Raises:
        InputError: if the flow had nothing alone.

    Reference: Ware, Mukerjee, Seshan, Sherry, "Beyond Jain's Fairness Index", HotNets 2019, s.4.
    """
    if not alone > 0:
        raise InputError(f"harm: the metric alone is {alone:g}; it must be above 0")
    if sign > 0:
        return (alone - together) / alone
    return (together - alone) / together if together > 0 else UNDEFINED


def delta_sensitivity(values: Any) -> float:
    """Return log2(max) - log2(min) of a flow's metric >= 0 over a set of n delay vectors.

    0: delays do not matter; infinite if some value is 0; not a number without values.

    Reference: [Delta] s.4.1 and s.4.1.3; the worked example there takes the logarithm to base 2.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0 or not x.max() > 0:
        return UNDEFINED
    return math.log2(float(x.max()) / float(x.min())) if x.min() > 0 else math.inf


def power(utilisation: float, rtt_s: float, queueing_delay_s: float) -> float:
    """Return utilisation * Rm / (Rm + mean queueing delay): 1 for a full link with an empty queue.

    Reference: Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in computer communications",
        ICC 1979, here relative to its value for an ideal sender.
    """
    return utilisation * rtt_s / (rtt_s + queueing_delay_s)


def convergence_time_s(times_s: Any, values: Any, target: float, *, tolerance: float = 0.2, hold_s: float = 1.0) -> float:
    """Return when a series first stays within a tolerance, a share of a target > 0, for ``hold_s``; not a number if never.

    ``values``, (T,), are averages over the intervals that end at the ascending ``times_s``; the result counts from the first.

    Reference: the settling time of control engineering.
    """
    times, series = np.asarray(times_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    inside = np.abs(series - target) <= tolerance * target
    begin = None
    for at, good in zip(times, inside, strict=True):
        if not good:
            begin = None
            continue
        begin = at if begin is None else begin
        if at - begin >= hold_s - 1e-9:
            return float(begin - times[0])
    return UNDEFINED


def time_to_reach_s(times_s: Any, values: Any, target: float) -> float:
    """Return the first time at which a series is at or above a target, from the first of times_s; not a number if never."""
    reached = np.flatnonzero(np.asarray(values, dtype=np.float64) >= target)
    times = np.asarray(times_s, dtype=np.float64)
    return float(times[reached[0]] - times[0]) if len(reached) else UNDEFINED


def loss_events(times_s: Any, lost_bytes: Any, gap_s: float) -> int:
    """Return the number of loss events: all losses within gap_s of an event's first one belong to it.

    ``lost_bytes``, (T,), are those of the intervals that end at the ascending ``times_s``; ``gap_s`` is usually one RTT.

    Reference: RFC 5348 s.5.2: losses within one round trip are one event.
    """
    when = np.asarray(times_s, dtype=np.float64)[np.asarray(lost_bytes) > 0]
    events, begin = 0, -math.inf
    for at in when:
        if at - begin > gap_s:
            events, begin = events + 1, at
    return events


def completion_times_s(times_s: Any, delivered_bytes: Any, size_bytes: float, every_s: float, start_s: float) -> list[float]:
    """Return how long each finished transfer of a flow took, in seconds; transfer k is offered at start_s + k * every_s.

    A transfer is finished when all of it and of those before it has been delivered. ``delivered_bytes``, (T,), are cumulative at
    ascending times, whose spacing limits the accuracy.

    Reference: Dukkipati, McKeown, "Why Flow-Completion Time is the Right Metric for Congestion Control", CCR 2006.
    """
    times, delivered = np.asarray(times_s, dtype=np.float64), np.asarray(delivered_bytes, dtype=np.float64)
    out: list[float] = []
    transfers = int(delivered[-1] / size_bytes + 1e-9)
    for k in range(transfers):
        at = times[int(np.searchsorted(delivered, (k + 1) * size_bytes * (1 - 1e-12)))]
        out.append(float(at - (start_s + k * every_s)))
    return out


def weighted_quantile(values: Any, weights: Any, share: float) -> float:
    """Return the smallest of n values that at least a share, in (0, 1], of the weights >= 0 does not exceed.

    It is not a number without weight.
    """
    x, w = np.asarray(values, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    if not w.sum() > 0:
        return UNDEFINED
    order = np.argsort(x, kind="stable")
    reached = np.cumsum(w[order]) >= share * w.sum() * (1 - 1e-12)
    return float(x[order][int(np.argmax(reached))])


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the least-squares slope of y over x; not a number for fewer than two different x."""
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(xs) < 2 or np.ptp(xs) == 0:
        return UNDEFINED
    centred = xs - xs.mean()
    return float(centred @ ys / (centred @ centred))
