"""Record the statements of [BBR-fluid] and the fit of the set calibrated; compare a sweep with the packet engine; write its page.

``python docs/tables/record_fluid.py statements|fit|compare|report --help``
"""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.append(str(Path(__file__).parents[1]))

from ccenv.base.errors import InputError
from ccenv.base.files import plain, write_atomic
from ccenv.base.provenance import machine, versions
from ccenv.base.units import MILLISECONDS
from ccenv.cli.options import JsonOption, out_option, quantity_option
from ccenv.cli.output import print_json, print_table, print_text, progress_bar
from ccenv.engine.fluid.analysis.convergence import phase_portrait
from ccenv.engine.fluid.analysis.equilibria import Bottleneck
from ccenv.engine.fluid.simulate import simulate
from ccenv.engine.fluid.sweep import load_scenario, load_sweep
from tables import fluid_calibration as calibration
from tables import fluid_statements as page
from tables.fluid_packets import compare as differences
from tables.fluid_packets import packet_cells

RecordOption = Annotated[Path | None, out_option("Also write the result to this .json file.")]
NameArgument = Annotated[str, typer.Argument(metavar="FILE|NAME", help="A sweep: YAML file or shipped name.")]
ParamsOption = Annotated[str | None, typer.Option(help="Parameter set: paper, artefact or calibrated (default: the file's).")]
StepOption = Annotated[float | None, quantity_option("--step", MILLISECONDS, "Step of the method of steps.")]
ThreadsOption = Annotated[int | None, typer.Option(help="At most this many threads; the result does not depend on it.")]
RunsOption = Annotated[int, typer.Option("--packet-runs", min=0, help="Runs per cell in the packet engine; 0: leave it out.")]

ABOUT: dict[str, Any] = {"versions": versions(), "machine": machine()}
app = typer.Typer(help=__doc__, pretty_exceptions_enable=False)


