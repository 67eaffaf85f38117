"""Tables of theorems: on other grids, with other constants, and of endless misbehaviour (lassos).

``python docs/tables/theorems.py FILE...`` adds to the records what ``ccenv verify theorem NAME --json`` printed with a grid, with
other constants or with ``lasso``. Cells of the record stay unless a file has them. An answer about lassos gives way only to
an answer: what was decided once is not undone by a shorter time limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from ccenv.base.files import json_bytes, write_atomic
from ccenv.proofs.theorems.theorem import load_theorem

Rows = list[dict[str, str]]
DATA = Path(__file__).parents[1] / "data"
GRID, LASSOS = DATA / "grid.json", DATA / "theorems.json"
STEPS, JITTERS = (1, 2, 4), (0.0, 0.5, 1.0, 2.0)
WORDS = {"utilisation": "utilisation", "inflight_bdp": "in flight", "loss_per_rtt": "loss"}


def grid(record: Mapping[str, Any]) -> Rows:
    """Return the table: a row per theorem, a column per D; K is told in the cells."""
    rows = []
    for one in record["theorems"]:
        columns = {
            f"D = {d:g} Rm": describe_claims({c["steps_per_rtt"]: c for c in one["cells"] if c["jitter_rtts"] == d})
            for d in JITTERS
        }
        rows.append({"program": one["sender"], **columns})
    return rows


def describe_claims(cells: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what became of each claim with one D, given the cells by K: first what holds for every K, then K by K."""
    if not cells:
        return "not asked"
    names = list(next(iter(cells.values()))["claims"])
    always = [name for name in names if any(cell["claims"][name].get("every_k") for cell in cells.values())]
    parts = ["every K: " + ("all" if always == names else ", ".join(WORDS[name] for name in always))] if always else []
    for name in (name for name in names if name not in always):
        states: dict[str, list[int]] = {}
        for k, cell in sorted(cells.items()):
            states.setdefault(describe_claim(cell["claims"][name]), []).append(k)
        states["not asked"] = [k for k in STEPS if k not in cells and has_cell(k, d_of(cells))]
        parts.append(f"{WORDS[name]}: " + ", ".join(f"K = {' '.join(map(str, ks))} {what}" for what, ks in states.items() if ks))
    return "; ".join(parts)


def has_cell(steps_per_rtt: int, jitter_rtts: float) -> bool:
    """Return whether the table has such a grid: D is a whole number of steps, and it is not the theorem's own."""
    return (steps_per_rtt * jitter_rtts).is_integer() and (steps_per_rtt, jitter_rtts) != (1, 1.0)


def d_of(cells: Mapping[int, Mapping[str, Any]]) -> float:
    """Return the D of some cells."""
    return float(next(iter(cells.values()))["jitter_rtts"])


def describe_claim(claim: Mapping[str, Any]) -> str:
    """Return what became of a claim: with a counterexample the refuted lemmas that it needs, else the undecided ones."""
    if claim["verdict"] == "carries over":
        return "yes"
    wanted = "refuted" if claim["verdict"] == "counterexample" else "unknown"
    lemmas = " / ".join(dict.fromkeys(one["lemma"] for one in claim["lacks"] if one["verdict"] == wanted))
    return f"{'no' if wanted == 'refuted' else 'unknown'} ({lemmas})"


def constants(record: Mapping[str, Any]) -> Rows:
    """Return the table of theorems with other constants: what they claim for every K."""
    rows = []
    for one in record.get("other_constants", ()):
        (cell,) = one["cells"]
        kept = {name: f"{claim['bound']:.4g}" for name, claim in cell["claims"].items() if claim["every_k"]}
        row = {"program": one["sender"], "D": f"{cell['jitter_rtts']:g} Rm"}
        row |= {WORDS[name]: kept.get(name, "not proved") if name in cell["claims"] else "not claimed" for name in WORDS}
        rows.append(row | {"constants": ", ".join(f"{name} = {value}" for name, value in one["constants"].items())})
    return rows


