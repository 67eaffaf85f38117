"""The picture of a run: rate, window, RTT, queue and retransmissions over time."""

from __future__ import annotations

import io
import os
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.errors import InputError
from ccenv.files import write_atomic
from ccenv.network.path import MBPS_IN_BPS

if TYPE_CHECKING:
    from ccenv.simulation.result import Result

SUFFIXES = (".png", ".svg")
POINTS = 600  # per curve; a longer series is averaged


def plot_result(result: Result, path: str | os.PathLike[str]) -> None:
    """Draw a run into a file; equal runs make equal files.

    Raises:
        InputError: unless the file ends in ``.png`` or ``.svg``.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    target = FilePath(path)
    if target.suffix not in SUFFIXES:
        raise InputError(f"picture {str(target)!r} ends in {target.suffix!r}; allowed: {', '.join(SUFFIXES)}")
    mss_bytes = result.scenario.mss_bytes
    time_s, log = result.time_s, result.flow_log
    with rc_context({"svg.hashsalt": "ccenv"}):
        figure = Figure(figsize=(9, 11), layout="constrained")
        rate, window, rtt, queue, resent = figure.subplots(5, 1, sharex=True)
        for index, name in enumerate(result.names()):
            rate.plot(*thin(time_s[1:], result.throughput_Bps()[:, index] / MBPS_IN_BPS), label=name, linewidth=1)
            window.plot(*thin(time_s, log["cwnd_bytes"][:, index] / mss_bytes), linewidth=1)
            seen = log["rtt_s"][:, index] > 0
            rtt.plot(*thin(time_s[seen], 1e3 * log["rtt_s"][seen, index]), linewidth=1)
            resent.plot(*thin(time_s, log["resent_bytes"][:, index] / mss_bytes), linewidth=1)
        for index, link in enumerate(result.scenario.links):
            queue.plot(*thin(time_s, result.link_log["queue_bytes"][:, index] / mss_bytes), label=link.name, linewidth=1)
        rate.legend(loc="upper right", fontsize="small")
        queue.legend(loc="upper right", fontsize="small")
        labels = ("throughput (Mbit/s)", "window (packets)", "RTT (ms)", "queue (packets)", "retransmitted (packets)")
        for axis, label in zip((rate, window, rtt, queue, resent), labels, strict=True):
            axis.set_ylabel(label)
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
        resent.set_xlabel("time (s)")
        figure.suptitle(result.scenario.name)
        out = io.BytesIO()
        metadata: dict[str, Any] = {"Date": None} if target.suffix == ".svg" else {"Software": None}
        figure.savefig(out, format=target.suffix[1:], dpi=100, metadata=metadata)
    write_atomic(target, out.getvalue())


def thin(time_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average a series down to at most POINTS points."""
    group = -(-len(values) // POINTS)
    if group <= 1:
        return time_s, values
    whole = len(values) // group * group
    return time_s[:whole].reshape(-1, group).mean(axis=1), values[:whole].reshape(-1, group).mean(axis=1)
