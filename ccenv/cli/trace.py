"""``ccenv trace`` (check, plot, describe), ``ccenv replay`` (a solver's trace in the engine), ``ccenv paths`` (link traces)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.units import MBPS
from ccenv.cli.shared import JsonOption, out_option, print_json, print_table, print_text, quantity_option, seconds_option

if TYPE_CHECKING:
    from ccenv.network.trace import Trace

app = typer.Typer(help="Check, plot and describe trace files (.npz, docs/networks.md).\n\nExample: ccenv trace check run.npz")

EXIT_ILLEGAL = 1

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A trace file.")]


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Trace files.")],
    tolerance: Annotated[
        float | None, typer.Option(help="Roundoff to forgive, relative to the bytes at stake; 1e-9 by default.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Check that traces obey every law of their network model.

    Names each law that is broken, first the one broken earliest: where and by how much. Traces of whole packets (of sim and live)
    may be off the laws of fluids by a packet and what a step carries; the answer says by how many bytes.

    Exit code 0 if all traces are legal, 1 if one is not, 2 if one cannot be read.

    Example: ccenv trace check run.npz
    """
    from ccenv.network.laws import DEFAULT_TOLERANCE, check_trace
    from ccenv.network.trace import load_trace
    from ccenv.simulation.packet_trace import check_packet_trace, is_of_packets, packet_slack_bytes

    results = []
    for file in files:
        trace = load_trace(file)
        slack_bytes = packet_slack_bytes(trace) if is_of_packets(trace) else 0.0
        check = check_packet_trace if slack_bytes else check_trace
        violations = check(trace, DEFAULT_TOLERANCE if tolerance is None else tolerance)
        results.append(
            {
                "file": str(file),
                "model": trace.header.model,
                "legal": not violations,
                "violations": violations,
                **({"slack_bytes": slack_bytes} if slack_bytes else {}),
            }
        )
        if json:
            continue
        if violations:
            print_text("\n".join([f"{file}: illegal", *(f"  {violation.message}" for violation in violations)]))
        else:
            print_text(
                f"{file}: legal ({trace.header.model}, {trace.n_steps} steps, {trace.n_flows} flow{'s' * (trace.n_flows > 1)}"
                + (f"; whole packets: up to {slack_bytes:g} bytes off the fluid laws)" if slack_bytes else ")")
            )
    if json:
        print_json(results)
    return 0 if all(result["legal"] for result in results) else EXIT_ILLEGAL


@app.command()
def plot(
    file: FileArgument, out: Annotated[Path, out_option("Picture to write: .png or .svg.")], json: JsonOption = False
) -> None:
    """Plot the curves, the queue, the rates and the beliefs of a trace.

    Example: ccenv trace plot run.npz -o run.png
    """
    from ccenv.network.figure import plot_trace
    from ccenv.network.trace import load_trace

    plot_trace(load_trace(file), out)
    if json:
        print_json({"file": str(file), "picture": str(out)})
    else:
        print_text(f"wrote {out}")


@app.command()
def show(file: FileArgument, json: JsonOption = False) -> None:
    """Describe a trace: senders, adversary, path and results.

    Example: ccenv trace show run.npz
    """
    from ccenv.network.trace import load_trace

    trace = load_trace(file)
    summary = summarize_trace(trace)
    if json:
        print_json(summary)
        return
    header = {
        key: summary[key] for key in ("model", "timing", "history", "adversary", "seed", "steps", "steps_per_rtt", "duration_s")
    }
    path = {f"path.{key}": value for key, value in trace.header.path.to_dict().items() if key != "flows"}
    print_table(str(file), ["what", "value"], (header | path | {"notes": trace.header.notes}).items())
    flows = summary["flows"]
    if isinstance(flows, list):
        print_table("flows", list(flows[0]), [list(flow.values()) for flow in flows])


