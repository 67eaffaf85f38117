"""Templates of four rates: all programs that no counterexample breaks, without listing the template, grouped into functions.

Counterexamples cover boxes of programs (``ccenv.proofs.synthesis.search.boxes``). The first programs of uncovered boxes are
attacked by new traces from the repertoire, in rounds, until those break nothing more; the remaining programs are then listed. The
list depends on the traces alone, not on the order in which boxes fell.

A row holds class numbers of three conditions and four rates. Two rows are the same function if they send the same on every cell
of the arrangement of all conditions in (C_L, C_U)/(MSS/Rm), for every delay, which is decided exactly at points that span each
cell.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.proofs.synthesis.journal import Journal, trace_data, trace_from
from ccenv.proofs.synthesis.query.classes import (
    CONDITION,
    GOAL,
    LARGEST_SUM,
    MOST_BITS,
    RATE,
    TRACE,
    records,
)
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import ALWAYS, NEVER, Candidate, Space, Terms, critical
from ccenv.proofs.synthesis.search.boxes import HOLES, MOST_PARTS, cover, first_programs, masks_at, timed_masks
from ccenv.proofs.synthesis.search.search import SAMPLE, Simulator

_CHUNK = 2048


def class_records(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return one CONDITION record per class of conditions, and one RATE record per class of rates."""
    conditions = records([space.conditions[i] for i in space.condition_of], CONDITION)
    return conditions, records([space.rates[i] for i in space.rate_of], RATE)


def raw_rows(space: Space, rows: np.ndarray) -> np.ndarray:
    """Return rows of class numbers as rows of the template's condition and rate indices."""
    branches = space.template.branches
    return np.concatenate([space.condition_of[rows[:, :branches]], space.rate_of[rows[:, branches:]]], axis=1).astype(np.int16)


@dataclass(frozen=True)
class Cells:
    """The cells that distinguish conditions and rates."""

    truths: np.ndarray  # (n,) uint64: every combination of truth values of the conditions, delays included
    same: np.ndarray  # (n, n_rates) int8: for each, the first rate that sends the same wherever the combination occurs


def cells(space: Space, largest_delay: int, *, ordered: bool = True) -> Cells:
    """Return the cells of a template; ``largest_delay`` and ``ordered`` as in ``build_space``."""
    conditions, rates = class_records(space)
    exact_points = list(_points(space, ordered))
    if max(map(max, exact_points)) * 4 * LARGEST_SUM >= 1 << 63:
        raise InputError(
            "template of 4 rates: conditions cross at points that 64 bits do not hold; simpler coefficients would do"
        )
    points = np.array(exact_points, dtype=np.int64)
    untimed = masks_at(conditions, points)
    per_rate = [np.maximum(int(r["C_L"]) * points[:, 0] + int(r["alpha"]) * points[:, 2], 2 * points[:, 2]) for r in rates]
    sent = np.stack(per_rate, axis=1)
    masks, cell_index = np.unique(untimed, return_inverse=True)
    order = np.argsort(cell_index, kind="stable")
    starts = np.searchsorted(cell_index[order], np.arange(len(masks)))
    same = np.tile(np.arange(len(rates), dtype=np.int8), (len(masks), 1))
    for later in range(len(rates) - 1, 0, -1):
        for earlier in range(later - 1, -1, -1):
            differs = np.logical_or.reduceat((sent[:, earlier] != sent[:, later])[order], starts)
            same[~differs, later] = earlier
    timed = np.unique(timed_masks(conditions)[: largest_delay + 1])
    return Cells(np.concatenate([masks | mask for mask in timed]), np.tile(same, (len(timed), 1)))


