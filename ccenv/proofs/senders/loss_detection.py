"""How window-based senders find losses: an oracle one Rm later, or duplicate ACKs and a retransmission time-out.

With duplicate ACKs the loss of step x, which follows what entered the buffer by x, is found once 3 MSS sent after it are
delivered: S(t-1) >= E(x) + 3 MSS (RFC 5681 s.3.2, as CCAC states it). The time-out (RFC 6298) finds losses that are RTO_STEPS old
when nothing was delivered in RTO_STEPS. Until it is found a lost byte counts as in flight.

Deviation: the time-out is three Rm, not one second at least, and does not back off; traces are shorter than a second back-off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ccenv.base.errors import InputError
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, choose, implies, larger, same_truth

if TYPE_CHECKING:
    from ccenv.proofs.formulas.encode import Variables
    from ccenv.proofs.replay.run import Run

DUPACK_MSS = 3
"""Segments past a lost one that must be delivered."""

RTO_STEPS = 3
"""Retransmission time-out in Rm."""


def by_dupacks(setting: Setting) -> bool:
    """Return whether losses must be found by the sender."""
    return setting.loss_detection == "dupacks" and setting.has_loss


def needs_oracle(setting: Setting, sender: str) -> None:
    """Raise InputError where a sender that is told of losses is asked to find them."""
    if setting.loss_detection != "oracle":
        raise InputError(f"loss detection by dupacks is for window-based senders; {sender!r} is told of losses by the oracle")


def declare(view: View, make: Variables) -> None:
    """Declare the bytes found lost per step, the time-outs, and what was lost at sample 0 and not yet found."""
    if by_dupacks(view.setting):
        n = view.setting.samples
        view.extra["found"] = make.series("found", n)
        view.extra["unfound"] = [make.real("unfound_0")]
        view.extra["timed_out"] = [make.boolean(f"timed_out_{t}") for t in range(n)]


def rules(view: View) -> Iterator[Formula]:
    """Yield what is found lost when step t is decided."""
    if not by_dupacks(view.setting) or view.cwnd is None:
        return
    found, unfound, late = view.extra["found"], view.extra["unfound"][0], view.extra["timed_out"]
    yield found[0] == 0
    yield same_truth(late[0], False)
    yield unfound >= 0
    yield unfound <= view.cwnd[0]  # a step sends a window at most
    yield implies(unfound > 0, view.lost_at_0)
    for t in range(1, view.setting.samples):
        acked = sum((choose(view.S[t - 1] >= view.E[x] + DUPACK_MSS * view.alpha, _lost(view, x), 0) for x in range(t)), start=0)
        old = t - RTO_STEPS
        stalled: Formula = False
        if old >= 1:
            stalled = all_of([view.S[t - 1] == view.S[old - 1], unfound + view.lost_until(old) > found[t - 1]])
        yield same_truth(late[t], stalled)
        told = choose(late[t], unfound + view.lost_until(max(0, old)), found[t - 1])
        yield found[t] == larger(told, acked)


def _lost(view: View, x: int) -> Term:
    return view.extra["unfound"][0] if x == 0 else view.lost[x]


def loss_found(view: View, t: int) -> Formula:
    """Return whether a loss becomes known to the sender before it decides step t."""
    if not view.setting.has_loss:
        return False
    if by_dupacks(view.setting):
        return view.extra["found"][t] > view.extra["found"][t - 1]
    return view.lost_at_0 if t == 1 else view.lost[t - 1] > 0


def timed_out(view: View, t: int) -> Formula:
    """Return whether a retransmission time-out precedes step t."""
    return view.extra["timed_out"][t] if by_dupacks(view.setting) else False


def inflight_known(view: View, t: int) -> Term:
    """Return the bytes that the sender takes to be in flight when it decides step t: lost ones until they are found."""
    if not by_dupacks(view.setting):
        return view.inflight(t - 1)
    unfound = view.extra["unfound"][0] + view.lost_until(t - 1) - view.extra["found"][t]
    return view.inflight(t - 1) + unfound


@dataclass(frozen=True)
class Losses:
    """What the sender knows of losses when it decides a step, in exact numbers.

    Attributes:
        found: bytes found lost so far, since sample 0.
        new: whether some were found in this step.
        timed_out: whether by a time-out.
        inflight: bytes taken to be in flight.
    """

    found: Fraction
    new: bool
    timed_out: bool
    inflight: Fraction


def exact_losses(run: Run, t: int, found_before: Fraction) -> Losses:
    """Return what is known before step t of a replay, independently of the formulas above."""
    gap = run.E[t - 1] - run.S[t - 1]
    if not by_dupacks(run.setting):
        new = run.setting.has_loss and (run.lost_at_0 if t == 1 else run.lost[t - 1] > 0)
        return Losses(found_before, new, False, gap)
    lost: list[Any] = [Fraction(run.values.get("unfound_0", 0)), *run.lost[1:t]]
    found, out = found_before, False
    if t > RTO_STEPS and run.S[t - 1] == run.S[t - 1 - RTO_STEPS] and sum(lost[: t - RTO_STEPS + 1]) > found:
        found, out = sum(lost[: t - RTO_STEPS + 1], start=Fraction(0)), True
    acked = [bytes_lost for x, bytes_lost in enumerate(lost) if run.S[t - 1] - run.E[x] >= DUPACK_MSS * run.alpha]
    found = max(found, sum(acked, start=Fraction(0)))
    return Losses(found, found > found_before, out, gap + sum(lost) - found)
