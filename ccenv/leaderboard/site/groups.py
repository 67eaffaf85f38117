"""What a sender does alone, with its own kind and in company, side by side: from the table of numbers of a suite."""

from __future__ import annotations

from collections.abc import Sequence

from ccenv.benchmarks.suite.base import Quantity, SuiteBase
from ccenv.benchmarks.suite.references import value_of
from ccenv.leaderboard.store.records import CellRecord
from ccenv.network.metrics.table import Metric

GROUPS = {"alone": "Alone", "own_kind": "With its own kind", "company": "In company"}


def side_by_side(suite: SuiteBase, cells: Sequence[CellRecord]) -> list[tuple[Metric, str, list[float | None]]]:
    """Return the numbers of a suite's table that have a place in GROUPS.

    Args:
        suite: with a table whose names are a group (``alone``), or end with one (``utilisation_alone``).
        cells: of one sender.

    Returns:
        list: a row for each quantity in the table's order: its metric, how it is aggregated, and the values of the groups,
            None where the suite has none. Empty for a suite that has no number of two groups.
    """
    records = [cell.model_dump(include=_FIELDS) | {"parameters": cell.parameters or {}} for cell in cells]
    rows: dict[str, dict[str, Quantity]] = {}
    for name, quantity in suite.table.items():
        group = next((one for one in GROUPS if name == one or name.endswith(f"_{one}")), None)
        if group is not None:
            rows.setdefault(name.removesuffix(group), {})[group] = quantity
    if len({group for row in rows.values() for group in row}) < 2:
        return []
    out: list[tuple[Metric, str, list[float | None]]] = []
    for row in rows.values():
        one = next(iter(row.values()))
        values = [value_of(records, row[group]) if group in row else None for group in GROUPS]
        out.append((suite.measure(one.metric), one.aggregate, values))
    return out


_FIELDS = {"scenario", "agent", "adversary", "seed", "metrics"}
