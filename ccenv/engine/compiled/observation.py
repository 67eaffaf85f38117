"""The Sender-v0 observation: belief bounds made scale-free. One table drives the kernel, the spaces and the docs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

OBSERVATION_VERSION = 1


@dataclass(frozen=True)
class Element:
    """One element of the observation.

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


OBSERVATION = (
    Element("log2(C_U / C_L), 8 before any upper bound", "1", 0.0, 8.0),
    Element("qdel_L / Rm", "1", 0.0, 16.0),
    Element("qdel_U / Rm", "1", 0.0, 16.0),
    Element("bytes found lost / bytes sent, last interval", "1", 0.0, 1.0),
    Element("log2(rate / C_L)", "1", -8.0, 8.0),
    Element("log2(1 + 4 MSS / (C_L Rm))", "1", 0.0, 4.0),
    Element("log2(C_L_lambda / C_L), a fact on ideal and cbr_delay", "1", -8.0, 8.0),
    Element("q_U / (C_L Rm), a fact on ideal and cbr_delay", "1", 0.0, 16.0),
    Element("newest judged step was utilised", "0 or 1", 0.0, 1.0),
    Element("bytes in flight / (C_L Rm)", "1", 0.0, 32.0),
)
N_OBSERVATION = len(OBSERVATION)
# Index of each element.
(
    BOUNDS_RATIO,
    QDEL_L,
    QDEL_U,
    LOST_SHARE,
    RATE_RATIO,
    SEGMENT,
    LAMBDA_RATIO,
    QUEUE,
    UTILISED,
    INFLIGHT,
) = range(N_OBSERVATION)
OBSERVATION_LOW = np.array([e.low for e in OBSERVATION], dtype=np.float32)
OBSERVATION_HIGH = np.array([e.high for e in OBSERVATION], dtype=np.float32)
_LOW = OBSERVATION_LOW.astype(np.float64)
_HIGH = OBSERVATION_HIGH.astype(np.float64)


@njit(cache=True, error_model="numpy")
def fill_observation(ev, fl, out):
    """Write the observation of a flow into out, a float array of length N_OBSERVATION; elements as in OBSERVATION."""
    bdp_bytes = fl.C_L_Bps * fl.rtt_s
    out[BOUNDS_RATIO] = np.log2(max(fl.C_U_Bps / fl.C_L_Bps, 1.0))
    out[QDEL_L] = fl.qdel_L_s / fl.rtt_s
    out[QDEL_U] = fl.qdel_U_s / fl.rtt_s
    out[LOST_SHARE] = fl.lost_last_interval_bytes / max(fl.sent_last_interval_bytes, 1.0)
    out[RATE_RATIO] = np.log2(max(min(fl.rate_Bps, 1e15) / fl.C_L_Bps, 1e-9))
    out[SEGMENT] = np.log2(1.0 + 4.0 * ev.mss_bytes / bdp_bytes)
    out[LAMBDA_RATIO] = np.log2(max(fl.C_L_lambda_Bps / fl.C_L_Bps, 1e-9))
    out[QUEUE] = fl.q_U_bytes / bdp_bytes
    out[UTILISED] = float(fl.utilised)
    out[INFLIGHT] = (fl.A - fl.acked_bytes - fl.found_lost_bytes) / bdp_bytes
    for j in range(N_OBSERVATION):
        out[j] = min(_HIGH[j], max(_LOW[j], out[j]))


@njit(cache=True, error_model="numpy")
def fill_observations(env, flow, n_flows, out):
    """Write the observations of all flows: out has shape (B, n_flows, N_OBSERVATION)."""
    for b in range(env.shape[0]):
        for i in range(n_flows):
            fill_observation(env[b], flow[b * n_flows + i], out[b, i])
