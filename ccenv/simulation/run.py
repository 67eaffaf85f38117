"""Running scenarios on the packet engine, with applications that look at their flows every 10 ms and request more data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ccenv.adversaries.load import load_adversary
from ccenv.agents.load import SenderLike, as_sender, load_sender
from ccenv.base.errors import InputError
from ccenv.base.foreign import as_path
from ccenv.engine.packet.engine import TICK_S, PacketEngine
from ccenv.engine.packet.layout import DEFAULT_ROWS
from ccenv.engine.packet.spec import WorkloadSpec
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.metrics.packet import AppRun
from ccenv.simulation.applications import Call, Page, PagePlay, Video, VideoPlay, call_outcome
from ccenv.simulation.result import Result, as_run, check_profile
from ccenv.simulation.scenario import Scenario, carrier, load_scenario, read_scenario

BEFORE_TICK_S = 1e-9  # an application decides just before the tick at which its flows look for data to send
ASKED = WorkloadSpec(kind="asked")


def with_applications(scenario: Scenario) -> Scenario:
    """Return the scenario in which flows of pages and videos send what these request."""
    asking = {carrier(application) for application in scenario.applications if not isinstance(application, Call)}
    flows = tuple(
        flow.model_copy(update={"workload": ASKED}) if (flow.name or flow.sender) in asking else flow for flow in scenario.flows
    )
    return scenario.model_copy(update={"flows": flows}) if asking else scenario


class Stage:
    """The applications of a run of a scenario (of :func:`with_applications`)."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        names = [flow.name or flow.sender for flow in scenario.flows]
        self._flows = [[i for i, name in enumerate(names) if name == carrier(app)] for app in scenario.applications]
        self._plays: list[PagePlay | VideoPlay | None] = []
        for application, indices in zip(scenario.applications, self._flows, strict=True):
            flows = [scenario.flows[i] for i in indices]
            start_s = max(flow.start_s for flow in flows)
            requests_s = [scenario.return_s(i) for i in indices]
            if isinstance(application, Page):
                rtts_s = [flow.rtt_s for flow in flows]
                self._plays.append(PagePlay(application, rtts_s, requests_s, start_s, scenario.mss_bytes))
            elif isinstance(application, Video):
                self._plays.append(VideoPlay(application, requests_s[0], start_s, scenario.mss_bytes))
            else:
                self._plays.append(None)
        self._steps = 0

    def play(self, engine: PacketEngine, until_s: float) -> None:
        """Advance the engine tick by tick up to a time, with the requests of the applications."""
        for now_s in self.ticks(until_s):
            engine.advance(now_s - BEFORE_TICK_S)
            for flow, more_bytes in self.step(now_s, engine.flow("goodput_bytes")):
                engine.offer(flow, more_bytes)

    def ticks(self, until_s: float) -> Iterator[float]:
        """Yield the times of the remaining ticks up to a time; none without pages and videos."""
        while any(self._plays) and (now_s := (self._steps + 1) * TICK_S) <= until_s:
            self._steps += 1
            yield now_s

    def step(self, now_s: float, delivered_bytes: np.ndarray) -> Iterator[tuple[int, float]]:
        """Yield (flow, further bytes to send) at a tick, given the (flows,) new bytes delivered in order just before it."""
        for indices, play in zip(self._flows, self._plays, strict=True):
            if play is None:
                continue
            for flow, more_bytes in zip(indices, play.step(now_s, delivered_bytes[indices].tolist()), strict=True):
                if more_bytes > 0.0:
                    yield flow, more_bytes

    def worth(self, name: str, end_s: float) -> float:
        """Return a value of pages and videos up to a time, the mean over those that have it; NaN if none has."""
        values = [play.outcome(end_s)[0] for play in self._plays if play is not None]
        numbers = [outcome[name] for outcome in values if name in outcome]
        return sum(numbers) / len(numbers) if numbers else UNDEFINED

    def outcomes(self, flow_log: np.ndarray) -> tuple[AppRun, ...]:
        """Return the quality of the applications, given the run's (rows, flows) log."""
        end_s, runs = self.scenario.duration_s, []
        for application, indices, play in zip(self.scenario.applications, self._flows, self._plays, strict=True):
            if isinstance(application, Call):
                log, start_s = flow_log[:, indices[0]], self.scenario.flows[indices[0]].start_s
                time_s = np.arange(len(log)) * self.scenario.log_s
                fresh_bytes = log["sent_bytes"] - log["resent_bytes"]
                values, series = call_outcome(application, time_s, fresh_bytes, log["goodput_bytes"], start_s, end_s)
            elif play is not None:
                values, series = play.outcome(end_s)
            runs.append(AppRun(application.kind, carrier(application), tuple(indices), values, series))
        return tuple(runs)


