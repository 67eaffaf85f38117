"""Proxies that hold ACKs ([Delta] s.5.3, s.7.2, Figure 3), in both engines, against numbers that follow from their definition."""

import numpy as np
import pytest

import ccenv
from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import HeldSender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path

RATE_MBPS, RATE_Bps, MSS = 12.0, 1.5e6, 1500
SERVICE_S = MSS / RATE_Bps
LAMBDA_S = 0.1


def run(sender, rtts_ms, seconds=30.0, warmup_s=15.0, buffer_packets=60, **flow):
    """Return the result of flows with one sender and different propagation RTTs, per packet."""
    flows = [{"sender": sender, "rtt_ms": rtt, **flow} for rtt in rtts_ms]
    links = [{"rate_mbps": RATE_MBPS, "buffer_packets": buffer_packets}]
    return ccenv.simulate({"duration_s": seconds, "warmup_s": warmup_s, "links": links, "flows": flows})


def curve(sender, rtts_s, steps, n=1):
    path = Path(link_rate_Bps=RATE_Bps, buffer_bytes=60 * MSS, flows=tuple(FlowPath(rtt_s=rtt) for rtt in rtts_s))
    engine = CurveEngine([path] * n, senders=[make_sender(sender)] * len(rtts_s), steps_per_rtt=4, record=True)
    engine.advance(steps)
    return engine


def newest_rtts_s(result, flow=0):
    """Return the distinct newest RTT samples in the second half of the log."""
    log = result.flow_log["rtt_s"][len(result.flow_log) // 2 :, flow]
    return np.unique(np.round(log, 9))


LAMBDA = f"lambda_proxy:target_s={LAMBDA_S},window_s=1,inner=constant:rate_mbps=6"


@pytest.mark.parametrize(
    ("spec", "rtt_ms", "newest_s"),
    [
        (LAMBDA, 20.0, LAMBDA_S),
        (LAMBDA, 70.0, LAMBDA_S),
        ("lambda_proxy:target_s=0.05,window_s=1,inner=constant:rate_mbps=6", 80.0, 0.08 + SERVICE_S),  # it is longer already
        ("constant:rate_mbps=6", 30.0, 0.03 + SERVICE_S),
        ("fixed_delay_proxy:delay_s=0.05,inner=constant", 30.0, 0.08 + SERVICE_S),
    ],
)
def test_the_smallest_rtt_per_packet_is_lambda_or_a_fixed_delay_more(spec, rtt_ms, newest_s):
    result = run(spec, [rtt_ms], 6, 0)
    assert newest_rtts_s(result) == pytest.approx([newest_s], abs=1e-9)
    if spec == LAMBDA:  # at 0.6 s: Algorithm 1 begins with a hold of lambda
        assert result.flow_log["rtt_s"][60, 0] == pytest.approx(LAMBDA_S + rtt_ms / 1e3 + SERVICE_S, abs=1e-9)


@pytest.mark.parametrize("proxy", ["lambda_proxy:target_s=0.1,window_s=1,inner={}", "fixed_delay_proxy:delay_s=0.06,inner={}"])
def test_the_one_way_delay_of_the_data_does_not_change(proxy):
    """[Delta] Figure 3: the RTT grows by the hold, the way of the data takes as long as before."""
    inner = "constant:rate_mbps=5"
    plain, held = (run(spec, [20.0], 6, 3).summary()["flows"][0] for spec in (inner, proxy.format(inner)))
    assert held["one_way_delay"] == pytest.approx(plain["one_way_delay"], rel=1e-9) and held["rtt"] > plain["rtt"] + 0.05


def test_two_flows_of_different_rtts_come_to_equal_shares():
    """[Delta] s.6: BBR favours the longer flow; behind the proxy both go by the same RTT."""
    plain, held = run("bbr1", [10.0, 50.0]), run("lambda_proxy:target_s=0.1,window_s=5,inner=bbr1", [10.0, 50.0])
    assert plain.summary()["ratio"] > 3
    assert held.summary()["ratio"] < 1.3 and held.summary()["links"][0]["utilisation"] > 0.9


def test_lambda_and_fixed_delay_in_the_curve_engine():
    engine = curve(f"lambda_proxy:target_s={LAMBDA_S},window_s=1,inner=constant:rate_mbps=4", [0.02, 0.06], 1000)
    assert engine.flow("rtt_min_steps")[0] * 0.005 == pytest.approx([LAMBDA_S, LAMBDA_S])
    assert engine.flow("hold_steps")[0].tolist() == [16, 8] and check_trace(engine.trace(0)) == []
    fixed = curve("fixed_delay_proxy:delay_s=0.05,inner=constant:rate_mbps=4", [0.02, 0.06], 1000)
    assert fixed.flow("rtt_min_steps")[0] * 0.005 == pytest.approx([0.07, 0.11])
    plain = curve("constant:rate_mbps=4", [0.02, 0.06], 1000)
    for proxied in (engine, fixed):  # the network carries the same
        np.testing.assert_allclose(proxied.trace(0).S, plain.trace(0).S)


def test_shares_in_the_curve_engine():
    plain = curve("bbr1", [0.02, 0.1], 6000).flow("S")[0]
    held = curve("lambda_proxy:target_s=0.15,window_s=5,inner=bbr1", [0.02, 0.1], 6000).flow("S")[0]
    assert held.max() / held.min() < 0.5 * plain.max() / plain.min()


def test_a_program_behind_a_proxy_goes_by_the_longer_rtt():
    """Its smallest rate is a segment per Rm: the one that it is made to see."""
    held = curve("fixed_delay_proxy:delay_s=0.06,inner=cc_qdel", [0.02], 0)
    assert held.flow("C_L_Bps")[0, 0] == pytest.approx(MSS / 0.08)
    engine = run("fixed_delay_proxy:delay_s=0.06,inner=cc_qdel", [20.0], 10, 5)
    assert engine.summary()["links"][0]["utilisation"] > 0.7


def test_specs_and_hashes():
    nested = make_sender("lambda_proxy:target_s=0.06,inner=copa:default_delta=0.25,mode_switching=0")
    assert isinstance(nested, HeldSender) and nested.target_s == 0.06 and nested.inner.parameters["default_delta"] == 0.25
    assert make_sender("lambda_proxy", inner="reno", target_s=0.06).name == "lambda_proxy(reno)"
    hashes = {sender_hash(make_sender(spec)) for spec in ("reno", "lambda_proxy:inner=reno", "fixed_delay_proxy:inner=reno")}
    assert len(hashes) == 3
