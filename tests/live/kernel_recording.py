"""Records of this kernel on plain links, a reference of the packet engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ccenv.base.errors import InputError, shown
from ccenv.base.files import write_atomic
from ccenv.base.foreign import parse_json, read_text
from ccenv.engine.packet.layout import EVENTS
from ccenv.live.attacks import TRIES
from ccenv.live.result import LiveResult
from ccenv.live.run import valid_run
from ccenv.live.scenario import KERNEL, LiveError, LiveScenario, read_live_scenario
from ccenv.live.virtual.run import run_virtual
from ccenv.network.path import MBPS_IN_BPS

SETTLING_SHARE, SETTLED_AFTER_S = 0.25, 0.3  # start of a run, not measured
_THINNED = re.compile(r"(\d{1,4}):(\d{1,4})", re.ASCII)
MAX_BYTES = 64 << 20
THINNED_S = 0.2  # longest wait of an ACK for more packets
HEADERS_SHARE = 1448 / 1500  # records count payload


def record_scenario(
    ccas: Sequence[str],
    *,
    rate_mbps: float,
    rtt_ms: float,
    buffer_bytes: float,
    duration_s: float,
    stagger_s: float = 0.0,
    thinning: Mapping[int, int] = MappingProxyType({}),
) -> LiveScenario:
    """Return the scenario of a record: the kernel's own delayed ACKs and bursts, a drop-tail queue, no jitter.

    Each flow has a congestion control of the kernel; ``stagger_s`` is the time between the starts of two flows, ``thinning`` the
    packets per ACK by flow (for other flows the kernel decides).
    """
    if not ccas:
        raise InputError("a record needs at least one congestion control")
    for flow in thinning:
        if not 0 <= flow < len(ccas):
            raise InputError(f"ACKs of flow {flow} are to be thinned; the record has flows 0 to {len(ccas) - 1}")
    return read_live_scenario(
        {
            "name": "record",
            "duration_s": duration_s,
            "warmup_s": measurement_start_s(duration_s),
            "quick_ack": False,
            "packets_per_burst": 0,
            "links": [{"rate_mbps": rate_mbps, "buffer_bytes": buffer_bytes}],
            "flows": [
                {
                    "sender": f"{KERNEL}{name}",
                    "rtt_ms": rtt_ms,
                    "start_s": index * stagger_s,
                    **({"receiver": {"ack_every": thinning[index], "ack_timeout_s": THINNED_S}} if index in thinning else {}),
                }
                for index, name in enumerate(ccas)
            ],
        }
    )


def scenario_of(record: Mapping[str, Any]) -> LiveScenario:
    return record_scenario(
        record["cc"],
        **{key: record[key] for key in ("rate_mbps", "rtt_ms", "buffer_bytes", "duration_s", "stagger_s")},
        thinning=parse_thinning([part for part in record["ack_thinning"].split(",") if part]),
    )


def parse_thinning(texts: Sequence[str]) -> dict[int, int]:
    """Return the packets per ACK by flow from texts like ``0:4``. Raises InputError."""
    packets_by_flow: dict[int, int] = {}
    for text in texts:
        match = _THINNED.fullmatch(text)
        if match is None or int(match[1]) in packets_by_flow:
            raise InputError(f"{shown(text)} must be FLOW:PACKETS, 0:4 for instance, once per flow")
        packets_by_flow[int(match[1])] = int(match[2])
    return packets_by_flow


def measurement_start_s(duration_s: float) -> float:
    return SETTLING_SHARE * duration_s + SETTLED_AFTER_S


def make_record(
    name: str, scenario: LiveScenario, stagger_s: float = 0.0, tries: int = TRIES, seed: int | None = None
) -> dict[str, Any]:
    """Run a scenario of :func:`record_scenario` and return its record; with a seed on user-mode Linux in virtual time.

    Raises:
        LiveError: if no run of ``tries`` is valid.
    """
    result = valid_run(scenario, tries) if seed is None else run_virtual(scenario, seed=seed)
    if not result.valid:
        raise LiveError(f"no valid run in {len(result.earlier) + 1}: {result.why_not_valid[0]}")
    return describe_run(name, result, stagger_s)


def describe_run(name: str, result: LiveResult, stagger_s: float = 0.0) -> dict[str, Any]:
    scenario, summary = result.scenario, result.summary()
    rtts_ms = [_rtts_ms(result, flow) for flow in range(len(scenario.flows))]
    return {
        "name": name,
        "rate_mbps": round(scenario.links[0].rate_Bps / MBPS_IN_BPS, 6),
        "rtt_ms": round(1e3 * scenario.flows[0].rtt_s, 6),
        "flow_delays": [],
        "buffer_bytes": round(scenario.links[0].buffer_bytes),
        "cc": [flow.sender.removeprefix(KERNEL) for flow in scenario.flows],
        "duration_s": scenario.duration_s,
        "measured_s": f"{scenario.warmup_s:g}:{scenario.duration_s:g}",
        "stagger_s": stagger_s,
        "ack_thinning": ",".join(
            f"{index}:{flow.receiver.ack_every}" for index, flow in enumerate(scenario.flows) if flow.receiver.ack_every > 1
        ),
        "throughput_mbps": [round(HEADERS_SHARE * flow["throughput_mbps"], 2) for flow in summary["flows"]],
        "rtt_p50_ms": [_percentile(values, 50) for values in rtts_ms],
        "rtt_p95_ms": [_percentile(values, 95) for values in rtts_ms],
        "mean_queue_packets": round(summary["links"][0]["queue_packets"] or 0.0, 3),
        "drop_percent": [round(100 * (flow["loss"] or 0.0), 4) for flow in summary["flows"]],
        "release_error_p99_ms": round(1e3 * result.release_error_s(99), 3),
        "release_error_max_ms": round(1e3 * result.late_max_s, 3),
        "release_error_histogram_us": result.release_error_histogram(),
        "tries": len(result.earlier) + 1,
        "hash": summary["hash"][:16],
        **({"seed": scenario.seed} if result.header["device"] == "virtual" else {}),
    }


def _rtts_ms(result: LiveResult, flow: int) -> np.ndarray:
    """Return the RTTs of a flow's packets delivered in the measured window, (n,)."""
    log = result.run.packet_log
    if log is None:
        raise InputError("the run kept no packet log")
    log = log[log["flow"] == flow]
    sent = log[log["event"] == EVENTS.index("send")]
    delivered = log[log["event"] == EVENTS.index("deliver")]
    delivered = delivered[delivered["time_s"] >= result.scenario.warmup_s]
    sent_s = np.full(int(sent["transmission"].max(initial=-1)) + 1, np.nan)
    sent_s[sent["transmission"]] = sent["time_s"]
    one_way_s: np.ndarray = delivered["time_s"] - sent_s[delivered["transmission"]]
    return 1e3 * (one_way_s + result.scenario.return_s(flow))


