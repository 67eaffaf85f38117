"""Metrics of a packet run, each a function of a :class:`RunWindow`; ``ccenv.network.metrics.table`` lists them.

They cover rates, delays, loss and fairness of flows, slowdowns of transfers, and the quality of applications.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.metrics import measures
from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.path import MBPS_IN_BPS


@dataclass(frozen=True)
class RunFlow:
    """A flow of a run, as metrics see it."""

    name: str  # of its group; flows of the same name are measured together
    rtt_s: float  # propagation round-trip time Rm
    start_s: float
    stop_s: float
    workload: str  # `finite` (one transfer), `batches` (one every `every_s`), or another type, without transfers that end
    size_bytes: float
    every_s: float
    finished_s: float  # when a finite transfer was acknowledged; infinite: not
    # of a flow that stands for many short ones: (n, 3) bytes, begin and end in seconds; NaN: not done
    transfers: np.ndarray | None = None
    link_Bps: float = math.inf  # rate of the slowest link of its route
    service_s: float = 0.0  # that a packet takes at the links of its route at their rates; a packet in service does not wait


@dataclass(frozen=True)
class AppRun:
    """Quality of an application in a run: values over the whole run and rows of time and values over time, by name."""

    kind: str
    name: str
    flows: tuple[int, ...]
    values: dict[str, float]
    series: dict[str, list[list[float]]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PacketRun:
    """A packet run as plain data, as metrics see it."""

    flow_log: np.ndarray  # (rows, flows) records: newest values and cumulative counts, row k at time k * log_s
    link_log: np.ndarray  # (rows, links) records
    flows: tuple[RunFlow, ...]
    log_s: float
    duration_s: float
    mss_bytes: float
    buffer_bytes: float  # of the first link; may be infinite
    applications: tuple[AppRun, ...] = ()

    @property
    def time_s(self) -> np.ndarray:
        """Time of the rows, (rows,) in seconds."""
        return np.arange(len(self.flow_log)) * self.log_s


@dataclass(frozen=True, eq=False)
class RunWindow:
    """The part of a run that is measured: flows (indices) during spans (from, to) in seconds, taken together."""

    run: PacketRun
    spans_s: tuple[tuple[float, float], ...]
    flows: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.flows or not self.spans_s:
            raise InputError("a window needs at least one flow and one span of time")
        for first, last in self.rows():
            if not first < last:
                raise InputError(f"a span of the window is shorter than the log's interval of {self.run.log_s:g} s")

    def rows(self, flow: int | None = None) -> list[tuple[int, int]]:
        """Return the log rows of the spans, cut to the active time of a flow if one is given."""
        run, n = self.run, len(self.run.flow_log) - 1
        low, high = 0.0, math.inf
        if flow is not None:
            low, high = run.flows[flow].start_s, run.flows[flow].stop_s
        out = []
        for begin, end in self.spans_s:
            first, last = round(max(begin, low) / run.log_s), round(min(end, high, run.duration_s) / run.log_s)
            if flow is None or first < last:
                out.append((min(n, first), min(n, last)))
        return out

    def grown(self, flow: int, name: str) -> float:
        """Return how much a cumulative field of the flow log grew over the window."""
        log = self.run.flow_log[name][:, flow]
        return float(sum(log[last] - log[first] for first, last in self.rows(flow)))

    def total(self, name: str) -> float:
        """Return the growth of a field over all flows of the window."""
        return sum(self.grown(flow, name) for flow in self.flows)

    def seconds(self, flow: int) -> float:
        """Return the active time of a flow within the window."""
        return sum(last - first for first, last in self.rows(flow)) * self.run.log_s

    @property
    def span_s(self) -> float:
        """Length of all spans together."""
        return sum(last - first for first, last in self.rows()) * self.run.log_s

    @cached_property
    def rates_Bps(self) -> np.ndarray:
        """Throughput of each flow over its active time, (N,) bytes/s; not a number for a flow that was not active."""
        seconds = [self.seconds(flow) for flow in self.flows]
        return np.array(
            [self.grown(f, "goodput_bytes") / s if s > 0 else UNDEFINED for f, s in zip(self.flows, seconds, strict=True)]
        )

    def link(self, name: str, index: int = 0) -> np.ndarray:
        """Return a link's logged field in the window, the rows of all spans one after the other."""
        log = self.run.link_log[name][:, index]
        return np.concatenate([log[first:last] for first, last in self.rows()])

    def link_grown(self, name: str, index: int = 0) -> float:
        """Return how much a cumulative field of a link's log grew over the window."""
        log = self.run.link_log[name][:, index]
        return float(sum(log[last] - log[first] for first, last in self.rows()))

    @property
    def capacity_bytes(self) -> float:
        """Bytes that the first link could have carried."""
        return float(self.link("rate_Bps").sum()) * self.run.log_s

    @property
    def rtt_s(self) -> float:
        """Propagation RTT, the mean over the delivered bytes where flows differ."""
        rtts = np.array([self.run.flows[flow].rtt_s for flow in self.flows])
        weights = np.array([self.grown(flow, "goodput_bytes") for flow in self.flows])
        return float(rtts @ weights / weights.sum()) if weights.sum() > 0 else float(rtts.min())

    @cached_property
    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """RTT minus Rm and service per flow and log interval as the mean of its ACKs, and their number."""
        values, weights = [], []
        for flow in self.flows:
            log, base_s = self.run.flow_log[:, flow], self.run.flows[flow].rtt_s + self.run.flows[flow].service_s
            for first, last in self.rows(flow):
                samples, summed = np.diff(log["rtt_samples"][first : last + 1]), np.diff(log["rtt_sum_s"][first : last + 1])
                some = samples > 0
                values.append(np.maximum(0.0, summed[some] / samples[some] - base_s))
                weights.append(samples[some])
        return (np.concatenate(values), np.concatenate(weights)) if values else (np.zeros(0), np.zeros(0))


