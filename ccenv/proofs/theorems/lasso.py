"""Lassos: traces that return to their initial state and violate a claim, so that repeating them refutes it.

The state is all that the future depends on: queued and undelivered bytes, tokens in stock, the last samples of the past, delays
and losses not yet seen, the last rate, and the beliefs. A lasso is one trace, or several that join end to end, each with its own
belief windows and time-outs. The run that repeats it starts as the theorem allows, obeys every law, and violates the claim in
every repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, complete_values
from ccenv.proofs.formulas.encode import BOUNDS, Encoding, Needs
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError, replay
from ccenv.proofs.solver.solvers import Answer, to_smtlib
from ccenv.proofs.solver.terms import Formula, Term, all_of, negate, same_truth
from ccenv.proofs.theorems.compose import good
from ccenv.proofs.theorems.language import Joined, beliefs_in, feature, on_trace
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadClaim

MOST_PERIODS = 4
SHARED = ("alpha", "beta")
"""Variables shared by all traces of a lasso."""


@dataclass(frozen=True)
class Lasso:
    """The query for traces that join end to end, return to their state and violate a claim.

    Attributes:
        query: of one trace, with its ``encoding``.
        views: one per trace, in its own variables.
        formulas: all assertions.
    """

    name: str
    query: Query
    encoding: Encoding
    views: tuple[View, ...]
    formulas: tuple[Formula, ...]
    claim: ReadClaim
    loaded: LoadedTheorem

    def text(self) -> str:
        """Return the SMT-LIB text."""
        return to_smtlib([formula for formula in self.formulas if formula is not True])

    def confirm(self, answer: Answer) -> list[View]:
        """Replay a solver's traces in exact numbers and check that they return and violate the claim.

        Raises ReplayError if the replay disagrees with the solver, or the traces do not join, return or violate the claim.
        """
        bounds = frozenset(name for name in BOUNDS if getattr(self.encoding.view, name) is not None)
        needs = self.query.sender.needs(self.query.setting) | self.query.claim.needs
        views = []
        for number in range(len(self.views)):
            trace_answer = Answer(answer.status, 0.0, answer.solver, "", select_trace_values(answer.model, number))
            values = complete_values(self.encoding, trace_answer)
            views.append(replay(self.query.setting, values, bounds, needs.probe_window, self.query.sender.decider()))
        confirmed = all_of([*_join_cyclically(views), negate(_claim_kept(self.claim, self.loaded, views))])
        if confirmed is not True or self.query.claim.premise(views[0]) is not True:
            raise ReplayError(f"{self.name}: the replayed traces do not return to their state, or are not worse")
        return views


def lasso(loaded: LoadedTheorem, claim: ReadClaim, periods: int = 1) -> Lasso:
    """Return the query for a lasso of 1 to MOST_PERIODS traces, from a start that the theorem allows.

    The claim's potential does not matter, since the traces end as they begin. Raises InputError for another number of traces.
    """
    if not 1 <= periods <= MOST_PERIODS:
        raise InputError(f"a lasso of {periods} traces; it must be 1 to {MOST_PERIODS}")
    kept = good(claim, loaded)
    allowed = Joined("all", (loaded.start, loaded.invariant, claim.when))
    needs = loaded.sender.needs(loaded.setting) | Needs(beliefs_in(kept) | beliefs_in(allowed))
    text = f"no traces that return to their state are worse than {claim.name} {claim.bound}"
    name = f"lasso {claim.name}" + (f", {periods} traces" if periods > 1 else "")
    premise = Property(name, text, lambda v: True, needs, lambda v: on_trace(allowed, v))
    query = Query(name, loaded.setting, loaded.sender, premise)
    encoding = query.encoding()
    copies = [Copy(encoding, number) for number in range(periods)]
    views = tuple(copy.of(encoding.view) for copy in copies)
    formulas = [copy.of(formula) for copy in copies for formula in encoding.formulas()]
    formulas += [premise.premise(views[0]), *_join_cyclically(views), negate(_claim_kept(claim, loaded, views))]
    return Lasso(name, query, encoding, views, tuple(formulas), claim, loaded)


def joins(end: View, start: View) -> Iterator[Formula]:
    """Yield "a trace begins in the state in which another one ends"."""
    last, setting = end.last, end.setting
    gain = end.S[last]
    for k in range(min(len(end.E_before), last) + 1):
        yield end.enqueued(last - k) - gain == start.enqueued(-k)
    for k in range(setting.past_steps + 1):
        yield end.admitted(last - k) - gain == start.admitted(-k)
        yield end.delivered(last - k) - gain == start.delivered(-k)
        for now, then in (
            (end.newest_late(last - k), start.newest_late(-k)),
            (end.oldest_late(last - k), start.oldest_late(-k)),
        ):
            yield from (same_truth(now[m], then[m]) for m in now)
    if setting.has_loss:
        yield from (same_truth(start.lost_in_past(k), end.lost[last - k] > 0) for k in setting.losses_before)
    yield end.rate[last] == start.rate[0]
    for name in (*BOUNDS, "held"):
        before, after = (v.extra.get(name) if name == "held" else getattr(v, name) for v in (end, start))
        if before is not None and after is not None:
            yield before[last] == after[0]


def _join_cyclically(views: tuple[View, ...] | list[View]) -> Iterator[Formula]:
    """Yield "each trace begins where the previous one ends, and the first one where the last one ends"."""
    for end, start in pairwise([*views, views[0]]):
        yield from joins(end, start)


def _claim_kept(claim: ReadClaim, loaded: LoadedTheorem, views: tuple[View, ...] | list[View]) -> Formula:
    """Return whether traces that return to their state satisfy a claim."""
    rtts = loaded.setting.rtts * len(views)
    if claim.name == "utilisation":
        return _sum_feature(views, "served") >= claim.bound * rtts
    if claim.name == "loss_per_rtt":
        return _sum_feature(views, "lost") <= claim.bound * rtts
    return all_of(on_trace(good(claim, loaded), v) for v in views)


def _sum_feature(views: tuple[View, ...] | list[View], name: str) -> Term:
    return sum((feature(v, name, 0) for v in views[1:]), start=feature(views[0], name, 0))


class Copy:
    """Renames a trace's variables, except those that all traces share; the first trace keeps its names."""

    def __init__(self, encoding: Encoding, number: int) -> None:
        import z3

        self._pairs = []
        for name, term in encoding.variables.all.items():
            if number and name not in SHARED:
                new = z3.Bool(_variable_name(name, number)) if z3.is_bool(term) else z3.Real(_variable_name(name, number))
                self._pairs.append((term, new))

    def of(self, value: Any) -> Any:
        """Return a term, or a container of terms, in the copy's variables."""
        import z3

        if isinstance(value, View):
            return replace(value, **{field.name: self.of(getattr(value, field.name)) for field in fields(value)})
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, dict):
            return {key: self.of(item) for key, item in value.items()}
        return z3.substitute(value, *self._pairs) if self._pairs and isinstance(value, z3.ExprRef) else value


def _variable_name(name: str, number: int) -> str:
    return f"trace{number}_{name}" if number else name


def select_trace_values(model: Mapping[str, Any], number: int) -> dict[str, Fraction | bool]:
    """Return the values of one trace's variables under their original names."""
    prefix = _variable_name("", number)
    values = {name.removeprefix(prefix): value for name, value in model.items() if name.startswith(prefix)}
    return values | {name: model[name] for name in SHARED if name in model}
