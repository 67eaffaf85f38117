"""The chooser of a shield outside the kernel: what it sees and answers; and that no answer, or none at all, does harm."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from processes import descendants

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION, fill_observation
from ccenv.agents.sender import ShieldSender
from ccenv.cli import main as cli
from ccenv.engine.compiled.policies import SCRATCH_ROWS, act_on_beliefs
from ccenv.engine.curve.layout import ENV_DTYPE, FLOW_DTYPE
from ccenv.live import run_live
from ccenv.live.export import ExportError
from ccenv.live.export.bpf import POSITION_BITS, load_exported

if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)

from ccenv.live.system.chooser import CHOICE_DTYPE, CHOICES, Chooser

ONE, RTT_US, MSS_BYTES = 1 << 24, 40_000, 1500.0
WHOLE = 1 << POSITION_BITS


def shield(chooser: str = "policy") -> ShieldSender:
    sender = make_sender("learned_shield_u80" if chooser == "policy" else f"shield:chooser={chooser}")
    assert isinstance(sender, ShieldSender)
    return sender


def asked(choices: np.ndarray, slot: int, number: int, seed: int = 0) -> None:
    """Write a decision as the kernel does."""
    rng = np.random.default_rng(seed)
    choice = choices[slot]
    choice["begun"] = number
    for name, most in (("C_L", 30), ("C_U", 40), ("C_L_lambda", 20), ("q_U", 300), ("rate", 30)):
        choice[name] = int(rng.uniform(1, most) * ONE)
    if seed % 3 == 0:
        choice["C_U"] = 2**64 - 1
    choice["qdel_L_steps"], choice["qdel_U"], choice["rtt_us"] = rng.integers(0, 20), rng.integers(0, 10**6), RTT_US
    choice["utilised"], choice["sent"], choice["lost"] = rng.integers(0, 2), rng.integers(1, 400), rng.integers(0, 9)
    choice["in_flight"] = rng.integers(0, 500)
    choice["asked"] = number


def position_by_the_engine(choice: np.ndarray, sender: ShieldSender) -> float:
    """Return what the engine's chooser does with the same beliefs, in bytes and seconds."""
    from ccenv.engine.compiled.policies import MAX_WIDTH, memory_words, pack_policies

    assert sender.policy is not None
    rtt_s = RTT_US * 1e-6
    unit = MSS_BYTES / ONE * 8 / rtt_s
    env, flow = np.zeros(1, ENV_DTYPE)[0], np.zeros(1, FLOW_DTYPE)[0]
    env["mss_bytes"], flow["rtt_s"] = MSS_BYTES, rtt_s
    for name, of in (("C_L_Bps", "C_L"), ("C_L_lambda_Bps", "C_L_lambda"), ("rate_Bps", "rate")):
        flow[name] = float(choice[of]) * unit
    flow["C_U_Bps"] = np.inf if choice["C_U"] == 2**64 - 1 else float(choice["C_U"]) * unit
    flow["q_U_bytes"] = float(choice["q_U"]) / ONE * MSS_BYTES
    flow["qdel_L_s"], flow["qdel_U_s"] = float(choice["qdel_L_steps"]) * rtt_s / 8, float(choice["qdel_U"]) / 8e6
    flow["utilised"] = choice["utilised"]
    flow["sent_last_interval_bytes"], flow["lost_last_interval_bytes"] = choice["sent"] * MSS_BYTES, choice["lost"] * MSS_BYTES
    flow["A"] = choice["in_flight"] * MSS_BYTES
    observation, scratch = np.zeros(N_OBSERVATION), np.zeros((SCRATCH_ROWS, MAX_WIDTH))
    fill_observation(env, flow, observation)
    weights, policies = pack_policies([sender.policy])
    action = act_on_beliefs(policies[0], weights, observation, np.zeros(memory_words(sender.policy)), scratch)
    return 0.5 * (float(action) + 1.0)


def test_it_chooses_as_in_the_engine() -> None:
    """The same beliefs, the same position: the fixed-point numbers of the kernel and the engine's bytes."""
    choices = np.zeros(CHOICES, CHOICE_DTYPE)
    chooser = Chooser(shield(), choices)
    found = []
    for seed in range(40):
        slot, number = seed % CHOICES, 2 + seed
        asked(choices, slot, number, seed)
        assert chooser.serve() == 1 and int(choices["answer"][slot]) >> 32 == number
        position = int(choices["answer"][slot]) % 2**32
        assert position / WHOLE == pytest.approx(position_by_the_engine(choices[slot], shield()), abs=1e-5)
        found.append(position)
    assert len(set(found)) > 10 and chooser.serve() == 0


def test_a_decision_that_is_being_written_waits() -> None:
    choices = np.zeros(CHOICES, CHOICE_DTYPE)
    chooser = Chooser(shield("random"), choices)
    asked(choices, 3, 7)
    choices["begun"][3] = 8
    assert chooser.serve() == 0
    choices["asked"][3] = 8
    assert chooser.serve() == 1 and int(choices["answer"][3]) >> 32 == 8


