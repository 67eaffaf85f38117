"""The pages: static HTML from a board. Two builds from the same records are equal to the last byte."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

from ccenv import __version__
from ccenv.errors import CcenvError, InputError, require_extra
from ccenv.leaderboard.board import Board, Entry, Finding, Result, Table, make_board, worst_by_adversary
from ccenv.leaderboard.records import VerificationRecord, read_records
from ccenv.metrics import METRICS, Metric, get_metric

DATA = "board.json"
FORMAT = "ccenv-board"
DASH = "\N{EN DASH}"
_STATIC = ("board.js", "style.css")


def build_site(records: Sequence[FilePath], out: FilePath) -> dict[str, Any]:
    """Build the site from records.

    Args:
        records: folders with benchmark runs and verification records.
        out: folder of the site; an older board there is replaced, anything else is not touched.

    Returns:
        dict: ``index`` (path of the page), numbers of suites, senders and verifications.

    Raises:
        MissingExtraError: without Jinja2.
        InputError: for damaged records, none at all, or an ``out`` that holds something else.
        CcenvError: if the site cannot be written.
    """
    require_extra("jinja2", "board")
    benches, verifications = read_records(records)
    if not benches:
        places = ", ".join(str(place) for place in records)
        raise InputError(f"no finished benchmark below {places}: run one first, e.g. ccenv bench run quick")
    board = make_board(benches, verifications)
    _replace(out, _pages(board), _copies(board))
    return {
        "index": out / "index.html",
        "suites": len(board.tables),
        "senders": len(board.entries),
        "verifications": len(verifications),
    }


def _pages(board: Board) -> dict[str, str]:
    """Return file name -> content of everything that is text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ccenv.leaderboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "quantity": quantity}
    shared = {"version": __version__, "metrics": METRICS}
    tables = [_table_view(board, table) for table in board.tables]
    pages = {
        "index.html": environment.get_template("index.html").render(shared, tables=tables, root=""),
        "method.html": environment.get_template("method.html").render(shared, tables=tables, root=""),
    }
    template = environment.get_template("sender.html")
    for entry in board.entries.values():
        view = _entry_view(entry)
        pages[f"senders/{entry.slug}.html"] = template.render(shared, entry=entry, view=view, root="../")
    folder = resources.files("ccenv.leaderboard") / "static"
    pages |= {name: folder.joinpath(name).read_text(encoding="utf-8") for name in _STATIC}
    pages[DATA] = json.dumps(_data(board), indent=1, sort_keys=True, allow_nan=False) + "\n"
    return pages


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with a fixed count of decimals, a dash where there is none."""
    return DASH if value is None else f"{value:.{digits}f}"


def quantity(value: float | None, metric: Metric) -> str:
    """Return a metric's value as people read it: delays in milliseconds, loss in per cent, ratios with three decimals."""
    if value is None:
        return DASH
    if metric.unit == "s":
        return f"{value * 1e3:.1f}"
    return f"{value * 100:.2f}" if metric.name == "loss_fraction" else f"{value:.3f}"


def shown_unit(metric: Metric) -> str:
    """Return the unit that ``quantity`` uses."""
    return "ms" if metric.unit == "s" else "%" if metric.name == "loss_fraction" else metric.unit


def _trace_link(finding: Finding | None, suffix: str) -> str | None:
    """Return where the site keeps the trace or plot of a worst case, None where the run has none."""
    if finding is None:
        return None
    name = finding.case.trace if suffix == "npz" else finding.case.plot
    if name is None or not (finding.record.folder / name).is_file():
        return None
    return f"traces/{finding.case.key[:32]}.{suffix}"


def _table_view(board: Board, table: Table) -> dict[str, Any]:
    """Return what the template shows of a suite: numbers formatted once, in one place."""
    suite = table.suite
    shown = [get_metric(name) for name in suite.metrics if name != suite.score.metric]
    rows = []
    for number_, (first, last, result) in enumerate(table.rows, start=1):
        entry = board.entry(result.player)
        rows.append(
            {
                "number": number_,
                "rank": str(first) if first == last else f"{first}{DASH}{last}",
                "result": result,
                "entry": entry,
                "means": [(metric, result.summary.against[suite.score.adversary].get(metric.name)) for metric in shown],
                "worst": entry.worst,
                "trace": _trace_link(entry.worst, "npz"),
                "plot": _trace_link(entry.worst, "png"),
                "by_adversary": worst_by_adversary(result, suite.adversaries, get_metric(suite.worst_case.metric)),
            }
        )
    return {
        "suite": suite,
        "sha256": table.sha256,
        "superseded": table.superseded,
        "score": get_metric(suite.score.metric),
        "worst_metric": get_metric(suite.worst_case.metric),
        "columns": [(metric, shown_unit(metric)) for metric in shown],
        "rows": rows,
        "scatter": _scatter(table),
        "manifests": table.manifests,
    }


