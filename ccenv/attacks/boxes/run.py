"""Attack a sender with a scenario's delay elements, by several searches; every finding is replayed and checked."""

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
    """A finding in a file, with the name of its trace's file; see :class:`BoxFinding`."""

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
    """The worst run that one adversary found.

    Attributes:
        worst_utilisation: share of the link that the attacked flows got.
        legal: the independent checker accepts the trace, with the slack of whole packets; else see ``violations``.
        runs: cost of the search; ``flow_steps``: the same in ticks of 10 ms times flows.
        seconds: wall time; the only field that differs between equal runs.
        pattern: moves of the delay elements as JSON; None for a scripted adversary.
        value: the goal's metric; None for utilisation.
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
        """Return the JSON object, without the trace."""
        data = {name: getattr(self, name) for name in ("worst_utilisation", "legal", "runs", "flow_steps", "seconds")}
        data |= {"violations": list(self.violations)} if self.violations else {}
        data |= {} if self.value is None else {"value": self.value}
        return data | ({"pattern": self.pattern} if self.pattern else {})


@dataclass(frozen=True)
class BoxAttack:
    """The result of an attack.

    Attributes:
        sender: its name.
        scenario: as played.
        seed: of the searches, and of draws from ranges.
        kind_utilisation: without any delay by the delay elements.
        by_adversary: name -> finding, in the order given.
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

        rows = {name: {column: getattr(finding, column) for column in _COLUMNS} for name, finding in self.by_adversary.items()}
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("adversary")

    def _repr_html_(self) -> str:
        """Show the findings and the worst trace in a notebook."""
        rows = [[name, *(getattr(finding, column) for column in _COLUMNS)] for name, finding in self.by_adversary.items()]
        return table(repr(self), ("adversary", *_COLUMNS), rows) + self.worst.trace._repr_html_()

    @property
    def worst(self) -> BoxFinding:
        """The worst finding by the goal, by default the one with the lowest utilisation."""
        sign = box_goal(self.goal).sign
        findings = self.by_adversary.values()
        return min(findings, key=lambda finding: finding.worst_utilisation if finding.value is None else sign * finding.value)

    @property
    def legal(self) -> bool:
        """Whether the independent checker accepts the traces of all findings."""
        return all(finding.legal for finding in self.by_adversary.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, without traces."""
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
    """Look for the moves of a scenario's delay elements that hurt a sender most.

    Args:
        sender: of every flow whose sender is ``external``; without any, of flow 0.
        distribution: a scenario; from ranges one draw that depends on the seed alone is played.
        adversaries: searches (``SEARCHES``), or scripted adversaries by name.
        budget_flow_steps: ticks of 10 ms times flows in all.
        seed: of the searches and of the draw.
        warmup_rtts: before the measured window, already under attack.
        window_rtts: measured.
        goal: a name of ``ccenv.simulation.boxes.goals.GOALS``.
        report: receives the flow-steps spent and allowed.
        finished: receives each finding at once.
        known: findings of the same, interrupted attack, which are not searched again.

    Raises:
        UnknownNameError: for an unknown adversary.
        InputError: for a scenario without a delay element to play, or with several links; a budget below one run.
    """
    target = as_sender(sender)
    scenario = draw_scenario(distribution, seed)
    senders, attacked = senders_of(scenario, target)

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
    benign = first.measure(KIND)[0]
    findings: dict[str, BoxFinding] = {}
    spent = 0
    for index, name in enumerate(adversaries):
        if known and name in known:
            findings[name] = known[name]
            spent += known[name].flow_steps
            continue
        begin = time.perf_counter()
        box_game = game({EXTERNAL: players[name]})
        if name in SEARCHES:
            waiting = sum(other in SEARCHES for other in adversaries[index:])
            runs = (budget_flow_steps - spent) // waiting // box_game.steps_of_run - 1
            boxes: BoxPlayer | None = search(box_game, name, runs, seed)
        else:
            boxes = None
        utilisation, value = box_game.measure(boxes or KIND)
        trace = box_game.trace(boxes or KIND)
        violations = tuple(one.message for one in check_packet_trace(trace))
        steps = box_game.runs * box_game.steps_of_run
        spent += steps
        seconds = round(time.perf_counter() - begin, 3)
        goal_value = None if goal == UTILISATION else value
        pattern = None if boxes is None else boxes.to_dict()
        findings[name] = BoxFinding(
            name, utilisation, not violations, violations, box_game.runs, steps, seconds, trace, pattern, goal_value
        )
        if finished is not None:
            finished(findings[name])
        if report is not None:
            report(min(spent, budget_flow_steps), budget_flow_steps)
    return BoxAttack(target.name, replace_sender(first.scenario, attacked, target.name), seed, benign, findings, goal)


def draw_scenario(distribution: ScenarioDistribution, seed: int) -> Scenario:
    """Return the scenario of an attack with a seed."""
    return distribution.drawn(np.random.Generator(np.random.Philox(key=[seed, len(distribution.leaves)])))


def senders_of(scenario: Scenario, player: Sender) -> tuple[list[Sender], list[int]]:
    """Return the sender of each flow, and the attacked flows: the external ones; without any, flow 0."""
    attacked = [index for index, flow in enumerate(scenario.flows) if flow.sender == EXTERNAL] or [0]
    return [player if index in attacked else load_sender(flow.sender) for index, flow in enumerate(scenario.flows)], attacked


def replace_sender(scenario: Scenario, attacked: Sequence[int], name: str) -> Scenario:
    """Return a scenario with another sender's name in some flows."""
    flows = tuple(
        flow.model_copy(update={"sender": name}) if index in attacked else flow for index, flow in enumerate(scenario.flows)
    )
    return scenario.model_copy(update={"flows": flows})


def named_boxes(scenario: Scenario, players: Mapping[str, ScriptedAdversary] | None) -> dict[str, ScriptedAdversary]:
    """Return the adversaries of delay elements by name: those of the scenario, and the given ones."""
    names = {flow.jitter.adversary for flow in scenario.flows if flow.jitter.adversary} - {EXTERNAL}
    return {name: scripted(name) for name in names} | dict(players or {})


def scripted(name: str) -> ScriptedAdversary:
    """Return a scripted adversary. Raises UnknownNameError, or InputError for one of another kind."""
    adversary = load_adversary(name)
    if not isinstance(adversary, ScriptedAdversary):
        raise InputError(
            f"adversary {name!r} is not scripted; jitter boxes are played by {', '.join(SEARCHES)} or a scripted one"
        )
    return adversary
