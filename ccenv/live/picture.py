"""The picture of a live run beside the simulated one: throughput of each flow and the queue, over time."""

from __future__ import annotations

import os

from ccenv.base.files import write_atomic
from ccenv.live.beside import Simulated
from ccenv.live.result import LiveResult
from ccenv.network.path import MBPS_IN_BPS
from ccenv.network.figure import picture, require_picture
from ccenv.simulation.figure import thin


def plot_beside(path: str | os.PathLike[str], live: LiveResult, simulated: Simulated) -> None:
    """Draw a live run and the simulated one into a file.

    Raises:
        InputError: unless the file ends in ``.png`` or ``.svg``.
    """
    from matplotlib.figure import Figure

    target = require_picture(path)
    run, scenario = live.run, live.scenario
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    rate, queue = figure.subplots(2, 1, sharex=True)
    for index, name in enumerate(live.names()):
        line = rate.plot(*thin(run.time_s[1:], run.throughput_Bps()[:, index] / MBPS_IN_BPS), label=f"{name}, live", linewidth=1)
        shown = thin(simulated.time_s, simulated.rates_mbps[:, index])
        rate.plot(*shown, label=f"{name}, simulated", color=line[0].get_color(), linestyle="--", linewidth=1)
    queue.plot(*thin(run.time_s, run.link_log["queue_bytes"][:, 0] / scenario.mss_bytes), label="live", linewidth=1)
    queue.plot(*thin(simulated.time_s, simulated.queue_packets), label="simulated", linestyle="--", linewidth=1)
    for axis, label in ((rate, "throughput (Mbit/s)"), (queue, "queue (packets)")):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(loc="upper right", fontsize="small")
    queue.set_xlabel("time (s)")
    figure.suptitle(
        f"{scenario.name}: Linux {live.header['kernel'].partition('-')[0]} beside the {simulated.summary['engine']} engine"
    )
    write_atomic(target, picture(figure, target.suffix))
