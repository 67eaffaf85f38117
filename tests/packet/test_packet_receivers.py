"""Belief programs and learned senders over receivers, return paths and what they are told of Rm: no crawl, bounds that hold.

A sender that takes late ACKs for a queue ends at one segment per Rm (.006 of this link) and never leaves it.
"""

from __future__ import annotations

from typing import Any

import pytest

from ccenv.agents import AGENTS, make_sender
from ccenv.engine.packet import PacketEngine
from ccenv.engine.packet_spec import NetworkSpec
from ccenv.sender import MlpSender, ProgramSender

RATE_BPS, RTT_S, MSS = 6e6, 0.04, 1500
SECONDS = 16.0
SENDERS = [n for n in AGENTS.names() if isinstance(make_sender(n), ProgramSender | MlpSender)]
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
