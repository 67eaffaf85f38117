"""The packet kernel against the plain reference, event by event, with every queue discipline."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.packet import PacketReference

import ccenv
from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import EVENTS
from ccenv.engine.packet.spec import NetworkSpec

RATE_Bps = 1.5e6
FIELDS = (
    "sent_bytes", "resent_bytes", "found_lost_bytes", "dropped_bytes", "random_lost_bytes", "goodput_bytes", "rtt_sum_s",
    "one_way_sum_s", "timeouts", "inflight_bytes", "delivered_bytes", "min_rtt_s", "srtt_s", "finished_s",
)  # fmt: skip

LINK = {"rate_Bps": RATE_Bps, "buffer_bytes": 30_000}
BASE = {"rtt_s": 0.02}
REPLAY = {"kind": "replay", "interval_s": 0.007, "delays_s": [0.0, 0.012, 0.003, 0.02, 0.001]}
CELLULAR = {"kind": "cellular", "mean_Bps": 1.5e6, "volatility": 1.0, "outages_per_min": 60, "outage_s": 0.1}
WIFI = {"kind": "wifi", "mean_Bps": 1.5e6, "length_s": 1}
ADVERSARIES = ("uniform", "square")
NETWORKS: dict[str, tuple[list, list]] = {
    "drop tail": (
        [{**LINK, "buffer_bytes": 90_000}],
        [{"sender": s, **BASE, "start_s": 0.01 * i} for i, s in enumerate(("bbr1", "vegas", "reno", "cubic", "copa"))],
    ),
    "deep buffer": ([{"rate_Bps": RATE_Bps}], [{"sender": "copa", **BASE}, {"sender": "bbr1", "rtt_s": 0.05}]),
    "one packet of buffer": ([{**LINK, "buffer_bytes": 1500}], [
        {"sender": "reno", **BASE}, {"sender": "reno", "rtt_s": 0.023, "start_s": 0.05},
    ]),
    "red": ([{**LINK, "discipline": "red", "red": {"weight": 0.02}}], [{"sender": "reno", **BASE}] * 3),
    "red ecn": ([{**LINK, "discipline": "red", "red": {"weight": 0.02, "ecn": True}}], [{"sender": "reno", **BASE}] * 3),
    "ecn threshold": ([{**LINK, "discipline": "ecn", "threshold_packets": 8}], [{"sender": "cubic", **BASE}] * 2),
    "codel": ([{"rate_Bps": RATE_Bps, "discipline": "codel"}], [{"sender": "cubic", **BASE}] * 2),
    "rate steps": ([{**LINK, "rate_steps": [{"time_s": 0.3, "rate_Bps": 5e5}, {"time_s": 0.7, "rate_Bps": 2e6}]}], [
        {"sender": "bbr1", **BASE}, {"sender": "reno", **BASE, "start_s": 0.2, "stop_s": 0.8},
    ]),
    "outage": (
        [{**LINK, "rate_steps": [{"time_s": t, "rate_Bps": r} for t, r in ((0.3, 0.0), (0.42, 2e6), (0.6, 0.0), (0.9, 1e6))]}],
        [{"sender": "bbr1", **BASE}, {"sender": "cubic", **BASE}],
    ),
    "cellular": ([{"buffer_bytes": 60_000, "generator": {**CELLULAR, "length_s": 1.0}}], [
        {"sender": "cubic", **BASE}, {"sender": "bbr1", **BASE},
    ]),
    "cellular codel": ([{"buffer_bytes": 90_000, "discipline": "codel", "generator": {**CELLULAR, "outage_s": 0.0}}], [
        {"sender": "cubic", **BASE}, {"sender": "reno", "rtt_s": 0.03},
    ]),
    "leo chain": (
        [
            {
                "name": "a", "buffer_bytes": 90_000, "delay_s": 0.002,
                "generator": {"kind": "leo", "mean_Bps": 2e6, "length_s": 15},
            },
            {"name": "b", "rate_Bps": 1.2e6, "buffer_bytes": 45_000},
        ],
        [{"sender": "reno", "rtt_s": 0.03}, {"sender": "copa", **BASE, "route": ["a"]}],
    ),
    "wifi": ([{"buffer_bytes": 60_000, "generator": WIFI}], [{"sender": "bbr1", **BASE}, {"sender": "cubic", **BASE}]),
    "wifi fq_codel": ([{"buffer_bytes": 60_000, "discipline": "fq_codel", "generator": {**WIFI, "stations": 1}}], [
        {"sender": "reno", **BASE}, {"sender": "cubic", **BASE, "workload": {"kind": "rate", "rate_Bps": 1e5}},
    ]),
    "random loss": ([LINK], [{"sender": "cubic", **BASE, "loss_rate": 0.03}, {"sender": "reno", **BASE, "loss_rate": 0.2}]),
    "linux hosts": (
        [LINK],
        [
            {"sender": sender, **BASE, "start_s": 0.01 * i, "burst_s": 0.001, "handshake": True, "duplicate_acks": "hold"}
            | {"receiver": {"ack_every": 2, "quick_acks": 25 * i}}
            for i, sender in enumerate(
                (
                    "bbr1:departure_time=1,even_windows=1",
                    "cubic:linux_module=1,prr=1",
                    "reno:prr=1",
                    "westwood:tick_ms=4",
                    "hybla:delayed_acks=1,prr=1",
                    "vegas:linux_module=1,prr=1",
                )
            )
        ],
    ),
    "delayed acks": ([LINK], [{"sender": "reno", **BASE, "receiver": {"ack_every": 4}}, {"sender": "reno", **BASE}]),
    "jitter": ([LINK], [
        {"sender": "reno", **BASE, "jitter": {"kind": "constant", "max_s": 0.01}},
        {"sender": "copa", **BASE, "jitter": {"kind": "batch", "max_s": 0.02}},
        {"sender": "cubic", **BASE, "jitter": {"kind": "interval", "max_s": 0.03, "interval_s": 0.03}},
        {"sender": "vegas", **BASE, "jitter": {"kind": "early", "max_s": 0.001, "every_s": 0.2}},
        {"sender": "bbr1", **BASE, "jitter": {**REPLAY, "max_s": 0.02}},
        {"sender": "reno", **BASE, "jitter": {"kind": "uniform", "max_s": 0.002}},
        {"sender": "bbr2", **BASE, "recovery": "flight", "loss_rate": 0.01},
        {"sender": "reno:prr=1", **BASE, "recovery": "flight"},
    ]),
    "adversary": (
        [{**LINK, "delay_s": 0.003}],
        [
            {"sender": "reno", **BASE, "jitter": {"kind": "adversary", "max_s": 0.03, "adversary": a}}
            for a in ("uniform", "square")
        ],
    ),
    "workloads": ([LINK], [
        {"sender": "reno", **BASE, "workload": {"kind": "rate", "rate_Bps": 2e5}},
        {"sender": "bbr1", **BASE, "workload": {"kind": "on_off", "on_s": 0.2, "off_s": 0.1}},
        {"sender": "cubic", **BASE, "workload": {"kind": "finite", "size_bytes": 100_000}},
        {"sender": "reno", **BASE, "workload": {"kind": "batches", "size_bytes": 20_000, "every_s": 0.15}},
        {"sender": "reno", **BASE, "workload": {"kind": "web", "size_bytes": 10_000, "every_s": 0.1}},
    ]),
    "ack aggregation": ([LINK], [
        {"sender": "reno", **BASE, "receiver": {"aggregation": "interval", "aggregate_s": 0.01}},
        {"sender": "bbr1", **BASE, "receiver": {"aggregation": "batch", "aggregate_s": 0.015, "ack_every": 2}},
        {"sender": "cubic", **BASE, "receiver": {"aggregation": "interval", "aggregate_s": 0.012, "merge": True}},
        {
            "sender": "fixed_delay_proxy:delay_s=0.01,inner=copa", **BASE,
            "receiver": {"aggregation": "batch", "aggregate_s": 0.02, "merge": True},
        },
    ]),
    "codel ecn": ([{"rate_Bps": RATE_Bps, "discipline": "codel", "codel": {"ecn": True}}], [
        {"sender": "cubic", **BASE}, {"sender": "reno", **BASE, "ecn": "none"},
    ]),
    "pie": ([{"rate_Bps": RATE_Bps, "discipline": "pie", "pie": {"burst_s": 0.03}}], [
        {"sender": "cubic", **BASE}, {"sender": "reno", **BASE, "start_s": 0.1}, {"sender": "constant:rate_mbps=8", **BASE},
    ]),
    "pie ecn": ([{**LINK, "discipline": "pie", "pie": {"burst_s": 0.0, "ecn": True, "update_s": 0.004, "target_s": 0.004}}], [
        {"sender": "cubic", **BASE}, {"sender": "reno", **BASE}, {"sender": "constant:rate_mbps=8", **BASE, "ecn": "none"},
    ]),
    "fq_codel": ([{**LINK, "buffer_bytes": 90_000, "discipline": "fq_codel", "fq_codel": {"interval_s": 0.03}}], [
        {"sender": "cubic", **BASE, "ecn": "none"}, {"sender": "dctcp", **BASE},
        {"sender": "reno", "rtt_s": 0.04, "workload": {"kind": "batches", "size_bytes": 9_000, "every_s": 0.05}},
        {"sender": "constant:rate_mbps=9", **BASE, "start_s": 0.3},
    ]),
    "flow isolation": ([{**LINK, "discipline": "fq_codel", "fq_codel": {"codel": False, "quantum_bytes": 3000}}], [
        {"sender": "cubic", **BASE}, {"sender": "reno", "rtt_s": 0.04}, {"sender": "bbr1", **BASE},
    ]),
    "dualpi2": ([{**LINK, "buffer_bytes": 90_000, "discipline": "dualpi2"}], [
        {"sender": "prague", **BASE}, {"sender": "cubic", **BASE}, {"sender": "reno", **BASE, "ecn": "none"},
        {"sender": "prague", "rtt_s": 0.035, "start_s": 0.2},
    ]),
    "dualpi2 overload": ([{**LINK, "buffer_bytes": 600_000, "discipline": "dualpi2"}], [
        {"sender": "constant:rate_mbps=14", **BASE, "ecn": "l4s"}, {"sender": "constant:rate_mbps=14", **BASE},
    ]),
    "policer": ([{**LINK, "policer": {"rate_Bps": 4e5, "burst_bytes": 20_000}}], [
        {"sender": "cubic", **BASE}, {"sender": "bbr1", **BASE},
    ]),
    "bursts": ([{"rate_Bps": 6e6, "buffer_bytes": 60_000}], [
        {"sender": "bbr1", **BASE, "burst_s": 0.001}, {"sender": "copa", **BASE, "burst_s": 0.004, "receiver": {"ack_every": 2}},
        {"sender": "constant:rate_mbps=0.5", **BASE, "burst_s": 0.001},
        {"sender": "bbr1", **BASE, "burst_s": 0.002, "workload": {"kind": "rate", "rate_Bps": 2e5}},
    ]),
    "proxies": ([LINK], [
        {"sender": "lambda_proxy:target_s=0.06,window_s=0.3,inner=bbr1", **BASE},
        {"sender": "lambda_proxy:target_s=0.05,window_s=0.2,inner=reno", "rtt_s": 0.04, "receiver": {"ack_every": 2}},
        {"sender": "lambda_proxy:target_s=0.01,window_s=0.2,inner=cubic", **BASE, "start_s": 0.1},
        {"sender": "fixed_delay_proxy:delay_s=0.05,inner=copa", **BASE, "loss_rate": 0.01},
    ]),
    "parking lot": (
        [{"name": "a", **LINK, "delay_s": 0.002}, {"name": "b", "rate_Bps": 1.2e6, "buffer_bytes": 45_000, "delay_s": 0.004}],
        [
            {"sender": "reno", "rtt_s": 0.03, "access_s": 0.001}, {"sender": "cubic", **BASE, "route": ["a"]},
            {"sender": "reno", **BASE, "route": ["b"], "access_s": 0.002},
        ],
    ),
}  # fmt: skip


def compare(links: list, flows: list, seconds: float = 1.2) -> tuple[PacketEngine, PacketReference]:
    """Run kernel and reference; all they know of must be equal."""
    network = NetworkSpec.model_validate({"links": links, "flows": flows})
    senders = [make_sender(flow.sender) for flow in network.flows]
    adversaries = {f.jitter.adversary: make_adversary(f.jitter.adversary) for f in network.flows if f.jitter.adversary}
    engine = PacketEngine(network, senders, adversaries=adversaries, duration_s=seconds, seed=5, packet_log=100_000)
    reference = PacketReference(network, senders, adversaries=adversaries, seed=5)
    engine.advance(seconds)
    reference.advance(seconds)
    for field in FIELDS:
        assert engine.flow(field).tolist() == [getattr(flow, field) for flow in reference.flows], field
    assert engine.flow("cwnd_bytes").tolist() == [float(flow.state.cwnd_bytes) for flow in reference.flows]
    for field in ("dropped_bytes", "marked_bytes", "served_bytes"):
        assert engine.link(field).tolist() == [getattr(link, field) for link in reference.links], field
    assert engine.events == reference.events + len(engine.flow_log)
    wanted = sorted((row for row in reference.log if row[0] <= seconds), key=lambda row: row[0])
    found = engine.packet_log()
    assert [(time_s, EVENTS[event], *rest) for time_s, event, *rest in found.tolist()] == wanted
    return engine, reference


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_equals_reference(name: str) -> None:
    engine, _ = compare(*NETWORKS[name], seconds=0.4 if name == "bursts" else 1.2)  # of four times as many packets
    # what the case is about has happened
    assert min(engine.flow("goodput_bytes")) > 0
    lossy = name in {"drop tail", "red", "codel", "random loss", "one packet of buffer", "parking lot", "pie", "policer"}
    lossy = lossy or name in {"fq_codel", "flow isolation", "dualpi2", "dualpi2 overload"}
    assert not lossy or engine.flow("found_lost_bytes").sum() > 0
    assert not {"ecn", "dualpi2", "fq_codel"} & set(name.split()) or engine.link("marked_bytes")[0] > 0


MSS = 1500.0
DISCIPLINES = ("drop_tail", "codel", "pie", "fq_codel", "dualpi2")


def run(link: dict[str, Any], flows: list[dict[str, Any]], duration_s: float = 12, warmup_s: float = 4) -> Any:
    links = [{"rate_mbps": 40, "buffer_packets": 1000, **link}]
    return ccenv.simulate({"duration_s": duration_s, "warmup_s": warmup_s, "links": links, "flows": flows})


@settings(max_examples=25, deadline=None)
@given(
    discipline=st.sampled_from(DISCIPLINES), buffer_packets=st.integers(1, 60),
    flows=st.lists(
        st.tuples(
            st.sampled_from(["reno", "cubic", "prague", "constant:rate_mbps=9", "bbr1"]),
            st.sampled_from(["none", "classic", "l4s"]), st.floats(0.004, 0.06),
        ),
        min_size=1, max_size=4,
    ),
    policed=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_packet_is_somewhere(discipline, buffer_packets, flows, policed, seed) -> None:
    """What arrived was served, dropped, waits or is in service; what was sent arrived, or was lost, or is in the network."""
    link: dict[str, Any] = {"rate_Bps": 1e6, "buffer_bytes": buffer_packets * MSS, "discipline": discipline}
    if policed:
        link["policer"] = {"rate_Bps": 7e5, "burst_bytes": 6000}
    spec = [{"sender": sender, "ecn": ecn, "rtt_s": rtt_s} for sender, ecn, rtt_s in flows]
    network = NetworkSpec.model_validate({"links": [link], "flows": spec})
    engine = PacketEngine(network, [make_sender(flow.sender) for flow in network.flows], duration_s=1.0, seed=seed)
    engine.advance(1.0)
    waiting = (engine.link("tail") - engine.link("head") + engine.link("busy")) * MSS
    counted = engine.link("served_bytes") + engine.link("dropped_bytes") + waiting
    assert engine.link("arrived_bytes").tolist() == counted.tolist()
    assert (engine.link("tail") - engine.link("head"))[0] <= buffer_packets
    assert engine.flow("dropped_bytes").sum() == engine.link("dropped_bytes")[0]
    assert np.all(engine.flow("marked_bytes")[[flow.ecn == "none" for flow in network.flows]] == 0)
    if policed:
        passed = engine.link("arrived_bytes")[0] - engine.link("dropped_bytes")[0]
        assert passed <= 7e5 + 6000 + MSS


@pytest.mark.parametrize(("discipline", "delay_ms"), [("codel", 9), ("fq_codel", 9), ("pie", 20), ("dualpi2", 20)])
def test_queues_are_short_where_drop_tail_fills_the_buffer(discipline: str, delay_ms: float) -> None:
    flows = [{"sender": "cubic", "rtt_ms": 30}, {"sender": "reno", "rtt_ms": 30, "start_s": 0.1}]
    (plain,), (found,) = (run({"discipline": name}, flows).summary()["links"] for name in ("drop_tail", discipline))
    assert plain["queue_packets"] * 0.3 > 150  # ms at 0.3 ms per packet
    assert found["queue_packets"] * 0.3 < delay_ms and found["utilisation"] > 0.95


@pytest.mark.parametrize("discipline", ["codel", "pie", "fq_codel"])
def test_marks_replace_drops_for_those_that_can_be_marked(discipline: str) -> None:
    link = {"discipline": discipline, discipline: {"ecn": True}}
    marked, dropped = (run(link, [{"sender": "cubic", "rtt_ms": 30, "ecn": ecn}]) for ecn in ("classic", "none"))
    assert marked.link_log["marked_bytes"][-1, 0] > 0 and np.ptp(marked.link_log["dropped_bytes"][400:, 0]) == 0
    assert dropped.link_log["marked_bytes"][-1, 0] == 0 and np.ptp(dropped.link_log["dropped_bytes"][400:, 0]) > 0


@pytest.mark.parametrize("codel", [True, False])
def test_isolation_shares_a_link_evenly_and_protects_a_thin_flow(codel: bool) -> None:
    """RFC 8290 s.1: flows that send less than their share see next to no queue."""
    thin = {"sender": "constant:rate_mbps=2", "rtt_ms": 30}
    flows = [{"sender": "bbr1", "rtt_ms": 10}, {"sender": "cubic", "rtt_ms": 60}, thin]
    summary = run({"discipline": "fq_codel", "fq_codel": {"codel": codel}}, flows).summary()
    first, second, last = summary["flows"]
    assert first["throughput_mbps"] == pytest.approx(19, rel=0.12)
    assert second["throughput_mbps"] == pytest.approx(19, rel=0.12)
    assert last["throughput_mbps"] == pytest.approx(2, rel=0.02) and last["one_way_delay"] < 0.0015


def test_dualpi2_gives_l4s_a_millisecond_and_classic_flows_their_share_and_drops_in_overload() -> None:
    flows = [{"sender": "prague", "rtt_ms": 10}, {"sender": "cubic", "rtt_ms": 10}]
    summary = run({"discipline": "dualpi2"}, flows).summary()
    own, classic = summary["flows"]
    assert own["one_way_delay"] < 0.0015 and 0.010 < classic["one_way_delay"] < 0.025
    assert summary["ratio"] < 2 and summary["links"][0]["utilisation"] > 0.99
    flows = [{"sender": "constant:rate_mbps=60", "rtt_ms": 10, "ecn": "l4s"}, {"sender": "cubic", "rtt_ms": 10}]
    summary = run({"discipline": "dualpi2"}, flows).summary()
    assert summary["flows"][0]["loss"] > 0.2
    assert summary["flows"][0]["one_way_delay"] < 0.02  # unresponsive traffic cannot fill the buffer of 300 ms


def test_a_policer_holds_its_rate() -> None:
    link = {"policer": {"rate_Bps": 1.25e6, "burst_bytes": 30_000}}
    result = run(link, [{"sender": "constant:rate_mbps=20", "rtt_ms": 20}])
    (found,) = result.summary()["links"]
    assert found["utilisation"] == pytest.approx(0.25, rel=0.01) and found["queue_packets"] < 1


@pytest.mark.parametrize(("link", "said"), [
    ({"discipline": "pie", "pie": {"target_s": 0}}, "target_s"),
    ({"discipline": "dualpi2", "dualpi2": {"coupling": 0.5}}, "coupling"),
    ({"discipline": "fq_codel", "fq_codel": {"quantum_bytes": 1}}, "quantum_bytes"),
    ({"discipline": "codel", "codel": {"interval_s": 1e9}}, "interval_s"), ({"discipline": "dualpi", "dualpi2": {}}, "dualpi2"),
    ({"pie": {"target_s": 0.02}}, "drop_tail"), ({"policer": {"rate_Bps": 0, "burst_bytes": 3000}}, "rate_Bps"),
    ({"policer": {"rate_Bps": 1e6, "burst_bytes": 3}}, "burst_bytes"),
])  # fmt: skip
def test_parameters_out_of_range_are_refused_in_one_line(link: dict[str, Any], said: str) -> None:
    with pytest.raises(CcenvError) as caught:
        run(link, [{"sender": "cubic", "rtt_ms": 20}], 1, 0)
    assert said in str(caught.value) and "\n" not in str(caught.value)
