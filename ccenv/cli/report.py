"""``ccenv report``: evaluate a sender along the criteria of RFC 9743."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import ProcessesOption, fresh_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

EXIT_FAILED = 1


def command(
    sender: Annotated[
        str,
        typer.Argument(
            metavar="SENDER", autocompletion=names("agents"), help="A name, program (.json), policy or Python file (FILE.py)."
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File of the page (.html); runs/report/NAME/report.html by default.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Folder of cells and numbers; runs/report/NAME by default.")] = None,
    criteria: Annotated[str, typer.Option(help="Shipped criteria or a YAML file of your own.")] = "rfc9743",
    only: Annotated[list[str] | None, typer.Option(help="Id of a criterion, such as bufferbloat. Repeatable.")] = None,
    jobs: ProcessesOption = None,
    fresh: Annotated[bool, fresh_option("Discard finished cells.")] = False,
    json: JsonOption = False,
) -> int:
    """Evaluate a sender along RFC 9743 with the metrics of RFC 5166: one page that opens offline, and its numbers.

    What is already finished is kept: after Ctrl-C run the same command again. Exit code 1 if a file of yours failed.

    Example: ccenv report cubic --json

    ccenv report mine.py -o mine.html
    """
    from ccenv.cli.progress import progress_bar
    from ccenv.benchmarks.rfc9743 import report_on

    with progress_bar(f"report {sender}") as show:
        found = report_on(
            sender,
            criteria=criteria,
            only=only or (),
            out=folder,
            page=out,
            jobs=len(os.sched_getaffinity(0)) if jobs is None else jobs,
            fresh=fresh,
            progress=show,
        )
    if json:
        print_json(found)
    else:
        rows = [
            [c["id"] if i == 0 else "", m["label"], m["value"], m["baseline"], m["unit"], m["verdict"]]
            for c in found["criteria"]
            for i, m in enumerate(c["measures"])
        ]
        print_table(found["document"], ["criterion", "measure", sender, found["baseline"], "unit", "verdict"], rows)
        for one in found["worst_cases"]:
            print_text(
                f"worst case on {one['scene']}: " + str(one.get("why") or f"{one['worst_utilisation']:.3f} by {one['adversary']}")
            )
        print_text(f"wrote {found['page']}")
    if found["failed"]:
        print(f"ccenv: {found['failed']}", file=sys.stderr)
    return EXIT_FAILED if found["failed"] else 0
