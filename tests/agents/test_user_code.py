"""Senders from files that fail: named with file and line, others run on; a changed file is refused before it runs."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

import numpy as np
import pytest

from ccenv.agents import callbacks as signals
from ccenv.agents.load import as_sender, load_sender
from ccenv.agents.python_sender import Ack, Loss, PythonSender, Tick
from ccenv.base.errors import EngineError, InputError
from ccenv.base.user import limits
from ccenv.base.user.python_file import hashes_of, held
from ccenv.benchmarks.compare import compare
from ccenv.benchmarks.run.runner import evaluate, run_suite
from ccenv.simulation import simulate

COMPILED = """
from ccenv.agents.callbacks import state_record
STATE = state_record("keep")
def init(state):
    state.keep = 0.5
    state.cwnd_bytes, state.pacing_rate_Bps = 10 * state.mss_bytes, float("inf")
def on_ack(state, ack):
    state.cwnd_bytes += state.mss_bytes * ack.acked_bytes / state.cwnd_bytes
def on_loss(state, loss):
    if loss.new_episode > 0:
        state.cwnd_bytes = max(state.mss_bytes, state.keep * state.cwnd_bytes)
def on_tick(state, tick):
    pass
"""
NAN = COMPILED.replace("max(state.mss_bytes, state.keep * state.cwnd_bytes)", "float('nan')")
PLAIN = """
import ccenv
class Plain(ccenv.PythonSender):
    def on_ack(self, ack):
        self.cwnd_bytes += self.mss_bytes * ack.acked_bytes / self.cwnd_bytes
