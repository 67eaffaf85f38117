"""Flows that arrive and applications that offer data, against the plain reference and closed forms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.packet import PacketReference
from oracles.packet_arrivals import ArrivalsReference

import ccenv
from ccenv.agents import make_sender
from ccenv.base.errors import CcenvError, InputError
from ccenv.cli.main import main
from ccenv.engine.packet.engine import TICK_S, PacketEngine
from ccenv.engine.packet.spec import CURVES, Arrivals, NetworkSpec
from ccenv.simulation import Result, read_scenario, simulate
from ccenv.simulation.applications import MEDIAN_PAGE

LINK = {"rate_Bps": 1.5e6, "buffer_bytes": 30_000}
SHORT = {"kind": "poisson", "flows": 60, "slots": 40, "load": 0.7, "sizes": "pareto", "size_bytes": 15_000}
NETWORKS: dict[str, tuple[list, list]] = {
    "poisson": ([LINK], [{"sender": "cubic", "rtt_s": 0.02, "arrivals": SHORT}]),
    "beside": ([LINK], [
        {"sender": "bbr1", "rtt_s": 0.03}, {"sender": "reno", "rtt_s": 0.02, "arrivals": {**SHORT, "slots": 60}},
    ]),
    "incast": ([{**LINK, "buffer_bytes": 60_000}], [{
        "sender": "bbr3", "rtt_s": 0.01, "receiver": {"ack_every": 2}, "jitter": {"kind": "batch", "max_s": 0.004},
        "arrivals": {"kind": "incast", "flows": 80, "slots": 60, "fan_in": 20, "every_s": 0.3, "size_bytes": 9000},
    }]),
    "lossy codel": ([{**LINK, "discipline": "codel"}], [{
        "sender": "cubic", "rtt_s": 0.02, "loss_rate": 0.05, "arrivals": {**SHORT, "load": 0.5},
    }]),
    "too few slots": ([LINK], [{"sender": "reno", "rtt_s": 0.02, "arrivals": {**SHORT, "slots": 5}}]),
    "fq_codel": ([{**LINK, "discipline": "fq_codel"}], [{"sender": "vegas", "rtt_s": 0.02, "arrivals": SHORT}]),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_equals_reference(name: str) -> None:
    links, flows = NETWORKS[name]
    network = NetworkSpec.model_validate({"links": links, "flows": flows})
    senders = [make_sender(flow.sender) for flow in network.flows]
    seconds = 1.5
    engine = PacketEngine(network, senders, duration_s=seconds, seed=3)
    reference = ArrivalsReference(network, senders, seed=3)
    engine.advance(seconds)
    reference.advance(seconds)
    (transfers,) = engine.transfers().values()
    found = {row: end for row, end in enumerate(transfers[:, 2].tolist()) if np.isfinite(end)}
    assert found == reference.done and len(found) > 20
    for field in ("sent_bytes", "goodput_bytes"):
        assert engine.flow(field).tolist() == [getattr(flow, field) for flow in reference.flows], field
    for field in ("dropped_bytes", "served_bytes"):
        assert engine.link(field).tolist() == [getattr(link, field) for link in reference.links], field
    assert engine.events == reference.events + engine.flow_log.shape[0]


def run(arrivals: dict[str, Any], seconds: float = 5.0, **flow: Any) -> Result:
    data = {
        "duration_s": seconds,
        "links": [{"rate_mbps": 50, "buffer_packets": 100}],
        "flows": [{"sender": "cubic", "rtt_ms": 20, **flow, "arrivals": arrivals}],
    }
    return ccenv.simulate(data)


def test_every_byte_of_every_transfer_arrives() -> None:
    result = run({"flows": 800, "slots": 60, "load": 0.6, "sizes": "pareto", "size_bytes": 20_000}, 8.0)
    transfers = result.transfers[0]
    assert np.isfinite(transfers).all() and (np.diff(transfers[:, 1]) > 0).all()
    packets = np.maximum(1, np.ceil(transfers[:, 0] / 1500)).sum()
    log = result.flow_log[:, 0]
    assert log["goodput_bytes"][-1] == packets * 1500
    assert log["sent_bytes"][-1] == log["goodput_bytes"][-1] + log["resent_bytes"][-1]
    assert log["inflight_bytes"][-1] == 0 and result.link_log["queue_bytes"][-1, 0] == 0
    best = 0.02 + np.maximum(1, np.ceil(transfers[:, 0] / 1500)) * 1500 / 6.25e6
    assert ((transfers[:, 2] - transfers[:, 1]) / best >= 1 - 1e-9).all() and result.finished_s[0] == transfers[:, 2].max()


def test_slots_do_not_matter_and_seeds_do() -> None:
    given = {"flows": 300, "load": 0.4, "sizes": "hadoop"}
    ends = [run({**given, "slots": slots}).transfers[0] for slots in (64, 64, 400)]
    assert ends[0].tobytes() == ends[1].tobytes() and np.allclose(ends[0], ends[2], rtol=0.2, equal_nan=True)


def test_who_finds_no_slot_is_not_done() -> None:
    result = run({"flows": 300, "slots": 3, "load": 0.9, "size_bytes": 50_000}, 20.0)
    found, transfers = result.summary()["flows"][0]["transfers"], result.transfers[0]
    assert found["turned_away"] > 20 and found["done"] + found["turned_away"] == found["come"] == 300
    assert found["fct_done_share"] == pytest.approx(found["done"] / 300)
    begun = transfers[np.isfinite(transfers[:, 2])]
    assert all((begun[:, 1] <= t).sum() - (begun[:, 2] <= t).sum() <= 3 for t in begun[:, 1])  # never more at once


def test_a_transfer_alone_takes_its_slow_start_and_the_summary_has_slowdowns_by_size() -> None:
    result = run({"flows": 3, "slots": 1, "per_s": 0.5, "size_bytes": 15_000}, 20.0)
    took = np.diff(result.transfers[0][:, 1:], axis=1)
    assert took == pytest.approx(np.full((3, 1), took[0, 0]), rel=1e-9)  # in one slot, one after the other, all alike
    assert result.summary()["flows"][0]["transfers"]["fct_done_share"] == 1.0
    found = run({"flows": 90, "slots": 60, "load": 0.5, "sizes": "web_search"}, 60.0).summary()["flows"][0]["transfers"]
    assert found["come"] == 90 and 1 <= found["fct_slowdown_p50"] <= found["fct_slowdown_p99"]
    assert found["fct_large_p50"] >= 1


@pytest.mark.parametrize("name", CURVES)
def test_sizes_follow_their_curve(name: str) -> None:
    arrivals = Arrivals(flows=20_000, load=0.5, sizes=name)  # type: ignore[arg-type]
    _, sizes = arrivals.drawn(1, 0, 0.0, 1e6)
    for size, share in CURVES[name]:
        assert (sizes <= size).mean() == pytest.approx(share, abs=0.015)
    assert sizes.mean() == pytest.approx(arrivals.mean_bytes, rel=0.05)


def test_loads_are_those_asked_for() -> None:
    times_s, sizes = Arrivals(flows=20_000, load=0.5, sizes="fixed", size_bytes=10_000).drawn(1, 0, 2.0, 1e6)
    assert sizes.sum() / (times_s[-1] - 2.0) == pytest.approx(5e5, rel=0.03)


@pytest.mark.parametrize(("arrivals", "flow", "said"), [
    ({"flows": 500, "slots": 9, "load": 0.9, "size_bytes": 50_000}, {"sender": "cc_qdel"}, "need a classic CCA"),
    ({"flows": 500, "slots": 512, "load": 0.9, "size_bytes": 50_000}, {"rtt_ms": 4000}, "GiB; at most 2: take fewer slots"),
    ({"flows": 500, "slots": 5000, "load": 0.9, "size_bytes": 50_000}, {}, "less than or equal to 4096"),
    ({"flows": 10**7, "load": 0.9, "size_bytes": 50_000}, {}, "less than or equal to 1000000"),
    ({"flows": 5, "size_bytes": 50_000}, {}, "one of load and per_s"),
    ({"flows": 5, "kind": "incast", "size_bytes": 50_000}, {}, "need fan_in and every_s"),
    ({"flows": 5, "load": 0.5}, {}, "size_bytes is 0"), ({"flows": 5, "load": 0.5, "sizes": "web_serch"}, {}, "web_serch"),
    ({"flows": 5, "load": 0.5, "size_bytes": 1}, {"workload": {"kind": "rate", "rate_mbps": 1}}, "no workload"),
])  # fmt: skip
def test_wrong_arrivals_are_one_line(arrivals: dict[str, Any], flow: dict[str, Any], said: str) -> None:
    with pytest.raises(CcenvError, match=said) as error:
        run(arrivals, **flow)
    assert "\n" not in str(error.value)


MSS = 1500.0
APPLICATION_LINK = {"rate_mbps": 20, "delay_ms": 10, "buffer_bdp": 2}


def scenario(**changes: object) -> dict[str, object]:
    flows = [
        {"name": "bulk", "sender": "cubic", "rtt_ms": 40, "start_s": 5},
        *({"name": "page", "sender": "cubic", "rtt_ms": 40} for _ in range(6)),
        {"name": "tv", "sender": "bbr1", "rtt_ms": 40, "start_s": 1},
        {"name": "call", "sender": "gcc:start_mbps=1", "rtt_ms": 40},
    ]
    applications = [{"kind": "page", "flows": "page"}, {"kind": "video", "flow": "tv"}, {"kind": "call", "flow": "call"}]
    return {"duration_s": 20, "links": [APPLICATION_LINK], "flows": flows, "applications": applications, **changes}


def test_all_three_in_one_home() -> None:
    run, again = simulate(scenario()), simulate(scenario())
    assert run.flow_log.tobytes() == again.flow_log.tobytes() and run.applications == again.applications
    page, video, call = run.applications
    assert page.flows == (1, 2, 3, 4, 5, 6) and page.values["page_loads"] >= 1
    assert page.values["page_load_s"] > 2.652e6 / 2.5e6  # the bytes of a page at the rate of the link
    assert video.values["video_bitrate_mbps"] > 0.235 and 0.5 < call.values["call_on_time"] <= 1.0
    # no byte arrives that was not asked for: whole visits, and at most one more
    got = run.flow_log["goodput_bytes"][-1, 1:7].sum()
    whole = sum(-(-o.size_bytes // MSS) * MSS * o.count for w in MEDIAN_PAGE for o in w)
    visits = page.values["page_loads"]
    assert visits * whole <= got <= (visits + 1) * whole
    summary = run.summary()["applications"]
    assert [one["kind"] for one in summary] == ["page", "video", "call"]


def test_a_lone_video_gets_what_the_arithmetic_says() -> None:
    """Chunks of 1 MB at 2.5 MB/s after a request of 30 ms on the way back: the first takes .4 s and slow start."""
    flow = {"name": "tv", "sender": "constant:rate_mbps=20", "rtt_ms": 40}
    video = {"kind": "video", "flow": "tv", "abr": "fixed", "ladder_mbps": [4], "chunk_s": 2, "buffer_s": 8}
    run = simulate({"duration_s": 30, "links": [APPLICATION_LINK], "flows": [flow], "applications": [video]})
    values = run.applications[0].values
    assert values["video_startup_s"] == pytest.approx(0.03 + 1e6 / 2.5e6 + 0.01, abs=0.03)
    assert values["video_stall_s"] == values["video_startup_s"] and values["video_qoe"] == 4.0


def test_kernel_equals_reference_with_offers_from_outside() -> None:
    flows = [
        {"sender": "reno", "rtt_s": 0.03, "access_s": 0.002, "workload": {"kind": "asked"}},
        {"sender": "bbr1", "rtt_s": 0.03, "access_s": 0.002, "workload": {"kind": "asked"}, "start_s": 0.05},
    ]
    network = NetworkSpec.model_validate(
        {"links": [{"rate_Bps": 1.2e6, "buffer_bytes": 30_000, "delay_s": 0.005}], "flows": flows}
    )
    senders = [make_sender(flow.sender) for flow in network.flows]
    engine = PacketEngine(network, senders, duration_s=1.5, seed=3)
    reference = PacketReference(network, senders, adversaries={}, seed=3)
    draw = np.random.default_rng(2)
    for tick in range(10, 150):
        for one in (engine, reference):
            one.advance(tick * TICK_S - 1e-9)
        if draw.random() < 0.1:
            flow, more = int(draw.integers(2)), float(draw.integers(1, 80_000))
            engine.offer(flow, more)
            reference.flows[flow].offered += -(-more // MSS)
    for field in ("sent_bytes", "goodput_bytes", "resent_bytes", "rtt_sum_s", "inflight_bytes"):
        assert engine.flow(field).tolist() == [getattr(flow, field) for flow in reference.flows], field
    assert (engine.flow("goodput_bytes") > 100 * MSS).all() and np.isinf(engine.flow("finished_s")).all()


@pytest.mark.parametrize(("changes", "message"), [
    ({"applications": [{"kind": "page", "flows": "pge"}]}, "Did you mean 'page'"),
    ({"applications": [{"kind": "video", "flow": "page"}]}, "several of this name"),
    ({"applications": [{"kind": "call", "flow": "call"}, {"kind": "video", "flow": "call"}]}, "carries something else"),
    ({"applications": [{"kind": "game", "flow": "call"}]}, "game"),
    ({"applications": [{"kind": "video", "flow": "tv", "abr": "bolaa"}]}, "bola"),
    (
        {"flows": [{"sender": "reno", "rtt_ms": 40, "workload": {"kind": "asked"}}], "applications": []},
        "is for flows of an application",
    ),
    (
        {
            "flows": [{"name": "tv", "sender": "reno", "rtt_ms": 40, "workload": {"kind": "finite", "size_bytes": 1e6}}],
            "applications": [{"kind": "video", "flow": "tv"}],
        },
        "has a workload already",
    ),
])  # fmt: skip
def test_wrong_applications_are_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_scenario(scenario(**changes))
    assert "\n" not in str(caught.value)


def test_the_command_prints_what_they_were_worth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "home.yaml"
    file.write_text(json.dumps(scenario(duration_s=6)))
    assert main(["sim", str(file), "--plot", str(tmp_path / "home.png")]) == 0
    text = capsys.readouterr().out
    assert "page_load_s" in text and (tmp_path / "home.png").stat().st_size > 10_000
