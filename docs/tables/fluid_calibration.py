"""The parameter set `calibrated`: fitted on one half of kernel and packet records, tested on the other.

Split, bands, grids and the order of the search are fixed here, independently of the records; equal records give equal constants.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.base.foreign import parse_json, read_json
from ccenv.engine.fluid.parameters import PARAMETER_SETS
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.simulate import Metrics, simulate_batch
from ccenv.engine.fluid.sweep import Sweep

SENDERS = {"reno": "reno", "cubic": "cubic", "bbr": "bbr1"}
MTU_BYTES, PAYLOAD = 1500, 1448 / 1500
# Bands of the kernel records (those of the packet engine's own test) and of the packet cells (those of the published numbers).
UTILISATION_PCT, QUEUE, LOSS_FACTOR, LOSS_PCT, SHARES = 3.0, 0.15, 1.5, 0.02, 0.2
CELL_BANDS = {"jain": 0.12, "loss_pct": 3.0, "occupancy_pct": 12.0, "utilisation_pct": 3.0}
CAP = 4.0  # bands; a larger error counts as this
KERNEL_STEP_MS, CELL_STEP_MS = 0.25, 0.2
START = {"reaction_packets": 1.0, "conserve_rtts": 1.0, "window_gain": 2.0, "hi_start": 1.25}
GRIDS = {
    "reaction_packets": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "conserve_rtts": (0.0, 0.5, 1.0, 2.0, 4.0),
    "window_gain": (1.8, 2.0, 2.2, 2.4),
    "hi_start": (1.0, 1.25, 1.6, 2.0, 2.5),
}
ROUNDS = 2


@dataclass(frozen=True)
class Case:
    """One record with its fluid scenario.

    Attributes:
        name: of the record; repetitions share one.
        train: belongs to the training half.
        scenario: its parameter set is replaced.
        error: maps metrics to errors in bands, by quantity.
    """

    name: str
    train: bool
    scenario: Scenario
    error: Callable[[Metrics], dict[str, float]]


def in_training(name: str) -> bool:
    """Tell whether a record is in the training half: the first byte of its name's SHA-256 is even."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def kernel_cases(records: Path) -> list[Case]:
    """Return the cases of kernel records (one JSON object a line); those with thinned ACKs are left out, a fluid has no ACKs.

    Raises InputError for a file that cannot be read, or a record without what is needed.
    """
    try:
        lines = records.read_text(encoding="utf-8").splitlines()
        by_name: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            record = parse_json(line, str(records))
            head, _, tail = str(record["name"]).rpartition("/")
            if not record["ack_thinning"]:
                by_name.setdefault(head if tail in {"r1", "r2"} else record["name"], []).append(record)
        return [_kernel_case(name, repeated) for name, repeated in by_name.items()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{records} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{records} holds no kernel records: {type(error).__name__} {error}") from error


def _kernel_case(name: str, records: list[dict[str, Any]]) -> Case:
    first = records[0]
    from_s, to_s = (float(part) for part in first["measured_s"].split(":"))
    quarter_ms = first["rtt_ms"] / 4
    bdp_packets = math.ceil(first["rate_mbps"] * 125.0 * quarter_ms / MTU_BYTES)
    scenario = validate(
        Scenario,
        {
            "title": name,
            "links": [
                {
                    "rate_mbps": first["rate_mbps"],
                    "delay_ms": quarter_ms,
                    "buffer_bdp": first["buffer_bytes"] / (bdp_packets * MTU_BYTES),
                }
            ],
            "flows": [{"cca": SENDERS[cc], "access_delay_ms": quarter_ms} for cc in first["cc"]],
            "duration_s": to_s,
            "measure_from_s": from_s,
            "step_ms": KERNEL_STEP_MS,
            "mss_bytes": MTU_BYTES,
        },
        name,
    )
    rates = np.mean([r["throughput_mbps"] for r in records], axis=0)
    lost = [np.average(r["drop_percent"], weights=r["throughput_mbps"]) for r in records]
    truth = {
        "utilisation_pct": 100.0 * float(rates.sum()) / PAYLOAD / first["rate_mbps"],
        "queue": float(np.mean([r["mean_queue_packets"] for r in records])),
        "loss_pct": float(np.mean(lost)),
    }
    shares = rates / rates.sum()
    buffer_packets = first["buffer_bytes"] / MTU_BYTES

    def error(metrics: Metrics) -> dict[str, float]:
        queue = metrics.occupancy_pct / 100.0 * buffer_packets
        rates_Bps = np.array(metrics.delivered_Bps)
        difference = abs(metrics.loss_pct - truth["loss_pct"])
        smaller = min(metrics.loss_pct, truth["loss_pct"])
        ratio = math.log(max(metrics.loss_pct, truth["loss_pct"]) / smaller) if smaller > 0.0 else math.inf
        errors = {
            "utilisation": abs(metrics.utilisation_pct - truth["utilisation_pct"]) / UTILISATION_PCT,
            "queue": abs(queue / truth["queue"] - 1.0) / QUEUE,
            "loss": min(difference / LOSS_PCT, ratio / math.log(LOSS_FACTOR)),
        }
        if len(shares) > 1:
            errors["shares"] = float(np.max(np.abs(rates_Bps / rates_Bps.sum() / shares - 1.0))) / SHARES
        return errors

    return Case(name, in_training(name), scenario, error)


def packet_cases(cells: Path, sweep: Sweep) -> list[Case]:
    """Return the cases of a packet record of a sweep (of ``docs/tables/record_fluid.py statements``). Raises InputError."""
    try:
        rows = read_json(cells)["packets"]
        return [_packet_case(row, sweep) for row in rows]
    except (KeyError, TypeError) as error:
        raise InputError(f"{cells} holds no packet cells: {type(error).__name__} {error}") from error


def _packet_case(row: dict[str, Any], sweep: Sweep) -> Case:
    mix, discipline, buffer_bdp = row["mix"], row["discipline"], float(row["buffer_bdp"])
    truth = {name: float(row[name]) for name in CELL_BANDS}
    name = f"{mix}, {discipline}, {buffer_bdp:g} BDP"
    scenario = sweep.scenario(mix, discipline, buffer_bdp).model_copy(update={"step_ms": CELL_STEP_MS})

    def error(metrics: Metrics) -> dict[str, float]:
        return {key: abs(getattr(metrics, key) - truth[key]) / band for key, band in CELL_BANDS.items()}

    return Case(name, in_training(name), scenario, error)


def errors_of(cases: Sequence[Case], constants: dict[str, float], params: str = "calibrated") -> list[dict[str, float]]:
    """Return each case's errors in bands under the constants (with another set: under that set as it is)."""
    changes = {"params": params, "overrides": dict(constants) if params == "calibrated" else {}}
    metrics = simulate_batch([case.scenario.model_copy(update=changes) for case in cases])
    return [case.error(m) for case, m in zip(cases, metrics, strict=True)]


def score(errors: Sequence[dict[str, float]]) -> float:
    """Return the mean error in bands, each capped at CAP."""
    return float(np.mean([min(value, CAP) for each in errors for value in each.values()]))


def fit(kernel: Sequence[Case], packets: Sequence[Case], progress: Callable[[int, int], None] | None = None) -> dict[str, float]:
    """Return the constants of the least error on the training halves, by search along one constant after the other.

    The error is the mean of the kernel cases' score and of the packet cases' score. Ties keep the earlier value. Raises
    InputError if a training half is empty.
    """
    halves = [[case for case in cases if case.train] for cases in (kernel, packets)]
    if not all(halves):
        raise InputError("a fit needs training cases of the kernel and of packets; one of the two has none")
    losses: dict[tuple[float, ...], float] = {}

    def loss(constants: dict[str, float]) -> float:
        key = tuple(constants.values())
        if key not in losses:
            losses[key] = float(np.mean([score(errors_of(half, constants)) for half in halves]))
            if progress is not None:
                progress(len(losses), 1 + ROUNDS * sum(map(len, GRIDS.values())))
        return losses[key]

    best = dict(START)
    for _ in range(ROUNDS):
        for name, grid in GRIDS.items():
            for value in grid:
                if loss(best | {name: value}) < loss(best):
                    best[name] = value
    return best


def document(
    kernel: Sequence[Case], packets: Sequence[Case], constants: dict[str, float], records: Path, packet_record: Path
) -> dict[str, Any]:
    """Return what is stored about a fit: constants, where they come from, and errors on both halves."""
    cells = json.dumps(read_json(packet_record)["packets"], sort_keys=True)
    return {
        "constants": constants,
        "records_sha256": {"kernel": _hash(records.read_bytes()), "packets": _hash(cells.encode())},
        "split": "training: the first byte of the SHA-256 of the case's name is even",
        "bands": {
            "kernel": {"utilisation_pct": UTILISATION_PCT, "queue": QUEUE, "loss_factor": LOSS_FACTOR, "loss_pct": LOSS_PCT}
            | {"shares": SHARES},
            "packets": CELL_BANDS,
            "cap": CAP,
        },
        "search": {"start": START, "grids": GRIDS, "rounds": ROUNDS},
        "training": {
            source: [case.name for case in cases if case.train] for source, cases in (("kernel", kernel), ("packets", packets))
        },
        "errors": evaluation(kernel, packets, constants),
    }


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def evaluation(kernel: Sequence[Case], packets: Sequence[Case], constants: dict[str, float]) -> dict[str, Any]:
    """Return errors of every set on both halves of both kinds of records: score, and cases and quantities within their bands."""
    out: dict[str, Any] = {}
    for params in PARAMETER_SETS:
        out[params] = {
            f"{source}_{half}": _summary([case for case in cases if case.train == (half == "train")], constants, params)
            for source, cases in (("kernel", kernel), ("packets", packets))
            for half in ("train", "test")
        }
    return out


def _summary(cases: Sequence[Case], constants: dict[str, float], params: str) -> dict[str, Any]:
    errors = errors_of(cases, constants, params)
    quantities = {name: [e[name] for e in errors if name in e] for name in dict.fromkeys(k for e in errors for k in e)}
    return {
        "cases": len(cases),
        "score": round(score(errors), 4),
        "cases_within": sum(max(e.values()) <= 1.0 for e in errors),
        "within": {name: f"{sum(v <= 1.0 for v in values)} of {len(values)}" for name, values in quantities.items()},
        "median_bands": {name: round(float(np.median(values)), 3) for name, values in quantities.items()},
    }
