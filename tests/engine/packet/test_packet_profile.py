"""Profiles of scenarios, bursts of paced senders, HyStart++ and BBR as in Linux."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ccenv
from ccenv.agents import make_sender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import EVENTS
from ccenv.engine.packet.spec import NetworkSpec
from ccenv.engine.packet.transport import MAX_BURST_BYTES, SMALL_BURSTS_Bps
from ccenv.simulation.result import BURST_S, NOISE_S, as_run
from ccenv.simulation.scenario import read_scenario

LINK = {"rate_mbps": 48, "buffer_bdp": 1}


def given(**changes: Any) -> dict[str, Any]:
    return {"duration_s": 4, "links": [LINK], "flows": [{"sender": "cubic", "rtt_ms": 40}], **changes}


def test_plain_is_what_a_scenario_without_a_profile_is() -> None:
    plain, named = ccenv.simulate(given()), ccenv.simulate(given(profile="linux"), profile="plain")
    np.testing.assert_array_equal(plain.flow_log, named.flow_log)
    assert as_run(plain.scenario) is plain.scenario


def test_linux_completes_what_a_scenario_leaves_open() -> None:
    flows = [{"sender": "bbr1", "rtt_ms": 40}, {"sender": "cubic:hystart=0", "rtt_ms": 40, "burst_s": 0, "name": "mine"}]
    flows += [{"sender": "reno", "rtt_ms": 40, "receiver": {"ack_every": 4}, "jitter": {"kind": "none"}}]
    first, second, third = as_run(read_scenario(given(profile="linux", seed=3, flows=flows))).flows
    assert first.sender == "bbr1:pacing_margin=0.01,extra_acked=1,even_windows=1"
    assert (first.name, first.burst_s, first.receiver.ack_every) == ("bbr1", BURST_S, 2)
    assert (first.jitter.kind, first.jitter.max_s) == ("batch", NOISE_S)
    assert (second.sender, second.name, second.burst_s) == ("cubic:hystart=0", "mine", 0)
    assert (third.receiver.ack_every, third.jitter.kind) == (4, "none")
    starts = [flow.start_s for flow in (first, second, third)]
    assert len(set(starts)) == 3 and min(starts) > 0 and max(starts) < 0.04
    again = as_run(read_scenario(given(profile="linux", seed=4, flows=flows))).flows
    assert [flow.start_s for flow in again] != starts


def test_seeds_decide_phases_and_noise_of_linux_hosts() -> None:
    logs = [ccenv.simulate(given(profile="linux", seed=seed)).flow_log["goodput_bytes"] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(logs[0], logs[1])
    assert np.any(logs[0] != logs[2])


def test_throughput_of_linux_hosts_is_payload() -> None:
    result = ccenv.simulate(given(profile="linux", warmup_s=2))
    (flow,), (link,) = (result.summary()[key] for key in ("flows", "links"))
    assert flow["throughput_mbps"] == pytest.approx(48 * link["utilisation"] * 1448 / 1500, rel=1e-2)
    assert result.summary()["profile"] == "linux"


@pytest.mark.parametrize(("rate_mbps", "packets"), [(1.0, 1), (10.0, 2), (96.0, 8), (400.0, 33), (2000.0, 43)])
def test_a_paced_sender_sends_bursts_and_keeps_its_rate(rate_mbps: float, packets: int) -> None:
    rate_Bps = rate_mbps * 125_000
    assert packets == (1 if rate_Bps < SMALL_BURSTS_Bps else max(2, min(BURST_S * rate_Bps, MAX_BURST_BYTES) // 1500))
    flow = {"sender": f"constant:rate_mbps={rate_mbps:g}", "rtt_s": 0.02, "burst_s": BURST_S}
    network = NetworkSpec.model_validate({"links": [{"rate_Bps": 4e8}], "flows": [flow]})
    seconds = 2000 * 1500 / rate_Bps
    engine = PacketEngine(network, [make_sender(network.flows[0].sender)], duration_s=seconds, packet_log=100_000)
    engine.advance(seconds)
    log = engine.packet_log()
    times_s = log["time_s"][log["event"] == EVENTS.index("send")]
    begins = np.flatnonzero(np.diff(times_s, prepend=-1.0) > 0)
    assert set(np.diff(begins).tolist()) == {packets}
    # never more than a burst ahead of the rate
    allowed = np.floor(times_s * rate_Bps / 1500 + 1e-6) + packets
    assert np.all(np.arange(1, len(times_s) + 1) <= allowed)
    assert len(times_s) == pytest.approx(2000, abs=packets + 1)


@pytest.mark.parametrize("sender", ["cubic", "reno"])
def test_hystart_leaves_slow_start_with_few_losses(sender: str) -> None:
    network = {"duration_s": 3, "links": [{"rate_mbps": 100, "buffer_bdp": 2}]}
    dropped, used = [], []
    for early in (0, 1):
        result = ccenv.simulate({**network, "flows": [{"sender": f"{sender}:hystart={early}", "rtt_ms": 50}]})
        dropped.append(result.flow_log["dropped_bytes"][-1, 0])
        used.append(result.summary()["links"][0]["utilisation"])
    assert dropped[0] > 1000 * 1500
    assert dropped[1] < 0.3 * dropped[0]
    assert used[1] > 0.8


def test_extra_acked_keeps_bbr_sending_while_acks_are_held() -> None:
    """ACKs that come every 2 Rm leave a window of two BDP nothing to send with in between."""
    flows = [{"rtt_ms": 40, "receiver": {"aggregation": "interval", "aggregate_ms": 80}}]
    used = []
    for extra in (0, 1):
        scenario = given(duration_s=8, warmup_s=4, flows=[{**flows[0], "sender": f"bbr1:extra_acked={extra}"}])
        used.append(ccenv.simulate(scenario).summary()["links"][0]["utilisation"])
    assert used[0] < 0.8
    assert used[1] > 0.95
