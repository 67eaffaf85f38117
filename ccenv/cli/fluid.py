"""``ccenv ode``: the fluid models of [BBR-fluid]: runs, sweeps, and equilibria of one bottleneck or a network of links."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError
from ccenv.base.foreign import parse_number
from ccenv.base.provenance import machine, versions
from ccenv.cli.completion import configs
from ccenv.cli.options import JsonOption, SettingsOption, argument, settings, settings_and_others
from ccenv.cli.output import print_answer, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.engine.fluid.analysis.equilibria import Bottleneck, Model
    from ccenv.engine.fluid.sweep import Sweep

app = typer.Typer(
    help="BBR fluid models: simulate, sweep, find equilibria (docs/fluid.md).\n\nExample: ccenv ode sweep validation --json"
)

NameArgument = Annotated[str, argument("FILE|NAME", "A YAML file or a shipped name (ccenv list configs).", configs("ode"))]
ParamsOption = Annotated[str | None, typer.Option(help="Parameter set: paper, artefact or calibrated (default: the file's).")]
PlotOption = Annotated[Path | None, typer.Option(help="Draw the traces, as in Figs. 4 and 5, to this .png or .svg.")]


@app.command()
def run(
    name: NameArgument,
    params: ParamsOption = None,
    plot: PlotOption = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Simulate one scenario.

    Example: ccenv ode run trace_bbr1_droptail --plot bbr1.png -s duration_s=2s
    """
    from ccenv.engine.fluid.simulate import simulate
    from ccenv.engine.fluid.sweep import load_scenario

    held, constants = _settings("ode run", set_)
    changes = {"params": params, "step_ms": held["step_ms"], "duration_s": held["duration_s"], "overrides": constants}
    scenario, variables = load_scenario(name, **changes), None if held["variables"] is None else Path(held["variables"])
    drawn = [p for p in (plot, variables) if p is not None]
    for picture in drawn:
        _check_picture(picture)
    interval_s = max(1, round(1e-3 / (scenario.step_ms * 1e-3))) * scenario.step_ms * 1e-3
    result = simulate(scenario, interval_s if drawn else 0.0)
    if drawn:
        from ccenv.base.figure import save
        from ccenv.benchmarks.fluid_plots import trace_figure, variables_figure

        if plot is not None:
            save(trace_figure([result]), plot)
        if variables is not None:
            save(variables_figure(result, held["flow"] - 1), variables)
    metrics = result.metrics
    if json:
        print_json({"scenario": scenario, "metrics": metrics, "pictures": drawn, "settings": held} | _provenance())
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
    plot: Annotated[Path | None, typer.Option(help="Folder for a picture of each metric, as in Figs. 6-10.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Simulate every mix under every discipline with every buffer; with -s steps compare steps of the method of steps.

    Example: ccenv ode sweep validation --params artefact --json
    Example: ccenv ode sweep validation -s mixes=bbr1 -s steps=0.01,0.05,0.1
    """
    held, constants = _settings("ode sweep", set_)
    if plot is not None and not plot.is_dir():
        raise InputError(f"{plot} is not a folder")
    few = {key: held[key] for key in ("step_ms", "mixes", "disciplines")}
    chosen = _sweep(name, held["buffers_bdp"], params=params, overrides=constants, **few)
    if held["steps"] is not None:
        from ccenv.engine.fluid.analysis.convergence import convergence

        moved = convergence(chosen, held["steps"], held["threads"])
        if json:
            print_json({"rows": moved, "settings": held})
        else:
            print_table(f"{name}: difference to the finest step", list(moved[0]), [list(row.values()) for row in moved])
        return
    cells = chosen.run(held["threads"])
    pictures = _metric_pictures(cells, plot) if plot is not None else []
    if json:
        print_json({"sweep": chosen, "cells": cells, "pictures": pictures, "settings": held} | _provenance())
        return
    columns = "mix discipline buffer_bdp jain loss_pct occupancy_pct utilisation_pct jitter_ms first_share_pct".split()  # noqa: SIM905
    print_table(f"{chosen.title or name} ({chosen.params})", columns, [[cell[c] for c in columns] for cell in cells])
    for picture in pictures:
        print_text(f"wrote {picture}")


@app.command()
def equilibrium(
    model: Annotated[str, argument("bbr1|bbr2|FILE|NAME", "A model, or a scenario of Reno and CUBIC flows.", configs("ode"))],
    flows: Annotated[int, typer.Option(help="Number of flows.")] = 10,
    buffer: Annotated[float, typer.Option(help="Buffer in units of rate x bottleneck delay.")] = 7.0,
    stability: Annotated[bool, typer.Option("--stability", help="Add eigenvalues and the verdict, with delays.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the phase portrait of the reduced model: .png or .svg.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Print the equilibrium of N flows at one bottleneck by theorems 1, 3 and 4, or by numeric search.

    Of a scenario over several links, such as a parking lot, that of its Reno and CUBIC flows.

    Example: ccenv ode equilibrium bbr1 --flows 10 --buffer 7 --stability
    Example: ccenv ode equilibrium parking_lot_reno --stability -s simulate=true
    """
    from ccenv.engine.fluid.analysis import equilibria
    from ccenv.engine.fluid.analysis.equilibria import MODELS, known_model
    from ccenv.engine.fluid.analysis.stability import stability as analyse
    from ccenv.engine.fluid.sweep import shipped

    held = settings("ode equilibrium", set_)
    if model not in MODELS and (model in shipped() or Path(model).suffix == ".yaml"):
        _network(model, stability, held, json)
        return
    chosen = known_model(model)
    path = _bottleneck(flows, buffer, held["rate_mbps"], held["rtt_ms"], held["delay_ms"])
    if plot is not None:
        _draw_phase(chosen, path, plot, held, json)
        return
    find: Any = equilibria.find_equilibrium if held["numeric"] else equilibria.equilibrium
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
        print_json(out | {"settings": held})
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


def _draw_phase(model: Model, path: Bottleneck, out: Path, held: dict[str, Any], json: bool) -> None:
    from ccenv.base.figure import save
    from ccenv.benchmarks.fluid_plots import phase_figure
    from ccenv.engine.fluid.analysis.convergence import phase_portrait

    _check_picture(out)
    portrait = phase_portrait(model, path, held["plane"])
    save(phase_figure(portrait), out)
    starts, ends = ([line[place] for line in portrait.trajectories] for place in (0, -1))
    answer = {"picture": out, "axes": portrait.labels, "equilibrium": portrait.rest, "starts": starts, "ends": ends}
    print_answer(answer | {"settings": held}, f"wrote {out}", json)


def _network(name: str, stability: bool, held: dict[str, Any], json: bool) -> None:
    """Print the equilibrium of a scenario over several links, and with ``simulate`` its means beside."""
    from ccenv.engine.fluid.analysis.equilibria import network_equilibrium
    from ccenv.engine.fluid.analysis.stability import network_stability
    from ccenv.engine.fluid.simulate import simulate
    from ccenv.engine.fluid.sweep import load_scenario

    scenario = load_scenario(name)
    point = network_equilibrium(scenario)
    verdict = network_stability(scenario) if stability else None
    metrics = simulate(scenario).metrics if held["simulate"] else None
    if json:
        out: dict[str, Any] = {"scenario": scenario, "equilibrium": asdict(point)}
        if verdict is not None:
            root = verdict.rightmost
            out["stability"] = asdict(verdict) | {"rightmost": {"real": root.real, "imag": root.imag}}
        if metrics is not None:
            out["simulated"] = metrics
        print_json(out | {"settings": held})
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


def _provenance() -> dict[str, Any]:
    return {"versions": versions(), "machine": machine()}


def _settings(command: str, texts: list[str] | None) -> tuple[dict[str, Any], dict[str, float] | None]:
    """Return the settings that hold, and the constants of the model among those given, or None."""
    from ccenv.engine.fluid.parameters import Parameters

    held, others = settings_and_others(command, texts, list(Parameters.model_fields))
    return held, {key: parse_number(str(value), f"-s {key}") for key, value in others.items()} or None


def _sweep(name: str, buffer: list[float] | None, **changes: Any) -> Sweep:
    """Return a sweep with changed values and, if given, fewer buffers. Raises InputError for a buffer that it does not have."""
    from ccenv.engine.fluid.sweep import load_sweep

    buffers_bdp = load_sweep(name).buffers_bdp
    for value in buffer or ():
        if value not in buffers_bdp:
            raise InputError(f"buffers_bdp is {value:g}; the sweep {name!r} has {', '.join(f'{b:g}' for b in buffers_bdp)} BDP")
    return load_sweep(name, **changes, buffers_bdp=buffer)


def _bottleneck(flows: int, buffer: float, rate_mbps: float, rtts_ms: list[float], delay_ms: float) -> Bottleneck:
    from ccenv.engine.fluid.analysis.equilibria import Bottleneck

    if flows < 1:
        raise InputError(f"flows must be at least 1 (got {flows})")
    for name, value in (("buffer", buffer), ("rate", rate_mbps), ("delay", delay_ms)):
        if not value > 0:
            raise InputError(f"{name} must be above 0 (got {value:g})")
    if len(rtts_ms) not in {1, flows}:
        raise InputError(f"rtt_ms must be one number or one for each of the {flows} flows (got {len(rtts_ms)})")
    rtt_s = tuple(1e-3 * rtts_ms[i % len(rtts_ms)] for i in range(flows))
    capacity_Bps = rate_mbps * 125_000.0
    return Bottleneck(capacity_Bps, rtt_s, buffer * capacity_Bps * delay_ms * 1e-3)


def _check_picture(path: Path) -> None:
    from ccenv.base.figure import SUFFIXES

    if path.suffix not in SUFFIXES:
        raise InputError(f"a picture ends in {' or '.join(SUFFIXES)} (got {path.suffix!r})")


def _metric_pictures(cells: list[dict[str, Any]], folder: Path) -> list[Path]:
    from ccenv.base.figure import save
    from ccenv.benchmarks.fluid_plots import metric_figure
    from ccenv.network.metrics.table import FLUID_METRICS

    written = []
    for metric in FLUID_METRICS:
        written.append(folder / f"{metric}.png")
        save(metric_figure(cells, metric), written[-1])
    return written
