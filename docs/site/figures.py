"""Draw the pictures of the explanation pages and of the README: python docs/site/figures.py. Equal runs make equal files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.base.figure import panels, save
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import MBPS_IN_BPS, make_path
from ccenv.network.path import Path as NetworkPath
from ccenv.network.trace import Trace

IMAGES = Path(__file__).parents[1] / "images"
SENDERS = ("copa", "bbr1", "reno", "cc_probe_drain")
README_PATH = make_path(link_rate_mbps=48, rtt_ms=40, jitter_ms=40, buffer_bdp=1)
README_NETWORK = "one_packet:every_ms=1000"
README_RTTS = 2000
DPI = 160  # figures of WIDTH_IN keep letters of 9 points readable on a phone
WIDTH_IN = 4.6
CALM, HARM, GREY = "#0b6e8f", "#c0392b", "#7f8c8d"


def played(sender: str, adversary: str, path: NetworkPath, rtts: int, model: str = "ccac") -> Trace:
    """Return a recorded run of one flow."""
    engine = CurveEngine([path], model=model, senders=[make_sender(sender)], adversary=make_adversary(adversary), record=True)
    engine.advance(rtts * engine.steps_per_rtt)
    return engine.trace(0)


def readme_run(sender: str, adversary: str) -> Trace:
    """Return a run of the README's example."""
    return played(sender, adversary, README_PATH, README_RTTS, "cbr_delay")


def delivered_mbps(trace: Trace, rtts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the times and the rate at which bytes were delivered over the last so many Rm."""
    steps = rtts * trace.grid.rtt_steps[0]
    rate_Bps = (trace.S[steps:, 0] - trace.S[:-steps, 0]) / (steps * trace.header.dt_s)
    return trace.times_s[steps:], rate_Bps / MBPS_IN_BPS


def utilisation(trace: Trace) -> float:
    """Return what was delivered in the second half of a run, over what the link could carry."""
    half = trace.n_steps // 2
    return float((trace.S[-1, 0] - trace.S[half, 0]) / (trace.link_rate_Bps[half + 1 :].sum() * trace.header.dt_s))


def starvation() -> Figure:
    """Four CCAs on the README's link: a network that means no harm, and one that lets bytes out early once a second."""
    figure, axes = panels(2, 2, (WIDTH_IN, 3.9), sharex=True, sharey=True)
    for ax, name in zip(axes, SENDERS, strict=True):
        calm, harmed = (readme_run(name, network) for network in ("kind", README_NETWORK))
        for trace, colour, style in ((calm, CALM, "-"), (harmed, HARM, "--")):
            ax.plot(*delivered_mbps(trace, 25), style, color=colour, linewidth=1.2)
        ax.axhline(README_PATH.link_rate_Bps / MBPS_IN_BPS, color=GREY, linestyle=":", linewidth=1)
        ax.set_title(f"{name}\n{utilisation(calm):.0%}, and {utilisation(harmed):.0%}", fontsize=10)
        ax.set_ylim(0, 56)
    labels = ("delivers at once", "early once a second")
    figure.legend(figure.axes[0].lines[:2], labels, loc="outside upper center", ncols=2, fontsize=9, frameon=False)
    figure.supxlabel("time (s)", fontsize=10)
    figure.supylabel("delivered (Mbit/s)", fontsize=10)
    return figure


def legal_network() -> Figure:
    """What one flow sends, and the band in which the curve of delivered bytes may lie."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=4)
    figure, (left, right) = panels(2, 1, (WIDTH_IN, 5.2), sharex=True)
    runs = {name: played("constant:rate_mbps=9", name, path, 12) for name in ("kind", "slowest", "square")}
    trace = runs["kind"]
    times_ms = trace.times_s * 1e3
    left.plot(times_ms, trace.A[:, 0] / 1e3, color="black", label="A: sent")
    low, high = (runs[name].S[:, 0] / 1e3 for name in ("slowest", "kind"))
    left.fill_between(times_ms, low, high, color=CALM, alpha=0.2, label="S: all that is legal (D = Rm)")
    left.plot(times_ms, runs["square"].S[:, 0] / 1e3, "--", color=HARM, label="S: one legal choice")
    left.set(ylabel="bytes (kB)")
    left.legend(fontsize=9, frameon=False)
    for name, colour, style in (("kind", CALM, "-"), ("slowest", GREY, ":"), ("square", HARM, "--")):
        run = runs[name]
        seen = np.interp(run.S[1:, 0], run.A[:, 0], run.times_s)
        right.plot(times_ms[1:], 40 + (run.times_s[1:] - seen) * 1e3, style, color=colour, label=name)
    right.set(xlabel="time (ms)", ylabel="RTT (ms)", ylim=(30, 100))
    right.legend(fontsize=9, frameon=False, loc="upper center", ncols=3)
    return figure


def beliefs() -> Figure:
    """Bounds on the link rate that a history proves: they close in on the truth from both sides."""
    path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=20, buffer_bdp=4)
    figure, axes = panels(2, 1, (WIDTH_IN, 5), sharex=True, sharey=True)
    for ax, network in zip(axes, ("kind", "square"), strict=True):
        trace = played("cc_probe_drain", network, path, 40)
        C_L, C_U = (trace.beliefs[name][:, 0] / MBPS_IN_BPS for name in ("C_L", "C_U"))
        ax.fill_between(trace.times_s, C_L, np.minimum(C_U, 80), color=CALM, alpha=0.2, label="what the history leaves open")
        ax.plot(trace.times_s, C_L, color=CALM, label="C_L")
        ax.plot(trace.times_s, np.minimum(C_U, 80), color=CALM, linestyle="--", label="C_U")
        ax.axhline(24, color="black", linewidth=1, label="C")
        ax.set(title=f"network: {network}", ylabel="link rate (Mbit/s)", ylim=(0, 60))
        ax.title.set_fontsize(10)
    figure.axes[0].legend(fontsize=9, frameon=False, loc="upper right")
    ax.set_xlabel("time (s)")
    return figure


FIGURES = {"starvation": starvation, "legal-network": legal_network, "beliefs": beliefs}


def main() -> int:
    """Run the command."""
    for name, draw in FIGURES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            save(draw(), IMAGES / f"{name}.png", DPI)
            print(f"docs/images/{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
