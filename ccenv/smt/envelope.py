"""The verified envelope of a sender: what can be proved of it on each model and buffer, within a budget of solver time.

Each entry is the best constant x of "on every trace of T samples with consistent beliefs on which no belief moves, the objective
holds with x or the sender makes progress towards it", found by bisection. What the budget does not decide stays unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.errors import CcenvError
from ccenv.smt import properties
from ccenv.smt.algebra import Formula, any_of
from ccenv.smt.bisect import Best, bisect
from ccenv.smt.catalog import smt_sender
from ccenv.smt.claims import BELIEF_BOUNDS, starts_consistent
from ccenv.smt.encode import Needs, SmtSender
from ccenv.smt.properties import Property
from ccenv.smt.report import about_run
from ccenv.smt.setting import Setting, named_setting
from ccenv.smt.store import Store
from ccenv.smt.verifier import Query, Verdict, Verifier
from ccenv.smt.view import View

MODELS = ("ideal", "cbr_delay", "ccac")
BUFFERS = ("infinite", "large", "small", "arbitrary")


@dataclass(frozen=True)
class Metric:
    """One column of the table.

    Attributes:
        name: of the metric.
        unit: what the number counts.
        best: whether larger or smaller is better.
        low: smallest value tried.
        high: largest value tried.
        precision: of the bisection.
        holds: (view, x) -> objective with x, or progress.
    """

    name: str
    unit: str
    best: Best
    low: Fraction
    high: Fraction
    precision: Fraction
    holds: Callable[[View, Fraction], Formula]


METRICS: tuple[Metric, ...] = (
    Metric(
        "utilisation",
        "fraction of C",
        "largest",
        Fraction(1, 64),
        Fraction(1),
        Fraction(1, 64),
        lambda v, x: any_of([properties.utilisation(v, x), properties.rises(v)]),
    ),
    Metric(
        "inflight",
        "C (Rm + D)",
        "smallest",
        Fraction(1, 4),
        Fraction(16),
        Fraction(1, 16),
        lambda v, x: any_of([properties.inflight(v, x), properties.falls(v)]),
    ),
    Metric(
        "loss per Rm",
        "C Rm",
        "smallest",
        Fraction(0),
        Fraction(4),
        Fraction(1, 16),
        lambda v, x: any_of([properties.loss_per_step(v, Fraction(0), x), properties.falls(v)]),
    ),
)


@dataclass(frozen=True)
class EnvelopeRun:
    """What to compute.

    Attributes:
        sender: name or program file.
        samples: T.
        setting: ``history``, ``sound`` or ``artefact``; None: history where the sender's rate is bounded, else sound.
        budget_s: wall seconds for the whole table.
        time_limit_s: per solver call at most.
        seed: of the solver.
        recheck: not used here.
        reuse: whether stored answers count.
        folder: not used here.
    """

    sender: str
    samples: int
    setting: str | None
    budget_s: float
    time_limit_s: float = 600.0
    seed: int = 0
    recheck: str | None = None
    reuse: bool = True
    folder: str = "runs/verify"


def run_envelope(run: EnvelopeRun, jobs: int = 1) -> dict[str, Any]:
    """Compute the table; cheap cells first, each with an equal share of what is left of the budget.

    Args:
        run: what to compute.
        jobs: kept for the common interface; cells run one after the other so that the budget is shared in order.

    Returns:
        dict: sender, T and ``rows``: model, buffer, metric, unit, verdict, bound, beyond, seconds.
    """
    sender = smt_sender(run.sender)
    bound = sender.largest_rate()
    name = run.setting or ("history" if bound is not None else "sound")
    cells = [(m, b, metric) for metric in METRICS for m in MODELS for b in BUFFERS if _applies(metric, b)]
    begin = time.perf_counter()
    rows = []
    setting = named_setting(name, Setting(samples=run.samples), bound)
    for done, (model, buffer, metric) in enumerate(cells):
        left = run.budget_s - (time.perf_counter() - begin)
        setting = named_setting(name, Setting(model, buffer, run.samples), bound)
        rows.append(_cell(run, sender, setting, metric, left / (len(cells) - done)))
    head = {"name": "envelope", "sender": sender.name, "setting_name": name, "budget_s": run.budget_s, "jobs": jobs}
    return head | about_run(setting) | {"seconds": round(time.perf_counter() - begin, 3), "rows": rows}


def _applies(metric: Metric, buffer: str) -> bool:
    return not (metric.name == "loss per Rm" and buffer == "infinite")


def _cell(run: EnvelopeRun, sender: SmtSender, setting: Setting, metric: Metric, share_s: float) -> dict[str, Any]:
    begin = time.perf_counter()
    window = sender.needs(setting).probe_window
    store = Store()

    def decide(value: Fraction) -> tuple[Verdict, Any]:
        left = share_s - (time.perf_counter() - begin)
        if left <= 0:
            return "unknown", "the budget is used up"
        claim = Property(
            metric.name,
            f"{metric.name}: {float(value)} {metric.unit} or progress, where no belief moves",
            lambda v: metric.holds(v, value),
            Needs(BELIEF_BOUNDS) | sender.needs(setting),
            lambda v: starts_consistent(v, window),
        )
        verifier = Verifier(min(run.time_limit_s, left), run.seed, None, store, run.reuse)
        result = verifier.decide(Query(metric.name, setting, sender, claim, "constant"))
        return result.verdict, result.reason or result.evidence.get("sha256")

    row: dict[str, Any] = {"model": setting.model, "buffer": str(setting.buffer), "metric": metric.name, "unit": metric.unit}
    try:
        bracket = bisect(decide, metric.best, metric.low, metric.high, metric.precision)
    except CcenvError as error:
        return row | {"verdict": "unknown", "bound": None, "beyond": None, "reason": str(error), "seconds": _since(begin)}
    verdict = "verified" if bracket.proved is not None else "refuted" if bracket.refuted is not None else "unknown"
    row |= {"verdict": verdict, "bound": None if bracket.proved is None else float(bracket.proved)}
    row |= {"beyond": None if bracket.refuted is None else float(bracket.refuted)}
    row |= {"undecided_at": [float(x) for x in bracket.undecided], "seconds": _since(begin)}
    if bracket.proved is not None:
        row["query_sha256"] = bracket.evidence[str(bracket.proved)]
    return row


def _since(begin: float) -> float:
    return round(time.perf_counter() - begin, 3)