def _points(space: Space, ordered: bool) -> Iterator[tuple[int, int, int]]:
    """Yield points (C_L, C_U, MSS/Rm) in integers that span every cell of x = C_L*Rm/MSS >= 1 and y = C_U*Rm/MSS >= x, or 1.

    Columns go through each crossing of two lines, twice between neighbours and twice beyond the last one; on a column, points lie
    on each line, twice between neighbours and twice beyond the last one.
    """
    edge = (Fraction(1), Fraction(0)) if ordered else (Fraction(0), Fraction(1))
    lines, uprights = {edge}, {Fraction(1)}
    for index in space.condition_of:
        coefficients = dict(space.conditions[index])
        x, y, one = (coefficients.get(name, Fraction(0)) for name in ("C_L", "C_U", "MSS/Rm"))
        if y:
            lines.add((-x / y, -one / y))
        elif x:
            uprights.add(-one / x)
    for index in space.rate_of:
        coefficients = dict(space.rates[index])
        slope = coefficients.get("C_L", Fraction(0))
        if slope:
            # Where the rate meets MSS/Rm.
            uprights.add((1 - coefficients.get("MSS/Rm", Fraction(0))) / slope)
    crossings = {(b2 - b1) / (a1 - a2) for a1, b1 in lines for a2, b2 in lines if a1 != a2}
    for x in _fill_gaps(sorted(x for x in crossings | uprights if x >= 1)):
        least = edge[0] * x + edge[1]
        for y in _fill_gaps(sorted({a * x + b for a, b in lines if a * x + b >= least})):
            scale = math.lcm(x.denominator, y.denominator)
            yield int(x * scale), int(y * scale), scale


def _fill_gaps(values: list[Fraction]) -> Iterator[Fraction]:
    """Yield the values, two more between neighbours and two beyond the last one."""
    for value, after in zip(values, [*values[1:], values[-1] + 3], strict=True):
        yield from (value, value + (after - value) / 3, value + (after - value) * 2 / 3)


@kernel(nogil=True)
def _signatures(truths, same, rows, out) -> None:  # type: ignore[no-untyped-def]
    one = np.uint64(1)
    for i in range(len(rows)):
        row = rows[i]
        for k in range(len(truths)):
            inner = 1 if (truths[k] >> np.uint64(row[0])) & one == 1 else 2
            leaf = 2 * inner + 1 if (truths[k] >> np.uint64(row[inner])) & one == 1 else 2 * inner + 2
            out[i, k] = same[k, row[leaf]]


def group_equal(cells_found: Cells, rows: np.ndarray) -> list[np.ndarray]:
    """Return the indices of the rows of each function, in order of their first row."""
    groups: dict[bytes, list[int]] = {}
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        out = np.empty((len(part), len(cells_found.truths)), np.int8)
        _signatures(cells_found.truths, cells_found.same, part, out)
        for i, signature in enumerate(out):
            groups.setdefault(hashlib.blake2b(signature.tobytes(), digest_size=32).digest(), []).append(start + i)
    return [np.array(numbers) for numbers in groups.values()]


