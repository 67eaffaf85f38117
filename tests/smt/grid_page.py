"""The record and the table of what carries over to other grids: ``python tests/smt/grid_page.py FILE...`` writes both.

Each FILE is what ``ccenv verify theorem NAME --grid --json`` printed, also of some cells only; cells of the record stay unless a
file has them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ccenv.document import json_bytes
from ccenv.files import write_atomic
from ccenv.page_tables import Place, markdown

DOCS = Path(__file__).parents[2] / "docs"
RECORD, PAGE = DOCS / "data" / "grid.json", DOCS / "theorems.md"
PLACE = Place("<!-- table of other grids -->")
GRIDS = [(k, d) for k in (1, 2, 4) for d in (0.0, 0.5, 1.0, 2.0) if (k * d).is_integer() and (k, d) != (1, 1.0)]
WORDS = {"utilisation": "utilisation", "inflight_bdp": "in flight", "loss_per_rtt": "loss"}
HEADS = {"carries over": "", "counterexample": "counterexample: ", "unknown": "unknown: "}


def table(record: Mapping[str, Any]) -> str:
    """Return the table: a row per theorem, a column per grid that was asked of any."""
    asked = {(cell["steps_per_rtt"], cell["jitter_rtts"]) for one in record["theorems"] for cell in one["cells"]}
    rows = []
    for one in record["theorems"]:
        cells = {(cell["steps_per_rtt"], cell["jitter_rtts"]): cell for cell in one["cells"]}
        columns = {f"K = {k}, D = {d:g} Rm": told(cells.get((k, d))) for k, d in GRIDS if (k, d) in asked}
        rows.append({"program": one["sender"], **columns})
    return markdown(rows)


def told(cell: Mapping[str, Any] | None) -> str:
    """Return a cell in words: claims that carry over, then the others with the lemmas that they lack."""
    if cell is None:
        return "not asked"
    kept = [WORDS[name] for name, claim in cell["claims"].items() if claim["verdict"] == "carries over"]
    parts = ["all" if len(kept) == len(cell["claims"]) else ", ".join(kept)] if kept else []
    for verdict in ("counterexample", "unknown"):
        lost = [
            f"{WORDS[name]} ({lemmas(claim, verdict)})" for name, claim in cell["claims"].items() if claim["verdict"] == verdict
        ]
        parts += [HEADS[verdict] + ", ".join(lost)] if lost else []
    return "; ".join(parts)


def lemmas(claim: Mapping[str, Any], verdict: str) -> str:
    """Return the lemmas that a claim lacks: the refuted ones where there is a counterexample."""
    wanted = "refuted" if verdict == "counterexample" else "unknown"
    return ", ".join(dict.fromkeys(one["lemma"] for one in claim["lacks"] if one["verdict"] == wanted))


def merged(record: Mapping[str, Any], reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a record with the cells of some reports; paths of traces are left out, hashes of queries stay."""
    theorems = {one["theorem"]: {**one, "cells": list(one["cells"])} for one in record.get("theorems", ())}
    for report in reports:
        command = f"ccenv verify theorem {report['theorem']} --grid --json"
        one = theorems.setdefault(
            report["theorem"], {"command": command, "theorem": report["theorem"], "sender": report["sender"], "cells": []}
        )
        for cell in report["cells"]:
            key = (cell["steps_per_rtt"], cell["jitter_rtts"])
            claims = {
                name: {**claim, "lacks": [{k: v for k, v in lack.items() if k != "trace"} for lack in claim["lacks"]]}
                for name, claim in cell["claims"].items()
            }
            kept = [other for other in one["cells"] if (other["steps_per_rtt"], other["jitter_rtts"]) != key]
            new = {**cell, "claims": claims, "time_limit_s": report["time_limit_s"]}
            one["cells"] = sorted([*kept, new], key=lambda c: (c["steps_per_rtt"], c["jitter_rtts"]))
    return {"theorems": [theorems[name] for name in sorted(theorems)]}


if __name__ == "__main__":
    before = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    made = merged(before, [json.loads(Path(file).read_text()) for file in sys.argv[1:]])
    write_atomic(RECORD, json_bytes(made))
    PLACE.write(PAGE, table(made))
