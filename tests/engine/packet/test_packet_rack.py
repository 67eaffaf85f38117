"""RACK-TLP (RFC 8985): losses by time, its reordering window, tail loss probes, its timers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_packet_reference import compare

import ccenv
from ccenv.agents import make_sender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import EVENTS, FLOW_DTYPE
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.engine.packet.transport import INITIAL_RTO_S, NO_ROUND, PERSISTENCE, begin_rack, set_reordering_window, take_delivery

LINK = {"rate_Bps": 1.5e6, "buffer_bytes": 30_000}
RACK = {"rtt_s": 0.02, "recovery": "rack"}
FINITE = {"kind": "finite", "size_bytes": 15_000}
BATCHES = {"kind": "batches", "size_bytes": 9_000, "every_s": 0.25}
BURSTS = {"enter": 0.02, "leave": 0.3}
NETWORKS: dict[str, tuple[list[Any], list[Any]]] = {
    "overflow": (
        [LINK], [{"sender": s, **RACK, "start_s": 0.01 * i} for i, s in enumerate(("cubic", "bbr1", "reno:prr=1", "bbr3"))],
    ),
    "beside duplicates": ([LINK], [{"sender": "reno", **RACK}, {"sender": "reno", "rtt_s": 0.023, "start_s": 0.05}]),
    "random loss": ([LINK], [
        {"sender": "cubic", **RACK, "loss_rate": 0.03}, {"sender": "reno", **RACK, "loss_rate": 0.2},
        {"sender": "bbr3", **RACK, "loss_rate": 0.1, "receiver": {"ack_every": 4}},
    ]),
    "bursts of losses": ([LINK], [
        {"sender": "cubic", **RACK, "loss_bursts": BURSTS, "receiver": {"ack_every": 2}},
        {"sender": "bbr1", **RACK, "loss_bursts": {**BURSTS, "loss": 0.5, "loss_between": 0.01}, "loss_rate": 0.01},
    ]),
    "reordering": ([LINK], [
        {"sender": "cubic", **RACK, "reordering": {"share": 0.1, "extra_s": 0.007}},
        {"sender": "bbr1", **RACK, "reordering": {"share": 0.5, "extra_s": 0.001}, "receiver": {"ack_every": 2}},
        {"sender": "reno", **RACK, "reordering": {"share": 0.3, "extra_s": 0.05}, "jitter": {"kind": "batch", "max_s": 0.01}},
    ]),
    "reordering and losses": ([LINK], [
        {"sender": "cubic", **RACK, "reordering": {"share": 0.02, "extra_s": 0.015}, "loss_rate": 0.02},
        {"sender": "bbr3", **RACK, "reordering": {"share": 0.02, "extra_s": 0.015}, "loss_rate": 0.02},
    ]),
    "tails": ([LINK], [
        {"sender": "reno", **RACK, "workload": FINITE, "loss_rate": 0.2},
        {"sender": "cubic", **RACK, "workload": BATCHES, "loss_rate": 0.2, "receiver": {"ack_every": 2}},
        {"sender": "bbr1", "rtt_s": 0.15, "recovery": "rack", "workload": BATCHES, "loss_rate": 0.3},
        {"sender": "reno", **RACK, "workload": {"kind": "web", "size_bytes": 10_000, "every_s": 0.1}, "loss_rate": 0.1},
        {"sender": "constant:rate_mbps=0.1", **RACK, "loss_rate": 0.3},
    ]),
    "long rtt": ([LINK], [{"sender": "cubic", "rtt_s": 0.45, "recovery": "rack", "loss_rate": 0.02}]),
    "lost acks": ([LINK], [
        {"sender": "cubic", **RACK, "ack_path": {"loss_rate": 0.3}},
        {"sender": "reno", **RACK, "workload": BATCHES, "ack_path": {"loss_rate": 0.5}, "receiver": {"ack_every": 2}},
    ]),
    "way back": ([{**LINK, "name": "down"}, {"name": "up", "rate_Bps": 3e4, "buffer_bytes": 1500}], [
        {"sender": "bbr1", **RACK, "receiver": {"ack_every": 2}, "ack_path": {"route": ["up"], "loss_rate": 0.05}},
        {"sender": "cubic", **RACK, "reordering": {"share": 0.2, "extra_s": 0.004}, "ack_path": {"route": ["up"]}},
    ]),
    "outage": (
        [{**LINK, "rate_steps": [{"time_s": t, "rate_Bps": r} for t, r in ((0.3, 0.0), (0.75, 2e6), (1.0, 0.0), (1.2, 1e6))]}],
        [{"sender": "bbr1", **RACK}, {"sender": "cubic", **RACK}, {"sender": "reno:prr=1", **RACK, "stop_s": 1.1}],
    ),
    "held acks": ([LINK], [
        {"sender": "fixed_delay_proxy:delay_s=0.01,inner=copa", **RACK, "loss_rate": 0.05},
        {"sender": "reno", **RACK, "receiver": {"aggregation": "batch", "aggregate_s": 0.02, "merge": True}},
        {"sender": "bbr1", **RACK, "burst_s": 0.001, "loss_rate": 0.01},
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_equals_reference(name: str) -> None:
    engine, reference = compare(*NETWORKS[name])
    racks = [flow.rack for flow in reference.flows]
    fields = {"reordering_steps": "mult", "reordering_persists": "persist", "reordering_seen": "reordering_seen"}
    for field, known in fields.items():
        assert engine.flow(field).tolist() == [getattr(rack, known) if rack else 0 for rack in racks], field
    # what the case is about has happened
    assert min(engine.flow("goodput_bytes")) > 0 and engine.flow("found_lost_bytes").sum() > 0
    assert "reordering" not in name or (engine.flow("reordering_seen").any() and engine.flow("reordering_steps").max() > 1)


CASE = st.fixed_dictionaries({
    "sender": st.sampled_from(["reno", "cubic", "bbr1", "bbr3", "reno:prr=1"]), "rtt_s": st.sampled_from([0.01, 0.04, 0.3]),
    "recovery": st.sampled_from(["rack", "rack", "sack"]), "loss_rate": st.sampled_from([0.0, 0.02, 0.3]),
    "reordering": st.sampled_from([None, {"share": 0.05, "extra_s": 0.002}, {"share": 0.3, "extra_s": 0.03}]),
    "receiver": st.sampled_from([{}, {"ack_every": 2}, {"aggregation": "interval", "aggregate_s": 0.01}]),
    "workload": st.sampled_from([{"kind": "bulk"}, FINITE, BATCHES]), "start_s": st.sampled_from([0.0, 0.13]),
})  # fmt: skip


@settings(max_examples=15)
@given(st.lists(CASE, min_size=1, max_size=3), st.sampled_from([3_000, 30_000]))
def test_drawn_networks_equal_the_reference(flows: list[dict[str, Any]], buffer_bytes: int) -> None:
    compare([{**LINK, "buffer_bytes": buffer_bytes}], flows)


@settings(max_examples=25)
@given(st.lists(CASE, min_size=1, max_size=3), st.integers(0, 99))
def test_all_data_arrive_and_every_packet_is_accounted_for(flows: list[dict[str, Any]], seed: int) -> None:
    flows = [{**flow, "workload": FINITE} for flow in flows]
    network = NetworkSpec.model_validate({"links": [{**LINK, "buffer_bytes": 15_000}], "flows": flows})
    engine = PacketEngine(network, [make_sender(flow.sender) for flow in network.flows], duration_s=200.0, seed=seed)
    engine.advance(200.0)
    sent, gone = engine.flow("sent_bytes"), engine.flow("dropped_bytes") + engine.flow("random_lost_bytes")
    new = (sent - engine.flow("resent_bytes")).tolist()
    assert engine.flow("goodput_bytes").tolist() == new == [FINITE["size_bytes"]] * len(flows)
    assert np.isfinite(engine.flow("finished_s")).all() and (engine.flow("inflight_bytes") == 0).all()
    assert (engine.flow("one_way_samples") * 1500 == sent - gone).all()


def run(flow: dict[str, Any], seconds: float = 5.0, seed: int = 0, **link: Any) -> Any:
    links = [{"rate_mbps": 20, **({} if "buffer_packets" in link else {"buffer_bdp": 1}), **link}]
    return ccenv.simulate(
        {"duration_s": seconds, "seed": seed, "links": links, "flows": [{"rtt_ms": 20, **flow}]}, packet_log=True
    )


@pytest.mark.parametrize("extra_ms", [0.5, 4, 10])
@pytest.mark.parametrize("sender", ["reno", "cubic", "cubic:prr=1", "bbr1", "bbr3"])
def test_reordering_costs_little(sender: str, extra_ms: float) -> None:
    """RFC 8985 s.3.2; a sender that counts duplicates loses most of its rate where more than two packets overtake one."""
    flow = {"sender": sender, "reordering": {"share": 0.02, "extra_ms": extra_ms}}
    found = {how: run({**flow, "recovery": how}, 20.0).summary()["links"][0]["utilisation"] for how in ("sack", "rack")}
    assert found["rack"] > 0.9 and found["rack"] > found["sack"] - 0.01
    assert sender not in ("reno", "cubic") or extra_ms < 4 or found["sack"] < 0.4


def test_without_loss_and_reordering_nothing_is_sent_again() -> None:
    for sender in ("reno", "cubic", "bbr1", "bbr3", "copa", "vegas"):
        for receiver in ({}, {"ack_every": 2}):
            flow = run({"sender": sender, "recovery": "rack", "receiver": receiver}, buffer_bdp=1000)
            assert not np.any(flow.flow_log["resent_bytes"]), (sender, receiver)


def both(flow: dict[str, Any], seconds: float = 5.0, **link: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the summaries of a flow that counts duplicates, and of one with RACK."""
    sack, rack = (run({**flow, "recovery": how}, seconds, **link).summary()["flows"][0] for how in ("sack", "rack"))
    return sack, rack


