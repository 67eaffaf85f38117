"""``ccenv trace`` (check; replay of a solver's trace in the engine) and ``ccenv links`` (traces of links)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError
from ccenv.cli.options import JsonOption, SettingsOption, argument, out_option, settings
from ccenv.cli.output import print_answer, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.network.trace import Trace

app = typer.Typer(help="Check and replay trace files (.npz, docs/networks.md).\n\nExample: ccenv trace check run.npz")

EXIT_ILLEGAL = 1

FileArgument = Annotated[Path, argument("FILE", "A trace file.")]


@app.command()
def check(
    files: Annotated[list[Path], argument("FILE...", "Trace files.")], set_: SettingsOption = None, json: JsonOption = False
) -> int:
    """Check that traces obey every law of their network model.

    Names each law that is broken, first the one broken earliest: where and by how much. Traces of whole packets (of sim and live)
    may be off the laws of fluids by a packet and what a step carries; the answer says by how many bytes.

    Exit code 0 if all traces are legal, 1 if one is not, 2 if one cannot be read.

    Example: ccenv trace check run.npz -s tolerance=1e-6
    """
    from ccenv.network.laws import check_trace
    from ccenv.network.trace import load_trace
    from ccenv.simulation.packet_trace import check_packet_trace, is_of_packets, packet_slack_bytes

    held = settings("trace check", set_)
    results = []
    for file in files:
        trace = load_trace(file)
        slack_bytes = packet_slack_bytes(trace) if is_of_packets(trace) else 0.0
        check = check_packet_trace if slack_bytes else check_trace
        violations = check(trace, **held)
        answer = {"file": str(file), "model": trace.header.model, "legal": not violations, "violations": violations}
        results.append(answer | ({"slack_bytes": slack_bytes} if slack_bytes else {}) | {"settings": held})
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


@app.command(hidden=True)
def plot(
    file: FileArgument, out: Annotated[Path, out_option("Picture to write: .png or .svg.")], json: JsonOption = False
) -> None:
    """Plot the curves, the queue, the rates and the beliefs of a trace: another name of ccenv show FILE -o PICTURE.

    Example: ccenv show run.npz -o run.png
    """
    from ccenv.network.figure import plot_trace
    from ccenv.network.trace import load_trace

    plot_trace(load_trace(file), out)
    print_answer({"file": str(file), "picture": str(out)}, f"wrote {out}", json)


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


@app.command()
def replay(
    file: Annotated[Path, argument("FILE", "A trace of the solver (.npz, one step per Rm).")],
    out: Annotated[Path | None, out_option("Write the engine's trace (.npz).")] = None,
    json: JsonOption = False,
) -> int:
    """Run a solver's trace in the curve engine: same bytes sent, same network moves; compare the curves.

    Exit code 0 if the engine reproduces the trace, 1 if it differs, 2 for an error. To play its network against another sender:
    ccenv attack SENDER --adversary FILE --timing smt

    Example: ccenv trace replay runs/verify/counterexample.npz
    """
    from ccenv.network.laws import check_trace
    from ccenv.network.trace import load_trace
    from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay

    trace = load_trace(file)
    run, difference = engine_replay(trace)
    data: dict[str, Any] = {
        "file": str(file),
        "model": trace.header.model,
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
        "largest_inflight_bdp": float((run.E - run.S)[run.start_row :].sum(axis=1).max()) / run.header.path.bdp_bytes,
    }
    if out is not None:
        run.save(out)
        data["output"] = str(out)
    if json:
        print_json(data)
    else:
        print_table(str(file), ["what", "value"], data.items())
    return 0 if data["reproduced"] else EXIT_DIFFERS


def _utilisation(trace: Trace) -> float | None:
    """Return bytes delivered over C*(T - D), the utilisation of the properties, without the trace's past; None if T <= D."""
    steps = trace.n_steps - trace.start_row - trace.grid.jitter_steps[0]
    if steps <= 0:
        return None
    capacity_bytes = float(trace.link_rate_Bps[-1]) * trace.header.dt_s * steps
    return float((trace.S[-1] - trace.S[trace.start_row]).sum()) / capacity_bytes


links_app = typer.Typer(help="Traces of varying links (docs/simulation.md).\n\nExample: ccenv links import trace.csv --json")


@links_app.command("import")
def import_trace(
    trace: Annotated[Path, argument("TRACE", "A Mahimahi file, a CSV of rates or opportunities, or JSON.")],
    *,
    out: Annotated[Path | None, out_option("Write it as ccenv's own JSON, which scenarios read faster.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Read a link trace and print its format and statistics; an invalid one gives one line and exit code 2.

    Example: ccenv links import trace.csv -o mylink.json
    """
    from ccenv.network.links import read_trace, save_trace

    held = settings("links import", set_)
    stored = read_trace(trace, **held)
    if out is not None:
        save_trace(out, stored.trace, f"imported from {trace.name}")
    answer = {"file": str(trace), "format": stored.format, "columns": list(stored.columns), "lines": stored.lines}
    _show({**answer, **stored.trace.summary(), "written": None if out is None else str(out)}, held, json)


@links_app.command("make")
def make_trace(
    kind: Annotated[str, typer.Argument(help="cellular, leo or wifi.")],
    *,
    out: Annotated[Path, out_option("JSON file to write.")],
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Make a trace by a generator and write it as a file.

    Example: ccenv links make cellular -s mean_mbps=20 -s seed=1 -o cellular.json
    """
    from ccenv.network.links import save_trace
    from ccenv.simulation import made_trace

    held = settings("links make", set_)
    mean_mbps, length_s, seed = held["mean_mbps"], held["length_s"], held["seed"]
    if not 0 <= seed < 2**53:
        raise InputError(f"seed {seed} is not in [0, 2**53)")
    generator = {"kind": kind, "mean_Bps": mean_mbps * 125_000.0, **({} if length_s is None else {"length_s": length_s})}
    trace = made_trace(generator, seed)
    save_trace(out, trace, f"ccenv links make {kind} -s mean_mbps={mean_mbps:g} -s seed={seed}")
    _show({"kind_of_link": kind, "seed": seed, **trace.summary(), "written": str(out)}, held, json)


def _show(answer: dict[str, Any], held: dict[str, Any], json: bool) -> None:
    if json:
        print_json(answer | {"settings": held})
        return
    print_table("trace", ["what", "value"], [(key, value) for key, value in answer.items() if value is not None])
    if answer["written"]:
        print_text(f"wrote {answer['written']}")
