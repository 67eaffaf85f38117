"""Belief time-outs in the simulator, and starts with wrong beliefs ([CCmatic] s.5.1.2); exact integers.

Time-outs act at the last sample alone, so they change no decision of a trace, only what its beliefs are at the end. On a trace on
which no bound moves they loosen bounds or leave them: what such a trace refutes without time-outs it refutes with them.
"""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.proofs.formulas.setting import TimeoutRule
from ccenv.proofs.synthesis.query.records import LINK

_WRONG_SHARE = 0.4
"""Share of traces whose beliefs start wrong, where a query has that half of (5.3)."""


def note_rule(goal: np.ndarray, rule: TimeoutRule | None) -> None:
    """Write a time-out rule into a GOAL record, as fractions."""
    goal["timeouts"] = rule is not None
    if rule is None:
        return
    for name, factor in (("close", rule.close_factor), ("rise", rule.rise_factor), ("far", rule.moved_factor)):
        goal[name] = (factor.numerator, factor.denominator)


@kernel
def time_out(goal, n: int, D: int, S, lower, upper) -> bool:  # type: ignore[no-untyped-def]
    """Apply time-outs to the bounds of the last sample.

    Args:
        goal: a GOAL record with the rule.
        n: samples.
        D: jitter in steps.
        S: (n,) bytes delivered.
        lower: (n,) C_L; the last one is replaced where it times out.
        upper: (n,) C_U likewise.

    Returns:
        bool: False where a bound would not be an integer.
    """
    last = n - 1
    kept_lower, kept_upper, before = lower[last], upper[last], upper[last - 1]
    if goal.close[1] * kept_upper > goal.close[0] * kept_lower:
        return True
    empty = kept_upper < kept_lower
    lower_moved, upper_moved = kept_lower > lower[0], kept_upper < upper[0]
    lower_far = goal.far[1] * kept_lower > goal.far[0] * lower[0]
    upper_far = goal.far[0] * kept_upper < goal.far[1] * upper[0]
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
    """Return whether some bound is tighter at the end than at the start and none looser."""
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
    """Let the beliefs of some traces start wrong: C_L above C, or C_U below it.

    Args:
        traces: (n,) of TRACE, changed in place.
        rng: seeded generator.
    """
    count = len(traces)
    kind = rng.random(count)
    spread = rng.choice([1, 1, 2, 3, 10], count)
    high = LINK * rng.choice([9, 10, 12, 16, 24, 32, 80], count) // 8
    low = np.maximum(traces["alpha"], LINK * rng.choice([1, 2, 4, 6, 7], count) // 8)
    above, below = kind < _WRONG_SHARE / 2, kind > 1 - _WRONG_SHARE / 2
    traces["C_L"] = np.where(above, high, np.where(below, np.maximum(traces["alpha"], low // spread // 4 * 4), traces["C_L"]))
    traces["C_U"] = np.where(above, high * spread, np.where(below, low, traces["C_U"]))
    traces["C_U"] = np.maximum(traces["C_U"], traces["C_L"])
