"""Why a program is no solution of a query about two flows: a counterexample of both, as a trace file."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.network.trace import Trace
from ccenv.programs import Program
from ccenv.smt.claims.report import decide_fairness
from ccenv.smt.two_flow.exact import N_FLOWS
from ccenv.smt.two_flow.program import pair_questions
from ccenv.synth.pair.run import NEVER_REPEATS, PairTask, decide_pair, pair_goals
from ccenv.synth.query.query import Query


def why_pair(query: Query, program: Program, folder: FilePath) -> dict[str, Any]:
    """Decide one program as two flows.

    Returns:
        dict: status, what is missed, rates of both flows, the trace file, and how the curve engine compares where it can run the
        trace (bytes that were sent together leave together there).
    """
    limits, goals = query.limits, pair_goals(query)
    decision = decide_pair(PairTask(query.setting(), goals, program, limits.call_s, query.seed))
    out: dict[str, Any] = {"program": program.name, "query": query.name, "status": decision.status, "claim": decision.claim}
    out |= {"reason": decision.reason, "seconds": round(decision.seconds, 3), "trace": None}
    if decision.claim == NEVER_REPEATS and decision.status == "refuted":
        return out | {"missed": f"no trace of {query.T} samples ends as it began"}
    if decision.values is None:
        return out
    (question,) = [q for q in pair_questions(program, query.setting(), goals) if q.claim == decision.claim]
    told = decide_fairness(question, folder, limits.call_s, query.seed).to_dict()
    replay = {name: value for name, value in told["replay"].items() if name.startswith("engine") and name != "engine_sender"}
    trace = Trace.load(FilePath(told["trace"]))
    shares = trace.rate_Bps[1:] / trace.link_rate_Bps[1:, None]
    rates = {f"rate_{i}": " ".join(f"{share:.4g}" for share in shares[:, i]) for i in range(N_FLOWS)}
    return out | {"missed": decision.claim} | rates | {"trace": told["trace"]} | replay