@app.command()
def statements(
    packet_runs: Annotated[int, typer.Option("--packet-runs", min=0, help="Runs per cell in the packet engine; 0: none.")] = 3,
    packet_record: Annotated[Path | None, typer.Option(help="Take the packet cells from this record instead.")] = None,
    published: Annotated[Path | None, typer.Option(help="Recorded numbers of the published simulator to compare with.")] = None,
    step_ms: Annotated[
        float | None, quantity_option("--step", MILLISECONDS, "Step of the method of steps (default: the sweep's).", "--step-ms")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="At most this many threads; the result does not depend on it.")] = None,
    out: RecordOption = None,
    json: JsonOption = False,
) -> None:
    """Judge the paper's 18 statements for every parameter set and packet by packet, on the sweep validation.

    Example: python docs/tables/record_fluid.py statements --packet-record docs/data/fluid-statements.json --json
    """
    _check_json_file(out)
    sweep = load_sweep("validation", step_ms=step_ms)
    packets = page.read_packets(packet_record) if packet_record is not None else _packets(sweep, packet_runs)
    columns = page.cells_of_sets(sweep, threads)
    distances = {}
    if published is not None:
        distances = {name: page.published_distance(cells, published, "validation") for name, cells in columns.items()}
    all_columns = columns | ({page.PACKETS: packets} if packets else {})
    rows = page.statements_table(all_columns)
    counts = {name: sum(row[name]["holds"] for row in rows) for name in all_columns}
    result = {"sweep": sweep, "statements": rows, "holding": counts, "published": distances, "packets": packets} | {
        "versions": versions(),
        "machine": machine(),
    }
    _finish(result, out, json)
    if not json:
        table = [[row["source"], row["text"], *("yes" if row[name]["holds"] else "no" for name in all_columns)] for row in rows]
        print_table("statements of [BBR-fluid] section 4.3", ["section", "statement", *all_columns], table)
        print_text("hold, of 18: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
        for name, distance in distances.items():
            print_text(f"{name}: {distance['within']} of {distance['cells']} cells within the bands of the published numbers")


@app.command()
def fit(
    records: Annotated[Path, typer.Option(help="Kernel records: one JSON object a line.")],
    packet_record: Annotated[Path, typer.Option(help="Record with packet cells, of statements.")],
    out: RecordOption = None,
    json: JsonOption = False,
) -> None:
    """Fit the set calibrated on the training half of the records, and report its errors on both halves.

    Example: record_fluid.py fit --records docs/data/kernel.jsonl --packet-record docs/data/fluid-statements.json -o fit.json
    """
    _check_json_file(out)
    kernel = calibration.kernel_cases(records)
    packets = calibration.packet_cases(packet_record, load_sweep("validation"))
    with progress_bar("fit, constants tried") as advance:
        constants = calibration.fit(kernel, packets, advance)
    result = calibration.document(kernel, packets, constants, records, packet_record)
    _finish(result, out, json)
    if not json:
        print_table("fitted constants", ["constant", "value"], [[name, value] for name, value in constants.items()])
        halves = list(next(iter(result["errors"].values())))
        rows = [[name, *(f"{errors[half]['score']:.3f}" for half in halves)] for name, errors in result["errors"].items()]
        print_table("mean error in bands", ["set", *halves], rows)


@app.command()
def compare(
    name: NameArgument = "validation",
    params: ParamsOption = None,
    mix: Annotated[list[str] | None, typer.Option(help="Only this mix; may be repeated.")] = None,
    discipline: Annotated[list[str] | None, typer.Option(help="Only this discipline; may be repeated.")] = None,
    buffer: Annotated[list[float] | None, typer.Option(help="Only this buffer, in BDP; may be repeated.")] = None,
    threads: ThreadsOption = None,
    packet_runs: Annotated[int, typer.Option("--packet-runs", min=1, help="Runs per cell in the packet engine.")] = 3,
    json: JsonOption = False,
) -> None:
    """Run a sweep in the fluid model and in the packet engine, and print how far they are apart.

    Example: python docs/tables/record_fluid.py compare validation --mix bbr1 --discipline drop-tail
    """
    chosen = load_sweep(name, params=params, mixes=mix, disciplines=discipline, buffers_bdp=buffer)
    cells = chosen.run(threads)
    packets = _packets(chosen, packet_runs)
    rows = differences(cells, packets)
    if json:
        print_json({"sweep": chosen, "cells": cells, "packets": packets, "differences": rows} | ABOUT)
        return
    columns = ["jain", "loss_pct", "occupancy_pct", "utilisation_pct", "first_share_pct"]
    table = [
        [f"{c['mix']}, {c['discipline']}, {c['buffer_bdp']:g}", *(f"{c[k]:.4g} | {p[k]:.4g}" for k in columns)]
        for c, p in zip(cells, packets, strict=True)
    ]
    print_table(f"{chosen.title or name}: fluid model | packet engine", ["cell", *columns], table)
    print_table("differences", list(rows[0]), [list(row.values()) for row in rows])


@app.command()
def report(
    out: Annotated[Path, out_option("Page to write: .html.")],
    name: NameArgument = "validation",
    params: ParamsOption = None,
    step_ms: StepOption = None,
    threads: ThreadsOption = None,
    packet_runs: RunsOption = 3,
    json: JsonOption = False,
) -> None:
    """Write one self-contained page: the paper's statements, fluid model and packet engine, figures, equilibria, all cells.

    Example: python docs/tables/record_fluid.py report -o validation.html
    """
    if out.suffix != ".html":
        raise InputError(f"the page ends in '.html' (got {out.suffix!r})")
    chosen = load_sweep(name, params=params, step_ms=step_ms)
    cells = chosen.run(threads)
    packets = _packets(chosen, packet_runs)
    names = [f"trace_{cca}_{queue}" for cca in ("bbr1", "bbr2", "reno", "cubic") for queue in ("droptail", "red")]
    traces = [simulate(load_scenario(trace, params=params), 5e-3) for trace in names]
    deep = _bottleneck(10, 7.0)
    portraits = [phase_portrait(model, deep) for model in ("bbr1", "bbr2")]
    portraits.append(phase_portrait("bbr1", _bottleneck(2, 1.0), "shares"))
    write_atomic(out, page.report_html(chosen, cells, packets, traces, portraits).encode())
    if json:
        print_json({"page": out, "sweep": chosen, "cells": cells, "packets": packets} | ABOUT)
    else:
        print_text(f"wrote {out}")


def _check_json_file(out: Path | None) -> None:

    if out is not None and out.suffix != ".json":
        raise InputError(f"the record ends in '.json' (got {out.name!r})")


def _finish(result: dict[str, Any], out: Path | None, json: bool) -> None:

    if out is not None:
        write_atomic(out, (dumps(plain(result), indent=1, allow_nan=False) + "\n").encode())
    if json:
        print_json(result)
    elif out is not None:
        print_text(f"wrote {out}")


def _packets(sweep: Any, runs: int) -> list[dict[str, Any]]:

    if not runs:
        return []
    with progress_bar("packet engine") as advance:
        return packet_cells(sweep, runs, advance)


def _bottleneck(flows: int, buffer_bdp: float) -> Bottleneck:
    """Return a bottleneck of 100 Mbit/s for flows of 35 ms; the buffer is in units of rate x 10 ms."""
    capacity_Bps = 12_500_000.0
    return Bottleneck(capacity_Bps, (0.035,) * flows, buffer_bdp * capacity_Bps * 0.01)


if __name__ == "__main__":
    app()
