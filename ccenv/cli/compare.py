"""``ccenv compare`` (senders on one network, or on kinds of networks), ``ccenv report`` (along RFC 9743) and ``ccenv sim``."""

from __future__ import annotations

import inspect
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ccenv.base.errors import InputError
from ccenv.base.units import SHARE
from ccenv.cli.completion import names
from ccenv.cli.options import (
    JsonOption,
    ProcessesOption,
    SettingsOption,
    argument,
    fresh_option,
    option,
    out_option,
    quantity_option,
    seconds_option,
    settings,
)
from ccenv.cli.output import about_run, print_json, print_table, print_text, progress_bar

EXIT_FAILED = 1
LIMIT = "10min"
"""Of a file of compiled functions, which cannot be interrupted."""


def command(
    senders: Annotated[
        list[str] | None,
        argument(
            "SENDER...",
            "Names, programs (.json), policies or Python files (FILE.py); with --kind besides the shipped ones.",
            names("agents"),
        ),
    ] = None,
    *,
    rate: Annotated[str, typer.Option(help="Rate of the link, such as 50mbps.")] = "48mbps",
    rtt: Annotated[str, typer.Option(help="Propagation RTT, such as 40ms.")] = "40ms",
    buffer: Annotated[str, typer.Option(help="Buffer of the link: 1bdp, 100packets, 250kB, inf.")] = "1bdp",
    flows: Annotated[int, typer.Option(help="Flows of each sender.")] = 1,
    against: Annotated[str, option("Add one flow of this sender to every run.", names("agents"), "SENDER")] = "",
    loss: Annotated[float, quantity_option("--loss", SHARE, "Share of packets lost at random, such as 1%.")] = 0.0,
    network: Annotated[
        str, option("Who holds packets behind the link: name or FILE.py.", names("adversaries"), "ADVERSARY")
    ] = "",
    metric: Annotated[list[str] | None, option("A further column: name or FILE.py. Repeatable.", names("metrics"))] = None,
    duration: Annotated[str, typer.Option(help="Length of a run, such as 30s.")] = "30s",
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Senders at a time; with --kind cells, one per core by default.")
    ] = None,
    kind: Annotated[str, option("Instead, networks of this kind, or all: ccenv list networks.", names("networks"))] = "",
    out: Annotated[
        Path | None, out_option("Draw rate, queue and loss: .png, .svg or .pdf; with --kind the folder of the stored runs.")
    ] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Run senders packet by packet on the same network: one table, one figure. Exit code 1 if a sender failed.

    The averages leave out the first quarter of a run; the last columns count the whole run. With --kind all senders are ranked on
    networks of that kind, drawn by five seeds, with 95 % intervals; stored runs are not repeated.

    Example: ccenv compare cubic bbr3 copa --rate 50mbps --rtt 40ms --buffer 1bdp -o compare.pdf
    Example: ccenv compare mine.py cubic --against bbr1 -s adversary=legal
    Example: ccenv compare cubic bbr3 --loss 1% -s seeds=5
    Example: ccenv compare copa vegas --network square:period_rtts=4 -s jitter=20ms --metric power
    Example: ccenv compare --kind cellular; ccenv compare mine.py --kind wifi -s by=utilisation
    """
    from ccenv.base.figure import require_picture
    from ccenv.benchmarks.compare import compare
    from ccenv.benchmarks.compare.run import ALLOWED

    held = settings("compare", set_)
    network_options: dict[str, Any] = {"rate": rate, "rtt": rtt, "buffer": buffer, "flows": flows, "against": against}
    network_options |= {"loss_rate": loss, "network": network, "duration": duration, "seed": seed}
    if kind:
        defaults = inspect.signature(compare).parameters
        changed = [f"--{key.removesuffix('_rate')}" for key, value in network_options.items() if value != defaults[key].default]
        changed += [f"-s {key}" for key in ("jitter", "adversary", "seeds", "limit") if held[key] != defaults[key].default]
        if changed or metric:
            raise InputError(f"--kind says what the networks are: leave out {(changed or ['--metric'])[0]}")
        return _rank(senders or [], kind, out, jobs, held, json)
    if not senders:
        raise InputError("give a sender, or --kind for a table of the shipped ones")
    if out is not None:
        require_picture(out, ALLOWED)
    more = {"jitter": held["jitter"], "adversary": held["adversary"], "seeds": held["seeds"], "limit": held["limit"] or LIMIT}
    with progress_bar("compare") as show:
        comparison = compare(
            senders, metrics=metric or [], jobs=1 if jobs is None else jobs, report=show, **network_options, **more
        )
    if out is not None:
        comparison.plot(out)
    if json:
        print_json(comparison.to_dict() | {"picture": out, "settings": held})
    else:
        rows = [[row.sender, *(row.text(key) for key, _ in comparison.columns)] for row in comparison.rows if not row.error]
        if rows:
            print_table(str(comparison.setting), ["sender", *(title for _, title in comparison.columns)], rows)
        if out is not None:
            print_text(f"wrote {out}")
    for warning in comparison.warnings:
        print(f"ccenv: compare: {warning}", file=sys.stderr)
    failed = [row for row in comparison.rows if row.error]
    for row in failed:
        print(f"ccenv: {row.sender}: {row.error}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


def _rank(senders: list[str], kind: str, out: Path | None, jobs: int | None, held: dict[str, Any], json: bool) -> int:
    """Rank senders on networks of a kind: a table with 95 % intervals."""
    from ccenv.agents.load import load_sender
    from ccenv.agents.sender import takes_one_flow
    from ccenv.benchmarks.compare.which import FOLDER, networks, which

    chosen, by, fresh = "" if kind == "all" else kind, held["by"], held["fresh"]
    alone = [name for name in senders if takes_one_flow(load_sender(name))]
    with progress_bar("which") as show:
        ranking = which(chosen, senders=senders, by=by, out=out or FOLDER, jobs=jobs, fresh=fresh, report=show)
    if json:
        rows_data = [asdict(row) for row in ranking.rows]
        print_json({"by": by, "rows": rows_data, "failed": ranking.failed, "takes_one_flow": alone, "settings": held})
    else:
        summaries = networks()
        for one in dict.fromkeys(row.network for row in ranking.rows):
            rows = [[row.place, row.sender, *row.texts()] for row in ranking.rows if row.network == one]
            print_table(f"{one}: {summaries[one]}", ["place", "sender", *ranking.rows[0].values], rows)
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
    sender: Annotated[str, argument("SENDER", "A name, program (.json), policy or Python file (FILE.py).", names("agents"))],
    *,
    out: Annotated[
        Path | None, out_option("Folder of cells, numbers and page, runs/report/NAME by default; X.html: the page only.")
    ] = None,
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

    is_page = out is not None and out.suffix == ".html"
    if out is not None and not is_page and out.suffix in (".htm", ".pdf", ".png", ".svg", ".json", ".md", ".txt"):
        raise InputError(f"--out is {out}; it must end in .html, or be a folder")
    with progress_bar(f"report {sender}") as show:
        data = report_on(
            sender,
            criteria=criteria,
            only=only or (),
            out=None if is_page else out,
            page=out if is_page else None,
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


def run_sim(
    file: Annotated[str, argument("FILE", "A scenario: YAML file or shipped name (ccenv list configs).", names("scenarios"))],
    *,
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's.")] = None,
    duration: Annotated[float | None, seconds_option("--duration", "Time to simulate, instead of the scenario's.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw rates, windows, RTTs and queues into this .png or .svg.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the run as a trace (.npz); one drop-tail link.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Run a scenario packet by packet; print throughput, loss and RTT per flow beside the paper's figures.

    With --json also what decided the run: the scenario that held, hashes of its senders and of the code, versions.

    Example: ccenv sim two_bbr_40_80 --plot two_bbr.png -s profile=linux -s packet_log=packets.npz
    """
    from ccenv.simulation import simulate

    held = settings("sim", set_)
    log = held["packet_log"]
    keep = log is not None or trace is not None
    result = simulate(file, seed=seed, duration_s=duration, profile=held["profile"], packet_log=keep)
    if log is not None:
        result.save_packet_log(Path(log))
    if trace is not None:
        result.trace().save(trace)
    if plot is not None:
        result.plot(plot)
    summary = result.summary()
    if json:
        played = result.scenario
        print_json(summary | {"settings": held} | about_run(played, (flow.sender for flow in played.flows), simulate))
        return
    reference = result.scenario.reference
    published = reference.throughput_mbps if reference and reference.throughput_mbps else [None] * len(summary["flows"])
    rows = [
        [f["name"], f["throughput_mbps"], paper, f["loss"], None if f["rtt"] is None else 1e3 * f["rtt"], f["timeouts"]]
        for f, paper in zip(summary["flows"], published, strict=True)
    ]
    columns = ["flow", "throughput (Mbit/s)", "paper (Mbit/s)", "loss", "mean RTT (ms)", "time-outs"]
    print_table(f"{summary['name']}: {summary['duration_s']:g} s", columns, rows)
    for application in summary.get("applications", ()):
        about = {name: value for name, value in application.items() if name not in ("kind", "name")}
        print_table(f"{application['kind']} {application['name']}", list(about), [list(about.values())])
    if summary["ratio"] is not None:
        paper_ratio = f"; paper {reference.ratio:g} ({reference.source})" if reference and reference.ratio else ""
        print_text(f"ratio {summary['ratio']:.3g}{paper_ratio}")
