"""Reading a foreign folder: a few plain files of known names and bounded size, no links, nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from itertools import islice
from pathlib import Path as FilePath

from ccenv.errors import InputError, did_you_mean

MAX_ENTRIES = 16


def read_folder(folder: FilePath, caps: Mapping[str, int]) -> dict[str, bytes]:
    """Read the files of a folder.

    Every file is opened relative to the folder's own descriptor, without following links and without waiting for a pipe, and
    judged by what was opened, so that nothing can be exchanged between the check and the reading.

    Args:
        folder: the folder; its last component must not be a link.
        caps: name -> largest size in bytes of every file that may be there.

    Returns:
        dict: name -> content of the files that are there, sorted by name.

    Raises:
        InputError: naming the file and the rule it breaks.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        reason = "it is a link" if folder.is_symlink() else error.strerror
        raise InputError(f"{folder}: not a folder that can be read ({reason})") from None
    try:
        with os.scandir(handle) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_ENTRIES + 1))
        if len(names) > MAX_ENTRIES:
            raise InputError(f"{folder}: more than {MAX_ENTRIES} entries; a submission has {len(caps)} files at most")
        for name in names:
            if name not in caps:
                raise InputError(
                    f"{folder}: unknown file {name[:60]!a}; allowed: {', '.join(sorted(caps))}.{did_you_mean(name[:60], caps)}"
                )
        return {name: _read_plain(handle, name, caps[name], f"{folder}/{name}") for name in names}
    finally:
        os.close(handle)


def _read_plain(folder: int, name: str, cap: int, where: str) -> bytes:
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        link = stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
        raise InputError(f"{where}: {'a link; plain files only' if link else f'cannot be read ({error.strerror})'}") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise InputError(f"{where}: not a plain file")
        if about.st_nlink != 1:
            raise InputError(f"{where}: has {about.st_nlink} names (hard links); one is allowed")
        content = b""
        while len(content) <= cap:
            piece = os.read(handle, min(1 << 20, cap + 1 - len(content)))
            if not piece:
                break
            content += piece
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror})") from None
    finally:
        os.close(handle)
    if len(content) > cap:
        raise InputError(f"{where}: longer than {cap} bytes")
    return content
