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
SHARES = 0.2
SEEDS = (0, 1)


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
    """Return what a record says: utilisation, mean queue, per cent dropped, Mbit/s per flow."""
    rates = np.array(record["throughput_mbps"])
    return {
        "utilisation": rates.sum() / PAYLOAD / record["rate_mbps"],
        "queue": record["mean_queue_packets"],
        "loss": float(np.average(record["drop_percent"], weights=rates)),
        "rates": rates,
    }


def ours(record: dict[str, Any], seeds: tuple[int, ...] = SEEDS, profile: str = "linux") -> dict[str, Any]:
    """Return the same of the engine, the mean over seeds."""
    runs = []
    for seed in seeds:
        summary = simulate(scenario(record, seed, profile)).summary()
        (link,) = summary["links"]
        rates = np.array([flow["throughput_mbps"] for flow in summary["flows"]])
        runs.append((link["utilisation"], link["queue_packets"], 100 * link["loss"], rates))
    utilisation, queue, loss, rates = (np.mean(column, axis=0) for column in zip(*runs, strict=True))
    return {"utilisation": float(utilisation), "queue": float(queue), "loss": float(loss), "rates": rates}


def beyond(records: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    """Return the quantities that lie beyond the band around all repetitions of a case."""
    theirs = [of_record(record) for record in records]
    low = {key: np.min([one[key] for one in theirs], axis=0) for key in theirs[0]}
    high = {key: np.max([one[key] for one in theirs], axis=0) for key in theirs[0]}
    inside = {
        "utilisation": low["utilisation"] - UTILISATION <= found["utilisation"] <= high["utilisation"] + UTILISATION,
        "queue": low["queue"] * (1 - QUEUE) <= found["queue"] <= high["queue"] * (1 + QUEUE),
        "loss": low["loss"] / LOSS_FACTOR <= found["loss"] <= high["loss"] * LOSS_FACTOR
        or low["loss"] - LOSS_POINTS <= found["loss"] <= high["loss"] + LOSS_POINTS,
        "rates": bool(np.all((low["rates"] * (1 - SHARES) <= found["rates"]) & (found["rates"] <= high["rates"] * (1 + SHARES)))),
    }
    return [key for key, value in inside.items() if not value]


def measured() -> dict[str, Any]:
    """Return what the engine comes to in every case, and what lies beyond the bands with the profile and without."""
    found = {}
    for case, records in cases().items():
        own = ours(records[0])
        plain = beyond(records, ours(records[0], seeds=SEEDS[:1], profile="plain"))
        found[case] = {**own, "rates": own["rates"].tolist(), "beyond": beyond(records, own), "plain_beyond": plain}
    return found


def within(record: dict[str, Any], name: str = "beyond") -> int:
    """Return the number of cases within the bands: with the profile, or (``plain_beyond``) without."""
    return sum(not case[name] for case in record.values())


if __name__ == "__main__":
    write_atomic(RECORD, json_bytes(measured()))
