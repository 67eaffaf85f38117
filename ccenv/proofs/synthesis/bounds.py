"""What is provable of synthesised programs beyond their query: a ranking by bisected constants, and lemmas ([CCmatic] App. F).

The thresholds of a query are loose. The ranking bisects the largest utilisation and the smallest bytes in flight, each as "on
every trace on which no bound moves, the objective holds or progress is made". The lemmas are those of cc_qdel, with each solution
as the sender; constants are passed on: F.5 takes the C_L that F.3 proves as converged, F.6 and F.7 start from the queue that F.5
proves. Every bound is proved; the value beyond it is refuted or undecided. Solved queries are kept in the evidence store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ccenv.agents.programs import Program, parse_program
from ccenv.agents.sender import ProgramSender
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import Path
from ccenv.proofs.claims.lemma_run import Bracket, bisect
from ccenv.proofs.claims.lemmas import Lemma, LoadedSuite, Search, constants_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.report import combine_verdicts
from ccenv.proofs.claims.verifier import Verdict, Verifier
from ccenv.proofs.formulas.view import RTT_S
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.solvers import Store
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
        goal = base.model_copy(update={metric: value if metric == "utilisation" else Amount(bdp=value)})
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

    from ccenv.engine.curve.engine import CurveEngine

    rate = 1.5e6
    named = {"infinite": np.inf, "small": 0.5, "large": 6.0, "arbitrary": 1.0}
    buffer = query.network.buffer
    buffer_rtts = named[buffer] if isinstance(buffer, str) else float(buffer)
    jitter = 0.0 if query.network.model == "ideal" else RTT_S
    path = Path.from_dict(
        {"link_rate_Bps": rate, "buffer_bytes": buffer_rtts * rate * RTT_S, "flows": [{"rtt_s": RTT_S, "jitter_s": jitter}]}
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


SUITE = "cc_qdel"
INPUTS = frozenset({"C_L", "C_U", "qdel_L", "Rm", "MSS/Rm"})
LEMMAS = ("F.1", "F.3", "F.5", "F.6", "F.7 utilisation", "F.7 inflight")
OF_LOSSES = ("F.7 lossy steps", "F.7 loss per step")
SHORTEST_T = 7
"""Shorter traces prove little about the long run."""

_SEARCHES = {
    "C_L_low": Search(best="largest", low=0.05, high=0.95, precision=0.01),
    "queue_high": Search(best="smallest", low=0.5, high=12, precision=0.05),
    "drain_bdp": Search(best="largest", low=0.1, high=8, precision=0.1),
    "utilisation": Search(best="largest", low=0.05, high=0.95, precision=0.01),
    "inflight": Search(best="smallest", low=1, high=12, precision=0.1),
}
"""Wider than those of the lemma set, which fit its sender."""


def why_not(query: Query) -> str | None:
    """Return why the lemmas do not apply to a query's solutions, or None if they do."""
    if query.flows != 1 or query.network.model != "ccac" or query.network.buffer not in ("infinite", "large"):
        return "the lemmas are about one flow on ccac with an infinite or a large buffer"
    others = query.space().template.inputs() - INPUTS
    return f"the lemmas speak of C_L, C_U and delays, not of {', '.join(sorted(others))}" if others else None


