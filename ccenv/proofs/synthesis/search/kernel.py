"""The concrete simulator: one trace's network moves against many candidates, in exact integers.

A candidate that a trace *breaks* violates the invariant on a legal trace; only this prunes. A division that would not be exact,
or a move that the candidate's traffic makes illegal, breaks nothing. Every trace that prunes is confirmed in rational numbers by
the slow reference, ``ccenv.proofs.replay.exact``.
"""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.proofs.synthesis.query.classes import GRAIN, MOST_SAMPLES, MOST_SENT, PAST, SHARES
from ccenv.proofs.synthesis.query.objectives import repaired, shrinks, time_out

CURVES = 13
"""Rows that ``simulate`` fills."""

SURVIVES, MISSED, LARGE_LOSS, ILLEGAL, MISLED = 0, 1, 2, 3, 4
"""Effect of a trace on a candidate: none; objective missed while no bound moves; large loss while probing; illegal; a consistent
bound became wrong (C_L_lambda, q_U; C_L and C_U by a time-out)."""

PROBE_SLACK = 1
"""Steps that sampling adds to T* + D in C_L_lambda (``lambda_extra_steps``)."""


@kernel(inline="always")
def _holds(condition, C_L: int, C_U: int, alpha: int, qdel: int, probed: int, q_U: int) -> bool:
    if condition.timed == 1:
        return condition.qdel * qdel + condition.Rm > 0
    sent = condition.C_L_lambda * probed + condition.q_U * q_U
    return condition.C_L * C_L + condition.C_U * C_U + condition.alpha * alpha + sent > 0


@kernel
def _leaf(shape, row, conditions, C_L: int, C_U: int, alpha: int, qdel: int, probed: int, q_U: int) -> int:
    """Return the index of a candidate's rate; row holds its conditions, then its rates."""
    if shape == 1:
        return row[0]
    if shape == 2:
        return row[1] if _holds(conditions[row[0]], C_L, C_U, alpha, qdel, probed, q_U) else row[2]
    first = _holds(conditions[row[0]], C_L, C_U, alpha, qdel, probed, q_U)
    if shape == 3:
        if first:
            return row[2]
        return row[3] if _holds(conditions[row[1]], C_L, C_U, alpha, qdel, probed, q_U) else row[4]
    if first:
        return row[3] if _holds(conditions[row[1]], C_L, C_U, alpha, qdel, probed, q_U) else row[4]
    return row[5] if _holds(conditions[row[2]], C_L, C_U, alpha, qdel, probed, q_U) else row[6]


@kernel(inline="always")
def _enqueued(trace, E, t: int) -> int:
    return E[t] if t >= 0 else trace.E_before[-t - 1]


@kernel(inline="always")
def _tokens(trace, t: int, before: int, arrived: int) -> int:
    """Return G(t): tokens are wasted only if all bytes have tokens; then G stays at or above the arrivals."""
    most = before + trace.link
    if trace.exact_waste == 1:
        return min(most, arrived)
    if arrived >= most:
        return most
    least = max(before, arrived)
    if trace.waste[t] >= 0:
        tokens = most - (most - least) // SHARES * trace.waste[t]
        tokens -= tokens % GRAIN
    else:
        tokens = trace.G_at[t]
    return min(max(tokens, least), most)


