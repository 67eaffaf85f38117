"""Hostile files, names and records: one line or a result, within a bound of time and memory."""

import io
import json
import lzma
import os
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bounded
import numpy as np
import pytest
from fuzz import fuzz, shares
from hostile_files import HOSTILE, aliases, lying, members, npy, packed
from own_process import run_apart
from targets import TARGETS

from ccenv.agents import make_sender
from ccenv.agents.load import load_sender
from ccenv.base import store
from ccenv.base.errors import MAX_MESSAGE_CHARS, CcenvError, InputError
from ccenv.base.foreign import read_bounded, read_inside, read_json, read_lines, read_yaml, resolve_inside
from ccenv.benchmarks import store as bench_store
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.demo import STAGES
from ccenv.cli.main import main
from ccenv.leaderboard.site.exchange import read_export
from ccenv.leaderboard.store.head import read_head
from ccenv.network.links.reading import read_trace
from ccenv.network.trace import load_trace
from ccenv.training.distill.prove import read_state
from ccenv.training.run import read_code


@pytest.mark.parametrize("name", list(HOSTILE))
def test_a_hostile_file_ends_in_one_line(name, tmp_path, monkeypatch, capsys):
    fixture = HOSTILE[name]
    monkeypatch.chdir(tmp_path)
    assert main(fixture.arguments(tmp_path)) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("ccenv: error: ") and printed.err.count("\n") == 1
    assert len(printed.err) < MAX_MESSAGE_CHARS + 50
    assert fixture.said in printed.err


NAMES: dict[str, Any] = {
    "absolute": "/etc/passwd", "parent": "..", "parent_first": "../x", "parent_inside": "a/../../x",
    "parent_of_windows": "..\\x", "drive_of_windows": "C:\\x", "share_of_windows": "\\\\host\\x", "stream_of_windows": "x:y",
    "this_folder": ".", "this_folder_first": "./x", "home": "~/x", "hidden": ".bashrc", "ends_in_a_dot": "x.", "nothing": "",
    "empty_part": "a//b", "ends_in_a_slash": "a/", "nul": "a\x00b", "line_end": "a\nb", "space": "a b",
    "letters_of_another_script": "\u0430", "turned_around": "a\u202eb", "half_a_surrogate": "\ud800",
    "percent_encoded": "%2e%2e", "part_too_long": "x" * 129, "too_long": "/".join(["x" * 100] * 6),
    "too_many_parts": "/".join("abcdefghi"), "device": "CON", "device_with_an_ending": "nul.txt",
    "device_inside": "a/com1.json", "number": 3, "list": ["a"], "none": None, "bytes": b"a",
}  # fmt: skip


@pytest.mark.parametrize("name", list(NAMES))
def test_a_hostile_name_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not allowed") as error:
        resolve_inside(tmp_path, NAMES[name])
    assert str(error.value).isprintable()
    with pytest.raises(InputError):
        read_inside(tmp_path, NAMES[name], 100)


@pytest.mark.parametrize("name", ["x", "a/b/c.npz", "entries/reno-1.html", "a..b", "consoles", "x" * 128])
def test_a_plain_name_lies_inside_whether_there_is_such_a_file_or_not(name: str, tmp_path: Path) -> None:
    place = resolve_inside(tmp_path, name)
    assert place == tmp_path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"abc")
    assert resolve_inside(tmp_path, name) == place and read_inside(tmp_path, name, 3) == b"abc"
    with pytest.raises(InputError, match="longer than 2 bytes"):
        read_inside(tmp_path, name, 2)


@pytest.mark.parametrize("target", ["inside", "outside", "nowhere"])
@pytest.mark.parametrize("name", ["link", "link/x"])
def test_hostile_links_are_refused_wherever_they_lead(target: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for place in (folder / "inside", tmp_path / "outside"):
        place.mkdir(parents=True)
        (place / "x").write_bytes(b"abc")
    (folder / "link").symlink_to(folder / "inside" if target == "inside" else tmp_path / target)
    with pytest.raises(InputError, match="is a link"):
        resolve_inside(folder, name)
    with pytest.raises(InputError, match="is a link"):
        read_inside(folder, name, 100)


def test_a_hostile_file_is_refused_that_has_a_second_name_or_is_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "y").hardlink_to(tmp_path / "x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="hard links"):
        read_inside(tmp_path, "x", 100)
    with pytest.raises(InputError, match="not a plain file"):
        read_inside(tmp_path, "pipe", 100)


# What opens a file that somebody named, each by its own way.
READERS: dict[str, Callable[[Path], object]] = {
    "bounded": lambda file: read_bounded(file, 100),
    "json": read_json,
    "yaml": read_yaml,
    "lines": lambda file: list(read_lines(file, max_bytes=100, max_line_bytes=100)),
    "trace": load_trace,
    "link_trace": read_trace,
    "python": lambda file: load_sender(str(file)),
    "program": lambda file: make_sender(str(file)),
    "head": read_head,
    "export": read_export,
}
ENDINGS = {"yaml": ".yaml", "trace": ".npz", "python": ".py", "export": ".jsonl.xz"}


@pytest.mark.parametrize("name", list(READERS))
def test_a_hostile_pipe_hangs_no_reader(name: str, tmp_path: Path) -> None:
    pipe = tmp_path / f"pipe{ENDINGS.get(name, '.json')}"
    os.mkfifo(pipe)
    begun = time.monotonic()
    with pytest.raises(CcenvError, match="pipe"):
        READERS[name](pipe)
    assert time.monotonic() - begun < 60


def test_hostile_cells_are_read_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cells.jsonl").write_text('{"key": "a", "metrics": {}}\n')
    (tmp_path / "manifest.json").touch()
    folder = bench_store.open_run(tmp_path, load_suite("quick"))
    assert bench_store.load_cells(tmp_path) == bench_store.open_cells(folder).lines == [{"key": "a", "metrics": {}}]
    for module in (bench_store, store):
        monkeypatch.setattr(module, "MAX_BYTES", 20)
    for read in (lambda: bench_store.load_cells(tmp_path), lambda: bench_store.open_cells(folder)):
        with pytest.raises(InputError, match=r"cells\.jsonl: longer than 20 bytes"):
            read()


def test_a_hostile_record_of_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"[" * 9_000)
    with pytest.raises(InputError, match="levels of nesting"):
        read_code(tmp_path)


