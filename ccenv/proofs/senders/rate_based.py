"""Published senders, each as formula and exact step: Algorithm 1, BBR-like, constant, Copa, and an arbitrary sender."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import DecideStep, Decision, Run, number, require_law
from ccenv.proofs.senders import window
from ccenv.proofs.senders.window import Losses, RateSender, WindowSender, list_delay_classes, window_of
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, choose, implies, larger, negate


@dataclass(frozen=True)
class RateDelay(RateSender):
    """Algorithm 1 of [Starvation] s.6.3: rate up by a below mu_minus * s^((Rmax - (d - Rm))/D), else multiplied by b.

    Delays are read off the grid, so (Rmax - (d - Rm))/D is an integer and the map is linear in mu_minus; a is one MSS per Rm.
    The sender has no window and does not react to losses. Delays above Rmax count as Rmax + D.
    """

    s: Fraction = Fraction(2)  # largest unfairness aimed at, > 1
    rmax_steps: int = 4  # Rmax in Rm
    factor: Fraction = Fraction(1, 2)  # b, in (0, 1)
    name: str = "rate_delay"

    def needs(self, setting: Setting) -> Needs:
        return Needs(delays=frozenset(range(1, self.rmax_steps + 2)))

    def declare(self, view: View, make: Variables) -> None:
        super().declare(view, make)
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
        """Return the exact step; it stores mu_minus, which premises read."""

        def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
            mu_minus, before = number(run.values, "mu_minus"), run.rate[t - 1]
            require_law("mu_minus is a rate", t, mu_minus > 0, mu_minus)
            run.extra["mu_minus"] = [mu_minus]
            room = self.rmax_steps - run.delay(t - 1)
            rate = before + run.alpha if before < mu_minus * self.s**room else self.factor * before
            return Decision(rate, rate, {})

        return step


FILTER_ROUNDS = 10
"""Rounds of BBR's filter of delivery rates."""


