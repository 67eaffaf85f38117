"""Runs on user-mode Linux in virtual time; without it the guest's files and the refusals are tested alone."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernel_switches
import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)

from ccenv.base.files import LOCK, locked
from ccenv.cli.main import main
from ccenv.live import LiveError, LiveResult, read_live_scenario
from ccenv.live.virtual import run as virtual
from ccenv.live.virtual import suite
from ccenv.live.virtual.attack import KernelArena
from ccenv.network.adversary import MovesHeader, RecordedAdversary, StoredMoves
from ccenv.network.laws import check_trace
from ccenv.network.path import make_path
from ccenv.simulation.packet_trace import packet_slack_bytes


@pytest.fixture
def _kernel() -> None:
    for need in virtual.virtual_needs():
        if not need.ok:
            pytest.skip(f"{need.name}: {need.found}; {need.advice}")


def wanted(*senders: str, **more: Any) -> dict[str, Any]:
    flows = [{"sender": f"kernel:{name}", "rtt_ms": 20, **more.pop("flow", {})} for name in senders]
    links = [{"rate_mbps": 10, "buffer_bdp": 1}]
    return {"name": "test", "duration_s": 2, "warmup_s": 0.5, "links": links, "flows": flows, **more}


def play(*senders: str, **more: Any) -> LiveResult:
    return virtual.run_virtual(wanted(*senders, **more))


def test_initramfs_is_a_cpio_archive() -> None:
    packed = virtual.pack_files({"run.txt": b"12345", "init": b"x"})
    assert packed == virtual.pack_files({"init": b"x", "run.txt": b"12345"})
    found, at = {}, 0
    while at < len(packed):
        assert packed[at : at + 6] == b"070701"
        size, name_size = (int(packed[at + k : at + k + 8], 16) for k in (54, 94))
        name = packed[at + 110 : at + 109 + name_size].decode()
        begin = -(-(at + 110 + name_size) // 4) * 4
        found[name] = packed[begin : begin + size]
        at = -(-(begin + size) // 4) * 4
    assert found == {"dev": b"", "dev/console": b"", "init": b"x", "run.txt": b"12345", "TRAILER!!!": b""}


def test_run_is_described_in_nanoseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "controls", lambda: ("vegas",))
    monkeypatch.setattr(virtual, "require_virtual", lambda: None)
    data = wanted("vegas", flow={"start_s": 0.5, "stop_s": 1.5, "workload": {"kind": "finite", "size_bytes": 3000}})
    head, flow = virtual.describe_run(read_live_scenario(data), ["vegas"]).splitlines()
    assert head.split()[0] == "2000000000" and flow == "vegas 500000000 1500000000 2896"
    with pytest.raises(LiveError, match="no congestion control 'reno'; it has vegas"):
        virtual.require_controls(["reno"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="virtual runs need x86-64")
@pytest.mark.parametrize(
    ("missing", "told"), [(virtual.KERNEL, "no user-mode Linux"), ("cc", "no C compiler"), (None, "user-mode Linux '5.10.0'")]
)
def test_what_is_missing_is_told(missing: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / virtual.KERNEL
    kernel.write_text(f"#!/bin/sh\necho {'5.10.0' if missing is None else '6.1.9'}\n")
    kernel.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == missing else str(kernel))
    virtual._find_kernel.cache_clear()
    try:
        with pytest.raises(LiveError, match=f"{told}; .*apt install user-mode-linux"):
            virtual.require_virtual()
    finally:
        virtual._find_kernel.cache_clear()


@pytest.mark.usefixtures("_kernel")
def test_equal_runs_are_equal_and_legal() -> None:
    first, again, other = (play("cubic", "bbr", seed=seed) for seed in (0, 0, 1))
    assert first.summary()["hash"] == again.summary()["hash"] != other.summary()["hash"] and first.valid
    guests = [one.summary()["guest_sha256"] for one in (first, again, other)]
    assert guests[0] == guests[1] != guests[2]  # when flows start is in a guest's files
    trace = first.trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []
    assert sum(first.summary()["shares"]) == pytest.approx(1)


@pytest.mark.usefixtures("_kernel")
def test_reno_halves_its_window() -> None:
    result = play("reno", duration_s=10, warmup_s=4)
    window = result.run.flow_log["cwnd_bytes"][40:, 0] / 1500
    full = 2 * 10e6 / 8 * 0.02 / 1500
    assert np.isclose(window.max(), full, atol=3) and np.isclose(window.min(), full / 2, atol=3)


@pytest.mark.slow
@pytest.mark.usefixtures("_kernel")
def test_every_control_sends() -> None:
    for name in virtual.controls():
        assert play(name, duration_s=0.5, warmup_s=0).summary()["flows"][0]["throughput_mbps"] > 1, name


@pytest.mark.usefixtures("_kernel")
def test_moves_act_on_the_kernel() -> None:
    jitter = {"kind": "adversary", "max_s": 0.02, "adversary": "hoard"}
    result = play("reno", model="ccac", flow={"jitter": jitter})
    assert result.valid and result.summary()["links"][0]["utilisation"] > 0.1


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(("limit", "told"), [({"cpu_s": 1}, "limit of 1 s of CPU time"), ({"wall_s": 0.3}, "its limit of 0.3 s")])
def test_guest_ends_at_its_limit(limit: dict[str, float], told: str) -> None:
    with pytest.raises(LiveError, match=told):
        virtual.run_virtual(wanted("reno", duration_s=300), **limit)


def test_folders_of_killed_runs_are_removed_by_the_next(tmp_path: Path) -> None:
    for name, age_s in {"ccenv-held": 1000, "ccenv-young": 0, "ccenv-killed": 1000, "other": 1000}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK).touch()
        os.utime(tmp_path / name / LOCK, (time.time() - age_s,) * 2)
    (tmp_path / "ccenv-unlocked").mkdir()
    with locked(tmp_path / "ccenv-held", "run"):
        os.utime(tmp_path / "ccenv-held" / LOCK, (0, 0))
        virtual._remove_abandoned(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ccenv-held", "ccenv-unlocked", "ccenv-young", "other"]


def test_folders_and_guests_that_cannot_be_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_flag=os.ST_NOEXEC))
    need = virtual._find_folder()
    assert not need.ok and "mounted noexec" in need.found
    (tmp_path / "console").write_text("Booting\nccenv: /tcp_nv.ko: No such file or directory\nreboot: System halted\n")
    for code, told in (
        (virtual.NO_PERSONALITY, "allow the system call personality"),
        (virtual.NEVER_DUE, "waits for nothing"),
        (0, "/tcp_nv.ko: No such file"),
    ):
        assert told in virtual._why(code, tmp_path / "console", 30.0, 5.0)
    for used_s, told in ((30.0, "its limit of 30 s of CPU time"), (5.0, "was killed after 5.0 s")):
        assert told in virtual._why(-signal.SIGKILL, tmp_path / "console", 30.0, used_s)


@pytest.mark.usefixtures("_kernel")
def test_search_against_the_kernel_is_legal_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused) -> None:
    path, steps = make_path(link_rate_mbps=6, rtt_ms=20, jitter_ms=20, buffer_bdp=1), 240
    header = MovesHeader(
        path=path, model="ccac", steps_per_rtt=8, dt_s=0.0025, first_row=80, sender="mine", adversary="hand", utilisation=0.0
    )
    StoredMoves(header, np.tile([1.0, 1.0, 0.0, 0.0], (steps, 1))).save(tmp_path / "mine.moves.npz")
    settings = {"moves": tmp_path / "mine.moves.npz", "runs": 3, "adversaries": "square,stored"}
    command = ["live", "attack", "reno", "--virtual", "--json", *(w for k, v in settings.items() for w in ("-s", f"{k}={v}"))]
    outcomes = []
    for _ in range(2):
        with contextlib.chdir(tmp_path):
            assert main(command) == 0
        outcomes.append(json.loads(capsys.readouterr().out))
    found, again = outcomes
    assert found["legal"] is found["valid"] is True
    assert found["live"] == found["worst_utilisation"] == min(one["worst_utilisation"] for one in found["by_adversary"].values())
    assert found["live"] < 0.8 < found["calm"] and found["simulated"] == pytest.approx(found["live"], abs=0.2)
    assert found["by_adversary"] == again["by_adversary"]  # with the seconds of the first: nothing was played again
    for wrong, told in (("runs=2", "take at least 14"), ("adversaries=mutation", "unknown search against a kernel 'mutation'")):
        refused(["live", "attack", "reno", "--virtual", "-s", wrong], told)
    replayed = KernelArena("reno", Path(settings["moves"])).trace(
        RecordedAdversary("again", np.tile([1.0, 1.0, 0.0, 0.0], (steps, 1)))
    )
    assert check_trace(replayed, slack_bytes=packet_slack_bytes(replayed)) == []


def test_bands_are_wider_by_the_errors_of_both_sides() -> None:
    exact = {**{f"{name}_error": 0.0 for name in suite.QUANTITIES}, "shares_error": [0.0, 0.0]}
    kernel = exact | {"utilisation": 0.9, "queue": 10.0, "loss": 0.3, "shares": [0.6, 0.4]}
    engine = exact | {"utilisation": 0.935, "queue": 11.4, "loss": 0.459, "shares": [0.64, 0.36]}
    spread = {"utilisation_error": 0.0025, "loss_error": 0.004}
    for theirs, ours, told in (
        ({}, {}, ["utilisation", "loss"]),
        ({"loss_error": 0.003}, spread, []),
        ({}, spread | {"shares": [0.66, 0.34]}, ["loss", "shares"]),
    ):
        assert suite.beyond({"kernel": kernel | theirs, "engine": engine | ours}) == told


def test_suite_plays_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused) -> None:
    played: list[str] = []

    def play(scenario: Any) -> dict[str, Any]:
        played.append(f"{scenario.name}/{scenario.seed}")
        return {"utilisation": 0.9, "queue": 10.0, "loss": 0.1, "shares": []}

    monkeypatch.setattr(suite, "PLAYS", {"kernel": play, "engine": play})
    run = partial(suite.run_suite, tmp_path / "record.json", shipped=tmp_path / "none.json")
    assert run(["alone/reno/0"])["inside"] == 1
    assert run(["alone/reno/[01]", "alone/bic/0"])["cases"][0]["kernel"]["seeds"] == 2
    assert played == ["alone/reno/0"] * 2 + ["alone/reno/1"] * 2 + ["alone/bic/0"]
    monkeypatch.setattr(suite, "codes", lambda: {"kernel": "newer", "engine": suite.code_hash(suite.simulate_live)[:16]})
    run(["alone/reno/0"])
    assert played[5:] == ["alone/reno/0"]
    refused(["bench", "run", "kernel-v1", "--only", "alone/tahoe/*", "--out", str(tmp_path)], "no run matches ['alone/tahoe/*']")
    for name in ("kernel-v1", "quic-v1", "live-worst-case"):
        refused(["bench", "run", name, "-s", "half_width=0"], "leave out -s half_width")


@pytest.mark.parametrize(("changed", "words"), [
    ({"utilisation": "x"}, "utilisation"), ({"queue": 1e300}, "queue"), ({"loss": None}, "loss"),
    ({"shares": [0.5]}, "the run 'alone/reno/0' has 1 shares; its flows are 1"),
])  # fmt: skip
def test_damaged_records_are_told(
    tmp_path: Path, changed: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = suite.FORMAT.read(suite.SHIPPED)
    record["runs"]["kernel"]["alone/reno/0"] |= changed
    (tmp_path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    assert main(["bench", "run", "kernel-v1", "--only", "alone/reno/0", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "record.json" in line and words in line


def test_shipped_runs_are_of_the_cases() -> None:
    runs = suite.FORMAT.read(suite.SHIPPED)["runs"]["kernel"]
    scenarios = {f"{case}/{one.seed}": one for case, seeds in suite.load_cases().items() for one in seeds}
    assert set(runs) == set(scenarios)
    for name, run in runs.items():
        flows = len(scenarios[name].flows)
        assert run["scenario"] == suite.hash_scenario(scenarios[name]), name
        assert 0.05 < run["utilisation"] < 1.01, name
        assert len(run["shares"]) == (flows if flows > 1 else 0), name


def test_switches_move_the_cases_outside() -> None:
    """Packet engine and record agree; changed on both sides, the cases are where the page says."""
    record = json.loads(kernel_switches.FILE.read_text(encoding="utf-8"))
    outside = {case: suite.beyond(changes[""]) for case, changes in record.items()}
    assert outside == {
        "small/bbr": ["loss"], "deep/vegas": ["queue"], "late/bbr+bbr": ["shares"], "attacked/vegas": ["queue"],
        "attacked/hybla": ["utilisation", "queue"],
    }  # fmt: skip
    assert {case for case, changes in record.items() if suite.beyond(changes["quick_ack: true"])} == {"small/bbr"}
    assert suite.beyond(record["small/bbr"]["packets_per_burst: 1"]) == []
    for case, changes in kernel_switches.CHANGES.items():
        for words, change in changes.items():
            found = kernel_switches.play(case, change, ("engine",))["engine"]
            assert found == record[case][words]["engine"], (case, words)
