"""Window-based senders for the solver: their base class, loss detection, AIMD (Reno without slow start) and DCTCP on marks.

The window in (t-1, t] bounds the bytes sent: sent = min(rate*Rm, max(0, cwnd - inflight)), with inflight as known at t: S(t-Rm),
and losses from an oracle one Rm later, or from duplicate ACKs and a time-out. The solver makes any choice that a CCA leaves open
(Copa between its two bounds), so proofs hold for every implementation within them.

With duplicate ACKs the loss of step x, which follows the bytes that entered by x, is found once 3 MSS sent after it are
delivered: S(t-1) >= E(x) + 3 MSS (RFC 5681 s.3.2, as CCAC states it). The time-out (RFC 6298) finds losses that are RTO_STEPS old
when nothing was delivered in RTO_STEPS. Until found, a lost byte counts as in flight. Deviation: the time-out is three Rm instead
of at least one second, and does not back off; traces are shorter than a second back-off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import DecideStep, Decision, Run, number, require_law
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, choose, implies, larger, negate, same_truth, smaller

DUPACK_MSS = 3
"""Segments past a lost one that must be delivered."""

RTO_STEPS = 3
"""Retransmission time-out in Rm."""


def detects_by_dupacks(setting: Setting) -> bool:
    """Return whether the sender must find losses itself."""
    return setting.loss_detection == "dupacks" and setting.has_loss


def require_oracle(setting: Setting, sender: str) -> None:
    """Raise InputError for a sender without loss detection in a setting without the oracle."""
    if setting.loss_detection != "oracle":
        raise InputError(f"loss detection by dupacks is for window-based senders; {sender!r} is told of losses by the oracle")


def declare(view: View, make: Variables) -> None:
    """Declare the bytes found lost per step, the time-outs, and the bytes lost at sample 0 and not yet found."""
    if detects_by_dupacks(view.setting):
        n = view.setting.samples
        view.extra["found"] = make.series("found", n)
        view.extra["unfound"] = [make.real("unfound_0")]
        view.extra["timed_out"] = [make.boolean(f"timed_out_{t}") for t in range(n)]


def rules(view: View) -> Iterator[Formula]:
    """Yield the formulas of the bytes found lost before each step."""
    if not detects_by_dupacks(view.setting) or view.cwnd is None:
        return
    bytes_found, bytes_unfound, timeouts = view.extra["found"], view.extra["unfound"][0], view.extra["timed_out"]
    yield bytes_found[0] == 0
    yield same_truth(timeouts[0], False)
    yield bytes_unfound >= 0
    yield bytes_unfound <= view.cwnd[0]  # a step sends a window at most
    yield implies(bytes_unfound > 0, view.lost_at_0)
    for t in range(1, view.setting.samples):
        acked = sum((choose(view.S[t - 1] >= view.E[x] + DUPACK_MSS * view.alpha, _lost(view, x), 0) for x in range(t)), start=0)
        old = t - RTO_STEPS
        stalled: Formula = False
        if old >= 1:
            stalled = all_of([view.S[t - 1] == view.S[old - 1], bytes_unfound + view.lost_until(old) > bytes_found[t - 1]])
        yield same_truth(timeouts[t], stalled)
        after_timeout = choose(timeouts[t], bytes_unfound + view.lost_until(max(0, old)), bytes_found[t - 1])
        yield bytes_found[t] == larger(after_timeout, acked)


def _lost(view: View, x: int) -> Term:
    return view.extra["unfound"][0] if x == 0 else view.lost[x]


def loss_found(view: View, t: int) -> Formula:
    """Return whether a loss becomes known to the sender before it decides step t."""
    if not view.setting.has_loss:
        return False
    if detects_by_dupacks(view.setting):
        return view.extra["found"][t] > view.extra["found"][t - 1]
    return view.lost_at_0 if t == 1 else view.lost[t - 1] > 0


def timed_out(view: View, t: int) -> Formula:
    """Return whether a retransmission time-out precedes step t."""
    return view.extra["timed_out"][t] if detects_by_dupacks(view.setting) else False


def inflight_known(view: View, t: int) -> Term:
    """Return the sender's bytes in flight when it decides step t, lost ones included until they are found."""
    if not detects_by_dupacks(view.setting):
        return view.inflight(t - 1)
    unfound = view.extra["unfound"][0] + view.lost_until(t - 1) - view.extra["found"][t]
    return view.inflight(t - 1) + unfound


@dataclass(frozen=True)
class Losses:
    """A sender's knowledge of losses when it decides a step, in exact numbers."""

    found: Fraction  # bytes found lost since sample 0
    new: bool  # whether some were found in this step, `timed_out`: by a time-out
    timed_out: bool
    inflight: Fraction  # bytes that the sender counts as in flight


