"""Belief programs and learned senders over receivers, return paths and what they know of Rm: no crawl, bounds that hold.

A sender that takes late ACKs for a queue ends at one segment per Rm (.006 of this link) and never leaves it. ACK aggregation and
replayed jitter are what their definitions say of every packet.
"""

from typing import Any

import numpy as np
import pytest

import ccenv
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.sender import PolicySender, ProgramSender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.layout import EVENTS
from ccenv.engine.packet.spec import NetworkSpec

RATE_BPS, RTT_S, MSS = 6e6, 0.04, 1500
SECONDS = 16.0
KEEPS_NO_BELIEFS = AGENTS.names("packet")
SENDERS = [n for n in AGENTS.names() if n not in KEEPS_NO_BELIEFS and isinstance(make_sender(n), ProgramSender | PolicySender)]
RECEIVERS: dict[str, dict[str, Any]] = {
    "every packet": {}, "every second packet": {"ack_every": 2}, "every fourth packet": {"ack_every": 4},
    "every eighth packet": {"ack_every": 8}, "every fourth packet, 20 ms at most": {"ack_every": 4, "ack_timeout_s": 0.02},
    "ACKs every 5 ms": {"aggregation": "interval", "aggregate_s": 0.005},
    "ACKs in batches of up to 20 ms": {"aggregation": "batch", "aggregate_s": 0.02, "merge": True},
    "ACKs every 40 ms": {"aggregation": "interval", "aggregate_s": 0.04},
}  # fmt: skip
TOLD: dict[str, dict[str, Any]] = {
    "Rm 20 % too short": {"told_rtt_s": 0.8 * RTT_S}, "Rm 10 % too short": {"told_rtt_s": 0.9 * RTT_S},
    "Rm 20 % too long": {"told_rtt_s": 1.2 * RTT_S}, "Rm estimated": {"rtt_known": False},
}  # fmt: skip
# A probe of cc_probe_slow lasts one Rm and proves something only where D is at most that; it grows by half a segment per 6 Rm.
SLOW_GROWTH = ("cc_probe_slow", "cc_probe_slow_k")
# They keep the queueing delay low that they cannot rule out: with a told Rm that is refuted that is D for ever.
LOW_DELAY = ("learned_low_delay", "learned_low_delay_d4")


def play(
    name: str, rtt_s: float = RTT_S, buffer_bdp: float = 1.0, seconds: tuple[float, float] = (SECONDS / 2, SECONDS), **flow: Any
) -> tuple[float, dict[str, float]]:
    """Return the utilisation between two times of a run, and the beliefs at its end."""
    link = {"rate_Bps": RATE_BPS, "buffer_bytes": buffer_bdp * RATE_BPS * rtt_s}
    network = NetworkSpec.model_validate({"links": [link], "flows": [{"sender": name, "rtt_s": rtt_s, **flow}]})
    begin_s, end_s = seconds
    engine = PacketEngine(network, [make_sender(name)], duration_s=end_s)
    engine.advance(begin_s)
    before = float(engine.flow("goodput_bytes")[0])
    engine.advance(end_s)
    (beliefs,) = engine.beliefs().values()
    return (float(engine.flow("goodput_bytes")[0]) - before) / (RATE_BPS * (end_s - begin_s)), beliefs


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
        late = (start_s + 100 * rtt_s, start_s + 200 * rtt_s)
        assert play("cc_qdel", rtt_s, 2.0, late, start_s=start_s)[0] > 0.8, rtt_s


@pytest.mark.parametrize("jitter_rtts", [0.25, 0.5, 0.9, 1.0, 1.05])
def test_jitter_of_exactly_d_is_no_queue(jitter_rtts: float) -> None:
    """Every packet waits D: a delay in whole steps may read one more."""
    for rtt_s in (0.02, 0.04):
        jitter = {"kind": "constant", "max_s": jitter_rtts * rtt_s}
        assert play("cc_qdel", rtt_s, 2.0, (200 * rtt_s, 300 * rtt_s), jitter=jitter)[0] > 0.75, rtt_s


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


LINK = {"rate_mbps": 12, "buffer_packets": 40}
EVERY_S = 0.03


def run(**flow):
    flow = {"sender": "constant:rate_mbps=3.6", "rtt_ms": 20, **flow}
    return ccenv.simulate({"duration_s": 2, "links": [LINK], "flows": [flow]}, packet_log=True)


def rows(result, event):
    return result.packet_log[result.packet_log["event"] == EVENTS.index(event)]


@pytest.mark.parametrize("aggregation", ["interval", "batch"])
def test_acks_come_in_bursts_and_data_as_before(aggregation: str) -> None:
    plain, held = run(), run(receiver={"aggregation": aggregation, "aggregate_s": EVERY_S})
    acks = rows(held, "ack")
    sent_s = rows(held, "send")["time_s"]
    waits_s = acks["time_s"] - sent_s[acks["transmission"]] - 0.021  # one service and Rm
    assert waits_s.min() > -1e-9 and 0.5 * EVERY_S < waits_s.max() < EVERY_S + 1e-9
    bursts_s = np.unique(acks["time_s"])
    if aggregation == "interval":
        assert np.diff(bursts_s) == pytest.approx(np.full(len(bursts_s) - 1, EVERY_S), abs=1e-9)
        assert len(acks) / len(bursts_s) == pytest.approx(300 * EVERY_S, rel=0.05)
    assert rows(held, "deliver")["time_s"].tolist() == rows(plain, "deliver")["time_s"].tolist()


def test_merged_acks_are_one_per_burst() -> None:
    every, merged = (run(receiver={"aggregation": "interval", "aggregate_s": EVERY_S, "merge": m}) for m in (False, True))
    assert np.unique(rows(every, "ack")["time_s"]).tolist() == rows(merged, "ack")["time_s"].tolist()
    assert every.flow_log["goodput_bytes"][-1] == merged.flow_log["goodput_bytes"][-1]
    assert merged.summary()["flows"][0]["retransmitted"] == 0


def test_replayed_delays_are_those_of_the_table(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    table_ms = [0, 8, 2, 15]
    file = tmp_path / "delays.txt"
    file.write_text("\n".join(map(str, table_ms)), encoding="utf-8")
    jitter = {"kind": "replay", "max_ms": 15, "interval_ms": 100}
    result, from_file = run(jitter={**jitter, "delays_ms": table_ms}), run(jitter={**jitter, "delays_file": file.name})
    departs, delivers = rows(result, "depart"), rows(result, "deliver")
    found_ms = 1e3 * (delivers["time_s"] - departs["time_s"][: len(delivers)])
    wanted_ms = np.array(table_ms)[np.floor(departs["time_s"][: len(delivers)] / 0.1 + 1e-9).astype(int) % 4]
    late = found_ms > wanted_ms + 1e-6  # only behind one that was held for longer
    assert found_ms[~late] == pytest.approx(wanted_ms[~late], abs=1e-6)
    assert np.diff(delivers["time_s"])[late[1:]] == pytest.approx(0, abs=1e-9) and late.mean() < 0.1
    assert from_file.packet_log.tolist() == result.packet_log.tolist()
