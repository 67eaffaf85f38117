"""The checker's own reader of belief programs (JSON), and the SMT-LIB of what they send. Units: C = Rm = 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.foreign import NAME_ALLOWED, is_name, shown
from ccenv.proofs.certificates.claims import Read, Sum, add
from ccenv.proofs.certificates.laws import Path, conj, disj, most, num
from ccenv.proofs.certificates.reason import follows

RATES = ("C_L", "C_U", "C_L_lambda", "MSS/Rm", "rate", "q_U/Rm")
BYTES = ("q_U", "MSS")
TIMES = ("qdel_L", "qdel_U", "Rm")
FLAGS = ("utilised", "loss")
MAX_DEPTH = 32
MAX_LEAVES = 512
LARGEST = 999_999_999
FARTHEST_DELAY = 64
"""Steps up to which conditions on times may distinguish delays."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,8})(/[1-9][0-9]{0,8}|\.[0-9]{1,9})?", re.ASCII)
_FEATURES = {name: name for name in RATES} | {"MSS/Rm": "MSS", "q_U/Rm": "q_U", "q_U": "q_U", "MSS": "MSS"}

Expression = dict[str, Fraction]


@dataclass(frozen=True)
class Leaf:
    """A rate between two expressions, held for ``hold`` decisions; without ``choice`` the expressions are equal."""

    low: Expression
    high: Expression
    hold: int
    choice: bool


@dataclass(frozen=True)
class Branch:
    """A condition, an expression above 0 or a flag, and the two rules."""

    condition: Expression | str
    then: Rule
    otherwise: Rule


Rule = Leaf | Branch


@dataclass(frozen=True)
class Program:
    """A belief program; ``window``: T* of C_L_lambda in Rm."""

    name: str
    rule: Rule
    window: int

    def leaves(self) -> Iterator[Leaf]:
        yield from _leaves(self.rule)

    @property
    def is_shield(self) -> bool:
        """Whether a leaf allows a choice."""
        return any(leaf.choice for leaf in self.leaves())

    def inputs(self) -> frozenset[str]:
        """Return the names of the inputs that the program reads."""
        return frozenset(_inputs(self.rule))

    def bounds(self) -> frozenset[str]:
        """Return the beliefs in a query about the program."""
        read = self.inputs()
        bounds_read = {name for name in ("C_L", "C_U", "C_L_lambda") if name in read}
        return frozenset(bounds_read | ({"q_U", "C_L_lambda"} if read & {"q_U", "q_U/Rm"} else set()))

    def delays(self, jitter: int) -> tuple[int, ...]:
        """Return the delays, in steps, that conditions on times distinguish."""
        steps: set[int] = set()
        for condition in _conditions(self.rule):
            if not isinstance(condition, str) and set(condition) & set(TIMES):
                steps |= set(_changes(condition, jitter)[1])
        return tuple(sorted(steps))


def read_program(data: Any, where: str) -> Program:
    """Read a program's JSON. Raises InputError with the place, for anything that is not a program of format version 1 or 2."""
    if not isinstance(data, dict) or data.get("format") != "ccenv-program":
        raise InputError(f"{where}: not a belief program")
    version = _read_count(data.get("version"), 2, f"{where}.version")
    if extra := set(data) - {"format", "version", "name", "source", "rule", "probe_window_rtts"}:
        raise InputError(f"{where}: unknown keys {shown(sorted(extra))}")
    if not is_name(data.get("name")):
        raise InputError(f"{where}.name: {shown(data.get('name'), 80)} is not allowed: {NAME_ALLOWED}")
    source = data.get("source", "")
    if not isinstance(source, str) or len(source) > 500 or not (source == "" or source.isprintable()):
        raise InputError(f"{where}.source: {shown(source, 80)} is not one line of at most 500 printable characters")
    window = _read_count(data.get("probe_window_rtts", 1), 64, f"{where}.probe_window_rtts")
    program = Program(data["name"], _rule(data.get("rule"), f"{where}.rule", 0, intervals=version == 2), window)
    if sum(1 for _ in program.leaves()) > MAX_LEAVES:
        raise InputError(f"{where}.rule: more than {MAX_LEAVES} leaves")
    return program


def _read_count(value: Any, largest: int, where: str) -> int:
    if type(value) is not int or not 1 <= value <= largest:
        raise InputError(f"{where}: {shown(value)} is not a whole number from 1 to {largest}")
    return value


