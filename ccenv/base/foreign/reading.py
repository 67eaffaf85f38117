"""Untrusted files and names: bounded reads, also while unpacking, and the only way from a name in data to a path."""

from __future__ import annotations

import errno
import lzma
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, BinaryIO

from ccenv.base.errors import InputError, MissingFileError, did_you_mean, shown
from ccenv.base.foreign.json_text import RULES, JsonRules, parse_json

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

    The file need not exist. No part of the path below ``folder`` may be a link, so the file is inside that folder. Raises
    InputError if the name is not a text, is empty or too long, is absolute, has ``.``, ``..``, hidden, reserved or empty parts,
    holds NUL or any other character than letters, digits and a few marks of ASCII, or leads through a link.

    Args:
        folder: trusted.
        name: relative, with ``/`` between its parts, such as ``"entries/reno.html"``.
        what: noun for messages.
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


def fold_name(name: str) -> str:
    """Return a key that look-alike names share: case-folded, without marks, one sign for l, I and 1 and for O and 0."""
    return name.casefold().translate(_LOOK_ALIKE)


def as_path(what: str, given: object) -> FilePath:
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


MAX_ENTRIES = 16
MAX_SUGGESTED = 1_000  # names of a folder that are looked at for one that is near
MAX_XZ_MEMORY = 128 << 20  # what the strongest preset of xz needs, 65 MiB, and some more
_PIECE = 1 << 16


def read_bounded(file: FilePath, max_bytes: int) -> bytes:
    """Return a file's content. Raises InputError if it is no plain file, cannot be read or is longer than ``max_bytes``."""
    try:
        with open_plain(file) as stream:
            # As much as the file says it has, not as much as it may have: a read allocates all that it asks for.
            left, pieces = max_bytes + 1, []
            chunk_bytes = os.fstat(stream.fileno()).st_size + 1
            while left and (piece := stream.read(min(left, chunk_bytes))):
                pieces.append(piece)
                left, chunk_bytes = left - len(piece), _PIECE
            content = b"".join(pieces)
    except FileNotFoundError as error:
        raise MissingFileError(f"{shown_path(file)}: cannot be read ({error.strerror}){_suggest_name(file)}") from None
    except OSError as error:
        raise InputError(f"{shown_path(file)}: cannot be read ({error.strerror})") from None
    except ValueError:  # NUL in the name
        raise InputError(f"{shown_path(file)}: not a name that a file can have") from None
    if len(content) > max_bytes:
        raise InputError(f"{shown_path(file)}: longer than {max_bytes} bytes")
    return content


