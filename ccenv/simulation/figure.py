"""The figure of a run: rate, window, RTT, queue, retransmissions and applications over time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ccenv.base.files import write_atomic
from ccenv.network.figure import picture, require_picture
from ccenv.network.metrics.packet import AppRun
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 600  # per curve; a longer series is averaged


def plot_run(
    path: str | os.PathLike[str],
    scenario: Scenario,
    names: Sequence[str],
    flow_log: np.ndarray,
    link_log: np.ndarray,
    applications: Sequence[AppRun] = (),
) -> None:
    """Draw a run into a .png or .svg file; equal runs make equal files. Logs are those of ``ccenv.simulation.result.Result``.

    Each application adds a panel: bitrate and buffer of a video, delays of a call's frames, times of a page's visits.

    Raises:
        InputError: unless the file ends in ``.png`` or ``.svg``.
    """
    from matplotlib.figure import Figure

    target = require_picture(path)
    mss_bytes, time_s = scenario.mss_bytes, np.arange(len(flow_log)) * scenario.log_s
    rates_mbps = np.diff(flow_log["goodput_bytes"], axis=0) / scenario.log_s / MBPS_IN_BPS
    rows = 5 + len(applications)
    figure = Figure(figsize=(9, 2.2 * rows), layout="constrained")
    rate, window, rtt, queue, resent, *further = figure.subplots(rows, 1, sharex=True)
    for index, name in enumerate(names):
        rate.plot(*thin(time_s[1:], rates_mbps[:, index]), label=name, linewidth=1)
        window.plot(*thin(time_s, flow_log["cwnd_bytes"][:, index] / scenario.mss_of(index)), linewidth=1)
        seen = flow_log["rtt_s"][:, index] > 0
        rtt.plot(*thin(time_s[seen], 1e3 * flow_log["rtt_s"][seen, index]), linewidth=1)
        resent.plot(*thin(time_s, flow_log["resent_bytes"][:, index] / scenario.mss_of(index)), linewidth=1)
    for index, link in enumerate(scenario.links):
        queue.plot(*thin(time_s, link_log["queue_bytes"][:, index] / mss_bytes), label=link.name, linewidth=1)
    rate.legend(loc="upper right", fontsize="small")
    queue.legend(loc="upper right", fontsize="small")
    labels = ("throughput (Mbit/s)", "window (packets)", "RTT (ms)", "queue (packets)", "retransmitted (packets)")
    for axis, label in zip((rate, window, rtt, queue, resent), labels, strict=True):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    for axis, application in zip(further, applications, strict=True):
        _application(axis, application)
    (further or [resent])[-1].set_xlabel("time (s)")
    figure.suptitle(scenario.name)
    write_atomic(target, picture(figure, target.suffix))


def _application(axis: Axes, application: AppRun) -> None:
    for name, rows in application.series.items():
        data = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        if application.kind == "video" and len(data):
            axis.step(data[:, 0], data[:, 2], where="post", linewidth=1, label="bitrate (Mbit/s)")
            axis.plot(data[:, 0], data[:, 1], linewidth=1, label="buffer (s)")
        elif len(data):
            axis.plot(*thin(data[:, 0], data[:, 1]), ".-", markersize=3, linewidth=0.8, label=f"{name.removesuffix('_s')} (s)")
    axis.set_ylabel(f"{application.kind} {application.name}")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper right", fontsize="small")


def thin(time_s: np.ndarray, values: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Average a series down to at most ``points`` points."""
    group = -(-len(values) // points)
    if group <= 1:
        return time_s, values
    covered = len(values) // group * group
    return time_s[:covered].reshape(-1, group).mean(axis=1), values[:covered].reshape(-1, group).mean(axis=1)
