"""``ccenv show FILE``: recognised by what the file or folder holds."""

import json
import shutil
from pathlib import Path

import pytest
from legal_traces import legal_trace

from ccenv.base.config import find_data
from ccenv.cli.main import main

Capture = pytest.CaptureFixture[str]


def shown(capsys: Capture, path: Path) -> dict[str, str]:
    code = main(["show", str(path), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    data: dict[str, str] = json.loads(captured.out)
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == data["text"] + "\n"
    return data


def test_programs_suites_and_configs(capsys: Capture, tmp_path: Path) -> None:
    for package, name, suffix, kind, first in (
        ("ccenv.agents.synthesized", "cc_qdel", ".json", "program", "# cc_qdel"),
        ("ccenv.benchmarks.suites", "quick", ".yaml", "suites", "# Six senders"),
        ("ccenv.configs.train", "quick_sender", ".yaml", "configs", "# PPO sender"),
        ("ccenv.configs.sim", "two_bbr_40_80", ".yaml", "configs", "# [Starvation]"),
    ):
        shutil.copy(find_data(package, name, suffix, "file"), tmp_path / f"mine{suffix}")
        data = shown(capsys, tmp_path / f"mine{suffix}")
        assert data["kind"] == kind and data["text"].startswith(first)


def test_a_trace(capsys: Capture, tmp_path: Path) -> None:
    trace = legal_trace("ccac", 7, n_flows=2, n_steps=40, buffer_bdp=0.3)
    trace.save(tmp_path / "run.npz")
    data = shown(capsys, tmp_path / "run.npz")
    text = json.loads(data["text"])
    assert (data["kind"], text["model"], text["steps"], len(text["flows"])) == ("trace", "ccac", 40, 2)


def test_folders_of_runs(capsys: Capture, tmp_path: Path) -> None:
    assert main(["bench", "run", "quick", "--limit", "1", "--out", str(tmp_path / "bench")]) == 0
    assert main(["attack", "reno", "--adversary", "corners", "--out", str(tmp_path / "attack")]) == 0
    assert main(["board", "pack", "cc_qdel", "--out", str(tmp_path / "packed")]) == 0
    capsys.readouterr()
    bench = shown(capsys, tmp_path / "bench")
    assert (bench["kind"], json.loads(bench["text"])["n_cells"]) == ("benchmark run", 1)
    attack = shown(capsys, tmp_path / "attack")
    assert (attack["kind"], list(json.loads(attack["text"])["findings"])) == ("attack", ["corners"])
    packed = shown(capsys, tmp_path / "packed")
    assert (packed["kind"], json.loads(packed["text"])["name"]) == ("submission", "cc_qdel")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.json", b'{"format": "other"}', "x.json: format 'other' cannot be shown; it can be ccenv-program"),
        ("x.json", b"[" * 100_000, "x.json: 100000 levels of nesting; at most 64 are allowed"),
        ("x.bin", b"\xff\x00", "x.bin: not UTF-8 text (byte 0)"),
        ("x.npz", b"PK\x03\x04 cut off", "x.npz"),
        ("x.yaml", b"- 1\n", "x.yaml: a suite or a config is a table of keys"),
        ("x.yaml", b"format: ccenv-suite\n", "x.yaml"),
    ],
)
def test_what_cannot_be_shown_is_one_line(refused, tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    refused(["show", str(tmp_path / name)], says)


def test_no_such_file_and_an_empty_folder(refused, tmp_path: Path) -> None:
    refused(["show", str(tmp_path / "none.json")], "there is no such file")
    refused(["show", str(tmp_path)], "not the folder of a run; none of manifest.json")
    refused(["show", "cc_qdell"], "Did you mean 'cc_qdel'")
