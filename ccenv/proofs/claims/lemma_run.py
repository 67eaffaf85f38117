"""Decide the lemmas of a set, each with its constant and on request with its best one, found by bisection.

Every bound is a proved value, never an interpolated one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.results import TableResult
from ccenv.base.workers import Workers
from ccenv.proofs.claims.lemmas import Lemma, LoadedSuite, constants_of, expected_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.report import Outcome, about_run, decide_claim
from ccenv.proofs.claims.verifier import Limits, Verdict

Best = Literal["largest", "smallest"]


@dataclass
class Bracket:
    """The interval of the best constant."""

    best: Best  # whether larger or smaller numbers are stronger claims
    proved: Fraction | None = None  # strongest verified value, or None; `refuted`: weakest refuted value, or None
    refuted: Fraction | None = None
    undecided: list[Fraction] = field(default_factory=list)  # values at which the time ran out
    tried: int = 0  # number of values decided
    evidence: dict[str, Any] = field(default_factory=dict)  # value as text -> evidence of the decision (hashes, trace)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object: the proved value, the refuted one beyond it, and their queries."""
        ends = {"proved": self.proved, "refuted": self.refuted}
        data: dict[str, Any] = {name: None if value is None else float(value) for name, value in ends.items()}
        data |= {f"{name}_by": None if value is None else self.evidence.get(str(value)) for name, value in ends.items()}
        return data | {"best": self.best, "undecided_at": [float(x) for x in self.undecided], "queries": self.tried}


def bisect(
    decide: Callable[[Fraction], tuple[Verdict, Any]],
    best: Best,
    low: Fraction,
    high: Fraction,
    precision: Fraction,
    start: Fraction | None = None,
) -> Bracket:
    """Narrow the best constant down to a proved and a refuted value at most ``precision`` apart, from ``low`` to ``high``.

    ``decide`` maps a value to (verdict, evidence) and is assumed monotone: weaker claims hold where stronger ones do. Values are
    multiples of ``precision``; ``start``, a value believed to hold, comes first. An undecided value is never a bound: the search
    continues between it and the proved one. Raises InputError for an empty range.
    """
    if not low < high or precision <= 0:
        raise InputError(f"nothing to bisect between {float(low)} and {float(high)} in steps of {float(precision)}")
    bracket = Bracket(best)

    def ask(value: Fraction) -> Verdict:
        verdict, evidence = decide(value)
        bracket.tried += 1
        bracket.evidence[str(value)] = evidence
        if verdict == "verified":
            bracket.proved = value
        elif verdict == "refuted":
            bracket.refuted = value
        else:
            bracket.undecided.append(value)
        return verdict

    weakest, strongest = (low, high) if best == "largest" else (high, low)
    first = weakest if start is None else start
    seen = ask(first)
    if seen != "verified" and first != weakest:
        seen = ask(weakest)
    if seen != "verified":
        return bracket
    if bracket.refuted is None and ask(strongest) == "verified":
        return bracket
    beyond = strongest if bracket.refuted is None else bracket.refuted
    while bracket.proved is not None and abs(beyond - bracket.proved) > precision:
        middle = round((bracket.proved + beyond) / 2 / precision) * precision
        if middle in (bracket.proved, beyond):
            break
        if ask(middle) != "verified":
            beyond = middle
    return bracket


@dataclass(frozen=True)
class LemmaRun(Limits):
    """The settings of a run, as plain data for other processes."""

    suite: str  # name or file of the lemma set
    setting: str  # `sound`, `artefact` or `history`
    samples: int  # T
    bisect: bool = False  # whether to find the best constants


class LemmaReport(TableResult, dict[str, Any]):
    """The outcomes of the lemmas of a set: suite, setting, T, versions, and ``lemmas``, one JSON object each."""

    row_name = "lemma"

    def _rows(self) -> list[dict[str, Any]]:
        columns = ("verdict", "bound", "paper", "seconds", "as_expected")
        return [{"lemma": row["name"], **{column: row[column] for column in columns}} for row in self["lemmas"]]

    def __repr__(self) -> str:
        verdicts = [row["verdict"] for row in self["lemmas"]]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        return f"LemmaReport({self['suite']}, setting {self['setting_name']}: {counts})"


def lemmas_of(loaded: LoadedSuite, setting: str) -> list[Lemma]:
    """Return the lemmas that a set claims in a setting."""
    return [lemma for lemma in loaded.suite.lemmas if not lemma.settings or setting in lemma.settings]


