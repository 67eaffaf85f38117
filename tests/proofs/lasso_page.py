"""The record and the table of endless misbehaviour: ``python tests/proofs/lasso_page.py FILE...`` writes both.

Each FILE is what ``ccenv verify theorem NAME --lasso N --bound CLAIM=X --json`` printed. An answer stays until a file has the
same question, and gives way only to an answer: what was decided once is not undone by a shorter time limit.
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

DOCS = Path(__file__).parents[2] / "docs"
RECORD, PAGE = DOCS / "data" / "theorems.json", DOCS / "theorems.md"
PLACE = Place("<!-- table of lassos -->")
WORDS = {"utilisation": "less than {:g} of the link", "inflight_bdp": "more than {:g} C (Rm + D) in flight"}
WORDS["loss_per_rtt"] = "more than {:g} C Rm lost per Rm"
ANY = "any at all"
ANSWERS = {"yes": "found", "none": "none", "unknown": "undecided"}


def table(lassos: Iterable[Mapping[str, Any]]) -> str:
    """Return the table: a row per theorem and number of traces, a column per answer; what another answer implies is left out."""
    groups: dict[tuple[str, int], dict[str, list[Mapping[str, Any]]]] = {}
    for one in sorted(lassos, key=_key):
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
    return markdown(rows)


def _words(claim: str, bound: float) -> str:
    """Return what was looked for; every run uses less than twice the link."""
    return ANY if claim == "utilisation" and bound > 1 else WORDS[claim].format(bound)


def _telling(asked: Iterable[Mapping[str, Any]], sign: int) -> list[Mapping[str, Any]]:
    """Return the answers about one claim that no other implies: the worst that was found, the mildest that was not."""
    ordered = sorted(asked, key=lambda one: sign * one["bound"])
    found = [one for one in ordered if one["found"] == "yes"][-1:]
    none = [one for one in ordered if one["found"] == "none"][:1]
    low = sign * found[0]["bound"] if found else float("-inf")
    high = sign * none[0]["bound"] if none else float("inf")
    return [*found, *none, *(one for one in ordered if one["found"] == "unknown" and low < sign * one["bound"] < high)]


def merged(lassos: Iterable[Mapping[str, Any]], reports: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return recorded answers with those of some reports; paths of traces are left out."""
    known = {_key(one): dict(one) for one in lassos}
    for report in reports:
        for claim, told in report["claims"].items():
            asked = f"--lasso {report['traces_joined']} --bound {claim}={Fraction(told['bound']).limit_denominator(1000)}"
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
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    record["lassos"] = merged(record["lassos"], [json.loads(Path(file).read_text(encoding="utf-8")) for file in sys.argv[1:]])
    write_atomic(RECORD, json_bytes(record))
    PLACE.write(PAGE, table(record["lassos"]))
