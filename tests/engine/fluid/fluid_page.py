"""The tables of docs/ode.md that come from records: ``python tests/engine/fluid/fluid_page.py`` writes them.

The statements are those of ``docs/data/fluid-statements.json``, the errors of the fit those of the shipped calibration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccenv.base.pages import Place, markdown
from ccenv.engine.fluid.parameters import CALIBRATED, PARAMETER_SETS

DOCS = Path(__file__).parents[3] / "docs"
PAGE, STATEMENTS = DOCS / "ode.md", DOCS / "data" / "fluid-statements.json"
STATEMENTS_PLACE, FIT_PLACE = Place("<!-- table of statements -->"), Place("<!-- table of the fit -->")
HALVES = {"kernel_train": "kernel, training", "kernel_test": "kernel, test", "packets_train": "packets, training"}
HALVES |= {"packets_test": "packets, test"}


def statements_table(record: Mapping[str, Any]) -> str:
    """Return a row per statement, a column per set and one for packets: whether it holds, and what was measured."""
    columns = [*PARAMETER_SETS, "packets"]
    rows = []
    for row in record["statements"]:
        cells = {name: f"{'yes' if row[name]['holds'] else '**no**'}: {row[name]['measured']}" for name in columns}
        rows.append({"section": row["source"], "the paper": f"{row['text']} ({row['criterion']})"} | cells)
    holding = {name: f"{record['holding'][name]} of {len(rows)}" for name in columns}
    return markdown([*rows, {"section": "", "the paper": "hold"} | holding])


def fit_table(stored: Mapping[str, Any]) -> str:
    """Return the constants in a line, and a row per set with its errors on each half."""
    constants = ", ".join(f"`{name}` {value:g}" for name, value in stored["constants"].items())
    rows = []
    for name, found in stored["errors"].items():
        halves = {head: found[key] for key, head in HALVES.items()}
        cells = {head: f"{half['score']:.2f} ({half['cases_within']} of {half['cases']})" for head, half in halves.items()}
        rows.append({"mean error in bands (cases within all bands)": f"`{name}`"} | cells)
    details = []
    for key in ("kernel_test", "packets_test"):
        within = stored["errors"]["calibrated"][key]["within"]
        details.append(f"{HALVES[key]}: " + ", ".join(f"{name} {value}" for name, value in within.items()))
    return f"Fitted: {constants}.\n\n{markdown(rows)}\n\nWithin its band with `calibrated`: {'; '.join(details)}."


def main() -> None:
    """Write both tables into the page."""
    STATEMENTS_PLACE.write(PAGE, statements_table(json.loads(STATEMENTS.read_text(encoding="utf-8"))))
    FIT_PLACE.write(PAGE, fit_table(json.loads(CALIBRATED.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
