"""The Sender-v0 observation: the belief signals of the table (``ccenv.agents.interface.signals``), of a flow of an engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.agents.interface.interface import SENDER_V0
from ccenv.agents.interface.signals import fill_beliefs
from ccenv.base.kernels.decorator import kernel

OBSERVATION_VERSION = 1


@dataclass(frozen=True)
class Element:
    """One element of an observation.

    Attributes:
        name: what it is.
        unit: unit after scaling.
        low: smallest value (clipped).
        high: largest value (clipped).
    """

    name: str
    unit: str
    low: float
    high: float


OBSERVATION = tuple(Element(row.formula, row.unit, row.low, row.high) for row in SENDER_V0.rows)
N_OBSERVATION = len(OBSERVATION)
OBSERVATION_LOW = np.array([e.low for e in OBSERVATION], dtype=np.float32)
OBSERVATION_HIGH = np.array([e.high for e in OBSERVATION], dtype=np.float32)
_LOW = OBSERVATION_LOW.astype(np.float64)
_HIGH = OBSERVATION_HIGH.astype(np.float64)


@kernel
def fill_observation(ev, fl, out):
    """Write the observation of a flow into out, a float array of length N_OBSERVATION; elements as in OBSERVATION."""
    inflight_bytes = fl.A - fl.acked_bytes - fl.found_lost_bytes
    fill_beliefs(fl, fl.rtt_s, ev.mss_bytes, fl.sent_last_interval_bytes, fl.lost_last_interval_bytes, inflight_bytes, out, 0)
    for j in range(N_OBSERVATION):
        out[j] = min(_HIGH[j], max(_LOW[j], out[j]))


@kernel
def fill_observations(env, flow, n_flows, out):
    """Write the observations of all flows: out has shape (B, n_flows, N_OBSERVATION)."""
    for b in range(env.shape[0]):
        for i in range(n_flows):
            fill_observation(env[b], flow[b * n_flows + i], out[b, i])
