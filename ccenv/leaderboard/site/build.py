"""The static HTML pages of a board; equal records give equal bytes."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.files import Format
from ccenv.base.foreign import resolve_inside
from ccenv.base.provenance import VERSION
from ccenv.leaderboard.site import drawing, views
from ccenv.leaderboard.site.board import Board, make_board
from ccenv.leaderboard.site.sections import FOLDER, NO_QUIC, PAGE, Certified, League, Quic, league_view, read_leagues, read_quic
from ccenv.leaderboard.site.sources import Records
from ccenv.proofs.certificates.library import Stored, shipped_folder, stored

if TYPE_CHECKING:
    from jinja2 import Environment

DATA = "board.json"
FORMAT = Format("ccenv-board", 2, "the data of a board's pages", "format_version", sort_keys=True)
_STATIC = ("board.js", "style.css")
_FOLDERS = ("entries", "suites", "traces", "submissions", FOLDER)


def build_site(
    records: Records,
    out: FilePath,
    certificates: Sequence[FilePath] = (),
    leagues: Sequence[FilePath] = (),
    quic: Sequence[FilePath] = (),
) -> dict[str, Any]:
    """Build the site; return ``index`` (path of the page) and the numbers of suites, senders, adversaries, proofs and leagues.

    Raises:
        MissingExtraError: without Jinja2.
        InputError: for damaged records, a certificate, league or QUIC record that is refused, or an ``out`` with other files.
        CcenvError: if the site cannot be written.
    """
    require_extra("jinja2", "board")
    certified = Certified([*_shipped(), *(one for folder in certificates for one in stored(folder))])
    played = read_leagues(list(leagues))
    board = make_board(records, certified)
    _replace(out, site_files(board, played, read_quic(quic)))
    return {
        "index": out / "index.html",
        "suites": len(board.tables),
        "senders": len(board.entries),
        "adversaries": len(board.damages),
        "verifications": len(records.verifications) + len(records.envelopes),
        "theorems": sum(len(entry.theorems) for entry in board.entries.values()),
        "leagues": len(played),
    }


def site_files(board: Board, leagues: Sequence[League] = (), quic: Quic = NO_QUIC) -> dict[str, bytes]:
    return _pages(board, leagues, quic) | _copies(board) | {league.link: league.content for league in leagues}


@cache
def _shipped() -> list[Stored]:
    """Return the shipped certificates, read once in a process."""
    return stored(shipped_folder())


@cache
def _templates() -> Environment:
    """Return the templates, each compiled once in a process."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ccenv.leaderboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": views.number,
        "at_least": views.at_least,
        "at_most": views.at_most,
        "bounded": views.bounded,
        "quantity": views.quantity,
        "interval_path": lambda score: drawing.interval_path(score.low, score.high),
        "interval_point": drawing.interval_point,
    }
    return environment


def _pages(board: Board, leagues: Sequence[League], quic: Quic) -> dict[str, bytes]:
    tables = [views.table_view(board, table) for table in board.tables]
    damages = views.damage_view(board)
    views_of_leagues = [league_view(league) for league in leagues]
    shared = {"version": VERSION, "board": board, "tables": tables, "damages": damages, "leagues": views_of_leagues}

    def page(template: str, root: str, **context: Any) -> bytes:
        return _templates().get_template(template).render(shared, root=root, **context).encode()

    pages = {
        "index.html": page("index.html", "", **_index(board, quic)),
        "adversaries.html": page("adversaries.html", ""),
        "method.html": page("method.html", "", metrics=views.metrics_of(board)),
    }
    if leagues:
        pages[PAGE] = page(PAGE, "")
    for table in tables:
        pages[table["page"]] = page("suite.html", "../", table=table)
    for entry in board.entries.values():
        pages[f"entries/{entry.slug}.html"] = page("entry.html", "../", entry=entry, view=views.entry_view(board, entry))
    for row in damages:
        pages[f"entries/{row['slug']}.html"] = page("adversary.html", "../", row=row)
    folder = resources.files("ccenv.leaderboard") / "static"
    pages |= {name: folder.joinpath(name).read_bytes() for name in _STATIC}
    pages[DATA] = FORMAT.content(_data(board, damages, quic) | {"leagues": [league.to_dict() for league in leagues]})
    return pages


