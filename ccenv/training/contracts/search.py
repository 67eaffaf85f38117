"""How the widest contract is searched.

Proofs bound it from below, counterexamples from above (:mod:`ccenv.training.contracts.obstacles`). A climb first takes all
directions
together: it asks half-way between what is proved and the widest contract that nothing speaks against, and half-way again where
that is refuted. What is left it takes direction by direction, by bisection. A level that is refuted in one direction stays
refuted however the others grow, so one pass ends at a contract that no direction can widen. It ends sooner where no contract
around is wider by more than NEAR, as far as the answers tell.

Lemmas that are decided in seconds (QUICK) are climbed first, then all of them, up to where the quick ones ended.

What is widened, and what is asked of it.
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
from ccenv.training.contracts.boxes import Levels, Side, below, by_side, directions, most_inside, widened
from ccenv.training.contracts.known import Answer, Known
from ccenv.training.contracts.obstacles import Obstacle, allows, widest
from ccenv.training.distill.claims import SAMPLES, SETTING, ClaimNumbers, numbers_for, require_timeouts, suite_data

CALL_S = 120.0
"""Limit of a solver call."""

LEFT_BY_TIMEOUT = Fraction(87, 100)
"""gamma_L over the utilisation, where beliefs time out: a link that holds up to D shows less in a period than was sent."""


@dataclass(frozen=True)
class Widening:
    """What to widen.

    Attributes:
        program: the point program, or a contract that is to become wider.
        utilisation: constant to keep.
        budget_s: of wall time.
        lemmas: a suite whose other constants and lemmas are kept, as data; None: those of :mod:`ccenv.training.distill.claims`,
            with gamma_L one per cent above the utilisation.
        settle: Rm at the start of each trace that utilisation does not count.
        samples: T.
        call_s: limit of a solver call.
        seed: of the solver.
        inside: a contract that the widened one stays inside, such as the hull of a query's solutions; None: any.
        timeouts: preset of the belief time-outs that the lemmas are to hold with; None: beliefs do not time out. Of own lemmas
            the suite says it.
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
        """Refuse a bound that is none, a budget that nothing can be done in, and a program outside what it is to stay inside."""
        if not 0 < self.utilisation < 1:
            raise InputError(f"utilisation is {self.utilisation:g}; it must be between 0 and 1")
        if not self.budget_s > 0:
            raise InputError(f"budget is {self.budget_s:g} s; it must be above 0")
        require_timeouts(self.timeouts)
        if self.timeouts is not None and self.lemmas is not None:
            raise InputError("a suite of lemmas says itself whether beliefs time out; leave the preset of time-outs away")
        most_inside(self.program, self.inside)

    def suite(self, name: str, program_file: str) -> dict[str, Any]:
        """Return the lemmas whose constants are kept, as data for a YAML file beside the contract."""
        numbers = numbers_for(self.utilisation)
        if self.lemmas is not None:
            constants = self.lemmas["constants"] | {"utilisation": {"value": str(numbers.utilisation)}}
            return self.lemmas | {"name": name, "sender": program_file, "settle": self.settle, "constants": constants}
        if self.timeouts is not None:
            numbers = _with_timeouts(numbers)
        data = suite_data(program_file, name, numbers, self.timeouts, self.settle)
        timing = "without" if self.timeouts is None else "with"
        return data | {"source": f"the lemmas of [CCmatic] App. F for a contract, {timing} belief time-outs"}

    @property
    def rule_of_timeouts(self) -> str | None:
        """Return the preset of the time-outs that the lemmas hold with, the suite's where there is one."""
        preset: str | None = self.timeouts if self.lemmas is None else self.lemmas.get("timeout_preset")
        return preset

    def queries(self, levels: Levels) -> dict[str, Query]:
        """Return the queries about the contract of a vector of levels, by name: of all lemmas that the suite says hold."""
        contract = widened(self.program, levels, f"{self.program.name}.contract")
        suite = validate(Suite, self.suite(contract.name, "contract.json"), contract.name)
        loaded = LoadedSuite(suite, ProgramSmtSender(contract), FilePath("lemmas.yaml"))
        setting, values = suite_setting(loaded, SETTING, self.samples), constants_of(suite, SETTING)
        kept = [lemma for lemma in lemmas_of(loaded, SETTING) if expected_of(suite, lemma, SETTING, self.samples) == "verified"]
        asked = [query for lemma in kept for query in lemma_queries(loaded, lemma, setting, values)]
        return {query.name: query for query in asked}


def _with_timeouts(numbers: ClaimNumbers) -> ClaimNumbers:
    """Return constants with the gamma_L that time-outs leave, in hundredths."""
    return replace(numbers, C_L_low=round(LEFT_BY_TIMEOUT * numbers.utilisation, 2))


