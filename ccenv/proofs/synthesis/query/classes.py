"""Classes of equal candidates as rows for the simulator, and from a class back to every candidate in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from ccenv.base.errors import InputError
from ccenv.proofs.synthesis.query.template import ALWAYS, NEVER, SHAPES, Candidate, Space

LARGEST_SPACE = 40_000_000
"""Classes that fit into memory as rows."""


MOST_BITS = 64
"""Most classes of conditions, and of rates, in a template of four rates: sets of them are bit masks."""

FOUR_INPUTS = frozenset({"C_L", "C_U", "MSS/Rm", "qdel_L", "Rm"})
"""What templates of four rates may read: programs over these are compared as functions."""


def class_rows(space: Space) -> np.ndarray:
    """Return one candidate per class: (n_classes, 2*rates - 1) int16, conditions first, then rates.

    A branch whose condition is always or never true, or whose sides are equal, is a smaller program and occurs once: as the
    program with the first condition in its place.
    """
    shape = SHAPES[space.template.rates]
    rates = space.rate_of.astype(np.int16)
    conditions = space.condition_of.astype(np.int16)
    if shape == "one":
        return rates[:, None]
    if len(conditions) == 0:
        raise InputError("template: no candidates; every condition is always or never true")
    if shape == "if_else":
        return _if_else(conditions, rates)
    if shape == "chain":
        return _chain(space, conditions, rates)
    raise InputError("templates of 4 rates are not listed class by class")


def count_classes(space: Space) -> int:
    """Return an upper bound on the number of classes of up to three rates, without making them."""
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


def _if_else(conditions: np.ndarray, rates: np.ndarray) -> np.ndarray:
    grid = np.array([(c, a, b) for c in conditions for a in rates for b in rates if a != b], dtype=np.int16)
    constant = np.array([(conditions[0], a, a) for a in rates], dtype=np.int16)
    return np.concatenate([constant, grid])


def _chain(space: Space, conditions: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the classes of if c0: e0 elif c1: e1 else e2: c0 with both senses, (c1, e1, e2) as the classes of if_else."""
    inner = _if_else(conditions, rates)
    first = np.concatenate([conditions, opposite_conditions(space)])
    pair = inner.shape[0]
    blocks = [inner_as_chain(inner)]
    for c in first:
        for e in rates:
            kept = inner[~((inner[:, 1] == e) & (inner[:, 2] == e))]
            kept = kept[kept[:, 0] != c]
            block = np.empty((len(kept), 5), dtype=np.int16)
            block[:, 0], block[:, 1], block[:, 2] = c, kept[:, 0], e
            block[:, 3:] = kept[:, 1:]
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
    """Return, for each class that has one, a condition that is its exact negation."""
    flipped = np.flatnonzero(space.condition_flipped)
    _, first = np.unique(space.condition_class[flipped], return_index=True)
    return flipped[np.sort(first)].astype(np.int16)


def members(space: Space, row: np.ndarray) -> Iterator[Candidate]:
    """Yield every raw candidate that is the same function as a class row (templates of one and two rates).

    Args:
        space: the template's lists.
        row: a row of :func:`class_rows`.
    """
    n = space.template.rates
    by_rate = {int(k): np.flatnonzero(space.rate_class == k) for k in np.unique(space.rate_class)}
    rates = [by_rate[int(space.rate_class[r])] for r in row[n - 1 :]]
    if n == 1:
        yield from (Candidate((), (int(a),)) for a in rates[0])
    elif n == 2:
        yield from _members_of_pair(space, row, rates, by_rate)
    else:
        yield from _members_of_chain(space, row, rates)


def _members_of_pair(
    space: Space, row: np.ndarray, rates: list[np.ndarray], by_rate: dict[int, np.ndarray]
) -> Iterator[Candidate]:
    kinds = space.condition_class
    if space.rate_class[row[1]] == space.rate_class[row[2]]:
        free = np.arange(len(space.rates))
        for c, kind in enumerate(kinds):
            sides = (rates[0], free) if kind == ALWAYS else (free, rates[0])
            if kind not in (ALWAYS, NEVER):
                sides = (rates[0], rates[0])
            yield from (Candidate((c,), (int(a), int(b))) for a, b in product(*sides))
        return
    for c in map(int, np.flatnonzero(kinds == kinds[row[0]])):
        then, otherwise = (rates[1], rates[0]) if space.condition_flipped[c] != space.condition_flipped[row[0]] else rates
        yield from (Candidate((c,), (int(a), int(b))) for a, b in product(then, otherwise))


def _members_of_chain(space: Space, row: np.ndarray, rates: list[np.ndarray]) -> Iterator[Candidate]:
    """Yield the chains with the same conditions and rates, branch by branch (equal smaller programs are not unfolded)."""
    kinds, flipped = space.condition_class, space.condition_flipped
    for first in np.flatnonzero((kinds == kinds[row[0]]) & (flipped == flipped[row[0]])):
        for second in np.flatnonzero(kinds == kinds[row[1]]):
            swapped = flipped[second] != flipped[row[1]]
            inner = (rates[2], rates[1]) if swapped else (rates[1], rates[2])
            for a, b, c in product(rates[0], *inner):
                yield Candidate((int(first), int(second)), (int(a), int(b), int(c)))
