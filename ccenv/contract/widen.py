"""The widest contract around a program that keeps given constants: bisection along each direction, within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ccenv.config import validate
from ccenv.contract.boxes import Answer, Known, Levels, directions, widened
from ccenv.contract.width import Visits, visits, width_log2
from ccenv.distill.claims import SAMPLES, SETTING, numbers_for, suite_data, suite_text
from ccenv.document import Format, plain
from ccenv.errors import InputError
from ccenv.files import locked, make_folder, write_atomic
from ccenv.programs import Program, pseudo_code, to_data, to_json
from ccenv.provenance import machine, versions
from ccenv.smt.claims.lemmas import LoadedSuite, Suite, constants_of, lemma_queries, load_suite, suite_setting
from ccenv.smt.claims.verifier import Query, Verifier
from ccenv.smt.senders.program import ProgramSmtSender
from ccenv.smt.solver.store import Store
from ccenv.workers import Workers

RESULT = Format("ccenv-contract", 1, "the result of a widening", older="--fresh makes it again", indent=2)
CALL_S = 300.0
"""Limit of a solver call."""
FIRST = ("F.7 utilisation", "F.6", "F.5", "F.7 inflight", "F.7 loss", "F.1 C_L")
"""Lemmas in the order in which wide contracts fail; the others, which cost more, follow in the order of their suite."""
LEAST_SHARE = 0.002
"""Of the visits; leaves with fewer stay as they are, because their width does not show in the mean."""


@dataclass(frozen=True)
class Widening:
    """What to widen.

    Attributes:
        program: the point program, or a contract that is to become wider.
        utilisation: constant to keep.
        budget_s: of wall time.
        lemmas: a suite whose other constants and lemmas are kept, as data; None: those of :mod:`ccenv.distill.claims`, with
            gamma_L one per cent above the utilisation.
        settle: Rm at the start of each trace that utilisation does not count.
        samples: T.
        call_s: limit of a solver call.
        seed: of the solver.
    """

    program: Program
    utilisation: float
    budget_s: float
    lemmas: dict[str, Any] | None = None
    settle: int = 0
    samples: int = SAMPLES
    call_s: float = CALL_S
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a budget that nothing can be done in."""
        if not self.budget_s > 0:
            raise InputError(f"budget is {self.budget_s:g} s; it must be above 0")

    def suite(self, name: str, program_file: str) -> dict[str, Any]:
        """Return the lemmas whose constants are kept, as data for a YAML file beside the contract."""
        numbers = numbers_for(self.utilisation)
        if self.lemmas is not None:
            constants = self.lemmas["constants"] | {"utilisation": {"value": str(numbers.utilisation)}}
            return self.lemmas | {"name": name, "sender": program_file, "settle": self.settle, "constants": constants}
        data = suite_data(program_file, name, numbers, settle=self.settle)
        return data | {"source": "the lemmas of [CCmatic] App. F for a contract, without belief time-outs"}

    def queries(self, contract: Program) -> list[Query]:
        """Return the queries of all lemmas about a contract, those first that wide contracts fail."""
        suite = validate(Suite, self.suite(contract.name, "contract.json"), contract.name)
        loaded = LoadedSuite(suite, ProgramSmtSender(contract), FilePath("lemmas.yaml"))
        setting, values = suite_setting(loaded, SETTING, self.samples), constants_of(suite, SETTING)
        by_name = {lemma.name: lemma_queries(loaded, lemma, setting, values) for lemma in suite.lemmas}
        order = [*(name for name in FIRST if name in by_name), *(name for name in by_name if name not in FIRST)]
        return [query for name in order for query in by_name[name]]


def suite_to_keep(name: str) -> dict[str, Any]:
    """Return the data of a suite for :class:`Widening`.

    Raises:
        UnknownNameError: if no such suite exists.
        InputError: for a damaged suite, or one without a constant ``utilisation``.
    """
    data: dict[str, Any] = load_suite(name).suite.model_dump(mode="json", exclude_defaults=True)
    if "utilisation" not in data.get("constants", {}):
        raise InputError(f"suite {name!r} has no constant 'utilisation', which a widening keeps")
    return {"settle": 0} | data


@dataclass(frozen=True)
class Widened:
    """What was found.

    Attributes:
        verified: every lemma holds of the contract.
        contract: the widest one proved; the program itself where nothing wider was.
        width_log2: mean of log2(hi / lo) over the beliefs of a nominal run.
        levels: of each direction.
        seconds: wall time of this call.
        asked: contracts that the solver decided, of all calls together.
        finished: every direction of a visited leaf was bisected to its end.
        reason: why nothing is verified.
    """

    verified: bool
    contract: Program
    width_log2: float
    levels: Levels
    seconds: float
    asked: int
    finished: bool
    reason: str = ""


