"""Results of finished stages on disk, so that a killed distillation goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.document import hash_of, json_bytes
from ccenv.base.errors import InputError
from ccenv.base.files import is_empty, make_folder, write_atomic
from ccenv.base.foreign import read_json

STAGES = "stages"


class Stages:
    """Runs stages, or returns what they came to under the same key."""

    def __init__(self, folder: FilePath, key: dict[str, Any]) -> None:
        self._key = key
        self._folder = folder / STAGES
        self.check(folder)
        make_folder(self._folder)

    @staticmethod
    def check(folder: FilePath) -> None:
        """Raise InputError for a folder that holds something else."""
        if folder.is_dir() and not is_empty(folder) and not (folder / STAGES).is_dir():
            raise InputError(f"{folder}: holds something else than a distillation; choose another --out")

    @property
    def key_hash(self) -> str:
        """A hash of what decides every stage, for searches that keep their own state."""
        return hash_of(self._key)

    def run(
        self, name: str, stage: Callable[[], dict[str, Any]], *, limits: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return a stage's result, from disk if it was finished with the same key.

        Args:
            name: of the stage.
            stage: does it.
            limits: of a search; one that found a proof is not done again with other limits, one that did not goes on.
            more: what decides this stage besides the key of all stages.
        """
        file = self._folder / f"{name}.json"
        key = self._key | more | (limits or {})
        if file.is_file():
            known = read_json(file)
            if isinstance(known, dict) and isinstance(known.get("key"), dict) and isinstance(known.get("result"), dict):
                result: dict[str, Any] = known["result"]
                proved = result.get("verdict") == "verified"
                if (known["key"] | (limits or {}) if proved else known["key"]) == key:
                    return result
        begin = time.perf_counter()
        result = stage() | {"seconds": round(time.perf_counter() - begin, 1)}
        write_atomic(file, json_bytes({"key": key, "result": result}))
        return result
