"""``ccenv compare`` (senders on one network), ``ccenv which`` (on kinds of networks) and ``ccenv report`` (along RFC 9743)."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ccenv.base.units import SHARE
from ccenv.cli.completion import names
from ccenv.cli.shared import (
    JsonOption,
    ProcessesOption,
    choices,
    fresh_option,
    out_option,
    print_json,
    print_table,
    print_text,
    quantity_option,
)

EXIT_FAILED = 1


def command(
    senders: Annotated[
        list[str],
        typer.Argument(
            metavar="SENDER...",
            autocompletion=names("agents"),
            help="Names, programs (.json), policies or Python files (FILE.py).",
        ),
    ],
    *,
    rate: Annotated[str, typer.Option(help="Rate of the link, such as 50mbps.")] = "48mbps",
    rtt: Annotated[str, typer.Option(help="Propagation RTT, such as 40ms.")] = "40ms",
    buffer: Annotated[str, typer.Option(help="Buffer of the link: 1bdp, 100packets, 250kB, inf.")] = "1bdp",
    flows: Annotated[int, typer.Option(help="Flows of each sender.")] = 1,
    against: Annotated[
        str, typer.Option(metavar="SENDER", autocompletion=names("agents"), help="Add one flow of this sender to every run.")
    ] = "",
    loss: Annotated[float, quantity_option("--loss", SHARE, "Share of packets lost at random, such as 1%.")] = 0.0,
    network: Annotated[
        str,
        typer.Option(
            metavar="ADVERSARY", autocompletion=names("adversaries"), help="Who holds packets behind the link: name or FILE.py."
        ),
    ] = "",
    jitter: Annotated[str, typer.Option(help="Longest time it may hold one, such as 20ms; the RTT by default.")] = "",
    metric: Annotated[
        list[str] | None, typer.Option(autocompletion=names("metrics"), help="A further column: name or FILE.py. Repeatable.")
    ] = None,
    duration: Annotated[str, typer.Option(help="Length of a run, such as 30s.")] = "30s",
    adversary: Annotated[
        str,
        typer.Option(
            autocompletion=choices("legal"), help="legal: also each sender's worst case on legal networks (CCAC, D = Rm)."
        ),
    ] = "",
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    seeds: Annotated[int, typer.Option(help="Runs of each sender; with several, means and 95 % intervals are told.")] = 1,
    jobs: Annotated[int, typer.Option(help="Senders at a time.")] = 1,
    limit: Annotated[str, typer.Option(help="Longest time for a file of compiled functions.")] = "10min",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Draw rate, queue and loss: .png, .svg or .pdf.")] = None,
    json: JsonOption = False,
) -> int:
    """Run senders packet by packet on the same network: one table, one figure. Exit code 1 if a sender failed.

    The averages leave out the first quarter of a run; the last columns count the whole run.

    Example: ccenv compare cubic bbr3 copa --rate 50mbps --rtt 40ms --buffer 1bdp -o compare.pdf
    Example: ccenv compare mine.py cubic --against bbr1 --adversary legal
    Example: ccenv compare cubic bbr3 --loss 1% --seeds 5
    Example: ccenv compare copa vegas --network square:period_rtts=4 --jitter 20ms --metric power
    """
    from ccenv.base.figure import require_picture
    from ccenv.benchmarks.compare import compare
    from ccenv.benchmarks.compare.table import ALLOWED
    from ccenv.cli.shared import progress_bar

    if out is not None:
        require_picture(out, ALLOWED)
    with progress_bar("compare") as show:
        comparison = compare(
            senders,
            rate=rate,
            rtt=rtt,
            buffer=buffer,
            flows=flows,
            against=against,
            loss_rate=loss,
            network=network,
            jitter=jitter,
            metrics=metric or [],
            limit=limit,
            duration=duration,
            seed=seed,
            seeds=seeds,
            adversary=adversary,
            jobs=jobs,
            report=show,
        )
    if out is not None:
        comparison.plot(out)
    if json:
        print_json(comparison.to_dict() | {"picture": out})
    else:
        rows = [[row.sender, *(row.text(key) for key, _ in comparison.columns)] for row in comparison.rows if not row.error]
        if rows:
            print_table(str(comparison.setting), ["sender", *(title for _, title in comparison.columns)], rows)
        if out is not None:
            print_text(f"wrote {out}")
    failed = [row for row in comparison.rows if row.error]
    for row in failed:
        print(f"ccenv: {row.sender}: {row.error}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


def run_which(
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
    """Run senders on networks of a kind, drawn by five seeds: a table with 95 % intervals. Stored runs are not repeated.

    Example: ccenv which --network cellular

    ccenv which mine.py --network wifi --by utilisation
    """
    from ccenv.agents.load import load_sender
    from ccenv.agents.sender import takes_one_flow
    from ccenv.benchmarks.compare.which import FOLDER, networks, which
    from ccenv.cli.shared import progress_bar

    alone = [name for name in senders or () if takes_one_flow(load_sender(name))]
    with progress_bar("which") as show:
        ranking = which(network, senders=senders or (), by=by, out=out or FOLDER, jobs=jobs, fresh=fresh, report=show)
    if json:
        print_json(
            {"by": ranking.by, "rows": [asdict(row) for row in ranking.rows], "failed": ranking.failed, "takes_one_flow": alone}
        )
    else:
        kinds = networks()
        for kind in dict.fromkeys(row.network for row in ranking.rows):
            rows = [[row.place, row.sender, *row.texts()] for row in ranking.rows if row.network == kind]
            print_table(f"{kind}: {kinds[kind]}", ["place", "sender", *ranking.rows[0].values], rows)
        print_text(
            f"Places by {ranking.by}; a place counts the senders whose interval lies wholly beyond: equal places are a tie"
        )
        print_text("Means over five drawn networks (IQM) with 95 % intervals; the kinds are ours, see: ccenv show networks")
    if alone and not json:
        print_text(
            f"{', '.join(alone)}: beliefs take a flow to be alone; with others on the link it is not fair (docs/learning.md)"
        )
    for name, error in ranking.failed.items():
        print(f"ccenv: {name}: {error}", file=sys.stderr)
    return EXIT_FAILED if ranking.failed else 0


def run_report(
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
    from ccenv.benchmarks.rfc9743 import report_on
    from ccenv.cli.shared import progress_bar

    with progress_bar(f"report {sender}") as show:
        data = report_on(
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
        print_json(data)
    else:
        rows = [
            [c["id"] if i == 0 else "", m["label"], m["value"], m["baseline"], m["unit"], m["verdict"]]
            for c in data["criteria"]
            for i, m in enumerate(c["measures"])
        ]
        print_table(data["document"], ["criterion", "measure", sender, data["baseline"], "unit", "verdict"], rows)
        for one in data["worst_cases"]:
            print_text(
                f"worst case on {one['scene']}: " + str(one.get("why") or f"{one['worst_utilisation']:.3f} by {one['adversary']}")
            )
        print_text(f"wrote {data['page']}")
    if data["failed"]:
        print(f"ccenv: {data['failed']}", file=sys.stderr)
    return EXIT_FAILED if data["failed"] else 0
