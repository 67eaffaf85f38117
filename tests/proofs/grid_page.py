"""The record and the tables of what carries over to other grids: ``python tests/proofs/grid_page.py FILE...`` writes them.

Each FILE is what ``ccenv verify theorem NAME --grid --json`` printed, also of some cells only, or with other constants; cells of
the record stay unless a file has them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.pages import Place, markdown
from ccenv.proofs.theorems.theorem import load_theorem

DOCS = Path(__file__).parents[2] / "docs"
RECORD, PAGE = DOCS / "data" / "grid.json", DOCS / "theorems.md"
PLACE = Place("<!-- table of other grids -->")
OTHERS = Place("<!-- table of other constants -->")
STEPS, JITTERS = (1, 2, 4), (0.0, 0.5, 1.0, 2.0)
WORDS = {"utilisation": "utilisation", "inflight_bdp": "in flight", "loss_per_rtt": "loss"}


def table(record: Mapping[str, Any]) -> str:
    """Return the table: a row per theorem, a column per D; K is told in the cells."""
    rows = []
    for one in record["theorems"]:
        columns = {f"D = {d:g} Rm": told({c["steps_per_rtt"]: c for c in one["cells"] if c["jitter_rtts"] == d}) for d in JITTERS}
        rows.append({"program": one["sender"], **columns})
    return markdown(rows)


def told(cells: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what became of each claim with one D, given the cells by K: first what holds for every K, then K by K."""
    if not cells:
        return "not asked"
    names = list(next(iter(cells.values()))["claims"])
    always = [name for name in names if any(cell["claims"][name].get("every_k") for cell in cells.values())]
    parts = ["every K: " + ("all" if always == names else ", ".join(WORDS[name] for name in always))] if always else []
    for name in (name for name in names if name not in always):
        states: dict[str, list[int]] = {}
        for k, cell in sorted(cells.items()):
            states.setdefault(state(cell["claims"][name]), []).append(k)
        states["not asked"] = [k for k in STEPS if k not in cells and has_cell(k, d_of(cells))]
        parts.append(f"{WORDS[name]}: " + ", ".join(f"K = {' '.join(map(str, ks))} {what}" for what, ks in states.items() if ks))
    return "; ".join(parts)


def has_cell(steps_per_rtt: int, jitter_rtts: float) -> bool:
    """Return whether the table has such a grid: D is a whole number of steps, and it is not the theorem's own."""
    return (steps_per_rtt * jitter_rtts).is_integer() and (steps_per_rtt, jitter_rtts) != (1, 1.0)


def d_of(cells: Mapping[int, Mapping[str, Any]]) -> float:
    """Return the D of some cells."""
    return float(next(iter(cells.values()))["jitter_rtts"])


def state(claim: Mapping[str, Any]) -> str:
    """Return what became of a claim: with a counterexample the refuted lemmas that it needs, else the undecided ones."""
    if claim["verdict"] == "carries over":
        return "yes"
    wanted = "refuted" if claim["verdict"] == "counterexample" else "unknown"
    lemmas = " / ".join(dict.fromkeys(one["lemma"] for one in claim["lacks"] if one["verdict"] == wanted))
    return f"{'no' if wanted == 'refuted' else 'unknown'} ({lemmas})"


def others(record: Mapping[str, Any]) -> str:
    """Return the table of theorems with other constants: what they claim for every K."""
    rows = []
    for one in record.get("other_constants", ()):
        (cell,) = one["cells"]
        kept = {name: f"{claim['bound']:.4g}" for name, claim in cell["claims"].items() if claim["every_k"]}
        row = {"program": one["sender"], "D": f"{cell['jitter_rtts']:g} Rm"}
        row |= {WORDS[name]: kept.get(name, "not proved") if name in cell["claims"] else "not claimed" for name in WORDS}
        rows.append(row | {"constants": ", ".join(f"{name} = {value}" for name, value in one["constants"].items())})
    return markdown(rows)


def changed(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the constants of a report that are not the theorem's own."""
    own = {name: str(value) for name, value in load_theorem(report["theorem"]).theorem.constants.items()}
    return {name: value for name, value in report["constants"].items() if own[name] != value}


def merged(record: Mapping[str, Any], reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a record with the cells of some reports; paths of traces are left out, hashes of queries stay."""
    theorems = {one["theorem"]: {**one, "cells": list(one["cells"])} for one in record.get("theorems", ())}
    others = {(one["theorem"], one["cells"][0]["jitter_rtts"]): one for one in record.get("other_constants", ())}
    for report in reports:
        about = {"theorem": report["theorem"], "sender": report["sender"]}
        cells = [_plain(cell, report["time_limit_s"]) for cell in report["cells"]]
        constants = changed(report)
        if constants:
            for cell in cells:
                asked = f"--cell {cell['steps_per_rtt']}:{Fraction(cell['jitter_rtts'])}"
                asked += "".join(f" --set {name}={value}" for name, value in constants.items())
                one = {"command": f"ccenv verify theorem {report['theorem']} {asked} --json", **about, "constants": constants}
                others[report["theorem"], cell["jitter_rtts"]] = one | {"cells": [cell]}
            continue
        command = f"ccenv verify theorem {report['theorem']} --grid --json"
        one = theorems.setdefault(report["theorem"], {"command": command, **about, "cells": []})
        known = {_grid(cell): cell for cell in one["cells"]} | {_grid(cell): cell for cell in cells}
        one["cells"] = [known[key] for key in sorted(known)]
    ordered = {"theorems": [theorems[name] for name in sorted(theorems)]}
    return ordered | {"other_constants": [others[key] for key in sorted(others)]}


def _grid(cell: Mapping[str, Any]) -> tuple[int, float]:
    return cell["steps_per_rtt"], cell["jitter_rtts"]


def _plain(cell: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    claims = {
        name: {**claim, "lacks": [{k: v for k, v in lack.items() if k != "trace"} for lack in claim["lacks"]]}
        for name, claim in cell["claims"].items()
    }
    return {**cell, "claims": claims, "time_limit_s": limit_s}


if __name__ == "__main__":
    before = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    made = merged(before, [json.loads(Path(file).read_text()) for file in sys.argv[1:]])
    write_atomic(RECORD, json_bytes(made))
    PLACE.write(PAGE, table(made))
    OTHERS.write(PAGE, others(made))
