"""Endless misbehaviour: traces that end in the state in which they begin can be repeated for ever.

The state is all that the future depends on: what is queued, undelivered and in stock, the last samples of the past, delays and
losses that were not yet seen, the last rate, and the beliefs. A lasso is one trace, or several that join end to end, each with
belief windows and time-outs of its own, that return to their state and are worse than a claim. It refutes the claim: the run that
repeats it starts as the theorem allows, obeys every law, and is worse in every repetition.
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
"""Variables that all traces of a lasso have in common."""


@dataclass(frozen=True)
class Lasso:
    """The question for traces that join end to end, return to their state and are worse than a claim.

    Attributes:
        name: for reports.
        query: of one trace: network, sender, and what is encoded.
        encoding: of one trace.
        views: one per trace, in terms of its own variables.
        formulas: everything that is asserted.
        worse: tells from the views whether they are worse.
    """

    name: str
    query: Query
    encoding: Encoding
    views: tuple[View, ...]
    formulas: tuple[Formula, ...]
    claim: ReadClaim
    loaded: LoadedTheorem

    def text(self) -> str:
        """Return the question as SMT-LIB."""
        return to_smtlib([formula for formula in self.formulas if formula is not True])

    def confirm(self, answer: Answer) -> list[View]:
        """Replay what a solver found in exact numbers, trace by trace, and check that it returns and is worse.

        Raises:
            ReplayError: if the replay disagrees with the solver, or the traces do not join, return, or are not worse.
        """
        bounds = frozenset(name for name in BOUNDS if getattr(self.encoding.view, name) is not None)
        needs = self.query.sender.needs(self.query.setting) | self.query.claim.needs
        views = []
        for number in range(len(self.views)):
            own = Answer(answer.status, 0.0, answer.solver, "", own_values(answer.model, number))
            values = complete_values(self.encoding, own)
            views.append(replay(self.query.setting, values, bounds, needs.probe_window, self.query.sender.decider()))
        told = all_of([*_joined(views), negate(_good(self.claim, self.loaded, views))])
        if told is not True or self.query.claim.premise(views[0]) is not True:
            raise ReplayError(f"{self.name}: the replayed traces do not return to their state, or are not worse")
        return views


def lasso(loaded: LoadedTheorem, claim: ReadClaim, periods: int = 1) -> Lasso:
    """Return the question for a lasso of so many traces, from a start that the theorem allows.

    What the traces owe or save by the claim's potential is nothing, since they end as they begin.

    Raises:
        InputError: for another number of traces.
    """
    if not 1 <= periods <= MOST_PERIODS:
        raise InputError(f"a lasso of {periods} traces; it must be 1 to {MOST_PERIODS}")
    wanted = good(claim, loaded)
    allowed = Joined("all", (loaded.start, loaded.invariant, claim.when))
    needs = loaded.sender.needs(loaded.setting) | Needs(beliefs_in(wanted) | beliefs_in(allowed))
    text = f"no traces that return to their state are worse than {claim.name} {claim.bound}"
    name = f"lasso {claim.name}" + (f", {periods} traces" if periods > 1 else "")
    premise = Property(name, text, lambda v: True, needs, lambda v: on_trace(allowed, v))
    query = Query(name, loaded.setting, loaded.sender, premise)
    encoding = query.encoding()
    copies = [Copy(encoding, number) for number in range(periods)]
    views = tuple(copy.of(encoding.view) for copy in copies)
    formulas = [copy.of(formula) for copy in copies for formula in encoding.formulas()]
    formulas += [premise.premise(views[0]), *_joined(views), negate(_good(claim, loaded, views))]
    return Lasso(name, query, encoding, views, tuple(formulas), claim, loaded)


def joins(end: View, start: View) -> Iterator[Formula]:
    """Yield what it means that a trace begins in the state in which another one ends."""
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


def _joined(views: tuple[View, ...] | list[View]) -> Iterator[Formula]:
    """Yield what it means that each trace begins where the one before ends, and the first one where the last one ends."""
    for end, start in pairwise([*views, views[0]]):
        yield from joins(end, start)


def _good(claim: ReadClaim, loaded: LoadedTheorem, views: tuple[View, ...] | list[View]) -> Formula:
    """Return whether traces that return to their state keep a claim."""
    rtts = loaded.setting.rtts * len(views)
    if claim.name == "utilisation":
        return _sum(views, "served") >= claim.bound * rtts
    if claim.name == "loss_per_rtt":
        return _sum(views, "lost") <= claim.bound * rtts
    return all_of(on_trace(good(claim, loaded), v) for v in views)


def _sum(views: tuple[View, ...] | list[View], name: str) -> Term:
    return sum((feature(v, name, 0) for v in views[1:]), start=feature(views[0], name, 0))


class Copy:
    """Names a trace's variables anew, those aside that all traces share; the first trace keeps its names."""

    def __init__(self, encoding: Encoding, number: int) -> None:
        import z3

        self._pairs = []
        for name, term in encoding.variables.all.items():
            if number and name not in SHARED:
                new = z3.Bool(_name(name, number)) if z3.is_bool(term) else z3.Real(_name(name, number))
                self._pairs.append((term, new))

    def of(self, value: Any) -> Any:
        """Return a term, or whatever holds terms, in the copy's variables."""
        import z3

        if isinstance(value, View):
            return replace(value, **{field.name: self.of(getattr(value, field.name)) for field in fields(value)})
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, dict):
            return {key: self.of(item) for key, item in value.items()}
        return z3.substitute(value, *self._pairs) if self._pairs and isinstance(value, z3.ExprRef) else value


def _name(name: str, number: int) -> str:
    return f"trace{number}_{name}" if number else name


def own_values(model: Mapping[str, Any], number: int) -> dict[str, Fraction | bool]:
    """Return the values of one trace's variables under their plain names."""
    prefix = _name("", number)
    own = {name.removeprefix(prefix): value for name, value in model.items() if name.startswith(prefix)}
    return own | {name: model[name] for name in SHARED if name in model}
