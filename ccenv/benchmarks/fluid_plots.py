"""Figures in the form of [BBR-fluid]: variables (Fig. 2), traces (Figs. 4, 5, 11, 12), metrics (Figs. 6-10, 13-17), phases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.figure import finish, panels
from ccenv.engine.fluid.analysis.convergence import Portrait
from ccenv.engine.fluid.simulate import Run
from ccenv.network.metrics.table import FLUID_METRICS, METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {"bbr1": "BBRv1", "bbr2": "BBRv2", "reno": "Reno", "cubic": "CUBIC"}


def mix_label(mix: str) -> str:
    """Return a mix as people write it, e.g. `BBRv1/Reno`."""
    return "/".join(LABELS[part] for part in mix.split("/"))


def trace_figure(runs: Sequence[Run]) -> Figure:
    """Draw the traces of one or several runs, a column each, normalised as in Figs. 4 and 5.

    Sending rate in percent of the first link's rate, its queue in percent of its buffer and loss in percent of arrivals,
    RTT as excess over the propagation RTT, window in percent of the path BDP.
    """
    figure, axes = panels(4, len(runs), (5.0 * len(runs), 8.0))
    axes = axes.reshape(4, len(runs))
    for column, run in enumerate(runs):
        _require_trace(run)
        link, t = run.scenario.links[0], run.time_s
        buffer = link.buffer_bytes(run.scenario.mss_bytes)
        for i, flow in enumerate(run.scenario.flows):
            d = 2e-3 * (flow.access_delay_ms + sum(run.scenario.links[k].delay_ms for k in run.scenario.path_links(flow)))
            style = {"linewidth": 0.8, "label": f"{LABELS[flow.cca]} {i + 1}"}
            axes[0, column].plot(t, 100 * run.flow("x_Bps")[:, i] / link.capacity_Bps, **style)
            axes[2, column].plot(t, 100 * (run.flow("tau_s")[:, i] / d - 1), **style)
            axes[3, column].plot(t, 100 * run.flow("window_bytes")[:, i] / (link.capacity_Bps * d), **style)
        axes[1, column].plot(t, 100 * run.link("queue_bytes")[:, 0] / buffer, linewidth=0.8, label="queue")
        axes[1, column].plot(t, 100 * run.link("loss")[:, 0], linewidth=0.8, label="loss")
        axes[0, column].set_title(run.scenario.title, fontsize="medium")
        _finish(axes[:, column], ("rate [% of C]", "queue, loss [%]", "excess RTT [%]", "window [% of BDP]"))
    return figure


def variables_figure(run: Run, flow: int = 0) -> Figure:
    """Draw one BBR flow's variables over time as in Fig. 2: rates, inflight and its bounds, modes.

    Raises InputError for a run without trace or a flow that is not there.
    """
    _require_trace(run)
    if not 0 <= flow < len(run.scenario.flows):
        raise InputError(f"flow must be in 0..{len(run.scenario.flows) - 1} (got {flow})")
    figure, (rates, volumes, modes) = panels(3, 1, (8.0, 6.9))
    t, c = run.time_s, run.scenario.links[0].capacity_Bps
    bdp = run.flow("x_btl_Bps")[:, flow] * run.flow("tau_min_s")[:, flow]
    for name, label in (("x_Bps", "x"), ("x_btl_Bps", "x_btl"), ("x_max_Bps", "x_max"), ("x_dlv_Bps", "x_dlv")):
        rates.plot(t, 100 * run.flow(name)[:, flow] / c, linewidth=0.9, label=label)
    bounds = [("inflight_bytes", "v"), ("window_bytes", "window")]
    if run.scenario.flows[flow].cca == "bbr2":
        bounds += [("w_hi_bytes", "w_hi"), ("w_lo_bytes", "w_lo")]
    for name, label in bounds:
        volumes.plot(t, run.flow(name)[:, flow] / bdp, linewidth=0.9, label=label)
    for offset, (name, label) in enumerate((("m_prt", "ProbeRTT"), ("m_dwn", "m_dwn"), ("m_crs", "m_crs"))):
        modes.plot(t, 1.5 * offset + run.flow(name)[:, flow], linewidth=0.9, label=label)
    modes.set_yticks([])
    rates.set_title(run.scenario.title, fontsize="medium")
    _finish((rates, volumes, modes), ("rate [% of C]", "volume [estimated BDP]", "modes (0 or 1)"))
    return figure


def metric_figure(cells: Sequence[dict[str, Any]], metric: str, packets: Sequence[dict[str, Any]] = ()) -> Figure:
    """Draw one of FLUID_METRICS over the buffer size, a panel per discipline and a line per mix (Figs. 6-10, 13-17).

    With ``packets``, the same cells of the packet engine, there is a second row of panels.
    """
    if metric not in FLUID_METRICS:
        raise unknown_name("metric", metric, FLUID_METRICS)
    disciplines = list(dict.fromkeys(cell["discipline"] for cell in cells))
    rows = [("fluid model", cells)] + ([("packet engine", packets)] if packets else [])
    figure, axes = panels(len(rows), len(disciplines), (5.5 * len(disciplines), 3.4 * len(rows)))
    for ax, ((engine, engine_cells), discipline) in zip(axes, product(rows, disciplines), strict=True):
        for k, mix in enumerate(dict.fromkeys(cell["mix"] for cell in cells)):
            chosen = sorted(
                (c["buffer_bdp"], c[metric]) for c in engine_cells if (c["discipline"], c["mix"]) == (discipline, mix)
            )
            ax.plot(*zip(*chosen, strict=True), marker="osD^v<>Pp"[k % 9], markersize=4, linewidth=1, label=mix_label(mix))
        ax.set_title(f"{discipline}, {engine}" if packets else discipline, fontsize="medium")
        finish(ax, "buffer [BDP of the bottleneck]", METRICS[metric].axis)
    top = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(0.0, top)
    axes[len(disciplines) - 1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    return figure


def phase_figure(portrait: Portrait) -> Figure:
    """Draw a phase portrait: directions, trajectories from circles on, the equilibrium as a star."""
    figure, (ax,) = panels(1, 1, (6.0, 5.0))
    x_span, y_span = np.ptp(portrait.grid_x), np.ptp(portrait.grid_y)
    u, v = portrait.speed_x / x_span, portrait.speed_y / y_span
    length = np.hypot(u, v)
    length[length == 0] = 1.0
    ax.quiver(portrait.grid_x, portrait.grid_y, u / length, v / length, np.log10(length), cmap="Greys", alpha=0.7, pivot="mid")
    for line in portrait.trajectories:
        ax.plot(line[:, 0], line[:, 1], linewidth=1.2)
        ax.plot(*line[0], "o", color="black", markersize=3)
    ax.plot(*portrait.rest, "*", color="red", markersize=12, label="equilibrium")
    ax.set_title(f"{LABELS[portrait.model]}, reduced model", fontsize="medium")
    ax.set(xlabel=portrait.labels[0], ylabel=portrait.labels[1])
    ax.legend(loc="upper right", fontsize="small")
    return figure


def _finish(axes: Iterable[Axes], labels: Sequence[str]) -> None:
    for ax, label in zip(axes, labels, strict=True):
        finish(ax, y=label)
        if len(ax.get_legend_handles_labels()[0]) <= 10:
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="x-small", frameon=False)
    ax.set_xlabel("time [s]")


def _require_trace(run: Run) -> None:
    if not len(run.time_s):
        raise InputError("the run has no trace: simulate it with trace_interval_s above 0")
