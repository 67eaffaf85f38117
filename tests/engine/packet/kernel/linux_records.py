"""Records of Linux 6.1 in virtual time (docs/data/kernel-virtual.jsonl), the packet engine there, and the bands between them.

Beside them are those of Linux 6.18 on a host (docs/data/kernel.jsonl), which cannot show that they are valid: they hold no
maximum of the release error. ``python tests/engine/packet/kernel/linux_records.py`` measures kernel-bands.json again (minutes).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.base.files import json_bytes, write_atomic
from ccenv.live.virtual import suite
from ccenv.simulation import simulate

DATA = Path(__file__).parents[4] / "docs" / "data"
FILE, HOST, RECORD = (DATA / name for name in ("kernel-virtual.jsonl", "kernel.jsonl", "kernel-bands.json"))
SENDERS = {"reno": "reno", "cubic": "cubic", "bbr": "bbr1"}
PAYLOAD = 1448 / 1500
SEEDS = tuple(range(8))


def cases(file: Path = FILE) -> dict[str, list[dict[str, Any]]]:
    """Return the records by case; seeds, and repetitions (``/r1``, ``/r2``), are one case."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        head, _, tail = record["name"].rpartition("/")
        found.setdefault(head if tail in ("r1", "r2") else record["name"], []).append(record)
    return found


def scenario(record: dict[str, Any], seed: int, profile: str = "linux", **of_bbr: Any) -> dict[str, Any]:
    """Return the scenario of a record; ``of_bbr`` are further keys of flows of bbr."""
    thinned = dict(tuple(map(int, part.split(":"))) for part in record["ack_thinning"].split(",") if part)
    flows: list[dict[str, Any]] = [
        {"sender": SENDERS[name], "rtt_ms": record["rtt_ms"], **(of_bbr if name == "bbr" else {})} for name in record["cc"]
    ]
    for index, packets in thinned.items():
        flows[index]["receiver"] = {"ack_every": packets}
    return {
        "name": record["name"], "profile": profile, "seed": seed, "duration_s": record["duration_s"],
        "warmup_s": float(record["measured_s"].split(":")[0]),
        "links": [{"rate_mbps": record["rate_mbps"], "buffer_bytes": record["buffer_bytes"]}], "flows": flows,
    }  # fmt: skip


def of_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says: utilisation, mean queue, per cent dropped, Mbit/s per flow and its share."""
    rates = np.array(record["throughput_mbps"])
    loss = float(np.average(record["drop_percent"], weights=rates))
    return _measures(rates.sum() / PAYLOAD / record["rate_mbps"], record["mean_queue_packets"], loss, rates)


def ours(record: dict[str, Any], seed: int, profile: str = "linux", **of_bbr: Any) -> dict[str, Any]:
    """Return the same of a run of the engine."""
    summary = simulate(scenario(record, seed, profile, **of_bbr)).summary()
    (link,) = summary["links"]
    rates = np.array([flow["throughput_mbps"] for flow in summary["flows"]])
    return _measures(link["utilisation"], link["queue_packets"], 100 * link["loss"], rates)


def _measures(utilisation: float, queue: float, loss: float, rates: np.ndarray) -> dict[str, Any]:
    return {"utilisation": utilisation, "queue": queue, "loss": loss, "rates": list(rates), "shares": list(rates / rates.sum())}


def beyond(theirs: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[str]:
    """Return the quantities in which the mean of one side is beyond the bands around the kernel's, as in the suite kernel-v1."""
    return suite.beyond({"kernel": suite.spread(theirs), "engine": suite.spread(own)})


def measured() -> dict[str, Any]:
    """Return what the engine comes to in every case, and what is beyond the bands.

    ``beyond`` is of the profile, ``plain_beyond`` without it, ``single_beyond`` with bbr sending single packets, ``host_beyond``
    of the host's records.
    """
    found, hosts = {}, cases(HOST)
    for case, records in cases().items():
        theirs = [of_record(record) for record in records]
        own, plain, single = (
            [ours(records[0], seed, profile, **of_bbr) for seed in SEEDS]
            for profile, of_bbr in (("linux", {}), ("plain", {}), ("linux", {"burst_s": 0.0}))
        )
        sides = {"": own, "plain_": plain, "single_": single, "host_": [of_record(record) for record in hosts[case]]}
        runs = {key: [one[key] for one in own] for key in ("utilisation", "queue", "loss", "rates")}
        found[case] = runs | {f"{name}beyond": beyond(theirs, side) for name, side in sides.items()}
    return found


def within(record: dict[str, Any], name: str = "beyond") -> int:
    """Return the number of cases within the bands, of the side of this name (``measured``)."""
    return sum(not case[name] for case in record.values())


if __name__ == "__main__":
    write_atomic(RECORD, json_bytes(measured()))
