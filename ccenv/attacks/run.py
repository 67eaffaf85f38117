"""Attack a sender with several adversaries on one path under one budget; every reported trace is replayed and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.agents.load import SenderLike, as_sender
from ccenv.agents.python_sender import bridge_of
from ccenv.agents.sender import Sender
from ccenv.attacks.catalog import PANEL, Search, make_search
from ccenv.attacks.game import UTILISATION, Game, Scene, generator, goal_of
from ccenv.attacks.scenes import attack_path, scene_of, scene_set
from ccenv.attacks.windows import ANY_WINDOW, Claim
from ccenv.base.errors import InputError, require_extra, shown
from ccenv.base.figure import table
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import Path
from ccenv.network.trace import Trace

DEFAULT_BUDGET = 20_000_000  # flow-steps: a few seconds for a classic CCA
LARGEST_BUDGET = 10**12  # days
PYTHON_BUDGET_S = 60.0
"""Default budget in seconds for a sender in plain Python, for which 20 million flow-steps would take many minutes."""
_TIMED_S, _TIMED_RUNS = 0.5, 4
DEFAULT_RTTS = 60  # warm-up and window


@dataclass(frozen=True)
class Finding:
    """The worst run that one adversary found.

    Attributes:
        adversary: its name; if several specs have one name, the spec.
        spec: name and parameters.
        worst_utilisation: the game's, on the recorded trace.
        legal: the independent checker accepts the trace; else see ``violations``.
        flow_steps: engine steps of flows that the search took.
        seconds: wall time; the only field that differs between equal runs.
        preconditions: of a construction: name -> whether it held, or the value measured.
        details: explain or replicate the finding.
        moves: (steps, 4) of a search, for replay; None for reactive adversaries and constructions.
        value: the goal's metric on the trace; None for utilisation, or if undefined.
    """

    adversary: str
    spec: str
    worst_utilisation: float
    legal: bool
    violations: tuple[str, ...]
    flow_steps: int
    seconds: float
    preconditions: dict[str, Any]
    details: dict[str, Any]
    trace: Trace
    moves: np.ndarray | None = None
    value: float | None = None

    def __repr__(self) -> str:
        return f"Finding({self.spec}: {self.worst_utilisation:.4g}{'' if self.legal else ', not legal'})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, without trace and moves."""
        data = {name: getattr(self, name) for name in ("spec", "worst_utilisation", "legal", "flow_steps", "seconds")}
        if self.value is not None:
            data["value"] = self.value
        if "ratio" in self.details:
            data["ratio"] = self.details["ratio"]
        if self.violations:
            data["violations"] = list(self.violations)
        if self.preconditions:
            data["preconditions"] = self.preconditions
        return data | ({"details": self.details} if self.details else {})


