"""What a log proves: the least D against the truth, wrong rates, both formats, files that are broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quic_runs import random_moves, small_path, small_run

from ccenv.cli.main import main
from ccenv.quic.explain import curves_of, explain, explains, least_jitter_s
from ccenv.quic.qlog import read_qlog
from ccenv.quic.stacks import STACKS

GRID_S, STEP_S, RATE_BPS = 0.0005, 0.0025, 1.5e6
Capture = pytest.CaptureFixture[str]
SOON = {"calm": None, "hoarded": np.tile(np.array([[0.0, 1.0, 0.0, 0.0]] * 12 + [[0.0, 1.0, 1.0, 0.0]] * 4), (30, 1))}


def log_of(folder: Path, stack: str, sender: str, moves: np.ndarray | None, jitter_ms: float = 20.0) -> Path:
    if STACKS[stack].missing():
        pytest.skip(str(STACKS[stack].missing()))
    result = small_run(sender, small_path(jitter_ms=jitter_ms), stack=stack, moves=moves, log=True)
    file = folder / f"{stack}.qlog"
    result.save(file)
    return file


@pytest.mark.parametrize("stack", ["aioquic", "picoquic"])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_least_D_is_that_of_the_network(stack: str, seed: int | None, tmp_path: Path) -> None:
    """Beyond D only the ACK delay, the network's step, and the grid of the explanation; a packet takes two of its steps."""
    file = log_of(tmp_path, stack, "cubic", SOON["hoarded"] if seed is None else random_moves(seed))
    curves = curves_of(read_qlog(file), 0.02)
    least_s = least_jitter_s(curves, RATE_BPS)
    assert least_s is not None
    assert least_s <= 0.02 + STEP_S + STACKS[stack].ack_delay_s + 2 * GRID_S
    assert seed is not None or least_s >= 0.02 - STEP_S - 2 * GRID_S
    assert not explains(curves, RATE_BPS, round(least_s / GRID_S) - 1)
    assert least_jitter_s(curves, 0.7 * RATE_BPS) is None


def test_a_saturated_log_refuses_wrong_rates(tmp_path: Path, capsys: Capture) -> None:
    """With the D of the network, ACK delay and step included: both slower and faster links are out."""
    file = log_of(tmp_path, "aioquic", "cubic", None, jitter_ms=0.0)
    for rate, code in (("12", 0), ("9", 1), ("15", 1)):
        assert main(["quic", "explain", str(file), "--rtt", "20ms", "--rate", rate, "--jitter", "5ms", "--json"]) == code
        told = json.loads(capsys.readouterr().out)
        assert told["legal"] is (code == 0)
        if code == 0:
            assert told["least_D_ms_at_rate"] <= 4.5
            assert told["C_L"] <= 12 * 1.02
            assert told["C_U"] is None or told["C_U"] >= 12 * 0.98


def test_the_records_are_those_of_the_sender(tmp_path: Path) -> None:
    """Time, RTT and losses of each ACK, and packets delivered, but for those of the handshake."""
    result = small_run("cc_qdel", small_path(1.0), log=True) if not STACKS["aioquic"].missing() else pytest.skip("no aioquic")
    file = tmp_path / "run.qlog"
    result.save(file)
    seen, told = result.flows[0].records()[0], read_qlog(file).ack_records()
    seen = seen[-len(told) :]
    assert len(told) > 100
    for name in ("rtt_us", "lost"):
        assert (seen[name] == told[name]).all()
    assert len(np.unique(seen["now_us"].astype(np.int64) - told["now_us"].astype(np.int64))) == 1
    assert np.ptp(seen["delivered"].astype(np.int64) - told["delivered"].astype(np.int64)) <= 1


