"""A constant rate, whatever happens: the open-loop baseline."""

from __future__ import annotations

from typing import Any

from ccenv.agents.classic.common import UNLIMITED_BYTES, Cca, Parameter
from ccenv.network.path import MBPS_IN_BPS

RATE = Parameter("rate_mbps", 10.0, above=0, high=1e6, field="rate_Bps", scale=MBPS_IN_BPS)
sender = Cca("constant", __name__, (RATE,), ())


def init(state: Any) -> None:
    """Set the rate once; the window never binds."""
    state.cwnd_bytes = UNLIMITED_BYTES
    state.pacing_rate_Bps = state.rate_Bps


def on_ack(state: Any, ack: Any) -> None:
    """Do nothing."""
