"""The report of a run: a self-contained HTML page with figures, their numbers as CSV, and the trace of each worst case."""

from __future__ import annotations

import base64
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from html import escape as e
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.errors import EngineError, InputError
from ccenv.base.figure import finish, panels, picture, save
from ccenv.base.files import make_folder, write_atomic
from ccenv.benchmarks.cells.cell import TraceCell
from ccenv.benchmarks.report.figures import DPI, draw, table
from ccenv.benchmarks.results import commands_to_rerun, read_suite
from ccenv.benchmarks.statistics import performance_profile
from ccenv.benchmarks.store import CELLS, load_cells, read_manifest
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.references import NOT_MEASURED, NOT_REPRODUCED, REPRODUCED, SAME_DIRECTION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PICTURE, TRACES = "summary.png", "traces"
_MARKERS = "os^Dv<>P*X"
_DPI = 120


def write_worst_traces(
    out: FilePath, cells: Sequence[TraceCell], records: list[dict[str, Any]], summary: list[dict[str, Any]]
) -> None:
    """Replay the worst case of each sender, compare it with its record, and store its trace and plot in the run folder.

    Adds ``trace`` and ``plot``, file names relative to the run folder ``out``, to the worst cases of ``summary`` in place. Raises
    EngineError if a repeated cell has other metrics than its record; CcenvError if a file cannot be written.
    """
    by_key = {cell.key: cell for cell in cells}
    metrics_of = {record["key"]: record["metrics"] for record in records}
    make_folder(out / TRACES)
    for entry in summary:
        worst = entry["worst_case"]
        if worst is None:
            continue
        stem = f"{TRACES}/{re.sub('[^A-Za-z0-9_.-]', '-', entry['agent'])}-{worst['key'][:12]}"
        worst["trace"], worst["plot"] = f"{stem}.npz", f"{stem}.png"
        cell = by_key.get(worst["key"])  # None: agent of an earlier run, whose files exist
        if cell is not None and not ((out / worst["trace"]).exists() and (out / worst["plot"]).exists()):
            _write_trace(out, cell, metrics_of[cell.key], worst)


def _write_trace(out: FilePath, cell: TraceCell, metrics: dict[str, Any], worst: dict[str, Any]) -> None:
    from ccenv.network.figure import plot_trace

    trace = cell.trace()
    again = cell.values(trace)
    if again != metrics:
        raise EngineError(f"cell {cell.name}: played again it has metrics {again}, its record says {metrics}")
    trace.save(out / worst["trace"])
    plot_trace(trace, out / worst["plot"])


def write_picture(suite: SuiteBase, records: list[dict[str, Any]], summary: list[dict[str, Any]], file: FilePath) -> None:
    """Draw utilisation against queueing delay per sender and adversary, and the nominal scores with their intervals, as a .png.

    Raises CcenvError if the file cannot be written.
    """
    figure, (left, right) = panels(1, 2, (12, 5.2))
    _scatter(suite, records, [entry["agent"] for entry in summary], left)
    _bars(suite, summary, right)
    figure.suptitle(f"suite {suite.name}, version {suite.version}")
    save(figure, file, _DPI)


def _scatter(suite: SuiteBase, records: list[dict[str, Any]], agents: list[str], ax: Axes) -> None:
    """Draw a point per sender and adversary: means over scenarios and seeds, delay in Rm; up and left is better."""
    for colour, agent in enumerate(agents):
        for marker, adversary in zip(_MARKERS, suite.opponents, strict=False):
            points = [p for r in records if r["agent"] == agent and r["adversary"] == adversary and (p := _point(r))]
            if points:
                x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
                ax.plot(x, y, marker, color=f"C{colour % 10}", markersize=7, linestyle="none")
    ax.set_xlim(left=0)
    handles = [ax.plot([], [], "o", color=f"C{i % 10}", label=agent)[0] for i, agent in enumerate(agents)]
    handles += [
        ax.plot([], [], marker, color="grey", label=f"against {adversary}", linestyle="none")[0]
        for marker, adversary in zip(_MARKERS, suite.opponents, strict=False)
    ]
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": 3, "frameon": False}
    finish(ax, "mean queueing delay (Rm)", "utilisation", handles=handles, **place)


def _point(record: dict[str, Any]) -> tuple[float, float] | None:
    delay_s, utilised = record["metrics"].get("queueing_delay_mean_s"), record["metrics"].get("utilisation")
    if delay_s is None or utilised is None:
        return None
    return delay_s / min(flow["rtt_s"] for flow in record["path"]["flows"]), utilised


