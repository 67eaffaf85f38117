"""Packet logs and traces of packet runs: what they count, what the legality checker makes of them, files, the command line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import ccenv
from ccenv.base.errors import CcenvError
from ccenv.cli.main import main
from ccenv.engine.packet.layout import EVENTS, LOG_DTYPE
from ccenv.network.laws import check_trace
from ccenv.network.path import Path
from ccenv.network.trace import load_trace
from ccenv.simulation.packet_trace import packet_slack_bytes

MSS = 1500.0
LINK = {"rate_mbps": 12, "buffer_packets": 20, "delay_ms": 3}
FLOWS = [
    {"sender": "cubic", "rtt_ms": 20, "jitter": {"kind": "batch", "max_ms": 10}, "loss_rate": 0.01},
    {"sender": "bbr1", "rtt_ms": 40, "start_s": 0.5, "stop_s": 2.5, "access_ms": 4},
]


def run(flows=FLOWS, link=LINK, seconds=3.0, **more):
    """Return a run with a packet log."""
    return ccenv.simulate({"duration_s": seconds, "links": [link], "flows": flows, **more}, packet_log=True)


def times_s(log, event, flow):
    """Return when an event happened to a flow, by transmission."""
    rows = log[(log["event"] == EVENTS.index(event)) & (log["flow"] == flow)]
    return dict(zip(rows["transmission"].tolist(), rows["time_s"].tolist(), strict=True))


def test_the_log_counts_what_the_time_series_count() -> None:
    result = run()
    log, last = result.packet_log, result.flow_log[-1]
    assert log.dtype == LOG_DTYPE
    assert (np.diff(log["time_s"]) >= 0).all()
    for flow in range(2):
        assert len(times_s(log, "send", flow)) * MSS == last["sent_bytes"][flow]
        assert len(times_s(log, "drop", flow)) * MSS == last["dropped_bytes"][flow] + last["random_lost_bytes"][flow]
    assert (log["event"] == EVENTS.index("depart")).sum() * MSS == result.link_log["served_bytes"][-1, 0]


def test_the_log_says_how_long_each_packet_took() -> None:
    """Alone at half the link's rate: 1 ms of service and 3 ms to the receiver, then the ACK takes the rest of Rm."""
    log = run([{"sender": "constant:rate_mbps=6", "rtt_ms": 20}], seconds=1.0).packet_log
    sent, delivered, acked = (times_s(log, event, 0) for event in ("send", "deliver", "ack"))
    assert [delivered[tx] - sent[tx] for tx in delivered] == pytest.approx([0.004] * len(delivered))
    assert [acked[tx] - sent[tx] for tx in acked] == pytest.approx([0.021] * len(acked))
    assert len(acked) > 400


def test_traces_of_several_flows_are_legal_up_to_whole_packets() -> None:
    trace = run().trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []
    assert trace.L_free[-1, 0] > 0
    assert trace.L[-1].sum() > trace.L_free[-1].sum()


def test_link_rate_steps_are_in_the_trace() -> None:
    link = {**LINK, "rate_steps": [{"time_s": 1.0, "rate_mbps": 6}, {"time_s": 2.0, "rate_mbps": 24}]}
    trace = run([{"sender": "bbr1", "rtt_ms": 20}], link).trace()
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []
    assert sorted(set(trace.link_rate_Bps.tolist())) == [0.75e6, 1.5e6, 3e6]


def breaking(change):
    """Return the laws that a trace breaks whose header says something else about the path."""
    trace = run(FLOWS[:1]).trace()
    data = {**trace.header.path.model_dump(), **change(trace.header.path.model_dump())}
    header = trace.header.model_copy(update={"path": Path.model_validate(data)})
    return {v.law for v in check_trace(replace(trace, header=header), slack_bytes=packet_slack_bytes(trace))}


def test_the_slack_hides_no_broken_law() -> None:
    """The same packets on a path with less jitter, a smaller buffer or a slower link are not legal."""
    assert breaking(lambda path: {}) == set()
    assert "delivered_within_jitter" in breaking(lambda path: {"flows": [{**path["flows"][0], "jitter_s": 0.0}]})
    assert "buffer_bound" in breaking(lambda path: {"buffer_bytes": 10 * MSS})
    assert "link_rate_legal" in breaking(lambda path: {"link_rate_Bps": 1.4e6})


def test_files_and_command_line(tmp_path, capsys) -> None:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(json.dumps({"duration_s": 2, "links": [LINK], "flows": FLOWS}), encoding="utf-8")
    files = [tmp_path / name for name in ("log.npz", "trace.npz")]
    assert main(["sim", str(scenario), "--packet-log", str(files[0]), "--trace", str(files[1]), "--json"]) == 0
    capsys.readouterr()
    with np.load(files[0], allow_pickle=False) as data:
        header = json.loads(bytes(data["header"]))
        assert header["events"] == list(EVENTS)
        assert header["size_bytes"] == MSS
        assert set(data.files) == {"header", *LOG_DTYPE.names}
        assert len(data["time_s"]) == len(data["flow"]) > 1000
    trace = load_trace(files[1])
    assert check_trace(trace, slack_bytes=packet_slack_bytes(trace)) == []


def test_a_log_that_is_full_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr("ccenv.simulation.run.DEFAULT_ROWS", 100)
    with pytest.raises(CcenvError, match="the packet log keeps 100 rows"):
        run()
