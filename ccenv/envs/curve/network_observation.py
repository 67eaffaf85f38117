"""The Network-v0 observation: the true state of the path, then each flow's beliefs and true rate."""

from __future__ import annotations

import numpy as np

from ccenv.adversaries.observation import (BDP_SEGMENTS, BUFFER, FLOW_ELEMENTS, IN_JITTER_BOX, LARGEST_JITTER, N_FLOW, N_PATH, PATH_ELEMENTS, PATH_QUEUE, SHARE_OVER, SPARE_TOKENS, TRUE_C_L, TRUE_RATE)
from ccenv.agents.interface.observation import N_OBSERVATION, Element
from ccenv.envs.curve.core import Core


def network_elements(n_flows: int) -> tuple[Element, ...]:
    """Return the elements of the observation for a number of flows."""
    return PATH_ELEMENTS + FLOW_ELEMENTS * n_flows


def observe_network(core: Core) -> np.ndarray:
    """Return the network's observation: a new (B, len(PATH_ELEMENTS) + N * len(FLOW_ELEMENTS)) float32 array."""
    B, N = core.num_envs, core.n_flows
    rtt_s = core.flow("rtt_s")
    link_rate = core.env("link_rate_now_Bps")
    bdp = link_rate * rtt_s.min(axis=1)
    tokens, enqueued, served = (core.env(name) for name in ("tokens_bytes", "enqueued_bytes", "served_bytes"))
    out = np.empty((B, N_PATH + N * N_FLOW))
    out[:, PATH_QUEUE] = np.maximum(enqueued - tokens, 0.0) / bdp
    out[:, SPARE_TOKENS] = np.maximum(tokens - enqueued, 0.0) / bdp
    out[:, IN_JITTER_BOX] = np.maximum(np.minimum(tokens, enqueued) - served, 0.0) / bdp
    out[:, BUFFER] = np.log2(core.env("buffer_bytes") / bdp)
    out[:, LARGEST_JITTER] = core.flow("jitter_s").max(axis=1) / rtt_s.min(axis=1)
    out[:, BDP_SEGMENTS] = np.log2(bdp / core.env("mss_bytes"))
    out[:, SHARE_OVER] = core.elapsed / core.episode_steps
    flows = np.empty((B, N, N_FLOW))
    flows[:, :, :N_OBSERVATION] = core.observations()
    flows[:, :, TRUE_RATE] = np.log2(core.flow("rate_Bps") / link_rate[:, None])
    flows[:, :, TRUE_C_L] = np.log2(core.flow("C_L_Bps") / link_rate[:, None])
    out[:, N_PATH:] = flows.reshape(B, -1)
    low, high = network_limits(N)
    seen: np.ndarray = np.clip(out, low, high).astype(np.float32)
    return seen


def network_limits(n_flows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest values of the observation, float32."""
    elements = network_elements(n_flows)
    return np.array([e.low for e in elements], np.float32), np.array([e.high for e in elements], np.float32)
