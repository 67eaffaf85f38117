"""The picture of a comparison: rate, queue and loss over time, one colour and dashes per sender."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ccenv.benchmarks.compare.table import Row, Setting
from ccenv.network.path import MBPS_IN_BPS
from ccenv.network.figure import SUFFIXES
from ccenv.simulation import Result
from ccenv.simulation.figure import thin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_IN = (4.6, 6.2)  # letters of 8 points are then readable on a phone
DASHES = ("-", "--", ":", "-.")
RATE_POINTS = 120
ALLOWED = (*SUFFIXES, ".pdf")


def draw(setting: Setting, rows: Sequence[Row], results: Sequence[Result | None]) -> Figure:
    """Draw the runs of all senders."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"font.size": 8, "pdf.fonttype": 42}):
        figure = Figure(figsize=SIZE_IN, layout="constrained")
        rate, queue, lost = figure.subplots(3, 1, sharex=True)
        for row, result, dashes in zip(rows, results, itertools.cycle(DASHES), strict=False):
            if result is None:
                continue
            own = slice(0, setting.flows)
            time_s, log = result.time_s, result.flow_log
            rates_mbps = result.throughput_Bps()[:, own].sum(axis=1) / MBPS_IN_BPS
            rate.plot(*thin(time_s[1:], rates_mbps, RATE_POINTS), linestyle=dashes, label=row.sender, linewidth=1.1)
            queue.plot(
                *thin(time_s, 1e3 * result.link_log["queue_bytes"][:, 0] / setting.rate_Bps), linestyle=dashes, linewidth=1.1
            )
            dropped = (log["dropped_bytes"] + log["random_lost_bytes"])[:, own].sum(axis=1)
            lost.plot(*thin(time_s, dropped / result.scenario.mss_bytes), linestyle=dashes, linewidth=1.1)
        rate.axhline(setting.rate_Bps / MBPS_IN_BPS, color="black", linewidth=0.6, linestyle=":")
        labels = ("throughput (Mbit/s)", "queue (ms)", "lost so far (packets)")
        for axis, label in zip((rate, queue, lost), labels, strict=True):
            axis.set_ylabel(label)
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
            axis.axvspan(0, setting.warmup_s, color="black", alpha=0.06)  # left out of the averages
        lost.set_xlim(0, setting.duration_s if np.isfinite(setting.duration_s) else None)
        lost.set_xlabel("time (s)")
        rate.set_title(textwrap.fill(str(setting), 64), fontsize=8)
        if any(result is not None for result in results):
            figure.legend(*rate.get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(rows)), frameon=False)
    return figure
