"""Answers about shields around a program: obstacles, which counterexamples rule out, and the store, one line per query.

A shield that allows the rates of a counterexample at the same beliefs allows the whole trace, whatever its other leaves are.
One refuted shield therefore rules out many more than those around it, without another solver call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np

from ccenv.agents.programs import Expression, Leaf, Program, interval, to_data
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, hash_value
from ccenv.base.store import ResultFolder
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import BOUNDS
from ccenv.proofs.replay.exact import Decision, Run, number, replay
from ccenv.proofs.senders.program import program_decider, program_inputs
from ccenv.proofs.solver.solvers import plain_value, read_value
from ccenv.training.shields.boxes import (
    OFFSET_LEVELS,
    SCALE_LEVELS,
    Levels,
    Side,
    by_side,
    directions,
    is_below,
    move_end,
    number_leaves,
    widen_program,
)

ANSWERS = "answers.jsonl"
RESULTS = ("shield.json", "lemmas.yaml", "result.json")
FORMAT = Format("ccenv-contract-answers", 2, "answers about shields", older="--fresh discards them", indent=None)

Answer = Literal["proved", "refuted", "undecided"]
Ask = Callable[[Levels], Mapping[str, Query]]
"""Returns the queries of a shield by name."""


class AnswerStore(ResultFolder):
    """Stored answers about shields; the context replays them.

    A shield inside a proved one is proved, and one around a refuted one is refuted, query by query. A refutation includes its
    counterexample, which rules out every shield that allows the same choices.

    Attributes:
        held, refuted: query -> levels.
        undecided: query -> levels -> the time limit at which the solver gave up.
        obstacles: one per refutation, in the order of the answers.
        seconds: solver time of each shield, summed over its queries.
        last_proof_s: time of the newest proof of each query.
    """

    def __init__(self, folder: FilePath, program: Program, question: dict[str, Any], ask: Ask, fresh: bool = False) -> None:
        self._head = {"about": hash_value({"program": to_data(program), **question})}
        super().__init__(folder, "a widening", ANSWERS, FORMAT, self._head, fresh=fresh, owns=RESULTS)
        self.program = program
        self.held: dict[str, list[Levels]] = {}
        self.refuted: dict[str, list[Levels]] = {}
        self.undecided: dict[str, dict[Levels, float]] = {}
        self.obstacles: list[Obstacle] = []
        self.seconds: dict[Levels, float] = {}
        self.last_proof_s: dict[str, float] = {}
        self._ask = cache(ask)

    def start(self) -> None:
        """Replay the stored answers. Raises InputError for one that is damaged."""
        if self.stored is None:
            self.write(self._head)
        self.rows = self.journal(ANSWERS, self._replay, "an answer about a shield")

    @property
    def answers(self) -> int:
        return len(self.rows.lines)

    @property
    def levels(self) -> set[Levels]:
        """The shields about which some query was proved."""
        return {levels for proved in self.held.values() for levels in proved}

    def _replay(self, row: Any) -> bool:
        """Take over a stored answer; False if it is none. Raises InputError for one that fits no query, or does not replay."""
        levels: Any = row.get("levels") if isinstance(row, dict) else None
        ranges = [range(direction.most + 1) for direction in directions(self.program)]
        if not isinstance(levels, list) or len(levels) != len(ranges):
            return False
        if not all(type(level) is int and level in allowed for level, allowed in zip(levels, ranges, strict=True)):
            return False
        answer, limit_s, seconds = row.get("answer"), row.get("limit_s"), row.get("seconds")
        times_valid = all(type(number) in (int, float) and number >= 0 for number in (limit_s, seconds))
        if answer not in ("proved", "refuted", "undecided") or not times_valid:
            return False
        queries = self._ask(tuple(levels))
        if row.get("query") not in queries:
            raise InputError(f"{str(row.get('query'))[:60]!r} is none of the queries")
        try:
            values = {str(name): read_value(value) for name, value in dict(row.get("values", {})).items()}
            self._add(queries[row["query"]], tuple(levels), answer, limit_s, values, seconds)
        except (CcenvError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the counterexample does not replay ({error})") from None
        return True

    def _add(
        self, query: Query, levels: Levels, answer: Answer, limit_s: float, values: Mapping[str, Any], seconds: float
    ) -> None:
        self.seconds[levels] = self.seconds.get(levels, 0.0) + seconds
        if answer == "proved":
            self.held.setdefault(query.name, []).append(levels)
            self.last_proof_s[query.name] = seconds
        elif answer == "refuted":
            self.refuted.setdefault(query.name, []).append(levels)
            shield = widen_program(self.program, levels, query.sender.name)
            self.obstacles.append(find_obstacle(self.program, query, shield, values))
        else:
            limits = self.undecided.setdefault(query.name, {})
            limits[levels] = max(limit_s, limits.get(levels, 0.0))

    def answer(self, query: str, levels: Levels, limit_s: float) -> Answer | None:
        """Return the answer that the store implies for a query; None: the solver must be asked."""
        if any(is_below(levels, wider) for wider in self.held.get(query, ())):
            return "proved"
        if any(is_below(inner, levels) for inner in self.refuted.get(query, ())):
            return "refuted"
        gave_up = self.undecided.get(query, {})
        return "undecided" if any(is_below(u, levels) and s >= limit_s for u, s in gave_up.items()) else None

    def proved_itself(self, query: str, levels: Levels) -> bool:
        """Tell whether a query was proved for this very shield, not for one around it."""
        return levels in self.held.get(query, ())

    def too_slow(self, limit_s: float) -> list[Obstacle]:
        """Return obstacles half-way between shields that the solver gave up on at a limit and the nearest proved ones inside.

        They are a heuristic for where to continue, and exclude no proved shield.
        """
        obstacles = []
        for query, limits in self.undecided.items():
            for levels in (levels for levels, s in limits.items() if s >= limit_s):
                inside = [tuple(map(min, levels, held)) for held in self.held.get(query, ())]
                nearest = max(inside, key=sum, default=(0,) * len(levels))
                half_way = tuple(-(-(a + b) // 2) for a, b in zip(nearest, levels, strict=True))
                obstacles.append(obstacle_around(self.program, half_way))
        return obstacles

    def store(
        self, query: Query, levels: Levels, answer: Answer, limit_s: float, values: Mapping[str, Any], seconds: float
    ) -> None:
        self._add(query, levels, answer, limit_s, values, seconds)
        row: dict[str, Any] = {"query": query.name, "levels": list(levels), "answer": answer, "limit_s": limit_s}
        row["seconds"] = round(seconds, 3)
        if answer == "refuted":
            row["values"] = {name: plain_value(value) for name, value in values.items()}
        self.rows.append(row)


def replay_decisions(query: Query, program: Program, values: Mapping[str, Any]) -> list[tuple[dict[str, Any], Fraction]]:
    """Replay a counterexample exactly; return inputs and rate of every decision of the program, or of the chooser inside it.

    Raises ReplayError for values that are no trace of the query's network and sender; CcenvError if the trace does not violate
    the query's property.
    """
    decisions: list[tuple[dict[str, Any], Fraction]] = []
    decide = program_decider(program)

    def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
        decision = decide(run, t, state)
        if state.get("held", int(number(run.values, "held_0"))) == 0:
            decisions.append((program_inputs(run, t - 1), decision.rate))
        return decision

    encoded = query.encoding().view
    bounds = frozenset(name for name in BOUNDS if getattr(encoded, name) is not None)
    needs = query.sender.needs(query.setting) | query.claim.needs
    view = replay(query.setting, values, bounds, needs.probe_window, step)
    if query.claim.violation(view) is not True:
        raise CcenvError(f"{query.name}: a stored trace does not violate the property")
    return decisions


Obstacle = dict[Side, np.ndarray]
"""The levels (scale, offset) of each side that allow a trace; a missing side allows it at every level.