def sends(result: Any) -> np.ndarray:
    return result.packet_log[result.packet_log["event"] == EVENTS.index("send")]


# Ten packets at once into a link that holds five: the last four are lost, and nothing comes after them.
TAIL = {"sender": "reno:initial_window_mss=10", "rtt_ms": 40, "workload": {"kind": "finite", "size_bytes": 15_000}}


def test_a_lost_tail_is_probed_after_two_rtts() -> None:
    """RFC 8985 s.7: the last packet again 2 SRTT after the last ACK; its ACK shows what else is lost."""
    result = run({**TAIL, "recovery": "rack"}, buffer_packets=5)
    log = result.packet_log
    acks = log[log["event"] == EVENTS.index("ack")]
    first_s = acks["time_s"][acks["transmission"] < 10].max()
    probe = sends(result)[10]
    srtt_s = 0.0
    for row in acks[acks["transmission"] < 10]:
        rtt_s = row["time_s"] - sends(result)["time_s"][row["transmission"]]
        srtt_s = rtt_s if srtt_s == 0.0 else srtt_s + 0.125 * (rtt_s - srtt_s)
    assert probe["segment"] == 9 and probe["time_s"] == pytest.approx(first_s + 2 * srtt_s, abs=1e-9)
    assert sends(result)["segment"][11:].tolist() == [6, 7, 8] and result.summary()["flows"][0]["timeouts"] == 0
    assert result.flow_log["found_lost_bytes"][-1, 0] == 4 * 1500  # that which the probe repaired is a loss all the same