def events(n: int = 400) -> list[dict[str, Any]]:
    """A sender at 12 Mbit/s, 20 ms: a packet each ms, acknowledged 21 ms later."""
    out: list[dict[str, Any]] = []
    for k in range(n):
        data = {
            "header": {"packet_type": "1RTT", "packet_number": k},
            "raw": {"length": 1472},
            "frames": [{"frame_type": "stream"}],
        }
        out.append({"time": float(k), "name": "transport:packet_sent", "data": data})
        if k >= 21:
            ack = {"header": {"packet_type": "1RTT"}, "frames": [{"frame_type": "ack", "acked_ranges": [[0, k - 21]]}]}
            out.append({"time": k + 0.5, "name": "quic:packet_received", "data": ack})
        out.append({"time": k + 0.6, "name": "vendor:strange", "data": {}})
    return out


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    document, sequence = tmp_path / "a.qlog", tmp_path / "a.sqlog"
    both_ends = [{"events": []}, {"events": events()}]  # the first trace is of no sender
    document.write_text(json.dumps({"qlog_version": "0.3", "traces": both_ends}), encoding="utf-8")
    head = {"file_schema": "urn:ietf:params:qlog:file:sequential", "serialization_format": "application/qlog+json-seq"}
    sequence.write_bytes(b"".join(b"\x1e" + json.dumps(one).encode() + b"\n" for one in [head, *events()]))
    first, second = (explain(file, rtt_s=0.02, rate_mbps=12.0) for file in (document, sequence))
    assert {**first, "file": ""} == {**second, "file": ""}
    assert (first["unknown_events"], first["legal"], first["lost"]) == (400, True, 0)
    assert first["least_D_ms_at_rate"] <= 2.0


def with_wrong(key: str, value: Any) -> list[dict[str, Any]]:
    """The events with a wrong value of the first one."""
    log = events()
    for place in (log[0], log[0]["data"], log[0]["data"]["header"], log[0]["data"]["raw"]):
        if key in place:
            place[key] = value
    return log


def qlog(*logs: list[dict[str, Any]]) -> str:
    return json.dumps({"qlog_version": "0.3", "traces": [{"events": log} for log in logs]})


LACKS = "event 1 (transport:packet_sent) lacks what it must have"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "a.qlog"),
        ('{"qlog_version": "0.3", "traces": [{"events": [{"time": 1.0, "name": "transp', "cut off in the middle (76 bytes)"),
        ('{"qlog_version": "1.7", "traces": [{"events": []}]}', "qlog of version '1.7'; draft-00"),
        ('{"qlog_version": "0.3"}', "no qlog: it has no traces"),
        ("[1, 2]", "no qlog: it has no traces"),
        (qlog([]), "0 events, and no ACK of a data packet"),
        (qlog([{"name": "x"}]), "an event without a time"),
        ('\x1e{"qlog_version": "0.3"}\n\x1e{"time": 1, "na', "record 1: cut off in the middle"),
        (qlog(events(40), events(40)), "2 of its 2 traces are of senders"),
        (qlog(events(40)), "at least 2 Rm are needed"),
        (qlog([{**events(1)[0], "data": {"header": {"packet_type": "1RTT"}}}]), LACKS),
        (qlog(with_wrong("time", -1e308)), "an event without a time"),
        (qlog(with_wrong("packet_number", -1)), LACKS),
        (qlog(with_wrong("packet_number", 2**70)), LACKS),
        (qlog(with_wrong("length", 0)), LACKS),
        (qlog(with_wrong("length", 1e300)), LACKS),
        (qlog(with_wrong("length", float("nan"))), "not valid JSON (NaN is not a number"),
        (qlog(with_wrong("frames", 7)), LACKS),
    ],
)
def test_broken_logs_are_refused_in_one_line(content: str | None, words: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "a.qlog"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert main(["quic", "explain", str(file), "--rtt", "20ms"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert words in told.err


def test_order_odd_heads_and_endless_ranges_do_no_harm(tmp_path: Path, refused) -> None:
    """Events backwards, heads that are lists, an ACK of 2^62 packets; an Rm of nothing is refused."""
    file, log = tmp_path / "a.qlog", events()
    trace: dict[str, Any] = {"configuration": [1], "common_fields": [1], "events": log[::-1]}
    for content in ({"events": log}, trace):
        file.write_text(json.dumps({"qlog_version": "0.3", "traces": [content]}), encoding="utf-8")
        told = explain(file, rtt_s=0.02, rate_mbps=12.0)
        assert (told["legal"], told["acks"], told["least_D_ms_at_rate"]) == (True, 379, 0.0)
    for event in log[600:]:
        for frame in event["data"].get("frames", []):
            if frame["frame_type"] == "ack":
                frame["acked_ranges"] = [[0, 2**62]]
    file.write_text(qlog(log), encoding="utf-8")
    assert read_qlog(file).acks
    refused(["quic", "explain", str(file), "--rtt", "0"], "Rm is 0 s; at least 1e-05 s is explained")


def test_a_huge_log_is_refused_unread(tmp_path: Path, refused) -> None:
    file = tmp_path / "huge.qlog"
    with file.open("wb") as stream:
        stream.truncate(1 << 30)  # a hole: takes no room
    refused(["quic", "explain", str(file), "--rtt", "20ms"], "longer than 268435456 bytes")
