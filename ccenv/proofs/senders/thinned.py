"""A sender whose application, or a lossy path before the queue, lets only a part of what it decides into the queue.

With a least share of 0 it is limited by its application ([CCmatic] s.8). With 1 - l it has a loss budget of l in each Rm, of
losses that are not congestion and that its beliefs do not take for it: for senders that read neither losses nor C_L_lambda.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.formulas.encode import Needs, SmtSender, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import DecideStep, Decision, Run, number, require_law
from ccenv.proofs.solver.terms import Formula


@dataclass(frozen=True)
class Thinned:
    """A sender of whose bytes at least a share enters the queue, in each step as many as the solver likes."""

    inner: SmtSender
    least: Fraction

    @property
    def name(self) -> str:
        """Name of the sender inside."""
        return self.inner.name

    def needs(self, setting: Setting) -> Needs:
        """Return what the sender inside reads."""
        return self.inner.needs(setting)

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return the bound of the sender inside, of which no more is sent."""
        return self.inner.largest_rate()

    def declare(self, view: View, make: Variables) -> None:
        """Declare what enters beside what was decided."""
        self.inner.declare(view, make)
        view.extra["offered"] = view.sent
        view.sent = [None, *make.series("thinned", view.setting.samples)[1:]]

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield the formulas of the sender inside, and the share."""
        offered = view.extra["offered"]
        yield from self.inner.sends(replace(view, sent=offered))
        for t in range(1, view.setting.samples):
            yield view.sent[t] <= offered[t]
            yield view.sent[t] >= self.least * offered[t]

    def decider(self) -> DecideStep:
        """Return the exact step: what the solver let in, checked against what was decided."""
        inner: DecideStep = self.inner.decider()

        def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
            decision, sent = inner(run, t, state), number(run.values, f"thinned_{t}")
            require_law("a share of what was decided", t, self.least * decision.sent <= sent <= decision.sent, sent)
            return replace(decision, sent=sent)

        return step


def thin(sender: SmtSender, least: Fraction | None) -> SmtSender:
    """Return the sender with a least share of its bytes; None or 1: the sender itself.

    Raises InputError for a share outside [0, 1]: above 1 no trace is legal, so every claim would hold.
    """
    if least is None or least == 1:
        return sender
    if not 0 <= least <= 1:
        raise InputError(f"sent_share is {least}; it must be 0 to 1")
    return Thinned(sender, least)
