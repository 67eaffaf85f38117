"""Files: atomic writing, shared by everything that stores results."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from importlib import resources
from pathlib import Path as FilePath

from ccenv.errors import CcenvError


def make_folder(folder: FilePath) -> None:
    """Make a folder and those above it, if they are not there. Raises CcenvError if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be made ({error.strerror})") from None


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that a reader or an interruption never sees half of it.

    Args:
        path: where to write; the folder must exist.
        data: the whole content.

    Raises:
        CcenvError: if it cannot be written.
    """
    target = FilePath(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as out:
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


def source_hash(patterns: Sequence[str]) -> str:
    """Return a hash of the source files of this package that match one of several patterns, names included."""
    root = FilePath(str(resources.files("ccenv")))
    files = sorted({file for pattern in patterns for file in root.glob(pattern)})
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
