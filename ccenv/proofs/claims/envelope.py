"""The verified envelope of a sender: the best proved guarantees on each model and buffer, within a budget of solver time.

Each entry is the best constant x of a guarantee for unbounded runs on which no belief times out, found by bisection
(:mod:`ccenv.proofs.claims.endless`). Entries that the budget does not decide stay unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, unknown_name
from ccenv.base.workers import Workers
from ccenv.proofs.claims import endless
from ccenv.proofs.claims.lemma_run import Best, bisect
from ccenv.proofs.claims.properties import FIRST, Property
from ccenv.proofs.claims.report import about_run, measure_trace, refute, write_counterexample
from ccenv.proofs.claims.verifier import Limits, Query, Result, Verdict
from ccenv.proofs.formulas.encode import SmtSender
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.replay.closed_loop import find_objection
from ccenv.proofs.senders.catalog import smt_sender

MODELS = ("ideal", "cbr_delay", "ccac")
BUFFERS = ("infinite", "large", "small", "arbitrary")
SPENT = "the budget is used up"


@dataclass(frozen=True)
class Metric:
    """One column of the table: ``promise(setting, sender, x)`` is bisected for x from ``low`` to ``high`` to a precision."""

    name: str
    unit: str
    best: Best
    low: Fraction
    high: Fraction
    precision: Fraction
    promise: Callable[[Setting, SmtSender, Fraction], Property]


_METRICS = (
    Metric("utilisation", "fraction of C", "largest", Fraction(1, 64), Fraction(1), Fraction(1, 64), endless.utilisation),
    Metric("inflight", "C (Rm + D)", "smallest", Fraction(1, 4), Fraction(16), Fraction(1, 8), endless.inflight),
    Metric("loss per Rm", "C Rm", "smallest", Fraction(0), Fraction(4), Fraction(1, 16), endless.loss_per_step),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _METRICS}


@dataclass(frozen=True)
class EnvelopeRun(Limits):
    """The settings of an envelope, as plain data for other processes; a bound that ``recheck`` does not confirm is unknown.

    Attributes:
        sender: name or program file.
        samples: T.
        setting: ``history``, ``sound`` or ``artefact``; None: history if the sender's rate is bounded, else sound.
        budget_s: wall seconds for the whole table.
    """

    sender: str
    samples: int = endless.SAMPLES
    setting: str | None = None
    budget_s: float = 300.0


@dataclass(frozen=True)
class _Cell:
    """One cell of the table and its budget: an equal share of the time left when it starts."""

    run: EnvelopeRun
    setting_name: str
    model: str
    buffer: str
    metric: str
    ends: float
    cells_left_per_worker: float


def run_envelope(
    run: EnvelopeRun, jobs: int = 1, backend: str = "processes", progress: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Compute the table; cheap cells first, each with an equal share of the remaining budget.

    Returns:
        dict: sender, T, ``promises`` (version of what entries say) and ``rows``: name, model, buffer, metric, unit, verdict,
        bound, ``beyond`` (the nearest value for which a step fails), paper, seconds, trace; ``ramp`` where a utilisation is
        proved. All of it can be written as JSON.
    """
    sender = smt_sender(run.sender)
    bound = sender.largest_rate()
    name = run.setting or ("history" if bound is not None else "sound")
    setting = named_setting(name, Setting(samples=run.samples), bound)
    begin, ends = time.perf_counter(), time.time() + run.budget_s
    shares = [max(1.0, (len(list_cells()) - done) / jobs) for done in range(len(list_cells()))]
    cells = [_Cell(run, name, *place, ends, share) for place, share in zip(list_cells(), shares, strict=True)]
    rows = []
    with Workers(jobs, backend) as workers:
        for row in workers.map(_compute_cell, cells):
            rows.append(row)
            if progress is not None:
                progress(row)
    head = {"name": "envelope", "sender": sender.name, "setting_name": name, "budget_s": run.budget_s, "jobs": jobs}
    return head | about_run(setting) | {"seconds": round(time.perf_counter() - begin, 3), "rows": rows}


def list_cells() -> list[tuple[str, str, str]]:
    """Return model, buffer and metric of each cell of the table, in its order; an infinite buffer loses nothing."""
    every = [(model, buffer, metric) for metric in METRICS for model in MODELS for buffer in BUFFERS]
    return [place for place in every if place[1:] != ("infinite", "loss per Rm")]


