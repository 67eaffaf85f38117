"""Decide a claim query by query and report the outcome as JSON; counterexamples become trace files with a legal past if any.

A query constrains only a few steps before its trace. :func:`find_past` asks for a past from an empty path, in which the network
obeys its laws and the sender the query's largest rate: first of the given counterexample, then of any. Beliefs at sample 0 stay
the solver's choice, since the past is that of the network, not a run of the sender's rule.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.base.errors import CcenvError
from ccenv.base.files import make_folder
from ccenv.base.provenance import VERSION as CCENV_VERSION
from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace
from ccenv.proofs.claims.cycles import RETURNS, cycle_query
from ccenv.proofs.claims.endless import VERSION
from ccenv.proofs.claims.fairness import fluid_order
from ccenv.proofs.claims.properties import FIRST
from ccenv.proofs.claims.verifier import STEP_FAILS, Query, Result, Verdict, Verifier, complete_values, confirm
from ccenv.proofs.formulas.encode import Encoding
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import LONGEST_PAST, LONGEST_TRACE, Setting
from ccenv.proofs.formulas.view import View, as_trace
from ccenv.proofs.replay.closed_loop import find_objection, run_in_engine
from ccenv.proofs.solver.solvers import query_hash, solve, to_smtlib, version_of
from ccenv.proofs.solver.terms import Formula, same_truth

REACH_STEPS = 12
"""Steps of the past for an empty start: four steps at 2*C fill the two C(Rm+D) that most lemmas start with."""

LIMIT_S = 20.0
"""Per solver call."""


@dataclass(frozen=True)
class Reach:
    """Whether a legal past leads to a counterexample."""

    # `true`: `result` has one; `false`: proved that no counterexample of the query has one of `steps` steps or fewer; `unknown`:
    # neither
    reachable: Literal[True, False, "unknown"]
    text: str  # the same in words
    steps: int
    query: Query  # with the longer past if there is one
    result: Result = field(repr=False)  # the counterexample with its past

    def to_dict(self) -> dict[str, Any]:
        """Return the part of a replay record."""
        return {"reachable": self.reachable, "past": self.text, "past_steps": self.steps}


def find_past(query: Query, result: Result) -> Reach:
    """Look for a legal past of a refuted query's counterexample.

    Raises ReplayError if the exact replayer does not reproduce the solver's trace (a bug, not an answer).
    """
    if result.view is None:
        raise CcenvError(f"{query.name}: no counterexample whose past could be looked for")
    # long enough to send the bytes in flight at sample 0 at twice the link's rate
    steps = min(LONGEST_PAST, LONGEST_TRACE, REACH_STEPS + int(result.view.inflight(0)))
    longer = replace(query, setting=with_past(query.setting, steps))
    encoding = longer.encoding()
    violation = longer.claim.violation(encoding.view)
    # The published delay rule allows traces without a past, so only the given trace can be asked about.
    attempts = [[violation, *_fix_trace(encoding, result.values)]] + [[violation]] * (query.setting.delay_rule == "sound")
    answer = None
    for extra in attempts:
        answer = solve(to_smtlib(encoding.formulas() + [part for part in extra if part is not True]), "z3", LIMIT_S)
        if answer.status == "sat":
            reached = replace(result, view=confirm(longer, encoding, answer), values=complete_values(encoding, answer))
            text = f"a legal past of {steps} Rm from an empty path is in the trace"
            return Reach(True, text, steps, longer, reached)
    if answer is not None and answer.status == "unsat" and len(attempts) == 2:
        text = f"no counterexample has a legal past of {steps} Rm or less from an empty path"
        return Reach(False, text, steps, query, result)
    reason = "the published delay rule has no past" if len(attempts) == 1 else answer.reason if answer is not None else ""
    return Reach("unknown", f"no legal past of {steps} Rm was found: {reason}", steps, query, result)


def with_past(setting: Setting, steps: int) -> Setting:
    """Return a setting whose past begins so many steps before the trace, on an empty path."""
    return replace(setting, delay_rule="sound", past_steps=steps, past_start="empty")


def _fix_trace(encoding: Encoding, values: dict[str, Any]) -> Iterator[Formula]:
    """Yield that all variables of the trace have the given values, except those of the past."""
    import z3

    for name, term in encoding.variables.all.items():
        if "_before_" in name or name not in values:
            continue
        value = values[name]
        yield same_truth(term, bool(value)) if z3.is_bool(term) else term == z3.RealVal(str(value))


FLUID_LIMIT_S = 60.0
"""Limit of the search for a counterexample of several flows in exact FIFO; beyond it the relaxed one is reported."""


@dataclass
class Outcome:
    """One line of a report."""

    name: str  # claim or lemma
    verdict: Verdict  # refuted if a trace breaks the claim, verified if all queries are, else unknown
    bound: Any = None  # the proved number, or None; `paper`: the paper's
    paper: Any = None
    seconds: float = 0.0  # solver time
    trace: str | None = None  # file of the counterexample, or of the trace at which a step fails, or None
    details: dict[str, Any] = field(default_factory=dict)  # further entries of the JSON object

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        head = {"name": self.name, "verdict": self.verdict, "bound": self.bound, "paper": self.paper}
        return head | {"seconds": round(self.seconds, 3), "trace": self.trace} | self.details


def decide_claim(name: str, queries: Sequence[Query], verifier: Verifier, folder: FilePath) -> Outcome:
    """Decide the queries of a claim in order, up to the first counterexample.

    Where a step of an argument about a sender's runs fails, look for a repeatable trace that breaks the claim.
    """
    results: list[Result] = []
    verifier.start(queries)
    try:
        for query in queries:
            results.append(verifier.decide(query))
            if results[-1].view is not None:
                break
    finally:
        verifier.stop()
    broken, query = results[-1], queries[len(results) - 1]
    lasso = ""
    if broken.reason == STEP_FAILS:
        query, results[-1], lasso = refute(query, broken, verifier)
        broken = results[-1]
    verdict = combine_verdicts(result.verdict for result in results)
    rechecks = [result.recheck for result in results if result.recheck]
    confirmed = all(again["status"] == "unsat" for again in rechecks)
    if verdict == "verified" and not confirmed:
        verdict = "unknown"
    outcome = Outcome(name, verdict, seconds=sum(result.seconds for result in results))
    reasons = [result.reason if result.view else f"{result.name}: {result.reason}" for result in results if result.reason]
    if not confirmed:
        reasons.append(f"proved, but {rechecks[0]['solver']} did not confirm it")
    if reasons:
        outcome.details["reason"] = "; ".join(reasons)
    twins = [result.sanity for result in results if result.sanity]
    outcome.details["sanity"] = {
        "satisfiable": all(twin["satisfiable"] is True for twin in twins) if twins else None,
        "note": "proved: the query without the property has a trace; refuted: the counterexample is one",
    }
    outcome.details["queries"] = [
        _query_record(query, result) for query, result in zip([*queries[: len(results) - 1], query], results, strict=True)
    ]
    if rechecks:
        outcome.details["recheck"] = {
            "solver": rechecks[0]["solver"],
            "confirmed": confirmed,
            "seconds": round(sum(again["seconds"] for again in rechecks), 3),
        }
    if broken.view is not None:
        outcome.trace, outcome.details["replay"] = write_counterexample(query, broken, folder, name)
        outcome.details["reachable"] = outcome.details["replay"]["reachable"]
        objection = find_objection(outcome.details["replay"])
        if verdict == "refuted" and objection is not None:
            outcome.verdict, outcome.details["reason"] = "unknown", objection
        outcome.details["violates" if outcome.verdict == "refuted" else "fails"] = query.claim.text
        outcome.details["shows"] = measure_trace(broken.view, FIRST if query.claim.repeats else 0)
    if lasso:
        outcome.details["lasso"] = lasso
    return outcome


def refute(query: Query, failed: Result, verifier: Verifier) -> tuple[Query, Result, str]:
    """Look for a trace that breaks a claim of which a step fails, by returning to its state, so that it repeats for ever.

    Returns its query and result, or the failed ones if there is none, and the finding in words.
    """
    cycle = cycle_query(query)
    if isinstance(cycle, str):
        return query, failed, cycle
    result = replace(verifier, recheck=None, twins=False).decide(cycle)
    failed.seconds += result.seconds
    if result.verdict == "refuted":
        return cycle, replace(result, name=failed.name, seconds=failed.seconds), RETURNS
    none = f"no trace of {query.setting.rtts} Rm that returns to its state breaks it"
    return query, failed, none if result.verdict == "verified" else f"undecided: {result.reason}"


def measure_trace(view: View, first: int = 0) -> dict[str, float]:
    """Return duration, utilisation, bytes in flight and losses of a trace from a sample on, of all flows together."""
    rtts = Fraction(view.last - first) * view.setting.step
    figures = {
        "rtts": rtts,
        "utilisation": (view.S[view.last] - view.S[first]) / rtts,
        "inflight_bdp": max(view.inflight(t) for t in range(first, view.last + 1)) / (1 + view.setting.jitter),
        "lost_bdp": view.lost_until(view.last) - view.lost_until(first),
    }
    return {name: round(float(value), 6) for name, value in figures.items()}


def combine_verdicts(verdicts: Any) -> Verdict:
    """Return refuted if any is, else unknown if any is, else verified."""
    seen = set(verdicts)
    if "refuted" in seen:
        return "refuted"
    return "unknown" if "unknown" in seen or not seen else "verified"


def _query_record(query: Query, result: Result) -> dict[str, Any]:
    record = {"name": query.name, "claim": query.claim.text, "verdict": result.verdict, "seconds": round(result.seconds, 3)}
    record |= {"bounds": query.bounds, "sanity": result.sanity or None, "evidence": result.evidence}
    if result.recheck is not None:
        record["recheck"] = result.recheck
    return record


def write_counterexample(query: Query, result: Result, folder: FilePath, name: str) -> tuple[str, dict[str, Any]]:
    """Look for a legal past of a trace that violates a query, write both as a trace file and run them in the curve engine.

    Returns the file and the replay record, with the engine's difference and ``reachable``. Raises CcenvError if the folder cannot
    be written.
    """
    if query.flows > 1 and result.view is not None:
        file, replay = write_flow_counterexample(
            query, result.view, folder, result.evidence["time_limit_s"], result.evidence["seed"]
        )
        return file, replay | {"reachable": "unknown"}  # a past of several flows is not searched
    reach = find_past(query, result)
    query, result, setting = reach.query, reach.result, reach.query.setting
    if result.view is None:
        raise CcenvError(f"{name}: no counterexample to write")
    notes = f"violates: {query.claim.text} (T = {setting.samples}); sample 0 is row {setting.past_steps}"
    trace = as_trace(result.view, query.sender.name, notes)
    stem = "-".join([query.sender.name, setting.model, name, f"T{setting.samples}", result.evidence["sha256"][:8]])
    file = save_counterexample(trace, folder, stem)
    window = (query.sender.needs(setting) | query.claim.needs).probe_window
    replay = (
        {"exact": "reproduced in rational numbers"}
        | check_legality(trace)
        | run_in_engine(trace, result.view, result.values, query.sender, window)
    )
    return file, replay | reach.to_dict()


def write_flow_counterexample(
    query: Query, view: View, folder: FilePath, time_limit_s: float, seed: int
) -> tuple[str, dict[str, Any]]:
    """Write a counterexample of several flows as a trace; if one obeys FIFO exactly, take that one and run it in the engine.

    Returns the file and the replay record. Raises CcenvError if the folder cannot be written.
    """
    encoding = query.encoding()
    violation = query.claim.violation(encoding.view)
    fluid = solve(encoding.smtlib(violation, *fluid_order(encoding.view)), "z3", min(time_limit_s, FLUID_LIMIT_S), seed)
    if fluid.status == "sat":
        view = confirm(query, encoding, fluid)
    trace = as_trace(view, query.sender.name, f"violates: {query.claim.text}")
    digest = query_hash(encoding.smtlib(violation))
    file = save_counterexample(trace, folder, f"{query.sender.name}-{query.flows}-flows-T{query.setting.samples}-{digest[:8]}")
    replay = {"exact": "laws and every sender reproduced in rational numbers"} | check_legality(trace)
    if fluid.status != "sat":
        exact_order = "of the forms tried there is none" if fluid.status == "unsat" else f"undecided ({fluid.reason})"
        return file, replay | {"engine": f"not run: bytes sent in one step are served in any order; in exact FIFO {exact_order}"}
    _, difference = engine_replay(trace)
    replay |= {"engine": "reproduced" if difference <= REPLAY_TOLERANCE else "differs", "engine_relative_difference": difference}
    who = "the bytes of the trace were offered again: the engine has no agents with these published rules"
    return file, replay | {"engine_sender": who}


def check_legality(trace: Trace) -> dict[str, Any]:
    """Return the verdict of the trace checker, whose laws of several flows are stricter than the solver's."""
    broken = check_trace(trace)
    return {"legal": not broken} | ({"illegal": f"no trace that the checker accepts: {broken[0].message}"} if broken else {})


def save_counterexample(trace: Trace, folder: FilePath, stem: str) -> str:
    """Write a trace into a folder, created if missing, and return the file. Raises CcenvError if that fails."""
    make_folder(folder)
    file = folder / (re.sub(r"[^A-Za-z0-9_.]+", "-", stem) + ".npz")
    trace.save(file)
    return str(file)


def about_run(setting: Setting) -> dict[str, Any]:
    """Return the setting, versions and machine of a report."""
    return {
        "T": setting.samples - setting.settle_steps,
        **({"settle": setting.settle_steps} if setting.settle_steps else {}),
        "promises": VERSION,
        "setting": setting.to_dict(),
        "ccenv_version": CCENV_VERSION,
        "solver": version_of("z3"),
        "machine": f"{platform.machine()} {platform.system()}, Python {platform.python_version()}",
    }
