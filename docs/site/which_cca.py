"""Write the tables of docs/which-cca.md from the recorded board and ``ccenv which``: python docs/site/which_cca.py."""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.base.foreign import parse_json
from ccenv.base.pages import Place, markdown
from ccenv.leaderboard.site.exchange import Export, read_export

DOCS = Path(__file__).parents[1]
BOARD, PAGE = DOCS / "data" / "leaderboard.jsonl.xz", DOCS / "which-cca.md"
PLACE = Place("<!-- table of the recorded board: python docs/site/which_cca.py -->")
KINDS, KINDS_PLACE = DOCS / "data" / "which.json", Place("<!-- kinds of network: python docs/site/which_cca.py -->")
SUITE, HARD = "standard-v1", "worst-case-v1"
SENDERS = (
    "cubic",
    "reno",
    "bbr1",
    "bbr2",
    "bbr3",
    "vegas",
    "copa",
    "vivace",
    "ledbat",
    "westwood",
    "cc_probe_drain",
    "learned_robust",
)
SITUATIONS = {
    "one": "1 BDP",
    "shallow": "0.1 BDP",
    "deep": "8 BDP",
    "flows[n=8]": "8 flows",
    "steps": "rate steps",
    "loss[loss_rate=0.01]": "1 % loss",
    "jitter[jitter_rtts=1]": "jitter Rm",
}
TABLES = (
    ("Utilisation (%)", "utilisation", 100.0, "{:.0f}"),
    ("Mean queueing delay (ms per 100 ms of Rm)", "delay_rtts", 100.0, "{:.0f}"),
    ("Packets lost (%)", "loss_fraction", 100.0, "{:.1f}"),
)

Cells = dict[tuple[str, str], list[dict[str, Any]]]


@cache
def _read_board() -> Export:
    return read_export(BOARD)


def read_cells(suite: str) -> Cells:
    """Return (sender, scenario) -> cells of the sender's newest evaluation in a suite, from the recorded board."""
    export = _read_board()
    found: Cells = {}
    for row in export.rows:
        content = parse_json(row["content"], "a record")
        if row["kind"] == "evaluation" and content["manifest"]["suite"]["name"] == suite:
            lines = export.files[content["files"]["cells.jsonl"]].decode().splitlines()
            newest: Cells = defaultdict(list)
            for cell in (parse_json(line, "a cell") for line in lines):
                newest[cell["agent"], cell["scenario"]].append(cell)
            found |= newest
    return found


def mean(cells: list[dict[str, Any]], metric: str) -> float:
    """Return the mean of a metric over runs, NaN where none has a value; ``delay_rtts`` is the queueing delay over Rm."""
    if metric == "delay_rtts":
        values = [
            _ratio(cell["metrics"]["queueing_delay_mean_s"], min(f["rtt_s"] for f in cell["path"]["flows"])) for cell in cells
        ]
    else:
        values = [cell["metrics"].get(metric) for cell in cells]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")


def _ratio(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def tables() -> str:
    """Return all tables of the page."""
    cells, hard = read_cells(SUITE), read_cells(HARD)
    parts = []
    for title, metric, factor, form in TABLES:
        rows = []
        for sender in SENDERS:
            row = {"sender": f"`{sender}`"}
            for scenario, head in SITUATIONS.items():
                row[head] = form.format(factor * mean(cells[sender, scenario], metric))
            rows.append(row)
        parts.append(f"### {title}\n\n{markdown(rows)}")
    rows = []
    for sender in SENDERS:
        row = {"sender": f"`{sender}`"}
        for other in ("cubic", "bbr1"):
            own, theirs = (mean(cells[sender, f"versus[other={other}]"], f"throughput_mbps[{who}]") for who in ("agent", "other"))
            row[f"share of the link beside {other} (%)"] = f"{100 * own / (own + theirs):.0f}"
        for case, head in (("short", "10 and 40 ms"), ("long", "30 and 120 ms")):
            row[f"Jain's index, {head}"] = f"{mean(cells[sender, f'rtts[{case}]'], 'jain_index'):.2f}"
        worst = [c["metrics"]["utilisation"] for (who, _), found in hard.items() if who == sender for c in found]
        row["utilisation in the worst legal case found (%)"] = f"{100 * min(worst):.0f}"
        rows.append(row)
    parts.append(f"### Beside others, and at worst\n\n{markdown(rows)}")
    return "\n\n".join(parts)


def kinds() -> str:
    """Return who is first on each kind of network, as ``ccenv which --json`` was recorded; several names are a tie."""
    record = parse_json(KINDS.read_bytes(), KINDS.name)
    rows = []
    for kind in dict.fromkeys(row["network"] for row in record["rows"]):
        own = [row for row in record["rows"] if row["network"] == kind]
        used = {row["sender"]: row["values"]["utilisation"] for row in own}
        most = [name for name, one in used.items() if not any(other["low"] > one["high"] for other in used.values())]
        best = [row["sender"] for row in own if row["place"] == 1]
        told = {"first by power": best, "first by utilisation": most}
        rows.append({"kind": kind} | {head: ", ".join(f"`{name}`" for name in names) for head, names in told.items()})
    return markdown(rows)


if __name__ == "__main__":
    KINDS_PLACE.write(PAGE, kinds())
    PLACE.write(PAGE, tables())
    print(PAGE.name)
    sys.exit(0)
