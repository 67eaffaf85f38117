"""AIMD (Reno without slow start): formula and exact step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Variables
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import Run
from ccenv.proofs.senders import loss_detection
from ccenv.proofs.senders.loss_detection import Losses
from ccenv.proofs.senders.window import WindowSender, window_of
from ccenv.proofs.solver.terms import Formula, all_of, any_of, choose

UNPACED = Fraction(100)
"""Rate of a sender that does not pace, in C: far above what a window of a few BDP can use in a step."""


@dataclass(frozen=True)
class Aimd(WindowSender):
    """AIMD (Reno without slow start): plus one MSS per Rm, halved once per round with loss, as in CCAC ("increase irrespective").

    Attributes:
        name: ``aimd``.
    """

    name: str = "aimd"

    def declare(self, view: View, make: Variables) -> None:
        """Declare also the sequence number whose delivery ends a recovery."""
        super().declare(view, make)
        view.extra["recover"] = make.series("recover", view.setting.samples)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """One MSS after a time-out; halve on a loss that became known unless still recovering; else add one MSS."""
        cwnd, recover = window_of(view), view.extra["recover"]
        restarts = loss_detection.timed_out(view, t)
        halves = all_of([loss_detection.loss_found(view, t), recover[t - 1] <= view.S[t - 1]])
        yield view.rate[t] == UNPACED
        yield cwnd[t] == choose(restarts, view.alpha, choose(halves, cwnd[t - 1] / 2, cwnd[t - 1] + view.alpha))
        yield recover[t] == choose(any_of([restarts, halves]), view.E[t - 1], recover[t - 1])
        if t == 1:
            yield recover[0] == view.S[0]

    def start(self, run: Run) -> dict[str, Any]:
        """Not in recovery at sample 0."""
        return {"recover": run.S[0]}

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute the window."""
        if losses.timed_out:
            return run.alpha, UNPACED, {"recover": run.E[t - 1]}
        if losses.new and state["recover"] <= run.S[t - 1]:
            return state["cwnd"] / 2, UNPACED, {"recover": run.E[t - 1]}
        return state["cwnd"] + run.alpha, UNPACED, {"recover": state["recover"]}
