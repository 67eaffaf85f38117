"""Logs of QUIC senders (qlog, JSON and JSON-SEQ, drafts 00 to the main schema): packets sent, acknowledged and lost.

Only what is needed is read; events that are not known are counted. Handshake packets are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.foreign import JsonRules, parse_json, read_bounded, shown_path
from ccenv.live.export.twin import ACK_DTYPE
from ccenv.quic.stacks.stack import OVERHEAD_BYTES

MAX_BYTES = 256 << 20
RULES = JsonRules(max_bytes=MAX_BYTES, max_depth=24, max_values=60_000_000)
LINE = JsonRules(max_bytes=1 << 20, max_depth=24, max_values=65_536)
RECORD = 0x1E  # RFC 7464
DATA = ("1RTT", "0RTT", "1rtt", "0rtt")
KNOWN = ("packet_sent", "packet_received", "packet_lost", "datagram_sent")
QUIET = ("ack", "padding", "connection_close")  # frames of packets that ask for no ACK
VERSIONS = ("draft-00", "draft-01", "draft-02", "0.3", "0.4")
SCHEMA = "urn:ietf:params:qlog:"
MOST_TIME = 1e16  # in its unit: microseconds since 1970, and more
MOST_PACKET_BYTES, MOST_NUMBER = 65_535, 1 << 62
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass
class SenderLog:
    """What a sender logged of its data packets, by packet number."""

    sent: dict[int, tuple[float, float, bool]] = field(default_factory=dict)  # time in s, bytes on the wire, asks for an ACK
    acks: list[tuple[float, list[int]]] = field(default_factory=list)  # time in s, packets newly acknowledged, of each ACK
    # time in s at which the sender gave it up, unless it was acknowledged after all
    lost: dict[int, float] = field(default_factory=dict)
    events: int = 0
    unknown: int = 0  # events of other names

    def ack_records(self) -> np.ndarray:
        """Return the log as a program would have seen it (ACK_DTYPE); bytes are counted in packets of the largest size."""
        asking = sorted((time_s, size) for time_s, size, asks in self.sent.values() if asks)
        sent_s, sent_bytes = [time_s for time_s, _ in asking], np.cumsum([size for _, size in asking])
        lost = sorted((time_s, self.sent[number][1]) for number, time_s in self.lost.items())
        lost_s, lost_bytes = [time_s for time_s, _ in lost], np.concatenate(([0.0], np.cumsum([size for _, size in lost])))
        largest = max(size for _, size in asking)
        rows, delivered = [], 0.0
        for time_s, packets in self.acks:
            delivered += sum(self.sent[number][1] for number in packets)
            newest_s = max(self.sent[number][0] for number in packets)
            sent, gone = int(np.searchsorted(sent_s, time_s, "right")), int(np.searchsorted(lost_s, time_s, "left"))
            in_flight = max(0.0, float(sent_bytes[sent - 1]) - delivered - float(lost_bytes[gone]))
            times_us = (int(time_s * 1e6 + 0.5), int((time_s - newest_s) * 1e6 + 0.5))
            whole = (int(delivered / largest), gone, sent, math.ceil(in_flight / largest))
            rows.append((*times_us, *whole, 0, 0, round(largest - OVERHEAD_BYTES), 0))
        return np.array(rows, ACK_DTYPE)


def read_qlog(file: FilePath) -> SenderLog:
    """Read a sender's log.

    Raises InputError in one line, for a file that is missing, too long, cut off, of another format or draft, or without ACKs.
    """
    name = shown_path(file)
    content = read_bounded(file, MAX_BYTES)
    if content.lstrip()[:1] == bytes([RECORD]) or b'"JSON-SEQ"' in content[:4096] or b'"NDJSON"' in content[:4096]:
        log = _collect(_sequence_events(content, name), name)
    else:
        logs = [_collect(_trace_events(trace, name), name) for trace in _traces(_parsed(content, name, RULES), name)]
        of_senders = [log for log in logs if log.acks]
        if len(of_senders) > 1:
            raise InputError(f"{name}: {len(of_senders)} of its {len(logs)} traces are of senders; give a log of one")
        log = (of_senders or logs)[0]
    if not log.acks:
        raise InputError(
            f"{name}: {log.events} events, and no ACK of a data packet that the log's side has sent; give a sender's log"
        )
    return log


def _parsed(content: bytes, name: str, rules: JsonRules) -> Any:
    try:
        return parse_json(content, name, rules)
    except InputError as error:
        whole = content.rstrip().endswith((b"}", b"]")) and content.count(b"{") == content.count(b"}")
        raise InputError(str(error) if whole else f"{name}: cut off in the middle ({len(content)} bytes)") from None


def _require_version(head: dict[str, Any], name: str) -> None:
    version = str(head.get("qlog_version", head.get("file_schema", "")))
    if version not in VERSIONS and not version.startswith(SCHEMA):
        raise InputError(f"{name}: qlog of version {version[:40]!r}; {', '.join(VERSIONS)} and {SCHEMA}... are read")


def _traces(document: Any, name: str) -> list[dict[str, Any]]:
    traces = document.get("traces") if isinstance(document, dict) else None
    if not isinstance(traces, list) or not traces or not all(isinstance(trace, dict) for trace in traces):
        raise InputError(f"{name}: no qlog: it has no traces")
    _require_version(document, name)
    return traces


def _trace_events(trace: dict[str, Any], name: str) -> Iterator[tuple[float, str, Any]]:
    unit_s = _UNITS_S.get(str(_dict(trace.get("configuration")).get("time_units", "ms")), 1e-3)
    fields, events = trace.get("event_fields"), trace.get("events")
    if not isinstance(events, list):
        raise InputError(f"{name}: no qlog: its trace has no events")
    delta, now = _is_delta(trace), 0.0
    for one in events:
        event = one
        if isinstance(fields, list) and isinstance(one, list):
            event = dict(zip(fields, one, strict=False))
            event["time"] = event.get("relative_time", event.get("time", event.get("delta_time")))
            event["name"] = event.get("event", "")
        now = _time(event, name) + (now if delta else 0.0)
        yield now * unit_s, str(event.get("name", "")), event.get("data")


def _sequence_events(content: bytes, name: str) -> Iterator[tuple[float, str, Any]]:
    records = [line for line in content.replace(bytes([RECORD]), b"\n").split(b"\n") if line.strip()]
    delta, now = False, 0.0
    for number, line in enumerate(records):
        value = _parsed(line, f"{name}: record {number}", LINE)
        if not isinstance(value, dict):
            raise InputError(f"{name}: record {number} is no object")
        if number == 0:
            _require_version(value, name)
            delta = _is_delta(value.get("trace"))
            continue
        now = _time(value, name) + (now if delta else 0.0)
        yield now * 1e-3, str(value.get("name", "")), value.get("data")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_delta(trace: Any) -> bool:
    common = _dict(_dict(trace).get("common_fields"))
    form = common.get("time_format", common.get("reference_time"))
    return "delta" in str(form) or "relative_to_previous" in str(form)


def _time(event: Any, name: str) -> float:
    time = event.get("time") if isinstance(event, dict) else None
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not abs(time) <= MOST_TIME:
        raise InputError(f"{name}: an event without a time")
    return float(time)


def _collect(events: Iterator[tuple[float, str, Any]], name: str) -> SenderLog:
    """Sort events into a log. Raises InputError for a known event without what it must have."""
    log, newest = SenderLog(), -1
    unanswered: dict[int, None] = {}
    ordered = sorted(events, key=lambda event: event[0])  # threads may log out of order
    for absolute_s, title, data in ordered:
        time_s, kind = absolute_s - ordered[0][0], title.rpartition(":")[2]
        log.events += 1
        if kind not in KNOWN or not isinstance(data, dict):
            log.unknown += 1
            continue
        head = _dict(data.get("header")) or data
        is_data = str(head.get("packet_type", data.get("packet_type", data.get("type", "")))) in DATA
        try:
            frames = [frame for frame in data.get("frames") or () if isinstance(frame, dict)]
            if kind == "datagram_sent" and newest >= 0:  # older drafts tell the size of a packet without its tag
                if "byte_length" in data and newest in log.sent:
                    log.sent[newest] = (log.sent[newest][0], _wire_bytes(data["byte_length"]), log.sent[newest][2])
                newest = -1
            elif kind == "packet_sent" and is_data:
                newest = _number(head)
                raw = data.get("raw") or {}
                asks = any(frame.get("frame_type") not in QUIET for frame in frames)
                log.sent[newest] = (time_s, _wire_bytes(raw["length"] if "length" in raw else head["packet_size"]), asks)
                unanswered[newest] = None
            elif kind == "packet_received" and is_data:
                for frame in frames:
                    if frame.get("frame_type") == "ack":
                        new = _answered(unanswered, frame["acked_ranges"])
                        if asking := [number for number in new if log.sent[number][2]]:
                            log.acks.append((time_s, asking))
            elif kind == "packet_lost" and is_data:
                log.lost[_number(head)] = time_s
        except (KeyError, TypeError, ValueError, IndexError):
            raise InputError(f"{name}: event {log.events} ({title}) lacks what it must have") from None
    log.lost = {number: time_s for number, time_s in log.lost.items() if number in unanswered}
    return log


def _wire_bytes(size: Any) -> float:
    if not 0 < float(size) <= MOST_PACKET_BYTES:
        raise ValueError
    return float(size) + OVERHEAD_BYTES


def _number(head: dict[str, Any]) -> int:
    number = int(head["packet_number"])
    if not 0 <= number < MOST_NUMBER:
        raise ValueError
    return number


def _answered(unanswered: dict[int, None], ranges: Any) -> list[int]:
    """Take out of the packets without an answer those in ranges, however long; return them."""
    new: list[int] = []
    for one in ranges:
        low, high = int(one[0]), int(one[-1])
        if high - low < len(unanswered):
            found = [number for number in range(low, high + 1) if number in unanswered]
        else:
            found = [number for number in unanswered if low <= number <= high]
        for number in found:
            del unanswered[number]
        new += found
    return new
