"""The Network-v0 observation: the true state of the path, then each flow's beliefs and true rate."""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.network_observation import FLOW_ELEMENTS, PATH_ELEMENTS
from ccenv.engine.compiled.observation import Element
from ccenv.envs.core import Core


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
    path = np.stack(
        [
            np.maximum(enqueued - tokens, 0.0) / bdp,
            np.maximum(tokens - enqueued, 0.0) / bdp,
            np.maximum(np.minimum(tokens, enqueued) - served, 0.0) / bdp,
            np.log2(core.env("buffer_bytes") / bdp),
            core.flow("jitter_s").max(axis=1) / rtt_s.min(axis=1),
            np.log2(bdp / core.env("mss_bytes")),
            core.elapsed / core.episode_steps,
        ],
        axis=1,
    )
    true = np.stack([np.log2(core.flow(name) / link_rate[:, None]) for name in ("rate_Bps", "C_L_Bps")], axis=2)
    flows = np.concatenate([core.observations(), true], axis=2)
    low, high = network_limits(N)
    seen: np.ndarray = np.clip(np.concatenate([path, flows.reshape(B, -1)], axis=1), low, high).astype(np.float32)
    return seen


def network_limits(n_flows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest values of the observation, float32."""
    elements = network_elements(n_flows)
    return np.array([e.low for e in elements], np.float32), np.array([e.high for e in elements], np.float32)