def suite_to_keep(name: str) -> dict[str, Any]:
    """Return the data of a suite for :class:`Widening`.

    Raises:
        UnknownNameError: if no such suite exists.
        InputError: for a damaged suite, or one without a constant ``utilisation``.
    """
    data: dict[str, Any] = load_suite(name).suite.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "utilisation" not in data.get("constants", {}):
        raise InputError(f"suite {name!r} has no constant 'utilisation', which a widening keeps")
    return {"settle": 0, "default_T": SAMPLES} | data


QUICK = ("F.7 utilisation", "F.3 C_L", "F.6", "F.5", "F.7 inflight", "F.7 loss", "F.1 C_L", "F.1 C_U", "F.3 C_U")
"""Lemmas in the order in which wide contracts fail."""
TOGETHER = 2
"""Queries that are asked before their answers are looked at, whatever the number of workers: so it does not change the search."""
LEAST_GAIN = 0.005
"""Of width (log2): a direction that adds less is not tried."""
NEAR = 0.05
"""Of the width: a search that is so close to what nothing speaks against ends."""

ANSWERS: dict[Verdict, Answer] = {"verified": "proved", "refuted": "refuted", "unknown": "undecided"}


@dataclass(frozen=True)
class Found:
    """The end of a search: see :class:`ccenv.training.contracts.widen.Widened`."""

    verified: bool
    levels: Levels
    at_most: float
    finished: bool
    reason: str = ""


