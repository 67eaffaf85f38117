"""``ccenv ode statements``, ``fit`` and ``network``: parameter sets beside each other, their fit, several bottlenecks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ccenv.cli.completion import configs
from ccenv.cli.shared import out_option, quantity_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text
from ccenv.base.units import MILLISECONDS

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
    from ccenv.benchmarks.fluid import sets
    from ccenv.engine.fluid.files import load_sweep

    _check_json_file(out)
    sweep = load_sweep("validation", step_ms=step_ms)
    packets = sets.read_packets(packet_record) if packet_record is not None else _packets(sweep, packet_runs)
    columns = sets.cells_of_sets(sweep, threads)
    distances = {}
    if published is not None:
        distances = {name: sets.published_distance(cells, published, "validation") for name, cells in columns.items()}
    shown = columns | ({sets.PACKETS: packets} if packets else {})
    rows = sets.statements_table(shown)
    counts = {name: sum(row[name]["holds"] for row in rows) for name in shown}
    result = {"sweep": sweep, "statements": rows, "holding": counts, "published": distances, "packets": packets} | _provenance()
    _finish(result, out, json)
    if not json:
        table = [[row["source"], row["text"], *("yes" if row[name]["holds"] else "no" for name in shown)] for row in rows]
        print_table("statements of [BBR-fluid] section 4.3", ["section", "statement", *shown], table)
        print_text("hold, of 18: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
        for name, found in distances.items():
            print_text(f"{name}: {found['within']} of {found['cells']} cells within the bands of the published numbers")


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
    from ccenv.cli.progress import progress_bar
    from ccenv.engine.fluid.files import load_sweep

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
        rows = [[name, *(f"{found[half]['score']:.3f}" for half in halves)] for name, found in result["errors"].items()]
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
    from ccenv.engine.fluid.analysis.delays import network_stability
    from ccenv.engine.fluid.analysis.network import network_equilibrium
    from ccenv.engine.fluid.files import load_scenario
    from ccenv.engine.fluid.simulate import simulate

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
    from ccenv.cli.progress import progress_bar

    if not runs:
        return []
    with progress_bar("packet engine") as advance:
        return packet_cells(sweep, runs, advance)


def _check_json_file(out: Path | None) -> None:
    from ccenv.base.errors import InputError

    if out is not None and out.suffix != ".json":
        raise InputError(f"the record ends in '.json' (got {out.name!r})")


def _finish(result: dict[str, Any], out: Path | None, json: bool) -> None:
    from json import dumps

    from ccenv.cli.output import to_plain
    from ccenv.base.files import write_atomic

    if out is not None:
        write_atomic(out, (dumps(to_plain(result), indent=1, allow_nan=False) + "\n").encode())
    if json:
        print_json(result)
    elif out is not None:
        print_text(f"wrote {out}")


def _provenance() -> dict[str, Any]:
    from ccenv.base.provenance import machine, versions

    return {"versions": versions(), "machine": machine()}
