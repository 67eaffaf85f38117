"""The report of a run: one HTML page that needs no network; figures as files beside it, their numbers as CSV."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
from collections import Counter
from pathlib import Path as FilePath
from typing import Any

from ccenv.benchmarks.report.figures import DPI, draw, table
from ccenv.benchmarks.results import how_to_run, suite_in
from ccenv.benchmarks.store import CELLS, cells_of, read_manifest
from ccenv.benchmarks.report.profiles import draw_profiles
from ccenv.benchmarks.suite.base import SuiteBase
from ccenv.benchmarks.suite.references import NOT_MEASURED, NOT_REPRODUCED, REPRODUCED, SAME_DIRECTION
from ccenv.base.errors import InputError
from ccenv.base.files import make_folder, write_atomic
from ccenv.network.figure import picture

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
    """Write the report of a run into its folder.

    Args:
        folder: of ``ccenv bench run``.

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
    suite = suite_in(manifest, f"{folder}/manifest.json")
    records = cells_of(folder)
    make_folder(folder / FOLDER)
    drawn, files = _figures(suite, records, folder / FOLDER)
    _write_csv(folder / FOLDER / "references.csv", _reference_rows(manifest["references"]))
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


def _reference_rows(references: list[dict[str, Any]]) -> list[list[Any]]:
    names = ["name", "claim", "published", "measured", "ratio", "n_cells", "agreement", "source", "why"]
    return [names, *([reference[name] for name in names] for reference in references)]


def _page(suite: SuiteBase, manifest: dict[str, Any], drawn: list[tuple[str, str, str, bytes]], folder: FilePath) -> str:
    e = html.escape
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
    parts.append(_how(suite, manifest, folder))
    return "\n".join(parts) + "\n</body></html>\n"


def _agreement(references: list[dict[str, Any]]) -> str:
    e = html.escape
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
    e = html.escape
    rows = []
    for entry in manifest["summary"]:
        score = entry["score"]
        interval = _number(score["iqm"]) if score else ""
        if score and score["low"] < score["high"]:  # equal where no case has two runs
            interval += f" [{_number(score['low'])}, {_number(score['high'])}]"
        means = entry["against"][suite.score.adversary]
        cells = "".join(f'<td class="n">{_number(means.get(name))}</td>' for name in suite.metrics)
        worst = entry["worst_case"]
        found = f"{_number(worst['value'])} in {e(worst['scenario'])}" if worst else ""
        rows.append(f'<tr><td>{e(entry["agent"])}</td><td class="n">{interval}</td>{cells}<td>{found}</td></tr>')
    head = "".join(f"<th class=n>{e(suite.measure(name).label)}</th>" for name in suite.metrics)
    score_label = f"{suite.measure(suite.score.metric).label}: IQM and 95 % interval"
    worst_label = f"worst {suite.measure(suite.worst_case.metric).label}"
    return (
        f"<h2>Senders</h2><p>Means over all cells against {e(suite.score.adversary)}.</p><div class=scroll><table><thead><tr>"
        f"<th>Sender</th><th class=n>{e(score_label)}</th>{head}<th>{e(worst_label)}</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _how(suite: SuiteBase, manifest: dict[str, Any], folder: FilePath) -> str:
    e = html.escape
    machine, versions = manifest["machine"], manifest["versions"]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    where = f"{manifest['n_cells']} cells, finished {manifest['finished_at']} on {machine.get('processor')} with {packages}."
    hashes = f"Suite <code>{e(manifest['suite_sha256'][:16])}</code>, code <code>{e(manifest['code_sha256'][:16])}</code>."
    commands = "\n".join(how_to_run(suite, manifest, folder))
    return (
        f"<h2>Run it again</h2><pre>{e(commands)}</pre><p>{e(where)} {hashes} "
        "All numbers: <code>cells.jsonl</code>, <code>cells.parquet</code>.</p>"
    )


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4g}"
