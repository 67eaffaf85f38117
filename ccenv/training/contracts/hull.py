"""The hull of programs: the narrowest contract around programs with the same conditions, such as a query's solutions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule
from ccenv.base.errors import InputError


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
    """Return a contract that allows whatever the programs send; proofs of all programs do not prove it.

    Ends are the extremes coefficient by coefficient, which bounds every rate because no input is negative. Raises InputError for
    no programs, or for programs whose trees differ.
    """
    if not programs:
        raise InputError("a hull needs at least one program")
    first = programs[0]
    if len({program.probe_window_rtts for program in programs}) > 1:
        raise InputError("programs with different probe_window_rtts have no common contract")
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
