"""Frontier of fairness for ever: the least RTT at which a ratio is bounded; ``python docs/tables/fairness.py`` measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Rows = list[dict[str, str]]
DOCS = Path(__file__).parents[1]
RECORD, IMAGE = DOCS / "data" / "fairness-frontier.json", DOCS / "images" / "fairness-frontier.svg"
JITTERS, RATIOS, SHARES = (1.0, 0.25, 0.125), (1.5, 2.0, 3.0, 4.0, 6.0), (10.0, 100.0, 1000.0)
UTILISATIONS, GAIN = (0.35, 0.5, 0.65), 1e-4
MARKERS, LINES = ("o", "s", "^"), ("-", "--", ":")


def measure() -> list[dict[str, Any]]:
    """Find the design of least RTT at every point; tables in floats, which a proof rounds and asks."""
    from ccenv.proofs.theorems.fairness.design import Design, search_design

    points = [(jitter, ratio, shares, 0.5) for jitter in JITTERS for ratio in RATIOS for shares in SHARES]
    points += [(jitter, 3.0, 100.0, utilisation) for jitter in JITTERS for utilisation in UTILISATIONS if utilisation != 0.5]
    rows = []
    for jitter, ratio, shares, utilisation in points:
        design = Design(fairness=ratio, jitter=jitter, shares=shares, utilisation=utilisation, gain=GAIN)
        shape = search_design(design)
        rows.append({**design.model_dump(), "rtt_rtts": None if shape is None else round(shape.rtt_rtts, 3)})
    return rows


def frontier(record: list[dict[str, Any]]) -> Rows:
    """Return the least RTT for each D and ratio, a column per range of shares."""
    return [
        {"D, Rm": f"{jitter:g}", "ratio": f"{ratio:g}"}
        | {f"shares {shares:g}": _format(_rtt(record, jitter, ratio, shares, 0.5)) for shares in SHARES}
        for jitter in JITTERS
        for ratio in RATIOS
    ]


def utilisations(record: list[dict[str, Any]]) -> Rows:
    """Return the least RTT at ratio 3 and a range of 100, a column per utilisation."""
    return [
        {"D, Rm": f"{jitter:g}"}
        | {f"kappa {kappa:g}": _format(_rtt(record, jitter, 3.0, 100.0, kappa)) for kappa in UTILISATIONS}
        for jitter in JITTERS
    ]


def merit(record: list[dict[str, Any]]) -> Rows:
    """Return mu+/mu- of [Starvation] s.6.3 at the RTT that ever_delay needs for a range of 100: eq. 1 and 2 beside the proof."""
    rows = []
    for jitter in JITTERS:
        for ratio in RATIOS[1:4]:
            rtt = _rtt(record, jitter, ratio, 100.0, 0.5)
            if rtt is None:
                continue
            rows.append(
                {
                    "D, Rm": f"{jitter:g}",
                    "s": f"{ratio:g}",
                    "Rmax, Rm": _format(rtt),
                    "ever_delay, proved for any number of flows": "100",
                    "Vegas, FAST, Copa: (Rmax - Rm)(1 - 1/s)/D (eq. 1)": f"{(rtt - 1) * (1 - 1 / ratio) / jitter:.3g}",
                    "exponential map: s^((Rmax - Rm - D)/D) (eq. 2)": f"{ratio ** ((rtt - 1 - jitter) / jitter):.2g}",
                }
            )
    return rows


def picture(record: list[dict[str, Any]]) -> bytes:
    """Draw the least RTT over the ratio: a line per D and range."""
    from matplotlib.figure import Figure

    from ccenv.network.figure import picture as render

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for jitter, marker in zip(JITTERS, MARKERS, strict=True):
        for shares, line in zip(SHARES, LINES, strict=True):
            points = [(ratio, rtt) for ratio in RATIOS if (rtt := _rtt(record, jitter, ratio, shares, 0.5)) is not None]
            label = f"D = {jitter:g} Rm, shares {shares:g}"
            axes.plot(*zip(*points, strict=True), line, marker=marker, color=f"C{JITTERS.index(jitter)}", label=label)
    axes.set_yscale("log")
    axes.set_xlabel("largest ratio of two rates, for ever")
    axes.set_ylabel("largest RTT, Rm")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return render(figure, ".svg")


def _rtt(record: list[dict[str, Any]], jitter: float, ratio: float, shares: float, utilisation: float) -> float | None:
    point = {"jitter": jitter, "fairness": ratio, "shares": shares, "utilisation": utilisation}
    return next(row["rtt_rtts"] for row in record if row.items() >= point.items())


def _format(rtt: float | None) -> str:
    return "none" if rtt is None else f"{rtt:.2f}"


if __name__ == "__main__":
    from ccenv.base.files import json_bytes, write_atomic

    record = measure()
    write_atomic(RECORD, json_bytes(record))
    write_atomic(IMAGE, picture(record))
