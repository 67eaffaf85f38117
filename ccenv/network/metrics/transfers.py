"""Flow completion times of transfers that come and go, over the shortest possible: slowdown, by size."""

from __future__ import annotations

import numpy as np

from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.metrics.packet_window import RunWindow

SMALL_BYTES, LARGE_BYTES = 100e3, 1e6  # pFabric, SIGCOMM 2013, s.5: (0, 100 KB] and (10 MB, inf); here from 1 MB on


def slowdowns(window: RunWindow) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and slowdowns of the transfers that came in the window: (n,) bytes and (n,); NaN where one was not done.

    The time of a transfer is from its arrival until its sender has the last ACK; the shortest possible is Rm and the time that
    the slowest link takes for its packets.

    Reference: M. Alizadeh et al.: pFabric, SIGCOMM 2013, s.5 (normalised FCT).
    """
    sizes, found = [np.zeros(0)], [np.zeros(0)]
    mss_bytes = window.run.mss_bytes
    for index in window.flows:
        flow = window.run.flows[index]
        if flow.transfers is None:
            continue
        size_bytes, begin_s, end_s = flow.transfers.T
        inside = np.zeros(len(begin_s), np.bool_)
        for low_s, high_s in window.spans_s:
            inside |= (begin_s >= low_s) & (begin_s < high_s)
        packets = np.maximum(1.0, np.ceil(size_bytes[inside] / mss_bytes))
        sizes.append(size_bytes[inside])
        found.append((end_s[inside] - begin_s[inside]) / (flow.rtt_s + packets * mss_bytes / flow.link_Bps))
    return np.concatenate(sizes), np.concatenate(found)


def _quantile(window: RunWindow, share: float, low_bytes: float = 0.0, high_bytes: float = np.inf) -> float:
    """Return a quantile of the slowdowns of some sizes; what was not done counts as longest."""
    sizes, found = slowdowns(window)
    chosen = np.sort(np.nan_to_num(found[(sizes > low_bytes) & (sizes <= high_bytes)], nan=np.inf))
    if not len(chosen):
        return UNDEFINED
    value = float(chosen[min(len(chosen) - 1, int(np.ceil(share * len(chosen))) - 1)])
    return value if np.isfinite(value) else UNDEFINED


def fct_slowdown_p50(window: RunWindow) -> float:
    """Return the median slowdown. Reference: :func:`slowdowns`."""
    return _quantile(window, 0.5)


def fct_slowdown_p99(window: RunWindow) -> float:
    """Return the 99th percentile of the slowdown. Reference: :func:`slowdowns`."""
    return _quantile(window, 0.99)


def fct_small_p99(window: RunWindow) -> float:
    """Return the 99th percentile of the slowdown of transfers of at most 100 kB. Reference: :func:`slowdowns`."""
    return _quantile(window, 0.99, high_bytes=SMALL_BYTES)


def fct_large_p50(window: RunWindow) -> float:
    """Return the median slowdown of transfers of more than 1 MB. Reference: :func:`slowdowns`."""
    return _quantile(window, 0.5, low_bytes=LARGE_BYTES)


def fct_done_share(window: RunWindow) -> float:
    """Return the share of the transfers that came in the window and were done with the run."""
    _, found = slowdowns(window)
    return float(np.isfinite(found).mean()) if len(found) else UNDEFINED
