"""Simulation of live scenarios for comparison: in the packet engine, and in the curve engine for ccac."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.load import load_sender
from ccenv.agents.sender import Sender
from ccenv.base.errors import InputError
from ccenv.base.figure import finish, panels, save, thin
from ccenv.engine.curve.engine import CurveEngine
from ccenv.live.emulator.build import quick_acks
from ccenv.live.result import LiveResult, token_path
from ccenv.live.scenario import KERNEL, LiveError, LiveScenario, load_jitter_adversary
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation import Scenario, simulate
from ccenv.simulation.result import as_run

# Simulated counterparts of the kernel's congestion controls.
COUNTERPARTS = {
    "bbr": "bbr1",
    "westwood": "westwood:tick_ms=10",
    **{name: name for name in ("reno", "cubic", "vegas", "illinois", "hybla", "dctcp")},
}
_LIVE_FIELDS = ("model", "steps_per_rtt", "device", "quick_ack", "packets_per_burst", "realtime", "chooser")


def counterpart(sender: str) -> str:
    """Return the simulated counterpart of a live sender. Raises LiveError if there is none."""
    if not sender.startswith(KERNEL):
        return sender
    name = sender.removeprefix(KERNEL)
    if name not in COUNTERPARTS:
        simulated_names = ", ".join(KERNEL + simulated_names for simulated_names in COUNTERPARTS)
        raise LiveError(f"nothing simulates {sender!r}, so it cannot run beside; simulated are {simulated_names}")
    return COUNTERPARTS[name]


@dataclass(frozen=True)
class Simulated:
    """A live scenario in an engine."""

    summary: dict[str, Any]  # engine, flows and links as a summary has them
    time_s: np.ndarray  # (rows,) ends of the intervals of the series
    rates_mbps: np.ndarray  # (rows, N) throughput
    queue_packets: np.ndarray  # (rows,) at the ends


def simulate_live(scenario: LiveScenario) -> Simulated:
    """Run a live scenario in the engine that simulates it.

    Raises LiveError for a kernel sender without a simulated counterpart; InputError for a network that no engine simulates.
    """
    return _run_curve_engine(scenario) if scenario.model == "ccac" else _run_packet_engine(scenario)


def _run_packet_engine(scenario: LiveScenario) -> Simulated:
    data = scenario.model_dump(exclude=set(_LIVE_FIELDS), exclude_defaults=True)  # what is open follows the hosts' profile
    for flow in data["flows"]:
        flow["sender"] = counterpart(flow["sender"])
        if scenario.quick_ack:
            flow["receiver"] = {"ack_every": 1, **flow.get("receiver", {})}
        elif "ack_every" not in flow.get("receiver", {}):
            flow["receiver"] = {"quick_acks": quick_acks(scenario), **flow.get("receiver", {})}
        if scenario.packets_per_burst == 1:
            flow["burst_s"] = 0.0
    result = simulate(as_run(Scenario.model_validate({**data, "profile": "linux"})))  # rates of whole packets, as live ones
    summary = result.summary()
    return Simulated(
        {"engine": "packet", "profile": "linux", "flows": summary["flows"], "links": summary["links"]},
        result.time_s[1:],
        result.throughput_Bps() / MBPS_IN_BPS,
        result.link_log["queue_bytes"][1:, 0] / scenario.mss_bytes,
    )


def _run_curve_engine(scenario: LiveScenario) -> Simulated:
    link = scenario.links[0]
    for flow in scenario.flows:
        if flow.workload.kind != "bulk" or flow.loss_rate or flow.start_s or not math.isinf(flow.stop_s):
            raise InputError(f"{scenario.name}: beside a live run of ccac all flows send all the time, without random loss")
    senders: list[Sender] = [load_sender(counterpart(flow.sender)) for flow in scenario.flows]
    engine = CurveEngine(
        [token_path(scenario)],
        model="ccac",
        senders=senders,
        adversary=load_jitter_adversary(scenario.flows[0].jitter),
        steps_per_rtt=scenario.steps_per_rtt,
        seed=scenario.seed,
        record=True,
    )
    dt_s = float(engine.env("dt_s")[0])
    first, last = round(scenario.warmup_s / dt_s), math.floor(scenario.duration_s / dt_s + 1e-9)
    engine.advance(first)
    before = engine.totals()
    engine.advance(last - first)
    after = engine.totals()
    change = {name: (after[name] - before[name])[0] for name in ("A", "L", "S", "capacity")}
    seconds = (last - first) * dt_s
    flows = [
        {
            "name": flow.name or sender.name,
            "sender": sender.name,
            "throughput_mbps": float(change["S"][i]) / seconds / MBPS_IN_BPS,
            "loss": float(change["L"][i]) / float(change["A"][i]) if change["A"][i] > 0 else None,
        }
        for i, (flow, sender) in enumerate(zip(scenario.flows, senders, strict=True))
    ]
    utilisation = float(change["S"].sum() / change["capacity"])
    trace = engine.trace(0)
    return Simulated(
        {"engine": "curve", "flows": flows, "links": [{"name": link.name, "utilisation": utilisation}]},
        trace.times_s[1:],
        np.diff(trace.S, axis=0) / dt_s / MBPS_IN_BPS,
        trace.queue_bytes[1:] / scenario.mss_bytes,
    )


def plot_beside(path: str | os.PathLike[str], live: LiveResult, simulated: Simulated) -> None:
    """Draw throughput of each flow and the queue over time, of a live and a simulated run.

    Raises InputError unless the file ends in ``.png`` or ``.svg``.
    """
    run, scenario = live.run, live.scenario
    figure, (rate, queue) = panels(2, 1, (9, 5.5), sharex=True)
    for index, name in enumerate(live.names()):
        line = rate.plot(*thin(run.time_s[1:], run.throughput_Bps()[:, index] / MBPS_IN_BPS), label=f"{name}, live", linewidth=1)
        thinned = thin(simulated.time_s, simulated.rates_mbps[:, index])
        rate.plot(*thinned, label=f"{name}, simulated", color=line[0].get_color(), linestyle="--", linewidth=1)
    queue.plot(*thin(run.time_s, run.link_log["queue_bytes"][:, 0] / scenario.mss_bytes), label="live", linewidth=1)
    queue.plot(*thin(simulated.time_s, simulated.queue_packets), label="simulated", linestyle="--", linewidth=1)
    for axis, label in ((rate, "throughput (Mbit/s)"), (queue, "queue (packets)")):
        finish(axis, y=label, zero=True, loc="upper right")
    queue.set_xlabel("time (s)")
    figure.suptitle(
        f"{scenario.name}: Linux {live.header['kernel'].partition('-')[0]} beside the {simulated.summary['engine']} engine"
    )
    save(figure, path)
