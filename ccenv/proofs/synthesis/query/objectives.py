"""Objectives of a query (invariant (5.3)) over solver terms and exact traces alike ([CCmatic] s.5.2, s.6.1), and time-outs.

Units: C = Rm = 1. An objective counts as missed only if the sender makes no progress towards it from sample 1 to the last one:
utilisation is excused if rate, bytes in flight or the queue rise, the others if one of them falls.

Time-outs in the simulator ([CCmatic] s.5.1.2, exact integers) act at the last sample alone, so they change no decision of a
trace, only its final beliefs. On a trace on which no bound moves they loosen bounds or leave them, so refutations remain valid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError
from ccenv.base.foreign import parse_fraction
from ccenv.base.kernels.decorator import kernel
from ccenv.proofs.claims import properties
from ccenv.proofs.formulas.setting import Setting, TimeoutRule
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, implies
from ccenv.proofs.synthesis.query.classes import ANY_LOSS, GOAL, LINK

_WRONG_SHARE = 0.4
"""Share of traces whose beliefs start wrong, for queries with that half of (5.3)."""


def note_rule(goal: np.ndarray, rule: TimeoutRule | None) -> None:
    """Write a time-out rule into a GOAL record, as fractions."""
    goal["timeouts"] = rule is not None
    if rule is None:
        return
    for name, factor in (("close", rule.close_factor), ("rise", rule.rise_factor), ("far", rule.moved_factor)):
        goal[name] = (factor.numerator, factor.denominator)


@kernel
def time_out(goal, n: int, D: int, S, lower, upper) -> bool:  # type: ignore[no-untyped-def]
    """Apply the time-outs of a GOAL record to the last of the (n,) bounds C_L and C_U, in place.

    ``S`` are the (n,) bytes delivered, ``D`` is the jitter in steps. False if a bound would not be an integer.
    """
    last = n - 1
    old_lower, old_upper, before = lower[last], upper[last], upper[last - 1]
    if goal.close[1] * old_upper > goal.close[0] * old_lower:
        return True
    empty = old_upper < old_lower
    lower_moved, upper_moved = old_lower > lower[0], old_upper < upper[0]
    lower_far = goal.far[1] * old_lower > goal.far[0] * lower[0]
    upper_far = goal.far[0] * old_upper < goal.far[1] * upper[0]
    if not lower_moved and ((upper_moved and empty) or not upper_far):
        best, reach = 0, 1
        for t in range(1, n):
            for s in range(t):
                if (S[t] - S[s]) * reach > best * (t - s + D):
                    best, reach = S[t] - S[s], t - s + D
        if best % reach != 0:
            return False
        lower[last] = best // reach
    if not upper_moved and ((lower_moved and empty) or not lower_far):
        risen = goal.rise[0] * before
        if risen % goal.rise[1] != 0:
            return False
        upper[last] = max(lower[last], risen // goal.rise[1])
    return True


@kernel
def shrinks(last: int, lower, upper) -> bool:  # type: ignore[no-untyped-def]
    """Return whether some bound is tighter at the end than at the start and none is looser."""
    if lower[last] < lower[0] or upper[last] > upper[0]:
        return False
    better: bool = lower[last] > lower[0] or upper[last] < upper[0]
    return better


@kernel
def repaired(link: int, last: int, lower, upper) -> bool:  # type: ignore[no-untyped-def]
    """Return whether bounds that started wrong are right at the end, or have moved towards the truth (F.2)."""
    if lower[last] <= link <= upper[last]:
        return True
    falls = lower[last] <= lower[0] and upper[last] <= upper[0] and (lower[last] < lower[0] or upper[last] < upper[0])
    rises = lower[last] >= lower[0] and upper[last] >= upper[0] and (lower[last] > lower[0] or upper[last] > upper[0])
    moved: bool = (lower[0] <= link or falls) and (upper[0] >= link or rises)
    return moved


def mislead(traces: np.ndarray, rng: np.random.Generator) -> None:
    """Make the beliefs of some of (n,) TRACE records start wrong, in place: C_L above C, or C_U below it."""
    count = len(traces)
    draw = rng.random(count)
    spread = rng.choice([1, 1, 2, 3, 10], count)
    high = LINK * rng.choice([9, 10, 12, 16, 24, 32, 80], count) // 8
    low = np.maximum(traces["alpha"], LINK * rng.choice([1, 2, 4, 6, 7], count) // 8)
    above, below = draw < _WRONG_SHARE / 2, draw > 1 - _WRONG_SHARE / 2
    traces["C_L"] = np.where(above, high, np.where(below, np.maximum(traces["alpha"], low // spread // 4 * 4), traces["C_L"]))
    traces["C_U"] = np.where(above, high * spread, np.where(below, low, traces["C_U"]))
    traces["C_U"] = np.maximum(traces["C_U"], traces["C_L"])


@dataclass(frozen=True)
class Amount:
    """An amount of bytes: ``bdp`` times C*(Rm + D), plus ``rtt`` times C*Rm, plus ``mss`` times MSS."""

    bdp: Fraction = Fraction(0)
    rtt: Fraction = Fraction(0)
    mss: Fraction = Fraction(0)

    def of(self, jitter_steps: int, alpha: Term) -> Term:
        """Return the amount in C*Rm for an MSS of ``alpha``."""
        return self.bdp * (1 + jitter_steps) + self.rtt + self.mss * alpha

    def __str__(self) -> str:
        parts = [(self.bdp, "C*(Rm+D)"), (self.rtt, "C*Rm"), (self.mss, "MSS")]
        return " + ".join(f"{value} {unit}" for value, unit in parts if value) or "0 MSS"


_TERM = re.compile(r"(?P<number>[0-9]+(?:/[0-9]+|\.[0-9]+)?)\s*(?P<unit>.*)")
_UNITS = {"MSS": "mss", "C*Rm": "rtt", "C*(Rm+D)": "bdp"}


def read_fraction(value: Any) -> Fraction:
    """Read a number given as 1, 0.5 or '3/2'."""
    try:
        return parse_fraction(value, "number")
    except InputError:
        raise ValueError("a number such as 1, 0.5 or 3/2 is needed, of at most 40 digits") from None


def read_amount(value: Any) -> Amount:
    """Read bytes such as '5 C*(Rm+D)', '3 MSS' or '4 C*(Rm+D) + 3 MSS'."""
    if isinstance(value, Amount):
        return value
    if not isinstance(value, str):
        raise ValueError("an amount with its unit is needed, such as '5 C*(Rm+D)' or '3 MSS'")
    parts = dict.fromkeys(_UNITS.values(), Fraction(0))
    for part in re.split(r"\s\+\s", value.strip()):
        match = _TERM.fullmatch(part.strip())
        unit = re.sub(r"\s", "", match["unit"]) if match else ""
        if match is None or unit not in _UNITS:
            raise ValueError(f"unit of {part.strip()!r} does not match: bytes are given in {', '.join(_UNITS)}")
        parts[_UNITS[unit]] += read_fraction(match["number"])
    return Amount(**parts)


Number = Annotated[Fraction, BeforeValidator(read_fraction)]
Bytes = Annotated[Amount, BeforeValidator(read_amount)]


class Objectives(StrictModel):
    """The objectives of a solution.

    Attributes:
        utilisation: least fraction of the link that is used: S(T-1) - S(0) >= f*C*(T-1-D).
        inflight: most bytes in flight at a sample.
        large_loss: a step that loses more is a large loss; none may occur. None: losses do not matter.
        lossy_steps: most steps with a loss, or None.
        loss: most bytes lost in the trace, or None.
        transient: objective also while beliefs shrink. ``falls``: no large loss unless rate, bytes in flight or queue fall (the
            published code); ``rate_rises``: no large loss if the rate rises (the paper's sentence on G4).
        transient_buffer: smallest buffer for which the transient objective is demanded, or None: any.
        fairness: of several flows: largest ratio of bytes in a repeating trace.
    """

    utilisation: Number = Field(default=Fraction(1, 2), ge=0, le=1)
    inflight: Bytes = Amount(bdp=Fraction(5))
    large_loss: Bytes | None = None
    lossy_steps: int | None = Field(default=None, ge=0)
    loss: Bytes | None = None
    transient: Literal["none", "falls", "rate_rises"] = "none"
    transient_buffer: Bytes | None = None
    fairness: Number | None = Field(default=None, ge=1)

    def small_steps(self, v: View) -> Formula:
        if self.large_loss is None or not v.setting.has_loss:
            return True
        most = self.large_loss.of(v.setting.jitter_steps, v.alpha)
        return all_of(v.lost[t] <= most for t in range(properties.FIRST, v.setting.samples))

    def losses_met(self, v: View) -> Formula:
        """Return "losses are small, rare and few"."""
        if not v.setting.has_loss:
            return True
        parts = [self.small_steps(v)]
        if self.lossy_steps is not None:
            parts.append(properties.lossy_steps(v, self.lossy_steps))
        if self.loss is not None:
            parts.append(v.lost_until(v.last) - v.lost_until(0) <= self.loss.of(v.setting.jitter_steps, v.alpha))
        return all_of(parts)

    def inflight_met(self, v: View) -> Formula:
        """Return "bytes in flight stay at or below the bound"."""
        most = self.inflight.of(v.setting.jitter_steps, v.alpha)
        return all_of(v.inflight(t) <= most for t in range(properties.FIRST, v.setting.samples))

    def parts(self) -> list[tuple[str, Callable[[View], Formula]]]:
        """Return the steady-state objectives one by one, each met or excused by progress: smaller queries are easier."""
        out: list[tuple[str, Callable[[View], Formula]]] = [
            ("utilisation", lambda v: any_of([properties.utilisation(v, self.utilisation), properties.rises(v)])),
            ("inflight", lambda v: any_of([self.inflight_met(v), properties.falls(v)])),
        ]
        if self.large_loss is not None or self.lossy_steps is not None or self.loss is not None:
            out.append(("losses", lambda v: any_of([self.losses_met(v), properties.falls(v)])))
        return out

    def steady(self, v: View) -> Formula:
        """Return "each steady-state objective is met or excused by progress"."""
        return all_of(holds(v) for _, holds in self.parts())

    def probing(self, v: View) -> Formula:
        if self.transient == "none" or not v.setting.has_loss:
            return True
        if self.transient == "falls":
            holds = any_of([self.small_steps(v), properties.falls(v)])
        else:
            holds = implies(v.rate[v.last] > v.rate[properties.FIRST], self.small_steps(v))
        if self.transient_buffer is None:
            return holds
        return implies(v.beta >= self.transient_buffer.of(v.setting.jitter_steps, v.alpha), holds)

    def goal(self, setting: Setting, link: int, alpha: int, beta: int) -> np.ndarray:
        """Return the objectives as a GOAL record in a trace's integer units: C*Rm, MSS and buffer (-1: infinite)."""
        D = setting.jitter_steps
        out = np.zeros((), dtype=GOAL)

        def most(amount: Amount | None) -> int:
            if amount is None or not setting.has_loss:
                return int(ANY_LOSS)
            bytes_scaled = math.floor(amount.of(D, Fraction(alpha, link)) * link)
            return min(int(bytes_scaled), int(ANY_LOSS))

        out["utilised"] = math.ceil(self.utilisation * link * (setting.samples - 1 - D))
        out["inflight"] = min(math.floor(self.inflight.of(D, Fraction(alpha, link)) * link), int(ANY_LOSS))
        out["step_loss"] = most(self.large_loss)
        out["lossy_steps"] = setting.samples if self.lossy_steps is None else min(self.lossy_steps, setting.samples)
        out["loss"] = most(self.loss)
        least = self.transient_buffer
        demanded = setting.has_loss and (least is None or Fraction(beta, link) >= least.of(D, Fraction(alpha, link)))
        out["transient"] = ("none", "falls", "rate_rises").index(self.transient) if demanded else 0
        note_rule(out, setting.beliefs.timeout)
        return out[()]