def exact_losses(run: Run, t: int, found_before: Fraction) -> Losses:
    """Return the knowledge before step t of a replay, independently of the formulas above."""
    gap = run.E[t - 1] - run.S[t - 1]
    if not detects_by_dupacks(run.setting):
        new = run.setting.has_loss and (run.lost_at_0 if t == 1 else run.lost[t - 1] > 0)
        return Losses(found_before, new, False, gap)
    lost: list[Any] = [Fraction(run.values.get("unfound_0", 0)), *run.lost[1:t]]
    bytes_found, by_timeout = found_before, False
    if t > RTO_STEPS and run.S[t - 1] == run.S[t - 1 - RTO_STEPS] and sum(lost[: t - RTO_STEPS + 1]) > bytes_found:
        bytes_found, by_timeout = sum(lost[: t - RTO_STEPS + 1], start=Fraction(0)), True
    acked = [bytes_lost for x, bytes_lost in enumerate(lost) if run.S[t - 1] - run.E[x] >= DUPACK_MSS * run.alpha]
    bytes_found = max(bytes_found, sum(acked, start=Fraction(0)))
    return Losses(bytes_found, bytes_found > found_before, by_timeout, gap + sum(lost) - bytes_found)


class RateSender:
    """Base of rate-based senders: declares the rate, which is what a step sends, and knows no bound of it."""

    def needs(self, setting: Setting) -> Needs:
        return Needs()

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return None: no bound is known."""
        return None

    def declare(self, view: View, make: Variables) -> None:
        view.rate = make.series("rate", view.setting.samples)
        view.sent = [None, *view.rate[1:]]


class WindowSender(RateSender):
    """Base of window-based senders: declares cwnd and rate and states how many bytes a step sends."""

    name = "window"

    def declare(self, view: View, make: Variables) -> None:
        """Declare cwnd, rate and the bytes of each step."""
        n = view.setting.samples
        view.cwnd = make.series("cwnd", n)
        view.rate = make.series("rate", n)
        view.sent = [None, *make.series("sent", n)[1:]]
        declare(view, make)

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield window, rate and bytes of every step."""
        cwnd = window_of(view)
        yield cwnd[0] > 0
        yield view.rate[0] > 0
        yield from rules(view)
        for t in range(1, view.setting.samples):
            yield from self.step(view, t)
            allowed = larger(0, cwnd[t] - inflight_known(view, t))
            yield view.sent[t] == smaller(view.rate[t], allowed)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        raise NotImplementedError

    def decider(self) -> DecideStep:
        """Return the exact step: the solver's window, checked against the CCA's rule, and the resulting bytes."""

        def decide(run: Run, t: int, state: dict[str, Any]) -> Decision:
            if not state:
                state = {"cwnd": number(run.values, "cwnd_0"), "found": Fraction(0)} | self.start(run)
            losses = exact_losses(run, t, state["found"])
            cwnd, rate, after = self.play(run, t, state, losses)
            sent = min(rate, max(Fraction(0), cwnd - losses.inflight))
            return Decision(rate, sent, after | {"cwnd": cwnd, "found": losses.found})

        return decide

    def start(self, run: Run) -> dict[str, Any]:
        """Return the sender's state at sample 0."""
        return {}

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Return (cwnd, rate, state) of step t in exact numbers, checked against the rule."""
        raise NotImplementedError


def window_of(view: View) -> list[Term]:
    """Return the windows of a view; ValueError where the sender has none."""
    if view.cwnd is None:
        raise ValueError("a window-based sender without windows")
    return view.cwnd


def list_delay_classes(view: View, t: int) -> list[tuple[int, Formula]]:
    """Return (d, newest delay lies in [d, d+1)) for all distinguished delays; the last class is unbounded above."""
    flags = view.late[t]
    delays = sorted(flags)
    classes: list[tuple[int, Formula]] = [(0, negate(flags[delays[0]]))]
    for m, following in zip(delays, [*delays[1:], None], strict=True):
        classes.append((m, flags[m] if following is None else all_of([flags[m], negate(flags[following])])))
    return classes


UNPACED = Fraction(100)
"""Rate of a sender that does not pace, in C: far above what a window of a few BDP can use in a step."""


class _ReducesOnce(WindowSender):
    """Cuts its window once per round trip: not again before what was sent until the cut is delivered."""

    def declare(self, view: View, make: Variables) -> None:
        """Declare also the sequence number whose delivery ends a reduction."""
        super().declare(view, make)
        view.extra["recover"] = make.series("recover", view.setting.samples)

    def _is_over(self, view: View, t: int) -> Formula:
        """Return whether no reduction is under way when sample t is decided."""
        return view.extra["recover"][t - 1] <= view.S[t - 1]

    def _reduce(self, view: View, t: int, cuts: Formula) -> Iterator[Formula]:
        """Begin a reduction where the sender cuts; none is under way at sample 0."""
        recover = view.extra["recover"]
        yield recover[t] == choose(cuts, view.E[t - 1], recover[t - 1])
        if t == 1:
            yield recover[0] == view.S[0]

    def start(self, run: Run) -> dict[str, Any]:
        """Not reducing at sample 0."""
        return {"recover": run.S[0]}


@dataclass(frozen=True)
class Aimd(_ReducesOnce):
    """AIMD (Reno without slow start): plus one MSS per Rm, halved once per lossy round, as in CCAC ("increase irrespective")."""

    name: str = "aimd"

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """One MSS after a time-out; halve on a loss that became known unless still recovering; else add one MSS."""
        cwnd, restarts = window_of(view), timed_out(view, t)
        halves = all_of([loss_found(view, t), self._is_over(view, t)])
        yield view.rate[t] == UNPACED
        yield cwnd[t] == choose(restarts, view.alpha, choose(halves, cwnd[t - 1] / 2, cwnd[t - 1] + view.alpha))
        yield from self._reduce(view, t, any_of([restarts, halves]))

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        if losses.timed_out:
            return run.alpha, UNPACED, {"recover": run.E[t - 1]}
        if losses.new and state["recover"] <= run.S[t - 1]:
            return state["cwnd"] / 2, UNPACED, {"recover": run.E[t - 1]}
        return state["cwnd"] + run.alpha, UNPACED, {"recover": state["recover"]}


def echo(view: View, t: int) -> Formula:
    """Return whether a byte delivered in (t-1, t] was marked."""
    if t == 0:
        return view.echo_before
    seen: list[Formula] = []
    for x in range(t, -len(view.marked_before) - 1, -1):
        # The step of the first known marks stands for all before it.
        before = view.enqueued(x - 1) if x > -len(view.marked_before) else None
        later = [] if before is None else [before < view.enqueued(x), before < view.S[t]]
        seen.append(all_of([view.step_marked(x), view.S[t - 1] < view.enqueued(x), *later]))
    return all_of([view.S[t - 1] < view.S[t], any_of(seen)])


@dataclass(frozen=True)
class Dctcp(_ReducesOnce):
    """AIMD on one bit of ECN, as DCTCP: plus one MSS per Rm; once per marked round minus the marked share of two rounds, halved.

    Deviation: DCTCP (RFC 8257) averages the share of marked bytes with a gain of 1/16; here a round is marked or not, and the
    average is that of this round and the one before, so that a cut is a quarter or a half. Losses are ignored.
    """

    threshold: Fraction = Fraction(1, 2)  # queue above which bytes are marked, in C*Rm
    name: str = "dctcp"

    def needs(self, setting: Setting) -> Needs:
        """Read marks."""
        return Needs(marks=True)

    def sends(self, view: View) -> Iterator[Formula]:
        """Add the threshold."""
        if view.mark_above is not None:
            yield view.mark_above == self.threshold
        yield from super().sends(view)

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Cut on marks unless still reducing; else add one MSS."""
        cwnd = window_of(view)
        cuts = all_of([echo(view, t - 1), self._is_over(view, t)])
        again = echo(view, t - 2) if t > 1 else view.echo_before
        yield view.rate[t] == UNPACED
        cut = choose(again, cwnd[t - 1] / 2, cwnd[t - 1] * Fraction(3, 4))
        yield cwnd[t] == choose(cuts, larger(view.alpha, cut), cwnd[t - 1] + view.alpha)
        yield from self._reduce(view, t, cuts)

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute the window."""
        require_law("the threshold is the sender's", t, run.mark_above == self.threshold, run.mark_above)
        if run.echoes[t - 1] and state["recover"] <= run.S[t - 1]:
            factor = Fraction(1, 2) if run.echoes[max(0, t - 2)] else Fraction(3, 4)
            return max(run.alpha, factor * state["cwnd"]), UNPACED, {"recover": run.E[t - 1]}
        return state["cwnd"] + run.alpha, UNPACED, {"recover": state["recover"]}


@dataclass(frozen=True)
class DelayAimd(_ReducesOnce):
    """AIMD on delay ([Starvation] s.6.2): plus one MSS per Rm; halved when the newest byte has waited long, once per round trip.

    Deviation from the agent ``aimd_delay``: a delay is read in whole Rm, and losses are ignored.
    """

    threshold_steps: int = 2  # delay beyond Rm at which the window is halved, in steps; above D
    name: str = "aimd_delay"

    def needs(self, setting: Setting) -> Needs:
        """Read one delay."""
        return Needs(delays=frozenset({self.threshold_steps}))

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Halve on a long delay unless still reducing; else add one MSS."""
        cwnd = window_of(view)
        cuts = all_of([view.late[t - 1][self.threshold_steps], self._is_over(view, t)])
        yield view.rate[t] == UNPACED
        yield cwnd[t] == choose(cuts, larger(view.alpha, cwnd[t - 1] / 2), cwnd[t - 1] + view.alpha)
        yield from self._reduce(view, t, cuts)

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Compute the window."""
        if run.late[t - 1][self.threshold_steps] and state["recover"] <= run.S[t - 1]:
            return max(run.alpha, state["cwnd"] / 2), UNPACED, {"recover": run.E[t - 1]}
        return state["cwnd"] + run.alpha, UNPACED, {"recover": state["recover"]}
