"""Tables of the recorded board (docs/data/leaderboard.jsonl.xz) and of ``ccenv compare`` over one type of network."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.base.foreign import parse_json
from ccenv.leaderboard.site.exchange import read_rows
from ccenv.leaderboard.store.database import check_rows

BOARD = Path(__file__).parents[1] / "data" / "leaderboard.jsonl.xz"
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
# Metric -> factor and form.
METRICS = {"utilisation": (100.0, "{:.0f}"), "delay_rtts": (100.0, "{:.0f}"), "loss_fraction": (100.0, "{:.1f}")}

Rows = list[dict[str, str]]
Cells = dict[tuple[str, str], list[dict[str, Any]]]


@cache
def _read_board() -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    rows, files = read_rows(BOARD)
    check_rows(rows, files)  # hashes and chain; an import checks what they say too, which takes ten seconds
    return rows, files


@cache
def read_cells(suite: str) -> Cells:
    """Return (sender, scenario) -> cells of the sender's newest evaluation in a suite, from the recorded board."""
    rows, files = _read_board()
    found: Cells = {}
    for row in rows:
        if row["kind"] != "evaluation":
            continue
        content = parse_json(row["content"], "a record")
        if content["manifest"]["suite"]["name"] == suite:
            lines = files[content["files"]["cells.jsonl"]].decode().splitlines()
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


def situations(metric: str) -> Rows:
    """Return a metric of each sender in each situation: a percentage, or the mean queueing delay in ms per 100 ms of Rm."""
    cells = read_cells(SUITE)
    factor, form = METRICS[metric]
    return [
        {"sender": f"`{sender}`"}
        | {head: form.format(factor * mean(cells[sender, scenario], metric)) for scenario, head in SITUATIONS.items()}
        for sender in SENDERS
    ]


def coexistence() -> Rows:
    """Return each sender's share of the link beside another, its fairness between RTTs, and the worst case found."""
    cells, hard = read_cells(SUITE), read_cells(HARD)
    rows = []
    for sender in SENDERS:
        row = {"sender": f"`{sender}`"}
        for other in ("cubic", "bbr1"):
            share, rest = (mean(cells[sender, f"versus[other={other}]"], f"throughput_mbps[{who}]") for who in ("agent", "other"))
            row[f"share of the link beside {other} (%)"] = f"{100 * share / (share + rest):.0f}"
        for case, head in (("short", "10 and 40 ms"), ("long", "30 and 120 ms")):
            row[f"Jain's index, {head}"] = f"{mean(cells[sender, f'rtts[{case}]'], 'jain_index'):.2f}"
        worst = [c["metrics"]["utilisation"] for (who, _), found in hard.items() if who == sender for c in found]
        row["utilisation in the worst legal case found (%)"] = f"{100 * min(worst):.0f}"
        rows.append(row)
    return rows


def first(record: dict[str, Any]) -> Rows:
    """Return who is first on each type of network, as the command prints it; several names are a tie."""
    rows = []
    for network in dict.fromkeys(row["network"] for row in record["rows"]):
        ranked = [row for row in record["rows"] if row["network"] == network]
        use = {row["sender"]: row["values"]["utilisation"] for row in ranked}
        most = [name for name, one in use.items() if not any(other["low"] > one["high"] for other in use.values())]
        best = [row["sender"] for row in ranked if row["place"] == 1]
        leaders = {"first by power": best, "first by utilisation": most}
        rows.append({"network": network} | {head: ", ".join(f"`{name}`" for name in names) for head, names in leaders.items()})
    return rows
