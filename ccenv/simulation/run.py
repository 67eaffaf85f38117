"""Run a scenario.

Applications of a scenario on the packet engine: every 10 ms they look at their flows and ask for more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ccenv.adversaries.load import load_adversary
from ccenv.agents.load import SenderLike, as_sender, load_sender
from ccenv.base.errors import InputError
from ccenv.base.foreign import path_of
from ccenv.engine.packet.engine import TICK_S, PacketEngine
from ccenv.engine.packet.layout import DEFAULT_ROWS
from ccenv.engine.packet.spec import WorkloadSpec
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.metrics.packet import AppRun
from ccenv.simulation.applications.play import PagePlay, VideoPlay, call_outcome
from ccenv.simulation.applications.spec import Call, Page, Video
from ccenv.simulation.result import Result, as_run, check_profile
from ccenv.simulation.scenario import Scenario, carrier, load_scenario, read_scenario

BEFORE_TICK_S = 1e-9  # an application decides just before the tick at which its flows look for something to send
ASKED = WorkloadSpec(kind="asked")


def with_applications(scenario: Scenario) -> Scenario:
    """Return the scenario in which flows of pages and videos send what these ask for."""
    asking = {carrier(application) for application in scenario.applications if not isinstance(application, Call)}
    flows = tuple(
        flow.model_copy(update={"workload": ASKED}) if (flow.name or flow.sender) in asking else flow for flow in scenario.flows
    )
    return scenario.model_copy(update={"flows": flows}) if asking else scenario


class Stage:
    """The applications of a run.

    Args:
        scenario: of :func:`with_applications`.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        names = [flow.name or flow.sender for flow in scenario.flows]
        self._flows = [[i for i, name in enumerate(names) if name == carrier(app)] for app in scenario.applications]
        self._plays: list[PagePlay | VideoPlay | None] = []
        for application, own in zip(scenario.applications, self._flows, strict=True):
            flows = [scenario.flows[i] for i in own]
            start_s = max(flow.start_s for flow in flows)
            requests_s = [scenario.return_s(i) for i in own]
            if isinstance(application, Page):
                rtts_s = [flow.rtt_s for flow in flows]
                self._plays.append(PagePlay(application, rtts_s, requests_s, start_s, scenario.mss_bytes))
            elif isinstance(application, Video):
                self._plays.append(VideoPlay(application, requests_s[0], start_s, scenario.mss_bytes))
            else:
                self._plays.append(None)
        self._steps = 0

    def play(self, engine: PacketEngine, until_s: float) -> None:
        """Advance the engine from tick to tick up to a time, each with what the applications ask for."""
        for now_s in self.ticks(until_s):
            engine.advance(now_s - BEFORE_TICK_S)
            for flow, more_bytes in self.step(now_s, engine.flow("goodput_bytes")):
                engine.offer(flow, more_bytes)

    def ticks(self, until_s: float) -> Iterator[float]:
        """Yield the times of the ticks up to a time at which applications look, each once; none without pages and videos."""
        while any(self._plays) and (now_s := (self._steps + 1) * TICK_S) <= until_s:
            self._steps += 1
            yield now_s

    def step(self, now_s: float, delivered_bytes: np.ndarray) -> Iterator[tuple[int, float]]:
        """Yield which flows are to send how much more.

        Args:
            now_s: of :meth:`ticks`, in their order.
            delivered_bytes: (flows,) in order and for the first time, until just before it.
        """
        for own, play in zip(self._flows, self._plays, strict=True):
            if play is None:
                continue
            for flow, more_bytes in zip(own, play.step(now_s, delivered_bytes[own].tolist()), strict=True):
                if more_bytes > 0.0:
                    yield flow, more_bytes

    def worth(self, name: str, end_s: float) -> float:
        """Return a value of pages and videos up to a time, the mean over those that have it; NaN where none has."""
        values = [play.outcome(end_s)[0] for play in self._plays if play is not None]
        found = [one[name] for one in values if name in one]
        return sum(found) / len(found) if found else UNDEFINED

    def outcomes(self, flow_log: np.ndarray) -> tuple[AppRun, ...]:
        """Return what the applications were worth.

        Args:
            flow_log: (rows, flows) of the run.
        """
        end_s, found = self.scenario.duration_s, []
        for application, own, play in zip(self.scenario.applications, self._flows, self._plays, strict=True):
            if isinstance(application, Call):
                log, start_s = flow_log[:, own[0]], self.scenario.flows[own[0]].start_s
                time_s = np.arange(len(log)) * self.scenario.log_s
                fresh_bytes = log["sent_bytes"] - log["resent_bytes"]
                values, series = call_outcome(application, time_s, fresh_bytes, log["goodput_bytes"], start_s, end_s)
            elif play is not None:
                values, series = play.outcome(end_s)
            found.append(AppRun(application.kind, carrier(application), tuple(own), values, series))
        return tuple(found)


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
    """Run an experiment per packet.

    Args:
        scenario: a scenario, a mapping with its fields (``read_scenario``), a shipped name or a YAML file.
        seed: instead of the scenario's.
        duration_s: instead of the scenario's.
        profile: instead of the scenario's: ``plain`` or ``linux``.
        max_events: end the run with an error when it takes more.
        senders: what a name in the scenario stands for, instead of a registered one: ``{"mine": ccenv.from_sb3(model)}``.
        packet_log: keep what happened to each packet, ``ccenv.engine.packet.layout.DEFAULT_ROWS`` at most.
        progress: called with the simulated time after every simulated second.

    Returns:
        Result: time series and summary.

    Raises:
        InputError: if the scenario is not valid.
        UnknownNameError: for an unknown sender, adversary or file.
        EngineError: if a CCA leaves the positive numbers, or the run takes too many events or rows of the packet log.
    """
    if isinstance(scenario, Mapping):
        scenario = read_scenario(scenario)
    elif not isinstance(scenario, Scenario):
        scenario = load_scenario(str(path_of("scenario", scenario)))
    options = {"seed": seed, "duration_s": duration_s, "profile": None if profile is None else check_profile(profile)}
    changed = {name: value for name, value in options.items() if value is not None}
    if changed:  # what the scenario leaves open stays open: a profile completes it
        scenario = read_scenario({**scenario.model_dump(exclude_unset=True), **changed}, scenario.name)
    profile, scenario = scenario.profile, with_applications(as_run(scenario))
    given = {name: as_sender(sender) for name, sender in (senders or {}).items()}
    engine = PacketEngine(
        scenario,
        [given[flow.sender] if flow.sender in given else load_sender(flow.sender) for flow in scenario.flows],
        adversaries=_adversaries(scenario),
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


def _adversaries(scenario: Scenario) -> dict[str, ScriptedAdversary]:
    made = {}
    for spec in {flow.jitter.adversary for flow in scenario.flows if flow.jitter.adversary}:
        player = load_adversary(spec)
        if not isinstance(player, ScriptedAdversary):
            raise InputError(f"adversary {spec!r} is not scripted; a jitter box needs a scripted adversary")
        made[spec] = player
    return made
