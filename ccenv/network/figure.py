"""Plots of a trace: cumulative curves, queue, rates, beliefs. Drawn without a display and without pyplot's global state."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.figure import DPI, finish, panels, save
from ccenv.network.path import MBPS_IN_BPS
from ccenv.network.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PAGE_PX = (500, 850)  # narrow enough that text stays readable on a phone
_KILO, _MEGA = 1e3, 1e6
_MAX_RATE_SHOWN = 3.0  # in units of the largest link rate: beliefs start at infinity


def plot_trace(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Plot a trace into a ``.png`` or ``.svg``; equal traces make equal files.

    Raises InputError for another ending; CcenvError if the file cannot be written.
    """
    save(build_figure(trace, *_PAGE_PX), path, 1.5 * DPI)


def draw_trace(trace: Trace, width_px: int = 900, height_px: int = 800) -> np.ndarray:
    """Draw a trace into an image (height_px, width_px, 3) of uint8 RGB, for ``render_mode="rgb_array"``.

    Raises InputError for less than 480 x 400 pixels.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if width_px < 480 or height_px < 400:
        raise InputError(f"image size {width_px} x {height_px}; at least 480 x 400 is needed")
    canvas: Any = FigureCanvasAgg(build_figure(trace, width_px, height_px))
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3].copy()


def build_figure(trace: Trace, width_px: int = 900, height_px: int = 800) -> Figure:
    """Build the figure: panels over one time axis, with beliefs only if the trace has some about the link rate."""
    drawers = [_curves, _queue, _rates] + ([_beliefs] if {"C_L", "C_U"} & set(trace.beliefs) else [])
    figure, axes = panels(len(drawers), 1, (width_px / DPI, height_px / DPI), sharex=True)
    for draw, ax in zip(drawers, axes, strict=True):
        draw(trace, ax)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        finish(ax, loc="lower left", bbox_to_anchor=(0.0, 0.97), ncols=4, frameon=False, columnspacing=1.0)
    axes[-1].set_xlabel("time (s)")
    axes[-1].set_xlim(0.0, trace.times_s[-1])
    header = trace.header
    senders = ", ".join(dict.fromkeys(header.senders))
    figure.suptitle(f"{senders} on {header.model} against {header.adversary}", fontsize="medium")
    return figure


def _curves(trace: Trace, ax: Axes) -> None:
    """Cumulative curves of all flows together, relative to row 0."""
    start = float(trace.S[0].sum())
    for values, label, style in (
        (trace.A.sum(axis=1), "A sent", "-"),
        (trace.E.sum(axis=1), "E entered", "--"),
        (trace.G, "G tokens", ":"),
        (trace.S.sum(axis=1), "S delivered", "-"),
    ):
        ax.plot(trace.times_s, (values - start) / _MEGA, style, label=label, linewidth=1.2)
    ax.set_ylabel("bytes (MB)")


def _queue(trace: Trace, ax: Axes) -> None:
    """Bytes that wait for the link, bytes that the delay element holds, the buffer, and losses."""
    enqueued = trace.E.sum(axis=1)
    held = np.maximum(0.0, np.minimum(trace.G, enqueued) - trace.S.sum(axis=1))
    ax.plot(trace.times_s, trace.queue_bytes / _KILO, label="queue")
    ax.plot(trace.times_s, held / _KILO, label="held by jitter", linewidth=0.9)
    lost = np.flatnonzero(np.diff(trace.L.sum(axis=1)) > 0) + 1
    if len(lost):
        ax.plot(trace.times_s[lost], trace.queue_bytes[lost] / _KILO, "rx", label="loss", markersize=4)
    if np.isfinite(trace.header.path.buffer_bytes):
        ax.axhline(trace.header.path.buffer_bytes / _KILO, color="black", linewidth=0.8, linestyle=":", label="buffer")
    ax.set_ylabel("bytes (kB)")


def _rates(trace: Trace, ax: Axes) -> None:
    """Each flow's sending rate per step and its delivery rate over the last Rm."""
    dt_s = trace.header.dt_s
    for i, steps in enumerate(trace.grid.rtt_steps):
        sent = np.diff(trace.A[:, i]) / dt_s
        (line,) = ax.step(trace.times_s[1:], sent / MBPS_IN_BPS, where="pre", linewidth=0.7, alpha=0.6, label=f"{i} sends")
        window = min(steps, trace.n_steps)
        delivered = (trace.S[window:, i] - trace.S[:-window, i]) / (window * dt_s)
        ax.plot(trace.times_s[window:], delivered / MBPS_IN_BPS, color=line.get_color(), label=f"{i} delivers")
    _link_rate(trace, ax)
    ax.set_ylabel("rate (Mbit/s)")


def _beliefs(trace: Trace, ax: Axes) -> None:
    """Bounds on the link rate that each flow's observations prove."""
    ceiling = _MAX_RATE_SHOWN * float(trace.link_rate_Bps.max())
    for i in range(trace.n_flows):
        for name, style in (("C_L", "-"), ("C_U", "--")):
            if name in trace.beliefs:
                values = np.minimum(trace.beliefs[name][:, i], ceiling)
                ax.plot(trace.times_s, values / MBPS_IN_BPS, style, color=f"C{i % 10}", label=f"{i} {name}", linewidth=1.1)
    _link_rate(trace, ax)
    ax.set_ylabel("bounds (Mbit/s)")


def _link_rate(trace: Trace, ax: Axes) -> None:
    rates_mbps = trace.link_rate_Bps[1:] / MBPS_IN_BPS
    ax.step(trace.times_s[1:], rates_mbps, where="pre", color="black", linewidth=0.8, label="link")
