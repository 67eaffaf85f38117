"""Senders for the solver: belief programs here, published window-based CCAs in their own files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ccenv.programs import Program
from ccenv.smt.network.encode import Needs, Variables
from ccenv.smt.network.setting import Setting
from ccenv.smt.network.view import View
from ccenv.smt.replay.exact import DecideStep, program_decider
from ccenv.smt.senders import program as programs
from ccenv.smt.senders.loss_detection import needs_oracle
from ccenv.smt.solver.algebra import Formula


@dataclass(frozen=True)
class ProgramSmtSender:
    """A belief program as a sender for the solver."""

    program: Program

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.name

    def needs(self, setting: Setting) -> Needs:
        """Return the bounds and delays that the program reads."""
        needs_oracle(setting, self.name)
        inputs = self.program.inputs()
        bounds: set[str] = {name for name in ("C_L", "C_U", "C_L_lambda") if name in inputs}
        if inputs & {"q_U", "q_U/Rm"}:
            bounds.add("q_U")
        delays = programs.delay_thresholds(self.program, setting.jitter_steps)
        return Needs(frozenset(bounds), frozenset(delays), self.program.probe_window_rtts)

    def declare(self, view: View, make: Variables) -> None:
        """Declare the rate, what is left of a held decision, and what was seen before the trace."""
        n = view.setting.samples
        view.rate = make.series("rate", n)
        view.sent = [None, *view.rate[1:]]
        if programs.longest_hold(self.program) > 1:
            view.extra["held"] = make.series("held", n)
        if "utilised" in self.program.inputs() and view.setting.jitter_steps:
            view.extra["utilised_before"] = [make.boolean("utilised_before")]

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield the program's formulas."""
        return programs.sends(view, self.program)

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return (a, b): the rate is at most a*C + b*MSS/Rm while the beliefs are consistent, or None."""
        return programs.largest_rate(self.program)

    def decider(self) -> DecideStep:
        """Return the program's exact interpreter."""
        return program_decider(self.program)
