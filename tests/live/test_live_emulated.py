"""Exported programs in an emulated computer: what is missing is told, what was recorded stands, and equal runs are equal."""

import lzma
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernel_programs as programs
import pytest

from ccenv.base.foreign import read_json
from ccenv.live import LiveError, read_live_scenario
from ccenv.live.export.bpf import find_compiler
from ccenv.live.virtual import emulated, run
from ccenv.live.virtual.guest import Guest
from ccenv.live.virtual.run import run_virtual

RECORD = read_json(programs.FILE)


def scenario(sender: str, **more: Any) -> Any:
    flows = [{"sender": sender, "rtt_ms": 40}]
    return read_live_scenario(
        {"duration_s": 1, "warmup_s": 0, "links": [{"rate_mbps": 5, "buffer_bdp": 2}], "flows": flows, **more}
    )


def kernels(folder: Path, *names: str) -> Path:
    """Make a folder with empty kernels and packed modules tun."""
    for name in names:
        module = folder / "lib/modules" / name / "kernel/drivers/net/tun.ko.xz"
        module.parent.mkdir(parents=True)
        module.write_bytes(lzma.compress(name.encode()))
        (folder / "boot").mkdir(exist_ok=True)
        (folder / "boot" / f"vmlinuz-{name}").write_bytes(b"")
    return folder


def test_the_newest_kernel_that_loads_programs_is_found(tmp_path: Path) -> None:
    folder = kernels(tmp_path, "6.1.0-53-amd64", "6.12.9-amd64", "6.12.95+deb12-cloud-amd64", "6.5.0-1-amd64")
    image, modules = emulated.find_kernel(folder)
    assert image.name == "vmlinuz-6.12.95+deb12-cloud-amd64"
    assert emulated.read_module(modules, "drivers/net/tun.ko") == b"6.12.95+deb12-cloud-amd64"
    assert emulated.read_module(modules, "net/ipv4/tcp_vegas.ko") is None


def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LiveError, match="there is no qemu-system-x86_64; apt install qemu-system-x86"):
        run_virtual(scenario("cc_qdel"))
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    old = kernels(tmp_path / "old", "6.1.0-53-amd64")
    for folder in (tmp_path / "none", old):
        with pytest.raises(
            LiveError, match=r"has no kernel of 6\.4 or newer with its modules; apt install -t bookworm-backports"
        ):
            run_virtual(scenario("cc_qdel"), kernel=str(folder))


@pytest.mark.parametrize(("sender", "words"), [
    ("learned_shield_u80", "no process chooses for a virtual kernel; set chooser: kernel"), ("bbr3", "is no belief program"),
    ("fourcp_auto:first_gain=0.1", "at most 0.000976562 fits 64 bits"), ("kernel:vegas", "has no congestion control 'vegas'"),
])  # fmt: skip
def test_senders_that_cannot_run_are_told(sender: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    with pytest.raises(LiveError, match=f"flow 0: .*{words}"):
        emulated.make_computer(scenario(sender), str(kernels(tmp_path, "6.12.1-amd64")))


ASKS = """
import os, time
os.write(int(os.environ["CCENV_VIRTUAL"].split(",")[2]), (-1).to_bytes(8, "little", signed=True) + bytes(16))
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="virtual runs need Linux and a C compiler")
def test_a_guest_that_is_ended_while_a_policy_decides_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SimpleNamespace(answer=lambda talk: time.sleep(1.0))
    outside, command = {"shared": bytes(emulated.SHARED_BYTES)}, [sys.executable, "-c", ASKS]
    guest = Guest(["flow0"], {}, outside, "ask.c", (60, 0), 0, "6.12", "serial", lambda memory_mib: command, {0: slow})
    monkeypatch.setattr(run, "make_computer", lambda scenario, folder: guest)
    with pytest.raises(LiveError, match=r"its limit of 0\.5 s"):
        run_virtual(scenario("learned_everywhere"), wall_s=0.5)


@pytest.mark.parametrize("case", RECORD)
def test_the_packet_engine_agrees_with_the_record(case: str) -> None:
    """The engine's side is as recorded; the kernel has its utilisation within 3 points, but for rate_based."""
    kernel, engine = RECORD[case]["kernel"], programs.play_engine(case)
    for name, value in RECORD[case]["engine"].items():
        assert engine[name] == pytest.approx(value, rel=1e-3), name
    assert kernel["kernel"].startswith("6.12") and kernel["latest_us"] < 1250
    assert (abs(kernel["utilisation"] - engine["utilisation"]) <= 0.03) == ("rate_based" not in case)


def test_4cp_gives_way_in_a_bad_phase() -> None:
    """[4CP] figure 25: below the loss rate of its path the window is mincwnd: 2 segments a round trip beside three reno."""
    for side, record in RECORD[programs.BAD_CASE].items():
        rtt_s = 0.04 + record["queue"] * 1500 / 625_000
        assert record["shares"][0] * 625_000 * rtt_s / 1500 == pytest.approx(2, abs=0.4), side


@pytest.mark.skipif(
    shutil.which(emulated.QEMU) is None or find_compiler() is None or not list(Path("/boot").glob("vmlinuz-6.1?*")),
    reason="no emulator, compiler or kernel for exported programs",
)
@pytest.mark.parametrize("sender", ["cc_probe_drain", "learned_everywhere"])
def test_equal_runs_are_equal(sender: str) -> None:
    first, again = (run_virtual(scenario(sender)) for _ in range(2))
    assert first.summary()["hash"] == again.summary()["hash"] and first.valid