def _scatter(table: Table) -> dict[str, Any]:
    """Place utilisation against mean queueing delay (in Rm), against the nominal adversary, in a 640 x 320 plot."""
    points = []
    for number_, (_, _, result) in enumerate(table.rows, start=1):
        place = _mean_point(result, table.suite.score.adversary)
        if place is not None:
            points.append((number_, result.player.label, *place))
    widest = max([1.0, *(delay for _, _, delay, _ in points)])
    lowest = min([0.9, *(used for _, _, _, used in points)])
    low = max(0.0, int(lowest * 10) / 10)

    def x(delay: float) -> float:
        return round(56 + 560 * delay / (widest * 1.05), 1)

    def y(used: float) -> float:
        return round(16 + 256 * (1.02 - used) / (1.02 - low), 1)

    step = 0.02 if low >= 0.9 else 0.1 if low >= 0.5 else 0.2
    across = next(s for s in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 1e9) if widest / s <= 8)
    return {
        "points": [{"number": n, "label": name, "x": x(d), "y": y(u), "delay": d, "used": u} for n, name, d, u in points],
        "x_ticks": [(x(i * across), f"{i * across:g}") for i in range(int(widest / across) + 1)],
        "y_ticks": [(y(1 - i * step), f"{1 - i * step:.2f}") for i in range(int((1 - low) / step + 1e-9) + 1)],
    }


def _mean_point(result: Result, adversary: str) -> tuple[float, float] | None:
    points = []
    for cell in result.cells:
        delay_s, used = cell.metrics.get("queueing_delay_mean_s"), cell.metrics.get("utilisation")
        if cell.adversary == adversary and delay_s is not None and used is not None:
            points.append((delay_s / cell.rtt_s, used))
    if not points:
        return None
    return sum(d for d, _ in points) / len(points), sum(u for _, u in points) / len(points)


def _entry_view(entry: Entry) -> dict[str, Any]:
    """Return what a sender's page shows beside the entry itself."""
    suites = []
    for result in entry.results:
        suite = result.record.manifest.suite
        metrics = [get_metric(name) for name in suite.metrics]
        rows = []
        for scenario in dict.fromkeys(cell.scenario for cell in result.cells):
            for adversary in suite.adversaries:
                cells = [c for c in result.cells if c.scenario == scenario and c.adversary == adversary]
                if cells:
                    rows.append(
                        (scenario, adversary, len(cells), [(m, _mean(c.metrics.get(m.name) for c in cells)) for m in metrics])
                    )
        suites.append({"result": result, "suite": suite, "columns": [(m, shown_unit(m)) for m in metrics], "rows": rows})
    return {
        "suites": suites,
        "trace": _trace_link(entry.worst, "npz"),
        "plot": _trace_link(entry.worst, "png"),
        "proofs": [(record.result, _proof_link(record)) for record in entry.verifications],
    }


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def _data(board: Board) -> dict[str, Any]:
    """Return the board for programs: what the pages show, without formatting."""
    tables = [
        {
            "suite": table.suite.name,
            "version": table.suite.version,
            "suite_sha256": table.sha256,
            "rows": [
                {
                    "sender": result.player.label,
                    "sender_sha256": result.player.sha256,
                    "rank": [first, last],
                    "score": None if result.summary.score is None else result.summary.score.model_dump(),
                    "means": result.summary.against[table.suite.score.adversary],
                    "stale": result.stale,
                }
                for first, last, result in table.rows
            ],
        }
        for table in board.tables
    ]
    senders = [
        {
            "sender": entry.player.label,
            "sender_sha256": entry.player.sha256,
            "kind": entry.player.kind,
            "worst_case": None if entry.worst is None else {"suite": entry.worst.suite, **entry.worst.case.model_dump()},
            "verifications": [v.result.model_dump() for v in entry.verifications],
        }
        for entry in board.entries.values()
    ]
    return {"format": FORMAT, "format_version": 1, "tables": tables, "senders": senders}


def _proof_link(record: VerificationRecord) -> str | None:
    """Return where the site keeps the trace of a counterexample, None where there is none."""
    trace = record.result.trace
    if trace is None or not (record.folder / trace).is_file():
        return None
    return f"traces/proof-{record.result.queries[-1].sha256[:16]}.npz"


def _copies(board: Board) -> dict[str, FilePath]:
    """Return file name -> source of the traces and plots that the pages link."""
    out: dict[str, FilePath] = {}
    for entry in board.entries.values():
        if entry.worst is not None:
            for suffix, source in (("npz", entry.worst.case.trace), ("png", entry.worst.case.plot)):
                link = _trace_link(entry.worst, suffix)
                if link is not None and source is not None:
                    out[link] = entry.worst.record.folder / source
        for record in entry.verifications:
            link = _proof_link(record)
            if link is not None and record.result.trace is not None:
                out[link] = record.folder / record.result.trace
    return out


def _replace(out: FilePath, pages: dict[str, str], copies: dict[str, FilePath]) -> None:
    """Put the site in place of an older one at once; refuse a folder that holds anything else."""
    if out.exists() and not (out.is_dir() and ((out / DATA).is_file() or not any(out.iterdir()))):
        raise InputError(f"{out} holds something that is not a board: give another --out")
    beside = out.resolve().with_name(f".{out.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        for folder in (beside, beside / "senders", beside / "traces"):
            folder.mkdir(parents=True)
        for name, text in sorted(pages.items()):
            (beside / name).write_bytes(text.encode())
        for name, source in sorted(copies.items()):
            if source.is_symlink():
                raise InputError(f"{source} is a link: records hold plain files only")
            shutil.copyfile(source, beside / name)
        if out.exists():
            shutil.rmtree(out)
        os.replace(beside, out)
    except OSError as error:
        raise CcenvError(f"{out}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
