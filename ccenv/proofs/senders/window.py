"""What window-based and other published senders for the solver share; each stands in a file of its own.

The window in (t-1, t] bounds the bytes sent: sent = min(rate*Rm, max(0, cwnd - inflight)), inflight as known at t: S(t-Rm), and
losses as :mod:`ccenv.proofs.senders.loss_detection` says (an oracle one Rm ago, or dupacks and time-outs). A choice that the CCA
leaves open (Copa between its two bounds) is the solver's, so what is proved holds for every implementation within them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import DecideStep, Decision, Run, number
from ccenv.proofs.senders import loss_detection
from ccenv.proofs.senders.loss_detection import Losses, exact_losses
from ccenv.proofs.solver.terms import Formula, Term, all_of, larger, negate, smaller


class WindowSender:
    """Base of window-based senders: declares cwnd and rate and states how many bytes a step sends."""

    name = "window"

    def needs(self, setting: Setting) -> Needs:
        """Need nothing by default."""
        return Needs()

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return None: no bound is known without the window."""
        return None

    def declare(self, view: View, make: Variables) -> None:
        """Declare cwnd, rate and the bytes of each step."""
        n = view.setting.samples
        view.cwnd = make.series("cwnd", n)
        view.rate = make.series("rate", n)
        view.sent = [None, *make.series("sent", n)[1:]]
        loss_detection.declare(view, make)

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield window, rate and bytes of every step."""
        cwnd = window_of(view)
        yield cwnd[0] > 0
        yield view.rate[0] > 0
        yield from loss_detection.rules(view)
        for t in range(1, view.setting.samples):
            yield from self.step(view, t)
            allowed = larger(0, cwnd[t] - loss_detection.inflight_known(view, t))
            yield view.sent[t] == smaller(view.rate[t], allowed)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Yield what cwnd and rate of step t may be."""
        raise NotImplementedError

    def decider(self) -> DecideStep:
        """Return the exact step: the solver's window, checked against the CCA's rule, and the bytes that follow from it."""

        def decide(run: Run, t: int, state: dict[str, Any]) -> Decision:
            if not state:
                state = {"cwnd": number(run.values, "cwnd_0"), "found": Fraction(0)} | self.start(run)
            losses = exact_losses(run, t, state["found"])
            cwnd, rate, after = self.play(run, t, state, losses)
            sent = min(rate, max(Fraction(0), cwnd - losses.inflight))
            return Decision(rate, sent, after | {"cwnd": cwnd, "found": losses.found})

        return decide

    def start(self, run: Run) -> dict[str, Any]:
        """Return the sender's own state at sample 0."""
        return {}

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Return (cwnd, rate, state) of step t in exact numbers, checked against the rule."""
        raise NotImplementedError


def window_of(view: View) -> list[Term]:
    """Return the windows of a view; ValueError where the sender has none."""
    if view.cwnd is None:
        raise ValueError("a window-based sender without windows")
    return view.cwnd


def delay_is(view: View, t: int) -> list[tuple[int, Formula]]:
    """Return (d, newest delay lies in [d, d+1)) for all delays told apart; the last one is open to above."""
    flags = view.late[t]
    known = sorted(flags)
    classes: list[tuple[int, Formula]] = [(0, negate(flags[known[0]]))]
    for m, following in zip(known, [*known[1:], None], strict=True):
        classes.append((m, flags[m] if following is None else all_of([flags[m], negate(flags[following])])))
    return classes
