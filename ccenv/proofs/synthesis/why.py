"""Why a program is no solution: a counterexample in exact numbers, as a trace file that ``ccenv replay`` takes."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError
from ccenv.network.trace import Trace
from ccenv.agents.programs import Program
from ccenv.proofs.claims.report import write_flow_counterexample
from ccenv.proofs.formulas.export import as_trace
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.view import View
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS, check_flows
from ccenv.proofs.synthesis.prove import Task, broken_parts, claims, decide, require_consistent_beliefs
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.query import Query


def why(query: Query, program: Program, folder: FilePath) -> dict[str, Any]:
    """Decide one program of the user under a query.

    Args:
        query: the query.
        program: any belief program; it need not be of the query's template.
        folder: where the trace is written.

    Returns:
        dict: status (proved, refuted, unknown), what is missed, the trace file and how the curve engine compares.

    Raises:
        InputError: for a program whose inputs this network's encoding lacks.
    """
    unknown = program.inputs() - query.space().template.inputs() - {"MSS/Rm"}
    if unknown:
        raise InputError(f"program {program.name!r} reads {', '.join(sorted(unknown))}, which query {query.name!r} does not have")
    moving = query.beliefs.timeouts != "none"
    if query.flows > 1:
        check_flows(query)
    elif not moving:
        require_consistent_beliefs(query)
    any_start = query.beliefs.start == "any"
    task = Task(query.setting(), query.goals(), program, query.limits.call_s, query.seed, moving, any_start, query.flows)
    decision = decide(task)
    out: dict[str, Any] = {"program": program.name, "query": query.name, "status": decision.status, "claim": decision.claim}
    out |= {"reason": decision.reason, "seconds": round(decision.seconds, 3), "trace": None}
    if decision.claim == NEVER_REPEATS and decision.status == "refuted":
        return out | {"missed": f"no trace of {query.T} samples ends as it began"}
    if decision.view is None:
        return out
    if query.flows > 1:
        return out | _of_flows(task, decision.claim, decision.view, folder)
    view = decision.view
    out |= {
        "missed": missed(query.goals(), view),
        "mss_over_bdp": float(view.alpha),
        "C_L": _series(view.C_L),
        "C_U": _series(view.C_U),
    }
    out |= {"rate": _series(view.rate[1:]), "inflight": _series([view.inflight(t) for t in range(view.last + 1)])}
    trace = as_trace(view, program.name, f"misses {out['missed']} of query {query.name} (T = {query.T})")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be created ({error.strerror})") from None
    file = folder / f"{re.sub('[^A-Za-z0-9_.]+', '-', f'{query.name}-{program.name}')}.npz"
    trace.save(file)
    _, difference = engine_replay(trace)
    engine = "reproduced" if difference <= REPLAY_TOLERANCE else "differs"
    return out | {"trace": str(file), "engine": engine, "engine_relative_difference": difference}


def _of_flows(task: Task, claim: str, view: View, folder: FilePath) -> dict[str, Any]:
    """Return what a counterexample of several flows shows: what is missed, rates, the trace file, and how the engine compares."""
    (query,) = [query for query in claims(task) if query.name == claim]
    file, told = write_flow_counterexample(query, view, folder, task.seconds, task.seed)
    replay = {name: value for name, value in told.items() if name in ("engine", "engine_relative_difference")}
    trace = Trace.load(FilePath(file))
    shares = trace.rate_Bps[1:] / trace.link_rate_Bps[1:, None]
    rates = {f"rate_{i}": _series(shares[:, i]) for i in range(task.flows)}
    return {"missed": claim} | rates | {"trace": file} | replay


def missed(goals: Objectives, view: View) -> str:
    """Return which objectives an exact trace misses, as text."""
    return ", ".join(broken_parts(goals, view))


def _series(values: Any) -> str | None:
    return None if values is None else " ".join(f"{float(value):.4g}" for value in values)