NOTE = {"records": [], "refused": [], "claim": []}


@pytest.mark.parametrize(
    ("note", "arrays", "said"),
    [
        (NOTE | {"refused": [[]]}, {}, "list of texts"),
        (NOTE | {"refused": "ab"}, {}, "list of texts"),
        (NOTE | {"records": {}}, {}, "list of rounds"),
        (NOTE | {"records": [3]}, {}, "list of rounds"),
        ({"records": []}, {}, "its note"),
        ([], {}, "its note"),
        (NOTE, {"mean": np.full(4, np.nan)}, "finite numbers"),
        (NOTE, {"mean": np.ones((2, 2))}, "finite numbers"),
        (NOTE, {"starts": np.array(1.0)}, "lists of traces"),
        (NOTE, {"mean": np.array([{}], dtype=object)}, "dtype"),
        (NOTE, {"more": np.ones(1)}, "unknown member"),
    ],
)
def test_a_hostile_state_of_a_distillation_is_refused(note: Any, arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    def write(note: Any, arrays: dict[str, Any]) -> Path:
        out = io.BytesIO()
        all_arrays = {"starts": np.ones((1, 5)), "moves": np.ones((1, 2)), "mean": np.ones(4)} | arrays
        np.savez_compressed(out, note=np.frombuffer(json.dumps(note).encode(), np.uint8), **all_arrays)
        (tmp_path / "state.npz").write_bytes(out.getvalue())
        return tmp_path / "state.npz"

    assert read_state(write(NOTE, {}))[1] == NOTE
    with pytest.raises(InputError, match=said):
        read_state(write(note, arrays))


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 200_000])
def test_a_file_is_read_up_to_its_bound_whatever_its_size(size: int, tmp_path: Path) -> None:
    content = np.random.Generator(np.random.Philox(size)).bytes(size)
    (tmp_path / "x").write_bytes(content)
    assert read_bounded(tmp_path / "x", size) == read_bounded(tmp_path / "x", 1 << 40) == content
    if size:
        with pytest.raises(InputError, match=f"longer than {size - 1} bytes"):
            read_bounded(tmp_path / "x", size - 1)


def test_hostile_files_without_an_end_or_a_size_are_read_within_a_bound() -> None:
    with pytest.raises(InputError, match="not a plain file"):
        read_bounded(Path("/dev/zero"), 300_000)
    assert read_bounded(Path("/proc/self/stat"), 100_000)  # says that it has no bytes


def test_a_hostile_demo_folder_is_refused(tmp_path: Path, refused) -> None:
    (tmp_path / STAGES).write_bytes(b'{"format": "ccenv-demo", "format_version": 1, "stages": [[]]}')
    refused(["demo", "--out", str(tmp_path)], "not a stage file of ccenv demo")


MIB = 1 << 20


def _zeros(method: int, n_bytes: int) -> bytes:
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
    "bz2_trace": ("t.npz", lambda: _zeros(zipfile.ZIP_BZIP2, 80 * MIB), "trace check", 64, "packed by method 12"),
    "lzma_trace": ("t.npz", lambda: _zeros(zipfile.ZIP_LZMA, 80 * MIB), "trace check", 64, "packed by method 14"),
    "deflated_trace": ("t.npz", lambda: _zeros(zipfile.ZIP_DEFLATED, 272 * MIB), "trace check", 64, "bytes unpacked; at most"),
    "trace_that_declares_4_gib": ("t.npz", lambda: lying(24, 22, 0xFFFFFFF0), "trace check", 64, "bytes unpacked; at most"),
    "trace_that_declares_too_little": (
        "t.npz",
        lambda: _declared_small(80 * MIB),
        "trace check",
        64,
        "does not unpack to the 64 bytes that it declares",
    ),
    "header_of_deep_json": ("t.npz", lambda: _header(b"[" * 900_000), "trace check", 128, "t.npz"),
    "export_of_one_line": ("e.jsonl.xz", lambda: _xz_of_one_line(208 * MIB), "board import", 192, "longer than 50331648 bytes"),
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


SHARES = shares(20_000)


@pytest.mark.parametrize("name", list(SHARES))
def test_fuzz_of_a_reader_ends_in_a_value_or_one_line(name: str) -> None:
    tally = fuzz(TARGETS[name], range(SHARES[name]))
    assert tally.inputs == SHARES[name] and tally.refused > 0
    assert not tally.faults, "\n".join(tally.faults[:5])
