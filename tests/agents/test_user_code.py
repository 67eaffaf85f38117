"""Senders from a user's Python file, in both forms and engines: what plays, failures with file and line, who never runs it."""

import math
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.adversaries import make_adversary
from ccenv.agents import callbacks as signals
from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.load import as_sender, load_sender, python_sender
from ccenv.agents.python_sender import Ack, Loss, PythonSender, Tick
from ccenv.agents.sender import ClassicSender
from ccenv.base.errors import CcenvError, EngineError, InputError
from ccenv.base.user import limits
from ccenv.base.user.python_file import _loaded_content, hash_files, held
from ccenv.benchmarks.cells.cell import agent_player, build_sender
from ccenv.benchmarks.compare import compare
from ccenv.benchmarks.run.runner import evaluate, run_suite
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import FlowSpec, LinkSpec, NetworkSpec
from ccenv.network.path import make_path
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
    def __init__(self, increase=1.0):
        self.increase = increase
    def on_ack(self, ack):
        self.cwnd_bytes += self.increase * self.mss_bytes * ack.acked_bytes / self.cwnd_bytes
    def on_loss(self, loss):
        if loss.new_episode > 0:
            self.cwnd_bytes = max(self.mss_bytes, 0.5 * self.cwnd_bytes)
"""
GROWS = """
import ccenv
class Plain(ccenv.PythonSender):
    def on_ack(self, ack):
        self.cwnd_bytes += self.mss_bytes * ack.acked_bytes / self.cwnd_bytes
