"""The record of distillations (docs/data/distillation.json): measured again by today's code, and its table of results.

python -c "from ccenv.training.distill.records import measure_again as m; m('docs/data/distillation.json', 'docs/distillation.md')"
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.training.distill.claims import INVARIANT
from ccenv.training.distill.measure import measure
from ccenv.training.distill.run import FORMAT as RESULT
from ccenv.training.distill.run import REPORT
from ccenv.training.distill.teacher import load_teacher
from ccenv.base.document import Format
from ccenv.agents.sender import ProgramSender
from ccenv.base.pages import Place, markdown
from ccenv.agents.programs import parse_program
from ccenv.base.provenance import machine, versions
from ccenv.training.records import ATTACK_SCENES

FORMAT = Format("ccenv-distillation-record", 2, "a record of distillations")
PLACE = Place("<!-- table of the record: ccenv.training.distill.records.write_table -->")
ATTACK_FLOW_STEPS = 2_000_000
SEEN_MARK = "†"
_MEASURED = ("score", "evaluation", "common", "worst", "worst_utilisation", "worst_adversary")
_KEPT = ("name", "teacher_name", "teacher_score", "teacher_weights", "fidelity", "teacher", "program", "pseudo_code", *_MEASURED)
_DROPPED = ("file", "suite", "seconds", "lemmas", "timeouts")  # files of one machine; the suites are decided and recorded alone


def measure_again(
    file: FilePath | str,
    page: FilePath | str | None = None,
    *,
    names: Sequence[str] | None = None,
    attack_flow_steps: int = ATTACK_FLOW_STEPS,
) -> None:
    """Measure every recorded program and its teacher with today's code; programs, proofs and times stay as they are.

    The record is written after each distillation.

    Args:
        file: the record.
        page: where its table of results goes; None: nowhere.
        names: of the distillations (their first programs); None: all.
        attack_flow_steps: budget of the attack on each scene.

    Raises:
        InputError: if the file is no record, a teacher is neither in the zoo nor where its command found it, or the page does not
            mark the place of the table.
    """
    file = FilePath(file)
    data = read_data(file)
    if page is not None:
        PLACE.parts(FilePath(page))
    for run in data["runs"]:
        if names is not None and run["name"] not in names:
            continue
        teacher = load_teacher(run["command"].split()[2])
        run["teacher"] |= measure(teacher.policy, teacher, attack_flow_steps, 0)
        for entry in (run, *run["proofs"]):
            program = parse_program(json.dumps(entry["program"]))
            entry.update(measure(ProgramSender(program.name, program), teacher, attack_flow_steps, 0))
        run["teacher_score"] = run["teacher"]["score"]
        data |= {"versions": versions(), "machine": machine()}
        FORMAT.write(file, data)
    if page is not None:
        write_table(file, page)


def add(file: FilePath | str, folder: FilePath | str, command: str) -> None:
    """Put what ``ccenv distill`` left in a folder into the record, in place of an earlier distillation of the same name.

    Raises:
        InputError: if the file is no record, or the folder holds no finished distillation.
    """
    result = RESULT.read(FilePath(folder) / REPORT)
    data = read_data(FilePath(file))
    entry = {"command": command} | {key: result[key] for key in _KEPT}
    entry["proofs"] = [_proof(proof) for proof in result["proofs"]]
    runs = {run["name"]: run for run in data["runs"]} | {entry["name"]: entry}
    data |= {"runs": list(runs.values()), "versions": result["versions"], "machine": result["machine"]}
    FORMAT.write(FilePath(file), data)


def read_data(file: FilePath) -> dict[str, Any]:
    """Read a record. Raises InputError if it is none."""
    return FORMAT.read(file)


def table(data: dict[str, Any]) -> str:
    """Return scores and worst cases of teachers and programs as a table in Markdown.

    ``†`` marks a scene on which attacks were part of the making of the sender.
    """
    return markdown([_row(name, entry) for run in data["runs"] for name, entry in _senders(run)])


def write_table(file: FilePath | str, page: FilePath | str) -> None:
    """Put the table of a record in its place on a page. Raises InputError if the page does not mark it."""
    PLACE.write(FilePath(page), table(read_data(FilePath(file))))


def _proof(proof: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a proof; its suites stand under ``suites``."""
    kept = {key: value for key, value in proof.items() if key not in _DROPPED}
    invariant = next((lemma for lemma in proof.get("lemmas", ()) if lemma["name"] == INVARIANT), None)
    return kept | ({} if invariant is None else {"invariant": invariant})


def _senders(run: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield f"{run['teacher_name']} (teacher)", run["teacher"]
    yield run["name"], run
    for proof in run["proofs"]:
        yield proof["name"], proof


def _row(name: str, entry: dict[str, Any]) -> dict[str, str]:
    scores, worst = entry["evaluation"], entry["worst"]
    row = {"sender": name} | {key: f"{scores[key]:.3f}" for key in ("score", "utilisation")}
    row |= {"queue (BDP)": f"{scores['queue_bdp']:.2f}", "loss": f"{scores['loss']:.3f}"}
    for scene in ATTACK_SCENES:
        case = worst.get(scene)
        row[f"worst, {scene}"] = "" if case is None else f"{case['utilisation']:.3f}{SEEN_MARK if case['seen'] else ''}"
    proved = f"{entry['utilisation']:.2f}, {entry['verdict']}" if "verdict" in entry else ""
    return row | {"F.7: u": proved}
