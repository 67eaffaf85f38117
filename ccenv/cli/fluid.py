"""``ccenv ode``: the BBR fluid models of [BBR-fluid]: runs, sweeps, equilibria, parameter sets and their fit, networks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.units import MILLISECONDS
from ccenv.cli.completion import configs
from ccenv.cli.shared import (
    JsonOption,
    choices,
    out_option,
    print_json,
    print_table,
    print_text,
    quantity_option,
    rate_option,
    seconds_option,
)

if TYPE_CHECKING:
    from ccenv.engine.fluid.analysis.equilibria import Bottleneck
    from ccenv.engine.fluid.sweep import Sweep

RecordOption = Annotated[Path | None, out_option("Also write the result to this .json file.")]


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

    Example: ccenv ode statements --packet-record docs/data/fluid-statements.json --json
    """
    from ccenv.benchmarks.fluid import page
    from ccenv.engine.fluid.sweep import load_sweep

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
    result = {"sweep": sweep, "statements": rows, "holding": counts, "published": distances, "packets": packets} | _provenance()
    _finish(result, out, json)
    if not json:
        table = [[row["source"], row["text"], *("yes" if row[name]["holds"] else "no" for name in all_columns)] for row in rows]
        print_table("statements of [BBR-fluid] section 4.3", ["section", "statement", *all_columns], table)
        print_text("hold, of 18: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
        for name, distance in distances.items():
            print_text(f"{name}: {distance['within']} of {distance['cells']} cells within the bands of the published numbers")


def fit(
    records: Annotated[Path, typer.Option(help="Kernel records: one JSON object a line.")],
    packet_record: Annotated[Path, typer.Option(help="Record with packet cells, of ccenv ode statements.")],
    out: RecordOption = None,
    json: JsonOption = False,
) -> None:
    """Fit the set calibrated on the training half of the records, and report its errors on both halves.

    Example: ccenv ode fit --records docs/data/kernel.jsonl --packet-record docs/data/fluid-statements.json -o fit.json
    """
    from ccenv.benchmarks.fluid import calibration
    from ccenv.cli.shared import progress_bar
    from ccenv.engine.fluid.sweep import load_sweep

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


def network(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME", autocompletion=configs("ode"), help="A YAML file or a shipped name (ccenv list configs)."
        ),
    ],
    stability: Annotated[bool, typer.Option(help="Add the verdict on stability, delays included (Reno over RED).")] = False,
    simulation: Annotated[bool, typer.Option("--simulate", help="Run the scenario too, and show its means beside.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the equilibrium of Reno and CUBIC flows over several links, such as a parking lot.

    Example: ccenv ode network parking_lot_reno --stability --simulate
    """
    from ccenv.engine.fluid.analysis.network import network_equilibrium
    from ccenv.engine.fluid.analysis.stability import network_stability
    from ccenv.engine.fluid.simulate import simulate
    from ccenv.engine.fluid.sweep import load_scenario

    scenario = load_scenario(name)
    point = network_equilibrium(scenario)
    verdict = network_stability(scenario) if stability else None
    metrics = simulate(scenario).metrics if simulation else None
    if json:
        out: dict[str, Any] = {"scenario": scenario, "equilibrium": asdict(point)}
        if verdict is not None:
            root = verdict.rightmost
            out["stability"] = asdict(verdict) | {"rightmost": {"real": root.real, "imag": root.imag}}
        if metrics is not None:
            out["simulated"] = metrics
        print_json(out)
        return
    beside = [] if metrics is None else ["simulated Mbit/s"]
    flows = [
        [i + 1, flow.cca, " ".join(flow.path) or scenario.links[0].name, point.rate_Bps[i] / 125_000.0, point.windows_packets[i]]
        + [1e3 * point.rtt_s[i], 100.0 * point.loss[i]]
        + ([] if metrics is None else [metrics.rate_Bps[i] / 125_000.0])
        for i, flow in enumerate(scenario.flows)
    ]
    print_table(scenario.title or name, ["flow", "cca", "path", "Mbit/s", "window", "RTT ms", "loss %", *beside], flows)
    beside = [] if metrics is None else ["simulated loss %"]
    links = [
        [link.name, 100.0 * point.link_loss[k], point.queue_bytes[k] / scenario.mss_bytes, 100.0 * point.utilisation[k]]
        + ([] if metrics is None else [metrics.links[k].loss_pct])
        for k, link in enumerate(scenario.links)
    ]
    print_table("links", ["link", "loss %", "queue, packets", "utilisation %", *beside], links)
    if verdict is not None:
        root = verdict.rightmost
        print_text(f"{verdict.verdict}; rightmost root {root.real:.4g} +- {root.imag:.4g}i 1/s")


def _packets(sweep: Any, runs: int) -> list[dict[str, Any]]:
    from ccenv.benchmarks.fluid.packets import packet_cells
    from ccenv.cli.shared import progress_bar

    if not runs:
        return []
    with progress_bar("packet engine") as advance:
        return packet_cells(sweep, runs, advance)


def _check_json_file(out: Path | None) -> None:
    from ccenv.base.errors import InputError

    if out is not None and out.suffix != ".json":
        raise InputError(f"the record ends in '.json' (got {out.name!r})")


def _finish(result: dict[str, Any], out: Path | None, json: bool) -> None:
    from ccenv.base.files import json_bytes, plain, write_atomic

    if out is not None:
        write_atomic(out, json_bytes(plain(result)))
    if json:
        print_json(result)
    elif out is not None:
        print_text(f"wrote {out}")


app = typer.Typer(
    help="BBR fluid models: simulate, sweep, find equilibria (docs/fluid.md).\n\nExample: ccenv ode sweep validation --json"
)

for added in (statements, fit, network):
    app.command()(added)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NAME", autocompletion=configs("ode"), help="A YAML file or a shipped name (ccenv list configs)."
    ),
]
ParamsOption = Annotated[str | None, typer.Option(help="Parameter set: paper, artefact or calibrated (default: the file's).")]
StepOption = Annotated[
    float | None, quantity_option("--step", MILLISECONDS, "Step of the method of steps (default: the file's).", "--step-ms")
]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one constant; may be repeated.")]
ThreadsOption = Annotated[int | None, typer.Option(help="At most this many threads; the result does not depend on it.")]
RunsOption = Annotated[int, typer.Option("--packet-runs", min=0, help="Runs per cell in the packet engine; 0: leave it out.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=choices("bbr1", "bbr2"), help="bbr1 or bbr2.")]
FlowsOption = Annotated[int, typer.Option(help="Number of flows.")]
BufferOption = Annotated[float, typer.Option(help="Buffer in units of rate x bottleneck delay.")]
RateOption = Annotated[float, rate_option("Bottleneck rate.")]
RttOption = Annotated[
    list[float] | None,
    quantity_option("--rtt", MILLISECONDS, "Propagation RTT (default 35ms); repeat for each flow.", "--rtt-ms"),
]
DelayOption = Annotated[
    float, quantity_option("--delay", MILLISECONDS, "One-way bottleneck delay, the unit of --buffer.", "--delay-ms")
]


@app.command()
def run(
    name: NameArgument,
    params: ParamsOption = None,
    step_ms: StepOption = None,
    duration: Annotated[float | None, seconds_option("--duration", "Simulated time (default: the file's).")] = None,
    constants: SetOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the traces, as in Figs. 4 and 5, to this .png or .svg.")] = None,
    variables: Annotated[Path | None, typer.Option(help="Draw a flow's variables, as in Fig. 2, to this .png or .svg.")] = None,
    flow: Annotated[int, typer.Option(help="Which flow --variables draws, from 1.")] = 1,
    json: JsonOption = False,
) -> None:
    """Simulate one scenario.

    Example: ccenv ode run trace_bbr1_droptail --plot bbr1.png
    """
    from ccenv.engine.fluid.simulate import simulate
    from ccenv.engine.fluid.sweep import load_scenario

    scenario = load_scenario(name, params=params, step_ms=step_ms, duration_s=duration, overrides=_constants(constants))
    drawn = [p for p in (plot, variables) if p is not None]
    for picture in drawn:
        _check_picture(picture)
    interval_s = max(1, round(1e-3 / (scenario.step_ms * 1e-3))) * scenario.step_ms * 1e-3
    result = simulate(scenario, interval_s if drawn else 0.0)
    if plot is not None:
        from ccenv.base.figure import save
        from ccenv.benchmarks.fluid.plots import trace_figure

        save(trace_figure([result]), plot)
    if variables is not None:
        from ccenv.base.figure import save
        from ccenv.benchmarks.fluid.plots import variables_figure

        save(variables_figure(result, flow - 1), variables)
    metrics = result.metrics
    if json:
        print_json({"scenario": scenario, "metrics": metrics, "pictures": drawn} | _provenance())
        return
    print_table(
        scenario.title or name,
        ["flow", "cca", "sent Mbit/s", "delivered Mbit/s", "mean RTT ms"],
        [
            [i + 1, f.cca, metrics.rate_Bps[i] / 125_000.0, metrics.delivered_Bps[i] / 125_000.0, metrics.rtt_ms[i]]
            for i, f in enumerate(scenario.flows)
        ],
    )
    print_table(
        "links",
        ["link", "loss %", "occupancy %", "utilisation %"],
        [
            [link.name, m.loss_pct, m.occupancy_pct, m.utilisation_pct]
            for link, m in zip(scenario.links, metrics.links, strict=True)
        ],
    )
    print_text(f"Jain {metrics.jain:.4f}, jitter {metrics.jitter_ms:.4g} ms")
    for picture in drawn:
        print_text(f"wrote {picture}")


@app.command()
def sweep(
    name: NameArgument = "validation",
    params: ParamsOption = None,
    step_ms: StepOption = None,
    mix: Annotated[list[str] | None, typer.Option(help="Only this mix, e.g. bbr1/reno; may be repeated.")] = None,
    discipline: Annotated[list[str] | None, typer.Option(help="Only this discipline; may be repeated.")] = None,
    buffer: Annotated[list[float] | None, typer.Option(help="Only this buffer, in BDP; may be repeated.")] = None,
    constants: SetOption = None,
    threads: ThreadsOption = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for a picture of each metric, as in Figs. 6-10.")] = None,
    json: JsonOption = False,
) -> None:
    """Simulate every mix under every discipline with every buffer.

    Example: ccenv ode sweep validation --params artefact --json
    """
    from ccenv.base.errors import InputError

    if plots is not None and not plots.is_dir():
        raise InputError(f"{plots} is not a folder")
    changes = {"params": params, "step_ms": step_ms, "overrides": _constants(constants)}
    chosen = _sweep(name, buffer, **changes, mixes=mix, disciplines=discipline)
    cells = chosen.run(threads)
    pictures = _metric_pictures(cells, plots) if plots is not None else []
    if json:
        print_json({"sweep": chosen, "cells": cells, "pictures": pictures} | _provenance())
        return
    columns = "mix discipline buffer_bdp jain loss_pct occupancy_pct utilisation_pct jitter_ms first_share_pct".split()  # noqa: SIM905
    print_table(f"{chosen.title or name} ({chosen.params})", columns, [[cell[c] for c in columns] for cell in cells])
    for picture in pictures:
        print_text(f"wrote {picture}")


@app.command()
def equilibrium(
    model: ModelArgument,
    flows: FlowsOption = 10,
    buffer: BufferOption = 7.0,
    rate: RateOption = 100.0,
    rtt_ms: RttOption = None,
    delay_ms: DelayOption = 10.0,
    numeric: Annotated[bool, typer.Option(help="Search with the reduced model instead of using the theorems.")] = False,
    stability: Annotated[bool, typer.Option(help="Add Jacobian eigenvalues and the verdict.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the equilibrium of N flows at one bottleneck by theorems 1, 3 and 4, or by numeric search.

    Example: ccenv ode equilibrium bbr1 --flows 10 --buffer 7 --stability
    """
    from ccenv.engine.fluid.analysis import equilibria
    from ccenv.engine.fluid.analysis.equilibria import known_model
    from ccenv.engine.fluid.analysis.stability import stability as analyse

    chosen = known_model(model)
    path = _bottleneck(flows, buffer, rate, rtt_ms, delay_ms)
    find: Any = equilibria.find_equilibrium if numeric else equilibria.equilibrium
    point = find(chosen, path)
    out = asdict(point) | {
        "flows": path.flows,
        "capacity_Bps": path.capacity_Bps,
        "rtt_s": path.rtt_s,
        "buffer_bytes": path.buffer_bytes,
        "queue_delay_ms": 1e3 * point.queue_bytes / path.capacity_Bps,
        "loss_pct": 100.0 * point.loss,
    }
    if stability:
        analysis = analyse(path, point)
        out["stability"] = asdict(analysis) | {
            key: [{"real": v.real, "imag": v.imag} for v in getattr(analysis, key)]
            for key in ("eigenvalues", "automatic", "below")
        }
    if json:
        print_json(out)
        return
    rows = [[key, value] for key, value in out.items() if key not in {"x_btl_Bps", "rate_Bps", "stability", "rtt_s"}]
    print_table(f"equilibrium of {model}", ["what", "value"], rows)
    flows_rows = [
        [i + 1, 1e3 * d, x / path.capacity_Bps] for i, (d, x) in enumerate(zip(path.rtt_s, point.x_btl_Bps, strict=True))
    ]
    print_table("flows", ["flow", "RTT ms", "x_btl / C"], flows_rows)
    if stability:
        rows = [[f"{v:.6g}", f"{w:.6g}"] for v, w in zip(analysis.eigenvalues, analysis.automatic, strict=True)]
        print_table(f"theorem {analysis.theorem}: {analysis.verdict}", ["eigenvalue, closed form [1/s]", "automatic [1/s]"], rows)


@app.command()
def phase(
    model: ModelArgument,
    out: Annotated[Path, out_option("Picture to write: .png or .svg.")],
    flows: FlowsOption = 10,
    buffer: BufferOption = 7.0,
    rate: RateOption = 100.0,
    rtt_ms: RttOption = None,
    delay_ms: DelayOption = 10.0,
    plane: Annotated[str, typer.Option(help="queue: total estimate and queue; shares: estimates of two flows.")] = "queue",
    json: JsonOption = False,
) -> None:
    """Draw a phase portrait of a reduced model.

    Example: ccenv ode phase bbr2 --flows 10 -o bbr2.png
    """
    from ccenv.base.figure import save
    from ccenv.benchmarks.fluid.plots import phase_figure
    from ccenv.engine.fluid.analysis.convergence import phase_portrait
    from ccenv.engine.fluid.analysis.equilibria import known_model

    chosen = known_model(model)
    _check_picture(out)
    portrait = phase_portrait(chosen, _bottleneck(flows, buffer, rate, rtt_ms, delay_ms), plane)
    save(phase_figure(portrait), out)
    ends = [line[-1] for line in portrait.trajectories]
    if json:
        starts = [line[0] for line in portrait.trajectories]
        print_json({"picture": out, "axes": portrait.labels, "equilibrium": portrait.rest, "starts": starts, "ends": ends})
    else:
        print_text(f"wrote {out}")


@app.command()
def convergence(
    name: NameArgument = "validation",
    steps_ms: Annotated[
        list[float] | None, quantity_option("--step", MILLISECONDS, "A step; repeat (default 0.01 0.05 0.1 ms).", "--step-ms")
    ] = None,
    params: ParamsOption = None,
    mix: Annotated[list[str] | None, typer.Option(help="Only this mix; may be repeated.")] = None,
    buffer: Annotated[list[float] | None, typer.Option(help="Only this buffer, in BDP; may be repeated.")] = None,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Compare steps of the method of steps over a sweep: how much each metric moves against the finest.

    Example: ccenv ode convergence validation --mix bbr1 --step-ms 0.01 --step-ms 0.05
    """
    from ccenv.engine.fluid.analysis.convergence import convergence as compare

    rows = compare(_sweep(name, buffer, params=params, mixes=mix), steps_ms or [0.01, 0.05, 0.1], threads)
    if json:
        print_json({"rows": rows})
    else:
        print_table(f"{name}: difference to the finest step", list(rows[0]), [list(row.values()) for row in rows])


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

    Example: ccenv ode compare validation --mix bbr1 --discipline drop-tail
    """
    from ccenv.benchmarks.fluid.packets import compare as differences

    chosen = _sweep(name, buffer, params=params, mixes=mix, disciplines=discipline)
    cells = chosen.run(threads)
    packets = _packet_cells(chosen, packet_runs)
    rows = differences(cells, packets)
    if json:
        print_json({"sweep": chosen, "cells": cells, "packets": packets, "differences": rows} | _provenance())
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

    Example: ccenv ode report -o validation.html
    """
    from ccenv.base.errors import InputError
    from ccenv.base.files import write_atomic
    from ccenv.benchmarks.fluid.page import report_html
    from ccenv.engine.fluid.analysis.convergence import phase_portrait
    from ccenv.engine.fluid.simulate import simulate
    from ccenv.engine.fluid.sweep import load_scenario, load_sweep

    if out.suffix != ".html":
        raise InputError(f"the page ends in '.html' (got {out.suffix!r})")
    chosen = load_sweep(name, params=params, step_ms=step_ms)
    cells = chosen.run(threads)
    packets = _packet_cells(chosen, packet_runs)
    names = [f"trace_{cca}_{queue}" for cca in ("bbr1", "bbr2", "reno", "cubic") for queue in ("droptail", "red")]
    traces = [simulate(load_scenario(trace, params=params), 5e-3) for trace in names]
    deep = _bottleneck(10, 7.0, 100.0, None, 10.0)
    portraits = [phase_portrait(model, deep) for model in ("bbr1", "bbr2")]
    portraits.append(phase_portrait("bbr1", _bottleneck(2, 1.0, 100.0, None, 10.0), "shares"))
    write_atomic(out, report_html(chosen, cells, packets, traces, portraits).encode())
    if json:
        print_json({"page": out, "sweep": chosen, "cells": cells, "packets": packets} | _provenance())
    else:
        print_text(f"wrote {out}")


def _packet_cells(chosen: Sweep, runs: int) -> list[dict[str, Any]]:
    from ccenv.benchmarks.fluid.packets import packet_cells
    from ccenv.cli.shared import progress_bar

    if not runs:
        return []
    with progress_bar("packet engine") as advance:
        return packet_cells(chosen, runs, advance)


def _provenance() -> dict[str, Any]:
    from ccenv.base.provenance import machine, versions

    return {"versions": versions(), "machine": machine()}


def _constants(assignments: list[str] | None) -> dict[str, float] | None:
    from ccenv.base.errors import InputError
    from ccenv.base.registry import parse_parameters

    if not assignments:
        return None
    values: dict[str, float] = {}
    for item in assignments:
        for key, value in parse_parameters(item).items():
            if isinstance(value, str):
                raise InputError(f"constant {key} must be a number (got {value!r})")
            values[key] = float(value)
    return values


def _sweep(name: str, buffer: list[float] | None, **changes: Any) -> Sweep:
    """Return a sweep with changed values and, if given, fewer buffers. Raises InputError for a buffer that it does not have."""
    from ccenv.base.errors import InputError
    from ccenv.engine.fluid.sweep import load_sweep

    buffers_bdp = load_sweep(name).buffers_bdp
    for value in buffer or ():
        if value not in buffers_bdp:
            raise InputError(f"--buffer is {value:g}; the sweep {name!r} has {', '.join(f'{b:g}' for b in buffers_bdp)} BDP")
    return load_sweep(name, **changes, buffers_bdp=buffer)


def _bottleneck(flows: int, buffer: float, rate_mbps: float, rtt_ms: list[float] | None, delay_ms: float) -> Bottleneck:
    from ccenv.base.errors import InputError
    from ccenv.engine.fluid.analysis.equilibria import Bottleneck

    if flows < 1:
        raise InputError(f"flows must be at least 1 (got {flows})")
    for name, value in (("buffer", buffer), ("rate", rate_mbps), ("delay", delay_ms)):
        if not value > 0:
            raise InputError(f"{name} must be above 0 (got {value:g})")
    rtts = rtt_ms or [35.0]
    if len(rtts) not in {1, flows}:
        raise InputError(f"rtt must be given once or once for each of the {flows} flows (got {len(rtts)})")
    rtt_s = tuple(1e-3 * rtts[i % len(rtts)] for i in range(flows))
    capacity_Bps = rate_mbps * 125_000.0
    return Bottleneck(capacity_Bps, rtt_s, buffer * capacity_Bps * delay_ms * 1e-3)


def _check_picture(path: Path) -> None:
    from ccenv.base.errors import InputError
    from ccenv.base.figure import SUFFIXES

    if path.suffix not in SUFFIXES:
        raise InputError(f"a picture ends in {' or '.join(SUFFIXES)} (got {path.suffix!r})")


def _metric_pictures(cells: list[dict[str, Any]], folder: Path) -> list[Path]:
    from ccenv.base.figure import save
    from ccenv.benchmarks.fluid.plots import metric_figure
    from ccenv.network.metrics.table import FLUID_METRICS

    written = []
    for metric in FLUID_METRICS:
        written.append(folder / f"{metric}.png")
        save(metric_figure(cells, metric), written[-1])
    return written