def changed(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the constants of a report that are not the theorem's own."""
    own = {name: str(value) for name, value in load_theorem(report["theorem"]).theorem.constants.items()}
    return {name: value for name, value in report["constants"].items() if own[name] != value}


def merge_grids(record: Mapping[str, Any], reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a record with the cells of some reports; paths of traces are left out, hashes of queries stay."""
    theorems = {one["theorem"]: {**one, "cells": list(one["cells"])} for one in record.get("theorems", ())}
    others = {(one["theorem"], one["cells"][0]["jitter_rtts"]): one for one in record.get("other_constants", ())}
    for report in reports:
        about = {"theorem": report["theorem"], "sender": report["sender"]}
        cells = [_plain(cell, report["time_limit_s"]) for cell in report["cells"]]
        constants = changed(report)
        if constants:
            for cell in cells:
                asked = f"-s cells={cell['steps_per_rtt']}:{Fraction(cell['jitter_rtts'])}"
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


MISBEHAVIOUR = {"utilisation": "less than {:g} of the link", "inflight_bdp": "more than {:g} C (Rm + D) in flight"}
MISBEHAVIOUR["loss_per_rtt"] = "more than {:g} C Rm lost per Rm"
ANY = "any at all"
ANSWERS = {"yes": "found", "none": "none", "unknown": "undecided"}


def lassos(record: Mapping[str, Any]) -> Rows:
    """Return the table: a row per theorem and number of traces, a column per answer; what another answer implies is left out."""
    groups: dict[tuple[str, int], dict[str, list[Mapping[str, Any]]]] = {}
    for one in sorted(record["lassos"], key=_key):
        groups.setdefault((one["theorem"], one["traces_joined"]), {}).setdefault(one["claim"], []).append(one)
    rows = []
    for (name, traces), claims in groups.items():
        row: dict[str, list[str]] = {word: [] for word in ANSWERS.values()}
        for claim, asked in claims.items():
            for one in _telling(asked, -1 if claim == "utilisation" else 1):
                row[ANSWERS[one["found"]]].append(_words(claim, one["bound"]))
        if ANY in row["none"]:
            row["none"] = [ANY]
        rows.append({"program": name, "traces": str(traces)} | {word: "; ".join(told) for word, told in row.items()})
    return rows


def _words(claim: str, bound: float) -> str:
    """Return what was looked for; every run uses less than twice the link."""
    return ANY if claim == "utilisation" and bound > 1 else MISBEHAVIOUR[claim].format(bound)


def _telling(asked: Iterable[Mapping[str, Any]], sign: int) -> list[Mapping[str, Any]]:
    """Return the answers about one claim that no other implies: the worst that was found, the mildest that was not."""
    ordered = sorted(asked, key=lambda one: sign * one["bound"])
    found = [one for one in ordered if one["found"] == "yes"][-1:]
    none = [one for one in ordered if one["found"] == "none"][:1]
    low = sign * found[0]["bound"] if found else float("-inf")
    high = sign * none[0]["bound"] if none else float("inf")
    return [*found, *none, *(one for one in ordered if one["found"] == "unknown" and low < sign * one["bound"] < high)]


def merge_lassos(lassos: Iterable[Mapping[str, Any]], reports: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return recorded answers with those of some reports; paths of traces are left out."""
    known = {_key(one): dict(one) for one in lassos}
    for report in reports:
        for claim, told in report["claims"].items():
            asked = f"-s lasso={report['traces_joined']} -s bounds.{claim}={Fraction(told['bound']).limit_denominator(1000)}"
            one = {
                "command": f"ccenv verify theorem {report['theorem']} {asked} --json",
                "theorem": report["theorem"],
                "traces_joined": report["traces_joined"],
                "claim": claim,
                **{name: told[name] for name in ("bound", "found", "reason", "seconds", "sha256")},
            }
            if one["found"] != "unknown" or known.get(_key(one), one)["found"] == "unknown":
                known[_key(one)] = one
    return [known[key] for key in sorted(known)]


def _key(one: Mapping[str, Any]) -> tuple[str, int, str, float]:
    return one["theorem"], one["traces_joined"], one["claim"], one["bound"]


if __name__ == "__main__":
    reports = [json.loads(Path(file).read_text(encoding="utf-8")) for file in sys.argv[1:]]
    joined = [report for report in reports if "traces_joined" in report]
    record = json.loads(LASSOS.read_text(encoding="utf-8"))
    write_atomic(LASSOS, json_bytes(record | {"lassos": merge_lassos(record["lassos"], joined)}))
    others = [report for report in reports if "traces_joined" not in report]
    write_atomic(GRID, json_bytes(merge_grids(json.loads(GRID.read_text(encoding="utf-8")), others)))