def utilisation(window: RunWindow) -> float:
    """Return the new bytes of these flows that reached a receiver over the bytes that the first link could have carried.

    Reference: [CCmatic] s.3, objective "utilisation". A byte that is delivered twice counts once.
    """
    return window.total("goodput_bytes") / window.capacity_bytes


def throughput_mbps(window: RunWindow) -> float:
    """Return the mean over the flows of the new bytes per second, each over the time in which it was to send, in Mbit/s."""
    rates = window.rates_Bps[~np.isnan(window.rates_Bps)]
    return float(rates.mean()) / MBPS_IN_BPS if len(rates) else UNDEFINED


def queueing_delay_mean_s(window: RunWindow) -> float:
    """Return the mean over the ACKs of RTT minus Rm and service, jitter included. Reference: [CCmatic] (5.1)."""
    delay_s, samples = window.delays
    return float(delay_s @ samples / samples.sum()) if samples.sum() > 0 else UNDEFINED


def queueing_delay_p95_s(window: RunWindow) -> float:
    """Return what the mean delay of a log interval does not exceed for 95 % of the ACKs. Reference: Pantheon, ATC 2018, s.3."""
    return measures.weighted_quantile(*window.delays, 0.95)


def queueing_delay_p95_ms(window: RunWindow) -> float:
    """Return ``queueing_delay_p95_s`` in milliseconds."""
    return queueing_delay_p95_s(window) * 1e3


def queueing_delay_p50_s(window: RunWindow) -> float:
    """Return the median of the queueing delay. Reference: as ``queueing_delay_p95_s``."""
    return measures.weighted_quantile(*window.delays, 0.5)


def queueing_delay_p99_s(window: RunWindow) -> float:
    """Return the 99th percentile of the queueing delay. Reference: as ``queueing_delay_p95_s``."""
    return measures.weighted_quantile(*window.delays, 0.99)


def queueing_delay_p95_rtts(window: RunWindow) -> float:
    """Return the 95th percentile of the queueing delay over Rm. Reference: as ``queueing_delay_p95_s``."""
    return queueing_delay_p95_s(window) / window.rtt_s


