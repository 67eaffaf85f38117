"""The figure of a run: rate, window, RTT, queue, retransmissions and applications over time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ccenv.base.figure import finish, panels, save, thin
from ccenv.network.metrics.packet import AppRun
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    mss_bytes, time_s = scenario.mss_bytes, np.arange(len(flow_log)) * scenario.log_s
    rates_mbps = np.diff(flow_log["goodput_bytes"], axis=0) / scenario.log_s / MBPS_IN_BPS
    rows = 5 + len(applications)
    figure, (rate, window, rtt, queue, resent, *further) = panels(rows, 1, (9, 2.2 * rows), sharex=True)
    for index, name in enumerate(names):
        rate.plot(*thin(time_s[1:], rates_mbps[:, index]), label=name, linewidth=1)
        window.plot(*thin(time_s, flow_log["cwnd_bytes"][:, index] / scenario.mss_of(index)), linewidth=1)
        seen = flow_log["rtt_s"][:, index] > 0
        rtt.plot(*thin(time_s[seen], 1e3 * flow_log["rtt_s"][seen, index]), linewidth=1)
        resent.plot(*thin(time_s, flow_log["resent_bytes"][:, index] / scenario.mss_of(index)), linewidth=1)
    for index, link in enumerate(scenario.links):
        queue.plot(*thin(time_s, link_log["queue_bytes"][:, index] / mss_bytes), label=link.name, linewidth=1)
    labels = ("throughput (Mbit/s)", "window (packets)", "RTT (ms)", "queue (packets)", "retransmitted (packets)")
    for axis, label in zip((rate, window, rtt, queue, resent), labels, strict=True):
        finish(axis, y=label, zero=True, loc="upper right")
    for axis, application in zip(further, applications, strict=True):
        _application(axis, application)
    (further or [resent])[-1].set_xlabel("time (s)")
    figure.suptitle(scenario.name)
    save(figure, path)


def _application(axis: Axes, application: AppRun) -> None:
    for name, rows in application.series.items():
        data = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        if application.kind == "video" and len(data):
            axis.step(data[:, 0], data[:, 2], where="post", linewidth=1, label="bitrate (Mbit/s)")
            axis.plot(data[:, 0], data[:, 1], linewidth=1, label="buffer (s)")
        elif len(data):
            axis.plot(*thin(data[:, 0], data[:, 1]), ".-", markersize=3, linewidth=0.8, label=f"{name.removesuffix('_s')} (s)")
    finish(axis, y=f"{application.kind} {application.name}", zero=True, loc="upper right")
