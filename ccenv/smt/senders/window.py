"""Window-based and other published senders for the solver, as CCAC and [Starvation] state them.

The window in (t-1, t] bounds the bytes sent: sent = min(rate*Rm, max(0, cwnd - inflight)), inflight as known at t: S(t-Rm), and
losses as :mod:`ccenv.smt.senders.loss_detection` says (an oracle one Rm ago, or dupacks and time-outs). A choice that the CCA
leaves open (Copa between its two bounds) is the solver's, so what is proved holds for every implementation within them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.smt.network.encode import Needs, Variables
from ccenv.smt.network.setting import Setting
from ccenv.smt.network.view import View
from ccenv.smt.replay.exact import DecideStep, Decision, law, number
from ccenv.smt.senders import loss_detection
from ccenv.smt.senders.loss_detection import Losses, exact_losses
from ccenv.smt.solver.algebra import Formula, Term, all_of, any_of, choose, implies, larger, negate, smaller

UNPACED = Fraction(100)
"""Rate of a sender that does not pace, in C: far above what a window of a few BDP can use in a step."""


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
        cwnd = _window(view)
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

        def decide(run: Any, t: int, state: dict[str, Any]) -> Decision:
            if not state:
                state = {"cwnd": number(run.values, "cwnd_0"), "found": Fraction(0)} | self.start(run)
            losses = exact_losses(run, t, state["found"])
            cwnd, rate, after = self.play(run, t, state, losses)
            sent = min(rate, max(Fraction(0), cwnd - losses.inflight))
            return Decision(rate, sent, after | {"cwnd": cwnd, "found": losses.found})

        return decide

    def start(self, run: Any) -> dict[str, Any]:
        """Return the sender's own state at sample 0."""
        return {}

    def play(self, run: Any, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Return (cwnd, rate, state) of step t in exact numbers, checked against the rule."""
        raise NotImplementedError


class Copa(WindowSender):
    """Copa as published in CCAC: each Rm cwnd changes by one MSS; the delays of the last Rm + D bound which way.

    cwnd may rise if cwnd*max(0, d-1) <= MSS*(Rm + max(0, d-1)) for the delay d now, and fall if cwnd*d >= MSS*(Rm + d) for the
    delay d one D ago: the standing queue is some value in between. Paced at cwnd/Rm.
    """

    name = "copa"

    def needs(self, setting: Setting) -> Needs:
        """Return all delays up to the trace length."""
        return Needs(delays=frozenset(range(1, setting.samples + 1)))

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Yield one MSS up or down; free while the delays of sample t - 1 - D are unknown."""
        cwnd = _window(view)
        yield view.rate[t] == cwnd[t]
        yield cwnd[t] > 0
        if t < 2:
            return
        rises = any_of(
            all_of([here, cwnd[t - 1] * max(0, d - 1) <= view.alpha * (1 + max(0, d - 1))]) for d, here in _delay_is(view, t - 1)
        )
        falls = any_of(all_of([here, cwnd[t - 1] * d >= view.alpha * (1 + d)]) for d, here in _delay_is(view, t - 2))
        up = cwnd[t] == cwnd[t - 1] + view.alpha
        down = cwnd[t] == larger(view.alpha, cwnd[t - 1] - view.alpha)
        yield any_of([all_of([rises, up]), all_of([falls, down])])

    def play(self, run: Any, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Check that the solver's window is one MSS away in a direction that the delays allow."""
        cwnd, before = number(run.values, f"cwnd_{t}"), state["cwnd"]
        if t >= 2:
            now, earlier = (max([m for m, flag in run.late[x].items() if flag], default=0) for x in (t - 1, t - 2))
            rises = before * max(0, now - 1) <= run.alpha * (1 + max(0, now - 1))
            falls = before * earlier >= run.alpha * (1 + earlier)
            legal = (rises and cwnd == before + run.alpha) or (falls and cwnd == max(run.alpha, before - run.alpha))
            law("Copa moves by one MSS as its delays allow", t, legal, cwnd)
        return cwnd, cwnd, {}


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
        cwnd, recover = _window(view), view.extra["recover"]
        restarts = loss_detection.timed_out(view, t)
        halves = all_of([loss_detection.loss_found(view, t), recover[t - 1] <= view.S[t - 1]])
        yield view.rate[t] == UNPACED
        yield cwnd[t] == choose(restarts, view.alpha, choose(halves, cwnd[t - 1] / 2, cwnd[t - 1] + view.alpha))
        yield recover[t] == choose(any_of([restarts, halves]), view.E[t - 1], recover[t - 1])
        if t == 1:
            yield recover[0] == view.S[0]

    def start(self, run: Any) -> dict[str, Any]:
        """Not in recovery at sample 0."""
        return {"recover": run.S[0]}

    def play(self, run: Any, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute the window."""
        if losses.timed_out:
            return run.alpha, UNPACED, {"recover": run.E[t - 1]}
        if losses.new and state["recover"] <= run.S[t - 1]:
            return state["cwnd"] / 2, UNPACED, {"recover": run.E[t - 1]}
        return state["cwnd"] + run.alpha, UNPACED, {"recover": state["recover"]}


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
        yield _window(view)[t] == 2 * estimate + view.alpha

    def start(self, run: Any) -> dict[str, Any]:
        """Return the starting phase."""
        return {"phase": next((k for k in range(len(self.GAINS)) if run.values.get(f"phase_{k}")), 0)}

    def play(self, run: Any, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute rate and window from the filter."""
        before = number(run.values, f"bw_before_{t}")
        law("rates leave the filter", t, before <= number(run.values, f"bw_before_{t - 1}"), before)
        estimate = max([run.alpha, before, *(run.S[x] - run.S[x - 1] for x in range(1, t))])
        rate = self.GAINS[(state["phase"] + t) % len(self.GAINS)] * estimate
        return 2 * estimate + run.alpha, rate, {"phase": state["phase"]}


class Constant(WindowSender):
    """A constant rate, at least one MSS per Rm, without a window."""

    name = "constant"

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Keep the rate."""
        yield view.rate[t] == view.rate[t - 1]
        yield view.rate[t] >= view.alpha
        yield _window(view)[t] == loss_detection.inflight_known(view, t) + view.rate[t]

    def play(self, run: Any, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Keep the rate of sample 0."""
        return losses.inflight + run.rate[0], run.rate[0], {}


@dataclass(frozen=True)
class RateDelay(WindowSender):
    """Algorithm 1 of [Starvation] s.6.3: rate up by a below mu_minus * s^((Rmax - (d - Rm))/D), else multiplied by b.

    Delays are read off the grid, so (Rmax - (d - Rm))/D is a whole number and the map is linear in mu_minus.

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

    def declare(self, view: View, make: Variables) -> None:
        """Declare mu_minus too."""
        super().declare(view, make)
        view.extra["mu_minus"] = [make.real("mu_minus")]

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield also mu_minus > 0."""
        yield view.extra["mu_minus"][0] > 0
        yield from super().sends(view)

    def target(self, delay: int, mu_minus: Term) -> Term:
        """Return the rate of the map at a delay of so many steps."""
        return mu_minus * self.s ** (self.rmax_steps - delay)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Compare the rate with the map at the newest delay; a is one MSS per Rm."""
        mu, before = view.extra["mu_minus"][0], view.rate[t - 1]
        for delay, here in _delay_is(view, t - 1):
            moved = choose(before < self.target(delay, mu), before + view.alpha, self.factor * before)
            yield implies(here, view.rate[t] == moved)
        yield _window(view)[t] == larger(0, loss_detection.inflight_known(view, t)) + view.rate[t]

    def play(self, run: Any, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute the rate."""
        delay = max([m for m, flag in run.late[t - 1].items() if flag], default=0)
        mu, before = number(run.values, "mu_minus"), run.rate[t - 1]
        rate = before + run.alpha if before < self.target(delay, mu) else self.factor * before
        return max(Fraction(0), losses.inflight) + rate, rate, {}


FACTORIES: dict[str, Callable[[], WindowSender]] = {
    "copa": Copa,
    "aimd": Aimd,
    "reno": lambda: Aimd("reno"),
    "bbr": Bbr,
    "constant": Constant,
    "rate_delay": RateDelay,
}


def _window(view: View) -> list[Term]:
    if view.cwnd is None:
        raise ValueError("a window-based sender without windows")
    return view.cwnd


def _delay_is(view: View, t: int) -> list[tuple[int, Formula]]:
    """Return (d, newest delay lies in [d, d+1)) for all delays told apart; the last one is open to above."""
    flags = view.late[t]
    known = sorted(flags)
    classes: list[tuple[int, Formula]] = [(0, negate(flags[known[0]]))]
    for m, following in zip(known, [*known[1:], None], strict=True):
        classes.append((m, flags[m] if following is None else all_of([flags[m], negate(flags[following])])))
    return classes
