"""``ccenv board audit``, ``export``, ``import``, ``score`` and ``serve``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.operator import HOME, BoardOption, DatabaseOption, home_of
from ccenv.cli.shared import ProcessesOption, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text


def audit(
    *,
    sample: Annotated[int, typer.Option(help="Runs that are played again.")] = 20,
    proofs: Annotated[int, typer.Option(help="Proved bounds that are decided again.")] = 5,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time of the solver per bound.")] = 60.0,
    seed: Annotated[int | None, typer.Option(help="Of the sample; drawn anew by default.")] = None,
    keep: Annotated[bool, typer.Option(help="Store the outcome as a record.")] = True,
    expect_head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HASH|FILE", help="A head that the board must hold: hash of its chain, or board head's file. Repeatable."
        ),
    ] = None,
    signer: Annotated[str | None, typer.Option(metavar="SHA256:...", help="The key that must have signed these files.")] = None,
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Check a board: hashes, chain, seeds, summaries; play random runs again bit for bit, decide random proofs again.

    Exit code 0 where all is well, 1 where something is not. Only a head from outside shows that the last records were dropped, or
    that all of them were written anew: keep one (ccenv board head) and ask for it.

    Example: ccenv board audit --json; ccenv board audit --expect-head head.json
    """
    from ccenv.cli.progress import progress_bar
    from ccenv.base.errors import InputError
    from ccenv.leaderboard.audit.run import audit as run
    from ccenv.leaderboard.store.head import expected_head

    if signer is not None and not expect_head:
        raise InputError("--signer says who signed a head: give its file with --expect-head")
    expected = [expected_head(text, signer) for text in expect_head or ()]
    if sample < 0 or proofs < 0 or not time_limit > 0:
        raise InputError("--sample and --proofs must be at least 0, --time-limit above 0")
    home = home_of(board, database)
    with home.open_existing() as store, progress_bar("audit") as show:
        result = run(
            store,
            home,
            sample=sample,
            certificates=proofs,
            seed=seed,
            time_limit_s=time_limit,
            keep=keep,
            expected=expected,
            progress=show,
        )
    if json:
        print_json(result)
    else:
        rows = [(name, value) for name, value in result.items() if name not in ("problems", "foreign")]
        print_table("audit", ["what", "value"], [[name, str(value)] for name, value in rows])
        for record in result["foreign"]:
            print_text(f"of another machine: {record}")
        for problem in result["problems"]:
            print_text(f"problem: {problem}")
    return 1 if result["problems"] else 0


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl or .jsonl.xz file.")],
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Write all records and files of a board into one file; secrets stay.

    Example: ccenv board export board.jsonl.xz
    """
    from ccenv.leaderboard.site.exchange import export_board

    with home_of(board, database).open_existing() as store:
        count = export_board(store, file)
    if json:
        print_json({"file": file, "records": count, "bytes": file.stat().st_size})
    else:
        print_text(f"wrote {count} records into {file}, {file.stat().st_size} bytes")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What ccenv board export wrote.")],
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Read an export into an empty board. Everything is checked; a new round begins after it.

    Example: ccenv board import docs/data/leaderboard.jsonl.xz
    """
    from ccenv.leaderboard.site.exchange import import_board, read_export

    home = home_of(board, database)
    read = read_export(file)  # all of it before a board is made
    with home.open() as store:
        count = import_board(store, home, read)
    if json:
        print_json({"records": count})
    else:
        print_text(f"read {count} records")


def score(
    what: Annotated[str, typer.Argument(metavar="DIR|NAME", help="A sender's submission folder, or a registered sender.")],
    *,
    suite: Annotated[str | None, typer.Option(help="A suite; the board's nominal one by default.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 1,2,3; the suite's public ones by default.")] = None,
    backend: Annotated[str, typer.Option(help="local | processes | ray.")] = "local",
    jobs: ProcessesOption = None,
    json: JsonOption = False,
) -> None:
    """Play a submission as the board would, with public seeds or with those of an entry's page.

    Example: ccenv board score runs/submissions/cc_qdel --suite quick --seeds 1,2
    """
    from ccenv.cli.progress import progress_bar
    from ccenv.leaderboard.evaluate.score import parse_seeds, score_sender

    with progress_bar("score") as show:
        summary = score_sender(what, suite, parse_seeds(seeds), backend, jobs, show)
    if json:
        print_json(summary)
        return
    nominal, worst = summary["score"], summary["worst_case"]
    if nominal is not None:
        print_text(
            f"{nominal['metric']} {nominal['iqm']:.6f} [{nominal['low']:.6f}, {nominal['high']:.6f}] in {nominal['n_runs']} runs"
        )
    if worst is not None:
        print_text(
            f"worst {worst['metric']} {worst['value']:.6f}: {worst['adversary']} in {worst['scenario']}, seed {worst['seed']}"
        )


def serve(
    site: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a site.")] = Path("runs") / "board",
    port: Annotated[int, typer.Option(help="0: any free one.")] = 8000,
    json: JsonOption = False,
) -> None:
    """Show a site on this machine only, at http://127.0.0.1:PORT, until Ctrl-C.

    Example: ccenv board serve runs/board
    """
    from ccenv.leaderboard.site.serve import make_server

    with make_server(site, port) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/index.html"
        if json:
            print_json({"address": address})
        else:
            print_text(address)
        sys.stdout.flush()
        server.serve_forever()
