"""Properties as objects that read solver terms and exact traces alike ([CCmatic] s.5.2, s.6.1, App. F).

``FIRST`` is the sample at which objectives start: sample 0 is chosen by the solver, so the first step that the sender decided
ends at sample 1. Units: C = Rm = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, count, implies, negate

FIRST = 1
LOSS_SMALL_MSS = Fraction(3)
"""More than 3 MSS lost in a step is a large loss ([CCmatic] s.6.1)."""


@dataclass(frozen=True)
class Property:
    """A claim about a trace.

    Attributes:
        name: for reports.
        text: the claim in one line.
        holds: whether it holds on a view.
        needs: bounds and delays that it reads.
        premise: what is assumed of the trace; the claim is ``premise => holds``.
        repeated: of a claim about a sender's runs, which this query is a step to: what it says of a trace that ends in the state
            of sample ``FIRST``, and so can be repeated for ever. A trace that violates the query breaks no such claim: its start
            is the solver's choice. None: the claim is about traces from any start, and each that violates it breaks it.
        repeats: the premise says that the trace does so.
    """

    name: str
    text: str
    holds: Callable[[View], Formula]
    needs: Needs = field(default_factory=Needs)
    premise: Callable[[View], Formula] = lambda v: True
    repeated: Callable[[View], Formula] | None = None
    repeats: bool = False

    def violation(self, view: View) -> Formula:
        """Return what a counterexample satisfies besides the encoding."""
        return all_of([self.premise(view), negate(self.holds(view))])


def utilisation(v: View, at_least: Term) -> Formula:
    """S(T-1) - S(0) >= f * C * (T - 1 - D): delivered against what the link could surely deliver, from the settled sample on."""
    first = v.setting.settle_steps
    return v.S[v.last] - v.S[first] >= at_least * (v.last - first - v.setting.jitter_steps)


def used_in_cycle(v: View, at_least: Term) -> Formula:
    """A trace that repeats from sample FIRST on delivers f * C in its time."""
    return v.S[v.last] - v.S[FIRST] >= at_least * (v.last - FIRST)


def inflight(v: View, at_most: Term) -> Formula:
    """Bytes in flight never exceed x * C * (Rm + D)."""
    return all_of(v.inflight(t) <= at_most * (1 + v.setting.jitter_steps) for t in range(FIRST, v.setting.samples))


def queue(v: View, at_most: Term) -> Formula:
    """Bytes waiting for the link never exceed x * C * (Rm + D)."""
    return all_of(v.queue(t) <= at_most * (1 + v.setting.jitter_steps) for t in range(FIRST, v.setting.samples))


def rtt(v: View, at_most_steps: int) -> Formula:
    """The newest byte delivered never waited ``at_most_steps`` whole steps or more beyond Rm (grid reading)."""
    return all_of(negate(v.late[t][at_most_steps]) for t in range(FIRST, v.setting.samples))


def loss_per_step(v: View, at_most_mss: Term = LOSS_SMALL_MSS, plus_bdp: Term = Fraction(0)) -> Formula:
    """No step loses more than x * MSS (plus y * C*Rm)."""
    if not v.setting.has_loss:
        return True
    return all_of(v.lost[t] <= at_most_mss * v.alpha + plus_bdp for t in range(FIRST, v.setting.samples))


def lossy_steps(v: View, at_most: Term) -> Formula:
    """At most so many steps lose bytes."""
    if not v.setting.has_loss:
        return True
    return count([v.lost[t] > 0 for t in range(FIRST, v.setting.samples)]) <= at_most


def loss_amount(v: View, at_most: Term) -> Formula:
    """The trace loses at most x * C*Rm bytes."""
    return True if not v.setting.has_loss else v.lost_until(v.last) <= at_most


def fairness_ratio(first: Term, second: Term, at_most: Term) -> Formula:
    """The second flow gets at most x times what the first one gets; the flows are alike, so one direction says both."""
    return second <= at_most * first


def consistent(v: View, t: int) -> Formula:
    """C_L <= C <= C_U, and C_L_lambda and q_U are true bounds, at a sample."""
    parts: list[Formula] = []
    if v.C_L is not None:
        parts.append(v.C_L[t] <= 1)
    if v.C_U is not None:
        parts.append(v.C_U[t] >= 1)
    if v.C_L_lambda is not None:
        parts.append(v.C_L_lambda[t] <= 1)
    if v.q_U is not None:
        parts.append(v.q_U[t] >= v.queue(t))
    return all_of(parts)


def buffer_line(v: View, t: int, window: int) -> Formula:
    """C*T* + beta >= C_L_lambda*(T* + D) at a sample (6.3), with the grid's extra steps."""
    if v.C_L_lambda is None or v.beta is None:
        return True
    slack = v.setting.jitter_steps + v.setting.beliefs.lambda_extra_steps
    return window + v.beta >= v.C_L_lambda[t] * (window + slack)


