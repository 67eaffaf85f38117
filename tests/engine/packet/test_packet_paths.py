"""Paths: losses in bursts, reordering, ways back with a rate, a queue and losses, two-way traffic, packets of several sizes."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_packet_reference import compare

import ccenv
from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import EVENTS
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.simulation.ranges import read_distribution

DOWN = {"name": "down", "rate_Bps": 1.5e6, "buffer_bytes": 30_000}
UP = {"name": "up", "rate_Bps": 3e4, "buffer_bytes": 1_500}
BASE = {"rtt_s": 0.02}
BURSTS = {"enter": 0.02, "leave": 0.3}
NETWORKS: dict[str, tuple[list, list]] = {
    "bursts of losses": ([DOWN], [
        {"sender": "cubic", **BASE, "loss_bursts": BURSTS},
        {"sender": "bbr1", **BASE, "loss_bursts": {**BURSTS, "loss": 0.5, "loss_between": 0.01}, "loss_rate": 0.01},
    ]),
    "reordering": ([DOWN], [
        {"sender": "cubic", **BASE, "reordering": {"share": 0.1, "extra_s": 0.007}},
        {"sender": "bbr1", **BASE, "reordering": {"share": 0.5, "extra_s": 0.001}, "receiver": {"ack_every": 2}},
        {"sender": "reno", **BASE, "reordering": {"share": 0.3, "extra_s": 0.05}, "jitter": {"kind": "batch", "max_s": 0.01}},
    ]),
    "lost acks": ([DOWN], [
        {"sender": "cubic", **BASE, "ack_path": {"loss_rate": 0.3}},
        {"sender": "reno", **BASE, "receiver": {"ack_every": 2}, "ack_path": {"loss_bursts": {**BURSTS, "loss_between": 0.1}}},
        {"sender": "copa", **BASE, "ack_path": {"loss_rate": 0.9}, "workload": {"kind": "rate", "rate_Bps": 2e5}},
    ]),
    "slow way back": ([DOWN, UP], [
        {"sender": "cubic", **BASE, "ack_path": {"route": ["up"]}},
        {
            "sender": "bbr1", **BASE, "receiver": {"ack_every": 2},
            "ack_path": {"route": ["up"], "ack_bytes": 60, "loss_rate": 0.05},
        },
    ]),
    "two ways": ([DOWN, {**UP, "rate_Bps": 3e5, "buffer_bytes": 20_000, "delay_s": 0.003}], [
        {"sender": "cubic", **BASE, "ack_path": {"route": ["up"]}},
        {"sender": "reno", "rtt_s": 0.03, "route": ["up"], "ack_path": {"route": ["down"]}, "start_s": 0.1},
        {"sender": "copa", "rtt_s": 0.03, "route": ["down"], "receiver": {"aggregation": "interval", "aggregate_s": 0.004}},
    ]),
    "back over two links": (
        [
            DOWN, {"name": "far", "buffer_bytes": 3_000, "generator": {"kind": "cellular", "mean_Bps": 5e4, "length_s": 1.0}},
            {**UP, "delay_s": 0.002},
        ],
        [
            {"sender": "reno", **BASE, "route": ["down"], "ack_path": {"route": ["far", "up"]}},
            {"sender": "cubic", "rtt_s": 0.03, "route": ["down"], "ack_path": {"route": ["up"]}, "access_s": 0.002},
        ],
    ),
    "sizes": ([{**DOWN, "buffer_bytes": 45_000}], [
        {"sender": "cubic", **BASE, "mss_bytes": 500}, {"sender": "bbr1", **BASE}, {"sender": "reno", **BASE, "mss_bytes": 9000},
        {"sender": "vegas", **BASE, "mss_bytes": 700.5, "workload": {"kind": "web", "size_bytes": 10_000, "every_s": 0.1}},
    ]),
    "small packets only": ([DOWN], [{"sender": "cubic", **BASE, "mss_bytes": 300, "burst_s": 0.001}]),
    **{
        f"two ways, {discipline}": (
            [
                {**DOWN, "discipline": discipline, "buffer_bytes": 45_000, **({discipline: options} if options else {})},
                {
                    **UP, "rate_Bps": 3e5, "buffer_bytes": 30_000, "discipline": discipline,
                    **({discipline: options} if options else {}),
                },
            ],
            [
                {"sender": "cubic", **BASE, "ack_path": {"route": ["up"]}},
                {"sender": "prague", "rtt_s": 0.03, "route": ["up"], "ack_path": {"route": ["down"], "ack_bytes": 64}},
                {"sender": "reno", "rtt_s": 0.03, "route": ["up"], "mss_bytes": 400, "ecn": "none"},
                {"sender": "bbr1", **BASE, "route": ["down"], "mss_bytes": 700.5, "start_s": 0.1},
                {"sender": "prague", **BASE, "route": ["down"], "recovery": "rack"},
                {"sender": "constant:rate_mbps=6", **BASE, "route": ["down"], "mss_bytes": 3000, "ecn": "none"},
            ],
        )
        for discipline, options in (
            ("codel", {"interval_s": 0.03}),
            ("pie", {"burst_s": 0.0, "ecn": True}),
            ("fq_codel", {"interval_s": 0.03}),
            ("dualpi2", {}),
        )
    },
    "box and way back": ([{**DOWN, "delay_s": 0.003}, UP], [{
        "sender": "reno", **BASE, "jitter": {"kind": "adversary", "max_s": 0.03, "adversary": "uniform"},
        "ack_path": {"route": ["up"]},
    }]),
    "all of it": (
        [DOWN, {**UP, "rate_Bps": 1e5, "rate_steps": [{"time_s": 0.4, "rate_Bps": 0.0}, {"time_s": 0.5, "rate_Bps": 2e5}]}],
        [
            {
                "sender": "cubic", "rtt_s": 0.03, "mss_bytes": 1000, "loss_bursts": BURSTS, "receiver": {"ack_every": 2},
                "reordering": {"share": 0.2, "extra_s": 0.004}, "ack_path": {"route": ["up"], "loss_bursts": BURSTS},
            },
            {
                "sender": "bbr3", "rtt_s": 0.04, "route": ["up"], "reordering": {"share": 0.1, "extra_s": 0.02},
                "ack_path": {"route": ["down"], "ack_bytes": 64, "loss_rate": 0.1},
            },
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_equals_reference(name: str) -> None:
    engine, reference = compare(*NETWORKS[name], seconds=0.4 if name == "small packets only" else 1.2)
    for field in ("acks_sent", "acks_lost"):
        assert engine.flow(field).tolist() == [getattr(flow, field) for flow in reference.flows], field
    # what the case is about has happened
    lost = engine.flow("acks_lost").sum()
    assert ("acks" not in name and name not in ("slow way back", "all of it")) or lost > 0
    assert "losses" not in name or min(engine.flow("random_lost_bytes")) > 0
    assert "reordering" not in name or engine.flow("resent_bytes")[2] > 0


def run(links: list[dict[str, Any]], flows: list[dict[str, Any]], seconds: float = 5.0, **options: Any) -> Any:
    return ccenv.simulate({"duration_s": seconds, "links": links, "flows": flows}, **options)


BOTTLENECK = {"name": "down", "rate_mbps": 20, "buffer_bdp": 2}


def test_bursts_are_as_long_and_as_often_as_asked() -> None:
    flow = {"sender": "constant:rate_mbps=12", "rtt_ms": 20, "loss_bursts": {"enter": 0.02, "leave": 0.25}}
    log = run([BOTTLENECK], [flow], 60.0, packet_log=True).packet_log
    new = log[log["event"] == EVENTS.index("send")]["transmission"]
    lost = np.isin(new, log[log["event"] == EVENTS.index("drop")]["transmission"])
    assert lost.mean() == pytest.approx(0.02 / 0.27, rel=0.08)
    ends = np.flatnonzero(np.diff(np.concatenate([[0], lost.astype(int), [0]])))
    lengths = ends[1::2] - ends[::2]
    assert lengths.mean() == pytest.approx(4.0, rel=0.08)
    assert np.mean(lengths == 1) == pytest.approx(0.25, abs=0.03)  # geometric


def test_a_share_of_packets_comes_later_by_as_much() -> None:
    flow = {"sender": "constant:rate_mbps=12", "rtt_ms": 20}
    late = {**flow, "reordering": {"share": 0.1, "extra_ms": 5}}
    plain, found = (run([BOTTLENECK], [f], 20.0, packet_log=True).packet_log for f in (flow, late))
    came = [log[log["event"] == EVENTS.index("deliver")] for log in (plain, found)]
    sent_s = found[found["event"] == EVENTS.index("send")]["time_s"]
    waits_s = came[1]["time_s"] - sent_s[came[1]["transmission"]]
    usual_s = waits_s.min()
    assert np.all(np.isclose(waits_s, usual_s, atol=1e-9) | np.isclose(waits_s, usual_s + 0.005, atol=1e-9))
    assert (waits_s > usual_s + 0.004).mean() == pytest.approx(0.1, abs=0.02)
    assert (np.diff(came[0]["transmission"]) > 0).all() and (np.diff(came[1]["transmission"]) < 0).any()
    assert (np.diff(came[1]["time_s"]) >= 0).all()


def test_overtaken_packets_cost_a_sender_that_counts_duplicates() -> None:
    flow = {"sender": "cubic", "rtt_ms": 20}
    rates = [
        run([BOTTLENECK], [{**flow, **way}], 20.0).summary()["flows"][0]
        for way in ({}, {"reordering": {"share": 0.02, "extra_ms": 0.5}}, {"reordering": {"share": 0.02, "extra_ms": 10}})
    ]
    assert rates[0]["throughput_mbps"] == pytest.approx(rates[1]["throughput_mbps"], rel=0.05)  # less than three packets
    assert rates[2]["throughput_mbps"] < 0.6 * rates[0]["throughput_mbps"] and rates[2]["retransmitted"] > 0.01


def test_a_slow_way_back_limits_the_rate() -> None:
    """RFC 3449 s.2: more than one ACK per k data packets does not fit, k the normalised ratio of the rates."""
    up = {"name": "up", "rate_mbps": 0.1, "buffer_bytes": 400}
    flow = {"sender": "bbr1", "rtt_ms": 20, "ack_path": {"route": ["up"]}}
    result = run([BOTTLENECK, up], [flow], 20.0)
    summary = result.summary()
    per_s = 0.1e6 / 8 / 40  # ACKs that the link carries
    acks = np.diff(result.flow_log["rtt_samples"][[1000, 2000], 0])[0] / 10.0
    assert acks == pytest.approx(per_s, rel=0.02) and summary["links"][1]["utilisation"] == pytest.approx(1.0, abs=0.02)
    assert summary["links"][1]["loss"] > 0.3


def test_data_of_the_other_direction_delays_acks() -> None:
    up = {"name": "up", "rate_mbps": 2, "buffer_packets": 40}
    down = {"sender": "cubic", "rtt_ms": 20, "ack_path": {"route": ["up"]}}
    other = {"sender": "cubic", "rtt_ms": 20, "route": ["up"], "ack_path": {"route": ["down"]}}
    alone, beside = run([BOTTLENECK, up], [down], 10.0).summary(), run([BOTTLENECK, up], [down, other], 10.0).summary()
    assert beside["flows"][0]["rtt"] > alone["flows"][0]["rtt"] + 0.05
    assert beside["flows"][0]["one_way_delay"] < alone["flows"][0]["one_way_delay"] + 0.02
    assert beside["flows"][1]["throughput_mbps"] > 1.0


def test_packets_of_several_sizes_share_a_link_in_bytes() -> None:
    sizes = (300, 1500, 9000)
    flows = [{"sender": "constant:rate_mbps=4", "rtt_ms": 20, "mss_bytes": size} for size in sizes]
    summary = run([BOTTLENECK], flows, 10.0).summary()
    assert [flow["throughput_mbps"] for flow in summary["flows"]] == pytest.approx([4.0] * 3, rel=0.02)
    assert summary["links"][0]["utilisation"] == pytest.approx(0.6, rel=0.02)


WAYS = st.fixed_dictionaries(
    {
        "sender": st.sampled_from(("cubic", "bbr1", "vegas", "reno")),
        "rtt_s": st.sampled_from((0.01, 0.03)),
        "mss_bytes": st.sampled_from((400.0, 1500.0, 4000.0)),
        "receiver": st.sampled_from(({}, {"ack_every": 2}, {"ack_every": 4})),
    },
    optional={
        "loss_rate": st.sampled_from((0.01, 0.2)),
        "loss_bursts": st.sampled_from((BURSTS, {"enter": 0.2, "leave": 0.9, "loss_between": 0.05})),
        "reordering": st.sampled_from(({"share": 0.05, "extra_s": 0.02}, {"share": 0.7, "extra_s": 0.003})),
        "ack_path": st.sampled_from(({"route": ["up"]}, {"route": ["up"], "loss_rate": 0.2}, {"loss_bursts": BURSTS})),
    },
)


@settings(max_examples=25, deadline=None)
@given(
    flows=st.lists(WAYS, min_size=1, max_size=3), back=st.booleans(), seed=st.integers(0, 99),
    buffer_bytes=st.sampled_from((9_000, 60_000)), queues=st.sampled_from(("drop_tail", "codel", "pie", "fq_codel", "dualpi2")),
)  # fmt: skip
def test_nothing_is_lost_but_what_is_counted(flows, back, seed, buffer_bytes, queues):
    """Packets and ACKs are on their way, have arrived, or were counted as lost; links have what came and did not leave."""
    up = {"name": "up", "rate_Bps": 8e4, "buffer_bytes": buffer_bytes, "discipline": queues}
    if back:
        flows = [*flows, {"sender": "reno", "rtt_s": 0.03, "route": ["up"]}]
    flows = [{"route": ["down"], **flow} for flow in flows]
    network = NetworkSpec.model_validate(
        {"links": [{**DOWN, "buffer_bytes": buffer_bytes, "discipline": queues}, up], "flows": flows}
    )
    engine = PacketEngine(network, [make_sender(f.sender) for f in network.flows], duration_s=2.0, seed=seed, packet_log=200_000)
    engine.advance(2.0)
    log = engine.packet_log()
    largest = max(network.mss_of(i) for i in range(len(network.flows)))
    for index in range(2):
        came, left, lost = (engine.link(name)[index] for name in ("arrived_bytes", "served_bytes", "dropped_bytes"))
        waits = engine.link_log["queue_bytes"][-1, index]
        assert left <= network.links[index].rate_Bps * 2.0 + largest
        assert waits <= buffer_bytes and -1e-6 <= came - left - lost - waits <= largest  # one may be in service
    for i in range(len(network.flows)):
        mss_bytes, own = network.mss_of(i), log[log["flow"] == i]
        count = {name: int((own["event"] == EVENTS.index(name)).sum()) for name in ("send", "drop", "deliver", "ack")}
        assert count["send"] * mss_bytes == pytest.approx(engine.flow("sent_bytes")[i])
        assert count["drop"] * mss_bytes == pytest.approx(engine.flow("dropped_bytes")[i] + engine.flow("random_lost_bytes")[i])
        assert count["deliver"] <= count["send"] - count["drop"] and engine.flow("min_rtt_s")[i] >= network.flows[i].rtt_s
        arrived = own[own["event"] == EVENTS.index("deliver")]
        assert len(np.unique(arrived["transmission"])) == len(arrived)
        assert len(np.unique(arrived["segment"])) * mss_bytes <= engine.flow("goodput_bytes")[i] + 1e-6
        assert count["ack"] <= count["deliver"] and engine.flow("inflight_bytes")[i] >= -1e-6
        if engine.flow("acks_sent")[i]:
            assert count["ack"] <= engine.flow("acks_sent")[i] - engine.flow("acks_lost")[i]


@pytest.mark.parametrize("discipline", ["codel", "fq_codel", "pie", "dualpi2"])
def test_aqms_keep_acks_from_waiting_behind_an_upload(discipline: str) -> None:
    """RFC 3449 s.2, RFC 8290: where an upload fills a deep buffer, a download's ACKs wait in it, unless the queue is managed."""
    flows = [
        {"sender": "cubic", "rtt_ms": 40, "ack_path": {"route": ["up"]}},
        {"sender": "cubic", "rtt_ms": 40, "route": ["up"], "ack_path": {"route": ["down"]}},
    ]
    found = {}
    for queue in ("drop_tail", discipline):
        up = {"name": "up", "rate_mbps": 2, "buffer_packets": 200, "discipline": queue}
        found[queue] = run([BOTTLENECK, up], flows, 30.0).summary()
    down = {queue: summary["flows"][0] for queue, summary in found.items()}
    assert down["drop_tail"]["rtt"] > 0.4 and down[discipline]["rtt"] < 0.25
    assert down[discipline]["throughput_mbps"] > 0.8 * down["drop_tail"]["throughput_mbps"]
    assert found[discipline]["links"][1]["utilisation"] > 0.7


