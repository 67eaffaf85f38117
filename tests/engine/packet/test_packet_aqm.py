"""What queue disciplines of today must do, whatever flows through them: RFC 8033, 8289, 8290 and 9332, and policers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ccenv
from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec

MSS = 1500.0
DISCIPLINES = ("drop_tail", "codel", "pie", "fq_codel", "dualpi2")


def run(link: dict[str, Any], flows: list[dict[str, Any]], duration_s: float = 12, warmup_s: float = 4) -> Any:
    links = [{"rate_mbps": 40, "buffer_packets": 1000, **link}]
    return ccenv.simulate({"duration_s": duration_s, "warmup_s": warmup_s, "links": links, "flows": flows})


@settings(max_examples=25, deadline=None)
@given(
    discipline=st.sampled_from(DISCIPLINES),
    buffer_packets=st.integers(1, 60),
    flows=st.lists(
        st.tuples(
            st.sampled_from(["reno", "cubic", "prague", "constant:rate_mbps=9", "bbr1"]),
            st.sampled_from(["none", "classic", "l4s"]),
            st.floats(0.004, 0.06),
        ),
        min_size=1,
        max_size=4,
    ),
    policed=st.booleans(),
    seed=st.integers(0, 99),
)
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
    assert found["queue_packets"] * 0.3 < delay_ms
    assert found["utilisation"] > 0.95


@pytest.mark.parametrize("discipline", ["codel", "pie", "fq_codel"])
def test_marks_replace_drops_for_those_that_can_be_marked(discipline: str) -> None:
    link = {"discipline": discipline, discipline: {"ecn": True}}
    marked, dropped = (run(link, [{"sender": "cubic", "rtt_ms": 30, "ecn": ecn}]) for ecn in ("classic", "none"))
    assert marked.link_log["marked_bytes"][-1, 0] > 0
    assert np.ptp(marked.link_log["dropped_bytes"][400:, 0]) == 0
    assert dropped.link_log["marked_bytes"][-1, 0] == 0
    assert np.ptp(dropped.link_log["dropped_bytes"][400:, 0]) > 0


@pytest.mark.parametrize("codel", [True, False])
def test_isolation_shares_a_link_evenly_and_protects_a_thin_flow(codel: bool) -> None:
    """RFC 8290 s.1: flows that send less than their share see next to no queue."""
    thin = {"sender": "constant:rate_mbps=2", "rtt_ms": 30}
    flows = [{"sender": "bbr1", "rtt_ms": 10}, {"sender": "cubic", "rtt_ms": 60}, thin]
    summary = run({"discipline": "fq_codel", "fq_codel": {"codel": codel}}, flows).summary()
    first, second, last = summary["flows"]
    assert first["throughput_mbps"] == pytest.approx(19, rel=0.12)
    assert second["throughput_mbps"] == pytest.approx(19, rel=0.12)
    assert last["throughput_mbps"] == pytest.approx(2, rel=0.02)
    assert last["one_way_delay"] < 0.0015


def test_dualpi2_gives_l4s_a_millisecond_and_classic_flows_their_share() -> None:
    flows = [{"sender": "prague", "rtt_ms": 10}, {"sender": "cubic", "rtt_ms": 10}]
    summary = run({"discipline": "dualpi2"}, flows).summary()
    own, classic = summary["flows"]
    assert own["one_way_delay"] < 0.0015
    assert 0.010 < classic["one_way_delay"] < 0.025
    assert summary["ratio"] < 2
    assert summary["links"][0]["utilisation"] > 0.99


def test_dualpi2_drops_from_unresponsive_l4s_flows_in_overload() -> None:
    flows = [{"sender": "constant:rate_mbps=60", "rtt_ms": 10, "ecn": "l4s"}, {"sender": "cubic", "rtt_ms": 10}]
    summary = run({"discipline": "dualpi2"}, flows).summary()
    assert summary["flows"][0]["loss"] > 0.2
    assert summary["flows"][0]["one_way_delay"] < 0.02  # unresponsive traffic cannot fill the buffer of 300 ms


def test_a_policer_holds_its_rate() -> None:
    link = {"policer": {"rate_Bps": 1.25e6, "burst_bytes": 30_000}}
    result = run(link, [{"sender": "constant:rate_mbps=20", "rtt_ms": 20}])
    (found,) = result.summary()["links"]
    assert found["utilisation"] == pytest.approx(0.25, rel=0.01)
    assert found["queue_packets"] < 1


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"discipline": "pie", "pie": {"target_s": 0}}, "target_s"),
        ({"discipline": "dualpi2", "dualpi2": {"coupling": 0.5}}, "coupling"),
        ({"discipline": "fq_codel", "fq_codel": {"quantum_bytes": 1}}, "quantum_bytes"),
        ({"discipline": "codel", "codel": {"interval_s": 1e9}}, "interval_s"),
        ({"discipline": "dualpi", "dualpi2": {}}, "dualpi2"),
        ({"pie": {"target_s": 0.02}}, "drop_tail"),
        ({"policer": {"rate_Bps": 0, "burst_bytes": 3000}}, "rate_Bps"),
        ({"policer": {"rate_Bps": 1e6, "burst_bytes": 3}}, "burst_bytes"),
    ],
)
def test_parameters_out_of_range_are_refused_in_one_line(link: dict[str, Any], said: str) -> None:
    with pytest.raises(CcenvError) as caught:
        run(link, [{"sender": "cubic", "rtt_ms": 20}], 1, 0)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
