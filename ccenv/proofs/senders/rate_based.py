"""Algorithm 1 of [Starvation] s.6.3: formula and exact step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import DecideStep, Decision, Run, law, number
from ccenv.proofs.solver.terms import Formula, Term, choose


@dataclass(frozen=True)
class RateDelay:
    """Algorithm 1 of [Starvation] s.6.3: rate up by a below mu_minus * s^((Rmax - (d - Rm))/D), else multiplied by b.

    Delays are read off the grid, so (Rmax - (d - Rm))/D is a whole number and the map is linear in mu_minus; a is one MSS per Rm.
    The sender has no window and does not react to losses. Delays above Rmax count as Rmax + D.

    Attributes:
        s: largest unfairness aimed at, > 1.
        rmax_steps: Rmax in Rm.
        factor: b, in (0, 1).
        name: for reports.
    """

    s: Fraction = Fraction(2)
    rmax_steps: int = 4
    factor: Fraction = Fraction(1, 2)
    name: str = "rate_delay"

    def needs(self, setting: Setting) -> Needs:
        """Return the delays that the map tells apart."""
        return Needs(delays=frozenset(range(1, self.rmax_steps + 2)))

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return None: mu_minus is not bounded."""
        return None

    def declare(self, view: View, make: Variables) -> None:
        """Declare rate and mu_minus."""
        view.rate = make.series("rate", view.setting.samples)
        view.sent = [None, *view.rate[1:]]
        view.extra["mu_minus"] = [make.real("mu_minus")]

    def sends(self, view: View) -> Iterator[Formula]:
        """Compare the rate with the map at the newest delay."""
        mu_minus = view.extra["mu_minus"][0]
        yield mu_minus > 0
        yield view.rate[0] > 0
        for t in range(1, view.setting.samples):
            before = view.rate[t - 1]
            target: Term = mu_minus * self.s**self.rmax_steps
            for steps, late in sorted(view.late[t - 1].items()):
                target = choose(late, mu_minus * self.s ** (self.rmax_steps - steps), target)
            yield view.rate[t] == choose(before < target, before + view.alpha, self.factor * before)

    def decider(self) -> DecideStep:
        """Return the exact step; it notes mu_minus, which premises read."""

        def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
            mu_minus, before = number(run.values, "mu_minus"), run.rate[t - 1]
            law("mu_minus is a rate", t, mu_minus > 0, mu_minus)
            run.extra["mu_minus"] = [mu_minus]
            room = self.rmax_steps - run.delay(t - 1)
            rate = before + run.alpha if before < mu_minus * self.s**room else self.factor * before
            return Decision(rate, rate, {})

        return step
