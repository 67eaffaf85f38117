"""Metrics of applications: what the pages, videos and calls of a run were worth, over the whole run."""

from __future__ import annotations

from collections.abc import Callable

from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.metrics.packet_window import RunWindow

NAMES = (
    *("page_load_s", "page_load_max_s"),
    *("video_bitrate_mbps", "video_stall_s", "video_startup_s", "video_switches", "video_qoe"),
    *("call_bitrate_mbps", "call_delay_mean_s", "call_delay_p95_s", "call_on_time"),
)
"""Values of applications that are metrics."""


def quality(name: str) -> Callable[[RunWindow], float]:
    """Return the metric of a value: the mean over the applications of the window's flows that have it.

    Reference: ``ccenv.simulation.applications.play`` defines each value and names its source.
    """

    def measure(window: RunWindow) -> float:
        flows = set(window.flows)
        found = [app.values[name] for app in window.run.applications if set(app.flows) <= flows and name in app.values]
        return sum(found) / len(found) if found else UNDEFINED

    measure.__doc__ = f"Return {name} of the applications of these flows, the mean over them (``ccenv.simulation.applications.play``)."
    return measure
