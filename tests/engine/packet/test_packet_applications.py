"""Applications on the packet engine: what they ask for is what flows, as in the reference, and the same again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from oracles.packet import PacketReference

from ccenv.agents import make_sender
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.engine.packet.engine import TICK_S, PacketEngine
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.simulation import read_scenario, simulate
from ccenv.simulation.applications.spec import MEDIAN_PAGE

MSS = 1500.0
LINK = {"rate_mbps": 20, "delay_ms": 10, "buffer_bdp": 2}


def scenario(**changes: object) -> dict[str, object]:
    flows = [
        {"name": "bulk", "sender": "cubic", "rtt_ms": 40, "start_s": 5},
        *({"name": "page", "sender": "cubic", "rtt_ms": 40} for _ in range(6)),
        {"name": "tv", "sender": "bbr1", "rtt_ms": 40, "start_s": 1},
        {"name": "call", "sender": "gcc:start_mbps=1", "rtt_ms": 40},
    ]
    applications = [{"kind": "page", "flows": "page"}, {"kind": "video", "flow": "tv"}, {"kind": "call", "flow": "call"}]
    return {"duration_s": 20, "links": [LINK], "flows": flows, "applications": applications, **changes}


def test_all_three_in_one_home() -> None:
    run, again = simulate(scenario()), simulate(scenario())
    assert run.flow_log.tobytes() == again.flow_log.tobytes()
    assert run.applications == again.applications
    page, video, call = run.applications
    assert page.flows == (1, 2, 3, 4, 5, 6)
    assert page.values["page_loads"] >= 1
    assert page.values["page_load_s"] > 2.652e6 / 2.5e6  # the bytes of a page at the rate of the link
    assert video.values["video_bitrate_mbps"] > 0.235
    assert 0.5 < call.values["call_on_time"] <= 1.0
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
    run = simulate({"duration_s": 30, "links": [LINK], "flows": [flow], "applications": [video]})
    values = run.applications[0].values
    assert values["video_startup_s"] == pytest.approx(0.03 + 1e6 / 2.5e6 + 0.01, abs=0.03)
    assert values["video_stall_s"] == values["video_startup_s"]
    assert values["video_qoe"] == 4.0


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
    assert (engine.flow("goodput_bytes") > 100 * MSS).all()
    assert np.isinf(engine.flow("finished_s")).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
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
    ],
)
def test_wrong_applications_are_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_scenario(scenario(**changes))
    assert "\n" not in str(caught.value)


def test_the_command_prints_what_they_were_worth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "home.yaml"
    file.write_text(json.dumps(scenario(duration_s=6)))
    assert main(["sim", str(file), "--plot", str(tmp_path / "home.png")]) == 0
    text = capsys.readouterr().out
    assert "page_load_s" in text
    assert (tmp_path / "home.png").stat().st_size > 10_000
