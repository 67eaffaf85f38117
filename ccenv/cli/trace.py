"""``ccenv trace``: check, plot and describe trace files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccenv.cli.shared import out_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.network.trace import Trace

app = typer.Typer(help="Check, plot and describe trace files (.npz, docs/traces.md).\n\nExample: ccenv trace check run.npz")

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
    from ccenv.simulation.legality import check_packet_trace
    from ccenv.simulation.packet_trace import is_of_packets, packet_slack_bytes

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
    file: FileArgument,
    out: Annotated[Path, out_option("Picture to write: .png or .svg.")],
    json: JsonOption = False,
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
    """Describe a trace: who played, on which path, and what came of it.

    Example: ccenv trace show run.npz
    """
    from ccenv.network.trace import load_trace

    trace = load_trace(file)
    summary = summary_of(trace)
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


def summary_of(trace: Trace) -> dict[str, object]:
    """Return who played, on which path, and what came of it."""
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
