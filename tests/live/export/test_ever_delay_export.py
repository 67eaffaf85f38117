"""ever_delay as C: equal to its integer twin bit for bit, and the twin to the sender in floating point."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from acks import equal_states, random_acks, recorded_acks
from ever_delay_twin import EverDelayTwin, log1p_q31, rate_q6_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents import make_sender
from ccenv.agents.classic import ever_delay as rules
from ccenv.agents.sender import ClassicSender
from ccenv.cli import main as cli
from ccenv.live.export.ever_delay import MOST_V, export_ever_delay, load_ever_delay

EIGHTH = "fairness=1.97,jitter_rtts=0.125,shares=164"
SPECS = ("ever_delay:rm_ms=40", f"ever_delay:{EIGHTH},max_share_mbps=100", "ever_delay:unit_ms=60,start_share_mbps=12")


def sender_of(spec: str) -> ClassicSender:
    sender = load_ever_delay(spec)
    assert sender is not None
    return sender


def assert_equal(spec: str, acks: np.ndarray, **options: Any) -> np.ndarray:
    sender = sender_of(spec)
    return equal_states(EverDelayTwin(sender, **options).run(acks), export_ever_delay(sender, name="host", **options), acks)


def in_floats(spec: str, acks: np.ndarray) -> np.ndarray:
    """Return v, the rate in bytes/s and the phase of the sender after each ACK, in floats, called at ACKs only."""
    sender = sender_of(spec)
    state = np.zeros(1, rules.STATE).view(np.recarray)[0]
    for name, value in (sender.parameters | {"mss_bytes": acks["mss"][0]}).items():
        state[name] = value
    rules.init(state)
    rows, shortest_s, before = [(state.v, state.ruled_Bps, state.phase)], acks["rtt_us"][0] * 1e-6, acks[0]
    for ack in acks[1:]:
        now_s, rtt_s = ack["now_us"] * 1e-6, ack["rtt_us"] * 1e-6
        if ack["rtt_us"] >= 0 and ack["delivered"] != before["delivered"]:
            shortest_s = min(shortest_s, rtt_s)
            rules.on_ack(state, SimpleNamespace(now_s=now_s, rtt_s=rtt_s, min_rtt_s=shortest_s))
        elif state.began:
            rules.on_tick(state, SimpleNamespace(now_s=now_s, inflight_bytes=1.0, min_rtt_s=shortest_s))
        if ack["lost"] != before["lost"]:
            lost_bytes = float(ack["lost"] - before["lost"]) * state.mss_bytes
            rules.on_loss(state, SimpleNamespace(now_s=now_s, lost_bytes=lost_bytes))
        rows.append((state.v, state.ruled_Bps, state.phase))
        before = ack
    return np.array(rows)


def recorded(spec: str, rate_mbps: float, buffer_bdp: float, **flow: Any) -> np.ndarray:
    """Return the ACKs of a run; after an eighth 60 more packets than were lost are found lost."""
    rate_Bps = rate_mbps * 125e3
    link = {"rate_Bps": rate_Bps, "buffer_bytes": buffer_bdp * rate_Bps * 0.04}
    acks = recorded_acks({"duration_s": 2.5, "links": [link], "flows": [{"sender": spec, "rtt_s": 0.04, **flow}]})
    acks["lost"][len(acks) // 8 :] += np.uint32(60)
    return acks


CASES = [
    (SPECS[0], 12.0, 0.5, {}, {rules.STARTING, rules.REPAIRING}),
    (SPECS[1], 12.0, 6.0, {"jitter": {"kind": "batch", "max_s": 0.005}}, {rules.STARTING, rules.SETTLING, rules.REPAIRING}),
    (SPECS[2], 12.0, 10.0, {}, {rules.RULE, rules.REPAIRING}),
]


@pytest.mark.parametrize(("spec", "rate_mbps", "buffer_bdp", "flow", "phases"), CASES)
def test_c_equals_twin_and_twin_follows_the_sender(spec, rate_mbps, buffer_bdp, flow, phases):
    """Rates within 1e-4 and v within 1e-5 of floats at every ACK, through starts, settling, repairs and the rule."""
    acks = recorded(spec, rate_mbps, buffer_bdp, **flow)
    states, floats = assert_equal(spec, acks), in_floats(spec, acks)
    assert len(states) > 1000 and set(states["phase"]) == phases
    np.testing.assert_array_equal(states["phase"], floats[:, 2])
    np.testing.assert_allclose(states["v_q48"] / 2.0**48, floats[:, 0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(states["rate_q6"] / 64.0, floats[:, 1], rtol=1e-4)
    np.testing.assert_array_equal(states["pacing_rate_Bps"], np.maximum(states["rate_q6"] >> 6, 1))
    in_flight = states["rate_q6"] / 64.0 * acks["rtt_us"].clip(40_000) * 1e-6 / acks["mss"]
    assert (states["cwnd"][100:] > 2 * in_flight[100:]).all()


@settings(max_examples=10)
@given(history=st.integers(0, 10**6), spec=st.sampled_from(SPECS), known=st.booleans())
def test_c_equals_twin_on_random_acks(history, spec, known):
    """Clocks that go back, counters that wrap, RTTs of 0, losses of any size."""
    for seed in range(history, history + 3):
        states = assert_equal(spec, random_acks(seed), **({"rtt_s": 0.02} if known else {}))
        assert (states["v_q48"] >= 0).all() and (states["rate_q6"] >= 1).all() and (states["pacing_rate_Bps"] >= 1).all()


def test_the_series_are_exponential_root_and_logarithm():
    rng = np.random.default_rng(0)
    for v, x in zip(rng.uniform(6, MOST_V, 300), 1 + 10 ** rng.uniform(-6, 3, 300), strict=True):
        assert rate_q6_of(int(v * 2**48), int(x * 2**24)) / 64 == pytest.approx(math.exp(v) / math.sqrt(x), rel=5e-5, abs=0.02)
    for z in 10 ** rng.uniform(-5, 0, 300):
        assert log1p_q31(int(z * 2**31)) / 2**31 == pytest.approx(math.log1p(z), rel=1e-3, abs=2e-9)


def test_the_command_writes_the_same_text(tmp_path):
    target = tmp_path / "a.c"
    assert cli.main(["export", SPECS[0], "-o", str(target), "-s", "name=fair"]) == 0
    text = target.read_text(encoding="ascii")
    assert text == export_ever_delay(sender_of(SPECS[0]), name="fair")
    assert text == export_ever_delay(sender_of("ever_delay"), name="fair", rtt_s=0.04).replace("rm_s=0,", "rm_s=0.04,")
    assert "@" not in text and make_sender("cc_qdel").name == "cc_qdel" and load_ever_delay("cc_qdel") is None
