"""Hostile files and arguments by name, each with the command that a user would meet it by: exit code 2 and one line.

Large ones are made by code. ``{file}`` in a command is the file, ``{folder}`` the folder that it lies in.
"""

import io
import json
import lzma
import struct
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from legal_traces import legal_trace

Make = Callable[[], bytes]


@dataclass(frozen=True)
class HostileFile:
    """A fixture.

    Attributes:
        name: of the fixture.
        file: name of the file; empty: there is none.
        make: returns its content.
        command: arguments of ccenv.
        said: what the line must contain.
    """

    name: str
    file: str
    make: Make
    command: str | tuple[str, ...]
    said: str = ""

    def arguments(self, folder: Path) -> list[str]:
        """Write the file into a folder; return the arguments of ccenv."""
        file = folder / self.file
        if self.file:
            file.write_bytes(self.make())
        parts = self.command.split() if isinstance(self.command, str) else self.command
        return [part.format(file=file, folder=folder) if part.startswith("{") else part for part in parts]


def aliases() -> bytes:
    """Return 331 bytes or so of YAML that would unfold to 10^9 texts."""
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [b"a%d: &a%d [%s]" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 9)]
    return b"\n".join(lines) + b"\n"


YAML: dict[str, tuple[Make, str]] = {
    "date_of_no_calendar": (lambda: b"name: 2024-13-45\n", ""),
    "time_of_no_day": (lambda: b"name: 2024-02-30 25:61:61\n", ""),
    "hexadecimal_of_no_digits": (lambda: b"name: 0x_\n", "'0x_' is not allowed"),
    "octal": (lambda: b"name: 017\n", "is not allowed"),
    "number_by_sixties": (lambda: b"name: 1:30:99\n", ""),
    "5000_digits": (lambda: b"name: " + b"9" * 5_000 + b"\n", "line 1: '999"),
    "20000_nested_lists": (lambda: b"name: " + b"[" * 20_000 + b"]" * 20_000, "levels of nesting"),
    "20000_nested_items": (lambda: b"- " * 20_000 + b"x", "levels of nesting"),
    "no_integer": (lambda: b"name: !!int abc\n", "is not allowed"),
    "beyond_unicode": (lambda: b'name: "\\UFFFFFFFF"\n', "not valid YAML"),
    "nested_aliases": (aliases, "anchors and aliases"),
    "merge_of_an_alias": (lambda: b"a: &a {b: 1}\nc:\n  <<: *a\n", "anchors and aliases"),
    "object_to_build": (lambda: b"name: !!python/object/apply:os.system [true]\n", "tag"),
    "key_given_twice": (lambda: b"name: a\nname: b\n", "given twice"),
    "key_of_a_list": (lambda: b"? [a, b]\n: c\n", "key"),
    "nul": (lambda: b"name: a\x00b\n", "not valid YAML"),
    "not_utf8": (lambda: b"name: \xff\xfe\n", "not valid YAML"),
    "half_a_text": (lambda: b'name: "abc\n', "not valid YAML"),
    "two_documents": (lambda: b"name: a\n--- \nname: b\n", "not valid YAML"),
    "too_long": (lambda: b"name: " + b"x" * 300_000 + b"\n", "longer than 262144 bytes"),
    "nothing": (lambda: b"", ""),
    "a_list": (lambda: b"[1, 2]\n", ""),
}  # fmt: skip
YAML_READERS = {
    "suite": "bench run {file}",
    "scenario": "sim {file}",
    "query": "synth {file}",
    "config": "train {file}",
    "lemmas": "verify lemmas {file}",
}