"""
STARTS = (
    GROWS.replace("self.cwnd_bytes +=", "self.seen += self.times\n        self.times += 1\n        self.cwnd_bytes +=").replace(
        "(ccenv.PythonSender):", "(ccenv.PythonSender):\n    times = 0"
    )
    + "    def on_start(self):\n        self.seen = 0\n"
)
LOOPS = GROWS + "    def on_tick(self, tick):\n        while tick.now_s > 0.3:\n            pass\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (COMPILED.replace("on_ack(state, ack)", "on_ack(state)"), r"mine\.py:7: on_ack\(state\) must take \(state, ack\)"),
        (COMPILED.replace("def on_loss", "def on_los"), "on_loss missing"),
        (COMPILED.replace('state_record("keep")', "3"), "STATE is 3"),
        (COMPILED.replace("state.keep *", "state.kept *"), r"mine\.py:11: AttributeError"),
        (COMPILED.replace("10 * state.mss_bytes", "0"), r"mine\.py:4: after init, cwnd_bytes is 0"),
        (NAN, r"mine\.py:9: after on_loss, cwnd_bytes is nan"),
        (GROWS.replace("(self, ack)", "(self)"), r"mine\.py:4: on_ack\(self\) must take \(self, ack\)"),
        (GROWS.replace("on_ack", "on_ak"), "Did you mean 'on_ack'"),
        (GROWS.replace("def on_ack(self, ack)", "def __init__(self, x)"), r"TypeError"),
        ("x = (", r"mine\.py:1: SyntaxError"),
        ("\nimport no_such_module_at_all", r"mine\.py:2: ModuleNotFoundError"),
        ("a = 1", "defines no sender"),
        (PLAIN + "class Second(Plain):\n    pass\n", "several senders"),
        ("def sender():\n    return 3", "returned 'int', not a sender"),
        ("def sender():\n    raise KeyError('k')", "KeyError"),
        ("sender = 'reno'", "defines no sender"),
    ],
)
def test_what_is_wrong_is_found_before_the_run(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_sender(write(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("mine.py", "mine.py:Plian", "Did you mean 'Plain'"),
        ("mine.py", "mine.py:Plain:increas=2", r"unknown parameter 'increas'\. Did you mean 'increase'"),
        ("cubic.py", "cubic.py", r"cubic\.py:\d+: 'cubic' is the name of a registered agent"),
        ("mine.py", "absent.py", "No such file"),
    ],
)
def test_wrong_names_have_suggestions(name: str, spec: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, PLAIN, name)
    with pytest.raises(InputError, match=message):
        load_sender(f"{tmp_path}/{spec}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[
            (GROWS.replace("self.cwnd_bytes +=", f"self.{name} ="), rf"mine\.py:4: on_ack set '{name}'.* Did you mean '{meant}'")
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
    head = "def on_ack(state, ack):"
    late = COMPILED.replace(head, f"{head}\n    while ack.now_s > 2.8:\n        state.keep = 0.5")
    file = write(tmp_path, late)
    for _ in range(2):  # the first one may compile
        begin = time.monotonic()
        ends = compare([file], rate="12mbps", duration="2s", seeds=1, limit="600s")
        assert ends.rows[0].error == ""
    enough_s = min(60, 2 + math.ceil(2 * (time.monotonic() - begin)))  # of this machine, also where it does other things
    found = compare([file, "reno"], rate="12mbps", duration="4s", seeds=1, limit=f"{enough_s}s")
    assert f"no result after {enough_s} s" in found.rows[0].error
    assert found.rows[1].error == ""


def test_a_suite_goes_on_without_a_failing_sender(tmp_path: Path) -> None:
    bad = write(tmp_path, GROWS + "        1 / 0\n")
    only = ["deep/mine/*/1", "deep/reno/kind/1"]
    found = run_suite("quick", tmp_path / "out", extra_agents=[bad], only=only, pictures=False)
    assert [entry["agent"] for entry in found["summary"]] == ["reno"]
    assert {one["agent"] for one in found["failed"]} == {"mine"}
    assert "mine.py:6: ZeroDivisionError" in found["failed"][0]["error"]
    assert not found["complete"]
    with pytest.raises(EngineError, match=r"mine\.py:6: ZeroDivisionError"):
        evaluate("quick", bad, seeds=[1])
    write(tmp_path, GROWS)
    again = run_suite("quick", tmp_path / "out", extra_agents=[bad], only=only, pictures=False)
    assert again["failed"] == [] and {entry["agent"] for entry in again["summary"]} == {"mine", "reno"}


def test_a_changed_file_is_refused_before_it_runs(tmp_path: Path) -> None:
    file = write(tmp_path, GROWS)
    hashes = hash_files([file, "reno", 3])
    ran = tmp_path / "ran"
    write(tmp_path, f"open({str(ran)!r}, 'w')\n{GROWS}")
    with held(hashes), pytest.raises(InputError, match=r"mine\.py changed while the run went on"):
        load_sender(file)
    assert not ran.exists()
    load_sender(file)
    assert ran.exists()


def test_nothing_is_left_beside_a_file(tmp_path: Path) -> None:
    load_sender(write(tmp_path, GROWS))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_classes_and_objects_are_senders_too() -> None:
    class Still(PythonSender):
        """Keeps its window."""

    found = compare([Still, as_sender("vegas")], rate="12mbps", duration="1s")
    assert [row.sender for row in found.rows] == ["Still", "vegas"]
    flows = [{"sender": "own", "rtt_ms": 20}]
    run = simulate({"links": [{"rate_mbps": 12}], "flows": flows, "duration_s": 1}, senders={"own": Still})
    assert run.summary()["flows"][0]["throughput_mbps"] > 1


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def per_packet(sender: str, duration_s: float = 4.0) -> Any:
    flows = [{"sender": sender, "rtt_ms": 20}, {"sender": sender, "rtt_ms": 30, "start_s": 0.5}]
    return simulate({"links": [{"rate_mbps": 12, "buffer_bdp": 1}], "flows": flows, "duration_s": duration_s})


class Wrapped(PythonSender):
    """A classic CCA's plain functions, called from Python."""

    def __init__(self, name: str) -> None:
        self._cca: Any = make_sender(name)

    def _record(self) -> Any:
        state = np.zeros(1, self._cca.state).view(np.recarray)[0]
        for name, value in self._cca.parameters.items():
            state[name] = value
        state.mss_bytes = self.mss_bytes
        return state

    def _take(self) -> None:
        self.cwnd_bytes, self.pacing_rate_Bps = float(self._state.cwnd_bytes), float(self._state.pacing_rate_Bps)

    def on_start(self) -> None:
        self._state = self._record()
        self._cca.init(self._state)
        self._take()

    def on_ack(self, ack: Any) -> None:
        self._cca.on_ack(self._state, ack)
        self._take()

    def on_loss(self, loss: Any) -> None:
        self._cca.on_loss(self._state, loss)
        self._take()

    def on_tick(self, tick: Any) -> None:
        self._cca.on_tick(self._state, tick)
        self._take()