def one_way_delay_s(window: RunWindow) -> float:
    """Return the mean time from sender to receiver per packet. Reference: [Delta] s.5.1, figure 3."""
    samples = window.total("one_way_samples")
    return window.total("one_way_sum_s") / samples if samples > 0 else UNDEFINED


def rtt_mean_s(window: RunWindow) -> float:
    """Return the mean RTT per ACK, in seconds."""
    samples = window.total("rtt_samples")
    return window.total("rtt_sum_s") / samples if samples > 0 else UNDEFINED


def _newest_rtts(window: RunWindow) -> np.ndarray:
    log = window.run.flow_log["rtt_s"]
    rtts_s = np.concatenate([log[first:last, flow] for flow in window.flows for first, last in window.rows(flow)])
    return np.asarray(rtts_s[rtts_s > 0])


def rtt_min_s(window: RunWindow) -> float:
    """Return the smallest RTT sample among the newest ones at the log's times. Reference: d_min of [Starvation] s.3, figure 3."""
    rtts = _newest_rtts(window)
    return float(rtts.min()) if len(rtts) else UNDEFINED


def rtt_max_s(window: RunWindow) -> float:
    """Return the largest RTT sample among the newest ones at the log's times. Reference: d_max of [Starvation] s.3, figure 3."""
    rtts = _newest_rtts(window)
    return float(rtts.max()) if len(rtts) else UNDEFINED


def _lost_bytes(window: RunWindow) -> float:
    return window.total("dropped_bytes") + window.total("random_lost_bytes")


def loss_fraction(window: RunWindow) -> float:
    """Return the bytes that the network dropped, for congestion or not, over the bytes sent. Reference: [CCmatic] s.3."""
    sent = window.total("sent_bytes")
    return _lost_bytes(window) / sent if sent > 0 else UNDEFINED


def loss_packets_per_rtt(window: RunWindow) -> float:
    """Return the mean number of packets lost per Rm. Reference: [CCmatic] figure 16."""
    rtt_s = min(window.run.flows[flow].rtt_s for flow in window.flows)
    return _lost_bytes(window) / window.run.mss_bytes / (window.span_s / rtt_s)


def loss_events_per_s(window: RunWindow) -> float:
    """Return the loss events per second and flow; losses within one Rm are one event. Reference: RFC 5348 s.5.2."""
    log, log_s = window.run.flow_log, window.run.log_s
    events, seconds = 0, 0.0
    for flow in window.flows:
        for first, last in window.rows(flow):
            lost = np.diff((log["dropped_bytes"] + log["random_lost_bytes"])[first : last + 1, flow])
            events += measures.loss_events(np.arange(len(lost)) * log_s, lost, window.run.flows[flow].rtt_s)
            seconds += (last - first) * log_s
    return events / seconds if seconds > 0 else UNDEFINED


def loss_event_rate(window: RunWindow) -> float:
    """Return the loss events over the packets sent, what TCP formulas call p. Reference: [4CP] s.2.1.1; RFC 5348 s.5.2."""
    seconds = sum(window.seconds(flow) for flow in window.flows)
    packets = window.total("sent_bytes") / window.run.mss_bytes
    return loss_events_per_s(window) * seconds / packets if packets > 0 else UNDEFINED


def sent_packets_per_rtt(window: RunWindow) -> float:
    """Return the packets that a flow sends per Rm, retransmissions included, the mean over the flows.

    Reference: full backoff of RFC 9743 s.5.1.1: at most one packet per round trip where congestion persists.
    """
    run = window.run
    rates = [window.grown(f, "sent_bytes") / s * run.flows[f].rtt_s for f in window.flows if (s := window.seconds(f)) > 0]
    return sum(rates) / len(rates) / run.mss_bytes if rates else UNDEFINED


def rate_variation(window: RunWindow) -> float:
    """Return the standard deviation over the mean of a flow's throughput in half seconds, the mean over the flows.

    Reference: coefficient of variation of the rate, RFC 5166 s.2.2 (oscillations).
    """
    variations = []
    for flow in window.flows:
        times, rates, _ = _half_seconds(window.run, flow)
        inside = rates[[any(low < t <= high for low, high in window.spans_s) for t in times]]
        if len(inside) > 1 and inside.mean() > 0:
            variations.append(float(inside.std() / inside.mean()))
    return sum(variations) / len(variations) if variations else UNDEFINED


