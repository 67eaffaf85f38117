"""Belief programs and learned senders over receivers, return paths and what they are told of Rm: no crawl, bounds that hold.

A sender that takes late ACKs for a queue ends at one segment per Rm (.006 of this link) and never leaves it.
"""

from __future__ import annotations

from typing import Any

import pytest

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import PolicySender, ProgramSender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import NetworkSpec

RATE_BPS, RTT_S, MSS = 6e6, 0.04, 1500
SECONDS = 16.0
KEEPS_NO_BELIEFS = AGENTS.names("packet")
SENDERS = [n for n in AGENTS.names() if n not in KEEPS_NO_BELIEFS and isinstance(make_sender(n), ProgramSender | PolicySender)]
RECEIVERS: dict[str, dict[str, Any]] = {
    "every packet": {},
    "every second packet": {"ack_every": 2},
    "every fourth packet": {"ack_every": 4},
    "every eighth packet": {"ack_every": 8},
    "every fourth packet, 20 ms at most": {"ack_every": 4, "ack_timeout_s": 0.02},
    "ACKs every 5 ms": {"aggregation": "interval", "aggregate_s": 0.005},
    "ACKs in batches of up to 20 ms": {"aggregation": "batch", "aggregate_s": 0.02, "merge": True},
    "ACKs every 40 ms": {"aggregation": "interval", "aggregate_s": 0.04},
}
TOLD: dict[str, dict[str, Any]] = {
    "Rm 20 % too short": {"told_rtt_s": 0.8 * RTT_S},
    "Rm 10 % too short": {"told_rtt_s": 0.9 * RTT_S},
    "Rm 20 % too long": {"told_rtt_s": 1.2 * RTT_S},
    "Rm estimated": {"rtt_known": False},
}
# A probe of cc_probe_slow lasts one Rm and proves something only where D is at most that; it grows by half a segment per 6 Rm.
SLOW_GROWTH = ("cc_probe_slow", "cc_probe_slow_k")
# They keep the queueing delay low that they cannot rule out: with a told Rm that is refuted that is D for ever.
LOW_DELAY = ("learned_low_delay", "learned_low_delay_d4")


def play(name: str, **flow: Any) -> tuple[float, dict[str, float]]:
    """Return the utilisation in the second half of a run, and the beliefs at its end."""
    link = {"rate_Bps": RATE_BPS, "buffer_bytes": RATE_BPS * RTT_S}
    network = NetworkSpec.model_validate({"links": [link], "flows": [{"sender": name, "rtt_s": RTT_S, **flow}]})
    engine = PacketEngine(network, [make_sender(name)], duration_s=SECONDS)
    engine.advance(SECONDS / 2)
    before = float(engine.flow("goodput_bytes")[0])
    engine.advance(SECONDS)
    (beliefs,) = engine.beliefs().values()
    return (float(engine.flow("goodput_bytes")[0]) - before) / (RATE_BPS * SECONDS / 2), beliefs


def least(name: str, told: str = "") -> float:
    if name in SLOW_GROWTH:
        return 0.1
    return 0.03 if name in LOW_DELAY and told == "Rm 20 % too short" else 0.75


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_no_sender_crawls_whatever_the_receiver_does(receiver: str) -> None:
    for name in SENDERS:
        utilisation, beliefs = play(name, receiver=RECEIVERS[receiver])
        assert utilisation > least(name), f"{name}: {utilisation:.3f}"
        # Whole packets: a window of n steps may hold one more than bytes would, at least eight steps to an Rm of 160 packets.
        packet = MSS / (RATE_BPS * RTT_S / 8)
        assert beliefs["C_L_Bps"] <= RATE_BPS * (1 + packet), name
        assert beliefs["C_U_Bps"] >= RATE_BPS * (1 - packet), name


