"""Tables of recorded suites, and their records.

``python docs/tables/suites.py FILE.json`` records a run that ``ccenv bench run SUITE --json`` printed (coexistence,
worst-case-v2); ``python docs/tables/suites.py FOLDER...`` records finished runs of suites of links and transfers.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1]))

from ccenv.base.errors import InputError
from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_json
from ccenv.benchmarks.run.runner import as_suite
from ccenv.benchmarks.store import load_cells, read_manifest
from ccenv.benchmarks.suite.references import NOT_MEASURED, NOT_REPRODUCED, REPRODUCED, SAME_DIRECTION, explain
from tables.bench_records import read_records

Rows = list[dict[str, str]]
DATA = Path(__file__).parents[1] / "data"
KEPT = ("suite_sha256", "code_sha256", "n_cells", "versions", "machine", "finished_at")


@cache
def papers() -> dict[str, dict[str, Any]]:
    """Return the records of suites that reproduce papers, by suite."""
    return {record["suite"]: record for record in read_records(DATA / "bench")}


def reproduction() -> Rows:
    """Return how many published values agree, a row per suite."""
    names = (REPRODUCED, SAME_DIRECTION, NOT_REPRODUCED, NOT_MEASURED)
    rows, total = [], Counter[str]()
    for suite, record in papers().items():
        counts = Counter(str(reference["agreement"]) for reference in record["references"])
        total += counts
        row = {"suite": f"[{suite}](#{suite})", "cells": str(record["n_cells"])} | {name: str(counts[name]) for name in names}
        cpu_s = f"{record['cpu_s']:.0f}" if "cpu_s" in record else ""
        rows.append(row | {"version": str(record["version"]), "finished": record["finished_at"][:10], "CPU (s)": cpu_s})
    cells = str(sum(record["n_cells"] for record in papers().values()))
    all_cpu_s = sum(record.get("cpu_s", math.nan) for record in papers().values())
    ends = {"version": "", "finished": "", "CPU (s)": "" if math.isnan(all_cpu_s) else f"{all_cpu_s:.0f}"}
    return [*rows, {"suite": "all", "cells": cells} | {name: str(total[name]) for name in names} | ends]


def adaptive(record: dict[str, Any]) -> Rows:
    """Return the runs that an interval takes: as planned, and with one number for all; what is saved, and how often it holds."""
    rows = []
    for suite, of_suite in ((suite, record[suite]) for suite in record if suite != "simulated"):
        for half_width in dict.fromkeys(row["half_width"] for row in of_suite["rows"]):
            senders = [row for row in of_suite["rows"] if row["half_width"] == half_width]
            most = max(row["equal"] for row in senders)
            numbers = [name for name in senders[0] if name not in ("sender", "half_width")]
            mean = {"sender": "mean"} | {name: fmean(row[name] for row in senders) for name in numbers}
            for row in [*senders, mean]:
                told = {"suite": suite, "half-width": f"{half_width:g}", "sender": row["sender"]}
                told |= {name: f"{row[name]:.0f}" for name in ("planned", "forecast", "equal")}
                told |= {"saved": f"{1 - row['planned'] / most:.0%}", "for one": f"{1 - row['planned'] / row['equal']:.0%}"}
                rows.append(told | {"known variances": f"{row['bound']:.0f}", "coverage": f"{row['coverage']:.3f}"})
    return rows


def statements(suite: str) -> Rows:
    """Return published and measured values of a paper's suite, and what was changed to find the cause of a difference."""
    rows = []
    for one, cause in explained(suite):
        measured = "" if one["measured"] is None else f"{one['measured']:.4g}"
        agreement = one["agreement"] + (f": {cause['why']}" if cause["why"] else "")
        row = {"statement": one["name"], "source": one["source"], "published": one["claim"], "here": measured}
        changed = "; ".join(f"{_changes(switch['change'])}: {switch['measured']:.4g}" for switch in cause["cause"])
        rows.append(row | {"agreement": agreement, "changed, and what it gives": changed})
    return rows


