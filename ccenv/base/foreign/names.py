"""Names from data: how they are shown in messages, and how they become files."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError, shown

MAX_NAME_CHARS = 512
MAX_PARTS = 8
_PART = re.compile(r"[A-Za-z0-9_+=@-][A-Za-z0-9_+=@.-]{0,127}", re.ASCII)
# Devices of Windows, with any ending: a board that was made on one system is unpacked on another.
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.ASCII | re.IGNORECASE)
NAME_ALLOWED = "a letter, then up to 63 letters, digits, '_', '-' or '.'"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_LOOK_ALIKE = str.maketrans("i10", "llo", "_.-")
_ALLOWED = "relative, parts of letters, digits and '_', '+', '=', '@', '-', '.', no part that begins or ends with '.'"


def resolve_inside(folder: FilePath, name: Any, what: str = "name") -> FilePath:
    """Return the path of a file whose name comes from data; the only way from such a name to a path.

    The file need not exist. Nothing on the way from ``folder`` to it may be a link, so that what is written or read there is
    in that folder.

    Args:
        folder: the folder that the file must lie in; itself trusted.
        name: a relative name with ``/`` between its parts, such as ``"entries/reno.html"``.
        what: what the name is, for messages.

    Raises:
        InputError: if the name is not a text, is empty or too long, is absolute, has ``.``, ``..``, hidden, reserved or empty
            parts, holds NUL or any other character than letters, digits and a few marks of ASCII, or leads through a link.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARS:
        raise InputError(f"{what} {shown(name)} is not allowed: a text of 1 to {MAX_NAME_CHARS} characters")
    parts = name.split("/")
    if len(parts) > MAX_PARTS:
        raise InputError(f"{what} {shown(name)} is not allowed: at most {MAX_PARTS} parts")
    for part in parts:
        if not _PART.fullmatch(part) or part.endswith(".") or _RESERVED.fullmatch(part):
            raise InputError(f"{what} {shown(name)} is not allowed: {_ALLOWED}, no reserved name")
    place = folder
    for part in parts:
        place = place / part
        try:
            mode = os.lstat(place).st_mode
        except FileNotFoundError:
            break  # and nothing below it exists
        except OSError as error:
            raise InputError(f"{what} {shown(name)} is not allowed: {place} cannot be read ({error.strerror})") from None
        if stat.S_ISLNK(mode):
            raise InputError(f"{what} {shown(name)} is not allowed: {place} is a link")
    return folder.joinpath(*parts)


def is_name(name: Any) -> bool:
    """Tell whether a value may name a program or a theorem: ASCII only, so that no two names look alike by their alphabet."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def look_of(name: str) -> str:
    """Return what names that are hard to tell apart have in common: no case, no marks, one sign for l, I and 1, for O and 0."""
    return name.casefold().translate(_LOOK_ALIKE)


def path_of(what: str, given: object) -> FilePath:
    """Return a path that a caller gave. Raises InputError for what is none, such as a number."""
    if isinstance(given, (str, os.PathLike)):
        return FilePath(given)
    raise InputError(f"{what} is {shown(given)}; the path of a file or folder is needed")


def is_file(path: FilePath | str) -> bool:
    """Tell whether a path, which may be any text, names an existing file."""
    try:
        return FilePath(path).is_file()
    except (OSError, ValueError):  # longer than the system allows, NUL
        return False


def is_folder(path: FilePath | str) -> bool:
    """Tell whether a path, which may be any text, names an existing folder."""
    try:
        return FilePath(path).is_dir()
    except (OSError, ValueError):
        return False
