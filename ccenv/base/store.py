"""Folders that long commands fill and resume: a lock, a record that says what they are about, journals and sealed parts."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path as FilePath
from types import TracebackType
from typing import Any, TypeVar

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import CcenvError, InputError, shown
from ccenv.base.files import LOCK, Format, hash_value, is_empty, json_bytes, locked, write_atomic
from ccenv.base.foreign import parse_json, read_bounded, read_json, shown_path

MAX_BYTES = 1 << 30  # of a journal; that of the largest published suite has some 20 MB
PART = Format("ccenv-part", 1, "a part of results", older="--fresh starts anew")
_MAX_PART_BYTES = 1 << 28  # of a file of a part
FolderT = TypeVar("FolderT", bound="ResultFolder")
ModelT = TypeVar("ModelT", bound=StrictModel)


class _Anything:
    """Equals every value."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return True


ANY: Any = _Anything()
"""In a key: the stored value may be any."""


class ResultFolder:
    """A folder that one process at a time fills, and that the same command resumes; a context that holds its lock."""

    def __init__(
        self,
        path: FilePath,
        what: str,
        record: str,
        form: Format,
        key: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        owns: Sequence[str] = (),
        marks: Sequence[str] = (),
        parts: Format = PART,
    ) -> None:
        """Check the folder, without writing. Raises InputError if the folder holds something else.

        Args:
            path: of the folder; the context makes it.
            what: it holds, with an article, such as ``"a league"``.
            record: name of its document.
            form: of the record.
            key: entries that a stored record must have, nested ones by dotted names; inside a value ``ANY`` stands for any. None:
                the record is not read.
            fresh: discard what the folder holds.
            owns: patterns of further files and folders, which ``clear`` removes.
            marks: names of which each shows that the folder is one of these, besides the record.
            parts: form of sealed parts.
        """
        self.path, self.what, self.record = path, what, record
        self.stored: dict[str, Any] | None = None  # the record as the context found it; None: there was none
        self._form, self._key, self._fresh, self._owns, self._parts = form, key, fresh, owns, parts
        self._open = ExitStack()
        self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
        own = bool(self._made) or (path.is_dir() and (is_empty(path) or any((path / name).exists() for name in (record, *marks))))
        if not own:
            raise InputError(f"{path}: holds something else than {what}; choose another --out")

    def __enter__(self: FolderT) -> FolderT:
        """Make, lock, clear and read the folder.

        Raises InputError if its record is damaged, or has another key; CcenvError if it cannot be written, or another process
        holds it.
        """
        with ExitStack() as opened:
            opened.enter_context(locked(self.path, self.what.partition(" ")[2]))
            if self._fresh:
                self.clear()
            file = self.path / self.record
            if self._key is not None and file.is_file():
                self.stored = self._form.read(file) if self._form.indent else self._read_first_line(file)
                self._require_key(self.stored, self._key)
            self.start()
            self._open = opened.pop_all()
        return self

    def start(self) -> None:
        """Read or begin what a kind of folder holds besides; called in the context, with the record read."""

    def _read_first_line(self, file: FilePath) -> dict[str, Any]:
        """Read the record that a journal begins with."""
        return self._form.parse(read_bounded(file, MAX_BYTES).partition(b"\n")[0], shown_path(file))

    def _require_key(self, stored: dict[str, Any], key: Mapping[str, Any]) -> None:
        for name, expected in key.items():
            found: Any = stored
            for inner in name.split("."):
                found = found.get(inner) if isinstance(found, dict) else None
            other = _difference(found, expected, name)
            if other:
                told = f"holds {self.what} of other settings ({other})"
                raise InputError(f"{self.path}: {told}; choose another --out, or --fresh to discard it")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Unlock the folder; if the work failed before it stored anything, folders that were made here are gone."""
        if kind is not None and self._made and is_empty(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
            with suppress(OSError):  # somebody else's, or not empty
                for folder in self._made[1:]:
                    folder.rmdir()
        self._open.close()

    def clear(self, keep: Iterable[str] = ()) -> None:
        """Remove the results, the record last, except files whose names are in ``keep``. Raises CcenvError if that fails."""
        self.remove(*self._owns, self.record, keep=keep)

    def remove(self, *patterns: str, keep: Iterable[str] = ()) -> None:
        """Remove files and folders, except those whose names are in ``keep``. Raises CcenvError if that fails."""
        kept = {LOCK, *keep}
        try:
            for old in [old for pattern in patterns for old in self.path.glob(pattern) if old.name not in kept]:
                shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        except OSError as error:
            raise CcenvError(f"{self.path}: cannot be cleared ({error.strerror})") from None

    def write(self, data: dict[str, Any]) -> None:
        """Replace the record. Raises CcenvError if it cannot be written."""
        self._form.write(self.path / self.record, data)

    def journal(self, name: str, check: Callable[[Any], bool], what: str) -> Journal:
        """Open a journal of the folder; see :class:`Journal`. Its first line may be the record."""
        file = self.path / name
        return Journal(file, check, what, self._read_first_line(file) if name == self.record else None)

    def part(self, name: str, model: type[ModelT]) -> ModelT | None:
        """Return a finished part; None if it is not finished.

        Raises InputError if the part or one of its files is damaged, changed or missing.
        """
        file = self.path / f"{name}.part.json"
        if not file.is_file():
            return None
        where = shown_path(file)
        content = {key: value for key, value in self._parts.read(file).items() if key not in self._parts.head}
        seal = validate(_Seal, content.pop("seal", None), f"{where}: seal")
        if seal.sha256 != hash_value({**content, "files": seal.files}):
            raise InputError(f"{where}: has been changed since it was written; remove it to play this part again")
        hashes = self._hashes(name)
        for name_of_file, expected in seal.files.items():
            if hashes.get(name_of_file) != expected:
                said = "has been changed since it was written" if name_of_file in hashes else "is gone"
                raise InputError(f"{self.path}/{name_of_file}: {said}; remove {where} to play this part again")
        return validate(model, content, where)

    def finish(self, name: str, part: StrictModel) -> None:
        """Write a part, which makes it finished, with the hashes of its files: those in a folder of its name, or named NAME-*."""
        content, files = part.model_dump(mode="json"), self._hashes(name)
        seal = {"files": files, "sha256": hash_value({**content, "files": files})}
        self._parts.write(self.path / f"{name}.part.json", {**content, "seal": seal})

    def _hashes(self, name: str) -> dict[str, str]:
        files = [file for files in (f"{name}/[!.]*", f"{name}-*") for file in self.path.glob(files) if file.is_file()]
        return {
            str(file.relative_to(self.path)): hashlib.sha256(read_bounded(file, _MAX_PART_BYTES)).hexdigest()
            for file in sorted(files)
        }


class _Seal(StrictModel):
    """Hashes of a part."""

    files: dict[str, str]  # SHA-256 of each file that belongs to the part, by its name in the folder
    sha256: str  # of the document without this key


def _difference(stored: Any, expected: Any, name: str) -> str:
    """Return the first difference, such as ``"suite.version is 1, not 2"``; empty if there is none."""
    if not isinstance(stored, dict) or not isinstance(expected, dict):
        return "" if stored == expected else f"{name} is {shown(stored, 40)}, not {shown(expected, 40)}"
    for inner in [*expected, *(inner for inner in stored if inner not in expected)]:
        found = _difference(stored.get(inner), expected.get(inner), f"{name}.{inner}")
        if found:
            return found
    return ""


def find_once(
    file: FilePath,
    question: dict[str, Any],
    answer: str,
    find: Callable[[dict[str, Any]], dict[str, Any]],
    holds: Callable[[dict[str, Any]], bool] = lambda stored: False,
) -> dict[str, Any]:
    """Return the answer to a question from a file with both, or find it and write the file.

    Raises InputError if the file is no JSON; CcenvError if it cannot be written.

    Args:
        file: JSON object of the entries of the question and the answer.
        question: all that decides the answer.
        answer: key of the answer, an object.
        find: called with the object in the file, empty if there is none.
        holds: tells whether the answer of a file to another question holds for this one.
    """
    stored = read_json(file) if file.is_file() else {}
    if not isinstance(stored, dict):
        stored = {}
    if isinstance(stored.get(answer), dict):
        found: dict[str, Any] = stored[answer]
        if {key: stored.get(key) for key in question} == question or holds(stored):
            return found
    found = find(stored)
    write_atomic(file, json_bytes({**question, answer: found}))
    return found


class Journal:
    """Results as lines of JSON, each on disk before the next is made.

    Attributes:
        lines: those that are finished, without the head.
        left_out: whether the file had lines under another head.
    """

    def __init__(
        self, file: FilePath, check: Callable[[Any], bool], what: str, head: dict[str, Any] | None = None, fresh: bool = False
    ) -> None:
        """Read the file, which may be missing; an unfinished last line of a killed process is cut off.

        Raises InputError for a damaged line, or a file that cannot be read or is too long; CcenvError if it cannot be written.

        Args:
            file: of the journal.
            check: tells whether a value is such a line, or raises CcenvError with what is wrong.
            what: a line is, with an article, such as ``"a benchmark cell"``.
            head: first line of the file, which says what decides the others; a file with another one begins anew.
            fresh: begin anew.
        """
        self.file, self._head = file, [] if head is None else [head]
        self.lines: list[Any] = []
        content = read_bounded(file, MAX_BYTES) if file.is_file() and not fresh else b""
        complete = content[: content.rfind(b"\n") + 1]
        rows = complete.split(b"\n")[:-1]
        self.left_out = bool(rows and self._head and self._parse(1, rows[0]) != head)
        if self.left_out or (self._head and not rows):
            rows, complete = [], _lines(self._head)
        if complete != content:
            write_atomic(file, complete)
        for number, row in enumerate(rows[len(self._head) :], start=1 + len(self._head)):
            line = self._parse(number, row)
            try:
                said = "" if check(line) else f"not {what}"
            except CcenvError as error:
                said = str(error)
            if said:
                raise InputError(f"{shown_path(file)}, line {number}: {said}; --fresh starts anew")
            self.lines.append(line)

    def _parse(self, number: int, row: bytes) -> Any:
        try:
            return parse_json(row, f"{shown_path(self.file)}, line {number}")
        except InputError as error:
            raise InputError(f"{error}; --fresh starts anew") from None

    def append(self, *lines: Any) -> None:
        """Append lines and sync them to disk. Raises CcenvError if they cannot be written."""
        try:
            with open(self.file, "ab") as out:
                out.write(_lines(lines))
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise CcenvError(f"{self.file}: cannot be written ({error.strerror}); what is finished is kept") from None
        self.lines += lines

    def replace(self, lines: Iterable[Any]) -> None:
        """Replace all lines at once, but the head. Raises CcenvError if they cannot be written."""
        self.lines = list(lines)
        write_atomic(self.file, _lines([*self._head, *self.lines]))


def _lines(values: Iterable[Any]) -> bytes:
    return b"".join(json_bytes(value, indent=None) for value in values)