def explained(suite: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the recorded comparisons of a suite, each with its cause as the suite's file has it today.

    Raises:
        InputError: for a record of another version of the suite.
    """
    record, today = papers()[suite], as_suite(suite)
    names = [one["name"] for one in record["references"]]
    if record["suite_sha256"] != today.sha256 or names != [reference.name for reference in today.references]:
        recorded = f"version {record['version']} ({record['suite_sha256'][:8]}, {len(names)} statements)"
        now = f"version {today.version} ({today.sha256[:8]}, {len(today.references)} statements)"
        raise InputError(f"the record of suite {suite} is of its {recorded}; the suite is now {now}: record it again")
    return [
        (one, explain(reference, one["measured"], one["published"], one["agreement"]))
        for one, reference in zip(record["references"], today.references, strict=True)
    ]


def _changes(change: Mapping[str, Any]) -> str:
    """Return changes of a suite's file in a line: the last steps of each path, and the values."""
    values: dict[str, list[str]] = {}
    for path, value in change.items():
        values.setdefault(json.dumps(value), []).append("/".join(path.split("/")[-2:]))
    return ", ".join(f"`{' and '.join(dict.fromkeys(paths))}` = `{value}`" for value, paths in values.items())


def quic(record: Mapping[str, Any]) -> Rows:
    """Return the suite quic-v1: shares of the link, and of pairs those of the first flow; ``none`` where nothing was run."""
    heads = {
        "calm_small": "calm, .5 BDP", "calm_large": "calm, 6 BDP", "attacked": "attacked", "searched": "searched",
        "own_kind": "own kind", "against": "against", "late": "latecomer", "rtt_20_80": "RTT 20/80",
    }  # fmt: skip
    cells = [{head: "none" if row[key] is None else f"{row[key]:.3f}" for key, head in heads.items()} for row in record["rows"]]
    return [{"in": row["stack"], "sender": row["sender"]} | one for row, one in zip(record["rows"], cells, strict=True)]


BESIDE = "beside*"  # scenarios with another sender
OWN = "[own]"
DIGITS = 3


class Column(NamedTuple):
    """A column: the mean of a metric over the cells of some scenarios, times a factor.

    Attributes:
        factor: to the unit of the column.
        scenario: pattern of the scenarios that count.
        left_out: pattern of scenarios to exclude from them.
        whole: undefined if any of the cells is.
        ratio: use the geometric mean.
    """

    metric: str
    factor: float = 1.0
    scenario: str = "*"
    left_out: str = ""
    whole: bool = False
    ratio: bool = False


LINKS = {
    "utilisation": Column("utilisation", left_out=BESIDE),
    "p50 delay (ms)": Column(f"queueing_delay_p50_s{OWN}", 1e3, left_out=BESIDE),
    "p95": Column(f"queueing_delay_p95_s{OWN}", 1e3, left_out=BESIDE),
    "p99": Column(f"queueing_delay_p99_s{OWN}", 1e3, left_out=BESIDE),
    "loss (%)": Column(f"loss_fraction{OWN}", 1e2, left_out=BESIDE),
    "power": Column("power", left_out=BESIDE),
    "beside CUBIC (Mbit/s)": Column(f"throughput_mbps{OWN}", scenario=BESIDE),
}
TRANSFERS = {
    "p50": Column("fct_slowdown_p50", whole=True, ratio=True),
    "web search p50": Column("fct_slowdown_p50", scenario="web-search*", whole=True, ratio=True),
    "web search p99": Column("fct_slowdown_p99", scenario="web-search*", whole=True, ratio=True),
    "Hadoop p50": Column("fct_slowdown_p50", scenario="hadoop*", whole=True, ratio=True),
    "Hadoop p99": Column("fct_slowdown_p99", scenario="hadoop*", whole=True, ratio=True),
    "short p50": Column("fct_slowdown_p50", scenario="short", whole=True, ratio=True),
    "short p99": Column("fct_slowdown_p99", scenario="short", whole=True, ratio=True),
    "incast p50": Column("fct_slowdown_p50", scenario="incast*", whole=True, ratio=True),
    "incast p99": Column("fct_slowdown_p99", scenario="incast*", whole=True, ratio=True),
    "done (%)": Column("fct_done_share", 1e2),
}


def summarise_runs(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the means of each sender over finished runs, one folder per suite; highest power or least median slowdown first.

    Raises:
        InputError: for a folder without such a run.
    """
    suites = {}
    for folder in folders:
        cells, manifest = load_cells(folder), read_manifest(folder)
        by_agent: dict[str, list[dict[str, Any]]] = {}
        for cell in cells:
            by_agent.setdefault(cell["agent"], []).append(cell)
        columns = select_columns(manifest["suite"]["name"])
        senders = {agent: _means(agent_cells, columns) for agent, agent_cells in by_agent.items()}
        ranked = sorted(senders.items(), key=lambda item: _rank(item[1]))
        suites[manifest["suite"]["name"]] = {
            "suite_sha256": manifest["suite_sha256"],
            "code_sha256": manifest["code_sha256"],
            "cells": len(cells),
            "senders": dict(ranked),
        }
    return {"suites": suites}


def select_columns(suite: str) -> dict[str, Column]:
    """Return the columns of a suite's table by their names."""
    return TRANSFERS if suite.startswith("fct-") else LINKS


def _rank(means: dict[str, float | None]) -> float:
    if "power" in means:
        return -(means["power"] or 0.0)
    return math.inf if means["p50"] is None else means["p50"]


def _means(cells: Sequence[dict[str, Any]], columns: dict[str, Column]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name, column in columns.items():
        chosen = [cell for cell in cells if fnmatchcase(cell["scenario"], column.scenario)]
        values = [cell["metrics"][column.metric] for cell in chosen if not fnmatchcase(cell["scenario"], column.left_out)]
        defined = [value for value in values if value is not None]
        counts = defined and (len(defined) == len(values) or not column.whole)
        mean = geometric_mean if column.ratio else fmean
        means[name] = float(f"{column.factor * mean(defined):.{DIGITS}g}") if counts else None
    return means


def senders(record: Mapping[str, Any], suite: str) -> Rows:
    """Return the means of each sender over a suite of links or transfers."""
    return [
        {"sender": f"`{sender}`"} | {name: "-" if value is None else f"{value:g}" for name, value in means.items()}
        for sender, means in record["suites"][suite]["senders"].items()
    ]


GOALS = {
    "utilisation": ("utilisation", "{:.3f}", 1.0),
    "delay": ("mean queueing delay (ms)", "{:.0f}", 1e3),
    "loss": ("lost (%)", "{:.1f}", 1e2),
    "fairness": ("Jain's index of two", "{:.2f}", 1.0),
    "starvation": ("one of two has more than the other, times", "{:.0f}", 1.0),
}


def worst_cases(record: Mapping[str, Any]) -> Rows:
    """Return the worst case of each sender for each goal; senders that keep most of the link come first."""
    rows = []
    senders = record["senders"]
    for name in sorted(senders, key=lambda name: -senders[name]["worst"]["utilisation"]["value"]):
        row = {"sender": f"`{name}`"}
        for goal, (head, form, unit) in GOALS.items():
            found = senders[name]["worst"][goal]
            where = "" if found["scenario"] == goal else f"{found['scenario']}, "
            row[head] = f"{form.format(unit * found['value'])} ({where}`{found['adversary']}`)"
        rows.append(row)
    return rows


BUFFERS = (("05", ".5"), ("1", "1"), ("4", "4"))


def beside(other: str, title: str) -> dict[str, str]:
    """Return the columns of the shares beside another sender, by buffer."""
    return {f"share_{other}_{key}bdp": f"{title}, {head} BDP" for key, head in BUFFERS}


# Number -> head of its column, by table.
COEXISTENCE: dict[str, dict[str, str]] = {
    "fairness": {
        "jain_2": "Jain 2",
        "jain_4": "Jain 4",
        "jain_8": "Jain 8",
        "jain_rtt_20_80": "20 / 80 ms",
        **beside("cubic", "CUBIC"),
        **beside("bbr1", "BBRv1"),
        "utilisation": "utilisation",
        "p95_queue_rtts": "p95 queue",
    },
    "inter": {
        **beside("bbr3", "BBRv3"),
        **beside("copa", "Copa"),
        "share_worst": "worst share",
        "harm": "harm",
        "loss_bbr1_1bdp": "loss beside BBRv1, 1 BDP",
        "loss_8": "loss of 8",
    },
    "flows": {
        "p95_queue_rtts_1": "p95 queue of 1",
        "p95_queue_rtts_2": "of 2",
        "p95_queue_rtts_4": "of 4",
        "p95_queue_rtts_8": "of 8",
        "convergence_s": "convergence (s)",
        "churn_share": "churn",
        "delayed_acks_jain": "delayed ACKs: Jain",
        "delayed_acks_utilisation": "delayed ACKs: use",
        "one_delayed_jain": "one delayed: Jain",
        "aggregation_jain": "aggregation: Jain",
        "aggregation_utilisation": "aggregation: use",
        "loss_jain": "1 % loss: Jain",
        "loss_utilisation": "1 % loss: use",
    },
}


BELIEFS = {
    **{name: head for name, head in COEXISTENCE["fairness"].items() if name.startswith(("jain_2", "jain_4", "jain_8", "share_"))},
    **{name: head for name, head in COEXISTENCE["inter"].items() if name in ("share_worst", "harm", "loss_8")},
    "harm_cubic": "harm to CUBIC",
}


def coexistence(record: Mapping[str, Any], columns: Mapping[str, str]) -> Rows:
    """Return numbers of each sender of the suite company."""
    rows = []
    for name, sender in record["senders"].items():
        numbers = sender["numbers"]
        texts = {head: "" if numbers[key] is None else f"{numbers[key]:.2f}" for key, head in columns.items()}
        rows.append({"sender": f"`{name}`", **texts})
    return rows


def select(run: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a record in docs/data, and what it keeps of a run.

    Raises:
        InputError: if it is no whole run of company or worst-case-v2, nor one of the cells own and beside for senders by beliefs.
    """
    suite, complete = run.get("suite", {}).get("name"), run.get("complete")
    if suite == "worst-case-v2" and complete:
        senders = {one["agent"]: {"sha256": one["agent_sha256"], "worst": one["worst_by_goal"]} for one in run["summary"]}
        return f"{suite}.json", {name: run[name] for name in KEPT} | {"senders": dict(sorted(senders.items()))}
    if suite != "company":
        raise InputError("not a finished run of company or worst-case-v2; print one: ccenv bench run worst-case-v2 --json")
    if not complete and run.get("n_cells") != 60 * len(run.get("agents", ())):
        raise InputError(
            "not a finished run of company, nor one with 60 cells a sender: --only 'own*/SENDER/*' --only 'beside*/SENDER/*'"
        )
    hashes = {player["label"]: player["sha256"] for player in run["players"]}
    senders = {
        name: {"sha256": hashes[name], "numbers": numbers if complete else {key: numbers[key] for key in BELIEFS}}
        for name, numbers in run["agents"].items()
    }
    return f"company{'' if complete else '-beliefs'}.json", {name: run[name] for name in KEPT} | {"senders": senders}


if __name__ == "__main__":
    sources = [Path(name) for name in sys.argv[1:]]
    if all(source.is_dir() for source in sources):
        means = summarise_runs(sources)
        write_atomic(DATA / ("flows.json" if "fct-v1" in means["suites"] else "links.json"), json_bytes(means))
    else:
        for source in sources:
            name, content = select(read_json(source))
            write_atomic(DATA / name, (json.dumps(content) + "\n").encode())