def curve_run(senders: list[ClassicSender], steps: int = 300) -> np.ndarray:
    path = make_path(link_rate_mbps=12, rtt_ms=20, jitter_ms=20, buffer_bdp=2, n_flows=len(senders))
    engine = CurveEngine([path], model="ccac", senders=senders, adversary=make_adversary("uniform"), record=True)
    engine.advance(steps)
    trace = engine.trace(0)
    return np.concatenate([trace.A, trace.S, trace.cwnd_bytes], axis=1)


@pytest.mark.parametrize("name", ["reno", "vegas", "copa"])
def test_a_cca_in_plain_python_is_the_compiled_one_bit_for_bit(name: str) -> None:
    compiled: Any = make_sender(name)
    plain = python_sender(Wrapped, {"name": name})
    np.testing.assert_array_equal(curve_run([compiled, compiled]), curve_run([plain, plain]))


def test_per_packet_plain_python_and_compiled_agree_bit_for_bit(tmp_path: Path) -> None:
    compiled, plain = per_packet(write(tmp_path, COMPILED)), per_packet(write(tmp_path, PLAIN, "plain.py"))
    for name in compiled.flow_log.dtype.names:
        np.testing.assert_array_equal(compiled.flow_log[name], plain.flow_log[name])
    assert compiled.summary()["links"][0]["utilisation"] > 0.8


def test_parameters_and_attributes(tmp_path: Path) -> None:
    file = write(tmp_path, PLAIN)
    slow, fast = per_packet(f"{file}:Plain:increase=0.2"), per_packet(f"{file}:Plain:increase=3")
    assert slow.flow_log["sent_bytes"][200, 0] < fast.flow_log["sent_bytes"][200, 0]
    assert load_sender(f"{file}:Plain:increase=3").name == "mine.Plain:increase=3"


def test_a_snapshot_holds_the_state_of_plain_python() -> None:
    path = make_path(link_rate_mbps=12, rtt_ms=20, jitter_ms=20, buffer_bdp=2)
    engine = CurveEngine([path] * 2, model="ccac", senders=[python_sender(Wrapped, {"name": "cubic"})])
    engine.advance(200)
    kept = engine.snapshot()
    ends = []
    for _ in range(2):
        engine.advance(200)
        ends.append(engine.flow("A"))
        engine.restore(kept)
    np.testing.assert_array_equal(*ends)
    engine.advance(200)
    engine.restore(kept, np.array([1]))
    engine.advance(200)
    assert engine.flow("A")[0, 0] > engine.flow("A")[1, 0] == ends[0][1, 0]


@pytest.mark.parametrize("method", ["on_start", "on_ack", "on_loss", "on_tick"])
def test_an_exception_ends_the_run_with_file_and_line(method: str, tmp_path: Path) -> None:
    arguments = "self" if method == "on_start" else "self, signal"
    text = f"{PLAIN}\n    def {method}({arguments}):\n        raise RuntimeError('of mine')\n"
    line = text[: text.index("raise")].count("\n") + 1
    file = write(tmp_path, text)
    with pytest.raises(EngineError, match=rf"mine\.py:{line}: RuntimeError: of mine"):
        per_packet(file)
    with pytest.raises(EngineError, match=rf"mine\.py:{line}: RuntimeError: of mine"):
        curve_run([load_sender(file), load_sender(file)], 3000)  # type: ignore[list-item]