def test_isolated_flows_share_bytes_whatever_their_sizes() -> None:
    """RFC 8290 s.4.2: the deficit counts bytes; among equals, packets of 500 bytes get what packets of 1500 get."""
    flows = [{"sender": "constant:rate_mbps=30", "rtt_ms": 20, "mss_bytes": size} for size in (500, 1500)]
    link = {**BOTTLENECK, "discipline": "fq_codel", "fq_codel": {"codel": False}}
    small, large = (flow["throughput_mbps"] for flow in run([link], flows, 10.0).summary()["flows"])
    assert small == pytest.approx(large, rel=0.03)  # of what arrives anew, where 60 % are lost


def test_transfers_end_whatever_the_way() -> None:
    way = {
        "loss_bursts": BURSTS, "reordering": {"share": 0.2, "extra_ms": 8},
        "ack_path": {"route": ["up"], "loss_rate": 0.3}, "receiver": {"ack_every": 2},
    }  # fmt: skip
    up = {"name": "up", "rate_mbps": 0.2, "buffer_packets": 4}
    flow = {"sender": "cubic", "rtt_ms": 20, "workload": {"kind": "finite", "size_bytes": 600_000}, **way}
    result = run([BOTTLENECK, up], [flow], 60.0)
    assert math.isfinite(result.finished_s[0])
    assert result.flow_log["goodput_bytes"][-1, 0] == 600_000 and result.flow_log["inflight_bytes"][-1, 0] == 0