def test_random_positions_are_those_of_the_seed() -> None:
    runs = []
    for seed in (1, 1, 2):
        choices = np.zeros(CHOICES, CHOICE_DTYPE)
        chooser = Chooser(shield("random"), choices, seed)
        for number in range(1, 30):
            asked(choices, 0, number)
            chooser.serve()
            runs.append((seed, int(choices["answer"][0]) % 2**32))
    of = [[position for given, position in runs[29 * k : 29 * k + 29]] for k in range(3)]
    assert of[0] == of[1] != of[2] and 0 <= min(of[0]) < WHOLE / 4 < 3 * WHOLE / 4 < max(of[0]) <= WHOLE


def test_choosers_are_named(refused, tmp_path: Path) -> None:
    assert load_exported("learned_shield_u80").chooser == "user" and load_exported("shield:chooser=lo").chooser == "lo"
    with pytest.raises(ExportError, match="an environment chooses"):
        load_exported("shield:chooser=external")
    file = str(tmp_path / "x.c")
    refused(
        ["export", "learned_shield_u80", "-s", "chooser=middel", "-s", "name=x", "-o", file],
        "unknown chooser 'middel'; it must be one of lo, middle, hi, user, policy",
    )
    refused(["export", "cc_qdel", "-s", "chooser=lo", "-o", file], "cc_qdel is no shield: there is nothing to choose for 'lo'")
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["export", "learned_shield_u80", "-s", "chooser=middle", "-s", "name=x", "-o", file]) == 0
    assert "#define POSITION 32768\n" in Path(file).read_text(encoding="ascii")


def wanted(sender: str, duration_s: float = 2.5) -> dict[str, object]:
    flow = {"sender": sender, "rtt_ms": 40}
    link = {"rate_mbps": 24, "buffer_bdp": 2}
    return {"name": "test", "duration_s": duration_s, "warmup_s": 1, "links": [link], "flows": [flow]}


def chooser_of(pid: int) -> int | None:
    for child in descendants(pid):
        with suppress(OSError):
            if b"ccenv.live.system.chooser" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return child
    return None


def woken(pid: int) -> int:
    """Return how often a process has waited."""
    try:
        status = (Path("/proc") / str(pid) / "status").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.live
@pytest.mark.live_bpf
def test_a_killed_chooser_leaves_the_middle() -> None:
    """The policy answers in the kernel's map; killed in the run, the middle follows: as in the twin, and in the interval."""
    ended = threading.Event()

    def kill() -> None:
        while not ended.is_set():
            found = chooser_of(os.getpid())
            if found is not None and is_asked(found):
                os.kill(found, signal.SIGKILL)
                return
            time.sleep(0.02)

    def is_asked(pid: int) -> bool:
        """Once it serves it waits for a second at most: one that wakes up more often is asked."""
        try:
            if os.sched_getscheduler(pid) != os.SCHED_FIFO:
                return False
        except ProcessLookupError:
            return False
        before, begun = woken(pid), time.monotonic()
        while before > 0 and time.monotonic() - begun < 0.5:
            time.sleep(0.05)
            if woken(pid) > before + 8:
                return True
        return False

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        result = run_live(wanted("learned_shield_u80"))
    finally:
        ended.set()
        killer.join()
    recording = result.recordings[0]
    assert recording is not None and recording.difference() is None
    said = recording.choices()
    assert 3 < said["answered"] < said["decisions"] - 10
    records = recording.records
    decided = records[records["asked"] > 0]
    assert set(decided["position"][decided["asked"] > said["answered"] + 2].tolist()) == {WHOLE // 2}
    assert len(set(decided["position"].tolist())) > 5 and (decided["lo"] <= decided["rate"]).all()
    assert (decided["rate"] <= decided["hi"]).all() and chooser_of(os.getpid()) is None


@pytest.mark.live
@pytest.mark.live_bpf
@pytest.mark.slow
@pytest.mark.parametrize("chooser", ["lo", "middle", "hi", "random", "kernel"])
def test_every_chooser_runs_as_its_twin(chooser: str) -> None:
    data = wanted("learned_shield_u80" if chooser == "kernel" else f"shield:chooser={chooser}")
    recording = run_live({**data, "chooser": "kernel"}).recordings[0]
    assert recording is not None and recording.difference() is None and recording.choices()["decisions"] > 30


@pytest.mark.live
@pytest.mark.live_bpf
@pytest.mark.slow
def test_a_loaded_shield_chooses_for_others(tmp_path: Path) -> None:
    """``ccenv live load``: flows that choose it by its name are answered; gone with its process."""
    name = f"c{os.getpid()}"
    command = [sys.executable, "-m", "ccenv.cli.main", "live", "load", "learned_shield_u80", "-s", f"name={name}", "--json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        assert json.loads("".join(lines)) == {"loaded": name, "program": "learned_shield_u80", "chooser": "user"}
        result = run_live(wanted(f"kernel:{name}"))
        assert result.summary()["links"][0]["utilisation"] > 0.85
    finally:
        process.kill()
        process.wait()
