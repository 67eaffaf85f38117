"""Write the table of worst-case-v2 in docs/adversaries.md: python docs/site/worst_cases.py [RUN.json].

RUN.json is what ``ccenv bench run worst-case-v2 --json`` printed; its numbers become the record first, in docs/data.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.pages import Place, markdown

DOCS = Path(__file__).parents[1]
RECORD, PAGE = DOCS / "data" / "worst-case-v2.json", DOCS / "adversaries.md"
PLACE = Place("<!-- table of the recorded suite: python docs/site/worst_cases.py -->")
KEPT = ("suite_sha256", "code_sha256", "n_cells", "versions", "machine", "finished_at")
GOALS = {
    "utilisation": ("utilisation", "{:.3f}", 1.0),
    "delay": ("mean queueing delay (ms)", "{:.0f}", 1e3),
    "loss": ("lost (%)", "{:.1f}", 1e2),
    "fairness": ("Jain's index of two", "{:.2f}", 1.0),
    "starvation": ("one of two has more than the other, times", "{:.0f}", 1.0),
}


def record(run: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run.

    Raises:
        InputError: if it is not a whole run of the suite.
    """
    if run.get("suite", {}).get("name") != "worst-case-v2" or not run.get("complete"):
        raise InputError("not a finished run of the suite worst-case-v2; print one: ccenv bench run worst-case-v2 --json")
    senders = {one["agent"]: {"sha256": one["agent_sha256"], "worst": one["worst_by_goal"]} for one in run["summary"]}
    return {**{name: run[name] for name in KEPT}, "senders": dict(sorted(senders.items()))}


def tables() -> str:
    """Return the table of the page, from the record; senders that keep most of the link come first."""
    rows = []
    senders = read_json(RECORD)["senders"]
    for name in sorted(senders, key=lambda name: -senders[name]["worst"]["utilisation"]["value"]):
        row = {"sender": f"`{name}`"}
        for goal, (head, form, unit) in GOALS.items():
            found = senders[name]["worst"][goal]
            where = "" if found["scenario"] == goal else f"{found['scenario']}, "
            row[head] = f"{form.format(unit * found['value'])} ({where}`{found['adversary']}`)"
        rows.append(row)
    return markdown(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run = read_json(Path(sys.argv[1]))
        write_atomic(RECORD, (json.dumps(record(run)) + "\n").encode())
    PLACE.write(PAGE, tables())
    print(PAGE.name)
    sys.exit(0)
