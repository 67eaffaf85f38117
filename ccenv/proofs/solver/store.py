"""Evidence on disk: each query's SMT-LIB text under its hash, and beside it what was answered, by whom, in what time."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import float_of, read_json, shown
from ccenv.proofs.solver.solvers import Answer

MAX_NUMBER_CHARS = 8_000  # of an exact number in a model, both sides of "/"
_WHOLE = re.compile(r"-?[0-9]{1,4000}", re.ASCII)


def default_folder() -> FilePath:
    """Return where evidence is kept: $CCENV_CACHE, or the user's cache folder."""
    base = os.environ.get("CCENV_CACHE")
    if base:
        return FilePath(base) / "verify"
    return FilePath(os.environ.get("XDG_CACHE_HOME") or FilePath.home() / ".cache") / "ccenv" / "verify"


def query_hash(text: str) -> str:
    """Return the SHA-256 of a query's text."""
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """A folder of queries and answers. Reused are answers of the same text by the same solver version, never unknowns."""

    def __init__(self, folder: FilePath | None = None) -> None:
        """Open (and create) the folder; by default :func:`default_folder`."""
        self.folder = folder or default_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CcenvError(f"{self.folder}: cannot be created ({error.strerror})") from None

    def load(self, text: str, solver: str) -> Answer | None:
        """Return a stored answer, or None. A damaged file counts as absent."""
        file = self._answer_file(text, solver)
        try:
            data = read_json(file)
            model = {name: read_value(value) for name, value in data["model"].items()}
            if data["status"] not in ("sat", "unsat") or data["solver"] != solver:
                return None
            return Answer(data["status"], float_of(str(data["seconds"]), "seconds"), data["solver"], "", model)
        except (InputError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            return None

    def save(self, text: str, answer: Answer, about: dict[str, Any]) -> None:
        """Store the text, and the answer with what the query was about."""
        write_atomic(self.query_file(text), text.encode())
        record = asdict(answer) | {"sha256": query_hash(text), "about": about}
        record["model"] = {name: plain_value(value) for name, value in answer.model.items()}
        data = json.dumps(record, indent=1, sort_keys=True).encode()
        write_atomic(self._answer_file(text, answer.solver), data)

    def query_file(self, text: str) -> FilePath:
        """Return where the text of a query is kept."""
        return self.folder / f"{query_hash(text)[:32]}.smt2"

    def _answer_file(self, text: str, solver: str) -> FilePath:
        return self.folder / f"{query_hash(text)[:32]}.{solver.replace(' ', '-')}.json"


def plain_value(value: Any) -> bool | str:
    """Return a value of a model for a JSON file: a truth value, or an exact number as text."""
    return value if isinstance(value, bool) else str(value)


def read_value(value: Any) -> Any:
    """Read what :func:`plain_value` wrote; anything else is damage. Exponents would be computed digit by digit."""
    if isinstance(value, bool):
        return value
    over, _, under = value.partition("/")
    if len(value) > MAX_NUMBER_CHARS or not _WHOLE.fullmatch(over) or not (_WHOLE.fullmatch(under) or under == ""):
        raise ValueError(f"{shown(value)} is not a number of a model")
    return Fraction(int(over), int(under or 1))
