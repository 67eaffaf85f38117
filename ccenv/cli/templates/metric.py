"""Share of the sent bytes that reached the receiver.

Try it: ccenv compare copa cubic --metric {name}.py, or ccenv bench run quick --metric {name}.py.
"""

from __future__ import annotations

from typing import Any

UNIT = ""
DIRECTION = "higher"  # is better; or lower, or neither


def of_run(window: Any) -> float:
    """Compute it from a packet run (``ccenv.network.metrics.packet.RunWindow``)."""
    return float(window.total("goodput_bytes") / max(window.total("sent_bytes"), 1.0))


def of_trace(window: Any) -> float:
    """Compute it from a trace of the curve engine (``ccenv.network.metrics.trace.Window``)."""
    sent_bytes = window.change(window.trace.A).sum()
    return float(window.change(window.trace.S).sum() / max(sent_bytes, 1.0))
