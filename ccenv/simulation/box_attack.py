"""The worst periodic pattern of a scenario's jitter boxes for one sender: found, replayed, checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.adversaries.files import load_adversary
from ccenv.agents.files import SenderLike, as_sender, load_sender
from ccenv.errors import InputError, require_extra
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.sender import Sender
from ccenv.network.trace import Trace
from ccenv.simulation.boxes import EXTERNAL, KIND, PATTERN_VALUES, BoxGame, Pattern
from ccenv.simulation.legality import check_packet_trace
from ccenv.simulation.ranges import ScenarioDistribution
from ccenv.simulation.scenario import Scenario
from ccenv.sketch import table

CONSTANTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
PERIODS_RTTS = (1, 2, 4)
POPULATION, ELITE_SHARE, SMOOTHING, FIRST_STD, LEAST_STD = 32, 0.2, 0.7, 0.4, 0.02
SEARCHES = ("corners", "cem")
_COLUMNS = ("worst_utilisation", "legal", "flow_steps", "seconds")


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
        pattern: what the boxes played; None for a scripted adversary.
    """

    adversary: str
    worst_utilisation: float
    legal: bool
    violations: tuple[str, ...]
    runs: int
    flow_steps: int
    seconds: float
    trace: Trace
    pattern: Pattern | None = None

    def __repr__(self) -> str:
        return f"BoxFinding({self.adversary}: {self.worst_utilisation:.4g}{'' if self.legal else ', not legal'})"

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold; the trace is left out."""
        data = {name: getattr(self, name) for name in ("worst_utilisation", "legal", "runs", "flow_steps", "seconds")}
        data |= {"violations": list(self.violations)} if self.violations else {}
        return data | ({"pattern": self.pattern.to_dict()} if self.pattern else {})


@dataclass(frozen=True)
class BoxAttack:
    """What an attack came to.

    Attributes:
        sender: its name.
        scenario: as it was played.
        seed: of the searches, and of what ranges draw.
        kind_utilisation: where the boxes let everything go.
        by_adversary: name -> finding, in the order given.
    """

    sender: str
    scenario: Scenario
    seed: int
    kind_utilisation: float
    by_adversary: dict[str, BoxFinding]

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
        """The finding with the lowest utilisation."""
        return min(self.by_adversary.values(), key=lambda finding: finding.worst_utilisation)

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
    adversaries: Sequence[str] = SEARCHES,
    budget_flow_steps: int,
    seed: int = 0,
    warmup_rtts: int = 60,
    window_rtts: int = 60,
    report: Callable[[int, int], None] | None = None,
) -> BoxAttack:
    """Look for the pattern of a scenario's jitter boxes that hurts a sender most.

    Args:
        sender: plays every flow whose sender is ``external``; without any, flow 0.
        distribution: a scenario; of ranges, one draw that depends on the seed alone is played.
        adversaries: ``corners`` (constant shares), ``cem`` (the cross-entropy method over periodic patterns; Rubinstein, Kroese
            2004, algorithm 4.2), or scripted adversaries by name, which play the boxes in place of patterns.
        budget_flow_steps: ticks of 10 ms times flows in all.
        seed: of the searches and of the draw.
        warmup_rtts: before the measured window; the attack runs already.
        window_rtts: measured.
        report: called with the flow-steps spent and allowed.

    Raises:
        UnknownNameError: for an unknown adversary.
        InputError: for a scenario without a box to play, or with several links; a budget that does not pay for one run.
    """
    player = as_sender(sender)
    scenario = distribution.drawn(np.random.Generator(np.random.Philox(key=[seed, len(distribution.leaves)])))
    senders, attacked = senders_of(scenario, player)

    def game(players: Mapping[str, ScriptedAdversary] | None = None) -> BoxGame:
        return BoxGame(
            scenario,
            senders,
            attacked,
            warmup_rtts=warmup_rtts,
            window_rtts=window_rtts,
            adversaries=named_boxes(scenario, players),
        )

    if len(set(adversaries)) != len(adversaries):
        raise InputError(f"an adversary is named twice in {', '.join(adversaries)}")
    first = game()
    first.trace(KIND)  # raises where no trace can be made, before anything is searched
    kind = float(first.play([KIND])[0])
    findings: dict[str, BoxFinding] = {}
    spent = 0
    for place, name in enumerate(adversaries):
        begin, own = time.perf_counter(), game(None if name in SEARCHES else {EXTERNAL: scripted(name)})
        if name in SEARCHES:
            waiting = sum(other in SEARCHES for other in adversaries[place:])
            runs = (budget_flow_steps - spent) // waiting // own.steps_of_run - 1
            pattern: Pattern | None = search(own, name, runs, seed)
        else:
            pattern = None
        found = float(own.play([pattern or KIND])[0])
        trace = own.trace(pattern or KIND)
        violations = tuple(one.message for one in check_packet_trace(trace))
        steps = own.runs * own.steps_of_run
        spent += steps
        seconds = round(time.perf_counter() - begin, 3)
        findings[name] = BoxFinding(name, found, not violations, violations, own.runs, steps, seconds, trace, pattern)
        if report is not None:
            report(min(spent, budget_flow_steps), budget_flow_steps)
    return BoxAttack(player.name, replace_sender(first.scenario, attacked, player.name), seed, kind, findings)


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


def search(game: BoxGame, name: str, runs: int, seed: int) -> Pattern:
    """Return the worst pattern that a search finds with so many runs.

    Raises:
        InputError: for a budget that does not pay for one run.
    """
    if runs < 1:
        raise InputError(f"adversary {name!r} has a budget below one run of {game.steps_of_run} flow-steps: raise the budget")
    if name == "corners":
        patterns = [Pattern((share,)) for share in CONSTANTS][:runs]
        return patterns[int(np.argmin(game.play(patterns)))]
    rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
    best, worst = KIND, np.inf
    shapes = _shapes(game.ticks_of_rtt)[: max(1, runs // POPULATION)]
    for length, hold_ticks in shapes:
        for pattern, found in _cem(game, length, hold_ticks, runs // len(shapes), rng):
            if found < worst:
                best, worst = pattern, found
    return best


def _shapes(ticks_of_rtt: int) -> list[tuple[int, int]]:
    """Return lengths and holds of patterns that repeat after whole RTTs, as near as ticks allow; the finest last."""
    found = []
    for period in PERIODS_RTTS:
        ticks = period * ticks_of_rtt
        hold = -(-ticks // PATTERN_VALUES)
        found.append((max(2, round(ticks / hold)), hold))
    return list(dict.fromkeys(found))


def _cem(game: BoxGame, length: int, hold_ticks: int, runs: int, rng: np.random.Generator) -> list[tuple[Pattern, float]]:
    """Return the best of each generation."""
    mean, std = np.full(length, 0.5), np.full(length, FIRST_STD)
    best = []
    population = min(POPULATION, max(1, runs))
    for _ in range(max(1, runs // population)):
        drawn = np.clip(mean + std * rng.standard_normal((population, length)), 0.0, 1.0)
        patterns = [Pattern(tuple(row.tolist()), hold_ticks) for row in drawn]
        outcome = game.play(patterns)
        order = np.argsort(outcome, kind="stable")
        best.append((patterns[order[0]], float(outcome[order[0]])))
        elite = drawn[order[: max(2, round(ELITE_SHARE * population))]]
        mean = (1 - SMOOTHING) * mean + SMOOTHING * elite.mean(axis=0)
        std = np.maximum((1 - SMOOTHING) * std + SMOOTHING * elite.std(axis=0), LEAST_STD)
    return best
