"""Classes of equal candidates as rows for the simulator, back to their members, and the simulator's records.

The records hold a network trace as moves, conditions, rates and objectives, all in exact integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from ccenv.base.errors import InputError
from ccenv.proofs.formulas.setting import LONGEST_TRACE, BeliefRules
from ccenv.proofs.synthesis.query.template import ALWAYS, NEVER, SHAPES, Candidate, Space

LARGEST_SPACE = 40_000_000
"""Classes that fit into memory as rows."""

MOST_BITS = 64
"""Most classes of conditions, and of rates, in a template of four rates: sets of them are bit masks."""

FOUR_INPUTS = frozenset({"C_L", "C_U", "MSS/Rm", "qdel_L", "Rm"})
"""Inputs of templates of four rates, whose programs are compared as functions."""


def class_rows(space: Space) -> np.ndarray:
    """Return one candidate per class: (n_classes, 2*rates - 1) int16, conditions first, then rates.

    A branch whose condition is always or never true, or whose sides are equal, is a smaller program and occurs once, with the
    first condition in its place.
    """
    shape = SHAPES[space.template.rates]
    rates = space.rate_of.astype(np.int16)
    conditions = space.condition_of.astype(np.int16)
    if shape == "one":
        return rates[:, None]
    if len(conditions) == 0:
        raise InputError("template: no candidates; every condition is always or never true")
    if shape == "if_else":
        return _list_if_else(conditions, rates)
    if shape == "chain":
        return _list_chains(space, conditions, rates)
    raise InputError("templates of 4 rates are not listed class by class")


def count_classes(space: Space) -> int:
    """Return an upper bound on the number of classes of up to three rates, without listing them."""
    rates, conditions = len(space.rate_of), len(space.condition_of)
    n = space.template.rates
    if n == 1:
        return rates
    pair = rates * (rates - 1) * conditions + rates
    if n == 2:
        return pair
    return 2 * conditions * rates * rates * (rates - 1) * conditions + pair


def check_four(space: Space, name: str) -> None:
    """Raise InputError for a template of four rates that cannot be searched, before any work."""
    other = space.template.inputs() - FOUR_INPUTS
    if other:
        raise InputError(
            f"query {name!r}: templates of 4 rates are searched over {', '.join(sorted(FOUR_INPUTS))}; this one also reads"
            f" {', '.join(sorted(other))}"
        )
    for what, count in (("conditions", len(space.condition_of)), ("rates", len(space.rate_of))):
        if count > MOST_BITS:
            raise InputError(
                f"query {name!r}: {space.template.size():.3g} candidates with {count} different {what}, at most {MOST_BITS} are"
                f" searched in templates of 4 rates; fewer coefficients of {what} would shrink it"
            )
    if not len(space.condition_of):
        raise InputError("template: no candidates; every condition is always or never true")


def _list_if_else(conditions: np.ndarray, rates: np.ndarray) -> np.ndarray:
    grid = np.array([(c, a, b) for c in conditions for a in rates for b in rates if a != b], dtype=np.int16)
    constant = np.array([(conditions[0], a, a) for a in rates], dtype=np.int16)
    return np.concatenate([constant, grid])


def _list_chains(space: Space, conditions: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the classes of if c0: e0 elif c1: e1 else e2: c0 with both senses, (c1, e1, e2) as the classes of if_else."""
    inner = _list_if_else(conditions, rates)
    first = np.concatenate([conditions, opposite_conditions(space)])
    pair = inner.shape[0]
    blocks = [inner_as_chain(inner)]
    for c in first:
        for e in rates:
            others = inner[~((inner[:, 1] == e) & (inner[:, 2] == e))]
            others = others[others[:, 0] != c]
            block = np.empty((len(others), 5), dtype=np.int16)
            block[:, 0], block[:, 1], block[:, 2] = c, others[:, 0], e
            block[:, 3:] = others[:, 1:]
            blocks.append(block)
    rows = np.concatenate(blocks)
    if len(rows) > LARGEST_SPACE:
        raise InputError(f"the template has {len(rows)} classes ({pair} per first branch); at most {LARGEST_SPACE} fit")
    return rows


def inner_as_chain(inner: np.ndarray) -> np.ndarray:
    """Return programs of two rates as chains of three: if c: e1 elif c: e1 else e2."""
    out = np.empty((len(inner), 5), dtype=np.int16)
    out[:, 0] = out[:, 1] = inner[:, 0]
    out[:, 2] = out[:, 3] = inner[:, 1]
    out[:, 4] = inner[:, 2]
    return out


