"""The real TCP stack through the emulator. Skipped with the reason where this machine does not allow it.

Runs that the machine spoils (packets written late) are tried again, and then skipped with their release errors. What needs
several runs, or more than the common device and sender, is marked slow.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import alive, descendants, parents, wait_until

from ccenv.engine.packet.layout import EVENTS
from ccenv.live import LiveError, LiveResult, read_live_scenario, run_live, valid_run
from ccenv.live.comparison import simulate_live
from ccenv.live.system.sockets import available_controls
from ccenv.network.laws import check_trace
from ccenv.network.trace import load_trace
from ccenv.simulation.packet_trace import packet_slack_bytes

TRIES = 3
COMMAND = [sys.executable, "-m", "ccenv.cli.main", "live"]


def wanted(sender: str, **more: Any) -> dict[str, Any]:
    flow = {"sender": sender, "rtt_ms": 40, **more.pop("flow", {})}
    link = {"rate_mbps": 24, "buffer_bdp": 1, **more.pop("link", {})}
    return {"name": "test", "duration_s": 2, "warmup_s": 1, "links": [link], "flows": [flow], **more}


def run(data: dict[str, Any]) -> LiveResult:
    """Return a valid run; skip where the machine was too busy each time."""
    result = valid_run(read_live_scenario(data), TRIES)
    if result.punctual and not result.valid:
        pytest.fail(f"{result.why_not_valid}")
    if not result.valid:
        pytest.skip(f"no valid run in {TRIES}: {result.why_not_valid[0]}")
    return result


def utilisation(result: LiveResult) -> float:
    return float(result.summary()["links"][0]["utilisation"])


@pytest.mark.live
@pytest.mark.parametrize(("cca", "device"), [
    ("cubic", "tun"), pytest.param("bbr", "tun", marks=pytest.mark.slow), pytest.param("cubic", "packet", marks=pytest.mark.slow),
])  # fmt: skip
def test_kernel_fills_the_link(cca: str, device: str) -> None:
    if cca not in available_controls():
        pytest.skip(f"this kernel has no {cca}")
    if device == "tun" and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("no access to /dev/net/tun")
    result = run(wanted(f"kernel:{cca}", device=device))
    assert result.header["device"] == device and 0.9 < utilisation(result) <= 1.001
    trace = result.trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


@pytest.mark.live
def test_first_round_trip_is_rm_and_every_packet_is_acknowledged() -> None:
    """What the kernel measures in the handshake is the propagation delay (attacks depend on it); there is an ACK per packet."""
    result = run(wanted("kernel:reno", duration_s=1.5))
    first_s = float(result.run.flow_log["rtt_s"][0, 0])
    assert 0.04 <= first_s < 0.0425
    log = result.run.packet_log
    assert log is not None
    counts = [int((log["event"] == EVENTS.index(name)).sum()) for name in ("deliver", "ack")]
    assert abs(counts[0] - counts[1]) < 0.02 * counts[0] + 100


@pytest.mark.live
def test_finite_flows_end_and_stopped_flows_are_silent() -> None:
    flows = [
        {"sender": "kernel:reno", "rtt_ms": 40, "workload": {"kind": "finite", "size_bytes": 150_000}},
        {"sender": "kernel:reno", "rtt_ms": 60, "start_s": 0.5, "stop_s": 1.5},
    ]
    result = run({**wanted("kernel:reno"), "flows": flows, "warmup_s": 0, "duration_s": 2.5})
    done_s = result.summary()["flows"][0]["finished_s"]
    assert done_s is not None and 0.1 < done_s < 1.0
    log = result.run.packet_log
    assert log is not None
    sent_s = log["time_s"][(log["flow"] == 1) & (log["event"] == EVENTS.index("send"))]
    assert 0.5 <= sent_s.min() < 0.6 and sent_s.max() < 1.6
    sent = (log["flow"] == 0) & (log["event"] == EVENTS.index("send"))
    assert int(sent.sum()) >= 100


@pytest.mark.live
def test_unknown_congestion_control() -> None:
    with pytest.raises(LiveError, match=r"flow 0: the kernel has no congestion control 'nosuch'; it has "):
        run_live(wanted("kernel:nosuch"))


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a run of minutes in an empty folder; give the process and its worker."""
    data = {**wanted("kernel:reno"), "duration_s": 300}
    (tmp_path / "long.yaml").write_text(json.dumps(data), encoding="utf-8")
    process = subprocess.Popen([*COMMAND, "long.yaml"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert wait_until(lambda: bool(descendants(process.pid)), 300), "no worker was started"
        time.sleep(1.0)
        yield process, next(child for child, parent in parents().items() if parent == process.pid)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_nothing_is_left(tmp_path: Path, long_run: tuple[subprocess.Popen[str], int], number: int) -> None:
    process, worker = long_run
    assert wait_until(lambda: bool(descendants(worker)), 120), "nothing keeps the core awake"
    helpers = descendants(worker)
    process.send_signal(number)
    assert wait_until(lambda: process.poll() is not None, 60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert wait_until(lambda: not alive({worker}), 60), "the worker is left, and its namespaces with it"
    assert wait_until(lambda: not alive(helpers), 60), "what keeps the core awake is left"
    assert [file.name for file in tmp_path.iterdir()] == ["long.yaml"]


@pytest.mark.live
def test_command_line(tmp_path: Path) -> None:
    """Summary, trace, and a checker that accepts it."""
    (tmp_path / "short.yaml").write_text(json.dumps({**wanted("kernel:reno"), "duration_s": 1.5}), encoding="utf-8")
    done = subprocess.run(
        [*COMMAND, "short.yaml", "-s", f"tries={TRIES}", "--json", "--trace", "run.npz"], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    summary = json.loads(done.stdout)
    assert done.returncode == (0 if summary["valid"] else 1)
    assert {"flows", "links", "emulator", "valid", "why_not_valid"} <= set(summary)
    assert load_trace(tmp_path / "run.npz").header.notes.startswith("live, Linux ")
    command = [*COMMAND[:-1], "trace", "check", "run.npz"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.npz", "short.yaml"]


@pytest.mark.live
@pytest.mark.live_bpf
@pytest.mark.parametrize("jitter", [{}, pytest.param({"kind": "batch", "max_s": 0.04}, marks=pytest.mark.slow)])
def test_program_decides_as_its_twin(jitter: dict[str, Any]) -> None:
    """Bit for bit at every ACK of a run; its bounds hold; without jitter it uses the link as in the packet engine."""
    data = wanted("cc_probe_drain", duration_s=2.5, warmup_s=1, flow={"jitter": jitter} if jitter else {})
    result = run(data)
    recording = result.recordings[0]
    assert recording is not None and len(result.beliefs(0)) > 1000 and recording.difference() is None
    if not jitter:
        simulated = simulate_live(read_live_scenario(data)).summary["links"][0]["utilisation"]
        assert utilisation(result) == pytest.approx(simulated, abs=0.03)
    assert not [name for name in available_controls() if name.startswith("live")]


@pytest.mark.live
@pytest.mark.live_bpf
def test_a_loaded_program_goes_with_its_process(tmp_path: Path) -> None:
    """``ccenv live load``: others can choose it; a second one of its name is refused; killed, it is gone."""
    name = f"t{os.getpid()}"
    loading = [*COMMAND, "load", "cc_qdel", "-s", f"name={name}"]
    process = subprocess.Popen(loading, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline().startswith(f"loaded {name};")
        assert name in available_controls()
        second = command(tmp_path, *loading)
        assert second.returncode == 2 and f"a congestion control named {name} is loaded already" in second.stderr
        assert run_live(wanted(f"kernel:{name}", duration_s=1.2)).run.events > 100
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: name not in available_controls(), 60) and list(tmp_path.iterdir()) == []
