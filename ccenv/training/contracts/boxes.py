"""Boxes of contracts around a program, and what is known of them.

A contract is a vector of levels, one per leaf, end and kind of change; a level of 0 changes nothing. A larger level gives an end
that is further out at every belief, because all inputs are positive. So a contract below a proved one is proved, and one above a
refuted one is refuted: stored answers decide whole boxes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule
from ccenv.base.errors import InputError
from ccenv.training.contracts.hull import hull

SCALE_STEP = Fraction(1, 20)
OFFSET_STEP = Fraction(1, 4)  # in MSS/Rm
SCALE_LEVELS, OFFSET_LEVELS = 6, 2
SEGMENT = "MSS/Rm"

Levels = tuple[int, ...]
Side = tuple[int, int]
"""A leaf and one of its ends: 0 lower, 1 upper."""


@dataclass(frozen=True)
class Direction:
    """One way to widen one leaf.

    Attributes:
        leaf: number of the leaf in the order of ``Program.rules``.
        end: 0 lower, 1 upper.
        kind: ``scale``: all terms but MSS/Rm by SCALE_STEP a level; ``offset``: OFFSET_STEP MSS/Rm a level.
    """

    leaf: int
    end: int
    kind: Literal["scale", "offset"]

    @property
    def most(self) -> int:
        """Largest level."""
        return SCALE_LEVELS if self.kind == "scale" else OFFSET_LEVELS

    @property
    def name(self) -> str:
        """For reports."""
        return f"leaf {self.leaf} {'hi' if self.end else 'lo'} {self.kind}"


def directions(program: Program) -> tuple[Direction, ...]:
    """Return all directions of a program: four per leaf."""
    leaves = sum(isinstance(rule, Leaf) for rule in program.rules())
    return tuple(Direction(i, end, kind) for i in range(leaves) for end in (0, 1) for kind in ("scale", "offset"))


def widened(program: Program, levels: Levels, name: str) -> Program:
    """Return the contract of a vector of levels around a program."""
    ways = directions(program)
    if len(levels) != len(ways):
        raise InputError(f"{len(levels)} levels; {program.name!r} has {len(ways)}")
    sides = by_side(program, levels)
    numbers = iter(range(len(ways)))

    def rebuild(rule: Rule) -> Rule:
        if isinstance(rule, Branch):
            return Branch(rule.condition, rebuild(rule.then), rebuild(rule.otherwise))
        number = next(numbers)
        ends = [moved(rule.ends[min(end, len(rule.ends) - 1)], *sides[number, end], end) for end in (0, 1)]
        return Leaf(ends[0], rule.hold_rtts, ends[1] if ends[0] != ends[1] else None)

    return Program(name, rebuild(program.rule), program.source, program.probe_window_rtts)


def by_side(program: Program, levels: Levels) -> dict[Side, tuple[int, int]]:
    """Return levels as (scale, offset) of each side."""
    pairs = zip(levels[::2], levels[1::2], strict=True)  # directions() puts the offset of a side behind its scale
    return {(way.leaf, way.end): pair for way, pair in zip(directions(program)[::2], pairs, strict=True)}


def numbered(program: Program) -> Program:
    """Return the same conditions over leaves that hold for as many Rm as their number, from 1, says: tells which leaf decides."""
    numbers = itertools.count(1)

    def rebuild(rule: Rule) -> Rule:
        if isinstance(rule, Branch):
            return Branch(rule.condition, rebuild(rule.then), rebuild(rule.otherwise))
        return Leaf(rule.rate, next(numbers))

    return Program(program.name, rebuild(program.rule), program.source, program.probe_window_rtts)


def moved(end: Expression, scale: int, offset: int, which: int) -> Expression:
    """Move an end outwards: down for the lower one, up for the upper one, at every belief."""
    sign = 1 if which else -1
    terms: dict[str, Fraction] = {}
    for name, coefficient in end.terms:
        grown = coefficient + sign * scale * SCALE_STEP * abs(coefficient) if name != SEGMENT else coefficient
        terms[name] = grown
    terms[SEGMENT] = terms.get(SEGMENT, Fraction(0)) + sign * offset * OFFSET_STEP
    kept = tuple((name, value) for name, value in terms.items() if value != 0)
    return Expression(kept or ((SEGMENT, Fraction(sign)),))


def most_inside(program: Program, around: Program | None) -> Levels:
    """Return the largest levels at which a widened program is inside a contract; None: the largest levels there are.

    Ends are compared coefficient by coefficient, which is enough because no input is negative.

    Raises:
        InputError: if the program is not inside the contract itself, or its conditions are others.
    """
    ways = directions(program)
    if around is None:
        return tuple(way.most for way in ways)
    if hull([program, around], around.name).rule != hull([around], around.name).rule:
        raise InputError(f"{program.name!r} is not inside {around.name!r}")
    own, outer = ([rule for rule in p.rules() if isinstance(rule, Leaf)] for p in (program, around))
    levels = []
    for way in ways:
        end = own[way.leaf].ends[min(way.end, len(own[way.leaf].ends) - 1)]
        bound = outer[way.leaf].ends[min(way.end, len(outer[way.leaf].ends) - 1)]
        fits = [level for level in range(way.most + 1) if _inside(_at(end, way, level), bound, way)]
        levels.append(max(fits))
    return tuple(levels)


def _at(end: Expression, way: Direction, level: int) -> Expression:
    return moved(end, level, 0, way.end) if way.kind == "scale" else moved(end, 0, level, way.end)


def _inside(end: Expression, bound: Expression, way: Direction) -> bool:
    """Tell whether an end is inside a bound in the coefficients that a direction moves."""
    names = {name for name, _ in (*end.terms, *bound.terms) if (name == SEGMENT) == (way.kind == "offset")}
    apart = [end.coefficient(name) - bound.coefficient(name) for name in names]
    return all(x <= 0 for x in apart) if way.end else all(x >= 0 for x in apart)


def below(a: Levels, b: Levels) -> bool:
    """Tell whether a is at most b in every direction: its contract then lies inside the other."""
    return all(x <= y for x, y in zip(a, b, strict=True))
