"""The functions of a template of four rates that simulation leaves, found anew or from a run's journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ccenv.proofs.synthesis.journal import Journal, trace_data, trace_from
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.records import CONDITION, GOAL, RATE, TRACE
from ccenv.proofs.synthesis.query.template import Space
from ccenv.proofs.synthesis.search.boxes import HOLES, cover, first_programs
from ccenv.proofs.synthesis.search.factored import Cover, Progress
from ccenv.proofs.synthesis.search.functions import Cells, Family, cells, group_equal, raw_rows
from ccenv.proofs.synthesis.search.search import Simulator


@dataclass(frozen=True)
class Families:
    """Functions, and the rows that are each.

    Attributes:
        space: the template.
        rows: (n, 7) one row per function, by the numbers of the template's conditions and rates.
        groups: per function: (m, 7) all its rows, by class numbers.
        boxed: how many rows of class numbers were searched as boxes.
        left: how many of them stayed open: the budget ended the search, or too many were left to be listed.
        listed: how many no simulated trace broke.
        counterexamples: traces that the search kept.
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
        """Return all rows that are a function."""
        return Family(self.space, self.groups[number])


def warm_up() -> None:
    """Compile the kernels, so that a search's times are its own."""
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
    """Search a template of four rates by simulation; a search that was finished before is taken from the journal.

    Args:
        query: the query.
        space: its candidates.
        journal: where counterexamples are kept.
        confirm: called with each counterexample before it is used: a simulator, the trace, the simulator's rows that it breaks.
        progress: called with how much is covered.
    """

    def found(simulator: Simulator, trace: np.ndarray, broken: np.ndarray) -> None:
        confirm(simulator, trace, broken)
        journal.add({"kind": "cover", "trace": trace_data(trace)})

    warm_up()
    finished = journal.of_kind("covered")
    if finished:
        search = Cover(query, space, [trace_from(line["trace"]) for line in journal.of_kind("cover")])
    else:
        # A search that was cut short starts again from its seed: its traces are the same.
        journal.drop("cover")
        search = Cover(query, space, budget_s=query.limits.budget_s)
    boxed = search.left
    if finished:
        rows = search.survivors(finished[0]["listed"])
    else:
        rows = search.survivors(query.limits.classes) if search.attack(found, progress) else None
    left = search.left if rows is None else 0
    listed = rows if rows is not None else np.zeros((0, 2 * space.template.rates - 1), np.int16)
    found_cells = cells(space, query.largest_delay, ordered=query.beliefs.start == "consistent")
    groups = [listed[numbers] for numbers in group_equal(found_cells, listed)]
    cpu_s = finished[0]["cpu_s"] if finished else round(search.cpu_s, 3)
    if rows is not None and not finished:
        journal.add({"kind": "covered", "listed": len(rows), "functions": len(groups), "cpu_s": cpu_s})
    first = np.array([group[0] for group in groups], dtype=np.int16).reshape(-1, listed.shape[1])
    return Families(space, raw_rows(space, first), groups, boxed, left, len(listed), len(search.traces), cpu_s)