def test_a_lost_tail_is_repaired_sooner_than_by_rto_and_a_delayed_ack_is_no_loss() -> None:
    """RFC 8985 s.7.2: with one packet in flight the probe waits for the receiver's timer as well."""
    sack, rack = both(TAIL, buffer_packets=5)
    # one RTT for the first flight, two until the probe, one for it, two for what it shows with a window of two packets
    assert rack["finished_s"] == pytest.approx(6 * 0.04, rel=0.05) and sack["finished_s"] > rack["finished_s"] + 0.1
    flow = {"sender": "reno", "rtt_ms": 20, "recovery": "rack", "receiver": {"ack_every": 2, "ack_timeout_ms": 100}}
    result = run({**flow, "workload": {"kind": "batches", "size_bytes": 1500, "every_ms": 500}}, buffer_packets=50)
    assert not np.any(result.flow_log["resent_bytes"])


def test_after_a_probe_comes_the_rto() -> None:
    """RFC 8985 s.7.3: one probe; what it does not bring back, the RTO does, with its back-off."""
    link: dict[str, Any] = {"rate_steps": [{"time_s": 1.0, "rate_mbps": 0}, {"time_s": 4.0, "rate_mbps": 20}]}
    result = run({"sender": "reno", "recovery": "rack"}, 6.0, **link)
    silent = [row for row in sends(result) if 1.15 < row["time_s"] < 4.0]
    gaps_s = np.diff([row["time_s"] for row in silent])
    assert 3 <= len(silent) < 8 and (gaps_s[1:] > 1.9 * gaps_s[:-1])[1:].all()
    (flow,) = result.summary()["flows"]
    assert flow["timeouts"] >= 2 and flow["throughput_mbps"] > 5