def queue_max_bdp(window: RunWindow) -> float:
    """Return the largest logged queue of the first link in units of its rate times the smallest Rm.

    Reference: [CCmatic] figure 15.
    """
    rtt_s = min(flow.rtt_s for flow in window.run.flows)
    return float((window.link("queue_bytes") / (window.link("rate_Bps") * rtt_s)).max())


def queue_mean_share(window: RunWindow) -> float:
    """Return the mean queue of the first link over its buffer; not a number where the buffer is infinite."""
    mean_bytes, buffer_bytes = window.link_grown("queue_byte_s") / window.span_s, window.run.buffer_bytes
    return mean_bytes / buffer_bytes if math.isfinite(buffer_bytes) else UNDEFINED


def jain_index(window: RunWindow) -> float:
    """Return Jain's index of the flows' throughputs. Reference: Jain, Chiu, Hawe 1984 (``measures.jain``)."""
    rates = window.rates_Bps[~np.isnan(window.rates_Bps)]
    return measures.jain(rates) if len(rates) else UNDEFINED


def fair_share(window: RunWindow) -> float:
    """Return the new bytes of these flows over their fair share: the link's, divided at any time among the active flows.

    1 is fair, 0.5 is half of it. A flow is active from its start to its stop, or to the end of its transfer.

    Reference: max-min fairness on one link (Bertsekas, Gallager, "Data Networks", s.6.5.2), of flows that always have data.
    """
    run, n = window.run, len(window.run.flow_log) - 1
    times = run.time_s[:-1]
    present = np.stack([(times >= flow.start_s) & (times < min(flow.stop_s, flow.finished_s)) for flow in run.flows], axis=1)
    bytes_each = run.link_log["rate_Bps"][:n, 0] * run.log_s / np.maximum(present.sum(axis=1), 1)
    fair = sum(
        float(bytes_each[first:last] @ present[first:last, flow]) for flow in window.flows for first, last in window.rows(flow)
    )
    return window.total("goodput_bytes") / fair if fair > 0 else UNDEFINED


def in_range(window: RunWindow) -> float:
    """Return 1 where the flows got about their fair share (``fair_share``), .6 to 1.5 of it, else 0."""
    share = fair_share(window)
    return share if math.isnan(share) else float(0.6 <= share <= 1.5)


def shortfall(window: RunWindow) -> float:
    """Return what the flows lack of their fair share (``fair_share``), 0 to 1."""
    share = fair_share(window)
    return share if math.isnan(share) else max(0.0, 1.0 - share)


def harm(window: RunWindow) -> float:
    """Return what competition costs these flows: 1 - their bytes / the bytes that the link could have carried, 0 to 1.

    Reference: Ware et al., "Beyond Jain's Fairness Index", HotNets 2019, s.4 (``ccenv.network.metrics.measures.harm``).
    Deviation: the flow alone is taken to fill the link.
    """
    return max(0.0, measures.harm(window.capacity_bytes, window.total("goodput_bytes")))


def starvation_ratio(window: RunWindow) -> float:
    """Return the largest throughput over the smallest; a flow without throughput counts with one segment.

    Reference: [Starvation] s.5 (``ccenv.network.metrics.measures.starvation_ratio``).
    """
    seconds = np.array([window.seconds(flow) for flow in window.flows])
    took_part = seconds > 0
    least = window.run.mss_bytes / seconds[took_part]
    return measures.starvation_ratio(np.maximum(window.rates_Bps[took_part], least)) if took_part.any() else UNDEFINED


def s_fairness(window: RunWindow) -> float:
    """Return the s of definition 2 over the second half of the run; a flow counts with at least one segment.

    Reference: [Starvation] s.4.2 (``ccenv.network.metrics.measures.s_fairness``).
    """
    delivered = window.run.flow_log["goodput_bytes"][:, list(window.flows)]
    return measures.s_fairness(window.run.time_s, np.maximum(delivered, window.run.mss_bytes))


