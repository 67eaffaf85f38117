"""The folder of an attack: result, traces, and the finished findings of an interrupted attack or of older code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from pydantic import Field

from ccenv.attacks.run import AttackResult, Finding
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, plain
from ccenv.base.foreign import resolve_inside
from ccenv.base.store import ResultFolder
from ccenv.network.adversary import SUFFIX, MovesHeader, StoredMoves, load_moves
from ccenv.network.trace import load_trace

FORMAT = Format("ccenv-attack", 1, "the result of an attack", older="--fresh starts anew")
PACKET_FORMAT = Format("ccenv-packet-attack", 1, "the result of an attack per packet", older="--fresh starts anew")
RESULT = "attack.json"
FILES = ("trace", "moves")  # of a finding
UNKNOWN = "unknown"  # code of documents that do not name it


class StoredFinding(StrictModel):
    """A finding in the file; see :class:`Finding`.

    Attributes:
        trace, moves: files.
        words: moves per packet.
        code: hash of the code that measured it.
    """

    spec: str = ""
    worst_utilisation: float = Field(allow_inf_nan=False)
    legal: bool = Field(strict=True)
    violations: tuple[str, ...] = ()
    runs: int | None = Field(default=None, ge=0, strict=True)
    flow_steps: int = Field(ge=0, strict=True)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    preconditions: dict[str, Any] = Field(default_factory=dict)
    details: dict[str, Any] = Field(default_factory=dict)
    pattern: dict[str, Any] | None = None
    ratio: float | None = None
    value: float | None = Field(default=None, allow_inf_nan=False)
    trace: str
    moves: str | None = None
    words: list[float] | None = None
    code: str = UNKNOWN
    found_by: str | None = None

    def finding(self, name: str, file: FilePath) -> Finding:
        """Read its files beside the document. Raises InputError or TraceError."""
        trace = load_trace(resolve_inside(file.parent, self.trace, f"{file}: trace"))
        moves = None if self.words is None else np.array(self.words)
        if self.moves is not None:
            moves = load_moves(resolve_inside(file.parent, self.moves, f"{file}: moves")).moves
        fields = self.model_dump(exclude={"trace", "ratio", "moves", "words", "code"})
        return Finding(adversary=name, trace=trace, moves=moves, **fields)


class StoredBudget(StrictModel):
    """The budget of an attack in flow-steps, since one in seconds depends on the machine."""

    budget_flow_steps: int | None = Field(default=None, ge=1, strict=True)


def read_findings(data: Mapping[str, Any], file: FilePath) -> dict[str, tuple[StoredFinding, Finding]]:
    """Return the entries of an attack's document by adversary, each with its finding.

    Raises InputError if it has none, or an entry, trace or moves are missing or damaged.
    """
    entries = data.get("findings", data.get("by_adversary"))
    if not isinstance(entries, dict):
        raise InputError(f"{file}: not the result of an attack; --fresh starts anew")
    findings = {}
    for name, entry in entries.items():
        try:
            stored = validate(StoredFinding, entry, f"{file}: {name}")
            findings[name] = stored, stored.finding(name, file)
        except CcenvError as error:
            raise InputError(f"{error}; --fresh starts anew") from None
    return findings


def stored_moves(finding: Finding, first_row: int) -> StoredMoves:
    """Return the moves of a finding for a file. Raises InputError if it has none."""
    if finding.moves is None:
        raise InputError(f"{finding.adversary} played no fixed moves")
    header = finding.trace.header
    return StoredMoves(
        MovesHeader(
            path=header.path,
            model=header.model,
            steps_per_rtt=header.steps_per_rtt,
            dt_s=header.dt_s,
            first_row=first_row,
            sender=header.senders[0],
            adversary=finding.adversary,
            utilisation=finding.worst_utilisation,
        ),
        finding.moves,
    )


class AttackFolder(ResultFolder):
    """Stores findings as they come, and restores those of the same attack; a context for one attack at a time."""

    def __init__(
        self, path: FilePath, form: Format, key: str, code: str, *, fresh: bool = False, first_row: int = 0, **asked: Any
    ) -> None:
        """Check the folder, without writing. Raises InputError if the folder holds something else.

        Args:
            path: of the folder.
            form: of its document.
            key: hash of all that decides the attack besides the code.
            code: hash of that.
            fresh: discard what is stored.
            first_row: at which the measured window starts.
            asked: ``adversaries``, and keys of a result; for documents that do not name their code, which ``key`` held.
        """
        super().__init__(path, "an attack", RESULT, form, {}, fresh=fresh, owns=("*.npz",))
        self.findings: dict[str, Finding] = {}  # finished ones by adversary
        self.older: dict[str, Finding] = {}  # those that other code measured
        self.budget_flow_steps: int | None = None  # of a stored attack; None: nothing is stored yet
        self._first_row, self._asked = first_row, asked
        self._head, self._code = {"key": key}, code
        self._entries: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> AttackFolder:
        """Make, lock and read the folder.

        Raises InputError if it holds another attack, or a damaged one; CcenvError if it cannot be written, or another process
        uses it.
        """
        super().__enter__()
        try:
            if self.stored is not None:
                self._read(self.stored)
        except BaseException:
            self._open.close()
            raise
        return self

    def _read(self, data: dict[str, Any]) -> None:
        findings = read_findings(data, self.path / RESULT)
        if data.get("key") != self._head["key"] and not self._is_asked(data, [stored for stored, _ in findings.values()]):
            raise InputError(f"{self.path} holds an attack with other settings: --fresh starts anew")
        for name, (stored, finding) in findings.items():
            self._entries[name] = stored.model_dump(mode="json", exclude_unset=True)
            if stored.code == self._code:
                self.findings[name] = finding
            else:
                self.older[name] = replace(finding, found_by=finding.found_by or stored.code)
        budget = {name: data[name] for name in StoredBudget.model_fields if name in data}
        self.budget_flow_steps = validate(StoredBudget, budget, f"{self.path / RESULT}").budget_flow_steps

    def _is_asked(self, data: dict[str, Any], entries: Sequence[StoredFinding]) -> bool:
        """Tell whether a document that does not name its code is finished and of this attack; a replay tells the rest."""
        result = data.get("result")
        if not isinstance(result, dict) or any(entry.code != UNKNOWN for entry in entries):
            return False
        found = {name: result.get(name) for name in self._asked} | {"adversaries": sorted(entry.spec for entry in entries)}
        return found == self._asked | {"adversaries": sorted(self._asked["adversaries"])}

    def add(self, finding: Finding) -> None:
        """Store a finding, its trace, and the moves of a search, which can be replayed, also on a real kernel."""
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", finding.adversary).strip("._")
        finding.trace.save(self.path / f"{stem}.npz")
        entry = plain(finding.to_dict()) | {"trace": f"{stem}.npz", "code": self._code}
        if finding.moves is not None and finding.pattern is not None:
            entry["words"] = finding.moves.tolist()
        elif finding.moves is not None:
            stored_moves(finding, self._first_row).save(self.path / f"{stem}{SUFFIX}")
            entry["moves"] = f"{stem}{SUFFIX}"
        self._entries[finding.adversary] = entry
        self._store({})

    def store_result(self, result: AttackResult[Any]) -> dict[str, Any]:
        """Store the result and return it with the path of the worst trace."""
        data: dict[str, Any] = plain(result.to_dict())
        files = {name: {kind: entry[kind] for kind in FILES if kind in entry} for name, entry in self._entries.items()}
        beside = FilePath() if self._form is PACKET_FORMAT else self.path
        for name, entry in data["by_adversary"].items():
            entry |= {kind: str(beside / file) for kind, file in files[name].items()}
        worst = files[result.worst_adversary]
        self._store(data | {kind: str(beside / file) for kind, file in worst.items()})
        return data | {kind: str(self.path / file) for kind, file in worst.items()}

    def _store(self, result: dict[str, Any]) -> None:
        budget = {"budget_flow_steps": self.budget_flow_steps}
        if self._form is PACKET_FORMAT:
            self.write({**self._head, **budget, **result, "by_adversary": self._entries})
        else:
            self.write({**self._head, **budget, "findings": self._entries, "result": result})