def _rule(data: Any, where: str, depth: int, *, intervals: bool) -> Rule:
    if depth > MAX_DEPTH or not isinstance(data, dict):
        raise InputError(f"{where}: a rule is deeper than {MAX_DEPTH} or no object")
    if set(data) == {"if", "then", "else"}:
        condition = data["if"]
        if isinstance(condition, str) and condition not in FLAGS:
            raise InputError(f"{where}.if: condition {shown(condition)} is none of {FLAGS}")
        read = condition if isinstance(condition, str) else _expression(condition, f"{where}.if")
        then, otherwise = (_rule(data[key], f"{where}.{key}", depth + 1, intervals=intervals) for key in ("then", "else"))
        return Branch(read, then, otherwise)
    key = "rate_between" if intervals and "rate_between" in data else "rate"
    if set(data) - {"hold_rtts"} != {key}:
        raise InputError(f"{where}: a rule has the keys {shown(sorted(map(str, data)))}")
    ends = data[key] if key == "rate_between" else [data[key]]
    if not isinstance(ends, list) or len(ends) != 1 + (key == "rate_between"):
        raise InputError(f"{where}.{key}: two ends are needed, a lower and an upper one")
    hold = _read_count(data.get("hold_rtts", 1), 64, f"{where}.hold_rtts")
    read_ends = [_expression(end, f"{where}.{key}") for end in ends]
    if any(not set(end) <= set(RATES) for end in read_ends):
        raise InputError(f"{where}.{key}: {shown(ends, 80)} is no rate")
    return Leaf(read_ends[0], read_ends[-1], hold, choice=key == "rate_between")


def _expression(data: Any, where: str) -> Expression:
    if not isinstance(data, dict) or not data:
        raise InputError(f"{where}: an expression maps inputs to numbers; got {shown(data)}")
    if not any(set(data) <= set(inputs) for inputs in (RATES, BYTES, TIMES)):
        raise InputError(f"{where}: {shown(sorted(data), 80)} are not inputs of one unit")
    return {name: _coefficient(value, f"{where}.{name}") for name, value in data.items()}


def _coefficient(value: Any, where: str) -> Fraction:
    if type(value) is int or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        exact = Fraction(value)
        if exact and max(abs(exact.numerator), exact.denominator) <= LARGEST:
            return exact
    raise InputError(f"{where}: {shown(value)} is no whole number or text such as '3/2' of at most 9 digits, other than 0")


def require_intervals(program: Program) -> None:
    """Refuse a shield whose interval is empty for some beliefs: nothing can be sent there, so claims would hold vacuously."""
    for leaf, conditions in _paths(program.rule, ()):
        above = _difference(leaf.low, leaf.high)
        if set(above) == {""}:
            continue
        facts = [("cmp", {_FEATURES[name]: Fraction(-1), "": Fraction(0)}, name != "q_U") for name in (*RATES, "q_U")]
        if not follows(
            [*facts, *conditions],
            ("any", (("cmp", above, False), ("cmp", _difference(leaf.low, {"MSS/Rm": Fraction(1)}), False))),
        ):
            raise InputError(f"program.rule: an interval of the shield {program.name} is empty for some beliefs")


def _paths(rule: Rule, conditions: tuple[Read, ...]) -> Iterator[tuple[Leaf, tuple[Read, ...]]]:
    """Yield the leaves with the conditions on bounds that lead to them; conditions on times and flags are left out."""
    if isinstance(rule, Leaf):
        yield rule, conditions
        return
    facts: tuple[Read, ...] = ()
    if not isinstance(rule.condition, str) and not set(rule.condition) & set(TIMES):
        facts = (("cmp", _difference({}, rule.condition), True),)
    yield from _paths(rule.then, (*conditions, *facts))
    yield from _paths(rule.otherwise, (*conditions, *(("not", one) for one in facts)))


def _difference(left: Expression, right: Expression) -> Sum:
    total: Sum = {"": Fraction(0)}
    for expression, times in ((left, Fraction(1)), (right, Fraction(-1))):
        total = add(total, {_FEATURES[name]: value for name, value in expression.items()}, times)
    return total


def _leaves(rule: Rule) -> Iterator[Leaf]:
    if isinstance(rule, Leaf):
        yield rule
    else:
        yield from _leaves(rule.then)
        yield from _leaves(rule.otherwise)


def _conditions(rule: Rule) -> Iterator[Expression | str]:
    if isinstance(rule, Branch):
        yield rule.condition
        yield from _conditions(rule.then)
        yield from _conditions(rule.otherwise)


