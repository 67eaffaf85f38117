"""Attack a sender with several adversaries in one arena under one budget; every reported trace is replayed and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np

from ccenv.agents.load import SenderLike, as_sender
from ccenv.agents.python_sender import find_bridge
from ccenv.agents.sender import Sender
from ccenv.attacks.catalog import PANEL, Search, make_search
from ccenv.attacks.game import Found, Game, Scene, generator
from ccenv.attacks.goals import UTILISATION, Goal
from ccenv.attacks.scenes import attack_path, scene_of, scene_set
from ccenv.attacks.windows import ANY_WINDOW, Claim
from ccenv.base.errors import InputError, shown
from ccenv.base.results import TableResult
from ccenv.network.adversary import Adversary, RecordedAdversary
from ccenv.network.laws import Violation, check_trace
from ccenv.network.path import Path
from ccenv.network.trace import Trace

DEFAULT_BUDGET = 20_000_000  # flow-steps: a few seconds for a classic CCA
LARGEST_BUDGET = 10**12  # days
PYTHON_BUDGET_S = 60.0
"""Default budget in seconds for a sender in plain Python, for which 20 million flow-steps would take many minutes."""
_TIMED_S, _TIMED_RUNS = 0.5, 4
DEFAULT_RTTS = 60  # warm-up and window
COLUMNS = ("worst_utilisation", "legal", "flow_steps", "seconds")
PlaceT_co = TypeVar("PlaceT_co", covariant=True)
"""What a sender is attacked in: a Scene on curves, a Scenario per packet."""


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The run of what a search found."""

    trace: Trace
    worst_utilisation: float  # in the measured window, on the trace; per packet the share of the link that the attacked flows got
    value: float | None = None  # the goal's metric; None for utilisation, or if undefined
    # which repeat the run: (steps, 2 + 2 N), per packet the state of a delay element; None for reactive adversaries and
    # constructions
    moves: np.ndarray | None = None
    pattern: dict[str, Any] | None = None  # per packet, the moves as JSON


@dataclass(frozen=True, kw_only=True)
class Finding(Replayed):
    """The worst run that one adversary found."""

    adversary: str  # its name; if several specs have one name, the spec
    spec: str = ""  # name and parameters; empty per packet, where it is the name
    legal: bool  # the independent checker accepts the trace; else see `violations`
    violations: tuple[str, ...] = ()
    runs: int | None = None  # per packet, the cost of the search
    flow_steps: int  # the same in engine steps of flows
    seconds: float  # wall time; the only field that differs between equal runs
    # of a construction: name -> whether it held, or the value measured
    preconditions: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)  # explain or replicate the finding
    found_by: str | None = None  # hash of the code that found it, if that is older: its moves were replayed with the same outcome

    def __repr__(self) -> str:
        return f"Finding({self.spec or self.adversary}: {self.worst_utilisation:.4g}{'' if self.legal else ', not legal'})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, without trace and moves."""
        data = {name: getattr(self, name) for name in ("spec", "worst_utilisation", "legal", "runs", "flow_steps", "seconds")}
        data |= {"value": self.value, "ratio": self.details.get("ratio"), "violations": list(self.violations)}
        data |= {name: getattr(self, name) for name in ("preconditions", "details", "pattern", "found_by")}
        return {name: value for name, value in data.items() if value not in (None, "", [], {})}


class Arena(Protocol[PlaceT_co]):
    """Where a sender is attacked; each of its searches plays its own kind of moves there."""

    flow_steps: int  # engine steps of flows spent so far
    report: Callable[[int], None] | None

    @property
    def goal(self) -> Goal:
        """What the adversaries aim at."""

    @property
    def sender(self) -> Sender:
        """The sender under attack."""

    @property
    def scene(self) -> PlaceT_co:
        """What it is attacked in."""

    @property
    def name(self) -> str:
        """The same in a word."""

    @property
    def run_flow_steps(self) -> int:
        """Engine steps of all flows in one run."""

    def searches(self, specs: Sequence[str]) -> dict[str, Search]:
        """Return the searches of some specs by name, in their order. Raises UnknownNameError or InputError."""

    def replay(self, found: Found) -> Replayed:
        """Return the run of what a search found, which may be counted."""

    def restore(self, finding: Finding) -> Found | None:
        """Return what repeats the run of an earlier finding; None if nothing does."""

    def check(self, trace: Trace) -> Sequence[Violation]:
        """Check a trace against the laws of its model."""

    def describe(self) -> dict[str, Any]:
        """Return what the sender is attacked in as keys of a result in JSON."""