@pytest.mark.parametrize("told", TOLD)
def test_no_sender_crawls_whatever_it_is_told_of_the_rtt(told: str) -> None:
    for name in SENDERS:
        utilisation, _ = play(name, **TOLD[told])
        assert utilisation > least(name, told), f"{name}: {utilisation:.3f}"


@pytest.mark.parametrize("told", TOLD)
def test_thinned_acks_and_a_wrong_rtt_together(told: str) -> None:
    for name in ("cc_qdel", "cc_probe_drain", "learned_nominal", "learned_robust"):
        utilisation, _ = play(name, receiver={"ack_every": 4}, **TOLD[told])
        assert utilisation > 0.75, f"{name}: {utilisation:.3f}"


@pytest.mark.parametrize("start_s", [0.0, 0.5, 1.0, 1.7, 2.0, 5.0])
def test_the_time_of_the_start_does_not_matter(start_s: float) -> None:
    """A grid step in which nothing is acknowledged says nothing new of the delay; else a tie of rounding decides on a crawl."""
    for rtt_s in (0.01, 0.02, 0.04, 0.05):
        link = {"rate_Bps": RATE_BPS, "buffer_bytes": 2 * RATE_BPS * rtt_s}
        flow = {"sender": "cc_qdel", "rtt_s": rtt_s, "start_s": start_s}
        network = NetworkSpec.model_validate({"links": [link], "flows": [flow]})
        engine = PacketEngine(network, [make_sender("cc_qdel")], duration_s=start_s + 200 * rtt_s)
        engine.advance(start_s + 100 * rtt_s)
        before = float(engine.flow("goodput_bytes")[0])
        engine.advance(start_s + 200 * rtt_s)
        assert float(engine.flow("goodput_bytes")[0]) - before > 0.8 * RATE_BPS * 100 * rtt_s, rtt_s


@pytest.mark.parametrize("jitter_rtts", [0.25, 0.5, 0.9, 1.0, 1.05])
def test_jitter_of_exactly_d_is_no_queue(jitter_rtts: float) -> None:
    """Every packet waits D: a delay in whole steps may read one more."""
    for rtt_s in (0.02, 0.04):
        link = {"rate_Bps": RATE_BPS, "buffer_bytes": 2 * RATE_BPS * rtt_s}
        jitter = {"kind": "constant", "max_s": jitter_rtts * rtt_s}
        flow = {"sender": "cc_qdel", "rtt_s": rtt_s, "jitter": jitter}
        network = NetworkSpec.model_validate({"links": [link], "flows": [flow]})
        engine = PacketEngine(network, [make_sender("cc_qdel")], duration_s=300 * rtt_s)
        engine.advance(200 * rtt_s)
        before = float(engine.flow("goodput_bytes")[0])
        engine.advance(300 * rtt_s)
        assert float(engine.flow("goodput_bytes")[0]) - before > 0.75 * RATE_BPS * 100 * rtt_s, rtt_s


@pytest.mark.parametrize("told", [0.5, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95])
def test_bounds_hold_once_a_wrong_rtt_is_refuted(told: float) -> None:
    """The first RTT replaces it, and what it proved before is void."""
    for name in ("cc_probe_drain", "cc_qdel", "learned_nominal"):
        link = {"rate_Bps": RATE_BPS, "buffer_bytes": RATE_BPS * RTT_S}
        flow = {"sender": name, "rtt_s": RTT_S, "told_rtt_s": told * RTT_S}
        engine = PacketEngine(NetworkSpec.model_validate({"links": [link], "flows": [flow]}), [make_sender(name)], duration_s=6.0)
        engine.advance(2 * RTT_S)
        for step in range(200):
            engine.advance(2 * RTT_S + 0.0297 * (step + 1))
            (beliefs,) = engine.beliefs().values()
            packet = MSS / (RATE_BPS * RTT_S / 8)
            assert beliefs["C_L_Bps"] <= RATE_BPS * (1 + packet), (name, step)
            assert beliefs["C_U_Bps"] >= RATE_BPS * (1 - packet), (name, step)
