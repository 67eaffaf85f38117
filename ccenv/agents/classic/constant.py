"""A constant rate, whatever happens: the open-loop baseline."""

from __future__ import annotations

import sys
from typing import Any

from ccenv.agents.callbacks import state_record
from ccenv.agents.classic.common import UNLIMITED_BYTES, classic_sender
from ccenv.agents.sender import ClassicSender
from ccenv.base.registry import number
from ccenv.network.path import MBPS_IN_BPS

STATE = state_record("rate_Bps")


def sender(rate_mbps: float = 10.0) -> ClassicSender:
    """Build a sender of constant rate in Mbit/s, > 0."""
    rate_Bps = number("constant", "rate_mbps", rate_mbps, above=0, high=1e6) * MBPS_IN_BPS
    return classic_sender("constant", sys.modules[__name__], STATE, rate_Bps=rate_Bps)


def init(state: Any) -> None:
    """Set the rate once; the window never binds."""
    state.cwnd_bytes = UNLIMITED_BYTES
    state.pacing_rate_Bps = state.rate_Bps


def on_ack(state: Any, ack: Any) -> None:
    """Do nothing."""


def on_loss(state: Any, loss: Any) -> None:
    """Do nothing."""


def on_tick(state: Any, tick: Any) -> None:
    """Do nothing."""