@dataclass(frozen=True)
class AttackResult(TableResult, Generic[PlaceT_co]):
    """The result of an attack.

    Attributes:
        scene: what it was attacked in: a Scene, or a Scenario with the sender's name.
        name: the same in a word.
        by_adversary: name -> finding, in the order given; if several specs have one name, spec -> finding.
        described: the scene as keys of the JSON object.
    """

    sender: str
    scene: PlaceT_co
    name: str
    goal: Goal
    budget_flow_steps: int
    seed: int
    by_adversary: dict[str, Finding]
    described: dict[str, Any]

    def value_of(self, finding: Finding) -> float | None:
        """Return the goal's metric of a finding; None if it is undefined."""
        return finding.worst_utilisation if self.goal.name == UTILISATION else finding.value

    @property
    def worst(self) -> Finding:
        """The worst legal finding by the goal (all are legal, unless the engine is broken)."""
        return min(self.by_adversary.values(), key=lambda one: (not one.legal, self.goal.badness(self.value_of(one))))

    @property
    def worst_utilisation(self) -> float:
        """The lowest utilisation found; with another goal that of the worst run by it."""
        return self.worst.worst_utilisation

    @property
    def worst_adversary(self) -> str:
        return self.worst.adversary

    @property
    def trace(self) -> Trace:
        return self.worst.trace

    @property
    def legal(self) -> bool:
        """Whether the independent checker accepts the traces of all findings."""
        return all(finding.legal for finding in self.by_adversary.values())

    @property
    def of_older_code(self) -> list[str]:
        """Adversaries whose findings are of older code, and were replayed with the same outcome."""
        return [name for name, finding in self.by_adversary.items() if finding.found_by is not None]

    def __repr__(self) -> str:
        return f"AttackResult({self.sender} on {self.name}: {self.worst_utilisation:.4g} by {self.worst_adversary})"

    row_name = "adversary"

    def _rows(self) -> list[dict[str, Any]]:
        findings = self.by_adversary.items()
        return [{"adversary": name, **{column: getattr(finding, column) for column in COLUMNS}} for name, finding in findings]

    def _picture(self) -> str:
        return self.trace._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, without traces."""
        return {
            "sender": self.sender,
            "worst_utilisation": self.worst_utilisation,
            "worst_adversary": self.worst_adversary,
            **({} if self.goal.name == UTILISATION else {"goal": self.goal.name, "worst_value": self.worst.value}),
            "legal": self.legal,
            "by_adversary": {name: finding.to_dict() for name, finding in self.by_adversary.items()},
            **({"of_older_code": self.of_older_code} if self.of_older_code else {}),
            "flow_steps": sum(finding.flow_steps for finding in self.by_adversary.values()),
            "budget_flow_steps": self.budget_flow_steps,
            "seed": self.seed,
            **self.described,
        }


class CurveArena(Game):
    """A game as an arena."""

    @property
    def sender(self) -> Sender:
        return self.scene.sender

    @property
    def name(self) -> str:
        return self.scene.model

    def searches(self, specs: Sequence[str]) -> dict[str, Search]:
        """Return the searches of some specs by name; if several have one name, by spec."""
        names = [spec.partition(":")[0] for spec in specs]
        unique = [name if names.count(name) == 1 else spec for name, spec in zip(names, specs, strict=True)]
        return {name: make_search(spec) for name, spec in zip(unique, specs, strict=True)}

    def replay(self, found: Found) -> Replayed:
        """Return the run of what a search found, which is not counted."""
        trace = self.trace(cast(Adversary, found.adversary)) if found.trace is None else found.trace
        same_path = trace.header.path == self.scene.path  # a construction may have chosen another one
        first_row = self.first_row if found.first_row is None else found.first_row
        return Replayed(
            trace=trace,
            worst_utilisation=self.measure(trace, first_row),
            value=None if self.scene.goal == UTILISATION else self.goal.measure(trace, min(first_row, trace.n_steps - 1)),
            moves=found.adversary.moves if same_path and isinstance(found.adversary, RecordedAdversary) else None,
        )

    def restore(self, finding: Finding) -> Found | None:
        """Return the moves of an earlier finding; None if it has none."""
        return None if finding.moves is None else Found(RecordedAdversary(finding.adversary, finding.moves))

    def check(self, trace: Trace) -> Sequence[Violation]:
        return check_trace(trace)

    def describe(self) -> dict[str, Any]:
        scene, scene_name = self.scene, scene_of(self.scene.path)
        names = ("model", "timing", "steps_per_rtt", "warmup_rtts", "window_rtts", "calm_rtts")
        return {
            **{name: getattr(scene, name) for name in names},
            **({"windows": scene.claim.text} if scene.timing == "smt" else {}),
            "scene": scene_name,
            "scene_set": scene_set(scene_name),
            "path": scene.path.to_dict(),
        }


def attack(
    sender: SenderLike,
    *,
    path: Path | str = "deep",
    model: str = "ccac",
    adversaries: Sequence[str] = PANEL,
    budget_flow_steps: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    timing: str = "engine",
    steps_per_rtt: int | None = None,
    warmup_rtts: int = DEFAULT_RTTS,
    window_rtts: int = DEFAULT_RTTS,
    calm_rtts: int = 0,
    claim: Claim = ANY_WINDOW,
    goal: str = UTILISATION,
    report: Callable[[int, int], None] | None = None,
    finished: Callable[[Finding], None] | None = None,
    known: Mapping[str, Finding] | None = None,
    older: Mapping[str, Finding] | None = None,
) -> AttackResult[Scene]:
    """Look for the network that hurts a sender most.

    Raises UnknownNameError for an unknown sender, path, model, goal or adversary; InputError for a number out of range, a model
    without choices, or a budget below what the adversaries need in all.

    Args:
        sender: a sender, a class of PythonSender, or what ``ccenv.agents.load.load_sender`` takes: a name, a program's or
            Python file, a run's folder.
        path: one of PATHS by name, or any other; the sender plays all its flows.
        model: network model.
        adversaries: searches, scripted adversaries, constructions, by name with optional parameters; Python files of users.
        budget_flow_steps: engine steps of flows in all. Adversaries that need a fixed number come first; the searches share the
            rest by their weights, and each passes its remainder to the next. Default: 20 million.
        budget_s: instead, seconds on this machine, converted to flow-steps by :func:`flow_steps_within`; the result has the
            number. For a sender in plain Python the default is 60 s.
        seed: of searches and senders; equal seeds give equal results.
        timing: ``engine``, or ``smt`` for proof timing (K = 1), where utilisation is that of the worst window of ``claim``,
            counted as in the proofs.
        steps_per_rtt: K; default 8, and 1 in proof timing.
        warmup_rtts: Rm before the measured window, already under attack.
        window_rtts: Rm measured.
        calm_rtts: Rm at the start with a benign network.
        claim: in proof timing, the windows that count; by default all of T = 10 samples.
        goal: a name of ``ccenv.attacks.goals.GOALS``; goals for several flows need a path with several.
        report: receives the flow-steps spent and allowed.
        finished: receives each finding.
        known: findings of an earlier, interrupted call with the same arguments, by name.
        older: the same of older code: those whose moves have the same outcome today are kept, the others searched again.

    Returns:
        AttackResult: with the trace of each finding.
    """
    target = as_sender(sender)
    scene = Scene(
        target,
        attack_path(path),
        model,
        timing=timing,
        steps_per_rtt=(1 if timing == "smt" else 8) if steps_per_rtt is None else steps_per_rtt,
        warmup_rtts=warmup_rtts,
        window_rtts=window_rtts,
        calm_rtts=calm_rtts,
        seed=seed,
        claim=claim,
        goal=goal,
    )
    arena = CurveArena(scene)
    if budget_flow_steps is None:
        least = least_budget(arena, build_searches(arena, adversaries))
        seconds = default_budget_s(target) if budget_s is None else budget_s
        budget_flow_steps = DEFAULT_BUDGET if seconds is None else max(least, flow_steps_within(scene, seconds))
    elif budget_s is not None:
        raise InputError("budget_flow_steps and budget_s: give one of them")
    return play_attack(arena, adversaries, budget_flow_steps, seed, report=report, finished=finished, known=known, older=older)


def play_attack(
    arena: Arena[PlaceT_co],
    adversaries: Sequence[str],
    budget_flow_steps: int,
    seed: int,
    *,
    report: Callable[[int, int], None] | None = None,
    finished: Callable[[Finding], None] | None = None,
    known: Mapping[str, Finding] | None = None,
    older: Mapping[str, Finding] | None = None,
) -> AttackResult[PlaceT_co]:
    searches = build_searches(arena, adversaries)
    specs = dict(zip(searches, adversaries, strict=True))
    least = least_budget(arena, searches)
    if not isinstance(budget_flow_steps, int) or not 1 <= budget_flow_steps <= LARGEST_BUDGET:
        raise InputError(f"the budget is {shown(budget_flow_steps)} flow-steps; it must be 1 to {LARGEST_BUDGET}")
    if budget_flow_steps < least:
        raise InputError(
            f"the budget is {budget_flow_steps} flow-steps; {', '.join(searches)} take at least {least} in all: raise the budget"
        )
    if report is not None:
        arena.report = lambda spent: report(min(spent, budget_flow_steps), budget_flow_steps)
        arena.report(0)
    findings: dict[str, Finding] = {}
    fixed = [name for name, search in searches.items() if search.weight == 0]
    for name in [*fixed, *(name for name in searches if name not in fixed)]:
        spent = arena.flow_steps
        if known and name in known:
            findings[name] = known[name]
        else:
            kept = _repeat(arena, older[name]) if older and name in older else None
            arena.flow_steps = spent
            share = _allot_budget(searches, findings, name, budget_flow_steps - spent)
            findings[name] = kept or _search(arena, searches[name], name, specs[name], share, seed)
            if finished is not None:
                finished(findings[name])
        spent = arena.flow_steps = spent + findings[name].flow_steps
        if fixed and name == fixed[-1] and len(fixed) < len(searches) and spent > budget_flow_steps:
            raise InputError(
                f"the budget is {budget_flow_steps} flow-steps; {', '.join(fixed)} took {spent}, which does not depend on the "
                f"budget: give at least {spent}"
            )
    ordered = {name: findings[name] for name in searches}
    described = arena.describe()
    return AttackResult(arena.sender.name, arena.scene, arena.name, arena.goal, budget_flow_steps, seed, ordered, described)


def default_budget_s(sender: Sender) -> float | None:
    """Return the default budget of a sender in seconds, or None if the default is one in flow-steps."""
    return PYTHON_BUDGET_S if find_bridge(sender) is not None else None


def build_searches(arena: Arena[Any], adversaries: Sequence[str]) -> dict[str, Search]:
    """Return the searches of an attack by name. Raises UnknownNameError or InputError."""
    if isinstance(adversaries, str) or not adversaries:
        raise InputError(f"adversaries is {adversaries!r}; a list with at least one name is needed")
    if len(set(adversaries)) != len(adversaries):
        raise InputError(f"an adversary is named twice in {', '.join(adversaries)}")
    return arena.searches(adversaries)


def least_budget(arena: Arena[Any], searches: Mapping[str, Search]) -> int:
    """Return the smallest budget that suffices for each adversary by its weight; 0 if none depends on the budget."""
    needs = {
        name: search.least_flow_steps(arena) if hasattr(search, "least_flow_steps") else arena.run_flow_steps
        for name, search in searches.items()
    }
    weights = {name: Fraction(search.weight) for name, search in searches.items()}
    shared = [need * sum(weights.values()) / weights[name] for name, need in needs.items() if weights[name]]
    return sum(need for name, need in needs.items() if not weights[name]) + math.ceil(max(shared)) if shared else 0


def flow_steps_within(scene: Scene, seconds: float) -> int:
    """Return about how many flow-steps this machine plays in a time, rounded down to 1, 2 or 5 times a power of ten.

    Some runs of the scenario are played and timed. Raises InputError if ``seconds`` is no positive number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise InputError(f"the budget is {shown(seconds)} s; it must be above 0")
    game = Game(scene)
    moves = game.moves(generator(0, "speed").random((_TIMED_RUNS, game.n_steps, len(game.open_moves))))
    game.play(moves[:1])  # compiles
    first, begin = game.flow_steps, time.perf_counter()
    while (elapsed_s := time.perf_counter() - begin) < _TIMED_S:
        game.play(moves)
    paid = max(1.0, (game.flow_steps - first) / elapsed_s * seconds)
    power: int = 10 ** int(math.log10(paid))
    round_steps = max(factor * power for factor in (1, 2, 5) if factor * power <= paid)
    return min(max(round_steps, game.run_flow_steps), LARGEST_BUDGET)


