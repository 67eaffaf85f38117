"""``ccenv sim``: run an experiment per packet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.options import JsonOption, SettingsOption, argument, seconds_option, settings
from ccenv.cli.output import print_json, print_table, print_text


def command(
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
        print_json(summary | {"settings": held})
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
