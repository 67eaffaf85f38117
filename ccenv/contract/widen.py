"""The widest contract around a program that keeps given constants, within a budget: what is asked, kept and written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Any

from ccenv.config import validate
from ccenv.contract.boxes import Levels, directions, most_inside, widened
from ccenv.contract.known import Known
from ccenv.contract.search import Search
from ccenv.contract.width import gains, visits, width_log2
from ccenv.distill.claims import SAMPLES, SETTING, numbers_for, suite_data, suite_text
from ccenv.document import Format, plain
from ccenv.errors import InputError
from ccenv.files import locked, make_folder, write_atomic
from ccenv.programs import Program, pseudo_code, to_data, to_json
from ccenv.provenance import machine, versions
from ccenv.smt.claims.lemma_report import lemmas_of
from ccenv.smt.claims.lemmas import LoadedSuite, Suite, constants_of, expected_of, lemma_queries, load_suite, suite_setting
from ccenv.smt.claims.verifier import Query
from ccenv.smt.senders.program import ProgramSmtSender
from ccenv.workers import Workers

RESULT = Format("ccenv-contract", 1, "the result of a widening", older="--fresh makes it again", indent=2)
_ASKED = ("utilisation", "lemmas", "settle", "samples", "seed")
CALL_S = 120.0
"""Limit of a solver call."""


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
        inside: a contract that the widened one stays inside, such as the hull of a query's solutions; None: any.
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

    def __post_init__(self) -> None:
        """Refuse a bound that is none, a budget that nothing can be done in, and a program outside what it is to stay inside."""
        if not 0 < self.utilisation < 1:
            raise InputError(f"utilisation is {self.utilisation:g}; it must be between 0 and 1")
        if not self.budget_s > 0:
            raise InputError(f"budget is {self.budget_s:g} s; it must be above 0")
        most_inside(self.program, self.inside)

    def suite(self, name: str, program_file: str) -> dict[str, Any]:
        """Return the lemmas whose constants are kept, as data for a YAML file beside the contract."""
        numbers = numbers_for(self.utilisation)
        if self.lemmas is not None:
            constants = self.lemmas["constants"] | {"utilisation": {"value": str(numbers.utilisation)}}
            return self.lemmas | {"name": name, "sender": program_file, "settle": self.settle, "constants": constants}
        data = suite_data(program_file, name, numbers, settle=self.settle)
        return data | {"source": "the lemmas of [CCmatic] App. F for a contract, without belief time-outs"}

    def queries(self, levels: Levels) -> dict[str, Query]:
        """Return the queries about the contract of a vector of levels, by name: of all lemmas that the suite says hold."""
        contract = widened(self.program, levels, f"{self.program.name}.contract")
        suite = validate(Suite, self.suite(contract.name, "contract.json"), contract.name)
        loaded = LoadedSuite(suite, ProgramSmtSender(contract), FilePath("lemmas.yaml"))
        setting, values = suite_setting(loaded, SETTING, self.samples), constants_of(suite, SETTING)
        kept = [lemma for lemma in lemmas_of(loaded, SETTING) if expected_of(suite, lemma, SETTING, self.samples) == "verified"]
        asked = [query for lemma in kept for query in lemma_queries(loaded, lemma, setting, values)]
        return {query.name: query for query in asked}


def suite_to_keep(name: str) -> dict[str, Any]:
    """Return the data of a suite for :class:`Widening`.

    Raises:
        UnknownNameError: if no such suite exists.
        InputError: for a damaged suite, or one without a constant ``utilisation``.
    """
    data: dict[str, Any] = load_suite(name).suite.model_dump(mode="json", exclude_defaults=True)
    if "utilisation" not in data.get("constants", {}):
        raise InputError(f"suite {name!r} has no constant 'utilisation', which a widening keeps")
    return {"settle": 0, "default_T": SAMPLES} | data


@dataclass(frozen=True)
class Widened:
    """What was found.

    Attributes:
        verified: every lemma holds of the contract: each query was proved of it, or of a contract around it.
        contract: the widest one proved; the program itself where nothing wider was.
        width_log2: mean of log2(hi / lo) over the beliefs of a nominal run.
        width_at_most: no contract of these levels around this one is wider: counterexamples speak against each of them, or the
            solver gave up.
        levels: of each direction.
        seconds: wall time of this call.
        asked: queries that the solver answered, of all calls together.
        finished: no direction adds LEAST_GAIN, and every query was proved of this very contract.
        reason: why nothing is verified.
    """

    verified: bool
    contract: Program
    width_log2: float
    width_at_most: float
    levels: Levels
    seconds: float
    asked: int
    finished: bool
    reason: str = ""


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

    ``answers.jsonl`` in the folder keeps every answer; with ``contract.json`` and ``lemmas.yaml``, ``ccenv verify lemmas``
    decides the result again. How it is searched: :mod:`ccenv.contract.search`.

    Args:
        task: what to widen.
        folder: for answers and result.
        jobs: workers that the queries of a contract run on.
        backend: ``processes`` or ``ray``.
        fresh: discard earlier answers.
        report: called with one line per step of the search.

    Raises:
        InputError: for a folder with answers about something else.
        CcenvError: if another process works in the folder.
    """
    begin = time.monotonic()
    make_folder(folder)
    with locked(folder, "widening"), Workers(jobs, backend) as workers:
        question = {n: v for n, v in asdict(task).items() if n in _ASKED and v is not None}
        if task.inside is not None:
            question["inside"] = to_data(task.inside)
        known = Known.open(folder / "answers.jsonl", task.program, question, task.queries, fresh)
        seen = visits(task.program)
        search = Search(task, known, gains(task.program, seen), workers, report)
        found = search.run(begin + task.budget_s)
        contract = task.program if not found.verified else widened(task.program, found.levels, _name(task.program))
        result = Widened(
            found.verified,
            contract,
            width_log2(contract, seen),
            found.at_most,
            found.levels,
            time.monotonic() - begin,
            known.answers,
            found.finished,
            found.reason,
        )
        _write(folder, task, result, [round(float(share), 4) for share in seen.shares])
    return result


def _name(program: Program) -> str:
    return f"{program.name}_contract"[:64]


def _write(folder: FilePath, task: Widening, found: Widened, shares: list[float]) -> None:
    data = {
        "program": to_data(task.program),
        "contract": to_data(found.contract),
        "pseudo_code": pseudo_code(found.contract),
        "inside": None if task.inside is None else to_data(task.inside),
        "utilisation": task.utilisation,
        "settle": task.settle,
        "T": task.samples,
        "verified": found.verified,
        "width_log2": found.width_log2,
        "width_at_most": found.width_at_most,
        "finished": found.finished,
        "asked": found.asked,
        "seconds": found.seconds,
        "reason": found.reason,
        "visits": shares,
        "directions": {way.name: level for way, level in zip(directions(task.program), found.levels, strict=True)},
        "machine": machine(),
        "versions": versions(),
    }
    if found.verified:
        write_atomic(folder / "contract.json", to_json(found.contract).encode())
        write_atomic(folder / "lemmas.yaml", suite_text(task.suite(found.contract.name, "contract.json")).encode())
    RESULT.write(folder / "result.json", plain(data))
