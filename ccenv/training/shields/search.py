"""The search for the widest shield around a program that keeps its lemmas.

Proofs bound the shield from below, counterexamples from above (:mod:`ccenv.training.shields.answers`; docs/shields.md). A level
refuted in one direction stays refuted as the others grow, so one pass ends at a shield that no direction can widen. Lemmas that
are decided in seconds (QUICK) are climbed first; then all of them, up to the bound of the quick ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.programs import Program
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.base.workers import Workers
from ccenv.proofs.claims.lemma_run import lemmas_of
from ccenv.proofs.claims.lemmas import LoadedSuite, Suite, constants_of, expected_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.verifier import Query, Verdict, Verifier
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.solvers import Store
from ccenv.training.distill.claims import SAMPLES, SETTING, numbers_for, require_timeouts, suite_data
from ccenv.training.shields.answers import Answer, AnswerStore, Obstacle, allows_trace, find_widest
from ccenv.training.shields.boxes import Levels, Side, by_side, directions, is_below, most_inside, widen_program

CALL_S = 120.0
"""Limit of a solver call."""

LEFT_BY_TIMEOUT = Fraction(87, 100)
"""gamma_L over the utilisation under time-outs: a link that holds packets for up to D shows less in a period than was sent."""


@dataclass(frozen=True)
class Widening:
    """What to widen, and the lemmas to keep.

    Attributes:
        program: a point program, or a shield to widen further.
        utilisation: the guarantee to keep.
        budget_s: of wall time.
        lemmas: data of a suite whose other constants and lemmas are kept; None: those of :mod:`ccenv.training.distill.claims`,
            with gamma_L one per cent above the utilisation.
        settle: Rm at the start of each trace that utilisation does not count.
        samples: T.
        call_s: limit of a solver call.
        seed: of the solver.
        inside: outer bound of the shield, such as the hull of a query's solutions; None: no bound.
        timeouts: preset of the belief time-outs under which the lemmas must hold; None: beliefs do not time out. A suite
            given as ``lemmas`` says so itself.
    """

    program: Program
    utilisation: float
    budget_s: float
    lemmas: dict[str, Any] | None = None
    settle: int = 0
    samples: int = SAMPLES
    call_s: float = CALL_S
    seed: int = 0
    inside: Program | None = None
    timeouts: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.utilisation < 1:
            raise InputError(f"utilisation is {self.utilisation:g}; it must be between 0 and 1")
        if not self.budget_s > 0:
            raise InputError(f"budget is {self.budget_s:g} s; it must be above 0")
        require_timeouts(self.timeouts)
        if self.timeouts is not None and self.lemmas is not None:
            raise InputError("a suite of lemmas says itself whether beliefs time out; leave the preset of time-outs away")
        most_inside(self.program, self.inside)

    def suite(self, name: str, program_file: str) -> dict[str, Any]:
        """Return the suite of lemmas to keep, as data for a YAML file beside the shield."""
        numbers = numbers_for(self.utilisation)
        if self.lemmas is not None:
            constants = self.lemmas["constants"] | {"utilisation": {"value": str(numbers.utilisation)}}
            return self.lemmas | {"name": name, "sender": program_file, "settle": self.settle, "constants": constants}
        if self.timeouts is not None:
            numbers = replace(numbers, C_L_low=round(LEFT_BY_TIMEOUT * numbers.utilisation, 2))
        data = suite_data(program_file, name, numbers, self.timeouts, self.settle)
        timing = "without" if self.timeouts is None else "with"
        return data | {"source": f"the lemmas of [CCmatic] App. F for a shield, {timing} belief time-outs"}

    @property
    def rule_of_timeouts(self) -> str | None:
        """The preset of time-outs under which the lemmas hold; that of the suite if there is one."""
        preset: str | None = self.timeouts if self.lemmas is None else self.lemmas.get("timeout_preset")
        return preset

    def queries(self, levels: Levels) -> dict[str, Query]:
        """Return the queries about the shield at some levels, by name, for all lemmas that the suite expects to hold."""
        shield = widen_program(self.program, levels, f"{self.program.name}.shield")
        suite = validate(Suite, self.suite(shield.name, "shield.json"), shield.name)
        loaded = LoadedSuite(suite, ProgramSmtSender(shield), FilePath("lemmas.yaml"))
        setting, values = suite_setting(loaded, SETTING, self.samples), constants_of(suite, SETTING)
        lemmas = [lemma for lemma in lemmas_of(loaded, SETTING) if expected_of(suite, lemma, SETTING, self.samples) == "verified"]
        queries = (query for lemma in lemmas for query in lemma_queries(loaded, lemma, setting, values))
        return {query.name: query for query in queries}


def load_kept_suite(name: str) -> dict[str, Any]:
    """Return the data of a suite for :class:`Widening`.

    Raises UnknownNameError if no such suite exists; InputError for a damaged suite, or one without a constant ``utilisation``.
    """
    data: dict[str, Any] = load_suite(name).suite.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "utilisation" not in data.get("constants", {}):
        raise InputError(f"suite {name!r} has no constant 'utilisation', which a widening keeps")
    return {"settle": 0, "default_T": SAMPLES} | data


QUICK = ("F.7 utilisation", "F.3 C_L", "F.6", "F.5", "F.7 inflight", "F.7 loss", "F.1 C_L", "F.1 C_U", "F.3 C_U")
"""Lemmas decided in seconds, in the order in which wide shields fail."""
TOGETHER = 2
"""Queries per batch, whatever the number of workers, so that their number does not change the search."""
LEAST_GAIN = 0.005
"""Width (log2) below which a direction is not tried."""
NEAR = 0.05
"""Share of the width: the search ends when the widest shield not ruled out is this close."""

ANSWERS: dict[Verdict, Answer] = {"verified": "proved", "refuted": "refuted", "unknown": "undecided"}


@dataclass(frozen=True)
class SearchResult:
    """Outcome of a search; fields as in :class:`ccenv.training.shields.widen.Widened`."""

    verified: bool
    levels: Levels
    at_most: float
    finished: bool
    reason: str = ""


class Search:
    """A search whose answers are stored on disk."""

    def __init__(
        self,
        task: Widening,
        answers: AnswerStore,
        gains: Mapping[Side, np.ndarray],
        workers: Workers,
        report: Callable[[str], None] | None,
    ) -> None:
        self.task, self.answers, self.gains, self.workers, self.report = task, answers, gains, workers, report
        self.zero: Levels = tuple([0] * len(directions(task.program)))
        most = zip(directions(task.program), most_inside(task.program, task.inside), strict=True)
        self.most: Levels = tuple(level if gains[direction.leaf, direction.end].any() else 0 for direction, level in most)
        self.begin, self.end = 0.0, 0.0
        self.last_check = False
        self.pause = math.inf
        self.failed = ""
        self.reason = ""

    def run(self, end: float) -> SearchResult:
        """Search until ``end`` on the monotonic clock."""
        self.begin, self.end = time.monotonic(), end
        names = list(self.task.queries(self.zero))
        if self.decide(self.zero, names) != "proved":
            reason = f"the program itself is not proved at utilisation {self.task.utilisation:g}: {self.reason}"
            return SearchResult(False, self.zero, 0.0, False, reason)
        quick = [name for first in QUICK for name in names if name == first]
        if self._best_direction(self.zero, self.most) is not None:
            self._ask_widest(quick)
        best = self._widest_proved(names, self.zero)
        while self.left_s > 0 and self._can_widen(best, self.most):
            self.pause = time.monotonic() + self.left_s / 2  # the other half is for the slow lemmas, which every proof needs
            bound = self._climb(self._widest_proved(quick, best), quick, self.most)
            self.pause = math.inf
            best = self._climb(best, names, bound, bound)
        at_most = self._widest(best, self.most) or best
        self.last_check = True
        checked = self.left_s > 0 and self.decide(best, names, again=any(best)) == "proved"
        finished = checked and not self._can_widen(best, self.most)
        return SearchResult(True, best, self.width(at_most), finished)

    def _ask_widest(self, names: Sequence[str]) -> None:
        """Ask each query about the widest shield: those that hold there hold for every shield."""
        queries = self.task.queries(self.most)
        answers = self._ask(self.most, [queries[n] for n in names if self.answers.answer(n, self.most, self.task.call_s) is None])
        if self.report is not None and answers:
            proved = [name for name, answer in answers.items() if answer == "proved"]
            names_proved = ", ".join(proved) or "no quick query"
            self.report(f"width {self.width(self.most):.3f}: {names_proved} proved, so of every shield")

    def _widest_proved(self, names: Sequence[str], inner: Levels) -> Levels:
        """Return the widest shield around ``inner`` for which some queries are already proved."""
        proved = [levels for levels in self.answers.levels if is_below(inner, levels) and self.is_proved(levels, names)]
        return max([inner, *proved], key=lambda levels: (self.width(levels), levels))

    def _climb(self, inner: Levels, names: Sequence[str], most: Levels, first: Levels | None = None) -> Levels:
        """Return a shield around ``inner`` for which some queries are proved and that no direction can widen."""
        top = self._widest(inner, most)
        while top is not None and self._is_worth_asking(inner, top) and self.left_s > 0:
            middle: Levels = top if first == top else tuple(-(-(a + b) // 2) for a, b in zip(inner, top, strict=True))
            if self.decide(middle, names) == "proved":
                inner, top = middle, self._widest(middle, most)
            else:
                top = self._widest(inner, middle)
        while self.left_s > 0 and self._can_widen(inner, most) and (widening := self._best_direction(inner, most)) is not None:
            number, high = widening
            wider = (*inner[:number], -(-(inner[number] + high) // 2), *inner[number + 1 :])
            if self.decide(wider, names) == "proved":
                inner = wider
        return inner

    def _best_direction(self, inner: Levels, most: Levels) -> tuple[int, int] | None:
        """Return the direction of largest gain and its highest level that is not ruled out; None if all gain too little."""
        obstacles = self._obstacles()
        best = None
        for number, high in enumerate(most):
            for level in range(high, inner[number], -1):
                wider = (*inner[:number], level, *inner[number + 1 :])
                sides = by_side(self.task.program, wider)
                if not any(allows_trace(obstacle, sides) for obstacle in obstacles):
                    gain = self._gain(inner, wider)
                    if gain >= LEAST_GAIN and (best is None or gain > best[0]):
                        best = (gain, number, level)
                    break
        return None if best is None else best[1:]

    def _can_widen(self, inner: Levels, most: Levels) -> bool:
        """Tell whether a direction is open and a shield wider by more than NEAR may exist."""
        return self._best_direction(inner, most) is not None and self._is_worth_asking(inner, self._widest(inner, most))

    def _is_worth_asking(self, inner: Levels, around: Levels | None) -> bool:
        return self._gain(inner, around) >= max(LEAST_GAIN, NEAR * self.width(inner))

    def _obstacles(self) -> list[Obstacle]:
        return [*self.answers.obstacles, *self.answers.too_slow(self.task.call_s)]

    def _widest(self, least: Levels, most: Levels) -> Levels | None:
        return find_widest(self.task.program, self.gains, self._obstacles(), least, most)

    @property
    def reserve_s(self) -> float:
        """Seconds reserved for the last check: the times of the newest proofs, at most a quarter of the budget."""
        if self.last_check:
            return 0.0
        return min(sum(self.answers.last_proof_s.values()) / self.workers.jobs, (self.end - self.begin) / 4)

    @property
    def left_s(self) -> float:
        """Seconds until the search ends, less the reserve for the last check, or until the pause."""
        return min(self.end - self.reserve_s, self.pause) - time.monotonic()

    def width(self, levels: Levels) -> float:
        """Return the width of a shield."""
        return sum(float(self.gains[side][pair]) for side, pair in by_side(self.task.program, levels).items())

    def is_proved(self, levels: Levels, names: Sequence[str]) -> bool:
        return all(self.answers.answer(name, levels, self.task.call_s) == "proved" for name in names)

    def _gain(self, inside: Levels, around: Levels | None) -> float:
        return 0.0 if around is None else self.width(around) - self.width(inside)

    def decide(self, levels: Levels, names: Sequence[str], *, again: bool = False) -> Answer:
        """Return the joint answer to some queries about a shield, from the store or else from the solver.

        The queries of the program itself are proved with their twins: every trace of the program is one of a shield around it.
        With ``again``, queries that were proved only for a shield around this one are asked again.
        """
        queries = self.task.queries(levels)
        answers = {name: self.answers.answer(name, levels, self.task.call_s) for name in names}
        if again:
            answers = {name: answers[name] if self.answers.proved_itself(name, levels) else None for name in names}
        open_names = sorted((name for name in names if answers[name] is None), key=lambda name: name != self.failed)
        for number in range(0, len(open_names), TOGETHER):
            if not {"refuted", "undecided"} & {*answers.values()}:
                answers |= self._ask(levels, [queries[name] for name in open_names[number : number + TOGETHER]])
        not_proved = [name for name in names if answers[name] in ("refuted", "undecided")]
        self.failed = not_proved[0] if not_proved else self.failed
        self.reason = ", ".join(f"{name} {answers[name]}" for name in not_proved)
        answer: Answer = "proved" if not not_proved else "refuted" if "refuted" in answers.values() else "undecided"
        if self.report is not None:
            reason = f": {self.reason}" if not_proved else ""
            self.report(f"width {self.width(levels):.3f}, {len(open_names)} queries asked: {answer}{reason}")
        return answer

    def _ask(self, levels: Levels, queries: Sequence[Query]) -> dict[str, Answer]:
        """Ask the solver, in parallel if there are workers, and store its answers."""
        limit_s = min(self.task.call_s, self.end - self.reserve_s - time.monotonic())
        if limit_s <= 0:
            return {query.name: "undecided" for query in queries}
        verifier = Verifier(limit_s, self.task.seed, None, Store(), workers=self.workers, twins=not any(levels))
        verifier.start(queries)
        answers: dict[str, Answer] = {}
        try:
            for query in queries:
                result = verifier.decide(query)
                answer = ANSWERS[result.verdict]
                if answer != "undecided" or limit_s == self.task.call_s:
                    self.answers.store(query, levels, answer, limit_s, result.values, result.seconds)
                answers[query.name] = answer
        finally:
            verifier.stop()
        return answers
