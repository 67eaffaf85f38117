"""Results of packet runs (time series, summary, figure), and profiles of hosts: ``plain`` or ``linux``, a current Linux host."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.figure import finish, line_picture, panels, save, thin
from ccenv.base.random import uniform
from ccenv.base.results import TableResult
from ccenv.engine.packet.layout import FLOW_LOG, LINK_LOG
from ccenv.engine.packet.spec import FlowSpec, JitterSpec
from ccenv.network.metrics.packet import AppRun, PacketRun, RunFlow, RunWindow
from ccenv.network.metrics.table import run_metric
from ccenv.network.path import MBPS_IN_BPS
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_trace, save_packet_log
from ccenv.simulation.scenario import Scenario, ScenarioT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Profile = Literal["plain", "linux"]
BURST_S = 0.001  # tcp_tso_autosize: sk_pacing_shift 10, a burst is 2**-10 s at the pacing rate
ACK_EVERY, ACK_TIMEOUT_S = 2, 0.04  # tcp_ack_snd_check: every second full segment; TCP_DELACK_MIN
HEADERS_BYTES = 52.0  # IPv4 20, TCP 20, time stamps 12: 1448 of 1500 bytes are payload
PHASE_COUNTER = 2.0**44  # random numbers of start phases

# Parameters of the Linux kernel's senders.
PARAMETERS = {
    "reno": {"prr": "1"},
    "cubic": {"linux_module": "1", "prr": "1"},
    "bbr1": {"pacing_margin": "0.01", "extra_acked": "1", "even_windows": "1", "departure_time": "1"},
    "hybla": {"delayed_acks": "1", "prr": "1"},
    "vegas": {"linux_module": "1", "prr": "1"},
    "westwood": {"tick_ms": "4", "prr": "1"},
    "illinois": {"prr": "1"},
    "dctcp": {"prr": "1"},
}


def as_run(scenario: Scenario) -> Scenario:
    """Return the plain scenario that is run for one with a profile.

    The profile ``linux`` sets what the scenario leaves open: senders have the kernel's parameters, flows know the RTT of their
    handshake, paced senders send TSO bursts,
    receivers delay ACKs, and flows start at a random phase within one RTT that follows from the seed. With either profile packets
    of several flows of which none says its jitter have the scenario's ``phase_jitter``.
    """
    if scenario.profile == "linux":
        flows = tuple(_linux_flow(flow) for flow in scenario.flows)
        scenario = with_start_phases(scenario.model_copy(update={"flows": flows, "profile": "plain"}))
    return with_phase_jitter(scenario, scenario.phase_jitter)


def with_start_phases(scenario: ScenarioT) -> ScenarioT:
    """Return a scenario whose flows start later by a random part of one RTT, which follows from the seed."""
    flows = []
    for index, flow in enumerate(scenario.flows):
        start_s = flow.start_s + flow.rtt_s * uniform(float(scenario.seed), 0.0, float(index), PHASE_COUNTER)
        flows.append(flow.model_copy(update={"start_s": start_s}) if start_s < flow.stop_s else flow)
    return scenario.model_copy(update={"flows": tuple(flows)})


def with_phase_jitter(scenario: ScenarioT, share: float) -> ScenarioT:
    """Return a scenario where packets of several flows are late by up to ``share`` service times, unless one says its jitter."""
    said = any("jitter" in flow.model_fields_set for flow in scenario.flows)
    if len(scenario.flows) == 1 or share == 0.0 or said:
        return scenario
    flows = []
    for index, flow in enumerate(scenario.flows):
        rate_Bps = min(scenario.links[link].rate_Bps for link in scenario.route_of(index))
        late = JitterSpec(kind="uniform", max_s=share * scenario.mss_of(index) / rate_Bps)
        flows.append(flow.model_copy(update={"jitter": late}))
    return scenario.model_copy(update={"flows": tuple(flows)})


def check_profile(name: str) -> Profile:
    """Return the name if it is a profile's. Raises UnknownNameError otherwise."""
    for profile in get_args(Profile):
        if name == profile:
            return profile  # type: ignore[no-any-return]
    raise unknown_name("profile", name, get_args(Profile))