def beliefs_shrink(v: View) -> Formula:
    """Some bound became tighter over the trace and none looser."""
    better, worse = [], []
    for series, sign in ((v.C_L, 1), (v.C_U, -1), (v.C_L_lambda, 1)):
        if series is not None:
            better.append(sign * (series[v.last] - series[0]) > 0)
            worse.append(sign * (series[v.last] - series[0]) < 0)
    return all_of([any_of(better), negate(any_of(worse))])


def rises(v: View) -> Formula:
    """Rate, bytes in flight or the queue are higher at the end than at the first decision."""
    return any_of(v_last > v_first for v_first, v_last in _progress(v))


def falls(v: View) -> Formula:
    """Rate, bytes in flight or the queue are lower at the end than at the first decision."""
    return any_of(v_last < v_first for v_first, v_last in _progress(v))


def _progress(v: View) -> list[tuple[Term, Term]]:
    return [
        *((flow.rate[FIRST], flow.rate[v.last]) for flow in v.each),
        (v.inflight(FIRST), v.inflight(v.last)),
        (v.queue(FIRST), v.queue(v.last)),
    ]


@dataclass(frozen=True)
class Objectives:
    """Steady-state objectives with the paper's loose constants ([CCmatic] s.6.1).

    Attributes:
        utilisation: smallest fraction of the link used.
        inflight: largest bytes in flight, in C*(Rm+D).
        large_loss_mss: a step that loses more is a large loss; none may occur. None: losses do not matter.
        loss_every_steps: at most one lossy step in so many.
        no_large_loss_when_probing: also demand no large loss whenever the rate rises (transient objective of G4, G7).
    """

    utilisation: Fraction = Fraction(1, 2)
    inflight: Fraction = Fraction(5)
    large_loss_mss: Fraction | None = LOSS_SMALL_MSS
    loss_every_steps: int = 2
    no_large_loss_when_probing: bool = False

    def met_or_progress(self, v: View) -> Formula:
        """Each objective is met, or excused by progress towards it."""
        parts = [
            any_of([utilisation(v, self.utilisation), rises(v)]),
            any_of([inflight(v, self.inflight), falls(v)]),
        ]
        return all_of([*parts, any_of([self._small_losses(v), falls(v)])])

    def met_in_cycle(self, v: View) -> Formula:
        """A trace that repeats from sample FIRST on, and so makes no progress, meets each objective."""
        return all_of([used_in_cycle(v, self.utilisation), inflight(v, self.inflight), self._small_losses(v)])

    def _small_losses(self, v: View) -> Formula:
        if self.large_loss_mss is None:
            return True
        return all_of([loss_per_step(v, self.large_loss_mss), lossy_steps(v, -(-v.last // self.loss_every_steps))])

    def transient(self, v: View) -> Formula:
        """No large loss while the rate rises, if demanded."""
        if not self.no_large_loss_when_probing or self.large_loss_mss is None:
            return True
        return implies(v.rate[v.last] > v.rate[FIRST], loss_per_step(v, self.large_loss_mss))