def _percentile(values: np.ndarray, percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 3) if len(values) else None


def append_record(file: Path, record: dict[str, Any]) -> None:
    """Add a record to a file of records, atomically.

    Raises:
        InputError: if the file holds something else, or already a record of this name and seed.
    """
    records = read_records(file) if file.exists() else []
    if (record["name"], record.get("seed")) in {(one["name"], one.get("seed")) for one in records}:
        raise InputError(f"{file}: has a record {record['name']!r} already; give another name")
    write_atomic(file, "".join(json.dumps(one, allow_nan=False) + "\n" for one in [*records, record]).encode())


def read_records(file: Path) -> list[dict[str, Any]]:
    """Return the records of a file. Raises InputError for a line of another format."""
    records = []
    for number, line in enumerate(read_text(file, MAX_BYTES).splitlines(), 1):
        data = parse_json(line, f"{file}, line {number}")
        if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not isinstance(data.get("cc"), list):
            raise InputError(f"{file}, line {number}: no record of a kernel")
        records.append(data)
    return records


def read_cases(file: Path) -> dict[str, dict[str, Any]]:
    """Return the first record of each case; repetitions (``/r1``, ``/r2``) and seeds are one case."""
    cases: dict[str, dict[str, Any]] = {}
    for record in read_records(file):
        cases.setdefault(re.sub(r"/r\d$", "", record["name"]), record)
    return cases