def payload_share(profile: str, packet_bytes: float) -> float:
    """Return the payload share of a packet: under ``linux`` packets have headers."""
    return 1.0 if profile == "plain" else max(0.0, packet_bytes - HEADERS_BYTES) / packet_bytes


def _linux_flow(flow: FlowSpec) -> FlowSpec:
    set_fields = flow.model_fields_set
    update: dict[str, Any] = {"name": flow.name or flow.sender, "sender": _add_parameters(flow.sender)}
    stack = {"handshake": True, "duplicate_acks": "hold", "burst_s": BURST_S}
    update |= {key: value for key, value in stack.items() if key not in set_fields}
    if "ack_every" not in flow.receiver.model_fields_set:
        changed: dict[str, Any] = {"ack_every": ACK_EVERY}
        if "ack_timeout_s" not in flow.receiver.model_fields_set:
            changed["ack_timeout_s"] = ACK_TIMEOUT_S
        update["receiver"] = flow.receiver.model_copy(update=changed)
    return flow.model_copy(update=update)


def _add_parameters(sender: str) -> str:
    name, _, parameters = sender.partition(":")
    set_names = {part.partition("=")[0].strip() for part in parameters.split(",")}
    added = [f"{key}={value}" for key, value in PARAMETERS.get(name, {}).items() if key not in set_names]
    return f"{name}:{','.join([*filter(None, [parameters]), *added])}" if added else sender


# The cumulative fields of the logs.
COUNTS = tuple(n for n in FLOW_LOG if n not in ("cwnd_bytes", "rate_Bps", "inflight_bytes", "rtt_s"))
LINK_COUNTS = tuple(n for n in LINK_LOG if n not in ("queue_bytes", "rate_Bps"))


