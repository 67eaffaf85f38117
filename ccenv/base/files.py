"""Stored files: folder locks, atomic writes, versioned JSON documents (:class:`Format`), JSON lines and canonical hashes.

Every document starts with the name and version of its format. Other modules declare their formats with :class:`Format`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError, InputError, shown
from ccenv.base.foreign import JsonRules, parse_json, read_json, shown_path
from ccenv.base.foreign.json_text import RULES


def make_folder(folder: FilePath) -> None:
    """Make a folder and its parents, if they do not exist. Raises CcenvError if one cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be made ({error.strerror})") from None


LOCK = ".lock"
"""File of :func:`locked` in a folder; it stays, and an otherwise empty folder with it counts as empty."""
# What write_atomic has not put in its place yet.
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.[0-9a-f]{8}\.tmp", re.ASCII)


@contextmanager
def locked(folder: FilePath, what: str, *, wait: bool = False, name: str = LOCK) -> Iterator[None]:
    """Hold a folder against other processes; the system frees it when the process ends, also when it is killed.

    Raises CcenvError if another process holds it (its number is named), or the folder cannot be written.

    Args:
        folder: made if it does not exist.
        what: the holder, for the message of the other process, e.g. ``"training run"``.
        wait: wait until it is free instead of raising.
        name: of the file, where one folder is held for several kinds of work.
    """
    make_folder(folder)
    file = folder / name
    try:
        held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise CcenvError(f"{file}: cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        os.truncate(held, 0)
        os.write(held, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(held, 20).decode("ascii", "replace").strip() or "that has just begun"
        os.close(held)
        raise CcenvError(f"{folder}: another {what} is at work here (process {holder}); wait for it, or end it") from None
    except OSError as error:
        os.close(held)
        raise CcenvError(f"{file}: cannot be locked and written ({error.strerror})") from None
    try:
        yield
    finally:
        os.close(held)


def is_empty(folder: FilePath) -> bool:
    """Tell whether a folder is empty, apart from lock files and leftovers of a killed :func:`write_atomic`."""
    return all(file.name == LOCK or _UNFINISHED.fullmatch(file.name) for file in folder.iterdir())


def remove_unfinished(folder: FilePath, is_own: Callable[[str], bool]) -> None:
    """Remove temporary files of killed writers for targets whose name ``is_own`` accepts; the folder may be missing."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            unfinished = _UNFINISHED.fullmatch(entry.name)
            if unfinished and is_own(unfinished["name"]) and not FilePath("/proc", unfinished["process"]).exists():
                with suppress(OSError), open(entry.path, "rb") as left:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by a writer, of another machine too
                    os.unlink(entry.path)


def write_atomic(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write a file into an existing folder atomically: no reader sees half of it. Leftovers of killed writes are removed.

    ``mode`` are its permissions before the umask. Raises CcenvError if it cannot be written.
    """
    target = FilePath(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    remove_unfinished(target.parent, target.name.__eq__)
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
            os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CcenvError(f"{target}: cannot be written ({error.strerror})") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class Format:
    """A stored format: name, version, and how its JSON is written.

    Attributes:
        name: value of the key ``format``.
        what: the document in a message, such as ``"a record of a training run"``.
        version_key: ``"version"`` or ``"format_version"``.
        older: advice for documents of older versions, such as ``"--restart trains it again"``.
        also: further versions that are read.
        indent, sort_keys, ensure_ascii: as of ``json.dumps``.
    """

    name: str
    version: int
    what: str
    version_key: str = "version"
    rules: JsonRules = RULES
    older: str = ""
    also: tuple[int, ...] = ()
    indent: int | None = 1
    sort_keys: bool = False
    ensure_ascii: bool = True

    @property
    def head(self) -> dict[str, Any]:
        """The two keys that a document begins with."""
        return {"format": self.name, self.version_key: self.version}

    def content(self, data: dict[str, Any]) -> bytes:
        """Return the content of a file: head, then data."""
        return json_bytes({**self.head, **data}, indent=self.indent, sort_keys=self.sort_keys, ensure_ascii=self.ensure_ascii)

    def write(self, file: FilePath, data: dict[str, Any]) -> None:
        """Replace a file by head and data, at once or not at all. Raises CcenvError if it cannot be written."""
        write_atomic(file, self.content(data))

    def read(self, file: FilePath) -> dict[str, Any]:
        """Read a file. Raises InputError if it cannot be read, or as :meth:`parse`."""
        return self.check(read_json(file, self.rules), shown_path(file))

    def parse(self, content: bytes | str, where: str) -> dict[str, Any]:
        """Parse a document, including its head; ``where`` is its name in messages.

        Raises InputError if it is not JSON within the bounds, of another format, or of a version that is not known here.
        """
        return self.check(parse_json(content, where, self.rules), where)

    def check(self, data: Any, where: str) -> dict[str, Any]:
        """Return parsed JSON as a document of this format and version. Raises InputError if it is none."""
        if not isinstance(data, dict):
            raise InputError(f"{where}: not {self.what}: expected a JSON object")
        if data.get("format") != self.name:
            raise InputError(f"{where}: not {self.what}: format is {shown(data.get('format'))}; it must be {self.name!r}")
        seen = data.get(self.version_key)
        versions = sorted((self.version, *self.also))
        if type(seen) is not int or seen not in versions:  # true and 1.0 equal 1
            newer = type(seen) is int and seen > versions[-1]
            advice = "use a newer ccenv" if newer else self.older
            supported = f"this ccenv reads {self.name} of {self.version_key} {' and '.join(map(str, versions))}"
            raise InputError(f"{where}: {self.version_key} is {shown(seen)}; {supported}{advice and ': ' + advice}")
        return data


def json_bytes(data: Any, *, indent: int | None = 1, sort_keys: bool = False, ensure_ascii: bool = True) -> bytes:
    """Return strict JSON that ends with a newline. Raises ValueError for numbers that are not finite; see :func:`plain`."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(data, indent=indent, sort_keys=sort_keys, ensure_ascii=ensure_ascii, allow_nan=False, separators=separators)
    return f"{text}\n".encode()


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, infinities as text, not-a-number as null."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def plain(value: Any) -> Any:
    """Return a value in strict JSON types, of which readers accept infinities as text where infinity is allowed.

    Arrays become lists; models, dataclasses and mappings dictionaries; NaN None; infinities "inf" or "-inf". Raises TypeError for
    anything else.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    for method in ("tolist", "model_dump"):  # of arrays and models, whose packages this module does not import
        if hasattr(value, method):
            return plain(getattr(value, method)())
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def hash_value(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