@dataclass(frozen=True)
class AttackResult:
    """The result of an attack.

    Attributes:
        sender: its name.
        seed: of the searches.
        by_adversary: name -> finding, in the order given; if several specs have one name, spec -> finding.
    """

    sender: str
    scene: Scene
    budget_flow_steps: int
    seed: int
    by_adversary: dict[str, Finding]

    @property
    def worst(self) -> Finding:
        """The worst legal finding by the goal (all are legal, unless the engine is broken)."""
        goal = goal_of(self.scene.goal)

        def badness(finding: Finding) -> float:
            return goal.badness(finding.worst_utilisation if goal.name == UTILISATION else finding.value)

        return min(self.by_adversary.values(), key=lambda f: (not f.legal, badness(f)))

    @property
    def worst_utilisation(self) -> float:
        """The lowest utilisation found; with another goal that of the worst run by it."""
        return self.worst.worst_utilisation

    @property
    def worst_adversary(self) -> str:
        """The adversary with the worst finding."""
        return self.worst.adversary

    @property
    def trace(self) -> Trace:
        """The trace of the worst finding."""
        return self.worst.trace

    @property
    def legal(self) -> bool:
        """Whether the independent checker accepts the traces of all findings."""
        return all(finding.legal for finding in self.by_adversary.values())

    def __repr__(self) -> str:
        return f"AttackResult({self.sender} on {self.scene.model}: {self.worst_utilisation:.4g} by {self.worst_adversary})"

    def to_frame(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row per adversary. Raises MissingExtraError without pandas."""
        require_extra("pandas", "bench")
        import pandas

        columns = ("worst_utilisation", "legal", "flow_steps", "seconds")
        rows = {name: {column: getattr(finding, column) for column in columns} for name, finding in self.by_adversary.items()}
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("adversary")

    def _repr_html_(self) -> str:
        """Show the findings and the worst trace in a notebook."""
        rows = [
            [name, finding.worst_utilisation, finding.legal, finding.flow_steps] for name, finding in self.by_adversary.items()
        ]
        return table(repr(self), ("adversary", "utilisation", "legal", "flow-steps"), rows) + self.trace._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object, without traces."""
        scene = self.scene
        names = ("model", "timing", "steps_per_rtt", "warmup_rtts", "window_rtts", "calm_rtts")
        return {
            "sender": self.sender,
            "worst_utilisation": self.worst_utilisation,
            "worst_adversary": self.worst_adversary,
            **({} if scene.goal == UTILISATION else {"goal": scene.goal, "worst_value": self.worst.value}),
            "legal": self.legal,
            "by_adversary": {name: finding.to_dict() for name, finding in self.by_adversary.items()},
            "flow_steps": sum(finding.flow_steps for finding in self.by_adversary.values()),
            "budget_flow_steps": self.budget_flow_steps,
            "seed": self.seed,
            **{name: getattr(scene, name) for name in names},
            **({"windows": scene.claim.text} if scene.timing == "smt" else {}),
            "scene": scene_of(scene.path),
            "scene_set": scene_set(scene_of(scene.path)),
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
    known: dict[str, Finding] | None = None,
) -> AttackResult:
    """Look for the network that hurts a sender most.

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
        goal: a name of ``ccenv.attacks.game.GOALS``; goals for several flows need a path with several.
        report: receives the flow-steps spent and allowed.
        finished: receives each finding.
        known: findings of an earlier, interrupted call with the same arguments, by name.

    Returns:
        AttackResult: with the trace of each finding.

    Raises:
        UnknownNameError: for an unknown sender, path, model, goal or adversary.
        InputError: for a number out of range, a model without choices, or a budget below what the adversaries need in all.
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
    searches = _build_searches(adversaries)
    least = _least_budget(searches, Game(scene))
    if budget_flow_steps is None:
        seconds = default_budget_s(target) if budget_s is None else budget_s
        budget_flow_steps = DEFAULT_BUDGET if seconds is None else max(least, flow_steps_within(scene, seconds))
    elif budget_s is not None:
        raise InputError("budget_flow_steps and budget_s: give one of them")
    if not isinstance(budget_flow_steps, int) or not 1 <= budget_flow_steps <= LARGEST_BUDGET:
        raise InputError(f"the budget is {shown(budget_flow_steps)} flow-steps; it must be 1 to {LARGEST_BUDGET}")
    if budget_flow_steps < least:
        raise InputError(
            f"the budget is {budget_flow_steps} flow-steps; {', '.join(searches)} take at least {least} in all: raise the budget"
        )
    findings: dict[str, Finding] = {}
    spent = 0
    fixed = [name for name, named in searches.items() if named.search.weight == 0]
    for name in [*fixed, *(name for name in searches if name not in fixed)]:
        if known and name in known:
            findings[name] = known[name]
        else:
            share = _allot_budget(name, searches, findings, budget_flow_steps - spent)
            findings[name] = _run_search(name, searches[name], scene, share, seed, spent, budget_flow_steps, report)
            if finished is not None:
                finished(findings[name])
        spent += findings[name].flow_steps
        if fixed and name == fixed[-1] and len(fixed) < len(searches) and spent > budget_flow_steps:
            raise InputError(
                f"the budget is {budget_flow_steps} flow-steps; {', '.join(fixed)} took {spent}, which does not depend on the "
                f"budget: give at least {spent}"
            )
    ordered = {name: findings[name] for name in searches}
    return AttackResult(target.name, scene, budget_flow_steps, seed, ordered)


def default_budget_s(sender: Sender) -> float | None:
    """Return the default budget of a sender in seconds, or None if the default is one in flow-steps."""
    return PYTHON_BUDGET_S if bridge_of(sender) is not None else None


def _least_budget(searches: dict[str, _Named], game: Game) -> int:
    """Return the smallest budget that suffices for each adversary by its weight; 0 if none depends on the budget."""
    needs = {
        name: one.search.least_flow_steps(game) if hasattr(one.search, "least_flow_steps") else game.run_flow_steps
        for name, one in searches.items()
    }
    weights = {name: Fraction(one.search.weight) for name, one in searches.items()}
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


@dataclass(frozen=True)
class _Named:
    """A search and the spec that it was built from."""

    spec: str
    search: Search


def _build_searches(adversaries: Sequence[str]) -> dict[str, _Named]:
    if isinstance(adversaries, str) or not adversaries:
        raise InputError(f"adversaries is {adversaries!r}; a list with at least one name is needed")
    if len(set(adversaries)) != len(adversaries):
        raise InputError(f"an adversary is named twice in {', '.join(adversaries)}")
    names_alone = [spec.partition(":")[0] for spec in adversaries]
    names = [name if names_alone.count(name) == 1 else spec for name, spec in zip(names_alone, adversaries, strict=True)]
    return {name: _Named(spec, make_search(spec)) for name, spec in zip(names, adversaries, strict=True)}


def _allot_budget(name: str, searches: dict[str, _Named], done: dict[str, Finding], left: int) -> int:
    """Return the next search's part of the remaining budget."""
    weight = searches[name].search.weight
    waiting = sum(one.search.weight for other, one in searches.items() if other not in done)
    return left if weight == 0 else max(0, int(left * weight / waiting))


def _run_search(
    name: str,
    named: _Named,
    scene: Scene,
    budget: int,
    seed: int,
    spent: int,
    total: int,
    report: Callable[[int, int], None] | None,
) -> Finding:
    game = Game(scene, None if report is None else lambda steps: report(spent + steps, total))
    begin = time.perf_counter()
    result = named.search.run(game, budget, seed)
    seconds = time.perf_counter() - begin
    if result.trace is not None:
        trace = result.trace
    elif result.adversary is not None:
        trace = game.trace(result.adversary)
    else:
        raise InputError(f"adversary {named.spec!r} came back with nothing to play")
    same_path = trace.header.path == scene.path  # a construction may have chosen another one
    played = result.adversary.moves if same_path and isinstance(result.adversary, RecordedAdversary) else None
    first_row = game.first_row if result.first_row is None else result.first_row
    violations = tuple(violation.message for violation in check_trace(trace))
    return Finding(
        name,
        named.spec,
        game.measure(trace, result.first_row),
        not violations,
        violations,
        game.flow_steps,
        round(seconds, 3),
        result.preconditions,
        result.details,
        trace,
        played,
        None if scene.goal == UTILISATION else game.goal.measure(trace, min(first_row, trace.n_steps - 1)),
    )
