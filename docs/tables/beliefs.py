"""Tables of the tighter belief rules, from docs/data/tighter-beliefs.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = list[dict[str, str]]


def gap(record: Mapping[str, Any]) -> Rows:
    """Return the table of the gap."""
    return [
        {
            "histories": f"{row['histories']} ({row['number']})",
            "C_L / exact": f"{row['C_L'][0]:.3f}",
            "tighter": f"{row['C_L'][1]:.3f}",
            "lowest": f"{row['C_L_worst'][0]:.2f}, {row['C_L_worst'][1]:.2f}",
            "C_U / exact": f"{row['C_U'][0]:.3f}",
            "tighter ": f"{row['C_U'][1]:.3f}",
        }
        for row in record["gap"]
    ]


def scores(record: Mapping[str, Any]) -> Rows:
    """Return the table of the scores."""
    pairs = zip(record["scores"][::2], record["scores"][1::2], strict=True)
    return [
        {
            "sender": f"`{old['sender']}`",
            "score": f"{old['score']:.4f}",
            "tighter": f"{new['score']:.4f}",
            "utilisation": f"{old['utilisation']:.4f}, {new['utilisation']:.4f}",
            "queue (BDP)": f"{old['queue_bdp']:.3f}, {new['queue_bdp']:.3f}",
            "loss": f"{old['loss']:.4f}, {new['loss']:.4f}",
        }
        for old, new in pairs
    ]
