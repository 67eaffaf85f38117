"""Shields around a program as vectors of levels, one per leaf, end and type of change (0: unchanged); hulls of programs.

Inputs are positive, so a larger level moves an end further out at every belief. A shield below a proved one is therefore
proved, and one above a refuted one is refuted: stored answers decide whole boxes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule
from ccenv.base.errors import InputError

SCALE_STEP = Fraction(1, 20)
OFFSET_STEP = Fraction(1, 4)  # in MSS/Rm
SCALE_LEVELS, OFFSET_LEVELS = 6, 2
SEGMENT = "MSS/Rm"

Levels = tuple[int, ...]
Side = tuple[int, int]
"""A leaf and one of its ends: 0 lower, 1 upper."""


@dataclass(frozen=True)
class Direction:
    """A direction in which a leaf, by its number in ``Program.rules``, can be widened at its lower (0) or upper (1) end.

    ``scale`` moves all terms but MSS/Rm by SCALE_STEP a level, ``offset`` MSS/Rm by OFFSET_STEP.
    """

    leaf: int
    end: int
    kind: Literal["scale", "offset"]

    @property
    def most(self) -> int:
        return SCALE_LEVELS if self.kind == "scale" else OFFSET_LEVELS

    @property
    def name(self) -> str:
        return f"leaf {self.leaf} {'hi' if self.end else 'lo'} {self.kind}"


def directions(program: Program) -> tuple[Direction, ...]:
    """Return all directions of a program: four per leaf."""
    leaves = sum(isinstance(rule, Leaf) for rule in program.rules())
    return tuple(Direction(i, end, kind) for i in range(leaves) for end in (0, 1) for kind in ("scale", "offset"))


def widen_program(program: Program, levels: Levels, name: str) -> Program:
    all_directions = directions(program)
    if len(levels) != len(all_directions):
        raise InputError(f"{len(levels)} levels; {program.name!r} has {len(all_directions)}")
    sides = by_side(program, levels)
    numbers = iter(range(len(all_directions)))

    def rebuild(rule: Rule) -> Rule:
        if isinstance(rule, Branch):
            return Branch(rule.condition, rebuild(rule.then), rebuild(rule.otherwise))
        number = next(numbers)
        ends = [move_end(rule.ends[min(end, len(rule.ends) - 1)], *sides[number, end], end) for end in (0, 1)]
        return Leaf(ends[0], rule.hold_rtts, ends[1] if ends[0] != ends[1] else None)

    return Program(name, rebuild(program.rule), program.source, program.probe_window_rtts)


def by_side(program: Program, levels: Levels) -> dict[Side, tuple[int, int]]:
    """Return levels as (scale, offset) of each side."""
    pairs = zip(levels[::2], levels[1::2], strict=True)  # directions() puts the offset of a side behind its scale
    return {(direction.leaf, direction.end): pair for direction, pair in zip(directions(program)[::2], pairs, strict=True)}


def number_leaves(program: Program) -> Program:
    """Return the program with its leaves' hold times replaced by their numbers, from 1, so that a decision names its leaf."""
    numbers = itertools.count(1)

    def rebuild(rule: Rule) -> Rule:
        if isinstance(rule, Branch):
            return Branch(rule.condition, rebuild(rule.then), rebuild(rule.otherwise))
        return Leaf(rule.rate, next(numbers))

    return Program(program.name, rebuild(program.rule), program.source, program.probe_window_rtts)


def move_end(end: Expression, scale: int, offset: int, end_number: int) -> Expression:
    """Move an end outwards at every belief: the lower one (0) down, the upper one (1) up."""
    sign = 1 if end_number else -1
    terms: dict[str, Fraction] = {}
    for name, coefficient in end.terms:
        widened_coefficient = coefficient + sign * scale * SCALE_STEP * abs(coefficient) if name != SEGMENT else coefficient
        terms[name] = widened_coefficient
    terms[SEGMENT] = terms.get(SEGMENT, Fraction(0)) + sign * offset * OFFSET_STEP
    nonzero_terms = tuple((name, value) for name, value in terms.items() if value != 0)
    return Expression(nonzero_terms or ((SEGMENT, Fraction(sign)),))