def simulate(
    scenario: Scenario | Mapping[str, Any] | str | os.PathLike[str],
    *,
    seed: int | None = None,
    duration_s: float | None = None,
    profile: str | None = None,
    max_events: int | None = None,
    packet_log: bool = False,
    senders: Mapping[str, SenderLike] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Run a packet-level experiment.

    Args:
        scenario: a scenario, a mapping with its fields (``read_scenario``), a shipped name or a YAML file.
        seed: instead of the scenario's.
        duration_s: instead of the scenario's.
        profile: instead of the scenario's: ``plain`` or ``linux``.
        max_events: end the run with an error when it takes more.
        senders: further senders by their names in the scenario: ``{"mine": ccenv.from_sb3(model)}``.
        packet_log: keep the events of each packet, ``ccenv.engine.packet.layout.DEFAULT_ROWS`` at most.
        progress: called with the simulated time after every simulated second.

    Raises:
        InputError: if the scenario is not valid.
        UnknownNameError: for an unknown sender, adversary or file.
        EngineError: if a CCA leaves the positive numbers, or the run takes too many events or rows of the packet log.
    """
    if isinstance(scenario, Mapping):
        scenario = read_scenario(scenario)
    elif not isinstance(scenario, Scenario):
        scenario = load_scenario(str(as_path("scenario", scenario)))
    options = {"seed": seed, "duration_s": duration_s, "profile": None if profile is None else check_profile(profile)}
    changed = {name: value for name, value in options.items() if value is not None}
    if changed:  # unset fields stay unset, for the profile to set
        scenario = read_scenario({**scenario.model_dump(exclude_unset=True), **changed}, scenario.name)
    profile, scenario = scenario.profile, with_applications(as_run(scenario))
    user_senders = {name: as_sender(sender) for name, sender in (senders or {}).items()}
    engine = PacketEngine(
        scenario,
        [user_senders[flow.sender] if flow.sender in user_senders else load_sender(flow.sender) for flow in scenario.flows],
        adversaries=_load_adversaries(scenario),
        log_s=scenario.log_s,
        duration_s=scenario.duration_s,
        seed=scenario.seed,
        max_events=max_events,
        packet_log=DEFAULT_ROWS if packet_log else 0,
    )
    begin, at_s, stage = time.perf_counter(), 0.0, Stage(scenario)
    while at_s < scenario.duration_s:
        at_s = min(scenario.duration_s, at_s + 1.0)
        stage.play(engine, at_s)
        engine.advance(at_s)
        if progress is not None:
            progress(at_s)
    wall_s = time.perf_counter() - begin
    log = engine.packet_log() if packet_log else None
    applications = stage.outcomes(engine.flow_log)
    logs = engine.flow_log, engine.link_log, engine.finished_s
    return Result(scenario, *logs, engine.events, wall_s, log, profile, applications, engine.transfers(), engine.turned_away())


def _load_adversaries(scenario: Scenario) -> dict[str, ScriptedAdversary]:
    adversaries = {}
    for spec in {flow.jitter.adversary for flow in scenario.flows if flow.jitter.adversary}:
        adversary = load_adversary(spec)
        if not isinstance(adversary, ScriptedAdversary):
            raise InputError(f"adversary {spec!r} is not scripted; a jitter box needs a scripted adversary")
        adversaries[spec] = adversary
    return adversaries
