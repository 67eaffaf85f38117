"""Live scenarios: what is read, what is refused, and what a failure says."""

import errno
import io
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_recording import append_record, parse_thinning, read_cases, read_records, record_scenario, scenario_of

from ccenv.agents.synthesized import shipped_program
from ccenv.attacks.run import attack
from ccenv.attacks.store import stored_moves
from ccenv.base.errors import CcenvError, InputError, UnknownNameError
from ccenv.engine.packet.layout import EVENT_STRIDE, FLOW_LOG, LINK_LOG
from ccenv.live import (
    LiveError,
    LiveResult,
    load_live_scenario,
    programs,
    read_live_scenario,
    requirements,
    run,
    valid_run,
    worker,
)
from ccenv.live.attacks import attack_scenario, moves_against, shipped_moves
from ccenv.live.comparison import simulate_live
from ccenv.live.emulator.layout import BACKLOG, FLOW_DTYPE, HOST, MACHINE, RUN_DTYPE, STALL_DTYPE, STALLS, UNKNOWN
from ccenv.live.export import export_bpf
from ccenv.live.export.bpf import compile_bpf
from ccenv.live.kernel_records import SENDERS, SUITE, control_scenarios, run_suite, shipped_record
from ccenv.live.programs import make_senders
from ccenv.live.requirements import Needs, Refused, require_bpf
from ccenv.live.run import count_tries
from ccenv.live.scenario import kernel_cca
from ccenv.live.system import spaces
from ccenv.live.system.loader import Program, Refusal
from ccenv.network.adversary import load_moves

LINK: dict[str, Any] = {"rate_mbps": 24, "buffer_bdp": 1}
FLOW: dict[str, Any] = {"sender": "kernel:reno", "rtt_ms": 40}
BOX = {"kind": "adversary", "max_s": 0.04, "adversary": "square"}


def data(link: dict[str, Any] | None = None, flow: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"links": [{**LINK, **(link or {})}], "flows": [{**FLOW, **(flow or {})}], "duration_s": 2, **more}


@pytest.mark.parametrize(("given", "words"), [
    (data(link={"discipline": "codel"}), "links.0.discipline 'codel' is not emulated; drop_tail is"),
    (data(link={"policer": {"rate_mbps": 1, "burst_bytes": 15000}}), "links.0.policer is not emulated; leave it out"),
    ({**data(), "links": [{"generator": {"kind": "wifi", "mean_mbps": 24}, "buffer_bdp": 1}]}, "generator is not emulated"),
    (data(applications=[{"kind": "call", "flow": "kernel:reno"}]), "applications is not emulated; leave it out"),
    (data(flow={"workload": {"kind": "web", "size_bytes": 1e4, "every_s": 1}}), "flows.0.workload.kind 'web' is not emulated"),
    (data(link={"rate_mbps": 5000}), "at most 1000 is"), (data(mss_bytes=9000), "mss_bytes 9000.0 is not emulated"),
    (data(mss_bytes=1000.5), "mss_bytes 1000.5 is not emulated"), (data(duration_s=1e4), "duration_s 10000.0 is not emulated"),
    (data(log_s=1e-5), "log_s 1e-05 is not emulated; at least 0.001 is"),
    (
        {**data(), "flows": [{**FLOW, "jitter": {**BOX, "adversary": "network_drain"}}] * 2},
        "flows.0.jitter.adversary: network_drain was trained on another number of flows than 2",
    ),
    (
        data(flow={"jitter": {**BOX, "adversary": "network_drain"}}, steps_per_rtt=16),
        "steps_per_rtt 16 is not emulated; with a learned adversary 8 is",
    ),
    (data(flow={"jitter": BOX, "loss_rate": 0.1}, model="ccac"), "flows.0.loss_rate 0.1 is not emulated; 0 is in ccac"),
    (data(flow={"receiver": {"quick_acks": 9}}), "flows.0.receiver.quick_acks 9 is not emulated; the kernel decides"),
    (data(flow={"recovery": "rack"}), "flows.0.recovery is not emulated; leave it out"),
    (data(flow={"reordering": {"share": 0.1, "extra_ms": 1}}), "flows.0.reordering is not emulated; leave it out"),
    (data(model="ccac"), "model ccac needs jitter of kind adversary"),
    (data(flow={"sender": "kernel:"}), "the kernel's names have 1 to 15 letters"),
    (data(flow={"sender": "kernel:no/such"}), "the kernel's names have 1 to 15 letters"),
    ({**data(), "links": [LINK, {**LINK, "name": "b"}]}, "one link is"), ({**data(), "flows": [FLOW] * 17}, "at most 16 are"),
    ({**data(), "flows": [{**FLOW, "jitter": BOX}, {**FLOW, "jitter": {**BOX, "adversary": "batch"}}]}, "different adversaries"),
])  # fmt: skip
def test_what_is_not_emulated_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(LiveError, match=f"^live: .*{re.escape(words)}"):
        read_live_scenario(given)


