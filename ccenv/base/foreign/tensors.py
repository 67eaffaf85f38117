"""The safetensors container, read strictly: header length (u64), JSON header, raw little-endian data without gaps."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.foreign import JsonRules, parse_json, shown

MAX_FILE_BYTES = 16 * 2**20
MAX_HEADER_BYTES = 65_536
MAX_TENSORS = 64
_DTYPES: dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
TYPES = tuple(_DTYPES)
_FLOATS = ("F32", "F64")
_LENGTH_BYTES = 8
_LARGEST = 1 << 40  # length or offset that is looked at


def tensor_file(tensors: dict[str, np.ndarray]) -> bytes:
    """Return the content of a safetensors file; every tensor becomes float64."""
    header: dict[str, Any] = {}
    data = b""
    for name, tensor in tensors.items():
        raw = np.ascontiguousarray(tensor, dtype="<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + data


def read_tensors(content: bytes, where: str) -> dict[str, np.ndarray]:
    """Read a safetensors file into float64 arrays; see :func:`read_typed`. Types other than F32 and F64 are refused."""
    return {name: tensor.astype(np.float64) for name, tensor in read_typed(content, where, _FLOATS).items()}


def read_typed(
    content: bytes, where: str, types: Sequence[str], max_tensors: int = MAX_TENSORS, max_header_bytes: int = MAX_HEADER_BYTES
) -> dict[str, np.ndarray]:
    """Read a safetensors file into arrays of the allowed types, such as ``"F32"``; ``where`` is its name in messages.

    Raises InputError if the header is too long or malformed, a type is not allowed, or the data has gaps, overlaps or a rest.
    """
    if len(content) < _LENGTH_BYTES:
        raise InputError(f"{where}: not a safetensors file ({len(content)} bytes)")
    n_header = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if n_header > min(max_header_bytes, len(content) - _LENGTH_BYTES):
        raise InputError(f"{where}: the header claims {n_header} bytes; truncated or not a safetensors file")
    header = parse_json(content[_LENGTH_BYTES : _LENGTH_BYTES + n_header], where, JsonRules(max_header_bytes, 3))
    if not isinstance(header, dict):
        raise InputError(f"{where}: the header is not an object")
    header.pop("__metadata__", None)
    if len(header) > max_tensors:
        raise InputError(f"{where}: {len(header)} tensors; at most {max_tensors} are allowed")
    data = memoryview(content)[_LENGTH_BYTES + n_header :]
    pieces = {name: _parse_entry(name, entry, where, types) for name, entry in header.items()}
    end = 0
    out: dict[str, np.ndarray] = {}
    for name, (dtype, shape, start, stop) in sorted(pieces.items(), key=lambda item: item[1][2:]):
        if start != end or stop > len(data):
            raise InputError(f"{where}: tensor {name!a} lies at bytes {start} to {stop}; a gap, an overlap or truncated data")
        out[name] = np.frombuffer(data[start:stop], dtype=dtype).reshape(shape)
        end = stop
    if end != len(data):
        raise InputError(f"{where}: {len(data) - end} bytes after the last tensor")
    return out


def _parse_entry(name: str, entry: Any, where: str, types: Sequence[str]) -> tuple[np.dtype, tuple[int, ...], int, int]:
    named = f"{where}: tensor {ascii(name)[:60]}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise InputError(f"{named} needs dtype, shape and data_offsets, and nothing else")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in types:
        raise InputError(f"{named} has dtype {shown(entry['dtype'], 20)}; {' or '.join(types)} are allowed")
    dtype = _DTYPES[entry["dtype"]]
    shape, offsets = entry["shape"], entry["data_offsets"]
    numbers = [shape, offsets] if isinstance(shape, list) and isinstance(offsets, list) else [[None]]
    if not all(type(n) is int and 0 <= n <= _LARGEST for list_ in numbers for n in list_) or len(offsets) != 2:
        raise InputError(f"{named} has shape {ascii(shape)[:40]} and data_offsets {ascii(offsets)[:40]}")
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise InputError(f"{named} has shape {shape} but {offsets[1] - offsets[0]} bytes")
    return dtype, tuple(shape), offsets[0], offsets[1]
