"""Array archives (``.npz``): a strict subset of zip; declared sizes are checked before anything is unpacked.

Members are stored or deflated, without overlaps, encryption, comments or 64-bit extensions, as numpy and ccenv write them.
A member that unpacks to more or less than it declares is refused.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccenv.base.errors import InputError, shown

if TYPE_CHECKING:
    import numpy as np

MAX_MEMBERS = 256
_END = struct.Struct("<4s4H2LH")  # signature, disk, disk of directory, members here, members, size, offset, comment
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8
_UTF8_NAME, _SIZES_FOLLOW = 0x800, 0x8
_LARGEST_DIRECTORY = MAX_MEMBERS * 512
_NPY_MAGIC = b"\x93NUMPY\x01\x00"
# The header of an array as numpy writes it; nothing of it is evaluated.
_LENGTHS = r"(?:[0-9]{1,18},?(?: [0-9]{1,18},?){0,7})?"
_NPY_HEADER = re.compile(
    r"\{'descr': '([<>|=][A-Za-z][0-9]{0,3})', 'fortran_order': (False|True), 'shape': \((" + _LENGTHS + r")\), \} *\n", re.ASCII
)


@dataclass(frozen=True)
class _Member:
    name: str
    method: int
    crc: int
    n_packed: int
    n_bytes: int
    offset: int


def read_archive(content: bytes, where: str, max_bytes: int) -> dict[str, bytes]:
    """Return the members of a zip archive by name, in the order of its directory; ``where`` is its name in messages.

    Their declared sizes must not exceed ``max_bytes`` together; nothing is unpacked before that check. Raises InputError if it is
    no such archive, is damaged, holds a name twice, packs a member otherwise than stored or deflated, or unpacks to more or less
    than it declares.
    """
    members = _read_directory(content, where)
    unpacked = sum(member.n_bytes for member in members)
    if unpacked > max_bytes:
        raise InputError(f"{where}: {unpacked} bytes unpacked; at most {max_bytes} are read")
    return {member.name: _unpack(content, member, f"{where}, {shown(member.name)}") for member in members}


def read_arrays(content: bytes, where: str, dtypes: Mapping[str, str], max_bytes: int, other: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file by name, read-only and in C order.

    Args:
        content: the file.
        where: its name for messages.
        dtypes: name -> required type, such as ``"<f8"``.
        max_bytes: of all arrays together, unpacked.
        other: type of the arrays that ``dtypes`` does not name; ``""``: there are none.

    Raises:
        InputError: as :func:`read_archive`; if a member is no ``.npy`` of format 1.0, in Fortran order or of another type, or its
            shape does not fit its size.
    """
    import numpy as np

    out: dict[str, np.ndarray] = {}
    for member, data in read_archive(content, where, max_bytes).items():
        name = member.removesuffix(".npy")
        if name == member or (name not in dtypes and not other):
            raise InputError(f"{where}: unknown member {shown(member)}")
        out[name] = _parse_array(data, np.dtype(dtypes.get(name, other)), f"{where}: array {shown(name)}")
    return out


