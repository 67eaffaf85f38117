"""What runs left and somebody changed: records, states, pages and files that are longer than their bound."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables.distillation import read_data as read_distilled

from ccenv.base import store
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_bounded
from ccenv.benchmarks import store as bench_store
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.demo import STAGES
from ccenv.cli.main import main
from ccenv.training.distill.prove import read_state
from ccenv.training.records import read_data as read_learning
from ccenv.training.run import read_code


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


@pytest.mark.parametrize("read", [read_distilled, read_learning])
@pytest.mark.parametrize("version", [True, 2.0, "2", [2]])
def test_hostile_versions_of_records_are_refused(read: Any, version: Any, tmp_path: Path) -> None:
    file, name = tmp_path / "record.json", "distillation" if read is read_distilled else "learning"
    good = {"format": f"ccenv-{name}-record", "version": 2, "runs": {}}
    file.write_text(json.dumps(good))
    assert read(file) == good
    file.write_text(json.dumps(good | {"version": version}))
    with pytest.raises(InputError, match="version is"):
        read(file)


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


def test_a_hostile_demo_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STAGES).write_bytes(b'{"format": "ccenv-demo", "format_version": 1, "stages": [[]]}')
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "not a stage file of ccenv demo" in capsys.readouterr().err