def most_inside(program: Program, around: Program | None) -> Levels:
    """Return the largest levels at which a widened program is inside a shield; None: no bound but the levels' own.

    Ends are compared coefficient by coefficient, which suffices because no input is negative. Raises InputError if the program
    itself is not inside the shield.
    """
    all_directions = directions(program)
    if around is None:
        return tuple(direction.most for direction in all_directions)
    if hull([program, around], around.name).rule != hull([around], around.name).rule:
        raise InputError(f"{program.name!r} is not inside {around.name!r}")
    inner_leaves, outer_leaves = ([rule for rule in p.rules() if isinstance(rule, Leaf)] for p in (program, around))
    levels = []
    for direction in all_directions:
        inner, outer = inner_leaves[direction.leaf].ends, outer_leaves[direction.leaf].ends
        end, bound = inner[min(direction.end, len(inner) - 1)], outer[min(direction.end, len(outer) - 1)]
        moved = [_move_one_way(end, direction, level) for level in range(direction.most + 1)]
        levels.append(max(level for level, candidate in enumerate(moved) if _is_inside(candidate, bound, direction)))
    return tuple(levels)


def _move_one_way(end: Expression, direction: Direction, level: int) -> Expression:
    return move_end(end, level, 0, direction.end) if direction.kind == "scale" else move_end(end, 0, level, direction.end)


def _is_inside(end: Expression, bound: Expression, direction: Direction) -> bool:
    """Tell whether an end is inside a bound in the coefficients that a direction moves."""
    names = {name for name, _ in (*end.terms, *bound.terms) if (name == SEGMENT) == (direction.kind == "offset")}
    differences = [end.coefficient(name) - bound.coefficient(name) for name in names]
    return all(x <= 0 for x in differences) if direction.end else all(x >= 0 for x in differences)


def is_below(a: Levels, b: Levels) -> bool:
    """Tell whether a is at most b in every direction; its shield then lies inside that of b."""
    return all(x <= y for x, y in zip(a, b, strict=True))


def largest_joinable_group(programs: Sequence[Program]) -> list[Program]:
    """Return the largest group of programs with a common hull, that is, with the same conditions; ties go to the first group."""
    groups: list[list[Program]] = []
    for program in programs:
        for group in groups:
            try:
                hull([group[0], program], "x")
            except InputError:
                continue
            group.append(program)
            break
        else:
            groups.append([program])
    return max(groups, key=len, default=[])


def hull(programs: Sequence[Program], name: str) -> Program:
    """Return a shield that allows whatever the programs send; proofs of all programs do not prove it.

    Ends are the extremes coefficient by coefficient, which bounds every rate because no input is negative. Raises InputError for
    no programs, or for programs whose trees differ.
    """
    if not programs:
        raise InputError("a hull needs at least one program")
    first = programs[0]
    if len({program.probe_window_rtts for program in programs}) > 1:
        raise InputError("programs with different probe_window_rtts have no common shield")
    return Program(name, _join([program.rule for program in programs], "rule"), first.source, first.probe_window_rtts)


def _join(rules: Sequence[Rule], place: str) -> Rule:
    branches = [rule for rule in rules if isinstance(rule, Branch)]
    leaves = [rule for rule in rules if isinstance(rule, Leaf)]
    if branches and leaves:
        raise InputError(f"{place}: some programs decide here and some ask; a hull needs the same conditions in all of them")
    if branches:
        if len({branch.condition for branch in branches}) > 1:
            raise InputError(f"{place}.if: the programs ask different things; a hull needs the same conditions in all of them")
        then = _join([branch.then for branch in branches], f"{place}.then")
        return Branch(branches[0].condition, then, _join([branch.otherwise for branch in branches], f"{place}.else"))
    if len({leaf.hold_rtts for leaf in leaves}) > 1:
        raise InputError(f"{place}: the programs hold their rates for different times")
    lo, hi = _extreme([leaf.ends[0] for leaf in leaves], min), _extreme([leaf.ends[-1] for leaf in leaves], max)
    return Leaf(lo, leaves[0].hold_rtts, hi if hi != lo else None)


def _extreme(ends: Sequence[Expression], pick: Callable[[Iterable[Fraction]], Fraction]) -> Expression:
    names = sorted({name for end in ends for name, _ in end.terms})
    chosen = {name: pick(end.coefficient(name) for end in ends) for name in names}
    terms = tuple((name, Fraction(value)) for name, value in chosen.items() if value != 0)
    return Expression(terms or (("MSS/Rm", Fraction(-1)),))
