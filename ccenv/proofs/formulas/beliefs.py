"""Belief bounds as formulas ([CCmatic] s.5.1, s.6.2.1, App. B), computed from the sender's observations, never from C or beta.

A maximum over windows is encoded by one-sided bounds and one disjunction ("some window attains it"), which solvers decide faster
than nested if-then-else.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ccenv.proofs.formulas.setting import TimeoutRule
from ccenv.proofs.formulas.view import View, require_variables
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, choose, implies, larger, negate, smaller


def delivered_windows(v: View, t: int) -> Iterator[tuple[int, Term]]:
    """Yield (window length, bytes delivered in it) for the windows (t1, t] inside the trace."""
    for start in range(t):
        yield t - start, v.S[t] - v.S[start]


def lower_window_rates(v: View, t: int) -> list[tuple[Formula, Term]]:
    """Return (whether the window counts, lower bound on C) for the windows that end at t: delivered / (length + D) (5.2).

    The tighter rules add sent / length, in windows that begin with a lossy step and end with the newest step whose losses are
    known.
    """
    k, d = v.setting.steps_per_rtt, v.setting.jitter_steps
    rates: list[tuple[Formula, Term]] = [
        (True, delivered * Fraction(k, length + d)) for length, delivered in delivered_windows(v, t)
    ]
    if v.setting.beliefs.tighter and v.setting.has_loss:
        end = t - k
        rates += [(v.step_lost(a), (v.E[end] - v.E[a]) * Fraction(k, end - a)) for a in range(end)]
    return rates


def upper_window_rates(v: View, t: int) -> list[tuple[Formula, Term]]:
    """Return (whether the window counts, delivered / (length - D)) for windows longer than D that end at t (5.2)."""
    k, d = v.setting.steps_per_rtt, v.setting.jitter_steps
    rates = []
    for length, delivered in delivered_windows(v, t):
        if length > d:
            rates.append((_window_utilised(v, t - length, t), delivered * Fraction(k, length - d)))
    if v.setting.beliefs.tighter:
        rates += _upper_rates_of_sent(v, t)
    return rates


def _upper_rates_of_sent(v: View, t: int) -> Iterator[tuple[Formula, Term]]:
    """Yield (whether it counts, upper bound on C) from bytes sent: windows (x, t - D], and those that end with a loss."""
    k, end = v.setting.steps_per_rtt, t - v.setting.jitter_steps
    loss_end = t - max(v.setting.jitter_steps, k)
    for x in range(end):
        if x > 0:
            yield _window_utilised(v, x, t), sent_windows(v, t)[x]
    if not v.setting.has_loss:
        return
    for x in range(loss_end):
        used = all_of(v.step_utilised(y) for y in range(x + 1, loss_end + 1))
        yield all_of([v.step_lost(loss_end), used]), (v.E[loss_end] - v.E[x]) * Fraction(k, loss_end - x)


def sent_windows(v: View, t: int) -> list[Term]:
    """Return V(x) of docs/engine.md for x = 0 to t - D - 1: an upper bound on C if the steps of (x, t - D] were used."""
    return v.extra[f"sent_windows_{t}"]


def windows_of_sent(v: View) -> Iterator[Formula]:
    """V(x) = min(s(x), max(e(x), V(x-1))): a token was wasted in step x, and E(x) <= G(x), or none since the window before."""
    k, d = v.setting.steps_per_rtt, v.setting.jitter_steps
    for t in range(d + 1, v.setting.samples):
        windows = sent_windows(v, t)
        for x in range(t - d):
            rate = Fraction(k, t - d - x)
            delivered = (v.S[t] - v.S[x]) * rate
            if x:
                yield windows[x] == smaller(delivered, larger((v.S[t] - v.E[x]) * rate, windows[x - 1]))
            else:
                yield windows[x] == delivered


def step_shows_use(v: View, t: int) -> Formula:
    """Return the paper's sign of a used link in (t-1, t]: qdel_L > 0 at t, or a loss (s.5.1.1).

    With jitter the loss that became known at t happened in step t-1, which the extra step of the window covers. Without jitter
    windows have no extra step, so only a loss of the step itself counts.
    """
    d = v.setting.jitter_steps
    lost = v.loss_seen[t] if d or not v.setting.has_loss else v.lost[t] > 0
    return any_of([v.late[t][d + 1], lost])


def _window_utilised(v: View, start: int, end: int) -> Formula:
    if v.setting.beliefs.upper == "paper":
        return all_of(step_shows_use(v, t) for t in range(start + 1, end + 1))
    return all_of(v.step_utilised(x) for x in range(start + 1, end - v.setting.jitter_steps + 1))


def sent_window_rates(v: View, t: int, window: int) -> list[tuple[Formula, Term]]:
    """Return (whether it counts, lower bound on C) for the sending windows of length T* known at t (6.2).

    A window (end - T*, end] counts if all of it is delivered by t and since its start neither a delay of the first byte above
    the measurable jitter nor a loss was seen. ``lambda_delay`` says whether a delay lasts while nothing is delivered.
    """
    slack = v.setting.jitter_steps + v.setting.beliefs.lambda_extra_steps
    rates = []
    for end in range(window, t + 1):
        start = end - window
        sent = sum((v.sent[x] for x in range(start + 1, end + 1)), start=0)
        calm = [negate(any_of([_shows_delay(v, x, slack + 1), v.loss_seen[x]])) for x in range(start + 1, t + 1)]
        rates.append((all_of([v.E[end] <= v.S[t], *calm]), sent * Fraction(v.setting.steps_per_rtt, window + slack)))
    return rates


def _shows_delay(v: View, t: int, steps: int) -> Formula:
    late = v.first_late[t][steps]
    return late if v.setting.beliefs.lambda_delay == "kept" else all_of([late, v.S[t] > v.S[t - 1]])


def lower_bound(v: View) -> Iterator[Formula]:
    """C_L(t) = max of C_L(t-1) and the windows that end at t; a time-out may replace it at the last sample."""
    lower = require_variables(v.C_L, "C_L")
    for t in range(1, v.setting.samples):
        grown = _before_timeout(v, t, "C_L")
        yield from _equals_maximum(grown, [(True, lower[t - 1]), *lower_window_rates(v, t)])


def upper_bound(v: View) -> Iterator[Formula]:
    """C_U(t) = min of C_U(t-1) and the utilised windows that end at t; a time-out may raise it at the last sample."""
    upper = require_variables(v.C_U, "C_U")
    for t in range(1, v.setting.samples):
        fallen = _before_timeout(v, t, "C_U")
        yield from _equals_minimum(fallen, [(True, upper[t - 1]), *upper_window_rates(v, t)])


def timeout(v: View) -> Iterator[Formula]:
    """Bounds that look stale at the last sample are recomputed (s.5.1.2)."""
    rule = v.setting.beliefs.timeout
    if rule is None:
        return
    lower, upper = require_variables(v.C_L, "C_L"), require_variables(v.C_U, "C_U")
    old_lower, old_upper = v.extra["C_L_kept"][0], v.extra["C_U_kept"][0]
    recomputed = v.extra["C_L_recomputed"][0]
    windows = [rate for t in range(1, v.setting.samples) for rate in lower_window_rates(v, t)]
    yield from _equals_maximum(recomputed, windows)
    lower_times_out, upper_times_out = timeouts(rule, lower[0], upper[0], old_lower, old_upper)
    last = v.last
    yield lower[last] == choose(lower_times_out, recomputed, old_lower)
    risen = larger(lower[last], rule.rise_factor * upper[last - 1])
    yield upper[last] == choose(upper_times_out, risen, old_upper)


def timeouts(rule: TimeoutRule, first_lower: Term, first_upper: Term, lower: Term, upper: Term) -> tuple[Formula, Formula]:
    """Return whether C_L and whether C_U time out."""
    tight = upper <= rule.close_factor * lower
    empty = upper < lower
    lower_moved = lower > first_lower
    upper_moved = upper < first_upper
    lower_moved_far = lower > rule.moved_factor * first_lower
    upper_moved_far = upper * rule.moved_factor < first_upper
    lower_times_out = all_of([tight, negate(lower_moved), any_of([all_of([upper_moved, empty]), negate(upper_moved_far)])])
    upper_times_out = all_of([tight, negate(upper_moved), any_of([all_of([lower_moved, empty]), negate(lower_moved_far)])])
    return lower_times_out, upper_times_out


def sent_lower_bound(v: View, window: int) -> Iterator[Formula]:
    """C_L_lambda(t) = max of C_L_lambda(t-1) and the sending windows known at t (6.2)."""
    bound = require_variables(v.C_L_lambda, "C_L_lambda")
    for t in range(1, v.setting.samples):
        yield from _equals_maximum(bound[t], [(True, bound[t - 1]), *sent_window_rates(v, t, window)])


def queue_bound(v: View) -> Iterator[Formula]:
    """q_U(t) = max(0, q_U(t-1) + sent - C_L_lambda(t) dt), at most what is in flight (s.6.2.1)."""
    queue, rate = require_variables(v.q_U, "q_U"), require_variables(v.C_L_lambda, "C_L_lambda")
    for t in range(1, v.setting.samples):
        drained = larger(0, queue[t - 1] + v.sent[t] - (rate[t] if v.setting.plain_grid else v.setting.step * rate[t]))
        yield queue[t] == smaller(inflight_seen(v, t), drained)


def inflight_seen(v: View, t: int) -> Term:
    """Return A - Ld - S, where Ld are the losses known to the sender: those of the last Rm are not."""
    unseen = v.lost[t] if t > 0 and v.setting.has_loss else 0
    return v.inflight(t) + unseen


def initial_bounds(v: View) -> Iterator[Formula]:
    """The bounds at sample 0 are valid: at least MSS/Rm, and not empty."""
    if v.C_L is not None:
        yield v.C_L[0] >= v.alpha
        if v.C_U is not None:
            yield v.C_L[0] <= v.C_U[0]
    if v.C_L_lambda is not None:
        yield v.C_L_lambda[0] >= v.alpha
    if v.q_U is not None:
        yield v.q_U[0] >= 0


def constant_bounds(v: View, window: int) -> Iterator[Formula]:
    """Yield "no bound moves inside the trace" (one scalar per bound), where it holds equivalent to the full rules."""
    for t in range(1, v.setting.samples):
        if v.C_L is not None:
            for counts, rate in lower_window_rates(v, t):
                yield implies(counts, rate <= v.C_L[0])
        if v.C_U is not None:
            for counts, rate in upper_window_rates(v, t):
                yield implies(counts, rate >= v.C_U[0])
        if v.C_L_lambda is not None:
            for counts, rate in sent_window_rates(v, t, window):
                yield implies(counts, rate <= v.C_L_lambda[0])


def _before_timeout(v: View, t: int, name: str) -> Term:
    """Return the variable of a bound before a time-out, which differs at the last sample under a time-out rule."""
    if t == v.last and v.setting.beliefs.timeout is not None:
        return v.extra[f"{name}_kept"][0]
    return getattr(v, name)[t]


def _equals_maximum(value: Term, parts: list[tuple[Formula, Term]]) -> Iterator[Formula]:
    for counts, part in parts:
        yield implies(counts, value >= part)
    yield any_of(all_of([counts, value == part]) for counts, part in parts)


def _equals_minimum(value: Term, parts: list[tuple[Formula, Term]]) -> Iterator[Formula]:
    for counts, part in parts:
        yield implies(counts, value <= part)
    yield any_of(all_of([counts, value == part]) for counts, part in parts)
