"""The folder of an attack: result, traces, and the finished findings of an interrupted attack."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path as FilePath
from typing import Any

from pydantic import Field

from ccenv.attacks.run import AttackResult, Finding
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, is_empty, locked
from ccenv.base.foreign import resolve_inside
from ccenv.network.adversary import SUFFIX, MovesHeader, StoredMoves, load_moves
from ccenv.network.trace import load_trace

FORMAT = Format("ccenv-attack", 1, "the result of an attack", older="--fresh starts anew")
RESULT = "attack.json"
FILES = ("trace", "moves")  # of a finding


class StoredFinding(StrictModel):
    """A finding in the file; see :class:`Finding`."""

    spec: str
    worst_utilisation: float = Field(allow_inf_nan=False)
    legal: bool = Field(strict=True)
    violations: tuple[str, ...] = ()
    flow_steps: int = Field(ge=0, strict=True)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    preconditions: dict[str, Any] = Field(default_factory=dict)
    details: dict[str, Any] = Field(default_factory=dict)
    ratio: float | None = None
    value: float | None = Field(default=None, allow_inf_nan=False)
    trace: str
    moves: str | None = None


class StoredBudget(StrictModel):
    """The initial budget of an attack in flow-steps, since one in seconds depends on the machine."""

    budget_flow_steps: int | None = Field(ge=1, strict=True)


def read_findings(file: FilePath, key: str) -> dict[str, tuple[dict[str, Any], Finding]]:
    """Read the entries of ``attack.json`` by adversary, each with its finding; ``key`` hashes all that decides the attack.

    Raises:
        InputError: if the file is not the result of this attack, or moves are missing or damaged.
        TraceError: if a trace is missing or damaged.
    """
    data = FORMAT.read(file)
    if not isinstance(data.get("findings"), dict):
        raise InputError(f"{file}: not the result of an attack; --fresh starts anew")
    if data.get("key") != key:
        raise InputError(f"{file.parent} holds an attack with other settings or another version: --fresh starts anew")
    out = {}
    for name, entry in data["findings"].items():
        stored = validate(StoredFinding, entry, f"{file}: {name}")
        trace = load_trace(resolve_inside(file.parent, stored.trace, f"{file}: trace"))
        moves = None if stored.moves is None else load_moves(resolve_inside(file.parent, stored.moves, f"{file}: moves")).moves
        fields = stored.model_dump(exclude={"trace", "ratio", "moves"})
        out[name] = (entry, Finding(adversary=name, trace=trace, moves=moves, **fields))
    return out


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


class AttackFolder:
    """Stores findings as they come, and restores those of the same attack if interrupted; a context for one attack at a time.

    Attributes:
        findings: finished ones of the same attack, by adversary.
        budget_flow_steps: of a stored attack; None: nothing is stored yet.
    """

    def __init__(self, folder: FilePath, key: str, fresh: bool = False, first_row: int = 0) -> None:
        """Check the folder, without writing; ``key`` hashes all that decides the attack, ``fresh`` discards stored findings.

        Raises InputError if the folder holds something else.
        """
        self.first_row = first_row
        self.folder = folder
        self.findings: dict[str, Finding] = {}
        self.budget_flow_steps: int | None = None
        self._key = key
        self._fresh = fresh
        self._entries: dict[str, dict[str, Any]] = {}
        self._open = ExitStack()
        if folder.exists() and not (folder / RESULT).is_file() and (not folder.is_dir() or not is_empty(folder)):
            raise InputError(f"{folder} holds something that is not an attack: give another --out")

    def __enter__(self) -> AttackFolder:
        """Create, lock and read the folder.

        Raises:
            InputError: if it holds another attack.
            CcenvError: if it cannot be created, or another process uses it.
        """
        file = self.folder / RESULT
        with ExitStack() as opened:
            opened.enter_context(locked(self.folder, "attack"))
            try:
                # Only files of an attack.
                for old in [*self.folder.glob("*.npz"), file] if self._fresh and file.is_file() else []:
                    old.unlink()
            except OSError as error:
                raise CcenvError(f"{self.folder}: cannot be cleared ({error.strerror})") from None
            if file.is_file():
                self._read(file)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock the folder."""
        self._open.close()

    def _read(self, file: FilePath) -> None:
        for name, (entry, finding) in read_findings(file, self._key).items():
            self._entries[name] = entry
            self.findings[name] = finding
        self.budget_flow_steps = validate(
            StoredBudget, {"budget_flow_steps": FORMAT.read(file).get("budget_flow_steps")}, str(file)
        ).budget_flow_steps

    def add(self, finding: Finding) -> None:
        """Store a finding, its trace, and the moves of a search, which can be replayed, also on a real kernel."""
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", finding.adversary).strip("._")
        finding.trace.save(self.folder / f"{stem}.npz")
        entry = finding.to_dict() | {"trace": f"{stem}.npz"}
        if finding.moves is not None:
            stored_moves(finding, self.first_row).save(self.folder / f"{stem}{SUFFIX}")
            entry["moves"] = f"{stem}{SUFFIX}"
        self._entries[finding.adversary] = entry
        self._write({})

    def finish(self, result: AttackResult) -> dict[str, Any]:
        """Store the result and return it with the path of the worst trace."""
        data = result.to_dict()
        for name, entry in data["by_adversary"].items():
            entry |= {file_type: str(self.folder / file) for file_type in FILES if (file := self._entries[name].get(file_type))}
        data |= {file_type: file for file_type in FILES if (file := data["by_adversary"][result.worst_adversary].get(file_type))}
        self._write(data)
        return data

    def _write(self, result: dict[str, Any]) -> None:
        data = {"key": self._key, "budget_flow_steps": self.budget_flow_steps, "findings": self._entries, "result": result}
        FORMAT.write(self.folder / RESULT, data)
