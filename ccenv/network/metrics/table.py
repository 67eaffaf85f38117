"""The one table of metrics: name, unit, direction, meaning, and how each is computed from a trace and from a packet run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ccenv.base.errors import InputError, unknown_name
from ccenv.network.metrics import packet, trace
from ccenv.network.metrics.packet import PacketRun, RunWindow, quality
from ccenv.network.metrics.trace import Window

Direction = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Metric:
    """One line of the table."""

    name: str
    label: str
    unit: str  # of the value, `""` for a ratio
    direction: Direction  # whether higher or lower is better; `neither` for a mere description
    meaning: str
    # computes it from a window of a trace; None: undefined there. Its docstring names the source
    of_trace: Callable[[Window], float] | None = None
    of_run: Callable[[RunWindow], float] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Return what it is computed from: ``trace``, ``packets`` or both."""
        functions = {"trace": self.of_trace, "packets": self.of_run}
        return tuple(name for name, function in functions.items() if function is not None)

    @property
    def axis(self) -> str:
        """Return the label with the unit, for axes and heads of columns."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label

    @property
    def sign(self) -> float:
        """Return 1 where higher is better and -1 where lower is better. Raises InputError where neither is."""
        if self.direction == "neither":
            raise InputError(f"metric {self.name!r} has no better or worse value: nothing can be ranked by it")
        return 1.0 if self.direction == "higher" else -1.0

    def worse(self, a: float, b: float) -> bool:
        """Tell whether a is worse than b. Raises InputError where neither direction is better."""
        return self.sign * a < self.sign * b


_ROWS: tuple[tuple[str, str, str, Direction, str], ...] = (
    ("utilisation", "utilisation", "", "higher", "bytes delivered over the bytes that the link could have carried"),
    ("throughput_mbps", "throughput", "Mbit/s", "higher",
     "mean over the flows of the new bytes per second, while the flow was to send"),
    ("queueing_delay_mean_s", "mean queueing delay", "s", "lower",
     "mean queueing plus jitter delay of the delivered bytes; per ACK in a packet run, where a packet in service does not wait"),
    ("queueing_delay_p95_s", "p95 queueing delay", "s", "lower",
     "smallest delay that 95 % of the delivered bytes do not exceed (queueing plus jitter); of ACKs in a packet run"),
    ("queueing_delay_p95_ms", "p95 queueing delay", "ms", "lower", "95th percentile of the queueing delay of the ACKs"),
    ("queueing_delay_p50_s", "median queueing delay", "s", "lower", "median of the queueing delay of the ACKs"),
    ("queueing_delay_p99_s", "p99 queueing delay", "s", "lower", "99th percentile of the queueing delay of the ACKs"),
    ("queueing_delay_p95_rtts", "p95 queueing delay", "Rm", "lower",
     "95th percentile of the queueing delay of the ACKs, over the propagation RTT"),
    ("one_way_delay_s", "one-way delay", "s", "lower", "mean time of a packet from sender to receiver"),
    ("rtt_mean_s", "mean RTT", "s", "lower", "mean round-trip time per ACK"),
    ("rtt_min_s", "smallest RTT", "s", "lower", "smallest of the newest RTT samples at the log's times"),
    ("rtt_max_s", "largest RTT", "s", "lower", "largest of the newest RTT samples at the log's times"),
    ("loss_fraction", "loss", "", "lower", "bytes lost, for congestion or not, over the bytes sent"),
    ("loss_packets_per_rtt", "loss per Rm", "packets", "lower", "mean number of packets lost per Rm"),
    ("loss_events_per_s", "loss events", "1/s", "lower", "loss events per second and flow; losses within one Rm are one event"),
    ("loss_event_rate", "loss event rate", "", "lower", "loss events over the packets sent, the p of TCP formulas"),
    ("sent_packets_per_rtt", "packets sent per Rm", "packets", "neither",
     "packets that a flow sends per Rm, retransmissions included, the mean over the flows"),
    ("rate_variation", "variation of the rate", "", "lower",
     "standard deviation over the mean of a flow's throughput in half seconds, the mean over the flows"),
    ("queue_max_bdp", "largest queue", "BDP", "lower", "largest logged queue of the first link"),
    ("queue_mean_share", "mean share of the buffer", "", "lower", "mean queue of the first link over its buffer"),
    ("jain_index", "Jain index", "", "higher",
     "(sum x)^2 / (N sum x^2) of what the N flows got: 1 if all got the same, 1/N if one got all"),
    ("fair_share", "share of the fair share", "", "neither",
     "bytes of the flows over the link's bytes divided among the flows that are there; 1 is fair"),
    ("in_range", "share in range", "", "higher", "1 where the share of the fair share is .6 to 1.5, else 0"),
    ("shortfall", "shortfall", "", "lower", "what the flows lack of their fair share: 1 - share of the fair share, at least 0"),
    ("harm", "harm", "", "lower",
     "what company costs the flows: 1 - their bytes over the bytes that the link could have carried"),
    ("fct_slowdown_p50", "median FCT slowdown", "", "lower",
     "median over the transfers that come and go of their time over the shortest possible"),
    ("fct_slowdown_p99", "p99 FCT slowdown", "", "lower", "99th percentile of the same"),
    ("fct_small_p99", "p99 FCT slowdown, small", "", "lower", "the same of transfers of at most 100 kB"),
    ("fct_large_p50", "median FCT slowdown, large", "", "lower", "median slowdown of transfers of more than 1 MB"),
    ("fct_done_share", "transfers done", "", "higher", "share of the transfers that came and were done with the run"),
    ("starvation_ratio", "largest : smallest throughput", "", "lower",
     "largest throughput over the smallest; a flow that got nothing counts as having got one segment"),
    ("s_fairness", "s of s-fairness", "", "lower", "largest ratio of throughputs over the second half of the run"),
    ("power", "power", "", "higher", "utilisation * Rm / (Rm + mean queueing delay): 1 for a full link with an empty queue"),
    ("fair_power", "fair power", "", "higher", "power times Jain's index over the flows"),
    ("least_share", "smallest : mean throughput", "", "higher",
     "smallest throughput of the flows over their mean: 1 if all got the same, 0 if one got nothing"),
    ("even_power", "even power", "", "higher", "power times the smallest throughput over the mean: 0 where a flow starves"),
    ("convergence_time_s", "convergence time", "s", "lower",
     "when the newest flow is within 20 % of an equal share of the link for one second, after its start"),
    ("time_to_90_s", "time to 90 % of the link", "s", "lower",
     "when the first flow first has 90 % of the link's rate over half a second"),
    ("time_to_40_s", "time to 40 % of the link", "s", "lower",
     "when the first flow first has 40 % of the link's rate over half a second"),
    ("settling_time_s", "settling time", "s", "lower",
     "when the first flow comes within 20 % of its mean rate of the window's last quarter, to stay a second"),
    ("open_window_share", "time with a window above 2 segments", "", "lower",
     "share of the log's times at which a flow's window is above two segments"),
    ("response_time_s", "response time", "s", "lower",
     "mean time of the finite transfers that were offered in the window and have ended"),
    ("page_load_s", "page load time", "s", "lower", "mean time of the visits of a page, from the first request to the last byte"),
    ("page_load_max_s", "longest page load", "s", "lower", "time of the slowest visit of a page"),
    ("video_bitrate_mbps", "bitrate of the video", "Mbit/s", "higher", "mean bitrate of the chunks that have arrived"),
    ("video_stall_s", "stalls of the video", "s", "lower", "time without a picture, the start included"),
    ("video_startup_s", "start of the video", "s", "lower", "time until the first chunk has arrived"),
    ("video_switches", "switches of the video", "", "lower", "changes of the bitrate"),
    ("video_qoe", "QoE of the video", "Mbit/s", "higher",
     "per chunk: bitrate less its changes less 4.3 times the stalls after the start (QoE_lin)"),
    ("call_bitrate_mbps", "bitrate of the call", "Mbit/s", "higher", "new bytes that arrived over the length of the call"),
    ("call_delay_mean_s", "mean delay of frames", "s", "lower", "mean time from a frame's capture to its last byte"),
    ("call_delay_p95_s", "p95 delay of frames", "s", "lower",
     "95th percentile of the time from a frame's capture to its last byte"),
    ("call_on_time", "frames on time", "", "higher", "share of the frames that are complete within the call's deadline"),
    # The five metrics of [BBR-fluid] s.4.3 and the share of the first CCA of a mix: the fluid model computes them from its own
    # sums (ccenv.engine.fluid.simulate), in the paper's units.
    ("jain", "Jain fairness", "", "higher", "Jain's index of the rates at which the flows send"),
    ("loss_pct", "loss", "%", "lower", "bytes that the link dropped over the bytes that arrived at it"),
    ("occupancy_pct", "buffer occupancy", "%", "lower", "mean queue of the first link over its buffer"),
    ("utilisation_pct", "utilisation", "%", "higher",
     "bytes that the first link served over the bytes that it could have carried"),
    ("jitter_ms", "jitter", "ms", "lower", "mean difference of neighbouring RTTs, sampled at the virtual packet rate"),
    ("first_share_pct", "share of first half", "%", "neither", "share of the first half of the flows in all that is sent"),
)  # fmt: skip


def _find_run_function(name: str) -> Callable[[RunWindow], float] | None:
    return quality(name) if name in packet.NAMES else getattr(packet, name, None)


# A metric is computed by the functions of its name in ``trace`` and ``packet``.
_TABLE = tuple(Metric(*row, of_trace=getattr(trace, row[0], None), of_run=_find_run_function(row[0])) for row in _ROWS)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _TABLE}
"""All metrics by name."""
OF_TRACE: Mapping[str, Callable[[Window], float]] = {m.name: m.of_trace for m in _TABLE if m.of_trace is not None}
"""How a trace defines a metric, by name."""
OF_RUN: Mapping[str, Callable[[RunWindow], float]] = {m.name: m.of_run for m in _TABLE if m.of_run is not None}
"""How a packet run defines a metric, by name."""
_FUNCTIONS = {"trace": "of_trace", "packets": "of_run"}
FLUID_METRICS = ("jain", "loss_pct", "occupancy_pct", "utilisation_pct", "jitter_ms")
"""Names of the five metrics of [BBR-fluid] s.4.3."""
MIX_METRICS = (*FLUID_METRICS, "first_share_pct")
"""Names of the metrics that compare a sweep of the fluid model with the same sweep per packet."""

_user_metrics: dict[str, tuple[Metric, str]] = {}  # metrics of users (ccenv.network.metrics.user) and the hashes of their files


def add_metric(metric: Metric, sha256: str) -> None:
    """Register a user's metric in this process, in place of an earlier one of the same name; ``sha256`` is that of its file.

    The metric has no functions if only its description is known, as from a stored result. Raises InputError if ccenv has a metric
    of this name.
    """
    if metric.name in METRICS:
        raise InputError(f"metric {metric.name!r} comes with ccenv: give yours another name")
    _user_metrics[metric.name] = (metric, sha256)


def own_metric(name: str) -> str:
    """Return the hash of a user's metric that can be computed here; empty: there is none."""
    metric, sha256 = _user_metrics.get(name, (None, ""))
    return sha256 if metric is not None and metric.sources else ""


