"""What remains of the shipped shield's bound per packet: thinned and collected ACKs, jitter, and company (no proof)."""

import pytest

from ccenv.simulation.result import Result
from ccenv.simulation.run import simulate

RTT_S, RATE_MBPS, WARMUP_S, STEPS = 0.04, 12, 4.0, 10
UTILISATION = 0.8
RECEIVERS = {
    "plain": {}, "every_8": {"ack_every": 8, "ack_timeout_ms": 20}, "every_32": {"ack_every": 32, "ack_timeout_ms": 40},
    "interval": {"aggregation": "interval", "aggregate_ms": 20}, "batch": {"aggregation": "batch", "aggregate_ms": 40},
    "merged": {"aggregation": "batch", "aggregate_ms": 40, "merge": True},
}  # fmt: skip


def run(sender: str, others: tuple[str, ...] = (), **flow: object) -> Result:
    """Run flows for 20 s on 12 Mbit/s, Rm 40 ms, 6 BDP of buffer; the first is the sender's."""
    flows = [{"sender": sender, "rtt_ms": 1000 * RTT_S, **flow}, *({"sender": other, "rtt_ms": 1000 * RTT_S} for other in others)]
    links = [{"rate_mbps": RATE_MBPS, "buffer_bdp": 6}]
    return simulate({"name": "packets", "duration_s": 20, "links": links, "flows": flows})


def windows(result: Result, flows: slice) -> float:
    """Return the fewest bytes delivered in any ten Rm, over nine Rm of the link: what F.7 bounds."""
    S = result.flow_log["goodput_bytes"][:, flows].sum(axis=1)[round(WARMUP_S / result.scenario.log_s) :]
    rows = round(STEPS * RTT_S / result.scenario.log_s)
    return float((S[rows:] - S[:-rows]).min() / (RATE_MBPS * 1e6 / 8 * RTT_S * (STEPS - 1)))


@pytest.mark.parametrize("sender", ["learned_shield_u80", "shield:chooser=random", "shield:chooser=lo"])
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_alone_the_bound_survives_thinned_and_collected_acks(sender, receiver):
    result = run(sender, receiver=RECEIVERS[receiver])
    print(f"{sender} {receiver}: {windows(result, slice(0, 1)):.3f}, RTT {result.summary()['flows'][0]['rtt'] * 1000:.0f} ms")
    assert windows(result, slice(0, 1)) >= UTILISATION


@pytest.mark.parametrize("sender", ["learned_shield_u80", "shield:chooser=random"])
def test_alone_the_bound_survives_jitter_of_a_whole_rtt(sender):
    result = run(sender, jitter={"kind": "batch", "max_ms": 1000 * RTT_S})
    print(f"{sender} jitter: {windows(result, slice(0, 1)):.3f}")
    assert windows(result, slice(0, 1)) >= UTILISATION


@pytest.mark.parametrize(
    ("others", "keeps_its_share"), [(1, True), (3, True), ("reno", False), ("cubic", False), ("bbr1", False)]
)
def test_in_company_the_link_stays_busy_and_the_bound_is_gone(others, keeps_its_share):
    """Flows inside the shield share; buffer fillers take nearly all, because the shield drains a standing queue."""
    name = "learned_shield_u80"
    beside = (name,) * others if isinstance(others, int) else (others,)
    result = run(name, beside)
    own, fair = windows(result, slice(0, 1)), 1 / (1 + len(beside))
    print(f"beside {beside}: own {own:.3f}, together {windows(result, slice(None)):.3f}")
    assert windows(result, slice(None)) >= 0.5 and own < UTILISATION and (own >= fair / 2) is keeps_its_share
