"""Find the widest contract around a program that keeps given constants within a time budget; folder, answers and result file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath

from ccenv.agents.programs import Program, pseudo_code, to_data, to_json
from ccenv.base.files import Format, locked, make_folder, plain, write_atomic
from ccenv.base.provenance import machine, versions
from ccenv.base.workers import Workers
from ccenv.training.contracts.answers import AnswerStore
from ccenv.training.contracts.boxes import Levels, directions, widen_program
from ccenv.training.contracts.search import Search, Widening
from ccenv.training.contracts.width import gains, visits, width_log2
from ccenv.training.distill.claims import suite_text

RESULT = Format("ccenv-contract", 1, "the result of a widening", older="--fresh makes it again", indent=2)
_QUESTION_KEYS = ("utilisation", "lemmas", "settle", "samples", "seed", "timeouts")


@dataclass(frozen=True)
class Widened:
    """Result of a widening.

    Attributes:
        verified: each query was proved for the contract or for one around it, so every lemma holds.
        contract: the widest contract proved; the program itself if nothing wider was.
        width_log2: mean of log2(hi / lo) over the beliefs of a nominal run.
        width_at_most: upper bound on the width of contracts of these levels around this one: the wider ones are ruled out by
            counterexamples, or the solver gave up on them.
        levels: of each direction.
        seconds: wall time of this call.
        asked: queries that the solver answered, in all calls together.
        solver_seconds: solver time of these queries.
        finished: no direction adds LEAST_GAIN, and every query was proved for this very contract.
        reason: why nothing is verified.
    """

    verified: bool
    contract: Program
    width_log2: float
    width_at_most: float
    levels: Levels
    seconds: float
    asked: int
    solver_seconds: float
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
    """Find the widest contract around a program whose lemmas hold, or resume an earlier call.

    ``answers.jsonl`` in the folder keeps every answer; ``ccenv verify lemmas`` decides ``contract.json`` and ``lemmas.yaml``
    again. The search is described in :mod:`ccenv.training.contracts.search`.

    Args:
        task: contract and lemmas.
        folder: of answers and result.
        jobs: workers on which the queries of a contract run.
        backend: ``processes`` or ``ray``.
        fresh: discard earlier answers.
        report: called with one line per step of the search.

    Raises:
        InputError: for a folder with answers about another question.
        CcenvError: if another process works in the folder.
    """
    begin = time.monotonic()
    make_folder(folder)
    with locked(folder, "widening"), Workers(jobs, backend) as workers:
        question = {n: v for n, v in asdict(task).items() if n in _QUESTION_KEYS and v is not None}
        if task.inside is not None:
            question["inside"] = to_data(task.inside)
        answers = AnswerStore.open(folder / "answers.jsonl", task.program, question, task.queries, fresh)
        visited = visits(task.program)
        search = Search(task, answers, gains(task.program, visited), workers, report)
        outcome = search.run(begin + task.budget_s)
        contract = task.program if not outcome.verified else widen_program(task.program, outcome.levels, _name(task.program))
        result = Widened(
            outcome.verified,
            contract,
            width_log2(contract, visited),
            outcome.at_most,
            outcome.levels,
            time.monotonic() - begin,
            answers.answers,
            sum(answers.seconds.values()),
            outcome.finished,
            outcome.reason,
        )
        _write(folder, task, result, [round(float(share), 4) for share in visited.shares])
    return result


def _name(program: Program) -> str:
    return f"{program.name}_contract"[:64]


def _write(folder: FilePath, task: Widening, result: Widened, shares: list[float]) -> None:
    data = {
        "program": to_data(task.program),
        "contract": to_data(result.contract),
        "pseudo_code": pseudo_code(result.contract),
        "inside": None if task.inside is None else to_data(task.inside),
        "utilisation": task.utilisation,
        "settle": task.settle,
        "T": task.samples,
        "timeouts": task.rule_of_timeouts,
        "verified": result.verified,
        "width_log2": result.width_log2,
        "width_at_most": result.width_at_most,
        "finished": result.finished,
        "asked": result.asked,
        "solver_seconds": result.solver_seconds,
        "seconds": result.seconds,
        "reason": result.reason,
        "visits": shares,
        "directions": {direction.name: level for direction, level in zip(directions(task.program), result.levels, strict=True)},
        "machine": machine(),
        "versions": versions(),
    }
    if result.verified:
        write_atomic(folder / "contract.json", to_json(result.contract).encode())
        write_atomic(folder / "lemmas.yaml", suite_text(task.suite(result.contract.name, "contract.json")).encode())
    RESULT.write(folder / "result.json", plain(data))