JSON: dict[str, tuple[Make, str]] = {
    "deep": (lambda: b"[" * 100_000, ""),
    "deep_objects": (lambda: b'{"a":' * 5_000 + b"1" + b"}" * 5_000, ""),
    "nan": (lambda: b'{"format": NaN}', "NaN is not a number"),
    "infinity": (lambda: b'{"format": -Infinity}', "-Infinity is not a number"),
    "5000_digits": (lambda: b'{"format": ' + b"9" * 5_000 + b"}", "not allowed"),
    "huge_exponent": (lambda: b'{"format": 1e9999999}', "not allowed"),
    "key_given_twice": (lambda: b'{"format": 1, "format": 2}', "given twice"),
    "not_utf8": (lambda: b'{"format": "\xff"}', "not UTF-8"),
    "cut_short": (lambda: b'{"format": "ccenv-', "not valid JSON"),
    "a_list_as_format": (lambda: b'{"format": [["x"]]}', ""),
    "half_a_surrogate": (lambda: b'{"format": "\\ud800"}', "surrogate"),
    "surrogates_the_wrong_way": (lambda: b'{"format": "\\udc00\\ud800"}', "surrogate"),
    "version_true": (lambda: b'{"format": "ccenv-policy", "version": true, "format_version": true}', ""),
    "version_with_a_point": (lambda: b'{"format": "ccenv-program", "version": 1.0, "format_version": 1.0}', ""),
    "nothing": (lambda: b"", ""),
}  # fmt: skip
JSON_READERS = {
    "shown": ("x.json", "show {file}"),
    "manifest": ("manifest.json", "bench report {folder}"),
    "report_of_a_proof": ("report.json", "board add {file}"),
    "submission": ("submission.json", "board check {folder}"),
    "export": ("export.jsonl", "board import {file} --board none/board"),
}


@cache
def good_trace() -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        legal_trace("ccac", 3, n_steps=8, steps_per_rtt=1).save(Path(scratch) / "t.npz")
        return (Path(scratch) / "t.npz").read_bytes()


def members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(good_trace())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.comment = comment
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


def npy(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=True)
    return out.getvalue()


def npy_header(text: str, data: bytes = b"") -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def header_with(**changes: Any) -> bytes:
    parts = members()
    start = 10 + int.from_bytes(parts["header.npy"][8:10], "little")
    data = json.loads(parts["header.npy"][start:]) | changes
    return with_member("header.npy", npy(np.frombuffer(json.dumps(data).encode(), np.uint8)))


def with_member(name: str, data: bytes) -> bytes:
    return packed(members() | {name: data})


def lying(entry_offset: int, local_offset: int, value: int) -> bytes:
    """Return the trace with a 32-bit number of its first member changed in the directory and in the member's own header."""
    content = bytearray(good_trace())
    directory = struct.unpack("<L", content[-6:-2])[0]
    content[directory + entry_offset : directory + entry_offset + 4] = struct.pack("<L", value)
    content[local_offset : local_offset + 4] = struct.pack("<L", value)
    return bytes(content)


def overlapping() -> bytes:
    """Return an archive of two entries that unpack the same bytes."""
    content = bytearray(packed({"A.npy": b"x" * 100, "B.npy": b"x" * 100}, zipfile.ZIP_STORED))
    directory = struct.unpack("<L", content[-6:-2])[0]
    second = directory + 46 + 5
    content[second + 42 : second + 46] = struct.pack("<L", 0)
    return bytes(content)


