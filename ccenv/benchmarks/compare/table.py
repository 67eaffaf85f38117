"""A comparison's network setting, its row of results per sender, and the plot of rate, queue and loss over time."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ccenv.base.figure import SUFFIXES, finish, panels, thin
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WARMUP_SHARE = 0.25  # of the run, left out of the averages
# Columns of the table: key, heading.
COLUMNS = (
    ("throughput_mbps", "throughput (Mbit/s)"),
    ("utilisation", "utilisation"),
    ("rtt_ms", "mean RTT (ms)"),
    ("queue_p95_ms", "queue, 95 % (ms)"),
    ("loss", "loss"),
    ("jain", "Jain"),
    ("share", "share of fair"),
    ("worst_utilisation", "worst case"),
    ("total_mb", "whole run: MB"),
    ("total_loss", "whole run: loss"),
)


@dataclass(frozen=True)
class Setting:
    """The network on which senders are compared.

    Attributes:
        rtt_s: propagation RTT of all flows.
        buffer_bytes: of the link, drop-tail; infinite: nothing is dropped.
        flows: of the sender that is measured.
        against: one more flow of this sender; empty: none.
        loss_rate: share of packets lost at random.
        duration_s: length of a run; its first quarter is left out of the averages.
        seed: of all random numbers; of the first run where there are several.
        seeds: runs of each sender, with this seed and the following ones.
        network: adversary that holds packets behind the link, for at most jitter_s; empty: none.
        jitter_s: D of its jitter box.
    """

    rate_Bps: float
    rtt_s: float
    buffer_bytes: float
    flows: int = 1
    against: str = ""
    loss_rate: float = 0.0
    duration_s: float = 30.0
    seed: int = 0
    network: str = ""
    jitter_s: float = 0.0
    seeds: int = 1

    @property
    def warmup_s(self) -> float:
        """Start of the run that averages leave out."""
        return WARMUP_SHARE * self.duration_s

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"warmup_s": self.warmup_s}

    def scenario(self, spec: str) -> dict[str, Any]:
        """Return the scenario (``ccenv.simulation.read_scenario``) in which a sender runs."""
        flow: dict[str, Any] = {"rtt_s": self.rtt_s, "loss_rate": self.loss_rate}
        if self.network:
            flow["jitter"] = {"kind": "adversary", "adversary": self.network, "max_s": self.jitter_s}
        flows = [{**flow, "sender": spec} for _ in range(self.flows)]
        flows += [{**flow, "sender": self.against, "name": f"against {self.against}"}] if self.against else []
        link = {"rate_Bps": self.rate_Bps, "buffer_bytes": self.buffer_bytes}
        run = {"duration_s": self.duration_s, "warmup_s": self.warmup_s, "seed": self.seed}
        return {"name": spec, "links": [link], "flows": flows, **run}

    def __str__(self) -> str:
        bdp = self.buffer_bytes / (self.rate_Bps * self.rtt_s)
        parts = [f"{self.rate_Bps / MBPS_IN_BPS:g} Mbit/s", f"{1e3 * self.rtt_s:g} ms", f"buffer {bdp:.3g} BDP"]
        parts += [f"{self.flows} flows each"] if self.flows > 1 else []
        parts += [f"against {self.against}"] if self.against else []
        parts += [f"{100 * self.loss_rate:g} % loss"] if self.loss_rate else []
        parts += [f"network {self.network}, D {1e3 * self.jitter_s:g} ms"] if self.network else []
        parts += [f"{self.duration_s:g} s (averages without the first {self.warmup_s:g} s)"]
        return ", ".join([*parts, *([f"{self.seeds} seeds"] if self.seeds > 1 else [])])


@dataclass(frozen=True)
class Row:
    """Results of one sender, after the warm-up unless stated otherwise.

    With several seeds the values are interquartile means over the runs (:mod:`ccenv.benchmarks.statistics`).

    Attributes:
        throughput_mbps: of all its flows together.
        utilisation: of the link, by all flows.
        rtt_ms: mean over its ACKs.
        queue_p95_ms: 95th percentile over time of the time that a new packet waits.
        loss: share of its packets that were lost.
        jain: Jain's index of its flows; None for one flow.
        share: its throughput per flow over the fair share of a flow; None without ``against``.
        worst_utilisation: lowest utilisation found by an attack on the legal networks of CCAC; None: not requested.
        total_mb: bytes of its flows that arrived in the whole run, in MB.
        total_loss: share of its packets that were lost in the whole run.
        metrics: further metrics by name; None: undefined.
        intervals: with several seeds, the 95 % interval of each value.
        error: why the sender failed; the other fields are then None.
    """

    sender: str
    throughput_mbps: float | None = None
    utilisation: float | None = None
    rtt_ms: float | None = None
    queue_p95_ms: float | None = None
    loss: float | None = None
    jain: float | None = None
    share: float | None = None
    worst_utilisation: float | None = None
    total_mb: float | None = None
    total_loss: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    error: str = ""

    def value(self, key: str) -> float | None:
        """Return the value of a column: a field or a further metric."""
        value: float | None = self.metrics[key] if key in self.metrics else getattr(self, key, None)
        return value

    def text(self, key: str) -> str:
        """Return a value with its interval; empty where it is undefined."""
        value, interval = self.value(key), self.intervals.get(key)
        return "" if value is None else f"{value:.4g}" + (" [{:.4g}, {:.4g}]".format(*interval) if interval else "")


def merge_rows(rows: Sequence[Row]) -> Row:
    """Merge the rows of a sender's runs: the first failed one, or estimates over all."""
    failed = [row for row in rows if row.error]
    if failed or len(rows) == 1:
        return (failed or rows)[0]
    from ccenv.benchmarks.statistics import estimate

    values: dict[str, Any] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for key in [*(key for key, _ in COLUMNS), *rows[0].metrics]:
        runs = [value for row in rows if (value := row.value(key)) is not None]
        values[key] = None
        if runs:
            estimated = estimate([runs])
            values[key] = estimated.iqm
            if len(runs) > 1:
                intervals[key] = (estimated.low, estimated.high)
    metrics = {name: values.pop(name) for name in rows[0].metrics}
    return replace(rows[0], **values, metrics=metrics, intervals=intervals)