@dataclass(frozen=True)
class Result(TableResult):
    """The outcome of ``simulate``.

    Attributes:
        scenario: as run, with the settings of the profile.
        flow_log: (rows, flows) structs with the fields of ``ccenv.engine.packet.layout.FLOW_LOG``: cwnd_bytes, rate_Bps,
            inflight_bytes, rtt_s (newest sample), and cumulative counts; row k is time k * log_s.
        link_log: (rows, links) structs with the fields of ``LINK_LOG``.
        finished_s: (flows,) when a finite transfer was acknowledged; infinite: not.
        wall_s: time that the kernel took.
        packet_log: events of each packet, structs of ``ccenv.engine.packet.layout.LOG_DTYPE`` in order of time; None: not kept.
        profile: of the original scenario.
        transfers: of the flows with arrivals, by flow: (n, 3) bytes, begin and end in seconds; NaN: not done.
        turned_away: transfers that found no free slot, by flow; they count as not done.
    """

    scenario: Scenario
    flow_log: np.ndarray
    link_log: np.ndarray
    finished_s: np.ndarray
    events: int
    wall_s: float
    packet_log: np.ndarray | None = None
    profile: str = "plain"
    applications: tuple[AppRun, ...] = ()
    transfers: Mapping[int, np.ndarray] = field(default_factory=dict)
    turned_away: Mapping[int, int] = field(default_factory=dict)

    @property
    def time_s(self) -> np.ndarray:
        """Time of the rows, (rows,) in seconds."""
        return np.arange(len(self.flow_log)) * self.scenario.log_s

    def names(self) -> list[str]:
        """Return the flows' names, by default the sender's; repeated names are numbered."""
        flows = self.scenario.flows
        plain = [flow.name or flow.sender for flow in flows]
        return [name if plain.count(name) == 1 else f"{name} #{plain[: i + 1].count(name)}" for i, name in enumerate(plain)]

    def throughput_Bps(self) -> np.ndarray:
        """Return per interval and flow the rate at which new bytes reached the receiver: (rows - 1, flows), bytes/s.

        Under the profile ``linux`` these are bytes of payload (``ccenv.simulation.result.payload_share``).
        """
        payload = np.array([self._payload(index) for index in range(len(self.scenario.flows))])
        rate: np.ndarray = np.diff(self.flow_log["goodput_bytes"], axis=0) * payload / self.scenario.log_s
        return rate

    def summary(self) -> dict[str, Any]:
        """Return averages from the warm-up to the end, each flow over its active time.

        Returns:
            dict: ``flows`` (name, sender, throughput_mbps, loss as a share of what was sent, rtt and one_way_delay as mean
            seconds per ACK and packet, retransmitted share, timeouts, finished_s), ``ratio`` (largest over smallest
            throughput; None for one flow), ``links`` (name, utilisation, queue_packets and loss), ``applications`` (if any:
            kind, name and values), ``reference``.
        """
        scenario = self.scenario
        flows = [self._flow(index, name) for index, name in enumerate(self.names())]
        links = [self._link(index) for index in range(len(scenario.links))]
        rates = [flow["throughput_mbps"] for flow in flows]
        applications = [{"kind": app.kind, "name": app.name, **app.values} for app in self.applications]
        return {
            "name": scenario.name,
            "duration_s": scenario.duration_s,
            "warmup_s": scenario.warmup_s,
            "seed": scenario.seed,
            "profile": self.profile,
            **({"phase_jitter": scenario.phase_jitter} if {flow.jitter.kind for flow in scenario.flows} == {"uniform"} else {}),
            "flows": flows,
            "ratio": _divide(max(rates), min(rates)) if len(rates) > 1 else None,
            "links": links,
            **({"applications": applications} if applications else {}),
            "reference": scenario.reference.model_dump() if scenario.reference else None,
            "notes": scenario.notes,
            "events": self.events,
            "wall_s": round(self.wall_s, 4),
        }

    def __repr__(self) -> str:
        return f"Result({self.scenario.name}: {', '.join(self.names())}; {self.scenario.duration_s:g} s, {self.events} events)"

    def _make_frame(self, pandas: Any) -> Any:
        """Return the fields of flow_log and ``throughput_mbps`` of the interval before, a row per time and flow."""
        index = pandas.MultiIndex.from_product([self.time_s, self.names()], names=["time_s", "flow"])
        names = self.flow_log.dtype.names or ()
        data = {name: self.flow_log[name].reshape(-1) for name in names}
        rates = np.vstack([np.zeros((1, self.flow_log.shape[1])), self.throughput_Bps()]) / MBPS_IN_BPS
        return pandas.DataFrame(data | {"throughput_mbps": rates.reshape(-1)}, index=index)

    def _rows(self) -> list[dict[str, Any]]:
        columns = {"flow": "name", "Mbit/s": "throughput_mbps", "loss": "loss", "RTT (s)": "rtt", "time-outs": "timeouts"}
        return [{head: flow[key] for head, key in columns.items()} for flow in self.summary()["flows"]]

    def _picture(self) -> str:
        """Return rates and the first link's queue."""
        rates = dict(zip(self.names(), self.throughput_Bps().T / MBPS_IN_BPS, strict=True))
        queue = {"queue": self.link_log["queue_bytes"][:, 0] / 1e3}
        return f"{line_picture(self.time_s[1:], rates, 'Mbit/s')}<br>{line_picture(self.time_s, queue, 'kB')}"

    def measured(self, *, service_waits: bool = False) -> PacketRun:
        """Return the run as metrics see it (``ccenv.network.metrics.table.measure_run``).

        ``service_waits``: the service of a packet counts as queueing delay, as in records made under the first rules of suites.
        """
        routes = [self.scenario.route_of(index) for index in range(len(self.scenario.flows))]
        rates_Bps = [[self.scenario.links[link].rate_Bps for link in route] for route in routes]
        flows = tuple(
            RunFlow(
                name=flow.name or flow.sender,
                rtt_s=flow.rtt_s,
                start_s=flow.start_s,
                stop_s=flow.stop_s,
                workload=flow.workload.kind,
                size_bytes=flow.workload.size_bytes,
                every_s=flow.workload.every_s,
                finished_s=float(finished_s),
                transfers=self.transfers.get(index),
                link_Bps=min(rates_Bps[index]),
                service_s=0.0 if service_waits else sum(self.scenario.mss_of(index) / rate_Bps for rate_Bps in rates_Bps[index]),
            )
            for index, (flow, finished_s) in enumerate(zip(self.scenario.flows, self.finished_s, strict=True))
        )
        scenario = self.scenario
        buffer_bytes = scenario.links[0].buffer_bytes
        shape = (scenario.log_s, scenario.duration_s, scenario.mss_bytes, buffer_bytes)
        return PacketRun(self.flow_log, self.link_log, flows, *shape, self.applications)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw rate, window, RTT, queue, retransmissions and applications over time into a .png or .svg file.

        Equal runs make equal files. The panel of an application shows bitrate and buffer of a video, delays of a call's frames,
        times of a page's visits. Raises InputError unless the file ends in ``.png`` or ``.svg``.
        """
        scenario, time_s = self.scenario, self.time_s
        rates_mbps = np.diff(self.flow_log["goodput_bytes"], axis=0) / scenario.log_s / MBPS_IN_BPS
        rows = 5 + len(self.applications)
        figure, (rate, window, rtt, queue, resent, *further) = panels(rows, 1, (9, 2.2 * rows), sharex=True)
        for index, name in enumerate(self.names()):
            log, mss_bytes = self.flow_log[:, index], scenario.mss_of(index)
            rate.plot(*thin(time_s[1:], rates_mbps[:, index]), label=name, linewidth=1)
            window.plot(*thin(time_s, log["cwnd_bytes"] / mss_bytes), linewidth=1)
            seen = log["rtt_s"] > 0
            rtt.plot(*thin(time_s[seen], 1e3 * log["rtt_s"][seen]), linewidth=1)
            resent.plot(*thin(time_s, log["resent_bytes"] / mss_bytes), linewidth=1)
        for index, link in enumerate(scenario.links):
            queue.plot(*thin(time_s, self.link_log["queue_bytes"][:, index] / scenario.mss_bytes), label=link.name, linewidth=1)
        labels = ("throughput (Mbit/s)", "window (packets)", "RTT (ms)", "queue (packets)", "retransmitted (packets)")
        for axis, label in zip((rate, window, rtt, queue, resent), labels, strict=True):
            finish(axis, y=label, zero=True, loc="upper right")
        for axis, application in zip(further, self.applications, strict=True):
            _plot_application(axis, application)
        (further or [resent])[-1].set_xlabel("time (s)")
        figure.suptitle(scenario.name)
        save(figure, path)

    def save_packet_log(self, path: str | os.PathLike[str]) -> None:
        """Write the packet log as one .npz: its columns, and a JSON header with the names of events, flows and links.

        Raises InputError if the run kept no packet log.
        """
        save_packet_log(path, self.scenario, self.names(), self._kept_log())

    def trace(self) -> Trace:
        """Return the run as a trace of the CBR-delay model, as the bottleneck saw it: A is what arrived there.

        Needs a packet log and one drop-tail link. Rates and windows are left open, so the laws of sending do not apply. Whole
        packets obey the fluid laws up to ``ccenv.simulation.packet_trace.packet_slack_bytes``. Raises InputError without a packet
        log, for other networks, or if no grid fits the RTTs.
        """
        return packet_trace(self.scenario, self._kept_log())

    def _kept_log(self) -> np.ndarray:
        if self.packet_log is None:
            raise InputError("the run kept no packet log: simulate(..., packet_log=True)")
        return self.packet_log

    def _payload(self, flow: int) -> float:
        return payload_share(self.profile, self.scenario.mss_of(flow))

    def _row(self, time_s: float) -> int:
        return min(len(self.flow_log) - 1, round(time_s / self.scenario.log_s))

    def _flow(self, index: int, name: str) -> dict[str, Any]:
        spec = self.scenario.flows[index]
        first = self._row(max(self.scenario.warmup_s, spec.start_s))
        last = self._row(min(self.scenario.duration_s, spec.stop_s))
        log = self.flow_log[:, index]
        seconds = (last - first) * self.scenario.log_s
        grown = {n: float(log[n][last] - log[n][first]) for n in COUNTS}
        return {
            "name": name,
            "sender": spec.sender,
            "throughput_mbps": _divide(grown["goodput_bytes"] * self._payload(index) / MBPS_IN_BPS, seconds) or 0.0,
            "loss": _divide(grown["dropped_bytes"] + grown["random_lost_bytes"], grown["sent_bytes"]),
            "rtt": _divide(grown["rtt_sum_s"], grown["rtt_samples"]),
            "one_way_delay": _divide(grown["one_way_sum_s"], grown["one_way_samples"]),
            "retransmitted": _divide(grown["resent_bytes"], grown["sent_bytes"]),
            "timeouts": int(grown["timeouts"]),
            "finished_s": float(self.finished_s[index]) if math.isfinite(self.finished_s[index]) else None,
            **({"transfers": self._transfers(index)} if index in self.transfers else {}),
        }

    def _transfers(self, index: int) -> dict[str, Any]:
        run, came = self.measured(), self.transfers[index]
        window = RunWindow(run, ((self.scenario.warmup_s, self.scenario.duration_s),), (index,))
        begun = came[:, 1] <= self.scenario.duration_s
        names = ("fct_slowdown_p50", "fct_slowdown_p99", "fct_small_p99", "fct_large_p50", "fct_done_share")
        metrics = {name: run_metric(name).of_run for name in names}
        values = {name: function(window) for name, function in metrics.items() if function is not None}
        return {
            "come": int(begun.sum()),
            "done": int(np.isfinite(came[:, 2]).sum()),
            "turned_away": self.turned_away[index],
            **{name: None if math.isnan(value) else value for name, value in values.items()},
        }

    def _link(self, index: int) -> dict[str, Any]:
        first, log_s = self._row(self.scenario.warmup_s), self.scenario.log_s
        log = self.link_log[first:, index]
        grown = {n: float(log[n][-1] - log[n][0]) for n in LINK_COUNTS}
        carried_bytes = float(np.sum(log["rate_Bps"][:-1])) * log_s
        seconds = (len(log) - 1) * log_s
        return {
            "name": self.scenario.links[index].name,
            "utilisation": _divide(grown["served_bytes"], carried_bytes),
            "queue_packets": _divide(grown["queue_byte_s"] / self.scenario.mss_bytes, seconds),
            "loss": _divide(grown["dropped_bytes"], grown["arrived_bytes"]),
        }


def _plot_application(axis: Axes, application: AppRun) -> None:
    for name, rows in application.series.items():
        data = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        if application.kind == "video" and len(data):
            axis.step(data[:, 0], data[:, 2], where="post", linewidth=1, label="bitrate (Mbit/s)")
            axis.plot(data[:, 0], data[:, 1], linewidth=1, label="buffer (s)")
        elif len(data):
            axis.plot(*thin(data[:, 0], data[:, 1]), ".-", markersize=3, linewidth=0.8, label=f"{name.removesuffix('_s')} (s)")
    finish(axis, y=f"{application.kind} {application.name}", zero=True, loc="upper right")


def _divide(part: float, total: float) -> float | None:
    return part / total if total > 0 else None
