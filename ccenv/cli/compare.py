"""``ccenv compare``: several senders on one network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import choices, quantity_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text
from ccenv.base.units import SHARE

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
    from ccenv.cli.progress import progress_bar
    from ccenv.benchmarks.compare import compare
    from ccenv.benchmarks.compare.picture import ALLOWED
    from ccenv.network.figure import require_picture

    if out is not None:
        require_picture(out, ALLOWED)
    with progress_bar("compare") as show:
        found = compare(
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
        found.plot(out)
    if json:
        print_json(found.to_dict() | {"picture": out})
    else:
        rows = [[row.sender, *(row.text(key) for key, _ in found.columns)] for row in found.rows if not row.error]
        if rows:
            print_table(str(found.setting), ["sender", *(title for _, title in found.columns)], rows)
        if out is not None:
            print_text(f"wrote {out}")
    failed = [row for row in found.rows if row.error]
    for row in failed:
        print(f"ccenv: {row.sender}: {row.error}", file=sys.stderr)
    return EXIT_FAILED if failed else 0
