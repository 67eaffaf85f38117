"""Files: atomic writing, shared by everything that stores results."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path as FilePath

from ccenv.base.errors import CcenvError


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

    Args:
        folder: made if it does not exist.
        what: the holder, for the message of the other process, e.g. ``"training run"``.
        wait: wait until it is free instead of raising.
        name: of the file, where one folder is held for several kinds of work.

    Raises:
        CcenvError: if another process holds it (its number is named), or the folder cannot be written.
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
    """Tell whether a folder holds nothing; the file of a lock is nothing, nor is what a killed :func:`write_atomic` left."""
    return all(file.name == LOCK or _UNFINISHED.fullmatch(file.name) for file in folder.iterdir())


def remove_unfinished(folder: FilePath, is_own: Callable[[str], bool]) -> None:
    """Remove what killed processes left of files that they were writing.

    Args:
        folder: where to look; one that is not there holds nothing.
        is_own: tells whether a file of this name is ours.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            unfinished = _UNFINISHED.fullmatch(entry.name)
            if unfinished and is_own(unfinished["name"]) and not FilePath("/proc", unfinished["process"]).exists():
                with suppress(OSError), open(entry.path, "rb") as left:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held by a writer, of another machine too
                    os.unlink(entry.path)


def write_atomic(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader or an interruption never sees half of it; what a killed write of it left is removed.

    Args:
        path: where to write; the folder must exist.
        data: the whole content.
        mode: rights of the file, before the umask.

    Raises:
        CcenvError: if it cannot be written.
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