def _resolve(name: str, noun: str, table: Mapping[str, object], source: str) -> Metric:
    if name in table:
        return METRICS[name]
    if name not in _user_metrics:
        raise unknown_name(noun, name, [*table, *_user_metrics])
    metric = _user_metrics[name][0]
    if metric.sources and source not in metric.sources:
        raise InputError(f"metric {name!r} is not computed from {source}; it has no {_FUNCTIONS[source]}(window)")
    return metric


def trace_metric(name: str) -> Metric:
    """Return the metric of a name that a trace defines. Raises UnknownNameError with suggestions."""
    return _resolve(name, "metric", OF_TRACE, "trace")


def run_metric(name: str) -> Metric:
    """Return the metric of a name that a packet run defines. Raises UnknownNameError with suggestions."""
    return _resolve(name, "metric of the packet engine", OF_RUN, "packets")


def measure(window: Window, names: Iterable[str]) -> dict[str, float]:
    """Return the named metrics of a window of a trace; not a number where one is undefined. Raises UnknownNameError."""
    return {name: _function(name, trace_metric(name).of_trace)(window) for name in names}


def _function(name: str, function: Callable[[Any], float] | None) -> Callable[[Any], float]:
    if function is None:
        raise InputError(f"metric {name!r} is only described here: name the file that computes it")
    return function


def measure_run(run: PacketRun, name: str, spans_s: Sequence[tuple[float, float]], group: str | None = None) -> float:
    """Return a metric of a packet run over spans (from, to) in seconds and the flows of a group (None: all).

    Raises UnknownNameError if there is no such metric or no such flow; InputError for a span without a row of the log.
    """
    flows = tuple(i for i, flow in enumerate(run.flows) if group is None or flow.name == group)
    if not flows:
        raise unknown_name("flow", str(group), {flow.name for flow in run.flows})
    return _function(name, run_metric(name).of_run)(RunWindow(run, tuple(spans_s), flows))