FLOATS = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"
TRACES: dict[str, tuple[Make, str]] = {
    "bz2_members": (lambda: packed(members(), zipfile.ZIP_BZIP2), "packed by method 12"),
    "lzma_members": (lambda: packed(members(), zipfile.ZIP_LZMA), "packed by method 14"),
    "declares_4_gib": (lambda: lying(24, 22, 0xFFFFFFF0), "bytes unpacked; at most"),
    "declares_too_little": (lambda: lying(24, 22, 8), "8 bytes that it declares"),
    "declares_too_much": (lambda: lying(24, 22, 1 << 20), "it declares 1048576"),
    "wrong_checksum": (lambda: lying(16, 14, 1), "checksum"),
    "overlapping_members": (overlapping, "overlaps"),
    "encrypted": (lambda: lying(8, 6, 0x00080001), "no encryption"),
    "a_comment": (lambda: packed(members(), comment=b"x"), "end record"),
    "bytes_before": (lambda: b"#!/bin/sh\n" + good_trace(), "not an .npz"),
    "bytes_behind": (lambda: good_trace() + b"\x00", "end record"),
    "cut_short": (lambda: good_trace()[:-30], "end record"),
    "empty": (lambda: b"", "(0 bytes)"),
    "no_archive": (lambda: b"x" * 5_000, "end record"),
    "no_members": (lambda: packed({}), "directory of 0 members"),
    "300_members": (lambda: packed({f"m{i}.npy": b"" for i in range(300)}), "directory of 300 members"),
    "path_as_a_member": (lambda: with_member("../../x.npy", npy(np.ones(1))), "unknown array '../../x'"),
    "unknown_member": (lambda: packed({"x.sh": b"true"}), "unknown member"),
    "pickled_objects": (lambda: with_member("A.npy", npy(np.array([{"a": 1}], dtype=object))), "dtype"),
    "structured_array": (lambda: with_member("A.npy", npy(np.zeros(2, "<f8,<f8"))), "no header that numpy writes"),
    "array_of_format_2": (lambda: with_member("A.npy", npy(np.ones(2), (2, 0))), "format 1.0"),
    "shape_of_10_to_18": (
        lambda: with_member("A.npy", npy_header(FLOATS % "999999999999999999")), "its shape"),
    "shape_to_evaluate": (
        lambda: with_member("A.npy", npy_header(FLOATS % "9**9**9")), "no header"),
    "deep_array_header": (lambda: with_member("A.npy", npy_header("[" * 20_000)), "no header"),
    "fortran_order": (lambda: with_member("A.npy", npy(np.asfortranarray(np.ones((3, 2))))), "Fortran order"),
    "wrong_dtype": (lambda: with_member("A.npy", npy(np.ones(3, "<f4"))), "dtype <f4"),
    "deep_header": (lambda: with_member("header.npy", npy(np.frombuffer(b"[" * 50_000, np.uint8))), "levels of nesting"),
    "header_of_no_json": (lambda: with_member("header.npy", npy(np.frombuffer(b"abc", np.uint8))), "not valid JSON"),
    "header_of_nothing": (lambda: with_member("header.npy", npy(np.zeros(0, np.uint8))), "not valid JSON"),
    "header_version_true": (lambda: header_with(version=True), "version is True"),
    "header_version_1_0": (lambda: header_with(version=1.0), "version is 1.0"),
    "header_path_of_1e300": (lambda: header_with(path={"link_rate_Bps": 1e300, "flows": [{"rtt_s": 1e300}]}), "link_rate_Bps"),
    "header_of_10_to_9_steps": (lambda: header_with(steps_per_rtt=10**9), ""),
    "header_rtt_of_1e_300": (lambda: header_with(path={"link_rate_Bps": 1.0, "flows": [{"rtt_s": 1e-300}]}), "rtt_s"),
    "nothing_but_nan": (lambda: with_member("A.npy", npy(np.full((9, 1), np.nan))), "A"),
}  # fmt: skip
TRACE_READERS = {"check": "trace check {file}", "replay": "trace replay {file}"}


def export_line(content: bytes, n_records: str = "1") -> Make:
    return lambda: b'{"format":"ccenv-board-export","format_version":1,"records":%s}\n' % n_records.encode() + content