def summarize_trace(trace: Trace) -> dict[str, object]:
    """Return the summary of a trace: senders, adversary, path and results."""
    header = trace.header
    duration_s = float(trace.times_s[-1])
    delivered = trace.S[-1] - trace.S[0]
    sent = trace.A[-1] - trace.A[0]
    lost = trace.L[-1] - trace.L[0]
    capacity = float(trace.link_rate_Bps[1:].sum() * header.dt_s)
    flows = [
        {
            "flow": i,
            "sender": header.senders[i],
            "rtt_s": flow.rtt_s,
            "jitter_s": flow.jitter_s,
            "sent_bytes": float(sent[i]),
            "lost_bytes": float(lost[i]),
            "delivered_bytes": float(delivered[i]),
            "throughput_Bps": float(delivered[i]) / duration_s,
        }
        for i, flow in enumerate(header.path.flows)
    ]
    return {
        "format_version": header.version,
        "ccenv_version": header.ccenv_version,
        "model": header.model,
        "timing": header.timing,
        "history": header.history,
        "adversary": header.adversary,
        "seed": header.seed,
        "notes": header.notes,
        "steps": trace.n_steps,
        "steps_per_rtt": header.steps_per_rtt,
        "dt_s": header.dt_s,
        "duration_s": duration_s,
        "path": header.path.to_dict(),
        "utilisation": float(delivered.sum()) / capacity,
        "largest_queue_bytes": float(trace.queue_bytes.max()),
        "beliefs": sorted(trace.beliefs),
        "flows": flows,
    }


EXIT_DIFFERS = 1
MOST_RTTS = 100_000


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace of the solver (.npz, one step per Rm).")],
    as_adversary: Annotated[
        str | None,
        typer.Option("--as-adversary", metavar="SENDER", help="Play its network moves, over and over, against a sender."),
    ] = None,
    rtts: Annotated[int, typer.Option(help="Length of that run, in Rm.")] = 100,
    out: Annotated[Path | None, out_option("Write the engine's trace (.npz).")] = None,
    json: JsonOption = False,
) -> int:
    """Run a solver's trace in the curve engine: same bytes sent, same network moves; compare the curves.

    Exit code 0 if the engine reproduces the trace, 1 if it differs, 2 for an error.

    Example: ccenv replay runs/verify/counterexample.npz
    """
    from ccenv.network.trace import load_trace

    trace = load_trace(file)
    if as_adversary is None:
        data, run = _reproduce(trace)
    else:
        data, run = _play_against(trace, as_adversary, rtts)
    data = {"file": str(file), "model": trace.header.model} | data
    if out is not None:
        run.save(out)
        data["output"] = str(out)
    if json:
        print_json(data)
    else:
        print_table(str(file), ["what", "value"], data.items())
    return EXIT_DIFFERS if data.get("reproduced") is False else 0


def _reproduce(trace: Trace) -> tuple[dict[str, Any], Trace]:
    from ccenv.network.laws import check_trace
    from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay

    run, difference = engine_replay(trace)
    data = {
        "sender": ", ".join(trace.header.senders),
        "steps": trace.n_steps - trace.start_row,
        "steps_before": trace.start_row,
        "legal": not check_trace(trace),
        "reproduced": difference <= REPLAY_TOLERANCE,
        "relative_difference": difference,
        "sender_input": "the bytes of the trace",
        "utilisation": _utilisation(run),
        "utilisation_of_trace": _utilisation(trace),
        "lost_bytes": float((run.L[-1] - run.L[0]).sum()),
        "largest_inflight_bdp": _largest_inflight_bdp(run),
    }
    return data, run


