"""Senders per packet against closed forms: Reno's sqrt law, BBR's cwnd-limited equilibrium, Copa's oscillation, Vivace's band."""

from __future__ import annotations

import numpy as np
import pytest

from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation.result import Result
from ccenv.simulation.run import simulate

MSS = 1500.0


def run(sender: str, link_rate_mbps: float, rtt_ms: float, seconds: float, *, n: int = 1, **changes: object) -> Result:
    flows = [{"sender": sender, "rtt_ms": rtt_ms, **changes} for _ in range(n)]
    return simulate({"duration_s": seconds, "links": [{"rate_mbps": link_rate_mbps, "buffer_bdp": 12}], "flows": flows})


@pytest.mark.parametrize("loss_rate", [0.001, 0.003])
def test_reno_sqrt_law(loss_rate: float) -> None:
    """Mathis et al. 1997: with an ACK per segment the mean window is sqrt(3/2)/sqrt(p) segments (38.7 and 22.4)."""
    result = run("reno", 1000, 50, 300, loss_rate=loss_rate)
    window_mss = result.throughput_Bps()[2000:, 0].mean() * 0.05 / MSS
    assert window_mss == pytest.approx((1.5 / loss_rate) ** 0.5, rel=0.08)


@pytest.mark.parametrize("n", [2, 4])
def test_bbr1_limited_by_its_window_rests_at_twice_the_rtt(n: int) -> None:
    """[Starvation] s.5.2: RTT = 2 Rm + n alpha/C; at 24 Mbit/s alpha is three quanta of two segments, so 80 + 3 n ms."""
    result = run("bbr1", 24, 40, 40, n=n, jitter={"kind": "batch", "max_ms": 4})
    rtt_s = result.flow_log["rtt_s"][1000:, 0]
    assert np.median(rtt_s) == pytest.approx(0.08 + n * 6 * MSS / (24 * MBPS_IN_BPS), rel=0.03)
    shares = result.throughput_Bps()[1000:].mean(axis=0)
    assert shares.max() < 2 * shares.min()


@pytest.mark.parametrize("link_rate_mbps", [12, 96])
def test_copa_delay_swings_by_four_packets(link_rate_mbps: float) -> None:
    """[Starvation] s.2.2: delta_max = 4 alpha/C, from the packet's own service to four more."""
    result = run("copa:mode_switching=0", link_rate_mbps, 40, 30)
    packets = (result.flow_log["rtt_s"][1000:, 0] - 0.04) * link_rate_mbps * MBPS_IN_BPS / MSS
    assert np.ptp(packets) == pytest.approx(4.0, abs=0.6)
    assert packets.min() == pytest.approx(1.0, abs=0.1)


def test_vivace_delay_stays_within_a_twentieth_of_rm() -> None:
    """[Starvation] s.5.3: delta_max = Rm/20, since eps is 5 %: the mean over the swings lies in it."""
    result = run("vivace", 48, 60, 60)
    queueing_s = result.flow_log["rtt_s"][2000:, 0] - 0.06 - MSS / (48 * MBPS_IN_BPS)
    assert 0 <= queueing_s.mean() < 0.06 / 20


def test_bbr3_latecomers_get_their_share() -> None:
    """A probe is judged packet by packet: with losses counted per round a flow that began 10 s later got a quarter."""
    shares = []
    for seed in range(4):
        flows = [{"sender": "bbr3", "rtt_ms": 40}, {"sender": "bbr3", "rtt_ms": 40, "start_s": 10 + 0.37 * seed}]
        link = {"rate_mbps": 100, "buffer_bdp": 0.1}
        summary = simulate(
            {"name": "late", "seed": seed, "duration_s": 40, "warmup_s": 20, "links": [link], "flows": flows}
        ).summary()
        first, late = (flow["throughput_mbps"] for flow in summary["flows"])
        shares.append(late / (first + late))
    assert 0.33 < np.mean(shares) < 0.6