@dataclass
class Family:
    """All rows, (n, 7) class numbers, that are one function."""

    space: Space
    rows: np.ndarray
    _keys: dict[tuple[int, bool], set[Terms]] = field(default_factory=dict)

    def raw(self) -> int:
        """Return the number of raw candidates of this function."""
        return sum(self._count_row(row) for row in self.rows.tolist())

    def _count_row(self, row: list[int]) -> int:
        rates = len(self.space.rates)
        then, otherwise = (row[1], row[3], row[4]), (row[2], row[5], row[6])
        count = self._count_condition(row[0]) * self._count_pair(then) * self._count_pair(otherwise)
        if row[0] == 0 and then == otherwise:
            # If the first condition is always or never true, the other side is arbitrary.
            count += self._count_constant() * self._count_pair(then) * len(self.space.conditions) * rates**2
        return count

    def _count_pair(self, pair: tuple[int, int, int]) -> int:
        condition, then, otherwise = pair
        count = self._count_condition(condition) * self._count_rate(then) * self._count_rate(otherwise)
        if condition == 0 and then == otherwise:
            count += self._count_constant() * self._count_rate(then) * len(self.space.rates)
        return count

    def _count_condition(self, condition_class: int) -> int:
        return int((self.space.condition_class == condition_class).sum())

    def _count_rate(self, rate_class: int) -> int:
        return int((self.space.rate_class == rate_class).sum())

    def _count_constant(self) -> int:
        return int(np.isin(self.space.condition_class, (ALWAYS, NEVER)).sum())

    def keys(self) -> set[tuple[Terms, ...]]:
        """Return the critical coefficients of all raw candidates of this function: conditions, then rates."""
        return {key for row in self.rows.tolist() for key in self._row_keys(row)}

    def _row_keys(self, row: list[int]) -> Iterator[tuple[Terms, ...]]:
        sides = self._pair_keys((row[1], row[3], row[4])), self._pair_keys((row[2], row[5], row[6]))
        for swapped in (False, True):
            for first in self._condition_keys(row[0], swapped):
                for then, otherwise in product(*(reversed(sides) if swapped else sides)):
                    yield (first, then[0], otherwise[0], *then[1:], *otherwise[1:])
        if row[0] == 0 and (row[1], row[3], row[4]) == (row[2], row[5], row[6]):
            rates = {critical(terms) for terms in self.space.rates}
            anything = set(product({critical(terms) for terms in self.space.conditions}, rates, rates))
            for condition_class, (then, otherwise) in ((ALWAYS, (sides[0], anything)), (NEVER, (anything, sides[0]))):
                for first, one, two in product(self._condition_keys(condition_class, False), then, otherwise):
                    yield (first, one[0], two[0], *one[1:], *two[1:])

    def _pair_keys(self, pair: tuple[int, int, int]) -> set[tuple[Terms, ...]]:
        condition, then, otherwise = pair
        out = set()
        for swapped in (False, True):
            leaves = (otherwise, then) if swapped else (then, otherwise)
            out |= set(product(self._condition_keys(condition, swapped), *(self._rate_keys(leaf) for leaf in leaves)))
        if condition == 0 and then == otherwise:
            rate_keys, anything = self._rate_keys(then), {critical(terms) for terms in self.space.rates}
            out |= set(product(self._condition_keys(ALWAYS, False), rate_keys, anything))
            out |= set(product(self._condition_keys(NEVER, False), anything, rate_keys))
        return out

    def _condition_keys(self, condition_class: int, flipped: bool) -> set[Terms]:
        if (condition_class, flipped) not in self._keys:
            chosen = np.flatnonzero((self.space.condition_class == condition_class) & (self.space.condition_flipped == flipped))
            self._keys[condition_class, flipped] = {critical(self.space.conditions[i]) for i in chosen}
        return self._keys[condition_class, flipped]

    def _rate_keys(self, rate_class: int) -> set[Terms]:
        return {critical(self.space.rates[i]) for i in np.flatnonzero(self.space.rate_class == rate_class)}

    def candidates(self) -> Iterator[Candidate]:
        """Yield the most readable raw candidate of each row; in it, branches with equal sides are never taken."""
        unused = self._easiest_rate(range(len(self.space.rates)))
        never = sorted(np.flatnonzero(self.space.condition_class == NEVER), key=lambda i: _effort(self.space.conditions[i]))
        for row in self.rows.tolist():
            pairs = []
            for condition_class, *leaves in ((row[1], row[3], row[4]), (row[2], row[5], row[6])):
                rates = [self._easiest_rate(np.flatnonzero(self.space.rate_class == leaf).tolist()) for leaf in leaves]
                if leaves[0] == leaves[1] and never:
                    pairs.append((int(never[0]), unused, rates[1]))
                else:
                    index, flipped = self._easiest_condition(condition_class)
                    pairs.append((index, *(reversed(rates) if flipped else rates)))
            if pairs[0] == pairs[1] and never:
                first, pairs = int(never[0]), [(int(never[0]), unused, unused), pairs[1]]
            else:
                first, flipped = self._easiest_condition(row[0])
                pairs = pairs[::-1] if flipped else pairs
            yield Candidate((first, pairs[0][0], pairs[1][0]), (*pairs[0][1:], *pairs[1][1:]))

    def _easiest_rate(self, numbers: Iterable[int]) -> int:
        return min(numbers, key=lambda i: _effort(self.space.rates[i]))

    def _easiest_condition(self, condition_class: int) -> tuple[int, bool]:
        numbers = np.flatnonzero(self.space.condition_class == condition_class).tolist()
        best = min(numbers, key=lambda i: _effort(self.space.conditions[i]))
        return best, bool(self.space.condition_flipped[best])


def _effort(terms: Terms) -> tuple[int, bool, Fraction]:
    return len(terms), bool(terms) and terms[0][1] < 0, sum((abs(value) for _, value in terms), start=Fraction(0))


PENDING = 2048
"""Uncovered boxes that are collected before an attack."""

CALL_BOXES = 200_000
"""Boxes per call of the kernel, between checks of the budget."""

Found = Callable[[Simulator, np.ndarray, np.ndarray], None]
Progress = Callable[[int, int], None]


