"""Evaluate a sender along criteria: cells, attacks and proofs in one resumable folder, then the page."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.load import USER_SENDERS
from ccenv.attacks.run import attack
from ccenv.base.errors import CcenvError, InputError, NoEncodingError, shown
from ccenv.base.files import Format, hash_value, make_folder, plain, write_atomic
from ccenv.base.foreign import as_path
from ccenv.base.provenance import code_hash, versions
from ccenv.base.results import TableResult
from ccenv.base.store import ResultFolder
from ccenv.benchmarks.cells.cell import FILE, Player, agent_player, build_sender, label_of
from ccenv.benchmarks.cells.packet import PacketCell, cells_code
from ccenv.benchmarks.rfc9743.criteria import Criteria, Proof, WorstCase, judge_criteria, load_criteria
from ccenv.benchmarks.rfc9743.page import render_page
from ccenv.benchmarks.run.runner import make_cells, run_suite
from ccenv.benchmarks.store import load_cells
from ccenv.benchmarks.suite.packet import PacketSuite
from ccenv.benchmarks.suite.references import matches
from ccenv.simulation import simulate

PARTS_FORMAT = Format("ccenv-report-further", 1, "what a report found besides cells", older="--fresh starts anew")
ANSWERS_FILE = "further.json"
NO_CODE = "a Python file has no encoding for the solver (docs/verification.md)"
SEED = 0


class Answers:
    """Attacks and proofs of a report, stored in its folder under a hash of everything that determines them."""

    def __init__(self, folder: ResultFolder, player: Player) -> None:
        self.folder, self.player = folder, player
        self.answers: dict[str, Any] = (folder.stored or {}).get("answers", {})

    def worst_case(self, worst_case: WorstCase, broken: str) -> dict[str, Any]:
        """Attack the sender; ``why`` is the reason if there is no result. A sender that fails (``broken``) is not attacked."""
        question = {"scene": worst_case.scene, "budget_flow_steps": worst_case.flow_steps, "seed": SEED}
        if broken:
            return {**question, "why": broken}
        return self._answer_once({**question, "code": code_hash(attack)}, lambda: {**question, **self._attack(worst_case)})

    def proof(self, proof: Proof, limit_s: float) -> dict[str, Any]:
        """Ask the solver; ``why`` is the reason if there is no result."""
        question = proof.model_dump()
        if USER_SENDERS.is_user(self.player.spec):
            return {**question, "why": NO_CODE}
        from ccenv.proofs.claims.ask import verify

        key = {**question, "limit_s": limit_s, "code": code_hash(verify)}
        return self._answer_once(key, lambda: {**question, **self._prove(proof, limit_s)})

    def _answer_once(self, key: dict[str, Any], find: Any) -> dict[str, Any]:
        name = hash_value({**key, "sender": self.player.sha256})[:32]
        if name not in self.answers:
            self.answers[name] = find()
            self.folder.write({"answers": dict(sorted(self.answers.items()))})
        answer: dict[str, Any] = self.answers[name]
        return answer

    def _attack(self, worst_case: WorstCase) -> dict[str, Any]:
        try:
            result = attack(build_sender(self.player), path=worst_case.scene, budget_flow_steps=worst_case.flow_steps, seed=SEED)
        except CcenvError as error:
            return {"why": str(error)}
        path = result.scene.path
        return {
            "worst_utilisation": result.worst_utilisation,
            "adversary": result.worst_adversary,
            "legal": result.legal,
            "model": result.scene.model,
            "link_rate_Bps": path.link_rate_Bps,
            "buffer_bytes": path.buffer_bytes,
            "rtt_s": path.flows[0].rtt_s,
            "jitter_s": path.flows[0].jitter_s,
        }

    def _prove(self, proof: Proof, limit_s: float) -> dict[str, Any]:
        try:
            from ccenv.proofs.claims.ask import verify

            answer = verify(
                self.player.spec,
                proof.claim,
                model=proof.model,
                buffer=proof.buffer,
                samples=proof.samples,
                at_least=proof.at_least,
                time_limit=limit_s,
                out=self.folder.path / TRACES,
            )
        except (NoEncodingError, CcenvError) as error:
            return {"why": str(error)}
        return {"verdict": answer["verdict"], "setting": answer["setting_name"], "reason": answer.get("reason", "")}


FORMAT = Format("ccenv-report", 1, "a report about a sender")
RUNS, CELLS, DATA, PAGE, TRACES = FilePath("runs") / "report", "cells", "report.json", "report.html", "counterexamples"


class Report(TableResult, dict[str, Any]):
    """A report: sender, criteria with numbers and verdicts, worst cases, proofs, and where it comes from."""

    def _rows(self) -> list[dict[str, Any]]:
        keep = ("label", "metric", "unit", "value", "baseline", "verdict", "n_cells")
        return [{"criterion": c["id"], **{k: m[k] for k in keep}} for c in self["criteria"] for m in c["measures"]]

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{c['id']} {c['verdict']}" for c in self["criteria"])
        return f"Report({self['sender']['name']}: {verdicts})"


def report_on(
    sender: str,
    *,
    criteria: str = "rfc9743",
    only: Sequence[str] = (),
    out: FilePath | str | None = None,
    page: FilePath | str | None = None,
    jobs: int = 1,
    fresh: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Evaluate a sender along the criteria of a document.

    Args:
        sender: a registered name with parameters, a program, a policy, or a Python file (``FILE.py``).
        criteria: shipped ones by name (``rfc9743``) or a YAML file.
        only: ids of criteria; empty: all.
        out: folder for cells, ``report.json`` and the page; by default ``runs/report/NAME``. Finished cells in it are kept.
        page: file of the page, ending in .html; by default ``report.html`` in the folder.
        jobs: worker processes, at least 1; they change the time, not the answer.
        fresh: discard what the folder holds.
        progress: called with the number of finished and of all steps: cells, attacks, proofs.

    Returns:
        Report: the contents of ``report.json``. ``failed`` is the reason if a user's file failed; its cells are then left out.

    Raises:
        UnknownNameError: for an unknown sender, criterion or file.
        InputError: for any other invalid argument.
        CcenvError: if the folder is in use or cannot be written.
    """
    if not isinstance(sender, str):
        raise InputError(f"sender is {shown(sender)}; give a name, a program, a policy or a Python file")
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be at least 1")
    chosen, suite = load_criteria(criteria)
    chosen = chosen.only(tuple(only))
    player = agent_player(sender, label_of(sender), code=True)
    folder = RUNS / (re.sub(r"[^\w.=-]+", "_", player.label).strip("._") or "sender") if out is None else as_path("out", out)
    target = folder / PAGE if page is None else as_path("page", page)
    if target.suffix != ".html":
        raise InputError(f"page is {str(target)!r}; it must end in .html")
    owns = (CELLS, DATA, PAGE, TRACES)
    with ResultFolder(folder, "a report", ANSWERS_FILE, PARTS_FORMAT, {}, fresh=fresh, owns=owns, marks=(CELLS, DATA)) as stored:
        return _evaluate(sender, chosen, suite, player, stored, target, jobs=jobs, progress=progress)


