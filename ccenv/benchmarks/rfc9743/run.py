"""Evaluate a sender: cells, attacks and proofs into one folder, resumable at any point; then the page.

What a report holds besides cells: the worst legal networks that attacks find, and what the solver proves.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.load import is_user_sender
from ccenv.attacks.run import attack
from ccenv.base.errors import CcenvError, InputError, NoEncodingError, require_extra, shown
from ccenv.base.files import Format, hash_of, locked, make_folder, plain, write_atomic
from ccenv.base.foreign import path_of
from ccenv.base.provenance import code_hash, versions
from ccenv.benchmarks.cells.cell import FILE, Player, agent_player, sender_of
from ccenv.benchmarks.cells.code import cells_code
from ccenv.benchmarks.cells.packet import PacketCell
from ccenv.benchmarks.rfc9743.criteria import Criteria, Proof, WorstCase, load_criteria
from ccenv.benchmarks.rfc9743.judge import judged
from ccenv.benchmarks.rfc9743.page import page_of
from ccenv.benchmarks.run.runner import cells_for, run_suite
from ccenv.benchmarks.store import cells_of
from ccenv.benchmarks.suite.packet import PacketSuite
from ccenv.benchmarks.suite.references import matches
from ccenv.simulation import simulate

PARTS_FORMAT = Format("ccenv-report-further", 1, "what a report found besides cells", older="--fresh starts anew")
FURTHER = "further.json"
NO_CODE = "a Python file has no encoding for the solver (docs/verification.md)"
SEED = 0


class Further:
    """Answers that are kept in a folder, each under a hash of everything that decides it."""

    def __init__(self, folder: FilePath, player: Player) -> None:
        self.folder, self.player = folder, player
        file = folder / FURTHER
        self.known: dict[str, Any] = PARTS_FORMAT.read(file).get("answers", {}) if file.exists() else {}

    def worst_case(self, asked: WorstCase, broken: str) -> dict[str, Any]:
        """Attack the sender; ``why`` says what stood in the way. A sender that fails (``broken``) is not attacked."""
        about = {"scene": asked.scene, "budget_flow_steps": asked.flow_steps, "seed": SEED}
        if broken:
            return {**about, "why": broken}
        return self._kept({**about, "code": code_hash(attack)}, lambda: {**about, **self._attack(asked)})

    def proof(self, asked: Proof, limit_s: float) -> dict[str, Any]:
        """Ask the solver; ``why`` says what stood in the way."""
        about = asked.model_dump()
        if is_user_sender(self.player.spec):
            return {**about, "why": NO_CODE}
        from ccenv.proofs.claims.ask import verify

        key = {**about, "limit_s": limit_s, "code": code_hash(verify)}
        return self._kept(key, lambda: {**about, **self._prove(asked, limit_s)})

    def _kept(self, key: dict[str, Any], find: Any) -> dict[str, Any]:
        name = hash_of({**key, "sender": self.player.sha256})[:32]
        if name not in self.known:
            self.known[name] = find()
            PARTS_FORMAT.write(self.folder / FURTHER, {"answers": dict(sorted(self.known.items()))})
        answer: dict[str, Any] = self.known[name]
        return answer

    def _attack(self, asked: WorstCase) -> dict[str, Any]:
        try:
            result = attack(sender_of(self.player), path=asked.scene, budget_flow_steps=asked.flow_steps, seed=SEED)
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

    def _prove(self, asked: Proof, limit_s: float) -> dict[str, Any]:
        try:
            from ccenv.proofs.claims.ask import verify

            answer = verify(
                self.player.spec,
                asked.claim,
                model=asked.model,
                buffer=asked.buffer,
                samples=asked.samples,
                at_least=asked.at_least,
                time_limit=limit_s,
                out=self.folder / "counterexamples",
            )
        except (NoEncodingError, CcenvError) as error:
            return {"why": str(error)}
        return {"verdict": answer["verdict"], "setting": answer["setting_name"], "reason": answer.get("reason", "")}


FORMAT = Format("ccenv-report", 1, "a report about a sender")
RUNS, CELLS, DATA, PAGE = FilePath("runs") / "report", "cells", "report.json", "report.html"


class Report(dict[str, Any]):
    """A report: sender, criteria with numbers and verdicts, worst cases, proofs, and where it comes from."""

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row per measure. Raises MissingExtraError without pandas."""
        require_extra("pandas", "bench")
        import pandas

        keep = ("label", "metric", "unit", "value", "baseline", "verdict", "n_cells")
        return pandas.DataFrame(
            [{"criterion": c["id"], **{k: m[k] for k in keep}} for c in self["criteria"] for m in c["measures"]]
        )

    def __repr__(self) -> str:
        """Return one line."""
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
        Report: what ``report.json`` holds. ``failed`` says why a user's file failed; its cells are then not measured.

    Raises:
        UnknownNameError: for an unknown sender, criterion or file.
        InputError: for anything else that cannot be.
        CcenvError: if the folder is in use or cannot be written.
    """
    if not isinstance(sender, str):
        raise InputError(f"sender is {shown(sender)}; give a name, a program, a policy or a Python file")
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be at least 1")
    asked, suite = load_criteria(criteria)
    asked = asked.only(tuple(only))
    player = agent_player(sender, _label(sender), code=True)
    folder = RUNS / _file_name(player.label) if out is None else path_of("out", out)
    target = folder / PAGE if page is None else path_of("page", page)
    if target.suffix != ".html":
        raise InputError(f"page is {str(target)!r}; it must end in .html")
    with locked(folder, "report"):
        return _evaluate(sender, asked, suite, player, folder, target, jobs=jobs, fresh=fresh, progress=progress)


def _evaluate(
    sender: str,
    asked: Criteria,
    suite: PacketSuite,
    player: Player,
    folder: FilePath,
    target: FilePath,
    *,
    jobs: int,
    fresh: bool,
    progress: Callable[[int, int], None],
) -> Report:
    """Evaluate in a folder that is held."""
    if fresh:
        (folder / FURTHER).unlink(missing_ok=True)
    cells = _cells(asked, suite, player)
    refused = {} if player.kind == FILE else _refused(cells, player)
    playable = list(dict.fromkeys(cell.scenario for cell in cells if cell.scenario not in refused))
    if not playable:
        raise InputError(f"{player.label} can be played in no cell: {next(iter(refused.values()))}")
    further, more = Further(folder, player), len(asked.worst_cases) + len(asked.proofs)
    try:
        manifest = run_suite(
            suite,
            folder / CELLS,
            extra_agents=list(dict.fromkeys([sender, asked.baseline])),
            only=[f"{glob.escape(case)}/*" for case in playable],
            backend="local" if jobs == 1 else "processes",
            workers=jobs,
            fresh=fresh,
            pictures=False,
            progress=lambda done, total: progress(done, total + more),
        )
    except InputError as error:  # the folder of the cells is the command's --folder
        raise InputError(str(error).replace("--out", "--folder")) from None
    records = [record for record in cells_of(folder / CELLS) if record["agent"] in (player.label, asked.baseline)]
    broken = next((f"{one['agent']}: {one['error']}" for one in manifest["failed"]), "")
    done, total = manifest["n_cells"], manifest["n_cells"] + more
    worst, proofs = [], []
    for case in asked.worst_cases:
        worst.append(further.worst_case(case, broken))
        progress(done + len(worst), total)
    for proof in asked.proofs:
        proofs.append(further.proof(proof, asked.proof_limit_s))
        progress(done + len(worst) + len(proofs), total)
    data = {
        "sender": {"name": player.label, "kind": player.kind, "sha256": player.sha256},
        "baseline": asked.baseline,
        "document": asked.title,
        "criteria": judged(asked, suite, records, player.label, refused or dict.fromkeys(playable, broken)),
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
    write_atomic(target, page_of(data, asked, suite, records, player).encode())
    return Report({**FORMAT.head, **data, "out": str(folder), "page": str(target)})


def _label(spec: str) -> str | None:
    from ccenv.agents import AGENTS

    return spec if spec.partition(":")[0] in AGENTS else None


def _file_name(label: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", label).strip("._") or "sender"


def _cells(asked: Criteria, suite: PacketSuite, player: Player) -> list[PacketCell]:
    """Return the sender's cells of the suite that the criteria need."""
    patterns = [m.quantity.scenario for c in asked.criteria for m in c.measures]
    patterns += [picture for c in asked.criteria for picture in c.pictures]
    cells = cells_for(suite, [player])
    return [c for c in cells if isinstance(c, PacketCell) and any(matches(c.scenario, pattern) for pattern in patterns)]


def _refused(cells: list[PacketCell], player: Player) -> dict[str, str]:
    """Return what a sender that comes with ccenv says of the networks that it cannot be run on, by case."""
    refused: dict[str, str] = {}
    for cell in cells:
        started = cell.scenario_data().model_copy(update={"duration_s": cell.network["log_s"], "warmup_s": 0.0})
        try:
            simulate(started, senders={player.spec: sender_of(player)})
        except CcenvError as error:
            refused[cell.scenario] = str(error)
    return refused