def lemma_suites(
    query: Query, solutions: list[dict[str, Any]], most: int, budget_s: float, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Decide the lemmas of the first ``most`` solutions of a query with bisected constants, within ``budget_s`` seconds.

    ``solutions`` are those of ``ccenv.proofs.synthesis.result.result``; ``progress`` receives a line per lemma.

    Returns:
        dict: ``suite``, ``T``, and ``solutions``: per name its setting, lemmas and ``summary``; or why they do not apply.
    """
    reason = why_not(query)
    if reason is not None:
        return {"applies": False, "reason": reason}
    end = time.monotonic() + budget_s
    rows = {}
    for solution in solutions[:most]:
        rows[solution["name"]] = _decide_lemmas(query, parse_program(solution["program"]), end, progress)
    return {"applies": True, "suite": SUITE, "T": _trace_samples(query), "solutions": rows}


def _trace_samples(query: Query) -> int:
    return max(query.T, SHORTEST_T)


@dataclass
class _Prover:
    """One solution's lemmas."""

    loaded: LoadedSuite  # the lemma set with the solution as its sender
    setting_name: str  # treatment of the past
    samples: int  # T
    call_s: float  # seconds per solver call
    seed: int
    end: float  # monotonic time at which the budget is used up
    numbers: dict[str, Fraction]  # constants; proved ones replace those of the set
    store: Store  # solved queries

    def decide(self, lemma: Lemma, numbers: dict[str, Fraction]) -> tuple[Verdict, list[str]]:
        """Return the verdict of all queries of a lemma, and their hashes."""
        setting = suite_setting(self.loaded, self.setting_name, self.samples)
        verdicts: list[Verdict] = []
        hashes: list[str] = []
        for query in lemma_queries(self.loaded, lemma, setting, numbers):
            left = self.end - time.monotonic()
            if left <= 0:
                return "unknown", hashes
            result = Verifier(min(self.call_s, left), self.seed, store=self.store).decide(query)
            verdicts.append(result.verdict)
            hashes.append(result.evidence["sha256"])
            if result.verdict != "verified":
                break
        return combine_verdicts(verdicts), hashes

    def lemma(self, lemma: Lemma) -> dict[str, Any]:
        """Decide a lemma, or find its best constant and store it for later lemmas."""
        out: dict[str, Any] = {"name": lemma.name, "text": lemma.text}
        constant = self.loaded.suite.constants.get(lemma.bound or "")
        if constant is None or constant.search is None:
            verdict, hashes = self.decide(lemma, self.numbers)
            return out | {"verdict": verdict, "queries": hashes}
        name, search = str(lemma.bound), constant.search
        low, high, precision = (Fraction(str(x)) for x in (search.low, search.high, search.precision))
        bracket = bisect(
            lambda value: self.decide(lemma, self.numbers | {name: value}), search.best, low, high, precision, self.numbers[name]
        )
        if bracket.proved is not None:
            self.numbers[name] = bracket.proved
        refuted = bracket.refuted is not None and not bracket.undecided
        verdict = "verified" if bracket.proved is not None else "refuted" if refuted else "unknown"
        return out | {"verdict": verdict, "constant": name} | bracket.to_dict()


def _decide_lemmas(query: Query, program: Program, end: float, progress: Callable[[str], None] | None) -> dict[str, Any]:
    prover = _make_prover(query, program, end)
    losses = OF_LOSSES if query.network.buffer == "large" else ()
    by_name = {lemma.name: lemma for lemma in prover.loaded.suite.lemmas}
    rows: list[dict[str, Any]] = []
    for name in (*LEMMAS, *losses):
        if by_name[name].settings and prover.setting_name not in by_name[name].settings:
            continue
        rows.append(prover.lemma(by_name[name]))
        if progress is not None:
            progress(f"{program.name} {name}: {rows[-1]['verdict']}")
        if name in ("F.1", "F.3") and rows[-1]["verdict"] != "verified":
            # Nothing is then known to converge: the other lemmas would be about no lasting state.
            break
    return {"setting_name": prover.setting_name, "lemmas": rows, "summary": _summarize_lemmas(rows, prover.samples)}


def _make_prover(query: Query, program: Program, end: float) -> _Prover:
    base = load_suite(SUITE)
    searches = {
        name: constant.model_copy(update={"search": _SEARCHES.get(name, constant.search)})
        for name, constant in base.suite.constants.items()
    }
    # A lemma with given ones is decided in full here: its constants change from one solution to the next.
    lemmas = [lemma.model_copy(update={"given": ()}) for lemma in base.suite.lemmas]
    changed = {"sender": program.name, "buffer": query.network.buffer, "constants": searches, "lemmas": lemmas}
    sender = ProgramSmtSender(program)
    loaded = replace(base, suite=base.suite.model_copy(update=changed), sender=sender)
    setting_name = "sound" if sender.largest_rate() is None else "history"
    numbers = constants_of(loaded.suite, setting_name, _trace_samples(query))
    return _Prover(loaded, setting_name, _trace_samples(query), query.limits.call_s, query.seed, end, numbers, Store())


def _summarize_lemmas(rows: list[dict[str, Any]], samples: int) -> str:
    """Return one line: what is proved of a solution in the long run."""
    texts = {
        "F.1": "right beliefs stay right",
        "F.3": "C_L stays at or above {:.2f} C",
        "F.5": "the queue at or below {:.2f} C(Rm+D)",
        "F.6": "a longer queue falls by {:.1f} C*Rm",
        "F.7 utilisation": "then {:.0%} of the link",
        "F.7 inflight": "{:.1f} C(Rm+D) in flight",
        "F.7 lossy steps": "{:.0f} lossy steps",
        "F.7 loss per step": "{:.2f} C*Rm lost in a step",
    }
    proved_texts = [texts[row["name"]].format(row.get("proved")) for row in rows if row["verdict"] == "verified"]
    missing = [row["name"] for row in rows if row["verdict"] != "verified"]
    line = f"in {samples} samples: " + (", ".join(proved_texts) or "nothing proved")
    return line + (f"; not proved: {', '.join(missing)}" if missing else "")