class _Search:
    """Bisection over levels, with answers on disk."""

    def __init__(self, task: Widening, known: Known, workers: Workers, report: Callable[[str], None] | None) -> None:
        self.task, self.known, self.report = task, known, report
        self.workers = workers
        self.end = time.monotonic() + task.budget_s
        self.reason, self.failed = "", ""

    @property
    def left_s(self) -> float:
        return self.end - time.monotonic()

    def decide(self, levels: Levels) -> Answer:
        """Return what is known of a contract, asking the solver where nothing is."""
        answer = self.known.answer(levels, self.task.call_s)
        if answer is not None:
            return answer
        limit_s = min(self.task.call_s, self.left_s)
        if limit_s <= 0:
            return "undecided"
        begin = time.monotonic()
        answer, held = self._ask(levels, limit_s)
        if answer != "undecided" or self.left_s > 0:
            seconds = round(time.monotonic() - begin, 3)
            self.known.store(levels, answer, self.task.call_s, held, seconds=seconds, reason=self.reason)
        if self.report is not None:
            self.report(f"{sum(levels)} levels: {answer}{f' ({self.reason})' if self.reason else ''}")
        return answer

    def _ask(self, levels: Levels, limit_s: float) -> tuple[Answer, list[str]]:
        """Return the solver's answer and the queries that it proved.

        The query that failed last comes first. The program's own queries are proved with their twins; every trace of the program
        is one of a contract around it, so the contract's twins are satisfiable too.
        """
        self.reason, held = "", []
        contract = widened(self.task.program, levels, f"{self.task.program.name}.contract")
        queries = [query for query in self.task.queries(contract) if not self.known.holds(query.name, levels)]
        queries.sort(key=lambda query: query.name != self.failed)
        verifier = Verifier(limit_s, self.task.seed, None, Store(), workers=self.workers, twins=not any(levels))
        verifier.start(queries)
        try:
            for query in queries:
                if self.left_s <= 0:
                    self.reason = f"budget used up before {query.name}"
                    return "undecided", held
                verifier.time_limit_s = min(limit_s, self.left_s)
                result = verifier.decide(query)
                if result.verdict != "verified":
                    self.reason, self.failed = f"{query.name} {result.verdict}", query.name
                    return "refuted" if result.verdict == "refuted" else "undecided", held
                held.append(query.name)
        finally:
            verifier.stop()
        return "proved", held

    def climb(self, order: list[int]) -> tuple[Levels, bool]:
        """Widen direction by direction, the rest as it is; return levels, and whether each came to its end."""
        ways = directions(self.task.program)
        best: Levels = tuple([0] * len(ways))
        finished = True
        for number in order:
            low, high = 0, ways[number].most
            while low < high:
                middle = -(-(low + high) // 2)
                answer = self.decide(tuple(middle if i == number else level for i, level in enumerate(best)))
                if answer == "proved":
                    low = middle
                else:
                    high = middle - 1
                    finished = finished and (answer == "refuted" or self.left_s > 0)
            best = tuple(low if i == number else level for i, level in enumerate(best))
        return best, finished


def widen(
    task: Widening,
    folder: FilePath,
    *,
    jobs: int = 1,
    backend: str = "processes",
    fresh: bool = False,
    report: Callable[[str], None] | None = None,
) -> Widened:
    """Find the widest contract around a program whose lemmas hold, or go on where an earlier call stopped.

    Directions of leaves that a nominal run visits most come first. ``answers.jsonl`` in the folder keeps every answer; with
    ``contract.json`` and ``lemmas.yaml``, ``ccenv verify lemmas`` decides the result again.

    Args:
        task: what to widen.
        folder: for answers and result.
        jobs: workers that the queries of a contract run on.
        backend: ``processes`` or ``ray``.
        fresh: discard earlier answers.
        report: called with one line per contract that was decided.

    Raises:
        InputError: for a folder with answers about something else.
        CcenvError: if another process works in the folder.
    """
    begin = time.monotonic()
    make_folder(folder)
    with locked(folder, "widening"), Workers(jobs, backend) as workers:
        question = {n: v for n, v in asdict(task).items() if n not in ("program", "budget_s", "call_s") and v is not None}
        known = Known.open(folder / "answers.jsonl", task.program, question, fresh)
        seen = visits(task.program)
        search = _Search(task, known, workers, report)
        start = tuple([0] * len(directions(task.program)))
        if search.decide(start) != "proved":
            reason = f"the program itself is not proved at utilisation {task.utilisation:g}: {search.reason or 'stored answer'}"
            found = Widened(False, task.program, _width(task.program, seen), start, 0.0, _asked(known), False, reason)
        else:
            levels, finished = search.climb(_order(task.program, seen))
            contract = widened(task.program, levels, f"{task.program.name}_contract"[:64])
            found = Widened(True, contract, _width(contract, seen), levels, 0.0, _asked(known), finished)
        found = replace(found, seconds=time.monotonic() - begin)
        _write(folder, task, found, seen)
    return found


def _asked(known: Known) -> int:
    return len(known.proved) + len(known.refuted) + len(known.undecided)


def _width(contract: Program, seen: Visits) -> float:
    return width_log2(contract, seen)


def _order(program: Program, seen: Visits) -> list[int]:
    """Return the numbers of the directions of visited leaves, most visited ones first, scales before offsets."""
    ways = directions(program)
    seen_often = [i for i, way in enumerate(ways) if seen.shares[way.leaf] >= LEAST_SHARE]
    return sorted(seen_often, key=lambda i: (ways[i].kind != "scale", -seen.shares[ways[i].leaf], i))


def _write(folder: FilePath, task: Widening, found: Widened, seen: Visits) -> None:
    data = {
        "program": to_data(task.program),
        "contract": to_data(found.contract),
        "pseudo_code": pseudo_code(found.contract),
        "utilisation": task.utilisation,
        "settle": task.settle,
        "T": task.samples,
        "verified": found.verified,
        "width_log2": found.width_log2,
        "finished": found.finished,
        "asked": found.asked,
        "seconds": found.seconds,
        "reason": found.reason,
        "visits": [round(float(share), 4) for share in seen.shares],
        "directions": {way.name: level for way, level in zip(directions(task.program), found.levels, strict=True)},
        "machine": machine(),
        "versions": versions(),
    }
    if found.verified:
        write_atomic(folder / "contract.json", to_json(found.contract).encode())
        write_atomic(folder / "lemmas.yaml", suite_text(task.suite(found.contract.name, "contract.json")).encode())
    RESULT.write(folder / "result.json", plain(data))
