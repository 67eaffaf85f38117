"""4CP as C: equal to its integer twin bit for bit, and the twin to the sender in floating point."""

import numpy as np
import pytest
from acks import equal_states, random_acks, recorded_acks
from fourcp_twin import FourcpTwin, friendly_q16
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents.callbacks import ACK, LOSS
from ccenv.agents.classic import fourcp as rules
from ccenv.agents.sender import ClassicSender
from ccenv.cli import main as cli
from ccenv.live.export.fourcp import export_fourcp, load_fourcp

FAST = "first_gain=0.0005,last_gain=0.00005,gain_updates=500"
SPECS = (
    "fourcp_fixed:tarp=0.01",
    f"fourcp_auto:tarp=0.01,{FAST}",
    f"fourcp_auto:tarp=0.01,pftk=1,rate_based=1,mincwnd_mss=1.5,{FAST}",
    "fourcp_fixed:tarp=0.0001,wndbnd_mss=30,maxcwnd_mss=40",
)


def sender_of(spec: str) -> ClassicSender:
    sender = load_fourcp(spec)
    assert sender is not None
    return sender


def assert_equal(spec: str, acks: np.ndarray) -> np.ndarray:
    sender = sender_of(spec)
    return equal_states(FourcpTwin(sender).run(acks), export_fourcp(sender, name="host"), acks)


def in_floats(spec: str, acks: np.ndarray) -> np.ndarray:
    """Return wnd, window, target and pacing rate of the sender after each ACK, in floats."""
    sender = sender_of(spec)
    state = np.zeros(1, sender.state)
    state = state.view(np.recarray)[0]
    for name, value in (sender.parameters | {"mss_bytes": acks["mss"][0]}).items():
        state[name] = value
    rules.init(state)
    seen, found = (np.zeros(1, dtype).view(np.recarray)[0] for dtype in (ACK, LOSS))
    rows, before = [(state.wnd_mss, state.window_mss, state.tarp, state.pacing_rate_Bps)], acks[0]
    for ack in acks[1:]:
        acked, lost = (int(ack[name]) - int(before[name]) for name in ("delivered", "lost"))
        new = int(ack["answer"]) % 2**63 - int(before["answer"]) % 2**63
        delivered = int(ack["delivered"])
        if lost or new:
            found.new_episode, found.timeout = new >> 32, new % 2**32
            for name, value in (("inflight", int(ack["in_flight"])), ("lost", lost), ("delivered", delivered)):
                found[f"{name}_bytes"] = value * state.mss_bytes
            rules.on_loss(state, found)
        if acked:
            state.recover_bytes, seen.recovering = 0.0, int(ack["answer"]) >> 63
            seen.rtt_s = ack["rtt_us"] * 1e-6 if ack["rtt_us"] >= 0 else state.srtt_s
            seen.acked_bytes, seen.delivered_bytes = acked * state.mss_bytes, delivered * state.mss_bytes
            rules.on_ack(state, seen)
        rows.append((state.wnd_mss, state.window_mss, state.tarp, state.pacing_rate_Bps))
        before = ack
    return np.array(rows)


def with_recoveries(acks: np.ndarray) -> np.ndarray:
    """Say what a kernel would: fast recovery from a loss until what was in flight is delivered or lost; a time-out half-way."""
    recover, episodes = int(acks[0]["delivered"]), 0
    for row in range(1, len(acks)):
        lost, delivered = int(acks[row]["lost"]) - int(acks[row - 1]["lost"]), int(acks[row]["delivered"])
        if lost and delivered >= recover:
            episodes, recover = episodes + 1, delivered + int(acks[row]["in_flight"])
        elif lost:
            recover -= lost
        late = row >= len(acks) // 2
        if row == len(acks) // 2:
            recover = delivered
        acks["answer"][row] = (int(delivered < recover) << 63) + (episodes << 32) + late
    return acks


@pytest.mark.parametrize("spec", SPECS)
def test_c_equals_twin_and_twin_follows_the_sender(spec):
    """Windows within 1e-4 and targets within 1e-3 of floats at every ACK: slow start, losses, bad phases, a time-out."""
    link = {"rate_Bps": 1.5e6, "buffer_bytes": 30_000}
    acks = recorded_acks({"duration_s": 4.0, "links": [link], "flows": [{"sender": spec, "rtt_s": 0.04, "loss_rate": 0.02}]})
    acks = with_recoveries(acks)
    assert acks["answer"][-1] >> 32 & 0x7FFFFFFF > 3
    states, floats = assert_equal(spec, acks), in_floats(spec, acks)
    assert len(states) > 300 and (states["wnd_q32"] < 2 * 2**32).any() and len(set(states["slow_start"])) == 2
    np.testing.assert_allclose(states["wnd_q32"] / 2.0**32, floats[:, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(states["window_q32"] / 2.0**32, floats[:, 1], rtol=1e-4)
    np.testing.assert_allclose(states["tarp_q48"] / 2.0**48, floats[:, 2], rtol=1e-3)
    assert (np.ptp(floats[:, 2]) > 0) == ("auto" in spec)
    paced = states["pacing_rate_Bps"] != 2**64 - 1
    np.testing.assert_array_equal(paced, np.isfinite(floats[:, 3]))
    np.testing.assert_allclose(states["pacing_rate_Bps"][paced], floats[paced, 3], rtol=1e-3)
    np.testing.assert_array_equal(states["cwnd"], states["window_q32"] >> np.where(paced, 31, 32).astype(np.uint64))


@settings(max_examples=10)
@given(history=st.integers(0, 10**6), spec=st.sampled_from(SPECS))
def test_c_equals_twin_on_random_acks(history, spec):
    """Clocks that go back, counters that wrap, RTTs of 0, losses of any size, time-outs at any time."""
    for seed in range(history, history + 3):
        acks = random_acks(seed)
        acks["answer"] *= np.uint64(2**29 + 1)
        states = assert_equal(spec, acks)
        assert (states["cwnd"] >= 1).all() and (states["tarp_q48"] >= 28147498).all()


@pytest.mark.parametrize("loss", [1e-7, 6e-4, 0.01, 0.1])
@pytest.mark.parametrize("pftk", [0, 1])
def test_the_window_of_tcp_is_that_of_the_formula(loss, pftk):
    assert friendly_q16(round(loss * 2**48), bool(pftk)) / 2**16 == pytest.approx(rules.friendly_window_mss(loss, pftk), rel=1e-4)


def test_the_command_writes_the_same_text(tmp_path):
    target = tmp_path / "a.c"
    assert cli.main(["export", SPECS[2], "-o", str(target), "-s", "name=calm"]) == 0
    text = target.read_text(encoding="ascii")
    assert text == export_fourcp(sender_of(SPECS[2]), name="calm") and "@" not in text and load_fourcp("reno") is None