@dataclass
class Cover:
    """The search of one query's template of four rates."""

    query: Query
    space: Space
    traces: list[np.ndarray] = field(default_factory=list)  # counterexamples so far
    budget_s: float = math.inf  # CPU seconds
    boxes: np.ndarray = field(init=False)  # (n, 7) uint64, not yet tried with all traces; at first the whole template
    resisting: np.ndarray = field(init=False)  # boxes whose first program no trace breaks

    def __post_init__(self) -> None:
        self._sizes = [len(self.space.condition_of)] * 3 + [len(self.space.rate_of)] * 4
        self.boxes = np.array([[(1 << size) - 1 for size in self._sizes]], dtype=np.uint64)
        self.resisting = self.boxes[:0]
        self._setting, self._objectives = self.query.setting(), self.query.objectives
        self._conditions, self._rates = class_records(self.space)
        self._order = np.zeros(0, np.int64)
        self._begin = time.process_time()

    @property
    def cpu_s(self) -> float:
        """CPU seconds since the search was made."""
        return time.process_time() - self._begin

    @property
    def left(self) -> int:
        """Number of rows of class numbers in uncovered boxes."""
        return volume(self.boxes) + volume(self.resisting)

    def attack(self, found: Found, progress: Progress | None = None) -> bool:
        """Cover the template with traces from the repertoire until they break nothing more; False if the budget ended it.

        ``found`` receives a simulator, a trace and the indices of the simulator's rows that it breaks; ``progress`` the covered
        thousandths.
        """
        rng = np.random.default_rng(self.query.seed)
        rows = np.stack([rng.integers(0, size, SAMPLE) for size in self._sizes], axis=1)
        waiting, total, seed = self.resisting, self.left, self.query.seed
        while self._in_budget():
            before = len(self.traces)
            self._attack(rows, seed, found)
            seed += 1
            if len(self.traces) > before:
                self.boxes = np.concatenate([self.boxes, waiting])
            else:
                self.resisting = np.concatenate([self.resisting, waiting])
            waiting = self.boxes[:0]
            if not len(self.boxes):
                return True
            waiting = self._cover_boxes(exact=False)
            rows = first_programs(waiting)
            if progress is not None:
                progress(1000 * (total - self.left - volume(waiting)) // total, 1000)
        self.boxes = np.concatenate([self.boxes, waiting])
        return False

    def survivors(self, most: int) -> np.ndarray | None:
        """Return the programs that no trace breaks, (n, 7) class numbers in ascending order.

        None if there are more than ``most``, or the budget ended the search.
        """
        self.boxes, self.resisting = np.concatenate([self.boxes, self.resisting]), self.resisting[:0]
        while len(self.boxes) and self._in_budget() and volume(self.resisting) <= most:
            self.resisting = np.concatenate([self.resisting, self._cover_boxes(exact=True)])
        if len(self.boxes) or volume(self.resisting) > most:
            return None
        return _list_programs(self.resisting)

    def _in_budget(self) -> bool:
        return self.cpu_s < self.budget_s

    def _attack(self, rows: np.ndarray, seed: int, found: Found) -> None:
        wrong_start = self.query.beliefs.start == "any"
        simulator = Simulator(self._setting, self._objectives, self.space, raw_rows(self.space, rows), wrong_start)

        def take(trace: np.ndarray, dropped: np.ndarray) -> None:
            found(simulator, trace, dropped)
            self.traces.append(trace)

        simulator.attack(seed, take)

    def _cover_boxes(self, *, exact: bool) -> np.ndarray:
        """Cover the boxes and return some of those that remain, with ``exact`` only programs that no trace breaks."""
        traces = np.array(self.traces, dtype=TRACE)
        goals = np.zeros(len(traces), GOAL)
        for i, trace in enumerate(traces):
            goals[i] = self._objectives.goal(self._setting, int(trace["link"]), int(trace["alpha"]), int(trace["beta"]))
        # New traces first: the remaining boxes have been tried with the others.
        self._order = np.concatenate([np.arange(len(self._order), len(traces)), self._order])
        stack, size = np.concatenate([self.boxes, np.zeros((MOST_PARTS, HOLES), np.uint64)]), len(self.boxes)
        pending, waiting = np.zeros((PENDING, HOLES), np.uint64), 0
        while size and waiting < PENDING and self._in_budget():
            if size + MOST_PARTS > len(stack):
                stack = np.concatenate([stack, np.zeros_like(stack)])
            size, more = cover(
                stack, size, traces, goals, self._order, self._conditions, self._rates, exact, pending[waiting:], CALL_BOXES
            )
            waiting += more
        self.boxes = stack[:size].copy()
        return pending[:waiting]


def volume(boxes: np.ndarray) -> int:
    return int(np.bitwise_count(boxes).astype(np.int64).prod(axis=1).sum())


def _list_programs(boxes: np.ndarray) -> np.ndarray:
    """Return every program of some boxes in ascending order."""
    rows: list[np.ndarray] = [np.zeros((0, HOLES), np.int16)]
    for box in boxes:
        holes = [[i for i in range(MOST_BITS) if int(mask) >> i & 1] for mask in box]
        rows.append(np.stack(np.meshgrid(*holes, indexing="ij"), axis=-1).reshape(-1, HOLES).astype(np.int16))
    return np.unique(np.concatenate(rows), axis=0)


@dataclass(frozen=True)
class Families:
    """Functions and their rows."""

    space: Space
    rows: np.ndarray  # (n, 7) one row per function, by the indices of the template's conditions and rates
    groups: list[np.ndarray]  # per function: (m, 7) all its rows, by class numbers
    boxed: int  # number of rows of class numbers searched as boxes
    left: int  # number of them that stayed open, because the budget ended the search or too many remained to be listed
    listed: int  # number of rows that no simulated trace broke
    counterexamples: int  # number of traces of the search
    cpu_s: float  # CPU seconds of the search

    def family(self, number: int) -> Family:
        return Family(self.space, self.groups[number])


def warm_up() -> None:
    """Compile the kernels, to exclude that from a search's times."""
    nothing, none = np.zeros((0, HOLES), np.uint64), np.zeros(0, np.int64)
    conditions, rates = np.zeros(0, CONDITION), np.zeros(0, RATE)
    first_programs(nothing)
    cover(nothing, 0, np.zeros(0, TRACE), np.zeros(0, GOAL), none, conditions, rates, False, nothing, 0)
    group_equal(Cells(np.zeros(0, np.uint64), np.zeros((0, 0), np.int8)), np.zeros((1, HOLES), np.int16))


def search_families(
    query: Query,
    space: Space,
    journal: Journal,
    confirm: Callable[[Simulator, np.ndarray, np.ndarray], None],
    progress: Progress | None = None,
) -> Families:
    """Search a template of four rates by simulation, or restore a finished search from the journal.

    ``confirm`` receives each counterexample before it is used: a simulator, the trace, the simulator's rows that it breaks.
    """

    def record_trace(simulator: Simulator, trace: np.ndarray, broken: np.ndarray) -> None:
        confirm(simulator, trace, broken)
        journal.append({"kind": "cover", "trace": trace_data(trace)})

    warm_up()
    finished = journal.of_kind("covered")
    if finished:
        search = Cover(query, space, [trace_from(line["trace"]) for line in journal.of_kind("cover")])
    else:
        # An interrupted search starts again from its seed, with the same traces.
        journal.drop("cover")
        search = Cover(query, space, budget_s=query.limits.budget_s)
    boxed = search.left
    if finished:
        rows = search.survivors(finished[0]["listed"])
    else:
        rows = search.survivors(query.limits.classes) if search.attack(record_trace, progress) else None
    left = search.left if rows is None else 0
    listed = rows if rows is not None else np.zeros((0, 2 * space.template.rates - 1), np.int16)
    condition_cells = cells(space, query.largest_delay, ordered=query.beliefs.start == "consistent")
    groups = [listed[numbers] for numbers in group_equal(condition_cells, listed)]
    cpu_s = finished[0]["cpu_s"] if finished else round(search.cpu_s, 3)
    if rows is not None and not finished:
        journal.append({"kind": "covered", "listed": len(rows), "functions": len(groups), "cpu_s": cpu_s})
    first = np.array([group[0] for group in groups], dtype=np.int16).reshape(-1, listed.shape[1])
    return Families(space, raw_rows(space, first), groups, boxed, left, len(listed), len(search.traces), cpu_s)