@kernel
def _delay(trace, t: int, E, S, before: int) -> int:
    """Return the whole steps that the newest byte delivered by t waited, or -1 if no legal past explains it."""
    if S[t] == S[t - 1]:
        return before
    for steps in range(t):
        if S[t] > E[t - steps - 1]:
            # The published rule: at most one step above the last delay, also after steps without service.
            return -1 if trace.past_known == 0 and before < trace.samples and steps > before + 1 else steps
    if trace.past_known == 1:
        steps = t
        while steps - t < PAST and S[t] <= trace.E_before[steps - t]:
            steps += 1
        return steps
    most = trace.samples if before == trace.samples else min(before + 1, trace.samples - 1)
    if trace.beta >= 0:
        most = min(most, trace.beta // trace.link + trace.jitter)
    if most < t:
        return -1
    return min(max(trace.delay_at[t], t), most)


@kernel(inline="always")
def _lower_bound(bound: int, numerator: int, denominator: int) -> int:
    """Return the smaller of a bound and a fraction, or -1 if that is no integer; -1 stays."""
    if numerator >= bound * denominator:
        return bound
    return numerator // denominator if numerator % denominator == 0 else -1


@kernel(inline="always")
def _find_first_used(end: int, D: int, E, S, losses) -> int:
    """Return the first sample from which on no step up to ``end`` can have wasted a token."""
    for x in range(end, 0, -1):
        if E[x] <= S[x + D] and losses[x] == 0:
            return x
    return 0


@kernel
def _exact_upper(t: int, D: int, E, S, losses, bound: int) -> int:
    end = t - D
    for s in range(_find_first_used(end, D, E, S, losses), end):
        bound = _lower_bound(bound, S[t] - S[s], end - s)
    return bound


@kernel
def _raise_lower_by_sent(t: int, E, losses, bound: int) -> int:
    """Return C_L from the bytes that entered the queue since lossy steps (docs/engine.md), -1 if it is no integer."""
    end = t - 1
    for a in range(end):
        if losses[a] == 1 and E[end] - E[a] > bound * (end - a):
            if (E[end] - E[a]) % (end - a) != 0:
                return -1
            bound = (E[end] - E[a]) // (end - a)
    return bound


@kernel
def _lower_upper_by_sent(t: int, D: int, E, S, losses, bound: int) -> int:
    """Return C_U from windows of bytes sent (docs/engine.md), -1 if it is no integer."""
    end = t - D
    used = _find_first_used(end, D, E, S, losses)
    above, steps = S[t] - S[0], max(1, end)  # V(x) as a fraction
    for x in range(1, end):
        sent, delivered, length = S[t] - E[x], S[t] - S[x], end - x
        if sent * steps > above * length:
            above, steps = sent, length
        if delivered * steps < above * length:
            above, steps = delivered, length
        if x >= used:
            bound = _lower_bound(bound, above, steps)
    newest = t - max(D, 1)
    if newest > 0 and losses[newest] == 1:
        for x in range(_find_first_used(newest, D, E, S, losses), newest):
            bound = _lower_bound(bound, E[newest] - E[x], newest - x)
    return bound


@kernel(nogil=True)
def simulate(trace, goal, shape, row, conditions, rates, curves) -> int:
    """Run one candidate on one trace.

    Args:
        trace: a TRACE record.
        goal: a GOAL record in the trace's units.
        shape: number of rates of the template.
        row: the candidate: its condition numbers, then its rate numbers.
        conditions: CONDITION records.
        rates: RATE records.
        curves: (CURVES, MOST_SAMPLES) int64, filled: tokens admitted, bytes entered, bytes delivered, whole steps that the newest
            byte waited, 1 if the link was surely used, the rate in (t-1, t], C_L, C_U; with ``probes`` also 1 if the first byte
            waited too long, 1 if a loss became known, C_L_lambda, q_U; at last 1 if bytes were lost.

    Returns:
        int: SURVIVES, MISSED, LARGE_LOSS or ILLEGAL.
    """
    n, D, alpha, link = trace.samples, trace.jitter, trace.alpha, trace.link
    G, E, S, delays, shows, spent, lower, upper = (
        curves[0], curves[1], curves[2], curves[3], curves[4], curves[5], curves[6], curves[7],
    )  # fmt: skip
    C_L, C_U = trace.C_L, trace.C_U
    lower[0], upper[0] = C_L, C_U
    late, warned, losses = curves[8], curves[9], curves[12]
    probed, q_U = trace.C_L_lambda, trace.q_U
    curves[10, 0], curves[11, 0] = probed, q_U
    late[0], warned[0], losses[0] = trace.first_late, trace.seen, trace.lost
    G[0], E[0], S[0], delays[0], spent[0] = trace.G, trace.E, 0, trace.delay, alpha
    lost_before, lossy, lost_total, most_lost, most_inflight = trace.lost, 0, 0, 0, 0
    moved = False
    for t in range(1, n):
        rate = rates[_leaf(shape, row, conditions, C_L, C_U, alpha, max(0, delays[t - 1] - D), probed, q_U)]
        doubled = rate.C_L * C_L + rate.alpha * alpha + rate.C_L_lambda * probed + rate.q_U * q_U
        sent = max(doubled // 2, alpha)
        # Set also in a step that is not run: programs that send otherwise may still be judged.
        spent[t] = sent
        if doubled % 2 != 0 or sent > MOST_SENT:
            return ILLEGAL
        arrived = E[t - 1] + sent
        G[t] = _tokens(trace, t, G[t - 1], arrived)
        E[t] = arrived if trace.beta < 0 else min(arrived, G[t] + trace.beta)
        lost = arrived - E[t]
        low = max(S[t - 1], G[t - D])
        high = min(G[t], E[t])
        if trace.hold == 1:
            for s in range(t):
                high = min(high, S[s] + C_L * (t - s + D))
            for s in range(t - 1, -1, -1):
                if s < t - 1 and trace.windows == 0 and shows[s + 1] == 0:
                    break
                if s < t - D - 1 and trace.windows > 0 and E[s + 1] <= S[s + 1 + D] and losses[s + 1] == 0:
                    break
                low = max(low, S[s] + C_U * (t - s - D))
        if low > high:
            low = max(S[t - 1], G[t - D])
            if low > high:
                return ILLEGAL
        if trace.serve[t] >= 0:
            served = low + (high - low) // SHARES * trace.serve[t]
            if trace.serve[t] == SHARES:
                served = high
            down = served - served % GRAIN
            served = down if down >= low else served
        else:
            served = trace.S_at[t]
        S[t] = min(max(served, low), high)
        delays[t] = _delay(trace, t, E, S, delays[t - 1])
        if delays[t] < 0:
            return ILLEGAL
        seen = lost_before if D > 0 else int(lost > 0)
        shows[t] = 1 if delays[t] > D or seen > 0 else 0
        lost_before = losses[t] = int(lost > 0)
        for s in range(t - 1, -1, -1):
            delivered = S[t] - S[s]
            if delivered > C_L * (t - s + D):
                if delivered % (t - s + D) != 0:
                    return ILLEGAL
                C_L = delivered // (t - s + D)
                moved = True
        fallen = C_U
        if trace.windows == 0:
            for s in range(t - 1, -1, -1):
                if shows[s + 1] == 0:
                    break
                if t - s > D:
                    fallen = _lower_bound(fallen, S[t] - S[s], t - s - D)
        else:
            fallen = _exact_upper(t, D, E, S, losses, fallen)
        if trace.windows == 2:
            risen = _raise_lower_by_sent(t, E, losses, C_L)
            fallen = _lower_upper_by_sent(t, D, E, S, losses, fallen)
            if risen < 0:
                return ILLEGAL
            moved = moved or risen > C_L
            C_L = risen
        if fallen < 0:
            return ILLEGAL
        moved = moved or fallen < C_U
        C_U = fallen
        lower[t], upper[t] = C_L, C_U
        if trace.probes == 1:
            slack = D + PROBE_SLACK
            late[t] = (S[t - 1] < _enqueued(trace, E, t - slack - 1)) if S[t] > S[t - 1] else late[t - 1]
            warned[t] = seen
            for end in range(t, 0, -1):
                if warned[end] == 1 or (late[end] == 1 and (trace.late_kept == 1 or S[end] > S[end - 1])):
                    break
                if E[end] <= S[t] and spent[end] > probed * (1 + slack):
                    if spent[end] % (1 + slack) != 0:
                        return ILLEGAL
                    probed = spent[end] // (1 + slack)
                    moved = True
            q_U = min(E[t] + lost - S[t], max(0, q_U + sent - probed))
            curves[10, t], curves[11, t] = probed, q_U
        if moved and goal.transient == 0 and trace.probes == 0 and goal.timeouts == 0:
            return SURVIVES
        lossy += lost > 0
        lost_total += lost
        most_lost = max(most_lost, lost)
        most_inflight = max(most_inflight, E[t] - S[t])
    last = n - 1
    if trace.probes == 1:
        line = trace.beta >= 0 and link + trace.beta < probed * (1 + D + PROBE_SLACK)
        if probed > link or q_U < E[last] - G[last] or line:
            return MISLED
    right = trace.C_L <= link <= trace.C_U
    if goal.timeouts == 1:
        if not time_out(goal, n, D, S, lower, upper):
            return ILLEGAL
        if right and not lower[last] <= link <= upper[last]:
            return MISLED
        moved = shrinks(last, lower, upper) if right else repaired(link, last, lower, upper)
    falls = spent[last] < spent[1] or E[last] - S[last] < E[1] - S[1] or E[last] - G[last] < E[1] - G[1]
    if goal.transient == 1 and right and most_lost > goal.step_loss and not falls:
        return LARGE_LOSS
    if goal.transient == 2 and right and most_lost > goal.step_loss and spent[last] > spent[1]:
        return LARGE_LOSS
    if moved:
        return SURVIVES
    rises = spent[last] > spent[1] or E[last] - S[last] > E[1] - S[1] or E[last] - G[last] > E[1] - G[1]
    if S[last] - S[0] < goal.utilised and not rises:
        return MISSED
    if most_inflight > goal.inflight and not falls:
        return MISSED
    large = most_lost > goal.step_loss or lossy > goal.lossy_steps or lost_total > goal.loss
    return MISSED if large and not falls else SURVIVES


@kernel(nogil=True)
def replay(trace, goal, shape, candidates, conditions, rates, out) -> int:
    """Run one trace against many candidates and return how many it breaks; arguments as in :func:`simulate`.

    ``candidates`` are (n, 2*shape - 1) int16 rows; ``out`` (n,) int8 is filled with the effect on each.
    """
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
    broken = 0
    for i in range(len(candidates)):
        outcome = simulate(trace, goal, shape, candidates[i], conditions, rates, curves)
        out[i] = outcome
        broken += outcome in (MISSED, LARGE_LOSS, MISLED)
    return broken


@kernel(nogil=True)
def score(traces, goals, shape, candidates, conditions, rates, out) -> None:
    """Run many traces against many candidates; out (n_traces, n_candidates) int8 is filled with the effects."""
    for i in range(len(traces)):
        replay(traces[i], goals[i], shape, candidates, conditions, rates, out[i])
