"""Ranking of synthesised programs by their best provable constants.

The thresholds of a query are loose; here the largest utilisation and the smallest bytes in flight are bisected, each as "on every
trace on which no bound moves, the objective holds or progress is made". Every bound is proved; the value beyond it is refuted or
undecided.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ccenv.agents.programs import Program, parse_program
from ccenv.proofs.claims.lemma_run import Bracket, bisect
from ccenv.proofs.claims.verifier import Verdict
from ccenv.proofs.synthesis.prove import Task, decide
from ccenv.proofs.synthesis.query.objectives import Amount, Objectives
from ccenv.proofs.synthesis.query.query import Query

UTILISATION = (Fraction(1, 2), Fraction(1), Fraction(1, 64))
INFLIGHT = (Fraction(1, 2), Fraction(5), Fraction(1, 16))
"""Lowest and highest value tried, and the precision; inflight in C*(Rm + D)."""


def rank(query: Query, solutions: list[dict[str, Any]], most: int, budget_s: float) -> list[dict[str, Any]]:
    """Bisect bounds for the first ``most`` solutions and rank them: high utilisation first, then few bytes in flight.

    ``solutions`` are those of ``ccenv.proofs.synthesis.result.result``; ``budget_s`` are CPU seconds, after which values stay
    undecided. Each row has name, utilisation and inflight brackets, and ``summary``.
    """
    begin = time.process_time()
    rows = []
    for solution in solutions[:most]:
        program = parse_program(solution["program"])
        utilisation = _bisect(query, program, "utilisation", begin, budget_s)
        inflight = _bisect(query, program, "inflight", begin, budget_s)
        row = {"name": solution["name"], "utilisation": utilisation.to_dict(), "inflight": inflight.to_dict()}
        rows.append(row | {"summary": _summary(utilisation, inflight)})
    return sorted(rows, key=lambda row: (-(row["utilisation"]["proved"] or 0), row["inflight"]["proved"] or 1e9, row["name"]))


def _bisect(query: Query, program: Program, metric: str, begin: float, budget_s: float) -> Bracket:
    base = Objectives(utilisation=Fraction(0), inflight=Amount(bdp=Fraction(10**6)))
    low, high, precision = UTILISATION if metric == "utilisation" else INFLIGHT

    def asked(value: Fraction) -> tuple[Verdict, Any]:
        left = budget_s - (time.process_time() - begin)
        if left <= 0:
            return "unknown", "the budget is used up"
        goal = replace(base, utilisation=value) if metric == "utilisation" else replace(base, inflight=Amount(bdp=value))
        decision = decide(Task(query.setting().without_timeout(), goal, program, min(query.limits.call_s, left), query.seed))
        verdict: Verdict = "verified" if decision.status == "proved" else decision.status
        return verdict, [item["sha256"] for item in decision.queries] or decision.reason or decision.claim

    return bisect(asked, "largest" if metric == "utilisation" else "smallest", low, high, precision)


def _summary(utilisation: Bracket, inflight: Bracket) -> str:
    link = "no utilisation proved" if utilisation.proved is None else f"at least {float(utilisation.proved):.0%} of the link"
    queue = (
        "no bound on bytes in flight" if inflight.proved is None else f"at most {float(inflight.proved):.2f} C(Rm+D) in flight"
    )
    return f"{link}, {queue}, while beliefs stand still"


def behaviour(query: Query, solutions: list[dict[str, Any]], most: int, rtts: int = 100) -> dict[str, dict[str, float]]:
    """Run solutions in the curve engine, on a benign and on the slowest legal network.

    Returns:
        dict: solution -> {"kind": utilisation, "slow": utilisation} of the second half of ``rtts`` Rm.
    """
    import numpy as np

    from ccenv.agents.sender import ProgramSender
    from ccenv.engine.curve.engine import CurveEngine
    from ccenv.network.adversary import RecordedAdversary
    from ccenv.network.path import Path
    from ccenv.proofs.formulas.view import RTT_S

    rate = 1.5e6
    named = {"infinite": np.inf, "small": 0.5, "large": 6.0, "arbitrary": 1.0}
    buffer = query.network.buffer
    buffer_rtts = named[buffer] if isinstance(buffer, str) else float(buffer)
    jitter = 0.0 if query.network.model == "ideal" else RTT_S
    path = Path.from_dict(
        {
            "link_rate_Bps": rate,
            "buffer_bytes": buffer_rtts * rate * RTT_S,
            "flows": [{"rtt_s": RTT_S, "jitter_s": jitter}],
        }
    )
    out: dict[str, dict[str, float]] = {}
    for solution in solutions[:most]:
        out[solution["name"]] = {}
        for name, served in (("kind", 1.0), ("slow", 0.0)):
            engine = CurveEngine(
                [path],
                model=query.network.model,
                senders=[ProgramSender(solution["name"], parse_program(solution["program"]))],
                adversary=RecordedAdversary(name, np.array([[0.0, 0.0, served, 0.0]]), periodic=True),
                steps_per_rtt=1,
                timing="smt",
                loss_detection="oracle",
                record=True,
            )
            engine.advance(rtts)
            trace = engine.trace(0)
            half = rtts // 2
            out[solution["name"]][name] = float(trace.S[-1, 0] - trace.S[half, 0]) / (rate * RTT_S * (trace.n_steps - half))
    return out
