"""Results of live runs: time series and summary as of a packet run, punctuality of the emulator, and the run as a trace."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.engine.packet.layout import EVENTS, ordered
from ccenv.live.emulator.layout import ERROR_BINS, STALLS
from ccenv.live.programs import Recording, premises_hold
from ccenv.live.scenario import LiveScenario
from ccenv.network.laws import check_trace
from ccenv.network.path import FlowPath, Path, make_grid
from ccenv.network.trace import Trace, TraceHeader
from ccenv.simulation.packet_trace import OF_PACKETS, one_link_path, packet_slack_bytes, packet_trace
from ccenv.simulation.result import Result

ON_TIME = 1e-9  # share of a step: events this close after its end belong to it


def token_path(scenario: LiveScenario) -> Path:
    """Return the path of a run of ccac, on which all flows send without an end."""
    flows = [FlowPath(rtt_s=flow.rtt_s, jitter_s=flow.jitter.max_s, stop_s=math.inf, loss_budget=0.0) for flow in scenario.flows]
    return one_link_path(scenario, flows)


def token_trace(scenario: LiveScenario, log: np.ndarray, tokens: np.ndarray) -> Trace:
    """Return a run of ccac as a trace, from its packet log (``LOG_DTYPE``) and tokens G, (steps + 1,).

    Raises PathError if the delays are no multiples of a step.
    """
    link = scenario.links[0]
    path = token_path(scenario)
    dt_s = make_grid(path, scenario.steps_per_rtt).dt_s
    times_s = np.arange(len(tokens)) * dt_s
    rate = np.full(len(times_s), link.rate_Bps)
    for step in link.rate_steps:
        rate[1:][times_s[:-1] >= step.time_s - ON_TIME * dt_s] = step.rate_Bps
    rate[0] = rate[min(1, len(rate) - 1)]

    def count_bytes(event: str, on_link: bool | None = None) -> np.ndarray:
        columns = []
        for flow in range(len(scenario.flows)):
            rows = (log["event"] == EVENTS.index(event)) & (log["flow"] == flow)
            if on_link is not None:
                rows &= (log["link"] >= 0) == on_link
            counts = np.searchsorted(log["time_s"][rows], times_s + ON_TIME * dt_s, "right").astype(np.float64)
            counts[0] = 0.0
            columns.append(counts * scenario.mss_bytes)
        return np.stack(columns, axis=1)

    free, lost = count_bytes("drop", on_link=False), count_bytes("drop", on_link=True)
    nothing = np.full_like(free, np.inf)
    return Trace(
        header=TraceHeader(
            path=path,
            model="ccac",
            steps_per_rtt=scenario.steps_per_rtt,
            dt_s=dt_s,
            senders=tuple(flow.sender for flow in scenario.flows),
            adversary=scenario.flows[0].jitter.adversary,
            seed=scenario.seed,
            notes=f"{OF_PACKETS} {scenario.mss_bytes:g} bytes, as they reach the bottleneck",
        ),
        A=count_bytes("enqueue") + lost + free,
        L=lost + free,
        L_free=free,
        S=count_bytes("deliver"),
        G=tokens,
        link_rate_Bps=rate,
        rate_Bps=nothing,
        cwnd_bytes=nothing,
    )


PERCENTILES = (50.0, 99.0)
HISTOGRAM_US = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)  # upper edges of release errors; a last bin has no end
# Causes of a late emulator.
_BLAME = {
    "host": "the host took the core for {late_ms:.3g} ms",
    "machine": "other processes held the core; the machine was busy",
    "emulator": "more was due at once than this machine writes in that time",
    "unknown": "the machine was busy, or its host",
}


@dataclass(frozen=True)
class LiveResult:
    """The outcome of ``run_live``."""

    scenario: LiveScenario
    run: Result  # time series and packet log, as of a packet run (`ccenv.simulation.Result`)
    header: dict[str, Any]  # device, privileges, realtime and kernel of the run
    error_us: np.ndarray  # release errors that occurred, in whole microseconds; the last bin holds larger ones
    error_counts: np.ndarray  # packets with each
    late_max_s: float  # the largest release error
    stalls: np.ndarray  # (len(STALLS),) STALL_DTYPE: delays of the emulator by more than half of the limit, by cause
    overruns: int  # packets that found no room in the emulator or its devices
    lost_rows: int  # rows missing in the packet log
    tokens: np.ndarray  # (steps + 1,) G of ccac
    recordings: tuple[Recording | None, ...]  # per flow, of its exported program; None for other senders
    tries: int = 1
    earlier: tuple[dict[str, Any], ...] = ()  # `why_not_valid`, `release_error_us` and `stalls` of each earlier try

    @staticmethod
    def of(
        scenario: LiveScenario, header: dict[str, Any], arrays: dict[str, np.ndarray], recordings: Sequence[Recording | None]
    ) -> LiveResult:
        """Make a result from the worker's answer."""
        run = arrays["run"][0]
        log = ordered(arrays["events"], scenario.duration_s)
        result = Result(
            scenario,
            arrays["flow_log"],
            arrays["link_log"],
            arrays["flows"]["finished_s"],
            int(run["written"]),
            float(header["wall_s"]),
            log,
        )
        return LiveResult(
            scenario=scenario,
            run=result,
            header=header,
            error_us=arrays["errors"],
            error_counts=arrays["error_counts"],
            late_max_s=float(run["late_max_s"]),
            stalls=arrays["stalls"],
            overruns=int(run["overruns"]) + int(header["device_drops"]),
            lost_rows=max(0, int(run["event_rows"]) - len(arrays["events"])),
            tokens=arrays["tokens"],
            recordings=tuple(recordings),
        )

    @property
    def limit_s(self) -> float:
        """The largest release error of a valid run (``LiveScenario.limit_s``)."""
        return self.scenario.limit_s

    def release_error_s(self, percent: float) -> float:
        """Return a percentile of the release errors, the delays with which packets were written."""
        total = int(self.error_counts.sum())
        if total == 0:
            return math.nan
        bin_number = int(np.searchsorted(np.cumsum(self.error_counts), percent / 100 * total))
        bin_us = int(self.error_us[min(bin_number, len(self.error_us) - 1)])
        return self.late_max_s if bin_us >= ERROR_BINS - 1 else bin_us * 1e-6

    def release_error_histogram(self) -> dict[str, int]:
        """Return the number of packets by upper edge of the release error, in microseconds; empty bins are left out."""
        bins = np.searchsorted(HISTOGRAM_US, self.error_us, "left")
        counts = np.bincount(bins, self.error_counts, len(HISTOGRAM_US) + 1)
        names = (*(str(edge) for edge in HISTOGRAM_US), "more")
        return {name: int(count) for name, count in zip(names, counts, strict=True) if count}

    @cached_property
    def why_not_valid(self) -> tuple[str, ...]:
        """Reasons why the run is not evidence about its senders; empty for a valid run."""
        reasons = []
        if self.late_max_s > self.limit_s:
            late_ms, limit_ms = 1e3 * self.late_max_s, 1e3 * self.limit_s
            blame = _BLAME[STALLS[int(self.stalls["longest_s"].argmax())]].format(late_ms=late_ms)
            reasons.append(f"packets were written up to {late_ms:.3g} ms late (limit {limit_ms:.3g} ms); {blame}")
        if self.overruns:
            reasons.append(f"{self.overruns} packets found no room in the emulator")
        if self.lost_rows:
            reasons.append(f"the packet log was full; {self.lost_rows} rows are missing, so the run cannot be judged")
        else:
            reasons += self._illegal_reasons()
        reasons += self._broken_bound_reasons()
        return tuple(reasons)

    def _illegal_reasons(self) -> list[str]:
        try:
            trace = self.trace()
        except InputError as error:
            return [f"no trace: {error}"]
        violations = check_trace(trace, slack_bytes=packet_slack_bytes(trace))
        return [f"the network was not legal: {violations[0].message}"] if violations else []

    def _broken_bound_reasons(self) -> list[str]:
        if not premises_hold(self.scenario):
            return []
        link, size = self.scenario.links[0].rate_Bps, self.scenario.mss_bytes
        texts = [recording.broken_bound(link, size) for recording in self.recordings if recording is not None]
        return [f"bounds of the program do not hold: {text}" for text in texts if text is not None]

    @property
    def punctual(self) -> bool:
        """Whether all packets were written in time and found room; if not, another try may succeed."""
        return self.late_max_s <= self.limit_s and not self.overruns

    def punctuality(self) -> dict[str, Any]:
        """Return the release errors and stalls of a summary."""
        errors_us = {f"p{percent:g}": round(1e6 * self.release_error_s(percent), 1) for percent in PERCENTILES}
        stalls = {
            name: {"count": int(stall["count"]), "longest_us": round(1e6 * float(stall["longest_s"]), 1)}
            for name, stall in zip(STALLS, self.stalls, strict=True)
            if stall["count"]
        }
        histogram = self.release_error_histogram()
        return {
            "release_error_us": {**errors_us, "max": round(1e6 * self.late_max_s, 1), "histogram": histogram},
            "stalls": stalls,
        }

    @property
    def valid(self) -> bool:
        """Whether the emulated network was that of the scenario."""
        return not self.why_not_valid

    def summary(self) -> dict[str, Any]:
        """Return the keys of ``Result.summary()`` and ``emulator``, ``valid``, ``why_not_valid``."""
        steal_s = self.header["steal_s"]
        emulator = {
            **{name: self.header[name] for name in ("device", "privileges", "realtime", "kernel")},
            "model": self.scenario.model,
            "packets": self.run.events,
            **self.punctuality(),
            "limit_us": round(1e6 * self.limit_s, 1),
            "overruns": self.overruns,
            "busy_share": round(self.header["busy_share"], 4),
            "steal_s": None if steal_s is None else round(steal_s, 3),
            "try": len(self.earlier) + 1,
            "tries": self.tries,
            "earlier_tries": list(self.earlier),
        }
        summary = self.run.summary()
        link, size = self.scenario.links[0].rate_Bps, self.scenario.mss_bytes
        for flow, recording in zip(summary["flows"], self.recordings, strict=True):
            if recording is not None:
                flow["program"] = recording.summary(link, size)
        head = {"valid": self.valid, "why_not_valid": list(self.why_not_valid)}
        return {**head, **(self._virtual(summary["flows"]) if "cpu_s" in self.header else {}), **summary, "emulator": emulator}

    def _virtual(self, flows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what only virtual runs have: hashes of all packets and logs and of the guest, shares, simulated s per CPU s."""
        logs = (self.run.packet_log, self.run.flow_log, self.run.link_log)
        total = sum(flow["throughput_mbps"] for flow in flows)
        return {
            "hash": hashlib.sha256(b"".join(log.tobytes() for log in logs if log is not None)).hexdigest(),
            "guest_sha256": self.header["guest_sha256"],
            "shares": [flow["throughput_mbps"] / total if total else None for flow in flows],
            "simulated_s_per_cpu_s": round(self.scenario.duration_s / self.header["cpu_s"], 3),
        }

    def beliefs(self, flow: int) -> np.ndarray:
        """Return beliefs and decisions of a flow's exported program, records of ``ccenv.live.system.loader.RECORD_DTYPE``.

        Raises InputError for other senders.
        """
        recording = self.recordings[flow]
        if recording is None:
            raise InputError(f"flow {flow}: {self.scenario.flows[flow].sender} is no program that this run loaded")
        return recording.records

    def trace(self) -> Trace:
        """Return the run as a trace of model cbr_delay or ccac, as seen by the emulated link.

        Raises InputError if no grid fits the RTTs, or the packet log was too short.
        """
        if self.lost_rows:
            raise InputError(f"{self.scenario.name}: the packet log was full; {self.lost_rows} rows are missing")
        log = self.run.packet_log
        if log is None:
            raise InputError(f"{self.scenario.name}: the run kept no packet log")
        trace = (
            token_trace(self.scenario, log, self.tokens) if self.scenario.model == "ccac" else packet_trace(self.scenario, log)
        )
        notes = f"live, Linux {self.header['kernel']}; {trace.header.notes}"
        return replace(trace, header=trace.header.model_copy(update={"notes": notes}))

    def names(self) -> list[str]:
        return self.run.names()