@pytest.mark.parametrize("given", [
    data(model="strong"), data(device="wire"), data(packets_per_burst=-1), data(steps_per_rtt=0),
    data(flow={"jitter": {**BOX, "adversary": "nobody"}}),
])  # fmt: skip
def test_bad_values_are_input_errors(given: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        read_live_scenario(given)


def test_shipped_scenarios_load() -> None:
    assert kernel_cca(load_live_scenario("reno_hold").flows[0].sender) == "reno"
    with pytest.raises(UnknownNameError):
        load_live_scenario("reno_hodl")


def test_controls_are_without_jitter_and_with_swapped_roles() -> None:
    two = read_live_scenario({**data(), "flows": [{**FLOW, "jitter": BOX}, {**FLOW, "sender": "kernel:cubic", "jitter": BOX}]})
    (calm, without), (swapped, other) = control_scenarios(two)
    assert (calm, swapped) == ("without jitter", "roles swapped")
    assert [flow.jitter.kind for flow in without.flows] == ["none", "none"]
    assert [flow.sender for flow in other.flows] == ["kernel:cubic", "kernel:reno"]
    assert len(control_scenarios(read_live_scenario(data()))) == 1


def test_beside_runs_the_engine_that_simulates_it() -> None:
    packets = simulate_live(read_live_scenario(data())).summary
    assert (packets["engine"], packets["flows"][0]["sender"]) == ("packet", "reno:prr=1")
    tokens = simulate_live(read_live_scenario(data(flow={"jitter": BOX}, model="ccac"))).summary
    assert tokens["engine"] == "curve" and 0.2 < tokens["links"][0]["utilisation"] <= 1.1
    with pytest.raises(LiveError, match="nothing simulates 'kernel:nobody'"):
        simulate_live(read_live_scenario(data(flow={"sender": "kernel:nobody"})))


def test_an_attack_stores_moves_that_play_the_same(tmp_path: Path) -> None:
    """What is read back leaves as much of the link as the attack said; the live scenario is that of the attack."""
    result = attack("reno", path="shallow", adversaries=["cem"], budget_flow_steps=300_000)
    stored = stored_moves(result.worst, 480)
    file = tmp_path / "cem.moves.npz"
    stored.save(file)
    again = load_moves(file)
    assert np.array_equal(again.moves, stored.moves) and again.header == stored.header
    scenario = attack_scenario("kernel:reno", file)
    assert (scenario.model, scenario.warmup_s, scenario.duration_s) == ("ccac", pytest.approx(2.4), pytest.approx(4.8))
    assert simulate_live(scenario).summary["links"][0]["utilisation"] == pytest.approx(result.worst_utilisation, abs=1e-9)
    calm = attack_scenario("kernel:reno", file, calm=True)
    assert (calm.model, calm.flows[0].jitter.kind) == ("cbr_delay", "none")


DAMAGE: dict[str, Any] = {
    "shape": lambda arrays: {"moves": arrays["moves"][:, :3].copy()},
    "range": lambda arrays: {"moves": arrays["moves"] + 1.5},
    "header": lambda arrays: {"header": np.frombuffer(b'{"format": "ccenv-moves", "version": 2}', np.uint8)},
    "extra": lambda arrays: {"more": arrays["moves"]},
    "truncated": lambda content: content[:-40],
    "text": lambda content: b"moves",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_forged_moves_are_refused(tmp_path: Path, damage: str) -> None:
    file, change = tmp_path / "x.moves.npz", DAMAGE[damage]
    good = shipped_moves()["reno"]
    if damage in ("truncated", "text"):
        file.write_bytes(change(good.read_bytes()))
    else:
        with np.load(good) as content:
            arrays = {name: content[name] for name in content.files}
        np.savez(file, **(arrays | change(arrays)))
    with pytest.raises(CcenvError, match=r"\A[^\n]*\Z"):
        load_moves(file)


def test_every_sender_of_the_suite_has_moves_and_a_row_of_its_record() -> None:
    for sender in SENDERS:
        scenario = attack_scenario(sender, moves_against(sender))
        assert scenario.flows[0].jitter.max_s > 0
    with pytest.raises(UnknownNameError):
        moves_against("nobody")
    assert [one["sender"] for one in shipped_record()["rows"]] == list(SENDERS)
    row = shipped_record()["rows"][0]
    record = run_suite(SENDERS[:2], play=lambda sender, file: {"tries": {"live": 1, "calm": 2}, **row, "sender": sender})
    assert [one["sender"] for one in record["rows"]] == list(SENDERS[:2]) and record["suite"] == SUITE
    with pytest.raises(UnknownNameError):
        run_suite(["nobody"])


def result(late_s: float = 1e-4, overruns: int = 0, rows: int = 0, who: int = MACHINE) -> LiveResult:
    """Return the result of a run without packets."""
    wanted = read_live_scenario(data())
    run = np.zeros(1, RUN_DTYPE)
    run["late_max_s"], run["overruns"], run["event_rows"] = late_s, overruns, rows
    flows = np.zeros(1, FLOW_DTYPE)
    flows["finished_s"] = np.inf
    arrays = {
        "run": run, "flows": flows, "flow_log": np.zeros((201, 1), [(name, "<f8") for name in FLOW_LOG]),
        "link_log": np.zeros((201, 1), [(name, "<f8") for name in LINK_LOG]), "events": np.zeros((0, EVENT_STRIDE)),
        "errors": np.array([10, 50, 900]), "error_counts": np.array([50, 49, 1]), "stalls": np.zeros(len(STALLS), STALL_DTYPE),
        "tokens": np.zeros(1),
    }  # fmt: skip
    if late_s > wanted.limit_s:
        arrays["stalls"][who] = (1, late_s)
    header = {
        "device": "tun", "privileges": "root", "realtime": True, "kernel": "6.18", "busy_share": 0.1, "wall_s": 2.0,
        "device_drops": 0, "steal_s": 0.25,
    }  # fmt: skip
    return LiveResult.of(wanted, header, arrays, [None])


def test_a_punctual_run_is_valid() -> None:
    punctual = result()
    summary = punctual.summary()
    assert (punctual.valid, summary["valid"], summary["why_not_valid"]) == (True, True, [])
    assert (summary["emulator"]["stalls"], summary["emulator"]["try"]) == ({}, 1)
    histogram = {"10": 50, "100": 49, "1000": 1}
    assert summary["emulator"]["release_error_us"] == {"p50": 10.0, "p99": 50.0, "max": 100.0, "histogram": histogram}
    assert punctual.limit_s == pytest.approx(0.00125)


def test_late_runs_are_tried_again_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the machine spoils is repeated: a network that is not legal, or broken bounds, must not go by chance."""
    made: list[LiveResult] = []
    monkeypatch.setattr(run, "run_live", lambda scenario: made.pop(0))
    wanted = read_live_scenario(data())
    made += [result(0.018), result(0.0078, who=HOST), result()]
    third = valid_run(wanted)
    assert third.valid
    told = third.summary()["emulator"]
    assert (told["try"], told["tries"], told["steal_s"]) == (3, 12, 0.25)
    assert [list(one["stalls"]) for one in told["earlier_tries"]] == [["machine"], ["host"]]
    assert told["earlier_tries"][1]["release_error_us"]["max"] == 7800.0
    made += [result(0.018), result(0.02)]
    assert valid_run(wanted, 2).summary()["valid"] is False
    made += [result(rows=5)]
    assert len(valid_run(wanted).earlier) == len(made) == 0
    assert [count_tries(read_live_scenario(data(duration_s=seconds))) for seconds in (1, 40, 121)] == [12, 3, 1]
    with pytest.raises(InputError, match="at least 1, not 0"):
        valid_run(wanted, 0)


def test_handshakes_that_a_busy_machine_lost_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to three times in all, as nothing was sent by then; another failure is told at once."""
    file = io.BytesIO()
    np.savez(file, header=np.frombuffer(b'{"busy_share": 0.5}', np.uint8), rows=np.arange(3))
    late, other, whole = (b'{"error": "late", "not_connected": true}', b'{"error": "other"}', file.getvalue())
    answers: list[bytes] = []
    monkeypatch.setattr(run, "_ask_worker", lambda request: answers.pop(0))
    scenario = read_live_scenario(data())
    senders = make_senders(scenario)
    for before in (0, 2):
        answers[:] = [*[late] * before, whole, late]
        header, arrays = run._run_worker(scenario, senders)
        assert (header["busy_share"], arrays["rows"].tolist(), answers) == (0.5, [0, 1, 2], [late])
    for failures in ([late, late, late], [late, other]):
        answers[:] = [*failures, whole]
        with pytest.raises(LiveError):
            run._run_worker(scenario, senders)
        assert answers == [whole]


@pytest.mark.parametrize(("spoilt", "words"), [
    ({"late_s": 0.018}, "packets were written up to 18 ms late (limit 1.25 ms); other processes held the core; the machine"),
    ({"late_s": 0.0078, "who": HOST}, "packets were written up to 7.8 ms late (limit 1.25 ms); the host took the core for 7"),
    ({"late_s": 0.0078, "who": BACKLOG}, "more was due at once than this machine writes"),
    ({"late_s": 0.0078, "who": UNKNOWN}, "the machine was busy, or its host"), ({"overruns": 3}, "3 packets found no room"),
    ({"rows": 5}, "the packet log was full; 5 rows are missing"),
])  # fmt: skip
def test_a_spoilt_run_says_why(spoilt: dict[str, Any], words: str) -> None:
    run = result(**spoilt)
    assert not run.valid and words in " ".join(run.why_not_valid)
    with pytest.raises(InputError, match="no program that this run loaded"):
        run.beliefs(0)


def test_records_are_added_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "kernel.jsonl"
    append_record(file, {"name": "a", "cc": ["reno"]})
    append_record(file, {"name": "b", "cc": ["cubic"]})
    assert [one["name"] for one in read_records(file)] == ["a", "b"]
    with pytest.raises(InputError, match="has a record 'a' already"):
        append_record(file, {"name": "a", "cc": ["reno"]})
    append_record(file, {"name": "a", "cc": ["reno"], "seed": 1})
    append_record(file, {"name": "c/r2", "cc": ["bbr"]})
    assert list(read_cases(file)) == ["a", "b", "c"]
    file.write_text('{"name": 3}\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 1"):
        append_record(file, {"name": "c", "cc": ["bbr"]})


def test_thinned_acks_of_records() -> None:
    assert parse_thinning(["0:4", "12:2"]) == {0: 4, 12: 2}
    for bad in ("4", "a:b", "0:4:1", "-1:4", "0:99999"):
        with pytest.raises(InputError, match="must be FLOW:PACKETS"):
            parse_thinning([bad])
    with pytest.raises(InputError, match="once per flow"):
        parse_thinning(["0:4", "0:8"])
    path = {"rate_mbps": 6, "rtt_ms": 120, "buffer_bytes": 9e4, "duration_s": 2}
    with pytest.raises(InputError, match="ACKs of flow 2 are to be thinned; the record has flows 0 to 1"):
        record_scenario(["reno", "reno"], **path, thinning={2: 4})
    with pytest.raises(InputError, match="at least one congestion control"):
        record_scenario([], **path)
    thinned = record_scenario(["reno", "cubic"], **path, thinning={1: 4})
    assert [flow.receiver.ack_every for flow in thinned.flows] == [1, 4]
    assert scenario_of({"cc": ["reno", "cubic"], **path, "stagger_s": 0.0, "ack_thinning": "1:4"}) == thinned


@pytest.mark.skipif(sys.platform == "linux", reason="where live runs are possible they are tested")
def test_other_systems_are_told() -> None:
    from ccenv.live import run_live

    with pytest.raises(LiveError, match="live runs need Linux"):
        run_live("reno_hold")


if sys.platform != "linux":
    pytest.skip("live runs are for Linux", allow_module_level=True)

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


def test_devices_and_user_namespaces_that_are_missing_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "_open_tun_ends", refuse(errno.EACCES))
    monkeypatch.setattr(spaces, "_open_packet_ends", refuse(errno.EPERM))
    with pytest.raises(Refused, match=r"^/dev/net/tun .*Permission denied.*AF_PACKET.*Operation not permitted\); run as root"):
        worker._run(REQUEST, "root")
    monkeypatch.setattr(worker, "end_with_parent", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(spaces, "become_root_inside", refuse(errno.EPERM))
    with pytest.raises(Refused, match=r"user namespaces are off here \(Operation not permitted\); run as root"):
        worker._answer(REQUEST, os.getppid())


@pytest.mark.parametrize("version", ["5.15.0-91-generic", "6.3.13", "weird"])
def test_old_kernel(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(platform, "release", lambda: version)
    with pytest.raises(LiveError, match=rf"^live: this kernel is {version}.* needs Linux 6\.4 and BTF"):
        require_bpf()


@pytest.mark.parametrize(("name", "value", "need", "found", "advice"), [
    ("BTF", Path("/no/vmlinux"), "_kernel", f"this kernel is {platform.release()} without BTF", ""),
    ("capabilities", lambda: 0, "_capabilities", "CAP_BPF and CAP_PERFMON not held", "sudo ccenv live load PROGRAM"),
    ("capabilities", lambda: 1 << 39, "_capabilities", "CAP_PERFMON not held", "sudo ccenv live load PROGRAM"),
    ("capabilities", lambda: 1 << 38, "_capabilities", "CAP_BPF not held", "sudo ccenv live load PROGRAM"),
    ("find_compiler", lambda: None, "_compiler", "no compiler for BPF", "apt install clang"),
    ("LIBRARY", "libnosuch.so.1", "_library", "no libnosuch.so.1", "apt install libbpf1"),
])  # fmt: skip
def test_what_is_missing_is_named_with_its_remedy(monkeypatch, name, value, need, found, advice) -> None:
    monkeypatch.setattr(requirements, name, value)
    told = getattr(requirements, need)()
    assert (told.ok, told.found) == (False, found) and advice in told.advice


def test_a_program_without_the_right_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "bpf_needs", lambda: [Needs("BPF privileges", False, "CAP_BPF not held", "run as root")])
    with pytest.raises(LiveError, match=r"^live: flow 0: loading cc_qdel needs CAP_BPF .*`sudo ccenv live load cc_qdel`"):
        make_senders(scenario("cc_qdel"))


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
    name = f"bad{os.getpid()}"
    good = export_bpf(shipped_program("cc_qdel"), name=name)
    bad = good.replace("f->served[n & MASK] = f->delivered;", "f->served[n] = f->delivered;")
    assert bad != good
    with pytest.raises(Refusal, match=f"^live: the kernel refused {name}: ") as caught:
        Program(name, compile_bpf(bad))
    assert "BEGIN PROG LOAD LOG" in caught.value.log