A shield allows the trace if all of its sides do."""

SHAPE = (SCALE_LEVELS + 1, OFFSET_LEVELS + 1)


def obstacle_around(program: Program, levels: Levels) -> Obstacle:
    """Return the obstacle that rules out every shield around one."""
    scales, offsets = np.indices(SHAPE)
    return {side: (scales >= s) & (offsets >= o) for side, (s, o) in by_side(program, levels).items() if (s, o) != (0, 0)}


def find_obstacle(program: Program, query: Query, shield: Program, values: Mapping[str, Any]) -> Obstacle:
    """Return the obstacle of a counterexample, from its exact replay (:func:`replay_decisions`, which raises its errors)."""
    tables: Obstacle = {}
    leaves = [rule for rule in program.rules() if isinstance(rule, Leaf)]
    names = number_leaves(program)
    for inputs, rate in replay_decisions(query, shield, values):
        leaf = interval(names, inputs).hold_rtts - 1
        for end in (0, 1):
            moves = leaves[leaf].ends[min(end, len(leaves[leaf].ends) - 1)]
            table = tables.setdefault((leaf, end), np.ones(SHAPE, np.bool_))
            for scale, offset in np.ndindex(SHAPE):
                table[scale, offset] &= _end_allows(move_end(moves, scale, offset, end), end, inputs, rate)
    return {side: table for side, table in tables.items() if not table.all()}


def _end_allows(bound: Expression, end: int, inputs: Mapping[str, Any], rate: Fraction) -> bool:
    # Line 7 raises both ends to MSS/Rm, and no rate is below it.
    value = sum((coefficient * inputs[name] for name, coefficient in bound.terms), start=Fraction(0))
    least = inputs["MSS/Rm"]
    return bool(rate <= max(value, least) if end else rate >= max(value, least))


def allows_trace(obstacle: Obstacle, sides: Mapping[Side, tuple[int, int]]) -> bool:
    return all(bool(table[sides[side]]) for side, table in obstacle.items())


def find_widest(
    program: Program, gains: Mapping[Side, np.ndarray], obstacles: Sequence[Obstacle], least: Levels, most: Levels
) -> Levels | None:
    """Return the levels of largest gain between two shields that allow no obstacle's trace; None if there are none.

    The gain is a sum over sides, and one side suffices to avoid an obstacle: an integer program with one binary variable per side
    and pair of levels.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    low, high = by_side(program, least), by_side(program, most)
    cells = [
        (side, s, o)
        for side in low
        for s in range(low[side][0], high[side][0] + 1)
        for o in range(low[side][1], high[side][1] + 1)
    ]
    # Ties go to the narrower shield, which is easier to prove.
    worth = np.array([gains[side][s, o] - 1e-6 * (s + o) for side, s, o in cells])
    rows = [[side == other for side, _, _ in cells] for other in low]
    avoided = [[side in ob and not ob[side][s, o] for side, s, o in cells] for ob in obstacles]
    at_least = np.ones(len(rows) + len(avoided))
    at_most = np.concatenate([np.ones(len(rows)), np.full(len(avoided), np.inf)])
    limits = LinearConstraint(np.array(rows + avoided, dtype=np.float64), at_least, at_most)
    answer = milp(-worth, integrality=np.ones(len(cells)), bounds=Bounds(0, 1), constraints=limits)
    if answer.status == 2:
        return None
    if answer.x is None:
        raise CcenvError(f"the widest shield that avoids {len(obstacles)} counterexamples was not found: {answer.message}")
    chosen = {side: (s, o) for (side, s, o), on in zip(cells, answer.x, strict=True) if on > 0.5}
    return tuple(chosen[direction.leaf, direction.end][direction.kind == "offset"] for direction in directions(program))