def _compute_cell(cell: _Cell) -> dict[str, Any]:
    begin = time.perf_counter()
    run, metric, sender = cell.run, METRICS[cell.metric], smt_sender(cell.run.sender)
    setting = named_setting(cell.setting_name, Setting(cell.model, cell.buffer, run.samples), sender.largest_rate())
    share_s = (cell.ends - time.time()) / cell.cells_left_per_worker
    results: dict[Fraction, tuple[Query, Result]] = {}

    def ask(value: Fraction, recheck: str | None) -> Result | None:
        left = share_s - (time.perf_counter() - begin)
        if left <= 0:
            return None
        query = envelope_query(metric, value, setting, sender)
        verifier = run.verifier(time_limit_s=min(run.time_limit_s, left), recheck=recheck)
        results[value] = query, verifier.decide(query)
        return results[value][1]

    def decide(value: Fraction) -> tuple[Verdict, Any]:
        result = ask(value, None)
        if result is None:
            return "unknown", SPENT
        digest = result.evidence.get("sha256")
        return ("refuted", digest) if result.view is not None else (result.verdict, result.reason or digest)

    row: dict[str, Any] = {"name": f"{metric.name}, {cell.model}, {cell.buffer} buffer", "model": cell.model}
    row |= {"buffer": cell.buffer, "metric": metric.name, "unit": metric.unit, "paper": None, "trace": None}
    try:
        bracket = bisect(decide, metric.best, metric.low, metric.high, metric.precision)
    except CcenvError as error:
        return row | {"verdict": "unknown", "bound": None, "beyond": None, "reason": str(error), "seconds": _elapsed_s(begin)}
    verdict = "verified" if bracket.proved is not None else "unknown"
    row |= {"verdict": verdict, "bound": None if bracket.proved is None else float(bracket.proved)}
    row |= {"beyond": None if bracket.refuted is None else float(bracket.refuted)}
    row |= {"undecided_at": [float(x) for x in bracket.undecided]}
    if bracket.undecided:
        row["reason"] = bracket.evidence[str(bracket.undecided[-1])]
    if bracket.proved is not None:
        if metric.name == "utilisation":
            row["ramp"] = endless.ramp(endless.endless_setting(setting, sender), sender, bracket.proved)
        row["query_sha256"] = bracket.evidence[str(bracket.proved)]
        if run.recheck is not None:
            row |= _recheck(ask(bracket.proved, run.recheck))
    elif bracket.refuted is not None:
        row |= _describe_failure(*results[bracket.refuted], run, max(1.0, share_s - _elapsed_s(begin)), row["name"])
    return row | {"seconds": _elapsed_s(begin)}


def _describe_failure(query: Query, result: Result, run: EnvelopeRun, left_s: float, name: str) -> dict[str, Any]:
    """Return the row's entries where the argument fails for even the weakest claim: whether a trace breaks it, its figures."""
    verifier = run.verifier(time_limit_s=min(run.time_limit_s, left_s), recheck=None, cubes=0)
    query, result, search_text = refute(query, result, verifier)
    trace, replay = write_counterexample(query, result, FilePath(run.folder), name)
    row: dict[str, Any] = {"verdict": result.verdict, "trace": trace, "replay": replay, "reason": result.reason or search_text}
    if (objection := find_objection(replay)) is not None:
        row |= {"verdict": "unknown", "reason": objection}
    return row | ({} if result.view is None else {"shows": measure_trace(result.view, FIRST if query.claim.repeats else 0)})


def check_bound(run: EnvelopeRun, row: dict[str, Any]) -> tuple[str | None, Verdict]:
    """Decide the claim of a row's bound again, with the limits of a run; ``run.recheck`` must confirm if given.

    Returns the hash of the query, comparable with the row's ``query_sha256``, and its verdict. Raises UnknownNameError for an
    unknown metric.
    """
    if row["metric"] not in METRICS:
        raise unknown_name("metric of an envelope", str(row["metric"]), METRICS)
    sender = smt_sender(run.sender)
    bound = sender.largest_rate()
    name = run.setting or ("history" if bound is not None else "sound")
    setting = named_setting(name, Setting(row["model"], row["buffer"], run.samples), bound)
    query = envelope_query(METRICS[row["metric"]], Fraction(row["bound"]), setting, sender)
    result = run.verifier().decide(query)
    return result.evidence.get("sha256"), "refuted" if result.view is not None else result.verdict


def envelope_query(metric: Metric, value: Fraction, setting: Setting, sender: SmtSender) -> Query:
    """Return the query of one entry: the metric's guarantee with a value, beliefs read as the engine reads them."""
    read = endless.endless_setting(setting, sender)
    return Query(metric.name, read, sender, metric.promise(read, sender, value))


def _recheck(result: Result | None) -> dict[str, Any]:
    """Return a second solver's answer on a proved bound; a bound that it does not confirm is not reported."""
    second = None if result is None else result.recheck
    if result is not None and second is not None and second["status"] == "unsat":
        return {"recheck": second}
    reason = SPENT if result is None else result.reason or f"{second['solver'] if second else 'second solver'}: not decided"
    return {"recheck": second, "verdict": "unknown", "bound": None, "reason": reason}


def _elapsed_s(begin: float) -> float:
    return round(time.perf_counter() - begin, 3)