class Bbr(WindowSender):
    """A BBR-like sender: rate = gain * the largest delivery rate of the last rounds, gains 5/4, 3/4, 1, 1, ..., cwnd 2 BDP + MSS.

    Deviation: the round is Rm; the delivery rates seen before the trace leave the ten-round filter whenever the solver likes, and
    PROBE_RTT is left out. The cycle has eight phases and starts anywhere. Rm is known; an estimated one (``estimated_rm``), the
    least RTT seen, lies anywhere in [Rm, Rm + D] in each round, and so the window between 2 BDP of both.
    """

    name = "bbr"
    estimated_rm = False
    GAINS = (Fraction(5, 4), Fraction(3, 4), *[Fraction(1)] * 6)

    def declare(self, view: View, make: Variables) -> None:
        """Declare the filter's rates from before the trace, and the phase at its start."""
        super().declare(view, make)
        view.extra["bw_before"] = make.series("bw_before", view.setting.samples)
        view.extra["phase"] = [make.boolean(f"phase_{k}") for k in range(len(self.GAINS))]

    def sends(self, view: View) -> Iterator[Formula]:
        """Add that old rates only leave the filter, and that the cycle starts in exactly one phase."""
        before, phase = view.extra["bw_before"], view.extra["phase"]
        yield before[0] >= view.alpha
        for t in range(1, view.setting.samples):
            yield before[t] <= before[t - 1]
            yield before[t] >= 0
        yield any_of(phase)
        for k, in_phase in enumerate(phase):
            yield from (implies(in_phase, negate(other)) for other in phase[:k])
        yield from super().sends(view)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Pace at gain times the bandwidth estimate known at t - 1."""
        estimate = larger(view.alpha, view.extra["bw_before"][t])
        for x in range(1, t):
            estimate = larger(estimate, view.S[x] - view.S[x - 1])
        phase = view.extra["phase"]
        for k, in_phase in enumerate(phase):
            yield implies(in_phase, view.rate[t] == self.GAINS[(k + t) % len(self.GAINS)] * estimate)
        least, most = self._windows(view, estimate)
        yield from (
            [window_of(view)[t] >= least, window_of(view)[t] <= most] if self.estimated_rm else [window_of(view)[t] == least]
        )

    def _windows(self, of: View | Run, estimate: Term) -> tuple[Term, Term]:
        """Return the least and the largest window that an estimate of the bandwidth allows."""
        return 2 * estimate + of.alpha, 2 * (1 + of.setting.jitter) * estimate + of.alpha

    def start(self, run: Run) -> dict[str, Any]:
        return {"phase": next((k for k in range(len(self.GAINS)) if run.values.get(f"phase_{k}")), 0)}

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        before = number(run.values, f"bw_before_{t}")
        require_law("rates leave the filter", t, before <= number(run.values, f"bw_before_{t - 1}"), before)
        estimate = max([run.alpha, before, *(run.S[x] - run.S[x - 1] for x in range(1, t))])
        rate = self.GAINS[(state["phase"] + t) % len(self.GAINS)] * estimate
        least, most = self._windows(run, estimate)
        cwnd = number(run.values, f"cwnd_{t}") if self.estimated_rm else least
        require_law("the window is 2 BDP by an RTT seen", t, least <= cwnd <= most, cwnd)
        return cwnd, rate, {"phase": state["phase"]}


class BbrPacedUp(Bbr):
    """The same with twice the pacing rate, so that the window limits it ([Starvation] s.6.1, after the CCAC paper)."""

    name = "bbr_paced_up"
    GAINS = tuple(2 * gain for gain in Bbr.GAINS)


class BbrEstimatedRm(Bbr):
    """A BBR-like sender that takes the least RTT seen for Rm."""

    name, estimated_rm = "bbr_estimated_rm", True


class BbrPacedUpEstimatedRm(BbrPacedUp):
    """The same with twice the pacing rate."""

    name, estimated_rm = "bbr_paced_up_estimated_rm", True


class Constant(WindowSender):
    """A constant rate, at least one MSS per Rm, without a window."""

    name = "constant"

    def step(self, view: View, t: int) -> Iterator[Formula]:
        yield view.rate[t] == view.rate[t - 1]
        yield view.rate[t] >= view.alpha
        yield window_of(view)[t] == window.inflight_known(view, t) + view.rate[t]

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        return losses.inflight + run.rate[0], run.rate[0], {}


class Copa(WindowSender):
    """Copa as published in CCAC: each Rm cwnd changes by one MSS, in a direction that the delays of the last Rm + D bound.

    cwnd may rise if cwnd*max(0, d-1) <= MSS*(Rm + max(0, d-1)) for the delay d now, and fall if cwnd*d >= MSS*(Rm + d) for the
    delay d one D ago: the standing queue is some value in between. Paced at cwnd/Rm.
    """

    name = "copa"

    def needs(self, setting: Setting) -> Needs:
        """Return all delays up to the trace length."""
        return Needs(delays=frozenset(range(1, setting.samples + 1)))

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Yield one MSS up or down; free while the delays of sample t - 1 - D are unknown."""
        cwnd = window_of(view)
        yield view.rate[t] == cwnd[t]
        yield cwnd[t] > 0
        if t < 2:
            return
        rises = any_of(
            all_of([in_class, cwnd[t - 1] * max(0, d - 1) <= view.alpha * (1 + max(0, d - 1))])
            for d, in_class in list_delay_classes(view, t - 1)
        )
        falls = any_of(
            all_of([in_class, cwnd[t - 1] * d >= view.alpha * (1 + d)]) for d, in_class in list_delay_classes(view, t - 2)
        )
        up = cwnd[t] == cwnd[t - 1] + view.alpha
        down = cwnd[t] == larger(view.alpha, cwnd[t - 1] - view.alpha)
        yield any_of([all_of([rises, up]), all_of([falls, down])])

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Check that the solver's window is one MSS away in a direction that the delays allow."""
        cwnd, before = number(run.values, f"cwnd_{t}"), state["cwnd"]
        if t >= 2:
            now, earlier = (run.delay(x) for x in (t - 1, t - 2))
            rises = before * max(0, now - 1) <= run.alpha * (1 + max(0, now - 1))
            falls = before * earlier >= run.alpha * (1 + earlier)
            legal = (rises and cwnd == before + run.alpha) or (falls and cwnd == max(run.alpha, before - run.alpha))
            require_law("Copa moves by one MSS as its delays allow", t, legal, cwnd)
        return cwnd, cwnd, {}


@dataclass(frozen=True)
class AnySender(RateSender):
    """A sender that may send anything, at least one MSS per Rm (line 7 of Listing 1): for claims about the network alone.

    Its rate is bytes per step.
    """

    name: str = "any"

    def sends(self, view: View) -> Iterator[Formula]:
        for rate in view.rate:
            yield rate >= (view.alpha if view.setting.plain_grid else view.setting.step * view.alpha)

    def decider(self) -> DecideStep:
        """Return a step that sends what the solver chose, at least one MSS per Rm."""

        def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
            rate = number(run.values, f"rate_{t}")
            require_law("at least one MSS per Rm", t, rate >= run.alpha * run.setting.step, rate)
            return Decision(rate, rate, {})

        return step