def _index(board: Board, quic: Quic) -> dict[str, Any]:
    rows = views.index_rows(board, quic) if board.tables else []
    raw = [(metric, views.display_unit(metric)) for metric in views.raw_columns(board.tables[0])] if rows else []
    return {
        "rows": rows,
        "raw": raw,
        "any_number": any("any" in row["theorems"] for row in rows),
        "further": views.further(board),
        "quic": bool(quic),
        "overview": views.overview(board) if rows else None,
    }


def _data(board: Board, damages: list[dict[str, Any]], quic: Quic) -> dict[str, Any]:
    tables = [
        {
            "suite": table.suite.name,
            "version": table.suite.version,
            "suite_sha256": table.sha256,
            "reference": table.reference,
            "rows": [
                {
                    "sender": result.player.label,
                    "sender_sha256": result.player.sha256,
                    "rank": [first, last],
                    "score": None if result.summary.score is None else result.summary.score.model_dump(),
                    "probability_of_improvement": result.better,
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
            "submission": None if entry.submission is None else entry.submission.model_dump(),
            "worst_case": entry.worst
            and {"suite": entry.worst.suite, **entry.worst.case.model_dump(), "stale": entry.worst.stale},
            "verifications": [v.result.model_dump() for v in entry.verifications],
            "envelope": None if entry.envelope is None else entry.envelope.model_dump(),
            "theorems": [theorem.to_dict() for theorem in entry.theorems],
            "quic": [{"stack": stack, "attacked": lowest} for lowest, stack in quic.get(entry.player.label, ())],
        }
        for entry in board.entries.values()
    ]
    adversaries = [
        {
            "adversary": row["name"],
            "submission": row["submission"].submission,
            "rank": row["rank"],
            "damage": row["score"].model_dump(),
            "senders": row["senders"],
            "gap": row["gap"],
        }
        for row in damages
    ]
    head = {"chain": board.records.chain}
    withdrawn = [{"name": record.card.name, "submission": record.submission} for record in board.records.withdrawn]
    keys = ("name", "submission", "stage", "reason", "recorded_at")
    failures = [failure.model_dump(include=set(keys)) for failure in board.records.failures]
    rows = {"tables": tables, "senders": senders, "adversaries": adversaries}
    return {**head, **rows, "withdrawn": withdrawn, "failures": failures}


def _copies(board: Board) -> dict[str, bytes]:
    """Return the traces, plots, certificates and submissions that the pages link, by name."""
    out: dict[str, bytes] = {}
    for entry in board.entries.values():
        out |= {theorem.link: theorem.content for theorem in entry.theorems}
        if entry.worst is not None:
            for suffix, name in (("npz", entry.worst.case.trace), ("png", entry.worst.case.plot)):
                link = views.trace_link(entry.worst, suffix)
                content = entry.worst.record.read(name) if link is not None and name is not None else None
                if link is not None and content is not None:
                    out[link] = content
        for record in entry.verifications:
            link = views.proof_link(record)
            content = record.read(record.result.trace) if record.result.trace is not None else None
            if link is not None and content is not None:
                out[link] = content
    if board.records.handed_in is not None:
        for submission in board.records.submissions:
            for name, digest in submission.files.items():
                out[f"submissions/{submission.submission[:16]}/{name}"] = board.records.handed_in(digest)
    return out


def _replace(out: FilePath, files: dict[str, bytes]) -> None:
    """Replace an older site atomically; refuse a folder that holds anything else."""
    if out.exists() and not (out.is_dir() and ((out / DATA).is_file() or not any(out.iterdir()))):
        raise InputError(f"{out} holds something that is not a board: give another --out")
    temporary = out.resolve().with_name(f".{out.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        for folder in _FOLDERS:
            (temporary / folder).mkdir(parents=True)
        for name, content in sorted(files.items()):
            file = resolve_inside(temporary, name, "file of the site")
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        if out.exists():
            shutil.rmtree(out)
        os.replace(temporary, out)
    except OSError as error:
        raise CcenvError(f"{out}: cannot be written ({error.strerror})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
