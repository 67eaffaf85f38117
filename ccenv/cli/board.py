"""``ccenv board``: the leaderboard as a static page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.operator import HOME, BoardOption, DatabaseOption, evaluate, home_of, round_command, submit
from ccenv.cli.records import audit, export, import_, score, serve
from ccenv.cli.submission import check, pack
from ccenv.cli.trust import head, withdraw
from ccenv.cli.shared import out_option
from ccenv.cli.output import JsonOption, print_json, print_text

app = typer.Typer(help="Submissions, their evaluation and the leaderboard (docs/leaderboard.md).\n\nExample: ccenv board build")
for command in (pack, check, score, submit, withdraw, evaluate, audit, head, export, serve):
    app.command()(command)
app.command("import")(import_)
app.command("round")(round_command)

RUNS = Path("runs")
CertificatesOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR", help="Folder with certificates of theorems beside the shipped ones; all are checked. Repeatable."
    ),
]
LeaguesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--league", metavar="FILE", help="Record or folder of a finished league (ccenv league) to be shown. Repeatable."
    ),
]


@app.command()
def add(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="What ccenv verify property NAME --json printed, as a file.")],
    agent: Annotated[str | None, typer.Option(help="The sender that was verified, if it is not a registered one.")] = None,
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = RUNS,
    json: JsonOption = False,
) -> None:
    """Put the report of a verification among the records, so that the page shows it as reported, not confirmed here.

    The board believes no report: what it confirms itself are the bounds of ccenv board evaluate --budget.

    Example: ccenv verify property cc_qdel --T 7 --json > report.json; ccenv board add report.json
    """
    from ccenv.base.foreign import read_json
    from ccenv.leaderboard.evaluate.proofs import store_report

    folder = store_report(read_json(report), str(report), records, agent)
    if json:
        print_json({"record": folder})
    else:
        print_text(f"wrote {folder}")


@app.command()
def build(
    records: Annotated[
        list[Path] | None,
        typer.Option(help="Folders with benchmark runs and verifications instead of the board's database. Repeatable."),
    ] = None,
    certificates: CertificatesOption = None,
    leagues: LeaguesOption = None,
    out: Annotated[Path, out_option("Folder of the site.")] = RUNS / "board",
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Build the static site. The same records give the same bytes.

    Without --records it shows the board's database; where there is none yet, the runs below runs/.

    Example: ccenv board build --out runs/board
    Example: ccenv board build --league runs/league/quick-0
    """
    from ccenv.base.errors import InputError
    from ccenv.leaderboard.site.build import build_site
    from ccenv.leaderboard.site.sources import from_folders, from_store

    home = home_of(board, database)
    if not records and not home.exists() and not RUNS.is_dir():
        raise InputError(f"no board in {board} and no {RUNS}/ here: begin with ccenv bench run quick, or ccenv board pack SENDER")
    if records or not home.exists():
        result = build_site(from_folders(records or [RUNS]), out, certificates or (), leagues or ())
    else:
        with home.open_existing() as store:
            result = build_site(from_store(store, home), out, certificates or (), leagues or ())
    if json:
        print_json(result)
    else:
        print_text(", ".join(f"{count} {name}" for name, count in result.items() if name != "index"))
        print_text(f"open {result['index']}")


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that a static host serves.")],
    *,
    records: Annotated[bool, typer.Option(help="The records beside the pages, so that everybody can audit the board.")] = True,
    certificates: CertificatesOption = None,
    leagues: LeaguesOption = None,
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a folder for any static host up to date: pages, records, checksums. Files that are not of the board stay.

    Only what differs is written, the front page last; after an interruption run it again.

    Example: ccenv board publish public --board runs/leaderboard
    """
    from ccenv.leaderboard.site.publish import publish as bring

    home = home_of(board, database)
    with home.open_existing() as store, home.publishing():
        result = bring(store, home, folder, records=records, certificates=certificates or (), leagues=leagues or ())
    if json:
        print_json(result)
    else:
        print_text(f"{result['files']} files in {folder}: {result['written']} written, {result['removed']} removed")