def test_an_error_in_a_sender_names_it_and_ctrl_c_goes_through(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"mine\.py:\d+: on_tick left cwnd_bytes at nan"):
        per_packet(write(tmp_path, PLAIN + "\n    def on_tick(self, tick):\n        self.cwnd_bytes = float('nan')\n"))
    with pytest.raises(EngineError, match="could not convert string"):
        per_packet(write(tmp_path, PLAIN + "\n    def on_tick(self, tick):\n        self.cwnd_bytes = 'many'\n"))
    with pytest.raises(KeyboardInterrupt):
        per_packet(write(tmp_path, PLAIN + "\n    def on_tick(self, tick):\n        raise KeyboardInterrupt\n"))


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    file = write(tmp_path, COMPILED)
    player = agent_player(file, code=True)
    assert player.kind == "file" and sender_hash(build_sender(player)) == player.sha256
    write(tmp_path, COMPILED.replace("0.5", "0.6"))
    assert agent_player(file, code=True).sha256 != player.sha256
    with pytest.raises(InputError, match="changed while the run went on"):
        build_sender(player)


UNSURE = """
try:
    from .package_of_user import KEEP
except ImportError:
    from package_of_user import KEEP
"""


def test_the_hash_is_of_what_the_file_imports_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "package_of_user").mkdir()
    (tmp_path / "package_of_user" / "__init__.py").write_text("from .deep import KEEP\n")
    hashes = set()
    for keep in ("0.5", "0.6", "0.5"):
        (tmp_path / "package_of_user" / "deep.py").write_text(f"KEEP = {keep}\n")
        file = write(tmp_path, UNSURE + COMPILED.replace("0.5", "KEEP"))
        player = agent_player(file, code=True)
        assert sender_hash(build_sender(player)) == player.sha256
        hashes.add(player.sha256)
        _loaded_content.cache_clear()
        for module in [name for name in sys.modules if name.startswith(("package_of_user", "ccenv_user_mine"))]:
            del sys.modules[module]
    assert len(hashes) == 2


def test_data_never_runs_a_file(tmp_path: Path) -> None:
    file = write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n{PLAIN}")
    for build in (make_sender, agent_player):
        with pytest.raises(InputError, match="is Python"):
            build(file)
    with pytest.raises(CcenvError):
        make_sender(f"lambda_proxy:inner={file}")
    assert not (tmp_path / "ran").exists()


def test_a_sender_per_packet_hears_of_each_lost_packet() -> None:
    """One signal per segment, with what was in flight and lost; without per_packet one for all that an ACK shows."""
    heard = {}
    for per_packet in (True, False):
        told: list[tuple[float, ...]] = []

        class Full(PythonSender):
            def on_start(self, told: list[tuple[float, ...]] = told) -> None:
                self.cwnd_bytes = 200 * self.mss_bytes
                self.told = told

            def on_loss(self, loss: Any) -> None:
                self.told.append((loss.lost_bytes, loss.tx_inflight_bytes, loss.lost_since_bytes))

        Full.per_packet = per_packet
        network = NetworkSpec(links=(LinkSpec(rate_Bps=1.5e6, buffer_bytes=3e4),), flows=(FlowSpec(sender="reno", rtt_s=0.04),))
        PacketEngine(network, [python_sender(Full)], duration_s=1.0).advance(1.0)
        heard[per_packet] = np.array(told)
    assert set(heard[True][:, 0]) == {1500.0} and np.all(heard[True][:, 1] >= 1500.0)
    assert np.all(heard[True][:, 1] <= 200 * 1500.0) and np.all(heard[True][:, 2] >= 1500.0)
    assert not heard[False][:, 1:].any() and heard[False][:, 0].max() > 1500.0
    assert heard[False][:, 0].sum() == heard[True][:, 0].sum()
