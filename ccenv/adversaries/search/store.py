"""An attack in a folder: result, traces, and what an interrupted attack has finished."""

from __future__ import annotations

import json
import re
from pathlib import Path as FilePath
from typing import Any

from ccenv.adversaries.search.attack import AttackResult, Finding
from ccenv.errors import CcenvError, InputError
from ccenv.files import write_atomic
from ccenv.foreign import read_json, resolve_inside
from ccenv.trace import load_trace

FORMAT, VERSION = "ccenv-attack", 1
RESULT = "attack.json"


class AttackFolder:
    """Write findings as they come; read them back if the same attack was interrupted.

    Attributes:
        folder: where.
        findings: finished ones of the same attack, by adversary.
    """

    def __init__(self, folder: FilePath, key: str, fresh: bool = False) -> None:
        """Open or make a folder.

        Args:
            folder: where to write.
            key: hash of everything that decides the attack.
            fresh: discard what is there.

        Raises:
            InputError: if the folder holds something else, or another attack.
            CcenvError: if it cannot be made.
        """
        self.folder = folder
        self.findings: dict[str, Finding] = {}
        self._key = key
        self._entries: dict[str, dict[str, Any]] = {}
        file = folder / RESULT
        if folder.exists() and not file.is_file() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} holds something that is not an attack: give another --out")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in [*folder.glob("*.npz"), file] if fresh and file.is_file() else []:  # and nothing else that is kept here
                old.unlink()
        except OSError as error:
            raise CcenvError(f"{folder}: cannot be made ({error.strerror})") from None
        if file.is_file():
            self._read(file)

    def _read(self, file: FilePath) -> None:
        data = read_json(file)
        if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("findings"), dict):
            raise InputError(f"{file}: not the result of an attack; --fresh starts anew")
        if data.get("key") != self._key:
            raise InputError(f"{self.folder} holds an attack with other settings or another version: --fresh starts anew")
        for name, entry in data["findings"].items():
            trace = load_trace(resolve_inside(self.folder, entry["trace"], f"{file}: trace"))
            self._entries[name] = entry
            self.findings[name] = Finding(
                name,
                entry["spec"],
                entry["worst_utilisation"],
                entry["legal"],
                tuple(entry.get("violations", ())),
                entry["flow_steps"],
                entry["seconds"],
                entry.get("preconditions", {}),
                entry.get("details", {}),
                trace,
            )

    def add(self, finding: Finding) -> None:
        """Store a finding and its trace."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", finding.adversary).strip("._") + ".npz"
        finding.trace.save(self.folder / name)
        self._entries[finding.adversary] = finding.to_dict() | {"trace": name}
        self._write({})

    def finish(self, result: AttackResult) -> dict[str, Any]:
        """Store the result; return it with the path of the worst trace."""
        data = result.to_dict()
        for name, entry in data["by_adversary"].items():
            entry["trace"] = str(self.folder / self._entries[name]["trace"])
        data["trace"] = data["by_adversary"][result.worst_adversary]["trace"]
        self._write(data)
        return data

    def _write(self, result: dict[str, Any]) -> None:
        data = {"format": FORMAT, "version": VERSION, "key": self._key, "findings": self._entries, "result": result}
        write_atomic(self.folder / RESULT, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
