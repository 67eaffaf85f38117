"""ACK aggregation and replayed jitter, per packet, against what their definitions say of every packet."""

from __future__ import annotations

import numpy as np
import pytest

import ccenv
from ccenv.engine.packet.layout import EVENTS

LINK = {"rate_mbps": 12, "buffer_packets": 40}
EVERY_S = 0.03


def run(**flow):
    """Return a run of 300 packets a second."""
    flow = {"sender": "constant:rate_mbps=3.6", "rtt_ms": 20, **flow}
    return ccenv.simulate({"duration_s": 2, "links": [LINK], "flows": [flow]}, packet_log=True)


def rows(result, event):
    """Return the rows of one event."""
    return result.packet_log[result.packet_log["event"] == EVENTS.index(event)]


@pytest.mark.parametrize("aggregation", ["interval", "batch"])
def test_acks_come_in_bursts_and_data_as_before(aggregation: str) -> None:
    plain, held = run(), run(receiver={"aggregation": aggregation, "aggregate_s": EVERY_S})
    acks = rows(held, "ack")
    sent_s = rows(held, "send")["time_s"]
    waits_s = acks["time_s"] - sent_s[acks["transmission"]] - 0.021  # one service and Rm
    assert waits_s.min() > -1e-9
    assert 0.5 * EVERY_S < waits_s.max() < EVERY_S + 1e-9
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
    assert np.diff(delivers["time_s"])[late[1:]] == pytest.approx(0, abs=1e-9)
    assert late.mean() < 0.1
    assert from_file.packet_log.tolist() == result.packet_log.tolist()
