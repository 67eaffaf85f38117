"""The Network-v0 observation: the true state of a path, then each flow's beliefs and true rate. One table for kernel and spaces.

``ccenv.envs.curve.network`` computes the same with NumPy, for the environments; a test compares the two.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.interface.interface import N_OBSERVATION, OBSERVATION, Element, fill_observation
from ccenv.base.kernels.decorator import kernel

PATH_ELEMENTS = (
    Element("queue / (C Rm)", "1", 0.0, 32.0),
    Element("spare tokens / (C Rm)", "1", 0.0, 8.0),
    Element("bytes in the jitter box / (C Rm)", "1", 0.0, 8.0),
    Element("log2(beta / (C Rm))", "1", -8.0, 8.0),
    Element("largest D / Rm", "1", 0.0, 8.0),
    Element("log2(C Rm / MSS)", "1", -4.0, 20.0),
    Element("share of the episode that is over", "1", 0.0, 1.0),
)
FLOW_ELEMENTS = (
    *OBSERVATION,
    Element("log2(rate / C)", "1", -20.0, 8.0),
    Element("log2(C_L / C)", "1", -20.0, 8.0),
)
N_PATH, N_FLOW = len(PATH_ELEMENTS), len(FLOW_ELEMENTS)
# Indices of the path's elements, and of a flow's elements after its own observation.
PATH_QUEUE, SPARE_TOKENS, IN_JITTER_BOX, BUFFER, LARGEST_JITTER, BDP_SEGMENTS, SHARE_OVER = range(N_PATH)
TRUE_RATE, TRUE_C_L = range(N_OBSERVATION, N_FLOW)
_PATH_LOW, _PATH_HIGH = (np.array([getattr(e, end) for e in PATH_ELEMENTS]) for end in ("low", "high"))
_FLOW_LOW, _FLOW_HIGH = (np.array([getattr(e, end) for e in FLOW_ELEMENTS]) for end in ("low", "high"))


@kernel
def fill_network_observation(ev, flow, first_row, n_flows, share_over, out):
    """Write the observation of a network into out[: N_PATH + n_flows * N_FLOW].

    Args:
        ev: environment struct.
        flow: structs of all flows of the batch.
        first_row: row of the environment's first flow.
        n_flows: N.
        share_over: elapsed share of the episode, in [0, 1].
        out: float64 array.
    """
    rtt_s, jitter_s = np.inf, 0.0
    for i in range(n_flows):
        rtt_s = min(rtt_s, flow[first_row + i].rtt_s)
        jitter_s = max(jitter_s, flow[first_row + i].jitter_s)
    bdp_bytes = ev.link_rate_now_Bps * rtt_s
    out[PATH_QUEUE] = max(ev.enqueued_bytes - ev.tokens_bytes, 0.0) / bdp_bytes
    out[SPARE_TOKENS] = max(ev.tokens_bytes - ev.enqueued_bytes, 0.0) / bdp_bytes
    out[IN_JITTER_BOX] = max(min(ev.tokens_bytes, ev.enqueued_bytes) - ev.served_bytes, 0.0) / bdp_bytes
    out[BUFFER] = np.log2(ev.buffer_bytes / bdp_bytes)
    out[LARGEST_JITTER] = jitter_s / rtt_s
    out[BDP_SEGMENTS] = np.log2(bdp_bytes / ev.mss_bytes)
    out[SHARE_OVER] = share_over
    for j in range(N_PATH):
        out[j] = min(_PATH_HIGH[j], max(_PATH_LOW[j], out[j]))
    for i in range(n_flows):
        fl = flow[first_row + i]
        elements = out[N_PATH + i * N_FLOW : N_PATH + (i + 1) * N_FLOW]
        fill_observation(ev, fl, elements)
        elements[TRUE_RATE] = np.log2(fl.rate_Bps / ev.link_rate_now_Bps)
        elements[TRUE_C_L] = np.log2(fl.C_L_Bps / ev.link_rate_now_Bps)
        for j in range(N_OBSERVATION, N_FLOW):
            elements[j] = min(_FLOW_HIGH[j], max(_FLOW_LOW[j], elements[j]))