def opposite_conditions(space: Space) -> np.ndarray:
    """Return a condition that is the exact negation of each class that has one."""
    flipped = np.flatnonzero(space.condition_flipped)
    _, first = np.unique(space.condition_class[flipped], return_index=True)
    return flipped[np.sort(first)].astype(np.int16)


def members(space: Space, row: np.ndarray) -> Iterator[Candidate]:
    """Yield every raw candidate that is the same function as a row of :func:`class_rows` (templates of one and two rates)."""
    n = space.template.rates
    by_rate = {int(k): np.flatnonzero(space.rate_class == k) for k in np.unique(space.rate_class)}
    rates = [by_rate[int(space.rate_class[r])] for r in row[n - 1 :]]
    if n == 1:
        yield from (Candidate((), (int(a),)) for a in rates[0])
    elif n == 2:
        yield from _pair_members(space, row, rates)
    else:
        yield from _chain_members(space, row, rates)


def _pair_members(space: Space, row: np.ndarray, rates: list[np.ndarray]) -> Iterator[Candidate]:
    classes = space.condition_class
    if space.rate_class[row[1]] == space.rate_class[row[2]]:
        free = np.arange(len(space.rates))
        for c, condition_class in enumerate(classes):
            sides = (rates[0], free) if condition_class == ALWAYS else (free, rates[0])
            if condition_class not in (ALWAYS, NEVER):
                sides = (rates[0], rates[0])
            yield from (Candidate((c,), (int(a), int(b))) for a, b in product(*sides))
        return
    for c in map(int, np.flatnonzero(classes == classes[row[0]])):
        then, otherwise = (rates[1], rates[0]) if space.condition_flipped[c] != space.condition_flipped[row[0]] else rates
        yield from (Candidate((c,), (int(a), int(b))) for a, b in product(then, otherwise))


def _chain_members(space: Space, row: np.ndarray, rates: list[np.ndarray]) -> Iterator[Candidate]:
    """Yield the chains with the same conditions and rates, branch by branch (equal smaller programs are not unfolded)."""
    classes, flipped = space.condition_class, space.condition_flipped
    for first in np.flatnonzero((classes == classes[row[0]]) & (flipped == flipped[row[0]])):
        for second in np.flatnonzero(classes == classes[row[1]]):
            swapped = flipped[second] != flipped[row[1]]
            inner = (rates[2], rates[1]) if swapped else (rates[1], rates[2])
            for a, b, c in product(rates[0], *inner):
                yield Candidate((int(first), int(second)), (int(a), int(b), int(c)))


MOST_SAMPLES = 16
"""Longest trace of a synthesis query, which the repertoire and the integer scale fit."""

PAST = 6
"""Samples before the trace whose E is recorded (sound delay rule)."""

SHARES = 16
"""Shares of a band are in sixteenths."""

GRAIN = 2 * math.lcm(*range(1, MOST_SAMPLES + 1))
"""Adversaries place S and G on multiples of this, so that every division by a window's length is exact."""

LINK = GRAIN * 240
"""C*Rm in integer units, for traces of the repertoire."""

LARGEST = 1 << 52
"""A trace with larger numbers is not replayed in integers: products must fit into 63 bits."""

MOST_SENT = 2 * LARGEST
"""A program that sends more in a step of a trace is not judged by it, so that its queue stays below 2**57."""

LARGEST_SUM = 16
"""Largest sum of the coefficients of an expression, so that with such numbers it fits into 63 bits."""

ANY_LOSS = np.int64(1) << 60

if MOST_SAMPLES > LONGEST_TRACE:  # pragma: no cover - a guard for whoever changes either
    raise ValueError("MOST_SAMPLES must not exceed the longest trace of the encoder")

