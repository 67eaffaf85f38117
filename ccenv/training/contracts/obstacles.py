"""Obstacles: the contracts that a counterexample rules out, and the widest contract that none rules out.

A contract that allows the rates of a counterexample at the same beliefs allows the whole trace, whatever its other leaves are.
One refuted contract therefore rules out many more than those around it, without another solver call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.agents.programs import Expression, Leaf, Program, interval
from ccenv.base.errors import CcenvError
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas.encode import BOUNDS
from ccenv.proofs.replay.exact import Decision, Run, number, replay
from ccenv.proofs.senders.program import program_decider, program_inputs
from ccenv.training.contracts.boxes import OFFSET_LEVELS, SCALE_LEVELS, Levels, Side, by_side, directions, move_end, number_leaves


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

A contract allows the trace if all of its sides do."""

SHAPE = (SCALE_LEVELS + 1, OFFSET_LEVELS + 1)


def obstacle_around(program: Program, levels: Levels) -> Obstacle:
    """Return the obstacle that rules out every contract around one."""
    scales, offsets = np.indices(SHAPE)
    return {side: (scales >= s) & (offsets >= o) for side, (s, o) in by_side(program, levels).items() if (s, o) != (0, 0)}


def find_obstacle(program: Program, query: Query, contract: Program, values: Mapping[str, Any]) -> Obstacle:
    """Return the obstacle of a counterexample, from its exact replay (:func:`replay_decisions`, which raises its errors)."""
    tables: Obstacle = {}
    leaves = [rule for rule in program.rules() if isinstance(rule, Leaf)]
    names = number_leaves(program)
    for inputs, rate in replay_decisions(query, contract, values):
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
    """Tell whether a contract allows the trace of an obstacle."""
    return all(bool(table[sides[side]]) for side, table in obstacle.items())


def find_widest(
    program: Program, gains: Mapping[Side, np.ndarray], obstacles: Sequence[Obstacle], least: Levels, most: Levels
) -> Levels | None:
    """Return the levels of largest gain between two contracts that allow no obstacle's trace; None if there are none.

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
    # Ties go to the narrower contract, which is easier to prove.
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
        raise CcenvError(f"the widest contract that avoids {len(obstacles)} counterexamples was not found: {answer.message}")
    chosen = {side: (s, o) for (side, s, o), on in zip(cells, answer.x, strict=True) if on > 0.5}
    return tuple(chosen[direction.leaf, direction.end][direction.kind == "offset"] for direction in directions(program))
