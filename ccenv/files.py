"""Files: atomic writing, shared by everything that stores results."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath

from ccenv.errors import CcenvError


def make_folder(folder: FilePath) -> None:
    """Make a folder and its parents, if they do not exist. Raises CcenvError if one cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be made ({error.strerror})") from None


LOCK = ".lock"
"""File of :func:`locked` in a folder; it stays, and an otherwise empty folder with it counts as empty."""
_UNFINISHED = ".tmp"  # ending of what write_atomic has not put in its place yet


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
    import fcntl

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
    return all(file.name == LOCK or _is_unfinished(file.name) for file in folder.iterdir())


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") and name.endswith(_UNFINISHED)


def write_atomic(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write a file so that a reader or an interruption never sees half of it.

    Args:
        path: where to write; the folder must exist.
        data: the whole content.
        mode: rights of the file, before the umask.

    Raises:
        CcenvError: if it cannot be written.
    """
    target = FilePath(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as out:
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
