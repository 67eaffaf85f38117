"""Measure the cells of a published value again with one thing changed, and say whether it then agrees.

``python docs/tables/causes.py SUITE [NUMBER]`` measures every change that a suite's file lists under ``cause``;
``python docs/tables/causes.py SUITE NUMBER 'PATH=VALUE; PATH=VALUE'...`` tries other ones. NUMBER counts the references from 0.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

import yaml

from ccenv.base.config import find_data
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_yaml
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.run.runner import make_cells
from ccenv.benchmarks.suite.curve import PACKAGE, validate_suite
from ccenv.benchmarks.suite.references import check, select_cells


def apply(data: Any, path: str, value: Any) -> None:
    """Set a value in a suite's data; a step of the path ``a/b/c`` is a key, a place in a list, or the ``name`` of its item.

    Raises:
        InputError: for a path that leads nowhere.
    """
    *steps, last = path.split("/")
    for step in steps:
        data = data[_place(data, step, path)] if isinstance(data, list) else data.setdefault(step, {})
    data[_place(data, last, path) if isinstance(data, list) else last] = value


def _place(items: list[Any], step: str, path: str) -> int:
    for place, item in enumerate(items):
        if step == str(place) or (isinstance(item, dict) and item.get("name") == step):
            return place
    raise InputError(f"{path}: no item {step!r}")


def measure(name: str, number: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the comparison of a suite's reference with its published value, after changes to the file.

    A path that starts with ``reference`` changes the reference itself, e.g. its agent.
    """
    data = copy.deepcopy(read_yaml(find_data(PACKAGE, name, ".yaml", "suite")))
    for path, value in changes.items():
        whole = f"references/{number}/{path.removeprefix('reference/')}" if path.startswith("reference/") else path
        apply(data, whole, value)
    suite = validate_suite(data, name)
    reference = suite.references[number]
    cells = make_cells(suite, [agent_player(spec, spec) for spec in suite.agents])
    records = []
    for cell in cells:
        record = {"scenario": cell.scenario, "agent": cell.agent.label, "adversary": cell.opponent, "seed": cell.seed}
        record["parameters"] = getattr(cell, "parameters", {})
        if any(select_cells([record], quantity) for quantity in reference.quantities):
            records.append(cell.run())
    return check(records, reference)


def main(name: str, number: str = "", *tried: str) -> None:
    """Print a line per change."""
    references = read_yaml(find_data(PACKAGE, name, ".yaml", "suite"))["references"]
    for place, reference in enumerate(references):
        if number and place != int(number):
            continue
        lists = [dict(one.split("=", 1) for one in text.split("; ") if one) for text in tried]
        changes = [{path.strip(): yaml.safe_load(value) for path, value in one.items()} for one in lists]
        for change in changes or [one["change"] for one in reference.get("cause", ())]:
            got = measure(name, place, change)
            print(f"{place} {change}: {got['measured']:.6g} ({got['claim']}): {got['agreement']}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
