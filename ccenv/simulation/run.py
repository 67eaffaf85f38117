"""Run a scenario."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ccenv.adversaries.load import load_adversary
from ccenv.agents.load import SenderLike, as_sender, load_sender
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.log import DEFAULT_ROWS
from ccenv.base.errors import InputError
from ccenv.base.foreign import path_of
from ccenv.network.adversary import ScriptedAdversary
from ccenv.simulation.applications_run import Stage, with_applications
from ccenv.simulation.profile import as_run, check_profile
from ccenv.simulation.result import Result
from ccenv.simulation.scenario import Scenario, load_scenario, read_scenario


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
        packet_log: keep what happened to each packet, ``ccenv.engine.packet.log.DEFAULT_ROWS`` at most.
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
