"""Traces that join end to end, each with its own belief windows and time-outs: lassos, and runs of several belief periods.

A lasso returns to its initial state (queued and undelivered bytes, tokens in stock, the last samples of the past, delays and
losses not yet seen, the last rate, the beliefs) and violates a claim, so the run that repeats it refutes the claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.claims.claims import starts_consistent
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, complete_values
from ccenv.proofs.formulas.encode import BOUNDS, Encoding, Needs, SmtSender, encode
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, Setting, named_setting
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
    """The query for traces that join end to end, return to their state and violate a claim."""

    name: str
    query: Query  # of one trace, with its `encoding`
    encoding: Encoding
    views: tuple[View, ...]  # one per trace, in its own variables
    formulas: tuple[Formula, ...]
    claim: ReadClaim
    loaded: LoadedTheorem

    def text(self) -> str:
        return to_smtlib([formula for formula in self.formulas if formula is not True])

    def confirm(self, answer: Answer) -> list[View]:
        """Replay a solver's traces in exact numbers and check that they return and violate the claim.

        Raises ReplayError if the replay disagrees with the solver, or the traces do not join, return or violate the claim.
        """
        needs = self.query.sender.needs(self.query.setting) | self.query.claim.needs
        views = _replay_traces([self.encoding] * len(self.views), answer, needs, self.query.sender)
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
    copies = [_Copy(encoding, number) for number in range(periods)]
    views = tuple(copy.of(encoding.view) for copy in copies)
    formulas = [copy.of(formula) for copy in copies for formula in encoding.formulas()]
    formulas += [premise.premise(views[0]), *_join_cyclically(views), negate(_claim_kept(claim, loaded, views))]
    return Lasso(name, query, encoding, views, tuple(formulas), claim, loaded)


def _replay_traces(encodings: Sequence[Encoding], answer: Answer, needs: Needs, sender: SmtSender) -> list[View]:
    views = []
    for number, encoding in enumerate(encodings):
        values = complete_values(encoding, replace(answer, model=_select_trace_values(answer.model, number)))
        bounds = frozenset(name for name in BOUNDS if getattr(encoding.view, name) is not None)
        views.append(replay(encoding.setting, values, bounds, needs.probe_window, sender.decider()))
    return views


def _joins(end: View, start: View) -> Iterator[Formula]:
    """Yield "a trace begins in the state in which another one ends"."""
    last, setting = end.last, end.setting
    gain = end.S[last]
    for k in range(min(len(end.E_before), last) + 1):
        yield end.enqueued(last - k) - gain == start.enqueued(-k)
    for k in range(setting.past_steps + 1):
        yield end.admitted(last - k) - gain == start.admitted(-k)
        yield end.delivered(last - k) - gain == start.delivered(-k)
        for now, then in ((end.newest_late(last - k), start.newest_late(-k)), (end.oldest_late(last - k), start.oldest_late(-k))):
            yield from (same_truth(now[m], then[m]) for m in now)
    if setting.has_loss:
        yield from (same_truth(start.lost_in_past(k), end.lost[last - k] > 0) for k in setting.losses_before)
    yield end.rate[last] == start.rate[0]
    for name in (*BOUNDS, "held"):
        before, after = (v.extra.get(name) if name == "held" else getattr(v, name) for v in (end, start))
        if before is not None and after is not None:
            yield before[last] == after[0]


def _join_cyclically(views: Sequence[View]) -> Iterator[Formula]:
    """Yield "each trace begins where the previous one ends, and the first one where the last one ends"."""
    for end, start in pairwise([*views, views[0]]):
        yield from _joins(end, start)


def _claim_kept(claim: ReadClaim, loaded: LoadedTheorem, views: Sequence[View]) -> Formula:
    """Return whether traces that return to their state satisfy a claim."""
    rtts = loaded.setting.rtts * len(views)
    if claim.name == "utilisation":
        return _sum_feature(views, "served") >= claim.bound * rtts
    if claim.name == "loss_per_rtt":
        return _sum_feature(views, "lost") <= claim.bound * rtts
    return all_of(on_trace(good(claim, loaded), v) for v in views)


def _sum_feature(views: Sequence[View], name: str) -> Term:
    return sum((feature(v, name, 0) for v in views[1:]), start=feature(views[0], name, 0))


class _Copy:
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


def _select_trace_values(model: Mapping[str, Any], number: int) -> dict[str, Fraction | bool]:
    """Return the values of one trace's variables under their original names."""
    prefix = _variable_name("", number)
    values = {name.removeprefix(prefix): value for name, value in model.items() if name.startswith(prefix)}
    return values | {name: model[name] for name in SHARED if name in model}