SIZE_IN = (4.6, 6.2)  # letters of 8 points are then readable on a phone
DASHES = ("-", "--", ":", "-.")
RATE_POINTS = 120
ALLOWED = (*SUFFIXES, ".pdf")


def draw(setting: Setting, rows: Sequence[Row], results: Sequence[Result | None]) -> Figure:
    """Draw the runs of all senders."""
    from matplotlib import rc_context

    with rc_context({"font.size": 8, "pdf.fonttype": 42}):
        figure, (rate, queue, lost) = panels(3, 1, SIZE_IN, sharex=True)
        for row, result, dashes in zip(rows, results, itertools.cycle(DASHES), strict=False):
            if result is None:
                continue
            flows = slice(0, setting.flows)
            time_s, log = result.time_s, result.flow_log
            rates_mbps = result.throughput_Bps()[:, flows].sum(axis=1) / MBPS_IN_BPS
            rate.plot(*thin(time_s[1:], rates_mbps, RATE_POINTS), linestyle=dashes, label=row.sender, linewidth=1.1)
            queue.plot(
                *thin(time_s, 1e3 * result.link_log["queue_bytes"][:, 0] / setting.rate_Bps), linestyle=dashes, linewidth=1.1
            )
            dropped = (log["dropped_bytes"] + log["random_lost_bytes"])[:, flows].sum(axis=1)
            lost.plot(*thin(time_s, dropped / result.scenario.mss_bytes), linestyle=dashes, linewidth=1.1)
        rate.axhline(setting.rate_Bps / MBPS_IN_BPS, color="black", linewidth=0.6, linestyle=":")
        labels = ("throughput (Mbit/s)", "queue (ms)", "lost so far (packets)")
        for axis, label in zip((rate, queue, lost), labels, strict=True):
            finish(axis, y=label, zero=True)
            axis.axvspan(0, setting.warmup_s, color="black", alpha=0.06)  # left out of the averages
        lost.set_xlim(0, setting.duration_s if np.isfinite(setting.duration_s) else None)
        lost.set_xlabel("time (s)")
        rate.set_title(textwrap.fill(str(setting), 64), fontsize=8)
        if any(result is not None for result in results):
            figure.legend(*rate.get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(rows)), frameon=False)
    return figure