def power(window: RunWindow) -> float:
    """Return utilisation * Rm / (Rm + mean queueing delay). Reference: Kleinrock 1979 (``measures.power``)."""
    if window.total("goodput_bytes") <= 0:
        return 0.0
    return measures.power(utilisation(window), window.rtt_s, queueing_delay_mean_s(window))


def fair_power(window: RunWindow) -> float:
    """Return power times Jain's index, 0 to about 1: the nominal score of ``standard-v1``.

    Reference: power: Kleinrock 1979; the product with Jain's index is ccenv's own.
    """
    fairness = jain_index(window)
    return power(window) * fairness if not math.isnan(fairness) else 0.0


def least_share(window: RunWindow) -> float:
    """Return the smallest throughput of these flows over their mean, 0 to 1: 1 if all got the same, 0 if one got nothing.

    Reference: max-min fairness (Bertsekas, Gallager, "Data Networks", s.6.5.2).
    """
    rates = window.rates_Bps[~np.isnan(window.rates_Bps)]
    return float(rates.min() / rates.mean()) if len(rates) and rates.mean() > 0 else UNDEFINED


def even_power(window: RunWindow) -> float:
    """Return power times the smallest share, 0 to about 1: the nominal score of ``standard-v2``.

    Reference: power: Kleinrock 1979; the product with the smallest share is ccenv's own.
    """
    share = least_share(window)
    return power(window) * share if not math.isnan(share) else 0.0


def convergence_time_s(window: RunWindow) -> float:
    """Return when the newest of these flows is first within 20 % of an equal share of the link, for one second, after its start.

    Reference: settling time (``ccenv.network.metrics.measures.convergence_time_s``), of rates averaged over half a second.
    """
    flow = max(window.flows, key=lambda f: window.run.flows[f].start_s)
    times, rates, capacity = _half_seconds(window.run, flow)
    if not len(times):  # it starts with the end of the run
        return UNDEFINED
    start_s, share = window.run.flows[flow].start_s, float(capacity[-1]) / len(window.run.flows)
    return measures.convergence_time_s(np.append(start_s, times), np.append(0.0, rates), share)


def time_to_90_s(window: RunWindow) -> float:
    """Return when the first of these flows first has 90 % of the link's rate over half a second, from the window's begin.

    Reference: [CCmatic] figures 18 and 19.
    """
    return _time_to_share_s(window, 0.9)


def time_to_40_s(window: RunWindow) -> float:
    """Return the same for 40 %: cc_probe_slow is sure of half a link only. Reference: [CCmatic] theorem 6.1, s.6.2.1."""
    return _time_to_share_s(window, 0.4)


def _time_to_share_s(window: RunWindow, share: float) -> float:
    begin = window.spans_s[0][0]
    times, rates, capacity = _half_seconds(window.run, window.flows[0])
    inside = times > begin
    shares = rates[inside] / capacity[inside]
    return measures.time_to_reach_s(np.append(begin, times[inside]), np.append(0.0, shares), share)


def settling_time_s(window: RunWindow) -> float:
    """Return when the first of these flows comes within 20 % of its mean rate in the window's last quarter, for a second.

    Reference: settling time; [CCmatic] figures 18 and 19.
    """
    begin, end = window.spans_s[0]
    times, rates, _ = _half_seconds(window.run, window.flows[0])
    inside = (times > begin) & (times <= end)
    last = rates[inside & (times > end - (end - begin) / 4)]
    if len(last) == 0 or last.mean() <= 0:
        return UNDEFINED
    return measures.convergence_time_s(np.append(begin, times[inside]), np.append(0.0, rates[inside]), float(last.mean()))


def open_window_share(window: RunWindow) -> float:
    """Return the share of the log's times at which a flow's window is above two segments.

    Reference: [4CP] s.5.1, figure 16: the false positive rate of a 4CP flow's detector in a bad phase.
    """
    log, least = window.run.flow_log["cwnd_bytes"], 2 * window.run.mss_bytes
    seen = np.concatenate([log[first:last, flow] for flow in window.flows for first, last in window.rows(flow)])
    return float((seen > least * (1 + 1e-9)).mean()) if len(seen) else UNDEFINED


