"""The worst that a scenario's jitter boxes can do to one sender, by several searches: found, replayed, checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from ccenv.adversaries.load import load_adversary
from ccenv.agents.load import SenderLike, as_sender, load_sender
from ccenv.agents.sender import Sender
from ccenv.attacks.boxes.searches import SEARCHES, search
from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError, require_extra
from ccenv.base.figure import table
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.trace import Trace
from ccenv.simulation.boxes.game import EXTERNAL, BoxGame
from ccenv.simulation.boxes.goals import UTILISATION, box_goal
from ccenv.simulation.boxes.players import KIND, BoxPlayer
from ccenv.simulation.packet_trace import check_packet_trace
from ccenv.simulation.ranges import ScenarioDistribution
from ccenv.simulation.scenario import Scenario

_COLUMNS = ("worst_utilisation", "legal", "flow_steps", "seconds")


class StoredBoxFinding(StrictModel):
    """A finding as a file has it, with the name of its trace's file; see :class:`BoxFinding`."""

    worst_utilisation: float = Field(allow_inf_nan=False)
    legal: bool = Field(strict=True)
    violations: tuple[str, ...] = ()
    runs: int = Field(ge=0, strict=True)
    flow_steps: int = Field(ge=0, strict=True)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    pattern: dict[str, Any] | None = None
    value: float | None = None
    trace: str