def run_lemmas(
    run: LemmaRun, jobs: int = 1, progress: Callable[[Outcome], None] | None = None, backend: str = "processes"
) -> LemmaReport:
    """Decide all lemmas of a set."""
    loaded = load_suite(run.suite)
    outcomes: list[Outcome] = []
    with Workers(jobs, backend) as workers:
        by_name = {lemma.name: lemma for lemma in lemmas_of(loaded, run.setting)}
        tasks = [(run, name) for name in by_name]
        for (_, name), outcome in zip(tasks, workers.map(_lemma_task, tasks), strict=True):
            outcomes.append(_apply_given(by_name[name], outcome, {done.name: done.verdict for done in outcomes}))
            if progress is not None:
                progress(outcome)
    setting = suite_setting(loaded, run.setting, run.samples)
    head: dict[str, Any] = {
        "suite": loaded.suite.name,
        "source": loaded.suite.source,
        "sender": loaded.sender.name,
        "setting_name": run.setting,
    }
    head |= about_run(setting) | {"seconds": round(sum(outcome.seconds for outcome in outcomes), 3)}
    head["all_as_expected"] = all(outcome.details["as_expected"] for outcome in outcomes)
    return LemmaReport(head, lemmas=[outcome.to_dict() for outcome in outcomes])


def _lemma_task(task: tuple[LemmaRun, str]) -> Outcome:
    return _decide(*task)


def _apply_given(lemma: Lemma, outcome: Outcome, verdicts: Mapping[str, Verdict]) -> Outcome:
    """Return the outcome of a lemma given those that it assumes: verified only if they are."""
    if lemma.given:
        outcome.details["given"] = list(lemma.given)
    missing = [name for name in lemma.given if verdicts[name] != "verified"]
    if missing:
        outcome.bound = None
        outcome.details["reason"] = f"rests on what is not verified: {', '.join(missing)}"
    if missing and outcome.verdict == "verified":
        outcome.verdict = "unknown"
        outcome.details["as_expected"] = False
    return outcome


def run_lemma(run: LemmaRun, name: str, workers: Workers | None = None) -> Outcome:
    """Decide one lemma of a set with those that it assumes, and bisect its constant if requested.

    Raises UnknownNameError if the suite has no such lemma.
    """
    loaded = load_suite(run.suite)
    by_name = {lemma.name: lemma for lemma in loaded.suite.lemmas}
    if name not in by_name:
        raise unknown_name("lemma", name, by_name)
    lemma = by_name[name]
    plain = replace(run, bisect=False)
    verdicts = {other: run_lemma(plain, other, workers).verdict for other in lemma.given}
    return _apply_given(lemma, _decide(run, name, workers), verdicts)


def _decide(run: LemmaRun, name: str, workers: Workers | None = None) -> Outcome:
    loaded = load_suite(run.suite)
    lemma = next(lemma for lemma in loaded.suite.lemmas if lemma.name == name)
    setting = suite_setting(loaded, run.setting, run.samples)
    numbers = constants_of(loaded.suite, run.setting, run.samples)
    verifier = run.verifier(workers)
    folder = FilePath(run.folder)
    outcome = decide_claim(name, lemma_queries(loaded, lemma, setting, numbers), verifier, folder)
    constant = loaded.suite.constants.get(lemma.bound or "")
    outcome.paper = lemma.paper if lemma.paper is not None else None if constant is None else constant.paper
    if lemma.bound is not None and outcome.verdict == "verified":
        outcome.bound = float(numbers[lemma.bound])
    expected = expected_of(loaded.suite, lemma, run.setting, run.samples)
    outcome.details = {"text": lemma.text, "note": lemma.note, "expected": expected} | outcome.details
    outcome.details["as_expected"] = outcome.verdict == expected
    if lemma.bound is not None:
        outcome.details["constant"] = lemma.bound
    if run.bisect and constant is not None and constant.search is not None:
        _bisect_lemma(run, loaded, lemma, outcome, numbers, workers)
    return outcome


def _bisect_lemma(
    run: LemmaRun, loaded: LoadedSuite, lemma: Lemma, outcome: Outcome, numbers: dict[str, Fraction], workers: Workers | None
) -> None:
    name = str(lemma.bound)
    search = loaded.suite.constants[name].search
    if search is None:
        raise InputError(f"constant {name!r} has no search range")
    setting = suite_setting(loaded, run.setting, run.samples)
    verifier = run.verifier(workers)
    verifier.recheck = None  # the proved end is checked again below

    def decide(value: Fraction) -> tuple[Verdict, Any]:
        queries = lemma_queries(loaded, lemma, setting, numbers | {name: value})
        tried = decide_claim(lemma.name, queries, verifier, FilePath(run.folder))
        outcome.seconds += tried.seconds
        evidence = {"verdict": tried.verdict, "trace": tried.trace, "queries": tried.details["queries"]}
        return tried.verdict, evidence | ({"replay": tried.details["replay"]} if "replay" in tried.details else {})

    exact = {key: Fraction(str(value)) for key, value in search.model_dump(exclude={"best"}).items()}
    bracket = bisect(decide, search.best, exact["low"], exact["high"], exact["precision"], numbers[name])
    outcome.details["bisection"] = bracket.to_dict()
    outcome.bound = None if bracket.proved is None else float(bracket.proved)
    if run.recheck is not None and bracket.proved is not None:
        again = replace(verifier, recheck=run.recheck)
        queries = lemma_queries(loaded, lemma, setting, numbers | {name: bracket.proved})
        outcome.details["recheck"] = decide_claim(lemma.name, queries, again, FilePath(run.folder)).details.get("recheck")