def _play_against(trace: Trace, name: str, rtts: int) -> tuple[dict[str, Any], Trace]:
    from ccenv.agents import make_sender
    from ccenv.base.errors import InputError
    from ccenv.engine.curve.engine import CurveEngine
    from ccenv.proofs.formulas.moves import as_adversary

    sender, adversary = make_sender(name), as_adversary(trace)
    least = trace.grid.jitter_steps[0] + 1  # in Rm, with one step per Rm: utilisation is that of the time beyond D
    if not least <= rtts <= MOST_RTTS:
        raise InputError(f"--rtts is {rtts}; it must be {least} to {MOST_RTTS}")
    engine = CurveEngine(
        [trace.header.path],
        model=trace.header.model,
        senders=[sender],
        adversary=adversary,
        steps_per_rtt=1,
        timing="smt",
        loss_detection="oracle",
        record=True,
    )
    engine.advance(rtts)
    run = engine.trace(0)
    return {
        "sender": name,
        "steps": rtts,
        "utilisation": _utilisation(run),
        "largest_inflight_bdp": _largest_inflight_bdp(run),
    }, run


def _utilisation(trace: Trace) -> float | None:
    """Return bytes delivered over C*(T - D), the utilisation of the properties, without the trace's past; None if T <= D."""
    steps = trace.n_steps - trace.start_row - trace.grid.jitter_steps[0]
    if steps <= 0:
        return None
    capacity_bytes = float(trace.link_rate_Bps[-1]) * trace.header.dt_s * steps
    return float((trace.S[-1] - trace.S[trace.start_row]).sum()) / capacity_bytes


def _largest_inflight_bdp(trace: Trace) -> float:
    return float((trace.E - trace.S)[trace.start_row :].sum(axis=1).max()) / trace.header.path.bdp_bytes


links_app = typer.Typer(help="Traces of varying links (docs/simulation.md).\n\nExample: ccenv paths import trace.csv --json")


@links_app.command("import")
def import_trace(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A Mahimahi file, a CSV of rates or opportunities, or JSON.")],
    *,
    max_gap: Annotated[float, seconds_option("--max-gap", "Longest time between two rows; more is a gap.")] = 60.0,
    out: Annotated[Path | None, out_option("Write it as ccenv's own JSON, which scenarios read faster.")] = None,
    json: JsonOption = False,
) -> None:
    """Read a link trace and print its format and statistics; an invalid one gives one line and exit code 2.

    Example: ccenv paths import trace.csv -o mylink.json
    """
    from ccenv.network.links import read_trace, save_trace

    stored = read_trace(trace, max_gap)
    if out is not None:
        save_trace(out, stored.trace, f"imported from {trace.name}")
    answer = {"file": str(trace), "format": stored.format, "columns": list(stored.columns), "lines": stored.lines}
    _show({**answer, **stored.trace.summary(), "written": None if out is None else str(out)}, json)


@links_app.command("make")
def make_trace(
    kind: Annotated[str, typer.Argument(help="cellular, leo or wifi.")],
    *,
    out: Annotated[Path, out_option("JSON file to write.")],
    mean_mbps: Annotated[float, quantity_option("--mean", MBPS, "Mean rate.", "--mean-mbps")] = 20.0,
    length: Annotated[float | None, seconds_option("--length", "After which it begins again.")] = None,
    seed: Annotated[int, typer.Option(help="Of its random numbers.")] = 0,
    json: JsonOption = False,
) -> None:
    """Make a trace by a generator and write it as a file.

    Example: ccenv paths make cellular --mean-mbps 20 --seed 1 -o cellular.json
    """
    from ccenv.base.errors import InputError
    from ccenv.network.links import save_trace
    from ccenv.simulation import made_trace

    if not 0 <= seed < 2**53:
        raise InputError(f"seed {seed} is not in [0, 2**53)")
    settings = {"kind": kind, "mean_Bps": mean_mbps * 125_000.0, **({} if length is None else {"length_s": length})}
    trace = made_trace(settings, seed)
    save_trace(out, trace, f"ccenv paths make {kind} --mean-mbps {mean_mbps:g} --seed {seed}")
    _show({"kind_of_link": kind, "seed": seed, **trace.summary(), "written": str(out)}, json)


def _show(answer: dict[str, Any], json: bool) -> None:
    if json:
        print_json(answer)
        return
    print_table("trace", ["what", "value"], [(key, value) for key, value in answer.items() if value is not None])
    if answer["written"]:
        print_text(f"wrote {answer['written']}")
