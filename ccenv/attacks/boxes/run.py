"""Attack a sender with a scenario's delay elements: the arena per packet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ccenv.agents.load import SenderLike, as_sender, load_sender
from ccenv.agents.sender import Sender
from ccenv.attacks.boxes.game import EXTERNAL, BoxGame
from ccenv.attacks.boxes.players import KIND, Stored
from ccenv.attacks.boxes.searches import SEARCHES, Scripted, scripted
from ccenv.attacks.catalog import Search
from ccenv.attacks.game import Found
from ccenv.attacks.goals import UTILISATION
from ccenv.attacks.run import DEFAULT_RTTS, AttackResult, Finding, Replayed, play_attack
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.laws import Violation
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import check_packet_trace
from ccenv.simulation.ranges import ScenarioDistribution
from ccenv.simulation.scenario import Scenario


class PacketArena(BoxGame):
    """A scenario whose delay elements attack."""

    def __init__(self, scenario: Scenario, sender: Sender, warmup_rtts: int, window_rtts: int, goal: str) -> None:
        """Play a run. Raises as :class:`BoxGame`, and InputError where no trace can be made."""
        senders, attacked = senders_of(scenario, sender)
        others = named_boxes(scenario)
        super().__init__(
            scenario, senders, attacked, warmup_rtts=warmup_rtts, window_rtts=window_rtts, adversaries=others, goal=goal
        )
        self.sender = sender
        self.scene = replace_sender(self.scenario, attacked, sender.name)
        self.trace(KIND)
        self.kind_utilisation = self.measure(KIND)[0]  # without any delay by the delay elements
        self.flow_steps = 0

    @property
    def name(self) -> str:
        return self.scenario.name

    def searches(self, specs: Sequence[str]) -> dict[str, Search]:
        return {spec: SEARCHES[spec] if spec in SEARCHES else Scripted(scripted(spec)) for spec in specs}

    def replay(self, found: Found) -> Replayed:
        """Return the run of what a search found, which is counted."""
        player = found.player
        utilisation, value = self.measure(player)
        pattern = player.to_dict()
        return Replayed(
            trace=self.trace(player),
            worst_utilisation=utilisation,
            value=None if self.goal.name == UTILISATION else value,
            moves=player.words() if pattern else None,
            pattern=pattern or None,
        )

    def restore(self, finding: Finding) -> Found | None:
        """Return the player of an earlier finding; None if its state was not stored."""
        if finding.moves is None or finding.pattern is None:
            return None
        return Found(player=Stored(SEARCHES[finding.adversary].adversary, tuple(finding.moves.tolist()), finding.pattern))

    def check(self, trace: Trace) -> Sequence[Violation]:
        """Check a trace against the laws, with the slack of whole packets."""
        return check_packet_trace(trace)

    def describe(self) -> dict[str, Any]:
        scenario = self.scene.model_dump(mode="json", exclude_defaults=True)
        return {"kind_utilisation": self.kind_utilisation, "scenario": scenario}


def attack_boxes(
    sender: SenderLike,
    distribution: ScenarioDistribution,
    *,
    adversaries: Sequence[str] = tuple(SEARCHES),
    budget_flow_steps: int,
    seed: int = 0,
    warmup_rtts: int = DEFAULT_RTTS,
    window_rtts: int = DEFAULT_RTTS,
    goal: str = UTILISATION,
    report: Callable[[int, int], None] | None = None,
    finished: Callable[[Finding], None] | None = None,
    known: Mapping[str, Finding] | None = None,
    older: Mapping[str, Finding] | None = None,
) -> AttackResult[Scenario]:
    """Look for the moves of a scenario's delay elements that hurt a sender most; arguments as of ``ccenv.attacks.run.attack``.

    The sender plays every flow whose sender is ``external``; without any, flow 0. From ranges one draw that depends on the seed
    alone is played. Adversaries are names of SEARCHES, or scripted; goals are PACKET_GOALS; the budget counts ticks of 10 ms
    times flows. Raises UnknownNameError for an unknown adversary; InputError for a scenario without a delay element to play, or
    with several links; a budget below one run.
    """
    arena = PacketArena(draw_scenario(distribution, seed), as_sender(sender), warmup_rtts, window_rtts, goal)
    return play_attack(arena, adversaries, budget_flow_steps, seed, report=report, finished=finished, known=known, older=older)


def draw_scenario(distribution: ScenarioDistribution, seed: int) -> Scenario:
    """Return the scenario of an attack with a seed."""
    return distribution.drawn(np.random.Generator(np.random.Philox(key=[seed, len(distribution.leaves)])))


def senders_of(scenario: Scenario, player: Sender) -> tuple[list[Sender], list[int]]:
    """Return the sender of each flow, and the attacked flows: the external ones; without any, flow 0."""
    attacked = [index for index, flow in enumerate(scenario.flows) if flow.sender == EXTERNAL] or [0]
    return [player if index in attacked else load_sender(flow.sender) for index, flow in enumerate(scenario.flows)], attacked


def replace_sender(scenario: Scenario, attacked: Sequence[int], name: str) -> Scenario:
    flows = tuple(
        flow.model_copy(update={"sender": name}) if index in attacked else flow for index, flow in enumerate(scenario.flows)
    )
    return scenario.model_copy(update={"flows": flows})


def named_boxes(scenario: Scenario) -> dict[str, ScriptedAdversary]:
    """Return the adversaries of a scenario's delay elements that do not attack, by name."""
    names = {flow.jitter.adversary for flow in scenario.flows if flow.jitter.adversary} - {EXTERNAL}
    return {name: scripted(name) for name in names}
