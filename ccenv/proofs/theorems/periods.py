"""Runs of several belief periods: traces of 10 Rm that join end to end, each with its own windows and time-outs.

The engine's beliefs time out every 10 Rm from a flow's start, and their windows do not reach back further. So a run of the engine
is a sequence of such traces, and a property of all sequences of a length holds of every run of that length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.claims.claims import starts_consistent
from ccenv.proofs.claims.verifier import complete_values
from ccenv.proofs.formulas.encode import BOUNDS, Encoding, Needs, SmtSender, encode
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, Setting, named_setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError, replay
from ccenv.proofs.solver.solvers import Answer, to_smtlib
from ccenv.proofs.solver.terms import Formula, Term, all_of
from ccenv.proofs.theorems.lasso import Copy, joins, select_trace_values

PERIOD_RTTS = 10
MOST_RTTS = 80
SHORTEST_RTTS = 2  # of a trace
CUMULATIVE = ("G", "E", "S")
SERIES = ("sent", "lost", "rate", "loss_seen", "late", "first_late", *BOUNDS)


@dataclass(frozen=True)
class Periods:
    """A run from any state that the laws of one sample allow, in solver variables.

    Attributes:
        needs: of the encodings, one per trace.
        views: one per trace, in its own variables.
        formulas: laws, beliefs, the sender, true beliefs at the start of each trace, and that traces join.
    """

    sender: SmtSender
    needs: Needs
    encodings: tuple[Encoding, ...]
    views: tuple[View, ...]
    formulas: tuple[Formula, ...]

    @property
    def first(self) -> View:
        """The view of the run's start."""
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
        views = []
        for number, encoding in enumerate(self.encodings):
            trace_answer = Answer(answer.status, 0.0, answer.solver, "", select_trace_values(answer.model, number))
            values = complete_values(encoding, trace_answer)
            bounds = frozenset(name for name in BOUNDS if getattr(encoding.view, name) is not None)
            views.append(replay(encoding.setting, values, bounds, self.needs.probe_window, self.sender.decider()))
        if all_of(formula for end, start in pairwise(views) for formula in joins(end, start)) is not True:
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

    Args:
        base: model, buffer and belief rules; its T and time-outs are not used.
        sender: of the run.
        needs: besides the sender's: C_L and C_U, whose time-outs are encoded.
        rtts: 1 to MOST_RTTS.

    Raises:
        InputError: for another length, or a sender that reads C_L_lambda or q_U: their time-outs have no encoding.
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
    copies = [Copy(encoding, number) for number, encoding in enumerate(encodings)]
    views = tuple(copy.of(encoding.view) for copy, encoding in zip(copies, encodings, strict=True))
    formulas: list[Formula] = []
    for copy, encoding in zip(copies, encodings, strict=True):
        formulas += [copy.of(formula) for formula in (*encoding.formulas(), starts_consistent(encoding.view))]
    for end, start in pairwise(views):
        formulas += joins(end, start)
    return Periods(sender, required, tuple(encodings), views, tuple(formulas))