class Search:
    """A search with answers on disk."""

    def __init__(
        self,
        task: Widening,
        known: Known,
        gains: Mapping[Side, np.ndarray],
        workers: Workers,
        report: Callable[[str], None] | None,
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`."""
        self.task, self.known, self.gains, self.workers, self.report = task, known, gains, workers, report
        self.zero: Levels = tuple([0] * len(directions(task.program)))
        most = zip(directions(task.program), most_inside(task.program, task.inside), strict=True)
        self.most: Levels = tuple(level if gains[way.leaf, way.end].any() else 0 for way, level in most)
        self.begin, self.end = 0.0, 0.0
        self.last_check = False
        self.pause = math.inf
        self.failed = ""
        self.reason = ""

    def run(self, end: float) -> Found:
        """Search until a time of the monotonic clock."""
        self.begin, self.end = time.monotonic(), end
        names = list(self.task.queries(self.zero))
        if self.decide(self.zero, names) != "proved":
            reason = f"the program itself is not proved at utilisation {self.task.utilisation:g}: {self.reason}"
            return Found(False, self.zero, 0.0, False, reason)
        quick = [name for first in QUICK for name in names if name == first]
        if self._open(self.zero, self.most) is not None:
            self._ask_widest(quick)
        best = self._best(names, self.zero)
        while self.left_s > 0 and self._more(best, self.most):
            self.pause = time.monotonic() + self.left_s / 2  # the rest is for the slow ones: nothing is proved without them
            bound = self._climb(self._best(quick, best), quick, self.most)
            self.pause = math.inf
            best = self._climb(best, names, bound, bound)
        at_most = self._widest(best, self.most) or best
        self.last_check = True
        checked = self.left_s > 0 and self.decide(best, names, again=any(best)) == "proved"
        finished = checked and not self._more(best, self.most)
        return Found(True, best, self.width(at_most), finished)

    def _ask_widest(self, names: Sequence[str]) -> None:
        """Ask each query of the widest contract of all: those that hold of it hold of every other one."""
        asked = self.task.queries(self.most)
        told = self._ask(self.most, [asked[n] for n in names if self.known.answer(n, self.most, self.task.call_s) is None])
        if self.report is not None and told:
            held = [name for name, answer in told.items() if answer == "proved"]
            self.report(f"width {self.width(self.most):.3f}: {', '.join(held) or 'no quick query'} proved, so of every contract")

    def _best(self, names: Sequence[str], inner: Levels) -> Levels:
        """Return the widest contract around one of which some queries are proved already."""
        proved = [levels for levels in self.known.levels if below(inner, levels) and self.answered(levels, names)]
        return max([inner, *proved], key=lambda levels: (self.width(levels), levels))

    def _climb(self, inner: Levels, names: Sequence[str], most: Levels, first: Levels | None = None) -> Levels:
        """Return a contract around one, of which some queries are proved, that no direction can widen."""
        top = self._widest(inner, most)
        while top is not None and self._worth(inner, top) and self.left_s > 0:
            middle: Levels = top if first == top else tuple(-(-(a + b) // 2) for a, b in zip(inner, top, strict=True))
            if self.decide(middle, names) == "proved":
                inner, top = middle, self._widest(middle, most)
            else:
                top = self._widest(inner, middle)
        while self.left_s > 0 and self._more(inner, most) and (way := self._open(inner, most)) is not None:
            number, high = way
            wider = (*inner[:number], -(-(inner[number] + high) // 2), *inner[number + 1 :])
            if self.decide(wider, names) == "proved":
                inner = wider
        return inner

    def _open(self, inner: Levels, most: Levels) -> tuple[int, int] | None:
        """Return the direction of largest gain, and its highest level that nothing speaks against; None: all gain little."""
        obstacles = self._obstacles()
        found = None
        for number, high in enumerate(most):
            for level in range(high, inner[number], -1):
                wider = (*inner[:number], level, *inner[number + 1 :])
                sides = by_side(self.task.program, wider)
                if not any(allows(obstacle, sides) for obstacle in obstacles):
                    gain = self._gain(inner, wider)
                    if gain >= LEAST_GAIN and (found is None or gain > found[0]):
                        found = (gain, number, level)
                    break
        return None if found is None else found[1:]

    def _more(self, inner: Levels, most: Levels) -> bool:
        """Tell whether a direction is open, and a contract may exist that is wider by more than NEAR."""
        return self._open(inner, most) is not None and self._worth(inner, self._widest(inner, most))

    def _worth(self, inner: Levels, around: Levels | None) -> bool:
        """Tell whether a contract is so much wider than one inside it that it is worth asking."""
        return self._gain(inner, around) >= max(LEAST_GAIN, NEAR * self.width(inner))

    def _obstacles(self) -> list[Obstacle]:
        return [*self.known.obstacles, *self.known.too_slow(self.task.call_s)]

    def _widest(self, least: Levels, most: Levels) -> Levels | None:
        """Return the widest contract between two that no answer speaks against."""
        return widest(self.task.program, self.gains, self._obstacles(), least, most)

    @property
    def reserve_s(self) -> float:
        """Seconds kept for the last check: what its queries took where they were proved last, at most a quarter of the budget."""
        if self.last_check:
            return 0.0
        return min(sum(self.known.last_proof_s.values()) / self.workers.jobs, (self.end - self.begin) / 4)

    @property
    def left_s(self) -> float:
        """Seconds until the search ends, what is kept for the last check taken off, or until a pause."""
        return min(self.end - self.reserve_s, self.pause) - time.monotonic()

    def width(self, levels: Levels) -> float:
        """Return the width of a contract."""
        return sum(float(self.gains[side][pair]) for side, pair in by_side(self.task.program, levels).items())

    def answered(self, levels: Levels, names: Sequence[str]) -> bool:
        """Tell whether queries are proved of a contract, without asking."""
        return all(self.known.answer(name, levels, self.task.call_s) == "proved" for name in names)

    def _gain(self, inside: Levels, around: Levels | None) -> float:
        return 0.0 if around is None else self.width(around) - self.width(inside)

    def decide(self, levels: Levels, names: Sequence[str], *, again: bool = False) -> Answer:
        """Return what is known of some queries of a contract together, asking the solver where nothing is.

        The queries of the program itself are proved with their twins. Every trace of the program is one of a contract around it,
        so the contract's twins are satisfiable too.

        Args:
            levels: the contract.
            names: of the queries.
            again: ask also what was proved of a contract around this one.
        """
        asked = self.task.queries(levels)
        told = {name: self.known.answer(name, levels, self.task.call_s) for name in names}
        if again:
            told = {name: told[name] if self.known.proved_itself(name, levels) else None for name in names}
        open_names = sorted((name for name in names if told[name] is None), key=lambda name: name != self.failed)
        for number in range(0, len(open_names), TOGETHER):
            if not {"refuted", "undecided"} & {*told.values()}:
                told |= self._ask(levels, [asked[name] for name in open_names[number : number + TOGETHER]])
        wrong = [name for name in names if told[name] in ("refuted", "undecided")]
        self.failed = wrong[0] if wrong else self.failed
        self.reason = ", ".join(f"{name} {told[name]}" for name in wrong)
        answer: Answer = "proved" if not wrong else "refuted" if "refuted" in told.values() else "undecided"
        if self.report is not None:
            said = f": {self.reason}" if wrong else ""
            self.report(f"width {self.width(levels):.3f}, {len(open_names)} queries asked: {answer}{said}")
        return answer

    def _ask(self, levels: Levels, queries: Sequence[Query]) -> dict[str, Answer]:
        """Ask the solver, side by side where there are workers, and store what it says."""
        limit_s = min(self.task.call_s, self.end - self.reserve_s - time.monotonic())
        if limit_s <= 0:
            return {query.name: "undecided" for query in queries}
        verifier = Verifier(limit_s, self.task.seed, None, Store(), workers=self.workers, twins=not any(levels))
        verifier.start(queries)
        told: dict[str, Answer] = {}
        try:
            for query in queries:
                result = verifier.decide(query)
                answer = ANSWERS[result.verdict]
                if answer != "undecided" or limit_s == self.task.call_s:
                    self.known.store(query, levels, answer, limit_s, result.values, result.seconds)
                told[query.name] = answer
        finally:
            verifier.stop()
        return told
