"""The picture of a run: rate, window, RTT, queue and retransmissions over time."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ccenv.files import write_atomic
from ccenv.network.path import MBPS_IN_BPS
from ccenv.network.plots import picture, require_picture
from ccenv.simulation.scenario import Scenario

POINTS = 600  # per curve; a longer series is averaged


def plot_run(
    path: str | os.PathLike[str], scenario: Scenario, names: Sequence[str], flow_log: np.ndarray, link_log: np.ndarray
) -> None:
    """Draw a run into a file; equal runs make equal files.

    Args:
        path: a .png or .svg file.
        scenario: what was run.
        names: of the flows.
        flow_log: as in ``ccenv.simulation.result.Result``.
        link_log: likewise.

    Raises:
        InputError: unless the file ends in ``.png`` or ``.svg``.
    """
    from matplotlib.figure import Figure

    target = require_picture(path)
    mss_bytes, time_s = scenario.mss_bytes, np.arange(len(flow_log)) * scenario.log_s
    rates_mbps = np.diff(flow_log["goodput_bytes"], axis=0) / scenario.log_s / MBPS_IN_BPS
    figure = Figure(figsize=(9, 11), layout="constrained")
    rate, window, rtt, queue, resent = figure.subplots(5, 1, sharex=True)
    for index, name in enumerate(names):
        rate.plot(*thin(time_s[1:], rates_mbps[:, index]), label=name, linewidth=1)
        window.plot(*thin(time_s, flow_log["cwnd_bytes"][:, index] / mss_bytes), linewidth=1)
        seen = flow_log["rtt_s"][:, index] > 0
        rtt.plot(*thin(time_s[seen], 1e3 * flow_log["rtt_s"][seen, index]), linewidth=1)
        resent.plot(*thin(time_s, flow_log["resent_bytes"][:, index] / mss_bytes), linewidth=1)
    for index, link in enumerate(scenario.links):
        queue.plot(*thin(time_s, link_log["queue_bytes"][:, index] / mss_bytes), label=link.name, linewidth=1)
    rate.legend(loc="upper right", fontsize="small")
    queue.legend(loc="upper right", fontsize="small")
    labels = ("throughput (Mbit/s)", "window (packets)", "RTT (ms)", "queue (packets)", "retransmitted (packets)")
    for axis, label in zip((rate, window, rtt, queue, resent), labels, strict=True):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    resent.set_xlabel("time (s)")
    figure.suptitle(scenario.name)
    write_atomic(target, picture(figure, target.suffix))


def thin(time_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average a series down to at most POINTS points."""
    group = -(-len(values) // POINTS)
    if group <= 1:
        return time_s, values
    whole = len(values) // group * group
    return time_s[:whole].reshape(-1, group).mean(axis=1), values[:whole].reshape(-1, group).mean(axis=1)
