"""Suites of the fluid model: cells are those of its sweeps; the aggregates range and delta_sensitivity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from small_suite import HEAD

from ccenv.base.errors import InputError
from ccenv.benchmarks.run.runner import run_suite
from ccenv.benchmarks.store import load_cells
from ccenv.benchmarks.suite.base import Quantity
from ccenv.benchmarks.suite.curve import validate_suite
from ccenv.benchmarks.suite.references import compute_quantity
from ccenv.engine.fluid.sweep import load_sweep

QUEUES = ["drop-tail", "red"]
SMALL = {"mixes": ["bbr1/reno"], "disciplines": QUEUES, "buffers_bdp": [1, 4], "duration_s": 1, "measure_from_s": 0.5}


def suite(**changes: Any) -> dict[str, Any]:
    scenario = {"name": "small", "sweep": "validation", "changes": SMALL}
    data = {**HEAD, "name": "small_fluid", "engine": "fluid", "seeds": [1], "scenarios": [scenario]}
    return {**data, "metrics": ["jain", "utilisation_pct", "first_share_pct"], **changes}


def test_cells_are_those_of_the_sweep(tmp_path: Path) -> None:
    file = tmp_path / "small_fluid.yaml"
    where = {"discipline": "red"}
    bound = {"name": "x", "metric": "first_share_pct", "aggregate": "min", "where": where, "at_least": 50, "source": "y"}
    file.write_text(yaml.safe_dump(suite(references=[bound])))
    manifest = run_suite(str(file), tmp_path / "run", pictures=False)
    cells = load_sweep("validation", **SMALL).run(1)
    records = load_cells(tmp_path / "run")
    assert [record["metrics"] for record in records] == [{name: cell[name] for name in suite()["metrics"]} for cell in cells]
    assert [record["parameters"]["buffer_bdp"] for record in records] == [cell["buffer_bdp"] for cell in cells]
    assert manifest["references"][0]["measured"] == min(c["first_share_pct"] for c in cells if c["discipline"] == "red")
    with pytest.raises(InputError, match="takes no --agent"):
        run_suite(str(file), tmp_path / "other", extra_agents=["reno"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"agents": ["reno"]}, "the senders of the fluid model are the mixes"),
        ({"seeds": [2]}, "seeds"),
        ({"metrics": ["jian"]}, "Did you mean 'jain'"),
        ({"scenarios": [{"name": "validaton"}]}, "Did you mean 'validation'"),
        ({"scenarios": [{"name": "validation", "changes": {"mixes": ["bbr9"]}}]}, "unknown mix 'bbr9'"),
        ({"references": [{"name": "x", "metric": "jain", "aggregate": "range", "at_most": 1, "source": "y"}]}, "'over' names"),
    ],
)
def test_what_is_no_fluid_suite_says_why(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        validate_suite(suite(**changes), "small_fluid.yaml")


def test_range_and_delta_sensitivity_take_what_belongs_together() -> None:
    def record(seed: int, mix: str, buffer: float, value: float) -> dict[str, Any]:
        names = {"scenario": "s", "agent": "a", "adversary": "network", "seed": seed}
        return {**names, "parameters": {"mix": mix, "buffer": buffer}, "metrics": {"x": value}}

    records = [record(1, "a", 1, 1), record(1, "a", 2, 2), record(2, "a", 1, 4), record(2, "a", 2, 16), record(1, "b", 1, 1)]
    assert compute_quantity(records, Quantity(metric="x", aggregate="range", over="buffer")) == 12  # of seed 2, mix a
    assert compute_quantity(records, Quantity(metric="x", aggregate="range", over="seed")) == 14  # of mix a, buffer 2
    assert compute_quantity(records, Quantity(metric="x", aggregate="delta_sensitivity")) == (1 + 2) / 2