PERIOD_RTTS = 10
MOST_RTTS = 80
SHORTEST_RTTS = 2  # of a trace
CUMULATIVE = ("G", "E", "S")
SERIES = ("sent", "lost", "rate", "loss_seen", "late", "first_late", *BOUNDS)


@dataclass(frozen=True)
class Periods:
    """A run from any state that the laws of one sample allow, in solver variables."""

    sender: SmtSender
    needs: Needs  # of the encodings, one per trace
    encodings: tuple[Encoding, ...]
    views: tuple[View, ...]  # one per trace, in its own variables
    formulas: tuple[Formula, ...]  # laws, beliefs, the sender, true beliefs at the start of each trace, and that traces join

    @property
    def first(self) -> View:
        return self.views[0]

    def at(self, rtt: int) -> tuple[View, int]:
        """Return the trace of a sample and its index there; the end of a period belongs to it, after the time-out."""
        index = _trace_index(rtt)
        return self.views[index], rtt - index * PERIOD_RTTS

    def delivered(self, begin: int, end: int) -> Term:
        """Return the bytes delivered between two samples."""
        return self._delivered_by(end) - self._delivered_by(begin)

    def _delivered_by(self, rtt: int) -> Term:
        view, t = self.at(rtt)
        return sum((one.S[one.last] for one in self.views[: _trace_index(rtt)]), start=view.S[t])

    def text(self, *more: Formula) -> str:
        """Return the SMT-LIB text of the run and further formulas."""
        return to_smtlib([formula for formula in (*self.formulas, *more) if formula is not True])

    def replayed(self, answer: Answer) -> Periods:
        """Replay a solver's traces in exact numbers. Raises ReplayError if they disagree with the replay or do not join."""
        views = _replay_traces(self.encodings, answer, self.needs, self.sender)
        if all_of(formula for end, start in pairwise(views) for formula in _joins(end, start)) is not True:
            raise ReplayError(f"{self.sender.name}: the replayed traces do not join")
        return replace(self, views=tuple(views))

    def as_one(self) -> View:
        """Return a replayed run as one trace without time-outs: the network's moves, sample by sample."""
        first = self.views[0]
        joined: dict[str, Any] = {name: list(getattr(first, name)) for name in (*CUMULATIVE, *SERIES) if getattr(first, name)}
        gain = Fraction(first.S[first.last])
        for view in self.views[1:]:
            for name in joined:
                more = getattr(view, name)[1:]
                joined[name] += [value + gain for value in more] if name in CUMULATIVE else more
            gain += view.S[view.last]
        setting = first.setting
        beliefs = replace(setting.beliefs, timeout=None)
        return replace(first, setting=replace(setting, samples=len(joined["S"]), beliefs=beliefs), **joined)


def _trace_index(rtt: int) -> int:
    """Return the index of a sample's trace; where two join, of the former."""
    return max(0, rtt - 1) // PERIOD_RTTS


def periods(base: Setting, sender: SmtSender, needs: Needs, rtts: int) -> Periods:
    """Encode a run of so many Rm that begins with a period.

    Raises InputError for another length, or a sender that reads C_L_lambda or q_U: their time-outs have no encoding.

    Args:
        base: model, buffer and belief rules; its T and time-outs are not used.
        sender: of the run.
        needs: besides the sender's: C_L and C_U, whose time-outs are encoded.
        rtts: 1 to MOST_RTTS.
    """
    if not 1 <= rtts <= MOST_RTTS:
        raise InputError(f"a run of {rtts} Rm; it must be 1 to {MOST_RTTS}")
    largest = sender.largest_rate()
    encodings = []
    for begin in range(0, rtts, PERIOD_RTTS):
        length = max(SHORTEST_RTTS, min(PERIOD_RTTS, rtts - begin))
        timeout = TIMEOUT_PRESETS["artefact"] if length == PERIOD_RTTS else None
        setting = replace(base, samples=length + 1, beliefs=replace(base.beliefs, timeout=timeout))
        setting = named_setting("sound" if largest is None else "history", setting, largest)
        required = needs | sender.needs(setting)
        if others := required.bounds - {"C_L", "C_U"}:
            raise InputError(f"{sender.name} reads {', '.join(sorted(others))}, whose time-outs are not encoded")
        encodings.append(encode(setting, sender, required))
    copies = [_Copy(encoding, number) for number, encoding in enumerate(encodings)]
    views = tuple(copy.of(encoding.view) for copy, encoding in zip(copies, encodings, strict=True))
    formulas: list[Formula] = []
    for copy, encoding in zip(copies, encodings, strict=True):
        formulas += [copy.of(formula) for formula in (*encoding.formulas(), starts_consistent(encoding.view))]
    for end, start in pairwise(views):
        formulas += _joins(end, start)
    return Periods(sender, required, tuple(encodings), views, tuple(formulas))