def _inputs(rule: Rule) -> Iterator[str]:
    for leaf in _leaves(rule):
        yield from (*leaf.low, *leaf.high)
    for condition in _conditions(rule):
        yield from ([condition] if isinstance(condition, str) else condition)


def _changes(condition: Expression, jitter: int) -> tuple[bool, dict[int, bool]]:
    """Return a time condition's truth at delay 0, and at which delays (in whole steps) it changes to what."""
    weights = [condition.get(name, Fraction(0)) for name in TIMES]

    def truth(steps: int) -> bool:
        return weights[0] * max(0, steps - jitter) + weights[1] * (steps + 1) + weights[2] > 0

    slope = weights[0] + weights[1]
    spread = abs(weights[0]) + abs(weights[1])
    far = jitter + 2 + (int(abs(weights[2] + spread) / abs(slope)) + 1 if slope else 0)
    if far > FARTHEST_DELAY:
        raise InputError(f"program.rule: a condition on times tells delays of more than {FARTHEST_DELAY} Rm apart")
    return truth(0), {m: truth(m) for m in range(1, far + 1) if truth(m) != truth(m - 1)}


def declarations(program: Program, path: Path) -> dict[str, str]:
    """Return the sort of each name of the sender."""
    names = {f"rate_{t}": "Real" for t in range(path.samples)}
    if _longest(program) > 1:
        names |= {f"held_{t}": "Real" for t in range(path.samples)}
    if "utilised" in program.inputs() and path.jitter:
        names["utilised_before"] = "Bool"
    return names


def _longest(program: Program) -> int:
    return max(leaf.hold for leaf in program.leaves())


def sends(program: Program, path: Path) -> Iterator[str]:
    """Yield the bytes of each step, as bodies of assertions."""
    holds = _longest(program)
    yield "(>= rate_0 alpha)"
    if "utilised" in program.inputs() and path.jitter:
        yield f"(= utilised_before {path.step_used(-1)})"
    for t in range(1, path.samples):
        low, high = (most(_rate(program.rule, path, t - 1, end), "alpha") for end in (False, True))
        if holds > 1:
            low, high = (f"(ite (> held_{t - 1} 0.0) rate_{t - 1} {end})" for end in (low, high))
            yield f"(= held_{t} (ite (> held_{t - 1} 0.0) (- held_{t - 1} 1.0) (- {_hold(program.rule, path, t - 1)} 1.0)))"
        if program.is_shield:
            yield f"(>= rate_{t} {low})"
            yield f"(<= rate_{t} {high})"
        else:
            yield f"(= rate_{t} {low})"
    if holds > 1:
        yield disj(*(f"(= held_0 {num(steps)})" for steps in range(holds)))


def _rate(rule: Rule, path: Path, t: int, high: bool) -> str:
    if isinstance(rule, Leaf):
        return _sum(rule.high if high else rule.low, t)
    then, otherwise = (_rate(side, path, t, high) for side in (rule.then, rule.otherwise))
    return f"(ite {_condition(rule.condition, path, t)} {then} {otherwise})"


def _hold(rule: Rule, path: Path, t: int) -> str:
    if isinstance(rule, Leaf):
        return num(rule.hold)
    then, otherwise = _hold(rule.then, path, t), _hold(rule.otherwise, path, t)
    return then if then == otherwise else f"(ite {_condition(rule.condition, path, t)} {then} {otherwise})"


def _condition(condition: Expression | str, path: Path, t: int) -> str:
    if condition == "loss":
        return path.loss_seen(t)
    if condition == "utilised":
        return "utilised_before" if t < path.jitter else path.step_used(t - path.jitter)
    if isinstance(condition, str) or not set(condition) <= set(TIMES):
        return f"(> {_sum(condition, t)} 0.0)"  # type: ignore[arg-type]
    truth, changes = _changes(condition, path.jitter)
    text = "true" if truth else "false"
    for m, value in sorted(changes.items()):
        waited = path.flag("late", t, m)
        text = disj(waited, text) if value else conj(f"(not {waited})", text)
    return text


def _sum(expression: Expression, t: int) -> str:
    names = {"MSS/Rm": "alpha", "MSS": "alpha", "rate": f"rate_{t}", "q_U": f"q_U_{t}", "q_U/Rm": f"q_U_{t}"}
    terms = (f"(* {num(c)} {names.get(name, f'{name}_{t}')})" for name, c in expression.items())
    return f"(+ 0.0 {' '.join(terms)})"
