"""What a user is told where a machine does not allow a live run: one line each, with what to do; machines are injected."""

from __future__ import annotations

import errno
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from ccenv.agents.synthesized import shipped_program
from ccenv.base.errors import InputError
from ccenv.cli import main as cli
from ccenv.live import LiveError, live_needs, programs, read_live_scenario, requirements, run
from ccenv.live.export import export_bpf
from ccenv.live.export.bpf import compile_bpf
from ccenv.live.kernel_records import record_scenario
from ccenv.live.programs import make_senders
from ccenv.live.requirements import Needs, bpf_needs, require_bpf

if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)

from ccenv.live import worker
from ccenv.live.requirements import Refused
from ccenv.live.system import spaces
from ccenv.live.system.loader import Program, Refusal

REQUEST: dict[str, Any] = {
    "scenario": {"flows": [{}], "device": "auto", "mss_bytes": 1500.0, "packets_per_burst": 1, "quick_ack": True},
    "buffer_bytes": 1 << 20,
}


def scenario(sender: str) -> Any:
    return read_live_scenario({"links": [{"rate_mbps": 24, "buffer_bdp": 1}], "flows": [{"sender": sender, "rtt_ms": 40}]})


def refuse(number: int) -> Any:
    def call(*given: Any, **named: Any) -> None:
        raise OSError(number, os.strerror(number))

    return call


def test_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "_open_tun_ends", refuse(errno.EACCES))
    monkeypatch.setattr(spaces, "_open_packet_ends", refuse(errno.EPERM))
    with pytest.raises(Refused) as caught:
        worker._run(REQUEST, "root")
    assert str(caught.value) == (
        "/dev/net/tun cannot be opened (Permission denied, and AF_PACKET neither: Operation not permitted); "
        "run as root, or: sudo chmod 0666 /dev/net/tun"
    )


def test_no_user_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "end_with_parent", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(spaces, "become_root_inside", refuse(errno.EPERM))
    with pytest.raises(Refused, match=r"user namespaces are off here \(Operation not permitted\); run as root"):
        worker._answer(REQUEST, os.getppid())


@pytest.mark.parametrize("version", ["5.15.0-91-generic", "6.3.13", "weird"])
def test_old_kernel(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(platform, "release", lambda: version)
    with pytest.raises(LiveError) as caught:
        require_bpf()
    assert str(caught.value).startswith(f"live: this kernel is {version}")
    assert str(caught.value).endswith("loading programs needs Linux 6.4 and BTF (/sys/kernel/btf/vmlinux)")


def test_no_type_information(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "BTF", tmp_path / "vmlinux")
    assert requirements._kernel().found == f"this kernel is {platform.release()} without BTF"


@pytest.mark.parametrize(
    ("held", "words"), [(0, "CAP_BPF and CAP_PERFMON not held"), (1 << 39, "CAP_PERFMON not held"), (1 << 38, "CAP_BPF not held")]
)
def test_missing_capabilities(monkeypatch: pytest.MonkeyPatch, held: int, words: str) -> None:
    monkeypatch.setattr(requirements, "capabilities", lambda: held)
    need = requirements._capabilities()
    assert (need.ok, need.found) == (False, words)
    assert need.advice == "run as root, or let root load: sudo ccenv live load PROGRAM"


def test_a_program_without_the_right_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "bpf_needs", lambda: [Needs("BPF privileges", False, "CAP_BPF not held", "run as root")])
    with pytest.raises(LiveError) as caught:
        make_senders(scenario("cc_qdel"))
    assert str(caught.value) == (
        "live: flow 0: loading cc_qdel needs CAP_BPF and CAP_PERFMON; run `sudo ccenv live load cc_qdel` in another terminal, "
        "or as root"
    )


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_compiler", lambda: None)
    need = requirements._compiler()
    assert (need.ok, need.found) == (False, "no compiler for BPF")
    assert need.advice == "apt install clang (version 12 or newer), or pip install ziglang"


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "LIBRARY", "libnosuch.so.1")
    assert requirements._library() == Needs("BPF loader", False, "no libnosuch.so.1", "apt install libbpf1")


def test_what_the_verifier_said_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    error = run._make_error({"error": "the kernel refused x: R1 out of range", "log": "R1 out of range\n" * 3})
    file = next(tmp_path.rglob("verifier.txt"))
    assert str(error) == f"live: the kernel refused x: R1 out of range; the log is in {file.relative_to(tmp_path)}"
    assert file.read_text(encoding="utf-8") == "R1 out of range\n" * 3


@pytest.mark.live
@pytest.mark.live_bpf
def test_the_kernel_refuses_what_leaves_its_memory() -> None:
    """A text whose history is written without its mask: the verifier says no, and the last line of its log is told."""
    for need in [*live_needs(), *bpf_needs()]:
        if not need.ok:
            pytest.skip(f"{need.name}: {need.found}; {need.advice}")
    name = f"bad{os.getpid()}"
    good = export_bpf(shipped_program("cc_qdel"), name=name)
    bad = good.replace("f->served[n & MASK] = f->delivered;", "f->served[n] = f->delivered;")
    assert bad != good
    with pytest.raises(Refusal) as caught:
        Program(name, compile_bpf(bad))
    assert str(caught.value).startswith(f"live: the kernel refused {name}: ")
    assert "BEGIN PROG LOAD LOG" in caught.value.log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["live", "nosuch"], "live scenario 'nosuch'"),
        (["live", "attack", "nobody"], "unknown sender with a stored attack 'nobody'"),
        (["live", "load", "copa"], "'copa' is no belief program; programs: cc_qdel, cc_probe"),
        (["live", "load", "learned_robust_d4"], "at most 15 characters, 'learned_robust_d4' has 17; give --name"),
        (["live", "run", "reno_hold", "--duration", "0s"], "duration"),
    ],
)
def test_the_command_line_says_it_in_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err.strip()
    assert words in told
    assert told.startswith("ccenv: error: ")


def test_a_record_needs_senders() -> None:
    with pytest.raises(InputError, match="at least one congestion control"):
        record_scenario([], rate_mbps=10, rtt_ms=40, buffer_bytes=1e5, duration_s=5)
