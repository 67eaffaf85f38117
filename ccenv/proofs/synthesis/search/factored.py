"""Templates of four rates: all programs that no counterexample breaks, without listing the template.

Counterexamples cover boxes of programs (``ccenv.proofs.synthesis.search.boxes``). The first programs of uncovered boxes are
attacked by new traces from the repertoire, in rounds, until those break nothing more; the remaining programs are then listed and
grouped into functions. The list depends on the traces alone, not on the order in which boxes fell.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ccenv.proofs.synthesis.journal import Journal, trace_data, trace_from
from ccenv.proofs.synthesis.query.classes import CONDITION, GOAL, MOST_BITS, RATE, TRACE
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import Space
from ccenv.proofs.synthesis.search.boxes import HOLES, MOST_PARTS, cover, first_programs
from ccenv.proofs.synthesis.search.functions import Cells, Family, cells, class_records, group_equal, raw_rows
from ccenv.proofs.synthesis.search.search import SAMPLE, Simulator

PENDING = 2048
"""Uncovered boxes that are collected before an attack."""

CALL_BOXES = 200_000
"""Boxes per call of the kernel, between checks of the budget."""

Found = Callable[[Simulator, np.ndarray, np.ndarray], None]
Progress = Callable[[int, int], None]


@dataclass
class Cover:
    """The search of one query's template of four rates.

    Attributes:
        traces: counterexamples so far.
        budget_s: CPU seconds.
        boxes: (n, 7) uint64, not yet tried with all traces; at first the whole template.
        resisting: boxes whose first program no trace breaks.
    """

    query: Query
    space: Space
    traces: list[np.ndarray] = field(default_factory=list)
    budget_s: float = math.inf
    boxes: np.ndarray = field(init=False)
    resisting: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._sizes = [len(self.space.condition_of)] * 3 + [len(self.space.rate_of)] * 4
        self.boxes = np.array([[(1 << size) - 1 for size in self._sizes]], dtype=np.uint64)
        self.resisting = self.boxes[:0]
        self._setting, self._objectives = self.query.setting(), self.query.goals()
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
    """Return the number of programs in boxes."""
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
    """Functions and their rows.

    Attributes:
        rows: (n, 7) one row per function, by the indices of the template's conditions and rates.
        groups: per function: (m, 7) all its rows, by class numbers.
        boxed: number of rows of class numbers searched as boxes.
        left: number of them that stayed open, because the budget ended the search or too many remained to be listed.
        listed: number of rows that no simulated trace broke.
        counterexamples: number of traces of the search.
        cpu_s: CPU seconds of the search.
    """

    space: Space
    rows: np.ndarray
    groups: list[np.ndarray]
    boxed: int
    left: int
    listed: int
    counterexamples: int
    cpu_s: float

    def family(self, number: int) -> Family:
        """Return all rows of a function."""
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