def test_lost_retransmissions_need_no_rto() -> None:
    """RFC 8985 s.3.1: a packet that was sent again and lost again is found by time; with a small window nothing else finds it."""
    sack, rack = both({"sender": "reno", "loss_rate": 0.1}, 60.0)
    assert rack["timeouts"] < 0.4 * sack["timeouts"] and rack["throughput_mbps"] > sack["throughput_mbps"]


def knowing(**fields: Any) -> Any:
    """Return a sender after 40 of 100 segments were acknowledged: RTT 40 ms, smallest 32 ms."""
    fl = np.zeros(1, FLOW_DTYPE).view(np.recarray)[0]
    fl.mss_bytes, fl.next_segment, fl.mask = 1500.0, 0, 127
    begin_rack.py_func(fl)
    fl.next_segment, fl.next_tx, fl.confirmed_below, fl.ack_next_tx = 100, 100, 40, 40
    fl.delivered_bytes, fl.min_rtt_s, fl.srtt_s, fl.rtt_s = 40 * 1500.0, 0.032, 0.04, 0.04
    for name, value in fields.items():
        setattr(fl, name, value)
    return fl


@pytest.mark.parametrize(
    ("fields", "wanted_s"),
    [
        ({}, 0.008),
        ({"reordering_steps": 3}, 0.024),
        ({"reordering_steps": 9}, 0.04),  # SRTT at most
        ({"delivered_bytes": 42 * 1500.0}, 0.008),
        ({"delivered_bytes": 43 * 1500.0}, 0.0),  # three arrived beyond: as with duplicates
        ({"delivered_bytes": 43 * 1500.0, "reordering_seen": 1}, 0.008),
        ({"recovering": 1}, 0.0),
        ({"recovering": 1, "reordering_seen": 1, "reordering_steps": 2}, 0.016),
    ],
)
def test_the_reordering_window_is_as_the_rfc_says(fields: dict[str, Any], wanted_s: float) -> None:
    """RFC 8985 s.6.2, step 4."""
    fl = knowing(**fields)
    set_reordering_window.py_func(fl)
    assert fl.reordering_s == pytest.approx(wanted_s)


def test_the_window_grows_once_a_round_with_duplicates_and_is_kept_for_16_recoveries() -> None:
    """RFC 8985 s.6.2, step 4."""
    take = take_delivery.py_func
    fl = knowing()
    take(fl, 40, 2, 1500.0)  # two arrived, one of them twice
    assert (fl.reordering_steps, fl.dsack_below) == (2, 100)
    take(fl, 40, 1, 0.0)
    assert fl.reordering_steps == 2  # the same round
    fl.confirmed_below, fl.next_segment = 100, 150
    take(fl, 40, 1, 0.0)
    assert (fl.reordering_steps, fl.dsack_below) == (3, 150)
    for n in range(PERSISTENCE):
        assert fl.reordering_steps == 3, n
        fl.recovering, fl.recovery_below = 1, 100
        take(fl, 40, 1, 1500.0)
        assert fl.recovering == 0
    assert fl.reordering_steps == 1
    fl.confirmed_below, fl.next_segment = 150, 151
    take(fl, 40, 1, 1500.0)
    assert fl.dsack_below == NO_ROUND


def test_a_first_flight_that_is_lost_waits_for_the_rto() -> None:
    """RFC 8985 s.7.3: no probe before the RTT is known."""
    steps = [{"time_s": 0.005, "rate_mbps": 0}, {"time_s": 1.5, "rate_mbps": 20}]
    times_s = sends(run({"sender": "reno", "start_s": 0.01, "recovery": "rack"}, rate_steps=steps, buffer_packets=2))["time_s"]
    assert times_s[times_s > 0.01][0] == pytest.approx(0.01 + INITIAL_RTO_S)


def test_transfers_that_come_and_go_begin_anew() -> None:
    arrivals = {"kind": "poisson", "flows": 400, "sizes": "fixed", "size_bytes": 15_000, "load": 0.3, "slots": 64}
    flows = both({"sender": "cubic", "rtt_ms": 40, "loss_rate": 0.02, "arrivals": arrivals}, 20.0)
    sack, rack = (flow["transfers"] for flow in flows)
    assert rack["fct_done_share"] == 1 and rack["fct_slowdown_p99"] < 0.75 * sack["fct_slowdown_p99"]
