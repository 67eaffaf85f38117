"""Runs on user-mode Linux in virtual time; without it the guest's files and the refusals are tested alone."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)

from ccenv.live import LiveError, LiveResult, read_live_scenario
from ccenv.live.virtual import run as virtual
from ccenv.network.laws import check_trace
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
    data = wanted("vegas", flow={"start_s": 0.5, "stop_s": 1.5, "workload": {"kind": "finite", "size_bytes": 3000}})
    head, flow = virtual.describe_run(read_live_scenario(data)).splitlines()
    assert head.split()[0] == "2000000000"
    assert flow == "vegas 500000000 1500000000 2896"
    with pytest.raises(LiveError, match="no congestion control 'reno'; it has vegas"):
        virtual.describe_run(read_live_scenario(wanted("reno")))
    with pytest.raises(LiveError, match="cc_qdel is no sender of the kernel"):
        virtual.describe_run(read_live_scenario({**data, "flows": [{"sender": "cc_qdel", "rtt_ms": 20}]}))


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
    assert first.summary()["hash"] == again.summary()["hash"] != other.summary()["hash"]
    assert first.valid
    trace = first.trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []
    assert sum(first.summary()["shares"]) == pytest.approx(1)


@pytest.mark.usefixtures("_kernel")
def test_reno_halves_its_window() -> None:
    result = play("reno", duration_s=10, warmup_s=4)
    window = result.run.flow_log["cwnd_bytes"][40:, 0] / 1500
    full = 2 * 10e6 / 8 * 0.02 / 1500
    assert np.isclose(window.max(), full, atol=3)
    assert np.isclose(window.min(), full / 2, atol=3)


@pytest.mark.slow
@pytest.mark.usefixtures("_kernel")
def test_every_control_sends() -> None:
    for name in virtual.controls():
        assert play(name, duration_s=0.5, warmup_s=0).summary()["flows"][0]["throughput_mbps"] > 1, name


@pytest.mark.usefixtures("_kernel")
def test_moves_act_on_the_kernel() -> None:
    jitter = {"kind": "adversary", "max_s": 0.02, "adversary": "hoard"}
    result = play("reno", model="ccac", flow={"jitter": jitter})
    assert result.valid
    assert result.summary()["links"][0]["utilisation"] > 0.1


@pytest.mark.usefixtures("_kernel")
def test_guest_ends_at_its_limit() -> None:
    with pytest.raises(LiveError, match="limit of 1 s of CPU time"):
        virtual.run_virtual(wanted("reno", duration_s=300), cpu_s=1)
