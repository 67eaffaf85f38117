"""``ccenv replay``: run a solver's trace in the curve engine, or use its network moves against any sender."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.shared import out_option
from ccenv.cli.output import JsonOption, print_json, print_table

if TYPE_CHECKING:
    from ccenv.network.trace import Trace

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
        data, run = _against(trace, as_adversary, rtts)
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
        "utilisation": _used(run),
        "utilisation_of_trace": _used(trace),
        "lost_bytes": float((run.L[-1] - run.L[0]).sum()),
        "largest_inflight_bdp": _inflight(run),
    }
    return data, run


def _against(trace: Trace, name: str, rtts: int) -> tuple[dict[str, Any], Trace]:
    from ccenv.agents import make_sender
    from ccenv.engine.curve.engine import CurveEngine
    from ccenv.base.errors import InputError
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
    return {"sender": name, "steps": rtts, "utilisation": _used(run), "largest_inflight_bdp": _inflight(run)}, run


def _used(trace: Trace) -> float | None:
    """Return bytes delivered over C*(T - D), as the properties count utilisation; None of a trace that is no longer than D.

    Here and below a trace is what comes after its past.
    """
    steps = trace.n_steps - trace.start_row - trace.grid.jitter_steps[0]
    if steps <= 0:
        return None
    can = float(trace.link_rate_Bps[-1]) * trace.header.dt_s * steps
    return float((trace.S[-1] - trace.S[trace.start_row]).sum()) / can


def _inflight(trace: Trace) -> float:
    return float((trace.E - trace.S)[trace.start_row :].sum(axis=1).max()) / trace.header.path.bdp_bytes
