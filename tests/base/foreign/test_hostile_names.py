"""Names from data become paths inside their folder, or are refused in one line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccenv.agents import make_sender
from ccenv.agents.load import load_sender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.foreign import read_bounded, read_inside, read_json, read_lines, read_yaml, resolve_inside
from ccenv.leaderboard.site.exchange import read_export
from ccenv.leaderboard.store.head import read_head
from ccenv.network.links.reading import read_trace
from ccenv.network.trace import load_trace

NAMES: dict[str, Any] = {
    "absolute": "/etc/passwd",
    "parent": "..",
    "parent_first": "../x",
    "parent_inside": "a/../../x",
    "parent_of_windows": "..\\x",
    "drive_of_windows": "C:\\x",
    "share_of_windows": "\\\\host\\x",
    "stream_of_windows": "x:y",
    "this_folder": ".",
    "this_folder_first": "./x",
    "home": "~/x",
    "hidden": ".bashrc",
    "ends_in_a_dot": "x.",
    "nothing": "",
    "empty_part": "a//b",
    "ends_in_a_slash": "a/",
    "nul": "a\x00b",
    "line_end": "a\nb",
    "space": "a b",
    "letters_of_another_script": "\u0430",
    "turned_around": "a\u202eb",
    "half_a_surrogate": "\ud800",
    "percent_encoded": "%2e%2e",
    "part_too_long": "x" * 129,
    "too_long": "/".join(["x" * 100] * 6),
    "too_many_parts": "/".join("abcdefghi"),
    "device": "CON",
    "device_with_an_ending": "nul.txt",
    "device_inside": "a/com1.json",
    "number": 3,
    "list": ["a"],
    "none": None,
    "bytes": b"a",
}


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
    assert resolve_inside(tmp_path, name) == place
    assert read_inside(tmp_path, name, 3) == b"abc"
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
