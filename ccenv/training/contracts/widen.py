"""The widest contract around a program that keeps given constants, within a budget: what is asked, kept and written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath

from ccenv.agents.programs import Program, pseudo_code, to_data, to_json
from ccenv.base.files import Format, locked, make_folder, plain, write_atomic
from ccenv.base.provenance import machine, versions
from ccenv.base.workers import Workers
from ccenv.training.contracts.boxes import Levels, directions, widened
from ccenv.training.contracts.known import Known
from ccenv.training.contracts.search import Search, Widening
from ccenv.training.contracts.width import gains, visits, width_log2
from ccenv.training.distill.claims import suite_text

RESULT = Format("ccenv-contract", 1, "the result of a widening", older="--fresh makes it again", indent=2)
_ASKED = ("utilisation", "lemmas", "settle", "samples", "seed", "timeouts")


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
        solver_seconds: what it took for them.
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
    """Find the widest contract around a program whose lemmas hold, or go on where an earlier call stopped.

    ``answers.jsonl`` in the folder keeps every answer; with ``contract.json`` and ``lemmas.yaml``, ``ccenv verify lemmas``
    decides the result again. How it is searched: :mod:`ccenv.training.contracts.search`.

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
            sum(known.seconds.values()),
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
        "timeouts": task.rule_of_timeouts,
        "verified": found.verified,
        "width_log2": found.width_log2,
        "width_at_most": found.width_at_most,
        "finished": found.finished,
        "asked": found.asked,
        "solver_seconds": found.solver_seconds,
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