def _evaluate(
    sender: str,
    criteria: Criteria,
    suite: PacketSuite,
    player: Player,
    stored: ResultFolder,
    target: FilePath,
    *,
    jobs: int,
    progress: Callable[[int, int], None],
) -> Report:
    """Evaluate in a folder whose lock is held."""
    folder = stored.path
    cells = _cells(criteria, suite, player)
    refused = {} if player.kind == FILE else _find_refusals(cells, player)
    playable = list(dict.fromkeys(cell.scenario for cell in cells if cell.scenario not in refused))
    if not playable:
        raise InputError(f"{player.label} can be played in no cell: {next(iter(refused.values()))}")
    answers, n_answers = Answers(stored, player), len(criteria.worst_cases) + len(criteria.proofs)
    manifest = run_suite(
        suite,
        folder / CELLS,
        extra_agents=list(dict.fromkeys([sender, criteria.baseline])),
        only=[f"{glob.escape(case)}/*" for case in playable],
        backend="local" if jobs == 1 else "processes",
        workers=jobs,
        pictures=False,
        progress=lambda done, total: progress(done, total + n_answers),
    )
    records = [record for record in load_cells(folder / CELLS) if record["agent"] in (player.label, criteria.baseline)]
    broken = next((f"{one['agent']}: {one['error']}" for one in manifest["failed"]), "")
    done, total = manifest["n_cells"], manifest["n_cells"] + n_answers
    worst, proofs = [], []
    for case in criteria.worst_cases:
        worst.append(answers.worst_case(case, broken))
        progress(done + len(worst), total)
    for proof in criteria.proofs:
        proofs.append(answers.proof(proof, criteria.proof_limit_s))
        progress(done + len(worst) + len(proofs), total)
    data = {
        "sender": {"name": player.label, "kind": player.kind, "sha256": player.sha256},
        "baseline": criteria.baseline,
        "document": criteria.title,
        "criteria": judge_criteria(criteria, suite, records, player.label, refused or dict.fromkeys(playable, broken)),
        "worst_cases": worst,
        "proofs": proofs,
        "failed": broken or None,
        "suite": {"name": suite.name, "version": suite.version, "sha256": suite.sha256, "n_cells": len(records)},
        "code_sha256": cells_code(),
        "versions": versions(),
    }
    data = plain(data)
    make_folder(target.parent)
    FORMAT.write(folder / DATA, data)
    write_atomic(target, render_page(data, criteria, suite, records, player).encode())
    return Report({**FORMAT.head, **data, "out": str(folder), "page": str(target)})


def _cells(criteria: Criteria, suite: PacketSuite, player: Player) -> list[PacketCell]:
    patterns = [m.quantity.scenario for c in criteria.criteria for m in c.measures]
    patterns += [picture for c in criteria.criteria for picture in c.pictures]
    cells = make_cells(suite, [player])
    return [c for c in cells if isinstance(c, PacketCell) and any(matches(c.scenario, pattern) for pattern in patterns)]


def _find_refusals(cells: list[PacketCell], player: Player) -> dict[str, str]:
    """Return the cases on which a sender that comes with ccenv cannot run: case -> why."""
    refused: dict[str, str] = {}
    for cell in cells:
        started = cell.scenario_data().model_copy(update={"duration_s": cell.network["log_s"], "warmup_s": 0.0})
        try:
            simulate(started, senders={player.spec: build_sender(player)})
        except CcenvError as error:
            refused[cell.scenario] = str(error)
    return refused