@dataclass(frozen=True)
class BoxFinding:
    """The worst that one adversary found.

    Attributes:
        adversary: its name.
        worst_utilisation: share of the link that the attacked flows got.
        legal: the independent checker accepts the trace, with the slack of whole packets.
        violations: what it says otherwise.
        runs: that the search took.
        flow_steps: the same in ticks of 10 ms times flows.
        seconds: wall time; the only field that differs between equal runs.
        trace: the run.
        pattern: what the boxes played, as JSON has it; None for a scripted adversary.
        value: what the goal measures; None where that is the utilisation.
    """

    adversary: str
    worst_utilisation: float
    legal: bool
    violations: tuple[str, ...]
    runs: int
    flow_steps: int
    seconds: float
    trace: Trace
    pattern: dict[str, Any] | None = None
    value: float | None = None

    def __repr__(self) -> str:
        return f"BoxFinding({self.adversary}: {self.worst_utilisation:.4g}{'' if self.legal else ', not legal'})"

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; the trace is left out."""
        data = {name: getattr(self, name) for name in ("worst_utilisation", "legal", "runs", "flow_steps", "seconds")}
        data |= {"violations": list(self.violations)} if self.violations else {}
        data |= {} if self.value is None else {"value": self.value}
        return data | ({"pattern": self.pattern} if self.pattern else {})


@dataclass(frozen=True)
class BoxAttack:
    """What an attack came to.

    Attributes:
        sender: its name.
        scenario: as it was played.
        seed: of the searches, and of what ranges draw.
        kind_utilisation: where the boxes let everything go.
        by_adversary: name -> finding, in the order given.
        goal: what the boxes aimed at.
    """

    sender: str
    scenario: Scenario
    seed: int
    kind_utilisation: float
    by_adversary: dict[str, BoxFinding]
    goal: str = UTILISATION

    def __repr__(self) -> str:
        worst = self.worst
        return f"BoxAttack({self.sender} in {self.scenario.name}: {worst.worst_utilisation:.4g} by {worst.adversary})"

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row per adversary. Raises MissingExtraError without pandas."""
        require_extra("pandas", "bench")
        import pandas

        rows = {name: {column: getattr(found, column) for column in _COLUMNS} for name, found in self.by_adversary.items()}
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("adversary")

    def _repr_html_(self) -> str:
        """Show the findings and the worst trace in a notebook."""
        rows = [[name, *(getattr(found, column) for column in _COLUMNS)] for name, found in self.by_adversary.items()]
        return table(repr(self), ("adversary", *_COLUMNS), rows) + self.worst.trace._repr_html_()

    @property
    def worst(self) -> BoxFinding:
        """The finding that serves the goal best: by default the one with the lowest utilisation."""
        sign = box_goal(self.goal).sign
        found = self.by_adversary.values()
        return min(found, key=lambda one: one.worst_utilisation if one.value is None else sign * one.value)

    @property
    def legal(self) -> bool:
        """Whether the independent checker accepts the traces of all findings."""
        return all(finding.legal for finding in self.by_adversary.values())

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; traces are left out."""
        return {
            "sender": self.sender,
            "worst_utilisation": self.worst.worst_utilisation,
            "worst_adversary": self.worst.adversary,
            **({} if self.goal == UTILISATION else {"goal": self.goal, "worst_value": self.worst.value}),
            "kind_utilisation": self.kind_utilisation,
            "legal": self.legal,
            "by_adversary": {name: finding.to_dict() for name, finding in self.by_adversary.items()},
            "flow_steps": sum(finding.flow_steps for finding in self.by_adversary.values()),
            "seed": self.seed,
            "scenario": self.scenario.model_dump(mode="json", exclude_defaults=True),
        }


def attack_boxes(
    sender: SenderLike,
    distribution: ScenarioDistribution,
    *,
    adversaries: Sequence[str] = tuple(SEARCHES),
    budget_flow_steps: int,
    seed: int = 0,
    warmup_rtts: int = 60,
    window_rtts: int = 60,
    goal: str = UTILISATION,
    report: Callable[[int, int], None] | None = None,
    finished: Callable[[BoxFinding], None] | None = None,
    known: Mapping[str, BoxFinding] | None = None,
) -> BoxAttack:
    """Look for what a scenario's jitter boxes must do to hurt a sender most.

    Args:
        sender: plays every flow whose sender is ``external``; without any, flow 0.
        distribution: a scenario; of ranges, one draw that depends on the seed alone is played.
        adversaries: searches (``box_searches.SEARCHES``), or scripted adversaries by name, which play the boxes themselves.
        budget_flow_steps: ticks of 10 ms times flows in all.
        seed: of the searches and of the draw.
        warmup_rtts: before the measured window; the attack runs already.
        window_rtts: measured.
        goal: what the boxes aim at, a name of ``box_goals.GOALS``.
        report: called with the flow-steps spent and allowed.
        finished: called with each finding as soon as it is there.
        known: findings of the same attack, interrupted: they are not looked for again.

    Raises:
        UnknownNameError: for an unknown adversary.
        InputError: for a scenario without a box to play, or with several links; a budget that does not pay for one run.
    """
    player = as_sender(sender)
    scenario = drawn_by(distribution, seed)
    senders, attacked = senders_of(scenario, player)

    def game(players: Mapping[str, ScriptedAdversary] | None = None) -> BoxGame:
        return BoxGame(
            scenario,
            senders,
            attacked,
            warmup_rtts=warmup_rtts,
            window_rtts=window_rtts,
            adversaries=named_boxes(scenario, players),
            goal=goal,
        )

    if len(set(adversaries)) != len(adversaries):
        raise InputError(f"an adversary is named twice in {', '.join(adversaries)}")
    players = {name: SEARCHES[name].adversary if name in SEARCHES else scripted(name) for name in adversaries}
    first = game()
    least = (len(players) + sum(name in SEARCHES for name in players)) * first.steps_of_run  # of a search two runs
    if budget_flow_steps < least:
        raise InputError(
            f"the budget is {budget_flow_steps} flow-steps; {', '.join(players)} take at least {least} in all: raise the budget"
        )
    first.trace(KIND)  # raises where no trace can be made, before anything is searched
    kind = first.measure(KIND)[0]
    findings: dict[str, BoxFinding] = {}
    spent = 0
    for place, name in enumerate(adversaries):
        if known and name in known:
            findings[name] = known[name]
            spent += known[name].flow_steps
            continue
        begin = time.perf_counter()
        own = game({EXTERNAL: players[name]})
        if name in SEARCHES:
            waiting = sum(other in SEARCHES for other in adversaries[place:])
            runs = (budget_flow_steps - spent) // waiting // own.steps_of_run - 1
            boxes: BoxPlayer | None = search(own, name, runs, seed)
        else:
            boxes = None
        found, value = own.measure(boxes or KIND)
        trace = own.trace(boxes or KIND)
        violations = tuple(one.message for one in check_packet_trace(trace))
        steps = own.runs * own.steps_of_run
        spent += steps
        seconds = round(time.perf_counter() - begin, 3)
        aimed = None if goal == UTILISATION else value
        pattern = None if boxes is None else boxes.to_dict()
        findings[name] = BoxFinding(name, found, not violations, violations, own.runs, steps, seconds, trace, pattern, aimed)
        if finished is not None:
            finished(findings[name])
        if report is not None:
            report(min(spent, budget_flow_steps), budget_flow_steps)
    return BoxAttack(player.name, replace_sender(first.scenario, attacked, player.name), seed, kind, findings, goal)


def drawn_by(distribution: ScenarioDistribution, seed: int) -> Scenario:
    """Return the scenario that an attack with a seed plays."""
    return distribution.drawn(np.random.Generator(np.random.Philox(key=[seed, len(distribution.leaves)])))


def senders_of(scenario: Scenario, player: Sender) -> tuple[list[Sender], list[int]]:
    """Return the sender of each flow, and the flows that the player plays: the external ones; without any, flow 0."""
    attacked = [index for index, flow in enumerate(scenario.flows) if flow.sender == EXTERNAL] or [0]
    return [player if index in attacked else load_sender(flow.sender) for index, flow in enumerate(scenario.flows)], attacked


def replace_sender(scenario: Scenario, attacked: Sequence[int], name: str) -> Scenario:
    """Return a scenario in which some flows have another sender's name."""
    flows = tuple(
        flow.model_copy(update={"sender": name}) if index in attacked else flow for index, flow in enumerate(scenario.flows)
    )
    return scenario.model_copy(update={"flows": flows})


def named_boxes(scenario: Scenario, players: Mapping[str, ScriptedAdversary] | None) -> dict[str, ScriptedAdversary]:
    """Return the adversaries of the boxes that have a name of their own, and those that are given."""
    names = {flow.jitter.adversary for flow in scenario.flows if flow.jitter.adversary} - {EXTERNAL}
    return {name: scripted(name) for name in names} | dict(players or {})


def scripted(name: str) -> ScriptedAdversary:
    """Return a scripted adversary. Raises UnknownNameError, or InputError for one of another kind."""
    player = load_adversary(name)
    if not isinstance(player, ScriptedAdversary):
        raise InputError(
            f"adversary {name!r} is not scripted; jitter boxes are played by {', '.join(SEARCHES)} or a scripted one"
        )
    return player
