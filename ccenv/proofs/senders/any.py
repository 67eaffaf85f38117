"""An arbitrary sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import DecideStep, Decision, Run, law, number
from ccenv.proofs.solver.terms import Formula


@dataclass(frozen=True)
class AnySender:
    """A sender that may send anything, at least one MSS per Rm (line 7 of Listing 1): for claims about the network alone.

    Its rate is bytes per step.
    """

    name: str = "any"

    def needs(self, setting: Setting) -> Needs:
        """Need nothing."""
        return Needs()

    def declare(self, view: View, make: Variables) -> None:
        """Declare a free rate."""
        view.rate = make.series("rate", view.setting.samples)
        view.sent = [None, *view.rate[1:]]

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield rate >= MSS/Rm."""
        for rate in view.rate:
            yield rate >= (view.alpha if view.setting.plain_grid else view.setting.step * view.alpha)

    def decider(self) -> DecideStep:
        """Return a step that sends what the solver chose, at least one MSS per Rm."""

        def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
            rate = number(run.values, f"rate_{t}")
            law("at least one MSS per Rm", t, rate >= run.alpha * run.setting.step, rate)
            return Decision(rate, rate, {})

        return step

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return None: any rate is possible."""
        return None
