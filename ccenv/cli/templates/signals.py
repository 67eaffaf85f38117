"""Custom signals: make("ccenv/Sender-v0", signals=["queue_ratio", "loss_rate", "{name}.py"], history=8); plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

RANGES = {"queue_trend": (-16.0, 16.0), "quiet": (0.0, 1.0)}  # of what is returned; values outside are clipped


def signals(seen: Sequence[Any]) -> dict[str, float]:
    """Return further elements of a flow's observation.

    Args:
        seen: the last intervals of the flow, the newest last, each with the signals that are named beside this file.
    """
    newest, oldest = seen[-1], seen[0]
    quiet = sum(interval.loss_rate == 0 for interval in seen) / len(seen)
    return {"queue_trend": newest.queue_ratio - oldest.queue_ratio, "quiet": quiet}