ARGUMENTS: dict[str, tuple[str | tuple[str, ...], str]] = {
    "sender_of_5000_characters": (("attack", "x" * 5_000), "unknown"),
    "parameter_of_400_digits": (("attack", "copa:default_delta=" + "9" * 400), "number"),
    "parameter_of_400_decimals": (("attack", "copa:default_delta=0." + "3" * 400), "number"),
    "parameter_beyond_floats": (("attack", "copa:default_delta=1e999"), "number"),
    "parameter_nan": (("attack", "copa:default_delta=nan"), ""),
    "parameter_given_twice": (("attack", "copa:default_delta=0.1,default_delta=0.2"), "twice"),
    "suite_of_5000_characters": (("bench", "run", "x" * 5_000), ""),
    "query_of_5000_characters": (("synth", "x" * 5_000), ""),
    "config_of_5000_characters": (("train", "x" * 5_000), ""),
    "scenario_of_5000_characters": (("sim", "x" * 5_000), ""),
    "trace_of_5000_characters": (("trace", "check", "x" * 5_000), ""),
    "name_of_5000_characters": (("show", "x" * 5_000), ""),
    "name_of_two_lines": (("show", "a\nb"), ""),
    "override_of_5000_digits": (("train", "quick_sender", "--set", "seed=" + "9" * 5_000), "not allowed"),
    "override_of_aliases": (("train", "quick_sender", "--set", "seed=&a [*a]"), "anchors"),
    "override_of_a_date": (("train", "quick_sender", "--set", "seed=2024-13-45"), "seed"),
    "override_of_nested_lists": (("train", "quick_sender", "--set", "seed=" + "[" * 20_000), "levels of nesting"),
    "replayed_against_a_400_digit_sender": (("attack", "reno", "--adversary", "square:period_rtts=" + "9" * 400), "number"),
}

EXPORTS: dict[str, tuple[str, Make, str]] = {
    "export_not_xz": ("e.jsonl.xz", lambda: b"abc", "not a complete .xz file"),
    "export_xz_cut_short": ("e.jsonl.xz", lambda: lzma.compress(b"x\n" * 9_000)[:-20], ""),
    "export_xz_more": ("e.jsonl.xz", lambda: lzma.compress(b"{}\n") + b"abc", ""),
    "export_of_deep_line": ("e.jsonl", export_line(b"[" * 9_000 + b"\n"), "at most 64"),
    "export_line_without_end": ("e.jsonl", export_line(b"{}"), "truncated"),
    "export_of_no_records": ("e.jsonl", export_line(b"", "true"), "truncated"),
}
OTHERS = (
    *(HostileFile(name, file, make, "board import {file} --board none/b", said) for name, (file, make, said) in EXPORTS.items()),
    HostileFile("extends_outside", "c.yaml", lambda: b"extends: ../../etc/passwd\n", "train {file}", "is not allowed"),
    HostileFile("flows_as_a_number", "s.yaml", lambda: b"links: [{rate_mbps: 12, buffer_bdp: 1}]\nflows: 0.5\n", "sim {file}"),
    HostileFile("extends_absolute", "c.yaml", lambda: b"extends: /etc/passwd\n", "train {file}", "is not allowed"),
    HostileFile("extends_itself", "c.yaml", lambda: b"extends: c.yaml\n", "train {file}", "extends itself"),
    HostileFile("extends_a_map", "c.yaml", lambda: b"extends: {a: 1}\n", "train {file}", "a name or path"),
)


def _ended(make: Make) -> Make:
    return lambda: make() + b"\n"  # exports are read line by line, and a line has an end


def _all() -> list[HostileFile]:
    out = [
        HostileFile(f"{name}-{reader}", "x.yaml", make, command, said)
        for name, (make, said) in YAML.items()
        for reader, command in YAML_READERS.items()
    ]
    out += [
        HostileFile(f"{name}-{reader}", file, _ended(make) if reader == "export" else make, command, said)
        for name, (make, said) in JSON.items()
        for reader, (file, command) in JSON_READERS.items()
    ]
    out += [
        HostileFile(f"{name}-{reader}", "t.npz", make, command, said)
        for name, (make, said) in TRACES.items()
        for reader, command in TRACE_READERS.items()
    ]
    out += [HostileFile(name, "", bytes, command, said) for name, (command, said) in ARGUMENTS.items()]
    return [*out, *OTHERS]


HOSTILE = {fixture.name: fixture for fixture in _all()}
