"""Tables of the fluid models: the statements of [BBR-fluid] (docs/data/fluid-statements.json) and the shipped calibration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ccenv.engine.fluid.parameters import CALIBRATED, PARAMETER_SETS

Rows = list[dict[str, str]]
HALVES = {"kernel_train": "kernel, training", "kernel_test": "kernel, test", "packets_train": "packets, training"}
HALVES |= {"packets_test": "packets, test"}


def statements(record: Mapping[str, Any]) -> Rows:
    """Return a row per statement, a column per set and one for packets: whether it holds, and what was measured."""
    columns = [*PARAMETER_SETS, "packets"]
    rows = []
    for row in record["statements"]:
        cells = {name: f"{'yes' if row[name]['holds'] else '**no**'}: {row[name]['measured']}" for name in columns}
        rows.append({"section": row["source"], "the paper": f"{row['text']} ({row['criterion']})"} | cells)
    holding = {name: f"{record['holding'][name]} of {len(rows)}" for name in columns}
    return [*rows, {"section": "", "the paper": "hold"} | holding]


def _stored() -> Any:
    return json.loads(CALIBRATED.read_text(encoding="utf-8"))


def fit() -> Rows:
    """Return a row per set of parameters with its errors on each half of the data."""
    rows = []
    for name, errors in _stored()["errors"].items():
        halves = {head: errors[key] for key, head in HALVES.items()}
        cells = {head: f"{half['score']:.2f} ({half['cases_within']} of {half['cases']})" for head, half in halves.items()}
        rows.append({"mean error in bands (cases within all bands)": f"`{name}`"} | cells)
    return rows


def constants() -> Rows:
    """Return the fitted constants."""
    return [{"constant": f"`{name}`", "fitted": f"{value:g}"} for name, value in _stored()["constants"].items()]


def within() -> Rows:
    """Return how many cases of the test halves are within the band of each quantity, with the calibrated set."""
    counts = {HALVES[key]: _stored()["errors"]["calibrated"][key]["within"] for key in ("kernel_test", "packets_test")}
    names = dict.fromkeys(name for half in counts.values() for name in half)
    return [{"half": half} | {name: str(found.get(name, "")) for name in names} for half, found in counts.items()]
