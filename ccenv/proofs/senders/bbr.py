"""A BBR-like sender: formula and exact step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Variables
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import Run, law, number
from ccenv.proofs.senders.loss_detection import Losses
from ccenv.proofs.senders.window import WindowSender, window_of
from ccenv.proofs.solver.terms import Formula, any_of, implies, larger, negate


class Bbr(WindowSender):
    """A BBR-like sender: rate = gain * the largest delivery rate of the last rounds, gains 5/4, 3/4, 1, 1, ..., cwnd 2 BDP + MSS.

    Deviation: the round is Rm; the delivery rates seen before the trace leave the ten-round filter whenever the solver likes, and
    PROBE_RTT is left out (Rm is known). The cycle has eight phases and starts anywhere.
    """

    name = "bbr"
    GAINS = (Fraction(5, 4), Fraction(3, 4), *[Fraction(1)] * 6)

    def declare(self, view: View, make: Variables) -> None:
        """Declare the rates that the filter still holds from before the trace, and the phase at its start."""
        super().declare(view, make)
        view.extra["bw_before"] = make.series("bw_before", view.setting.samples)
        view.extra["phase"] = [make.boolean(f"phase_{k}") for k in range(len(self.GAINS))]

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield also: the old rates only leave the filter, and the cycle starts in exactly one phase."""
        before, phase = view.extra["bw_before"], view.extra["phase"]
        yield before[0] >= view.alpha
        for t in range(1, view.setting.samples):
            yield before[t] <= before[t - 1]
            yield before[t] >= 0
        yield any_of(phase)
        for k, here in enumerate(phase):
            yield from (implies(here, negate(other)) for other in phase[:k])
        yield from super().sends(view)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Pace at gain times the bandwidth estimate known at t - 1."""
        estimate = larger(view.alpha, view.extra["bw_before"][t])
        for x in range(1, t):
            estimate = larger(estimate, view.S[x] - view.S[x - 1])
        phase = view.extra["phase"]
        for k, here in enumerate(phase):
            yield implies(here, view.rate[t] == self.GAINS[(k + t) % len(self.GAINS)] * estimate)
        yield window_of(view)[t] == 2 * estimate + view.alpha

    def start(self, run: Run) -> dict[str, Any]:
        """Return the starting phase."""
        return {"phase": next((k for k in range(len(self.GAINS)) if run.values.get(f"phase_{k}")), 0)}

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute rate and window from the filter."""
        before = number(run.values, f"bw_before_{t}")
        law("rates leave the filter", t, before <= number(run.values, f"bw_before_{t - 1}"), before)
        estimate = max([run.alpha, before, *(run.S[x] - run.S[x - 1] for x in range(1, t))])
        rate = self.GAINS[(state["phase"] + t) % len(self.GAINS)] * estimate
        return 2 * estimate + run.alpha, rate, {"phase": state["phase"]}
