"""Records of Linux 6.18 on plain links (docs/data/kernel.jsonl), the packet engine there, and the bands between them.

``python tests/engine/packet/kernel/linux_records.py`` measures docs/data/kernel-bands.json again (a minute).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.base.files import json_bytes, write_atomic
from ccenv.simulation import simulate

DOCS = Path(__file__).parents[4] / "docs"
FILE, RECORD = DOCS / "data" / "kernel.jsonl", DOCS / "data" / "kernel-bands.json"
SENDERS = {"reno": "reno", "cubic": "cubic", "bbr": "bbr1"}
PAYLOAD = 1448 / 1500
UTILISATION = 0.03
QUEUE = 0.15
LOSS_FACTOR, LOSS_POINTS = 1.5, 0.02
SHARE = 0.05
SEEDS = tuple(range(8))
QUANTITIES = ("utilisation", "queue", "loss", "shares")


def cases() -> dict[str, list[dict[str, Any]]]:
    """Return the records by case; repetitions (``/r1``, ``/r2``) are one case."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        head, _, tail = record["name"].rpartition("/")
        found.setdefault(head if tail in ("r1", "r2") else record["name"], []).append(record)
    return found


def scenario(record: dict[str, Any], seed: int, profile: str = "linux") -> dict[str, Any]:
    """Return the scenario of a record."""
    thinned = dict(tuple(map(int, part.split(":"))) for part in record["ack_thinning"].split(",") if part)
    flows: list[dict[str, Any]] = [{"sender": SENDERS[name], "rtt_ms": record["rtt_ms"]} for name in record["cc"]]
    for index, packets in thinned.items():
        flows[index]["receiver"] = {"ack_every": packets}
    return {
        "name": record["name"],
        "profile": profile,
        "seed": seed,
        "duration_s": record["duration_s"],
        "warmup_s": float(record["measured_s"].split(":")[0]),
        "links": [{"rate_mbps": record["rate_mbps"], "buffer_bytes": record["buffer_bytes"]}],
        "flows": flows,
    }


def of_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says: utilisation, mean queue, per cent dropped, Mbit/s per flow and its share."""
    rates = np.array(record["throughput_mbps"])
    loss = float(np.average(record["drop_percent"], weights=rates))
    return _measures(rates.sum() / PAYLOAD / record["rate_mbps"], record["mean_queue_packets"], loss, rates)


def ours(record: dict[str, Any], seed: int, profile: str = "linux") -> dict[str, Any]:
    """Return the same of a run of the engine."""
    summary = simulate(scenario(record, seed, profile)).summary()
    (link,) = summary["links"]
    rates = np.array([flow["throughput_mbps"] for flow in summary["flows"]])
    return _measures(link["utilisation"], link["queue_packets"], 100 * link["loss"], rates)


def _measures(utilisation: float, queue: float, loss: float, rates: np.ndarray) -> dict[str, Any]:
    return {"utilisation": utilisation, "queue": queue, "loss": loss, "rates": list(rates), "shares": list(rates / rates.sum())}


def beyond(theirs: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[str]:
    """Return the quantities in which the middle half of our seeds lies further than the band from the kernel's repetitions."""
    (low, high), (first, last) = (
        [{key: np.quantile([one[key] for one in runs], q, axis=0) for key in QUANTITIES} for q in quantiles]
        for runs, quantiles in ((theirs, (0, 1)), (own, (0.25, 0.75)))
    )
    off = {key: np.maximum(first[key] - high[key], low[key] - last[key]) for key in QUANTITIES}
    inside = {
        "utilisation": off["utilisation"] <= UTILISATION,
        "queue": low["queue"] * (1 - QUEUE) <= last["queue"] and first["queue"] <= high["queue"] * (1 + QUEUE),
        "loss": off["loss"] <= LOSS_POINTS
        or (low["loss"] / LOSS_FACTOR <= last["loss"] and first["loss"] <= high["loss"] * LOSS_FACTOR),
        "shares": bool(np.all(off["shares"] <= SHARE)),
    }
    return [key for key, value in inside.items() if not value]


def measured() -> dict[str, Any]:
    """Return what the engine comes to in every case, and what lies beyond the bands with the profile and without."""
    found = {}
    for case, records in cases().items():
        theirs = [of_record(record) for record in records]
        own, plain = ([ours(records[0], seed, profile) for seed in SEEDS] for profile in ("linux", "plain"))
        runs = {key: [one[key] for one in own] for key in ("utilisation", "queue", "loss", "rates")}
        found[case] = {**runs, "beyond": beyond(theirs, own), "plain_beyond": beyond(theirs, plain)}
    return found


def within(record: dict[str, Any], name: str = "beyond") -> int:
    """Return the number of cases within the bands: with the profile, or (``plain_beyond``) without."""
    return sum(not case[name] for case in record.values())


if __name__ == "__main__":
    write_atomic(RECORD, json_bytes(measured()))