def _bars(suite: SuiteBase, summary: list[dict[str, Any]], ax: Axes) -> None:
    from matplotlib.patches import Patch

    entries = [entry for entry in summary if entry["score"] is not None][::-1]
    for row, entry in enumerate(entries):
        score = entry["score"]
        ax.barh(row + 0.18, score["iqm"], 0.34, color="C0")
        ax.plot([score["low"], score["high"]], [row + 0.18] * 2, color="black", linewidth=1.5)
        if entry["worst_case"] is not None:
            ax.barh(row - 0.18, entry["worst_case"]["value"], 0.34, color="C1")
    ax.set_yticks(range(len(entries)), [entry["agent"] for entry in entries])
    score, worst = suite.measure(suite.score.metric), suite.measure(suite.worst_case.metric)
    handles = [
        Patch(color="C0", label=f"{score.label} against {suite.score.adversary}: IQM, 95 % interval"),
        Patch(color="C1", label=f"worst {worst.label} found"),
    ]
    ax.legend(handles=handles, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
    ax.grid(alpha=0.25, axis="x")


POINTS = 200


def draw_profiles(suite: SuiteBase, records: list[dict[str, Any]]) -> Canvas | None:
    """Draw the performance profile of each sender's nominal score with its 95 % interval; None with fewer than two senders."""
    metric = suite.measure(suite.score.metric)
    by_agent: dict[str, dict[str, list[float]]] = {}
    for record in records:
        value = record["metrics"].get(metric.name)
        if value is not None and record["adversary"] == suite.score.adversary:
            by_agent.setdefault(record["agent"], {}).setdefault(record["scenario"], []).append(value)
    if len(by_agent) < 2:
        return None
    every = [value for tasks in by_agent.values() for values in tasks.values() for value in values]
    thresholds = np.linspace(min(0.0, *every), max(every), POINTS)
    canvas, (ax,) = panels(1, 1, (7.5, 4))
    for agent, tasks in by_agent.items():
        share, low, high = performance_profile({name: np.array(values) for name, values in tasks.items()}, thresholds)
        (line,) = ax.plot(thresholds, share, linewidth=1.2, label=agent)
        ax.fill_between(thresholds, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.set_ylim(0, 1.02)
    label = metric.label + (f" ({metric.unit})" if metric.unit else "")
    finish(ax, label, "share of runs above", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return canvas


PAGE, FOLDER = "report.html", "report"
_CLASSES = {REPRODUCED: "good", SAME_DIRECTION: "near", NOT_REPRODUCED: "bad", NOT_MEASURED: "none"}
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1,h2{line-height:1.2}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}figure{margin:1.5rem 0}figure img{max-width:100%;height:auto}figcaption{color:#555;font-size:.9rem}
.good{color:#0a6b2d;font-weight:600}.near{color:#8a5a00;font-weight:600}.bad{color:#a11212;font-weight:600}.none{color:#666}
code,pre{background:#f4f4f4;padding:.1rem .3rem}pre{padding:.6rem;overflow-x:auto}small,.why{color:#555}td small{display:block}
"""


def build_report(folder: FilePath) -> dict[str, Any]:
    """Write the report of a run of ``ccenv bench run`` into its folder.

    Returns:
        dict: ``page``, ``figures`` (files), ``agreement`` (how many published values are reproduced, in the same direction, ...).

    Raises:
        InputError: if the folder holds no run, or one that has not finished any cell.
        CcenvError: if a file cannot be written.
    """
    manifest = read_manifest(folder)
    file = folder / CELLS
    if "summary" not in manifest or not file.exists():
        raise InputError(f"{folder}: the run has not ended yet: run the same command again, then report")
    suite = read_suite(manifest, f"{folder}/manifest.json")
    records = load_cells(folder)
    make_folder(folder / FOLDER)
    drawn, files = _figures(suite, records, folder / FOLDER)
    names = ["name", "claim", "published", "measured", "ratio", "n_cells", "agreement", "source", "why"]
    rows = [[reference[name] for name in names] for reference in manifest["references"]]
    _write_csv(folder / FOLDER / "references.csv", [names, *rows])
    page = _page(suite, manifest, drawn, folder)
    write_atomic(folder / PAGE, page.encode())
    agreement = Counter(reference["agreement"] for reference in manifest["references"])
    return {"page": folder / PAGE, "figures": files, "agreement": dict(sorted(agreement.items()))}


def _figures(
    suite: SuiteBase, records: list[dict[str, Any]], folder: FilePath
) -> tuple[list[tuple[str, str, str, bytes]], list[str]]:
    drawn, files = [], []
    for figure in suite.figures:
        canvas = draw(suite, records, figure)
        if canvas is None:
            continue
        png = picture(canvas, ".png", DPI)
        write_atomic(folder / f"{figure.name}.png", png)
        write_atomic(folder / f"{figure.name}.svg", picture(canvas, ".svg", DPI))
        _write_csv(folder / f"{figure.name}.csv", table(suite, records, figure))
        files += [f"{FOLDER}/{figure.name}.{suffix}" for suffix in ("png", "svg", "csv")]
        drawn.append((figure.name, figure.title or figure.name, figure.source, png))
    canvas = draw_profiles(suite, records)
    if canvas is not None:
        png = picture(canvas, ".png", DPI)
        write_atomic(folder / "profiles.png", png)
        files.append(f"{FOLDER}/profiles.png")
        drawn.append(("profiles", f"Performance profiles of {suite.measure(suite.score.metric).label}", "RLiable s.4", png))
    return drawn, files


def _write_csv(file: FilePath, rows: list[list[Any]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    write_atomic(file, out.getvalue().encode())


def _page(suite: SuiteBase, manifest: dict[str, Any], drawn: list[tuple[str, str, str, bytes]], folder: FilePath) -> str:
    missing = "" if manifest["complete"] else f'<p class="bad">{manifest["n_missing"]} cells are missing.</p>'
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{e(suite.name)} version {suite.version}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{e(suite.name)} <small>version {suite.version}</small></h1><p>{e(suite.summary)}</p>{missing}",
    ]
    if manifest["references"]:
        parts.append(_agreement(manifest["references"]))
    for name, title, source, png in drawn:
        data = base64.b64encode(png).decode()
        caption = f"{e(title)}{'; ' + e(source) if source else ''}"
        link = f' (<a href="{FOLDER}/{name}.csv">numbers</a>)' if name != "profiles" else ""
        parts.append(
            f'<figure><img alt="{e(title)}" src="data:image/png;base64,{data}"><figcaption>{caption}{link}</figcaption></figure>'
        )
    parts.append(_senders(suite, manifest))
    if suite.notes:
        parts.append(f"<h2>What differs from the source</h2><p>{e(suite.notes)}</p>")
    parts.append(_provenance(suite, manifest, folder))
    return "\n".join(parts) + "\n</body></html>\n"


def _agreement(references: list[dict[str, Any]]) -> str:
    counts = Counter(reference["agreement"] for reference in references)
    line = ", ".join(f'<span class="{_CLASSES[name]}">{counts[name]} {name}</span>' for name in _CLASSES if counts[name])
    rows = []
    for r in references:
        interval = f"[{_number(r['interval'][0])}, {_number(r['interval'][1])}]" if r["interval"] else ""
        why = f'<div class="why">{e(r["why"])}</div>' if r["why"] else ""
        rows.append(
            f"<tr><td>{e(r['name'])}{why}<small>{e(r['source'])}</small></td><td>{e(r['claim'])}</td>"
            f'<td class="n">{_number(r["measured"])}</td><td class="n">{interval}</td><td class="n">{_number(r["ratio"])}</td>'
            f'<td class="n">{r["n_cells"]}</td><td class="{_CLASSES[r["agreement"]]}">{r["agreement"]}</td></tr>'
        )
    head = "<th>Statement<th>Published<th class=n>Here<th class=n>95 % of the IQM<th class=n>Ratio<th class=n>Cells<th>Agreement"
    return (
        f"<h2>Beside the source</h2><p>{line}.</p>"
        f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _senders(suite: SuiteBase, manifest: dict[str, Any]) -> str:
    rows = []
    for entry in manifest["summary"]:
        score = entry["score"]
        interval = _number(score["iqm"]) if score else ""
        if score and score["low"] < score["high"]:  # equal where no case has two runs
            interval += f" [{_number(score['low'])}, {_number(score['high'])}]"
        means = entry["against"][suite.score.adversary]
        cells = "".join(f'<td class="n">{_number(means.get(name))}</td>' for name in suite.metrics)
        worst = entry["worst_case"]
        worst_text = f"{_number(worst['value'])} in {e(worst['scenario'])}" if worst else ""
        rows.append(f'<tr><td>{e(entry["agent"])}</td><td class="n">{interval}</td>{cells}<td>{worst_text}</td></tr>')
    head = "".join(f"<th class=n>{e(suite.measure(name).label)}</th>" for name in suite.metrics)
    score_label = f"{suite.measure(suite.score.metric).label}: IQM and 95 % interval"
    worst_label = f"worst {suite.measure(suite.worst_case.metric).label}"
    return (
        f"<h2>Senders</h2><p>Means over all cells against {e(suite.score.adversary)}.</p><div class=scroll><table><thead><tr>"
        f"<th>Sender</th><th class=n>{e(score_label)}</th>{head}<th>{e(worst_label)}</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _provenance(suite: SuiteBase, manifest: dict[str, Any], folder: FilePath) -> str:
    machine, versions = manifest["machine"], manifest["versions"]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    provenance = f"{manifest['n_cells']} cells, finished {manifest['finished_at']} on {machine.get('processor')} with {packages}."
    hashes = f"Suite <code>{e(manifest['suite_sha256'][:16])}</code>, code <code>{e(manifest['code_sha256'][:16])}</code>."
    commands = "\n".join(commands_to_rerun(suite, manifest, folder))
    return (
        f"<h2>Run it again</h2><pre>{e(commands)}</pre><p>{e(provenance)} {hashes} "
        "All numbers: <code>cells.jsonl</code>, <code>cells.parquet</code>.</p>"
    )


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
