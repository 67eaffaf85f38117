"""The picture of a comparison: rate, queue and loss over time, one colour per sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ccenv.comparison.table import Row, Setting
from ccenv.network.path import MBPS_IN_BPS
from ccenv.network.plots import SUFFIXES
from ccenv.simulation import Result
from ccenv.simulation.picture import thin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALLOWED = (*SUFFIXES, ".pdf")


def draw(setting: Setting, rows: Sequence[Row], results: Sequence[Result | None]) -> Figure:
    """Draw the runs of all senders."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 8, "pdf.fonttype": 42}):
        figure = Figure(figsize=(7, 5.5), layout="constrained")
        rate, queue, lost = figure.subplots(3, 1, sharex=True)
        for row, result in zip(rows, results, strict=True):
            if result is None:
                continue
            own = slice(0, setting.flows)
            time_s, log = result.time_s, result.flow_log
            rates_mbps = result.throughput_Bps()[:, own].sum(axis=1) / MBPS_IN_BPS
            rate.plot(*thin(time_s[1:], rates_mbps), label=row.sender, linewidth=1)
            queue.plot(*thin(time_s, 1e3 * result.link_log["queue_bytes"][:, 0] / setting.rate_Bps), linewidth=1)
            dropped = (log["dropped_bytes"] + log["random_lost_bytes"])[:, own].sum(axis=1)
            lost.plot(*thin(time_s, dropped / result.scenario.mss_bytes), linewidth=1)
        rate.axhline(setting.rate_Bps / MBPS_IN_BPS, color="black", linewidth=0.6, linestyle=":")
        labels = ("throughput (Mbit/s)", "queue (ms)", "lost so far (packets)")
        for axis, label in zip((rate, queue, lost), labels, strict=True):
            axis.set_ylabel(label)
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
        lost.set_xlim(0, setting.duration_s if np.isfinite(setting.duration_s) else None)
        lost.set_xlabel("time (s)")
        if any(result is not None for result in results):
            rate.legend(loc="lower right", fontsize="small", ncols=min(4, len(rows)))
        figure.suptitle(str(setting))
    return figure
