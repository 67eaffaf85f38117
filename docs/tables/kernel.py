"""Tables of Linux beside the packet engine (docs/data/kernel-bands.json) and beside the simulated attacks (live-worst-case)."""

from __future__ import annotations

from typing import Any

import linux_records
import numpy as np

from ccenv.live.kernel_records import shipped_record

Rows = list[dict[str, str]]


def bands(record: dict[str, Any]) -> Rows:
    """Return the packet engine beside Linux, a row per case, and what is beyond the bands; a packet in service does not wait."""
    rows = []
    for case, records in linux_records.cases().items():
        theirs, runs = [linux_records.of_record(one) for one in records], record[case]
        own = {key: np.mean(runs[key], axis=0) for key in ("utilisation", "queue", "loss", "rates")}
        shares = len(own["rates"]) > 1
        rows.append(
            {
                "case (CCA, Mbit/s, buffer in BDP)": case,
                "Linux: utilisation, packets waiting, % lost": _texts(theirs),
                "here, mean of 8 seeds": _texts([own]),
                "Linux: Mbit/s": "; ".join(_shares(one) for one in theirs) if shares else "",
                "here: Mbit/s": _shares(own) if shares else "",
                "beyond": ", ".join(runs["beyond"]),
            }
        )
    return rows


def _texts(measures: list[dict[str, Any]]) -> str:
    columns = (("utilisation", ".3f"), ("queue", ".3g"), ("loss", ".2g"))
    return ", ".join("; ".join(format(one[name], form) for one in measures) for name, form in columns)


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