def _read_directory(content: bytes, where: str) -> list[_Member]:
    broken = f"{where}: truncated, damaged or not an .npz file"
    if len(content) < _END.size:
        raise InputError(f"{broken} ({len(content)} bytes)")
    end = len(content) - _END.size
    signature, disk, directory_disk, disk_members, count, size, offset, comment = _END.unpack_from(content, end)
    if signature != b"PK\x05\x06" or disk or directory_disk or disk_members != count or comment:
        raise InputError(f"{broken} (no end record)")
    if not 1 <= count <= MAX_MEMBERS or size > _LARGEST_DIRECTORY or offset + size != end:
        raise InputError(f"{broken} (a directory of {count} members and {size} bytes at {offset})")
    members: list[_Member] = []
    at = offset
    for _ in range(count):
        if at + _ENTRY.size > end:
            raise InputError(f"{broken} (the directory ends early)")
        entry = _ENTRY.unpack_from(content, at)
        name_end = at + _ENTRY.size + entry[10]
        member = _Member(
            content[at + _ENTRY.size : name_end].decode("ascii", "replace"), entry[4], entry[7], entry[8], entry[9], entry[16]
        )
        at = name_end + entry[11] + entry[12]
        if entry[0] != b"PK\x01\x02" or at > end or entry[12] or not member.name.isprintable() or "\ufffd" in member.name:
            raise InputError(f"{broken} (entry {len(members)} of its directory)")
        if member.method not in (_STORED, _DEFLATED) or entry[3] & ~(_UTF8_NAME | _SIZES_FOLLOW | 0x6):
            raise InputError(
                f"{where}: {shown(member.name)} is packed by method {member.method}; stored or deflate is read, no encryption"
            )
        members.append(member)
    if at != end:
        raise InputError(f"{broken} (bytes after the directory)")
    names = [member.name for member in members]
    if len(set(names)) != count:
        raise InputError(f"{where}: an array is stored twice")
    _check_overlaps(content, members, offset, broken)
    return members


def _check_overlaps(content: bytes, members: list[_Member], end: int, broken: str) -> None:
    """Refuse members that overlap: many entries that unpack the same bytes."""
    at = 0
    for member in sorted(members, key=lambda member: member.offset):
        if member.offset < at or member.offset + _LOCAL.size > end:
            raise InputError(f"{broken} ({shown(member.name)} overlaps another)")
        at = _data_start(content, member, broken) + member.n_packed
        if at > end:
            raise InputError(f"{broken} ({shown(member.name)} is truncated)")


def _data_start(content: bytes, member: _Member, broken: str) -> int:
    local = _LOCAL.unpack_from(content, member.offset)
    start = member.offset + _LOCAL.size
    if local[0] != b"PK\x03\x04" or local[3] != member.method or content[start : start + local[9]] != member.name.encode():
        raise InputError(f"{broken} ({shown(member.name)} differs from the directory)")
    return int(start + local[9] + local[10])


def _unpack(content: bytes, member: _Member, where: str) -> bytes:
    start = _data_start(content, member, where)
    packed = memoryview(content)[start : start + member.n_packed]
    if member.method == _STORED:
        data = bytes(packed)
    else:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = unpacker.decompress(packed, member.n_bytes + 1)
        except zlib.error as error:
            raise InputError(f"{where}: damaged ({error})") from None
        if not unpacker.eof or unpacker.unused_data:
            raise InputError(f"{where}: does not unpack to the {member.n_bytes} bytes that it declares")
    if len(data) != member.n_bytes:
        raise InputError(f"{where}: unpacks to {len(data)} bytes; it declares {member.n_bytes}")
    if zlib.crc32(data) != member.crc:
        raise InputError(f"{where}: damaged (its checksum differs)")
    return data


def _parse_array(content: bytes, dtype: np.dtype, where: str) -> np.ndarray:
    start = len(_NPY_MAGIC) + 2
    if not content.startswith(_NPY_MAGIC) or len(content) < start:
        raise InputError(f"{where} is not in .npy format 1.0")
    data_start = start + int.from_bytes(content[len(_NPY_MAGIC) : start], "little")
    header = _NPY_HEADER.fullmatch(content[start:data_start].decode("latin-1"))
    if header is None or data_start > len(content):
        raise InputError(f"{where} has no header that numpy writes")
    if header[1] != dtype.str:
        raise InputError(f"{where} has dtype {header[1]}; it must be {dtype.str}")
    shape = tuple(int(length) for length in header[3].replace(",", " ").split())
    if header[2] == "True" and len(shape) > 1:
        raise InputError(f"{where} is in Fortran order; it must be in C order")
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes != len(content) - data_start:
        raise InputError(f"{where} has {len(content) - data_start} bytes, but its shape {shape} needs {n_bytes}")
    import numpy as np

    return np.frombuffer(content, dtype=dtype, offset=data_start).reshape(shape)