"""
STARTS = (
    PLAIN.replace("self.cwnd_bytes +=", "self.seen += self.times\n        self.times += 1\n        self.cwnd_bytes +=").replace(
        "(ccenv.PythonSender):", "(ccenv.PythonSender):\n    times = 0"
    )
    + "    def on_start(self):\n        self.seen = 0\n"
)
LOOPS = PLAIN + "    def on_tick(self, tick):\n        while tick.now_s > 0.3:\n            pass\n"


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COMPILED.replace("on_ack(state, ack)", "on_ack(state)"), r"mine\.py:7: on_ack\(state\) must take \(state, ack\)"),
        (COMPILED.replace("def on_loss", "def on_los"), "on_loss missing"),
        (COMPILED.replace('state_record("keep")', "3"), "STATE is 3"),
        (COMPILED.replace("state.keep *", "state.kept *"), r"mine\.py:11: AttributeError"),
        (COMPILED.replace("10 * state.mss_bytes", "0"), r"mine\.py:4: after init, cwnd_bytes is 0"),
        (
            COMPILED.replace("max(state.mss_bytes, state.keep * state.cwnd_bytes)", "float('nan')"),
            r"mine\.py:9: after on_loss, cwnd_bytes is nan",
        ),
        (PLAIN.replace("(self, ack)", "(self)"), r"mine\.py:4: on_ack\(self\) must take \(self, ack\)"),
        (PLAIN.replace("on_ack", "on_ak"), "Did you mean 'on_ack'"),
        (PLAIN.replace("def on_ack(self, ack)", "def __init__(self, x)"), r"TypeError"),
    ],
)
def test_what_is_wrong_is_found_before_the_run(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_sender(write(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[
            (PLAIN.replace("self.cwnd_bytes +=", f"self.{name} ="), rf"mine\.py:4: on_ack set '{name}'.* Did you mean '{meant}'")
            for name, meant in {
                "cwnd": "cwnd_bytes",
                "cwnd_byte": "cwnd_bytes",
                "pacing_rate": "pacing_rate_Bps",
                "pacing_rate_bps": "pacing_rate_Bps",
            }.items()
        ],
        (STARTS.replace("self.seen", "self.cwnd"), r"mine\.py:\d+: on_start set 'cwnd'.* Did you mean 'cwnd_bytes'"),
        (STARTS.replace("self.seen +=", "self.sene ="), r"mine\.py:5: on_ack set 'sene'.* Did you mean 'seen'"),
    ],
)
def test_an_attribute_that_nothing_reads_is_refused(text: str, message: str, tmp_path: Path) -> None:
    row = compare([write(tmp_path, text)], rate="12mbps", duration="1s").rows[0]
    assert re.search(message, row.error)


def test_state_of_the_class_and_of_the_start_is_known(tmp_path: Path) -> None:
    assert compare([write(tmp_path, STARTS)], rate="12mbps", duration="1s").rows[0].error == ""


@pytest.mark.parametrize(("shape", "record"), [(Ack, signals.ACK), (Loss, signals.LOSS), (Tick, signals.TICK)])
def test_the_types_have_the_fields_of_the_records(shape: type[Ack], record: np.dtype) -> None:
    assert shape._fields == record.names


def test_a_loop_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_LIMIT_S", 0.5)
    found = compare([write(tmp_path, LOOPS), "reno"], rate="12mbps", duration="1s")
    assert re.search(r"mine\.py:[78]: TimeoutError: on_tick has not come back within 0\.5 s", found.rows[0].error)
    assert found.rows[1].error == ""
    early = COMPILED.replace("def on_tick(state, tick):\n    pass", "def on_tick(state, tick):\n    while True:\n        pass")
    with pytest.raises(InputError, match=r"mine\.py:1[34]: on_tick has not come back"):
        load_sender(write(tmp_path, early))
    with pytest.raises(InputError, match=r"mine\.py:[12]: loading"):
        monkeypatch.setattr(limits, "LOAD_LIMIT_S", 0.5)
        load_sender(write(tmp_path, "while True:\n    pass\n"))


def test_compiled_functions_that_loop_late_end_with_their_process(tmp_path: Path) -> None:
    late = COMPILED.replace(
        "def on_ack(state, ack):", "def on_ack(state, ack):\n    while ack.now_s > 2.8:\n        state.keep = 0.5"
    )
    for _ in range(2):  # the first one may compile; a loop takes the limit's CPU time
        begin = time.monotonic()
        compare([write(tmp_path, COMPILED), "reno"], rate="12mbps", duration="4s", limit="600s")
    enough_s = min(60, 2 + math.ceil(2 * (time.monotonic() - begin)))  # of this machine, also where it does other things
    found = compare([write(tmp_path, late), "reno"], rate="12mbps", duration="4s", limit=f"{enough_s}s")
    assert f"no result after {enough_s} s" in found.rows[0].error
    assert found.rows[1].error == ""


def test_a_suite_goes_on_without_a_failing_sender(tmp_path: Path) -> None:
    bad = write(tmp_path, PLAIN + "        1 / 0\n")
    only = ["deep/mine/*/1", "deep/reno/kind/1"]
    found = run_suite("quick", tmp_path / "out", extra_agents=[bad], only=only, pictures=False)
    assert [entry["agent"] for entry in found["summary"]] == ["reno"]
    assert {one["agent"] for one in found["failed"]} == {"mine"}
    assert "mine.py:6: ZeroDivisionError" in found["failed"][0]["error"]
    assert not found["complete"]
    with pytest.raises(EngineError, match=r"mine\.py:6: ZeroDivisionError"):
        evaluate("quick", bad, seeds=[1])
    write(tmp_path, PLAIN)
    again = run_suite("quick", tmp_path / "out", extra_agents=[bad], only=only, pictures=False)
    assert again["failed"] == []
    assert {entry["agent"] for entry in again["summary"]} == {"mine", "reno"}


def test_a_changed_file_is_refused_before_it_runs(tmp_path: Path) -> None:
    file = write(tmp_path, PLAIN)
    hashes = hashes_of([file, "reno", 3])
    ran = tmp_path / "ran"
    write(tmp_path, f"open({str(ran)!r}, 'w')\n{PLAIN}")
    with held(hashes), pytest.raises(InputError, match=r"mine\.py changed while the run went on"):
        load_sender(file)
    assert not ran.exists()
    load_sender(file)
    assert ran.exists()


def test_nothing_is_left_beside_a_file(tmp_path: Path) -> None:
    load_sender(write(tmp_path, PLAIN))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_classes_and_objects_are_senders_too() -> None:
    class Still(PythonSender):
        """Keeps its window."""

    found = compare([Still, as_sender("vegas")], rate="12mbps", duration="1s")
    assert [row.sender for row in found.rows] == ["Still", "vegas"]
    flows = [{"sender": "own", "rtt_ms": 20}]
    run = simulate({"links": [{"rate_mbps": 12}], "flows": flows, "duration_s": 1}, senders={"own": Still})
    assert run.summary()["flows"][0]["throughput_mbps"] > 1
