"""``ccenv which``: which sender for which kind of network."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import ProcessesOption, fresh_option, out_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

EXIT_FAILED = 1


def command(
    senders: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SENDER...]", autocompletion=names("agents"), help="Further senders: names or FILE.py."),
    ] = None,
    *,
    network: Annotated[
        str, typer.Option(autocompletion=names("networks"), help="A kind of network: ccenv list networks; all by default.")
    ] = "",
    by: Annotated[
        str, typer.Option(autocompletion=names("metrics"), help="Metric that sorts the senders, such as power or utilisation.")
    ] = "power",
    out: Annotated[Path | None, out_option("Folder of the stored runs; runs/which by default.")] = None,
    jobs: ProcessesOption = None,
    fresh: Annotated[bool, fresh_option("Run again what is stored.")] = False,
    json: JsonOption = False,
) -> int:
    """Run senders on networks of a kind, drawn by five seeds: a table with 95 % intervals. What is stored is not run again.

    Example: ccenv which --network cellular

    ccenv which mine.py --network wifi --by utilisation
    """
    from ccenv.agents.load import load_sender
    from ccenv.benchmarks.compare.which import FOLDER, networks, which
    from ccenv.cli.progress import progress_bar
    from ccenv.agents.sender import takes_one_flow

    alone = [name for name in senders or () if takes_one_flow(load_sender(name))]
    with progress_bar("which") as show:
        found = which(network, senders=senders or (), by=by, out=out or FOLDER, jobs=jobs, fresh=fresh, report=show)
    if json:
        print_json({"by": found.by, "rows": [asdict(row) for row in found.rows], "failed": found.failed, "takes_one_flow": alone})
    else:
        kinds = networks()
        for kind in dict.fromkeys(row.network for row in found.rows):
            rows = [[row.place, row.sender, *row.texts()] for row in found.rows if row.network == kind]
            print_table(f"{kind}: {kinds[kind]}", ["place", "sender", *found.rows[0].values], rows)
        print_text(f"Places by {found.by}; a place counts the senders whose interval lies wholly beyond: equal places are a tie")
        print_text("Means over five drawn networks (IQM) with 95 % intervals; the kinds are ours, see: ccenv show networks")
    if alone and not json:
        print_text(
            f"{', '.join(alone)}: beliefs take a flow to be alone; with others on the link it is not fair (docs/company.md)"
        )
    for name, error in found.failed.items():
        print(f"ccenv: {name}: {error}", file=sys.stderr)
    return EXIT_FAILED if found.failed else 0
