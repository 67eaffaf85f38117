"""Facts about packets that can be derived by hand, laws that every run obeys, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents import make_sender
from ccenv.agents.callbacks import state_record
from ccenv.agents.sender import ClassicSender
from ccenv.base.errors import EngineError
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import FLOW_DTYPE, JITTERS
from ccenv.engine.packet.receiver import release_time_s
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.simulation import simulate

MSS = 1500.0


def run(links, flows, seconds, senders=None, **options) -> PacketEngine:
    network = NetworkSpec.model_validate({"links": links, "flows": flows})
    engine = PacketEngine(network, senders or [make_sender(f.sender) for f in network.flows], duration_s=seconds, **options)
    engine.advance(seconds)
    return engine


@pytest.mark.parametrize("packets", [1, 10])
def test_packets_of_a_burst_take_propagation_and_queue_behind_each_other(packets: int) -> None:
    work = {"kind": "finite", "size_bytes": packets * MSS}
    engine = run([{"rate_Bps": 1.5e6}], [{"sender": "reno", "rtt_s": 0.05, "workload": work}], 1)
    assert engine.flow("finished_s")[0] == pytest.approx(0.05 + 0.001 * packets, abs=1e-12)
    assert engine.flow("goodput_bytes")[0] == packets * MSS
    assert engine.flow("rtt_sum_s")[0] == pytest.approx(packets * 0.05 + 0.001 * packets * (packets + 1) / 2, abs=1e-12)
    assert engine.link("queue_byte_s")[0] == pytest.approx(MSS * 0.001 * packets * (packets - 1) / 2, abs=1e-9)


def test_a_lost_packet_is_found_by_three_later_ones_and_sent_again() -> None:
    # Six wait, one is in service: of a burst of ten the last three are dropped. Nothing is sent after them: a time-out.
    work = {"kind": "finite", "size_bytes": 10 * MSS}
    engine = run([{"rate_Bps": 1.5e6, "buffer_bytes": 6 * MSS}], [{"sender": "reno", "rtt_s": 0.05, "workload": work}], 3)
    assert engine.flow("dropped_bytes")[0] == engine.flow("found_lost_bytes")[0] == engine.flow("resent_bytes")[0] == 3 * MSS
    assert engine.flow("timeouts")[0] == 1 and engine.flow("goodput_bytes")[0] == 10 * MSS
    # With more to send the window goes on, and three later packets tell: no time-out.
    work = {"kind": "finite", "size_bytes": 40 * MSS}
    engine = run([{"rate_Bps": 1.5e6, "buffer_bytes": 6 * MSS}], [{"sender": "reno", "rtt_s": 0.05, "workload": work}], 3)
    assert engine.flow("found_lost_bytes")[0] >= 3 * MSS and engine.flow("timeouts")[0] == 0
    assert engine.flow("goodput_bytes")[0] == 40 * MSS


def test_delayed_acks_wait_for_the_fourth_packet_or_the_timeout() -> None:
    flow = {"sender": "reno", "rtt_s": 0.05, "receiver": {"ack_every": 4, "ack_timeout_s": 0.03}}
    work = {"kind": "finite", "size_bytes": 5 * MSS}
    engine = run([{"rate_Bps": 1.5e6}], [{**flow, "workload": work}], 1)
    assert engine.flow("rtt_samples")[0] == 2
    assert engine.flow("rtt_sum_s")[0] == pytest.approx((0.05 + 0.004) + (0.05 + 0.005 + 0.03), abs=1e-12)


def test_a_constant_rate_is_paced() -> None:
    engine = run([{"rate_Bps": 1.5e6}], [{"sender": "constant:rate_mbps=6", "rtt_s": 0.05}], 10)
    assert engine.flow("sent_bytes")[0] == pytest.approx(0.75e6 * 10, abs=2 * MSS)
    assert engine.flow("rtt_sum_s")[0] == pytest.approx(engine.flow("rtt_samples")[0] * 0.051, rel=1e-9)


def test_copa_with_a_millisecond_of_error_gets_two_packets_per_millisecond() -> None:
    # [Starvation] s.5.1: alpha / (d - Rm) with alpha = 1/delta = 2 packets and 1 ms of error: 24 of 120 Mbit/s.
    flow = {"sender": "copa:mode_switching=0", "rtt_ms": 59, "jitter": {"kind": "early", "max_ms": 1}}
    summary = simulate(
        {"duration_s": 9, "warmup_s": 3, "links": [{"rate_mbps": 120, "buffer_bdp": 4}], "flows": [flow]}
    ).summary()
    assert summary["flows"][0]["throughput_mbps"] == pytest.approx(24, rel=0.05)


def test_random_loss_has_its_share() -> None:
    flow = {"sender": "constant:rate_mbps=10", "rtt_s": 0.02, "loss_rate": 0.05}
    engine = run([{"rate_Bps": 1.5e6}], [flow], 20)
    share = engine.flow("random_lost_bytes")[0] / engine.flow("sent_bytes")[0]
    packets = engine.flow("sent_bytes")[0] / MSS
    assert abs(share - 0.05) < 4 * math.sqrt(0.05 * 0.95 / packets)


def test_codel_keeps_the_queue_near_its_target() -> None:
    flows = [{"sender": "reno", "rtt_s": 0.03}]
    plain = run([{"rate_Bps": 1.5e6, "buffer_bytes": 600_000}], flows, 20)
    codel = run([{"rate_Bps": 1.5e6, "buffer_bytes": 600_000, "discipline": "codel"}], flows, 20)
    waited_s = [float(e.link("queue_byte_s")[0]) / 20 / 1.5e6 for e in (plain, codel)]
    assert waited_s[0] > 0.1 and waited_s[1] < 0.02 and codel.link("served_bytes")[0] > 0.8 * 1.5e6 * 20


def test_a_rate_workload_offers_its_rate_whatever_it_is() -> None:
    for rate_Bps, expected_Bps in ((3e5, 3e5), (1e300, 1.5e6)):
        work = {"kind": "rate", "rate_Bps": rate_Bps}
        engine = run([{"rate_Bps": 1.5e6, "buffer_bytes": 60_000}], [{"sender": "cubic", "rtt_s": 0.02, "workload": work}], 10)
        assert engine.flow("goodput_bytes")[0] == pytest.approx(10 * expected_Bps, rel=0.02)


def test_poisson_objects_have_their_mean_rate() -> None:
    work = {"kind": "web", "size_bytes": 15_000, "every_s": 0.05}
    engine = run([{"rate_Bps": 12.5e6}], [{"sender": "cubic", "rtt_s": 0.02, "workload": work}], 60)
    offered = float(engine.flow("app_segments")[0]) * MSS
    assert engine.flow("app_draws")[0] / 2 == pytest.approx(60 / 0.05, rel=0.15)
    assert 0.3 * 60 * 3e5 < offered < 6 * 60 * 3e5  # the mean of a Pareto 1.2 sample is far from sharp
    assert offered - 200_000 <= engine.flow("goodput_bytes")[0] <= offered


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(["none", "constant", "batch", "uniform", "interval", "early"]),
    st.lists(st.floats(0, 0.05), min_size=1, max_size=60), st.floats(1e-3, 0.1), st.floats(1e-3, 0.2),
)  # fmt: skip
def test_a_jitter_box_keeps_order_and_bound(kind, gaps, bound_s, interval_s) -> None:
    flow = np.zeros(1, FLOW_DTYPE)
    flow["jitter_kind"], flow["jitter_s"], flow["jitter_interval_s"] = JITTERS[kind], bound_s, interval_s
    arrivals = np.cumsum(gaps)
    released = np.array([release_time_s(flow[0], a, 3.0) for a in arrivals])
    assert (np.diff(released) >= 0).all() and (released >= arrivals).all()
    assert (released <= arrivals + (bound_s if kind != "none" else 0.0) + 1e-12).all()


def test_slices_and_repetition_change_nothing() -> None:
    flows = [{"sender": s, "rtt_s": 0.02, "loss_rate": 0.01} for s in ("cubic", "bbr1")]
    link = [{"rate_Bps": 1.5e6, "buffer_bytes": 60_000}]
    once = run(link, flows, 3, seed=4)
    network = NetworkSpec.model_validate({"links": link, "flows": flows})
    slices = PacketEngine(network, [make_sender(f["sender"]) for f in flows], duration_s=3, seed=4)
    for until_s in (0.1, 0.1, 1.7, 3):
        slices.advance(until_s)
    assert (once.flow_log == slices.flow_log).all() and not (once.flow_log == run(link, flows, 3, seed=5).flow_log).all()


def _broken(window: float) -> ClassicSender:
    def init(state) -> None:
        state.cwnd_bytes, state.pacing_rate_Bps = 15_000.0, np.inf

    def on_ack(state, ack) -> None:
        if ack.now_s > 0.5:
            state.cwnd_bytes = window

    def nothing(state, signal) -> None:
        pass

    return ClassicSender("broken", state_record("unused"), init, on_ack, nothing, nothing)


@pytest.mark.parametrize("window", [math.nan, -1.0, 0.0])
def test_a_cca_that_leaves_the_numbers_is_named(window: float) -> None:
    with pytest.raises(EngineError, match=r"flow 1: sender 'broken' set cwnd_bytes .* at 0\.7"):
        run([{"rate_Bps": 1.5e6}], [{"sender": "x", "rtt_s": 0.02}] * 2, 1, [make_sender("reno"), _broken(window)])