def _allot_budget(searches: Mapping[str, Search], done: Mapping[str, Finding], name: str, left: int) -> int:
    """Return the next search's part of the remaining budget."""
    weight = searches[name].weight
    waiting = sum(search.weight for other, search in searches.items() if other not in done)
    return left if weight == 0 else max(0, int(left * weight / waiting))


def _search(arena: Arena[Any], search: Search, name: str, spec: str, budget_flow_steps: int, seed: int) -> Finding:
    spent, begin = arena.flow_steps, time.perf_counter()
    found = search.run(arena, budget_flow_steps, seed)
    seconds = round(time.perf_counter() - begin, 3)
    if found.trace is None and found.adversary is None and found.player is None:
        raise InputError(f"adversary {spec!r} came back with nothing to play")
    run = arena.replay(found)
    violations = tuple(violation.message for violation in arena.check(run.trace))
    return Finding(
        **vars(run),
        adversary=name,
        spec=spec if found.player is None else "",
        legal=not violations,
        violations=violations,
        runs=None if found.player is None else (arena.flow_steps - spent) // arena.run_flow_steps,
        flow_steps=arena.flow_steps - spent,
        seconds=seconds,
        preconditions=found.preconditions,
        details=found.details,
    )


def _repeat(arena: Arena[Any], finding: Finding) -> Finding | None:
    """Replay a finding of older code; return it with today's trace, or None if the outcome differs or cannot be repeated."""
    found = arena.restore(finding)
    run = None if found is None else arena.replay(found)
    if run is None or (run.worst_utilisation, run.value) != (finding.worst_utilisation, finding.value):
        return None
    violations = tuple(violation.message for violation in arena.check(run.trace))
    return replace(finding, **vars(run), legal=not violations, violations=violations)
