"""Policies that decide for a kernel from outside: the C takes what Python decides of the same ACKs."""

import ctypes

import numpy as np
import pytest
from acks import host_library, recorded_acks

from ccenv.agents import make_sender
from ccenv.base.errors import InputError
from ccenv.engine.packet.batch.decisions import Decisions
from ccenv.live import LiveError, read_live_scenario
from ccenv.live.export.window import ACKS, TALK_DTYPE, KernelPolicy, export_window
from ccenv.live.programs import make_senders
from ccenv.live.virtual.emulated import make_computer

NAME, PACKET, PAYLOAD = "learned_everywhere", 1500.0, 1448
COUNTS = (("sent", "data_segs_out"), ("delivered", "delivered"), ("found_lost", "lost"), ("inflight", "in_flight"))


def in_c(acks: np.ndarray) -> np.ndarray:
    """Return pacing rate and window after each ACK, where a process is asked after it if that is due or the ring fills."""
    library, policy, rows = host_library(export_window("host")), KernelPolicy(make_sender(NAME), PACKET), []
    talk = np.frombuffer((ctypes.c_char * TALK_DTYPE.itemsize).in_dll(library, "talk"), TALK_DTYPE)
    sender, state = ctypes.create_string_buffer(library.ccenv_sender_bytes()), np.zeros(2, np.uint64)
    for row in range(len(acks)):
        take = library.ccenv_ack if row else library.ccenv_begin
        take(sender, ctypes.c_void_p(acks.ctypes.data + row * acks.itemsize), ctypes.c_void_p(state.ctypes.data))
        rows.append(state.tolist())
        now_ns = int(acks["now_us"][row]) * 1000
        if talk["n"][0] and (now_ns >= talk["due_ns"][0] or talk["n"][0] - talk["taken"][0] > ACKS // 2):
            talk["now_ns"], talk["sent"], talk["in_flight"] = now_ns, acks["data_segs_out"][row], acks["in_flight"][row]
            policy.answer(talk)
            talk["taken"] = talk["n"]
    return np.array(rows)


def in_python(acks: np.ndarray) -> np.ndarray:
    """Return the same in bytes/s and bytes of packets, of decisions over the counts; NaN before the first one."""
    decisions, held, rows = Decisions(make_sender(NAME), PACKET), (np.nan, np.nan), []
    for row, ack in enumerate(acks):
        rows.append(held)
        for ours, theirs in COUNTS:
            decisions.flow[f"{ours}_bytes"] = ack[theirs] * PACKET
        if row and ack["rtt_us"] >= 0:
            decisions.take_ack(ack["now_us"] * 1e-6, ack["rtt_us"] * 1e-6)
        now_ns = int(ack["now_us"]) * 1000
        if row and now_ns >= decisions.next_s * 1e9 and decisions.decide(now_ns * 1e-9):
            held = decisions.flow["rate_Bps"], decisions.flow["cwnd_bytes"]
    return np.array(rows)


def test_the_kernel_takes_what_python_decides() -> None:
    """6 s of 20 Mbit/s, 40 ms with losses at the start: the window at each ACK is that of the decision before it."""
    link = {"rate_mbps": 20, "buffer_bdp": 1}
    acks = recorded_acks({"duration_s": 6.0, "links": [link], "flows": [{"sender": NAME, "rtt_ms": 40}]})
    taken, decided = in_c(acks), in_python(acks)
    assert len(acks) > 2 * ACKS and acks["lost"][-1] > 0
    first = int(np.isfinite(decided[:, 0]).argmax())
    assert first == 2 and (taken[:first, 1] == 10).all()
    np.testing.assert_array_equal(taken[first:, 1], np.floor(decided[first:, 1] / PACKET + 1e-9))
    np.testing.assert_allclose(taken[first:, 0], decided[first:, 0] * PAYLOAD / PACKET, atol=1)
    assert len(np.unique(taken[:, 1])) > 10


def test_a_window_below_a_segment_is_one_packet_paced() -> None:
    """Where two of three packets are lost the window falls to an eighth of a segment: one in eight round trips."""
    link = {"rate_mbps": 5, "buffer_bdp": 2}
    acks = recorded_acks({"duration_s": 6.0, "links": [link], "flows": [{"sender": NAME, "rtt_ms": 40}]})
    acks["lost"] = 2 * acks["delivered"]
    acks["rtt_us"] = 40_000
    taken, decided = in_c(acks), in_python(acks)
    assert decided[-1, 1] == pytest.approx(PACKET / 8) and taken[-1, 1] == 1
    assert taken[-1, 0] == pytest.approx(PAYLOAD / 8 / 0.04, rel=1e-3)


def test_a_flow_with_nothing_to_send_keeps_its_first_window() -> None:
    policy, talk = KernelPolicy(make_sender(NAME), PACKET), np.zeros(1, TALK_DTYPE)
    talk["n"], talk["mss"], talk["acks"]["rtt_us"] = 1, PAYLOAD, 40_000
    for _ in range(1100):
        policy.answer(talk)
        talk["taken"], talk["now_ns"] = talk["n"], talk["due_ns"]
    assert talk["cwnd"][0] == 10 and talk["rate_Bps"][0] == pytest.approx(2 * 10 * PAYLOAD / 0.04, rel=1e-3)


@pytest.mark.parametrize(
    ("sender", "words"),
    [
        ("learned_nominal", "'learned_nominal' sets rate_log2; the kernel plays those that set a window, at times"),
        ("aurora", "'aurora' sets rate_delta"),
        ("orca", "'orca' sets cwnd_exp2_over"),
    ],
)
def test_other_policies_are_refused(sender: str, words: str) -> None:
    scenario = {"links": [{"rate_mbps": 5}], "flows": [{"sender": sender, "rtt_ms": 40}]}
    with pytest.raises(InputError, match=words):
        make_computer(read_live_scenario(scenario), None)
    with pytest.raises(LiveError, match="flow 0: a learned policy decides for a kernel in virtual time, --virtual"):
        make_senders(read_live_scenario(scenario))