def test_distributions_draw_ways() -> None:
    data = {
        "links": [
            {"name": "down", "rate_mbps": [5, 20], "buffer_bdp": 1}, {"name": "up", "rate_mbps": [0.2, 1], "buffer_packets": 5},
        ],
        "flows": [{
            "sender": "cubic", "rtt_ms": 20, "loss_bursts": {"enter": [0, 0.01], "leave": 0.2}, "mss_bytes": 1000,
            "reordering": {"share": [0, 0.1], "extra_ms": [1, 5]}, "ack_path": {"route": ["up"], "loss_rate": [0, 0.1]},
        }],
    }  # fmt: skip
    drawn = read_distribution(data).drawn(np.random.default_rng(1))
    flow = drawn.flows[0]
    assert flow.loss_bursts is not None and flow.reordering is not None and flow.ack_path is not None
    assert 0 < flow.loss_bursts.enter < 0.01 and 0.001 < flow.reordering.extra_s < 0.005 and 0 < flow.ack_path.loss_rate < 0.1


@pytest.mark.parametrize(("flow", "link", "said"), [
    ({"loss_bursts": {"enter": 1.5, "leave": 0.1}}, {}, "less than or equal to 1"),
    ({"loss_bursts": {"enter": 0.1, "leave": 0}}, {}, "greater than 0"), ({"loss_bursts": {"enter": 0.1}}, {}, "leave"),
    ({"reordering": {"share": 1, "extra_ms": 5}}, {}, "less than 1"),
    ({"reordering": {"share": 0.1, "extra_ms": 0}}, {}, "greater than or equal to 0.00001"),
    ({"ack_path": {"route": ["upp"]}}, {}, "no link 'upp'.*Did you mean 'up'"),
    ({"ack_path": {"route": ["down"]}}, {}, "both ways"), ({"ack_path": {"route": ["up", "up"]}}, {}, "each once"),
    ({"ack_path": {"route": ["up"], "ack_bytes": 5}}, {}, "greater than or equal to 20"),
    ({"ack_path": {"loss_rate": 1}}, {}, "less than 1"),
    ({"ack_path": {"route": ["up"]}, "rtt_ms": 5}, {"delay_ms": 9}, "take longer than its rtt_s"),
    ({"mss_bytes": 70_000}, {}, "less than or equal to 65536"),
    ({"mss_bytes": 9000}, {"buffer_bytes": 3000, "name": "down"}, "holds no packet of 9000"),
    ({"ack_path": {"route": ["up"]}}, {"discipline": "red"}, "several sizes"),
    ({"sender": "cc_qdel", "mss_bytes": 900}, {}, "their own mss_bytes"),
    (
        {"reordering": {"share": 0.1, "extra_ms": 5}, "jitter": {"kind": "adversary", "max_ms": 9, "adversary": "uniform"}}, {},
        "box",
    ),
    ({"arrivals": {"flows": 9, "load": 0.5, "size_bytes": 9000}, "ack_path": {"route": ["up"]}}, {}, "arrivals has no"),
])  # fmt: skip
def test_wrong_ways_are_one_line(flow: dict[str, Any], link: dict[str, Any], said: str) -> None:
    links = {
        "down": {"name": "down", "rate_mbps": 20, "buffer_packets": 40},
        "up": {"name": "up", "rate_mbps": 1, "buffer_packets": 9},
    }
    name = link.get("name", "up")
    changed = {**links[name], **link}
    if "buffer_bytes" in link:
        del changed["buffer_packets"]
    links[name] = changed
    with pytest.raises(CcenvError, match=said) as error:
        run(list(links.values()), [{"sender": "cubic", "rtt_ms": 20, "route": ["down"], **flow}])
    assert "\n" not in str(error.value)
