"""Tables of Linux beside the packet engine (kernel-bands, -switches, -programs) and simulated attacks (live-worst-case)."""

from __future__ import annotations

from typing import Any

import linux_records
import numpy as np

from ccenv.live.kernel_records import shipped_record

Rows = list[dict[str, str]]


def bands(record: dict[str, Any]) -> Rows:
    """Return the packet engine beside Linux, a row per case, and what is beyond the bands; a packet in service does not wait."""
    rows, hosts = [], linux_records.cases(linux_records.HOST)
    for case, records in linux_records.cases().items():
        runs, keys = record[case], ("utilisation", "queue", "loss", "rates")
        sides = [[linux_records.of_record(one) for one in side] for side in (records, hosts[case])]
        linux, host = ({key: np.mean([one[key] for one in side], axis=0) for key in keys} for side in sides)
        own = {key: np.mean(runs[key], axis=0) for key in keys}
        shares = len(own["rates"]) > 1
        rows.append(
            {
                "case (CCA, Mbit/s, buffer in BDP)": case,
                "Linux: utilisation, packets waiting, % lost": _text(linux),
                "here": _text(own),
                "Linux: Mbit/s": _shares(linux) if shares else "",
                "here: Mbit/s": _shares(own) if shares else "",
                "beyond": ", ".join(runs["beyond"]),
                "a host's record": _text(host) + (f" ({_shares(host)})" if shares else ""),
                "its beyond": ", ".join(runs["host_beyond"]),
            }
        )
    return rows


def switches(record: dict[str, Any]) -> Rows:
    """Return what moves the cases of kernel-v1 that are outside: kernel and packet engine as they are, and changed."""
    rows = []
    for case, changes in record.items():
        for words, sides in changes.items():
            texts = {side: f"{_text(sides[side])}{_first(sides[side])}" if side in sides else "" for side in ("kernel", "engine")}
            rows.append(
                {"case": "" if words else case, "change of both": words, "kernel": texts["kernel"], "here": texts["engine"]}
            )
    return rows


def programs(record: dict[str, Any]) -> Rows:
    """Return exported programs under an emulated kernel and in the packet engine."""
    return [
        {
            "senders": case.replace("kernel:", ""),
            "kernel: utilisation, packets waiting, % lost": _text(sides["kernel"]),
            "here": _text(sides["engine"]),
            "share of the first: kernel": _first(sides["kernel"]).removeprefix(", "),
            "here, its share": _first(sides["engine"]).removeprefix(", "),
        }
        for case, sides in record.items()
    ]


def _first(measure: dict[str, Any]) -> str:
    return f", {measure['shares'][0]:.2f}" if measure["shares"] else ""


def _text(measure: dict[str, Any]) -> str:
    columns = (("utilisation", ".3f"), ("queue", ".3g"), ("loss", ".2g"))
    return ", ".join(format(measure[name], form) for name, form in columns)


def _shares(measure: dict[str, Any]) -> str:
    return " : ".join(f"{rate:.3g}" for rate in measure["rates"])


def live() -> Rows:
    """Return the shipped record of live-worst-case: the attacks on a kernel beside the simulation."""
    columns = ("calm", "live", "simulated")
    titles = ("without jitter", "under the attack", "simulated")
    rows = []
    for row in shipped_record()["rows"]:
        path = (
            f"{row['link_rate_mbps']:g} Mbit/s, {row['rtt_ms']:g} ms, buffer {row['buffer_bdp']:g} BDP, D {row['jitter_ms']:g} ms"
        )
        shares = {title: f"{row[key]:.2f}" for title, key in zip(titles, columns, strict=True)}
        rows.append({"sender": row["sender"], "path": path, **shares, "valid": "yes" if row["valid"] else "no"})
    return rows