def _half_seconds(run: PacketRun, flow: int, step_s: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ends of half seconds from the flow's start on, its throughput and the link's rate in them."""
    every = max(1, round(step_s / run.log_s))
    first = round(run.flows[flow].start_s / run.log_s)
    rows = np.arange(first, len(run.flow_log), every)
    rates = np.diff(run.flow_log["goodput_bytes"][rows, flow]) / (every * run.log_s)
    return rows[1:] * run.log_s, rates, run.link_log["rate_Bps"][rows[1:] - 1, 0]


def response_time_s(window: RunWindow) -> float:
    """Return the mean completion time of finite transfers, or batches of them, that were offered in the window.

    Transfers that did not finish within the run are left out.

    Reference: flow completion time (Dukkipati, McKeown 2006); [4CP] s.4.3.2.
    """
    durations_s: list[float] = []
    run = window.run
    for index in window.flows:
        flow = run.flows[index]
        if flow.workload == "finite":
            times = [(flow.start_s, flow.finished_s - flow.start_s)] if math.isfinite(flow.finished_s) else []
        elif flow.workload == "batches":
            delivered = run.flow_log["goodput_bytes"][:, index]
            size = math.ceil(flow.size_bytes / run.mss_bytes - 1e-9) * run.mss_bytes
            transfer_times_s = measures.completion_times_s(run.time_s, delivered, size, flow.every_s, flow.start_s)
            times = [(flow.start_s + k * flow.every_s, seconds) for k, seconds in enumerate(transfer_times_s)]
        else:
            continue
        durations_s += [seconds for at, seconds in times if any(low <= at < high for low, high in window.spans_s)]
    return sum(durations_s) / len(durations_s) if durations_s else UNDEFINED


def sending_rates_Bps(window: RunWindow) -> np.ndarray:
    """Return the bytes that each flow sent, retransmissions included, over the length of the window: (N,) bytes/s."""
    return np.array([window.grown(flow, "sent_bytes") for flow in window.flows]) / window.span_s


def jain(window: RunWindow) -> float:
    """Return Jain's index of the rates at which the flows send, 1 if none sends. Reference: [BBR-fluid] s.4.3.1."""
    return measures.jain_or_one(sending_rates_Bps(window))


def loss_pct(window: RunWindow) -> float:
    """Return the bytes that the first link dropped over the bytes that arrived at it. Reference: [BBR-fluid] s.4.3.2."""
    return measures.percent(window.link_grown("dropped_bytes"), window.link_grown("arrived_bytes"))


def occupancy_pct(window: RunWindow) -> float:
    """Return the mean queue of the first link over its buffer. Reference: [BBR-fluid] s.4.3.3."""
    return measures.percent(window.link_grown("queue_byte_s"), window.run.buffer_bytes * window.span_s)


def utilisation_pct(window: RunWindow) -> float:
    """Return the bytes that the first link served over the bytes that it could have carried. Reference: [BBR-fluid] s.4.3.4."""
    return measures.percent(window.link_grown("served_bytes"), float(window.link("rate_Bps").mean()) * window.span_s)


def jitter_ms(window: RunWindow) -> float:
    """Return the mean difference of neighbouring RTTs in the log, whose interval is to be N packets at the link's rate.

    Reference: [BBR-fluid] s.4.3.5.
    """
    log = window.run.flow_log["rtt_s"]
    steps = [np.abs(np.diff(log[first : last + 1].take(window.flows, axis=1), axis=0)) for first, last in window.rows()]
    return 1e3 * float(np.mean(np.concatenate(steps)))


def first_share_pct(window: RunWindow) -> float:
    """Return the share of the first half of the flows in all that is sent. Reference: [BBR-fluid] s.4.3, mixes of two CCAs."""
    rates = sending_rates_Bps(window)
    return measures.percent(float(rates[: len(rates) // 2].sum()), float(rates.sum()))


SMALL_BYTES, LARGE_BYTES = 100e3, 1e6  # pFabric, SIGCOMM 2013, s.5: (0, 100 KB] and (10 MB, inf); here from 1 MB on


def slowdowns(window: RunWindow) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and slowdowns of the transfers that arrived in the window: (n,) bytes and (n,); NaN if unfinished.

    The time of a transfer lasts from its arrival to its sender's last ACK; the shortest possible is Rm plus the transmission
    time of its packets on the slowest link.

    Reference: M. Alizadeh et al.: pFabric, SIGCOMM 2013, s.5 (normalised FCT).
    """
    sizes, ratios = [np.zeros(0)], [np.zeros(0)]
    mss_bytes = window.run.mss_bytes
    for index in window.flows:
        flow = window.run.flows[index]
        if flow.transfers is None:
            continue
        size_bytes, begin_s, end_s = flow.transfers.T
        inside = np.zeros(len(begin_s), np.bool_)
        for low_s, high_s in window.spans_s:
            inside |= (begin_s >= low_s) & (begin_s < high_s)
        packets = np.maximum(1.0, np.ceil(size_bytes[inside] / mss_bytes))
        sizes.append(size_bytes[inside])
        ratios.append((end_s[inside] - begin_s[inside]) / (flow.rtt_s + packets * mss_bytes / flow.link_Bps))
    return np.concatenate(sizes), np.concatenate(ratios)


def _slowdown_quantile(window: RunWindow, share: float, low_bytes: float = 0.0, high_bytes: float = np.inf) -> float:
    """Return a quantile of the slowdowns of a range of sizes; unfinished transfers count as longest."""
    sizes, ratios = slowdowns(window)
    chosen = np.sort(np.nan_to_num(ratios[(sizes > low_bytes) & (sizes <= high_bytes)], nan=np.inf))
    if not len(chosen):
        return UNDEFINED
    value = float(chosen[min(len(chosen) - 1, int(np.ceil(share * len(chosen))) - 1)])
    return value if np.isfinite(value) else UNDEFINED


def fct_slowdown_p50(window: RunWindow) -> float:
    """Return the median slowdown. Reference: :func:`slowdowns`."""
    return _slowdown_quantile(window, 0.5)


def fct_slowdown_p99(window: RunWindow) -> float:
    """Return the 99th percentile of the slowdown. Reference: :func:`slowdowns`."""
    return _slowdown_quantile(window, 0.99)


def fct_small_p99(window: RunWindow) -> float:
    """Return the 99th percentile of the slowdown of transfers of at most 100 kB. Reference: :func:`slowdowns`."""
    return _slowdown_quantile(window, 0.99, high_bytes=SMALL_BYTES)


def fct_large_p50(window: RunWindow) -> float:
    """Return the median slowdown of transfers of more than 1 MB. Reference: :func:`slowdowns`."""
    return _slowdown_quantile(window, 0.5, low_bytes=LARGE_BYTES)


def fct_done_share(window: RunWindow) -> float:
    """Return the share of the transfers that arrived in the window and finished within the run."""
    _, ratios = slowdowns(window)
    return float(np.isfinite(ratios).mean()) if len(ratios) else UNDEFINED


NAMES = (
    *("page_load_s", "page_load_max_s"),
    *("video_bitrate_mbps", "video_stall_s", "video_startup_s", "video_switches", "video_qoe"),
    *("call_bitrate_mbps", "call_delay_mean_s", "call_delay_p95_s", "call_on_time"),
)
"""Values of applications that are metrics."""


def quality(name: str) -> Callable[[RunWindow], float]:
    """Return the metric of an application's value: the mean over the window's applications that have it."""

    def measure(window: RunWindow) -> float:
        flows = set(window.flows)
        values = [app.values[name] for app in window.run.applications if set(app.flows) <= flows and name in app.values]
        return sum(values) / len(values) if values else UNDEFINED

    measure.__doc__ = f"Return {name} of the applications of these flows, the mean over them (``ccenv.simulation.applications``)."
    return measure