TRACE = np.dtype(
    [
        ("samples", np.int64),
        ("jitter", np.int64),  # D in steps
        ("exact_waste", np.int64),  # 1: tokens are wasted exactly when the queue is empty (ideal, cbr_delay)
        ("past_known", np.int64),  # 1: sound delay rule, delays of old bytes follow from E_before; 0: published rule
        ("hold", np.int64),  # 1: service is clamped so that no bound moves
        ("link", np.int64),  # C*Rm
        ("alpha", np.int64),  # MSS
        ("beta", np.int64),  # buffer, -1 infinite
        ("G", np.int64),
        ("E", np.int64),
        ("C_L", np.int64),
        ("C_U", np.int64),
        ("delay", np.int64),  # of the newest byte at sample 0, whole steps; ``samples`` means at least so many
        ("lost", np.int64),  # bytes were lost in the step that ended at sample 0
        ("seen", np.int64),  # a loss became known at sample 0
        ("probes", np.int64),  # 1: C_L_lambda and q_U are computed, too
        ("C_L_lambda", np.int64),
        ("q_U", np.int64),
        ("windows", np.int64),  # 0: those of [CCmatic] s.5.1.1; 1: exact ones of C_U; 2: also those of bytes sent and lost
        ("late_kept", np.int64),  # 1: a late first byte counts until another byte arrives; 0: in the step that delivers it
        ("first_late", np.int64),  # the first byte delivered by sample 0 had waited longer than jitter explains
        ("E_before", np.int64, (PAST,)),
        ("waste", np.int64, (MOST_SAMPLES,)),  # share of spare tokens wasted, or -1: G_at says where G goes
        ("serve", np.int64, (MOST_SAMPLES,)),  # share of the legal band of S, or -1: S_at says where S goes
        ("G_at", np.int64, (MOST_SAMPLES,)),
        ("S_at", np.int64, (MOST_SAMPLES,)),
        ("delay_at", np.int64, (MOST_SAMPLES,)),  # preferred delay where the published rule leaves it open
    ],
    align=True,
)

CONDITION = np.dtype(
    [
        ("timed", np.int64),  # 1: over qdel_L and Rm
        ("C_L", np.int64),  # twice the coefficient
        ("C_U", np.int64),
        ("alpha", np.int64),
        ("qdel", np.int64),
        ("Rm", np.int64),
        ("C_L_lambda", np.int64),
        ("q_U", np.int64),
    ],
    align=True,
)

RATE = np.dtype(
    [("C_L", np.int64), ("alpha", np.int64), ("C_L_lambda", np.int64), ("q_U", np.int64)], align=True
)  # twice the coefficients

GOAL = np.dtype(
    [
        ("utilised", np.int64),  # smallest S(T-1) - S(0)
        ("inflight", np.int64),  # largest bytes in flight
        ("step_loss", np.int64),  # largest loss of a step that counts as small
        ("lossy_steps", np.int64),  # largest number of steps with loss
        ("loss", np.int64),  # largest loss of the trace
        ("timeouts", np.int64),  # 1: bounds may time out at the last sample, by the three factors below
        ("close", np.int64, (2,)),  # numerator and denominator
        ("rise", np.int64, (2,)),
        ("far", np.int64, (2,)),
        ("transient", np.int64),  # 0: none; 1: a large loss is excused by a fall only; 2: no large loss where the rate rises
    ],
    align=True,
)


def windows_code(rules: BeliefRules) -> int:
    """Return the code of the windows that bound C, for TRACE."""
    if rules.upper == "paper":
        return 0
    return 2 if rules.tighter else 1


def twice(value: Fraction) -> int:
    """Return 2*value as an integer; ValueError if it is none."""
    doubled = 2 * value
    if doubled.denominator != 1:
        raise ValueError(f"coefficient {value} is not a multiple of 1/2")
    return int(doubled)


RATE_FIELDS = {"C_L": "C_L", "MSS/Rm": "alpha", "C_L_lambda": "C_L_lambda", "q_U/Rm": "q_U"}
"""Inputs of rates -> fields of RATE."""

CONDITION_FIELDS = RATE_FIELDS | {"C_U": "C_U", "qdel_L": "qdel", "Rm": "Rm"}
"""Inputs of conditions -> fields of CONDITION."""


def records(expressions: list[tuple[tuple[str, Fraction], ...]], dtype: np.dtype) -> np.ndarray:
    """Return a record of CONDITION or RATE for each expression."""
    out = np.zeros(len(expressions), dtype=dtype)
    for row, terms in zip(out, expressions, strict=True):
        for name, value in terms:
            row[CONDITION_FIELDS[name]] = twice(value)
        if dtype is CONDITION:
            row["timed"] = any(name in ("qdel_L", "Rm") for name, _ in terms)
    return out
