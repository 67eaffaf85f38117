"""Files that unpack or unfold to gigabytes are refused within a small bound of memory, which the system enforces."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import bounded
import numpy as np
import pytest
from hostile_files import aliases, lying, members, npy, packed
from own_process import run_apart

MIB = 1 << 20


def _zeros(method: int, n_bytes: int) -> bytes:
    """Return an archive of one array of zeros."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive, archive.open("A.npy", "w", force_zip64=False) as member:
        member.write(npy(np.zeros((n_bytes // 8, 1)))[: 1 << 10])
        for _ in range(n_bytes // MIB):
            member.write(bytes(MIB))
    return out.getvalue()


def _xz_of_one_line(n_bytes: int) -> bytes:
    packer = lzma.LZMACompressor(preset=0)
    piece = b"x" * MIB
    return b"".join([*(packer.compress(piece) for _ in range(n_bytes // MIB)), packer.flush()])


def _xz_of_large_memory() -> bytes:
    """Return a file whose reader must hold a dictionary of 1.5 GiB."""
    content = bytearray(lzma.compress(b"x\n", filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4096}]))
    # Header of the block: size, flags, filter id, size of its properties, the dictionary's size as one byte, padding, CRC32.
    place = content.index(bytes([0x21, 0x01]), 12)
    content[place + 2] = 37  # 1.5 GiB
    end = 12 + (content[12] + 1) * 4 - 4
    content[end : end + 4] = zlib.crc32(bytes(content[12:end])).to_bytes(4, "little")
    return bytes(content)


BOMBS: dict[str, tuple[str, Callable[[], bytes], str, int, str]] = {
    "bz2_trace": ("t.npz", lambda: _zeros(zipfile.ZIP_BZIP2, 128 * MIB), "trace check", 64, "packed by method 12"),
    "lzma_trace": ("t.npz", lambda: _zeros(zipfile.ZIP_LZMA, 128 * MIB), "trace check", 64, "packed by method 14"),
    "deflated_trace": ("t.npz", lambda: _zeros(zipfile.ZIP_DEFLATED, 272 * MIB), "trace check", 64, "bytes unpacked; at most"),
    "trace_that_declares_4_gib": ("t.npz", lambda: lying(24, 22, 0xFFFFFFF0), "trace check", 64, "bytes unpacked; at most"),
    "trace_that_declares_too_little": (
        "t.npz",
        lambda: _declared_small(128 * MIB),
        "trace check",
        64,
        "does not unpack to the 64 bytes that it declares",
    ),
    "header_of_deep_json": ("t.npz", lambda: _header(b"[" * 900_000), "trace check", 128, "t.npz"),
    "export_of_one_line": ("e.jsonl.xz", lambda: _xz_of_one_line(256 * MIB), "board import", 192, "longer than 50331648 bytes"),
    "export_of_a_large_dictionary": ("e.jsonl.xz", _xz_of_large_memory, "board import", 192, "not a complete .xz file"),
    "nested_aliases": ("a.yaml", aliases, "bench run", 64, "anchors and aliases"),
    "nested_lists": ("a.yaml", lambda: b"[" * 200_000, "bench run", 64, "levels of nesting"),
    "deep_json": ("x.json", lambda: b"[" * 2_000_000, "show", 128, "at most"),
    "json_of_many_values": ("x.json", lambda: b"[" + b"[]," * 5_000_000 + b"1]", "show", 128, "8000000 are allowed"),
}  # fmt: skip


def _declared_small(n_bytes: int) -> bytes:
    content = bytearray(_zeros(zipfile.ZIP_DEFLATED, n_bytes))
    directory = int.from_bytes(content[-6:-2], "little")
    content[directory + 24 : directory + 28] = (64).to_bytes(4, "little")
    return bytes(content)


def _header(text: bytes) -> bytes:
    return packed(members() | {"header.npy": npy(np.frombuffer(text, np.uint8))})


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_hostile_file_is_refused_within_its_bound_of_memory(name: str, tmp_path: Path) -> None:
    file, make, command, mib, said = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    more = ["--board", "board"] if command == "board import" else []
    arguments = [str(mib), *command.split(), str(tmp_path / file), *more]
    done = run_apart(bounded.main, arguments, folder=tmp_path, limit_s=600)
    assert done.returncode == 2, done.stderr[-500:]
    assert done.stderr.startswith("ccenv: error: ") and done.stderr.count("\n") == 1
    assert said in done.stderr


def takes_256_mib() -> int:
    from ccenv.cli import main as cli

    cli.main = lambda _: len(bytearray(1 << 28))  # type: ignore[assignment]
    return bounded.main(["64", "show"])


def test_the_bound_of_memory_holds(tmp_path: Path) -> None:
    done = run_apart(takes_256_mib, folder=tmp_path, limit_s=600)
    assert "MemoryError" in done.stderr
