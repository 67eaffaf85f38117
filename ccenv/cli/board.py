"""``ccenv board``: the leaderboard as a static page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.output import JsonOption, print_json, print_text

app = typer.Typer(help="Make the leaderboard from records (docs/leaderboard.md).\n\nExample: ccenv board build")

RUNS = Path("runs")


@app.callback()
def _group() -> None:
    """Keep ``build`` a sub-command while it is the only one."""


@app.command()
def build(
    records: Annotated[
        list[Path] | None, typer.Option(help="Folder with benchmark runs and verifications; runs by default. Repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the site.")] = RUNS / "board",
    json: JsonOption = False,
) -> None:
    """Build the static site. The same records give the same bytes.

    Example: ccenv board build --records runs --out runs/board
    """
    from ccenv.leaderboard.site import build_site

    result = build_site(records or [RUNS], out)
    if json:
        print_json(result)
    else:
        print_text(f"{result['senders']} senders in {result['suites']} suites, {result['verifications']} verifications")
        print_text(f"open {result['index']}")