def open_plain(file: FilePath) -> FileIO:
    """Open a file that a user named for reading, without waiting for a pipe or device, which could block or never end.

    Raises:
        InputError: if it is something else than a plain file.
        OSError: if it cannot be opened.
        ValueError: for a name that no file can have.
    """
    stream = FileIO(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    mode = os.fstat(stream.fileno()).st_mode
    if not stat.S_ISREG(mode):
        stream.close()
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise InputError(f"{shown_path(file)}: not a plain file; a pipe or device is not read: write a file first")
    return stream


def _suggest_name(file: FilePath) -> str:
    """Return a suggestion if the folder has a file with a similar name, otherwise an empty text."""
    try:
        names = [other.name for other in islice(file.parent.iterdir(), MAX_SUGGESTED) if other.suffix == file.suffix]
    except OSError:
        return f": there is no folder {shown_path(file.parent)}" if not file.parent.exists() else ""
    hint = did_you_mean(file.name, names)
    return f".{hint}" if hint.startswith(" Did") else ""


def read_text(file: FilePath, max_bytes: int) -> str:
    """Return a file's text. Raises InputError if it cannot be read, is longer than ``max_bytes`` or not UTF-8."""
    try:
        return read_bounded(file, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown_path(file)}: not UTF-8 text (byte {error.start})") from None


def read_json(file: FilePath, rules: JsonRules = RULES) -> Any:
    """Return the content of a JSON file; see :func:`ccenv.base.foreign.parse_json`."""
    return parse_json(read_bounded(file, rules.max_bytes), shown_path(file), rules)


def read_inside(folder: FilePath, name: Any, max_bytes: int, what: str = "file") -> bytes:
    """Return the content of a plain file that data names; see :func:`ccenv.base.foreign.resolve_inside` for the names.

    Raises InputError if the name is not allowed, or the file is a link, no plain file, cannot be read or is too long.
    """
    file = resolve_inside(folder, name, what)
    try:
        above = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    try:
        return _read_plain(above, file.name, max_bytes, str(file))
    finally:
        os.close(above)


def read_lines(file: FilePath, *, max_bytes: int, max_line_bytes: int, max_lines: int = 1_000_000) -> Iterator[tuple[int, bytes]]:
    """Yield number (from 1) and content of each line of a file; files that end in ``.xz`` are unpacked while they are read.

    Memory is bounded by one line and a few pieces of 64 KiB, however large the unpacked file is. Raises InputError naming the
    line, if a bound is passed, the last line has no end, or the file cannot be read or unpacked.

    Args:
        file: plain, or compressed by xz.
        max_bytes: of all lines together, unpacked.
        max_line_bytes: of one line, without its end.
        max_lines: how many there may be.
    """
    source = shown_path(file)
    number, parts, n_bytes = 0, [b""], 0
    for piece in _pieces(file, max_bytes):
        first, *later = piece.split(b"\n")
        for part in (None, *later):
            if part is not None:
                number += 1
                if number > max_lines:
                    raise InputError(f"{source}: more than {max_lines} lines")
                yield number, b"".join(parts)
                parts, n_bytes = [], 0
            parts.append(first if part is None else part)
            n_bytes += len(parts[-1])
            if n_bytes > max_line_bytes:
                raise InputError(f"{source}, line {number + 1}: longer than {max_line_bytes} bytes")
    if n_bytes:
        raise InputError(f"{source}, line {number + 1}: truncated, it has no end of line")


def shown_path(file: FilePath) -> str:
    """Return a path for a message, shortened and escaped if it does not print on one line."""
    text = str(file)
    return text if text.isprintable() and len(text) <= 400 else shown(text, 100)


def _pieces(file: FilePath, max_bytes: int) -> Iterator[bytes]:
    source = shown_path(file)
    try:
        stream = BufferedReader(open_plain(file))
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{source}: not a name that a file can have") from None
    total = 0
    with stream:
        for piece in (_unpack_xz if file.suffix == ".xz" else _read_chunks)(stream, source):
            total += len(piece)
            if total > max_bytes:
                raise InputError(f"{source}: longer than {max_bytes} bytes")
            yield piece


def _read_chunks(stream: BinaryIO, where: str) -> Iterator[bytes]:
    while piece := _read_chunk(stream, where):
        yield piece


def _unpack_xz(stream: BinaryIO, where: str) -> Iterator[bytes]:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
    while not unpacker.eof:
        packed = _read_chunk(stream, where) if unpacker.needs_input else b""
        if unpacker.needs_input and not packed:
            raise InputError(f"{where}: not a complete .xz file")
        try:
            piece = unpacker.decompress(packed, _PIECE)
        except (lzma.LZMAError, EOFError, MemoryError) as error:
            raise InputError(f"{where}: not a complete .xz file ({error})") from None
        if piece:
            yield piece
    if unpacker.unused_data or _read_chunk(stream, where):
        raise InputError(f"{where}: bytes after the end of the .xz data")


def _read_chunk(stream: BinaryIO, where: str) -> bytes:
    try:
        return stream.read(_PIECE)
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror})") from None


def read_folder(folder: FilePath, caps: Mapping[str, int]) -> dict[str, bytes]:
    """Return the contents of a folder's files by name, sorted; ``caps`` are the allowed names and their largest sizes in bytes.

    Every file is opened relative to the folder's descriptor, without following links or waiting for a pipe. The checks are on the
    opened file, so nothing can be swapped between check and read. The folder itself must not be a link. Raises InputError naming
    the file and the rule it breaks.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        reason = "it is a link" if folder.is_symlink() else error.strerror
        raise InputError(f"{shown_path(folder)}: not a folder that can be read ({reason})") from None
    except ValueError:
        raise InputError(f"{shown_path(folder)}: not a name that a folder can have") from None
    with ExitStack() as stack:
        stack.callback(os.close, handle)
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


def _read_plain(folder: int, name: str, cap: int, where: str) -> bytes:
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise InputError(f"{where}: {_explain_open_error(folder, name, error)}") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise InputError(f"{where}: not a plain file")
        if about.st_nlink != 1:
            raise InputError(f"{where}: has {about.st_nlink} names (hard links); one is allowed")
        pieces, left = [], cap + 1
        while left and (piece := os.read(handle, min(1 << 20, left))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror})") from None
    finally:
        os.close(handle)
    if not left:
        raise InputError(f"{where}: longer than {cap} bytes")
    return b"".join(pieces)


def _explain_open_error(folder: int, name: str, error: OSError) -> str:
    try:
        link = stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:  # gone, or never there
        link = False
    return "a link; plain files only" if link else f"cannot be read ({error.strerror})"
