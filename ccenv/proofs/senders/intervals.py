"""Whether an interval of a shield is empty at some belief: one small query per leaf, with the belief as witness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ccenv.agents.programs import BOOLEANS, UNIT_OF, Branch, Expression, Leaf, Program, Rule, expression_text
from ccenv.base.errors import CcenvError, ProgramError
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import Formula, Term, negate

LIMIT_S = 60.0
_ALPHA = "MSS/Rm"


@dataclass(frozen=True)
class EmptyInterval:
    """A belief at which no rate is allowed."""

    leaf: Leaf  # the interval, from `lo` to `hi` at this belief
    belief: dict[str, Fraction | bool]  # value of each input that the program reads, in units of Rm = 1
    lo: Fraction
    hi: Fraction

    @property
    def text(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.belief.items())
        ends = ", ".join(expression_text(end) for end in self.leaf.ends)
        return f"rate in [{ends}] has its lower end {self.lo} above its upper end {self.hi} at {at} (Rm = 1)"


@lru_cache(maxsize=256)
def require_intervals(program: Program) -> None:
    """Refuse a shield with an interval that is empty at some belief.

    Raises ProgramError with the interval and the belief, and CcenvError if the solver cannot tell.
    """
    empty = empty_interval(program)
    if empty is not None:
        raise ProgramError(f"{program.name}: {empty.text}")


def empty_interval(program: Program) -> EmptyInterval | None:
    """Return a belief at which an interval's lower end is above its upper end, both raised by line 7; None if there is none.

    Beliefs need not be consistent: C_U may be below C_L until a time-out. Raises CcenvError if the solver cannot tell.
    """
    import z3

    inputs = {name: z3.Real(name) for name in UNIT_OF} | {name: z3.Bool(name) for name in BOOLEANS}
    for leaf, conditions in _leaves(program.rule, inputs):
        if leaf.most is None:
            continue
        lo, hi = (_sum(end, inputs) for end in leaf.ends)
        empty = [*_domain(inputs), *conditions, lo > hi, lo > inputs[_ALPHA]]
        answer = solve(to_smtlib(empty), "z3", LIMIT_S)
        if answer.status == "unknown":
            raise CcenvError(f"{program.name}: whether an interval is empty was not decided: {answer.reason}")
        if answer.status == "sat":
            belief = {name: answer.model.get(name, False if name in BOOLEANS else Fraction(1)) for name in inputs}
            ends = [max(Fraction(_sum(end, belief)), belief[_ALPHA]) for end in leaf.ends]
            read = {name: belief[name] for name in inputs if name in program.inputs()}
            return EmptyInterval(leaf, read, ends[0], ends[1])
    return None


def _domain(inputs: dict[str, Any]) -> Iterator[Formula]:
    """Yield the constraints on every belief of a sender, with Rm = 1."""
    yield inputs["Rm"] == 1
    yield inputs[_ALPHA] > 0
    yield inputs["MSS"] == inputs[_ALPHA]
    yield inputs["q_U/Rm"] == inputs["q_U"]
    for name in ("C_L", "C_L_lambda", "rate"):
        yield inputs[name] >= inputs[_ALPHA]
    yield inputs["C_U"] > 0
    yield inputs["q_U"] >= 0
    yield inputs["qdel_L"] >= 0
    yield inputs["qdel_U"] >= inputs["qdel_L"]


def _leaves(rule: Rule, inputs: dict[str, Any], so_far: tuple[Formula, ...] = ()) -> Iterator[tuple[Leaf, tuple[Formula, ...]]]:
    if not isinstance(rule, Branch):
        yield rule, so_far
        return
    holds = inputs[rule.condition] if isinstance(rule.condition, str) else _sum(rule.condition, inputs) > 0
    yield from _leaves(rule.then, inputs, (*so_far, holds))
    yield from _leaves(rule.otherwise, inputs, (*so_far, negate(holds)))


def _sum(expression: Expression, inputs: dict[str, Any]) -> Term:
    return sum((coefficient * inputs[name] for name, coefficient in expression.terms), start=Fraction(0))
