"""The language of theorems: linear comparisons of named features, joined by all, any and not.

``C_L' >= 17/12 C_L`` compares the end of a trace (primed) with its start. A list means all of its parts; ``{any: [...]}`` and
``{not: ...}`` are the other forms; a text without a comparison sign is the name of a state. Constants stand for numbers. A
formula is evaluated on a trace (a view of T samples), or on states alone for the composition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.foreign import parse_fraction, shown
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, negate

MAX_CHARS = 400  # of one comparison
MAX_DEPTH = 12  # of nested all, any and not
MAX_FACTORS = 8  # of a term
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*'?|[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?|[-+*()])", re.ASCII)
_SIGN = re.compile(r"<=|>=|<|>")

START = ("C_L", "C_U", "C_L_lambda", "q_U", "queue", "inflight")
"""Features of a sample: at a trace's start, with a prime at its end."""

STATIC = ("MSS", "buffer")
TRACE = ("served", "delivered", "lost")
GROWN = {"C_L_grown": "C_L", "C_U_grown": "C_U"}
"""The bounds at a trace's end before they time out there."""

PEAKS = ("peak_inflight", "peak_queue", "peak_loss", "peak_sent")
"""The largest value in samples 1 to T - 1 of a trace; a comparison may only bound them from above."""

FEATURES = (*START, *(f"{name}'" for name in START), *STATIC, *TRACE, *GROWN, *PEAKS)
BELIEFS = frozenset({"C_L", "C_U", "C_L_lambda", "q_U"})


@dataclass(frozen=True)
class Linear:
    """A linear expression: a constant and sorted (feature, coefficient) pairs, none zero, in units of C = Rm = 1."""

    terms: tuple[tuple[str, Fraction], ...]
    constant: Fraction

    def plus(self, other: Linear, times: Fraction = Fraction(1)) -> Linear:
        """Return this expression plus a multiple of another one."""
        sums = dict(self.terms)
        for name, coefficient in other.terms:
            sums[name] = sums.get(name, Fraction(0)) + times * coefficient
        terms = tuple(sorted((name, c) for name, c in sums.items() if c != 0))
        return Linear(terms, self.constant + times * other.constant)

    def value(self, of: Callable[[str], Any]) -> Any:
        """Return the expression's value from the features' (terms or numbers)."""
        return sum((c * of(name) for name, c in self.terms), start=self.constant)


@dataclass(frozen=True)
class Comparison:
    """``left <= 0``, or ``left < 0`` where strict."""

    left: Linear
    strict: bool


@dataclass(frozen=True)
class Joined:
    """A formula of parts: ``how`` is all, any or not (of one part)."""

    how: str
    parts: tuple[Node, ...]


Node: TypeAlias = Comparison | Joined


def parse(data: Any, where: str, constants: Mapping[str, Fraction], states: Mapping[str, Any], depth: int = 0) -> Node:
    """Read a formula from YAML data. Raises InputError with the place, what was read and what is allowed."""
    if depth > MAX_DEPTH:
        raise InputError(f"{where}: formulas nest deeper than {MAX_DEPTH}")
    if isinstance(data, list):
        return Joined("all", tuple(parse(part, where, constants, states, depth + 1) for part in data))
    if isinstance(data, dict) and len(data) == 1:
        ((how, value),) = data.items()
        if how == "not":
            return Joined("not", (parse(value, where, constants, states, depth + 1),))
        if how in ("all", "any") and isinstance(value, list):
            return Joined(how, tuple(parse(part, where, constants, states, depth + 1) for part in value))
    if isinstance(data, str) and not _SIGN.search(data):
        if data not in states:
            raise InputError(f"{where}: {unknown_name('state', data, states)}")
        return parse(states[data], f"{where}.{data}", constants, states, depth + 1)
    if not isinstance(data, str):
        raise InputError(f"{where}: a formula is a comparison, a state, a list, or one of all, any and not; got {shown(data)}")
    return _read_comparison(data, where, constants)


def parse_linear(text: str, where: str, constants: Mapping[str, Fraction]) -> Linear:
    """Read a linear expression. Raises InputError as :func:`parse` does."""
    if len(text) > MAX_CHARS:
        raise InputError(f"{where}: an expression has {len(text)} characters; at most {MAX_CHARS} are allowed")
    total, position = Linear((), Fraction(0)), 0
    while position < len(text.rstrip()):
        sign = Fraction(1)
        token, after = _next_token(text, position, where)
        if token in ("+", "-"):
            sign, position = Fraction(1 if token == "+" else -1), after
        term, position = _read_term(text, position, where, constants)
        total = total.plus(term, sign)
    if not position:
        raise InputError(f"{where}: {text!r}: an expression is missing")
    return total


def _read_comparison(text: str, where: str, constants: Mapping[str, Fraction]) -> Comparison:
    signs = _SIGN.findall(text)
    if len(signs) != 1:
        raise InputError(f"{where}: {text!r} has {len(signs)} comparison signs; one of <=, <, >=, > is needed")
    left, right = (parse_linear(side, where, constants) for side in _SIGN.split(text))
    if signs[0] in (">", ">="):
        left, right = right, left
    difference = left.plus(right, Fraction(-1))
    peaks = [(name, coefficient) for name, coefficient in difference.terms if name in PEAKS]
    for name, coefficient in peaks:
        if coefficient < 0:
            raise InputError(f"{where}: {text!r}: {name} can only be bounded from above")
    if len(peaks) > 1:
        raise InputError(
            f"{where}: {text!r}: adds {peaks[0][0]} and {peaks[1][0]}, which need not be at one time; bound each alone"
        )
    return Comparison(difference, signs[0] in ("<", ">"))


def _next_token(text: str, at: int, where: str) -> tuple[str, int]:
    match = _TOKEN.match(text, at)
    if match is None:
        raise InputError(f"{where}: {shown(text)}: cannot be read from character {at + 1} on")
    return match.group(1), match.end()


def _read_term(text: str, at: int, where: str, constants: Mapping[str, Fraction]) -> tuple[Linear, int]:
    number, feature, seen, joined, factors = Fraction(1), None, False, True, 0
    while at < len(text.rstrip()):
        token, after = _next_token(text, at, where)
        if token in ("+", "-"):
            break
        at = after
        if token == "*":
            if joined:
                raise InputError(f"{where}: {text!r}: a factor is missing before '*'")
            joined = True
            continue
        if token in "()":
            raise InputError(f"{where}: {text!r}: brackets are not allowed")
        factors += 1
        if factors > MAX_FACTORS or (seen and not joined and token[0].isdigit()):
            raise InputError(
                f"{where}: {text!r}: {token} follows a factor without '*', or is the {MAX_FACTORS + 1}th one of a term"
            )
        seen, joined = True, False
        if token[0].isdigit():
            number *= parse_fraction(token, where)
        elif token in constants:
            number *= constants[token]
        elif token not in FEATURES:
            raise InputError(f"{where}: {unknown_name('feature or constant', token, [*FEATURES, *constants])}")
        elif feature is not None:
            raise InputError(f"{where}: {text!r} multiplies {feature} by {token}; only numbers may be factors")
        else:
            feature = token
    if joined:
        raise InputError(f"{where}: {text!r}: a term is missing, or ends with '*'")
    if feature is None:
        return Linear((), number), at
    return Linear(((feature, number),) if number else (), Fraction(0)), at


def list_features_read(node: Node) -> frozenset[str]:
    if isinstance(node, Comparison):
        return frozenset(name for name, _ in node.left.terms)
    return frozenset().union(*(list_features_read(part) for part in node.parts))


def beliefs_in(node: Node) -> frozenset[str]:
    """Return the beliefs that a formula reads, at either end."""
    return frozenset(GROWN.get(name, name.removesuffix("'")) for name in list_features_read(node)) & BELIEFS


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the parts whose conjunction a formula is."""
    if isinstance(node, Joined) and node.how == "all":
        for part in node.parts:
            yield from conjuncts(part)
    else:
        yield node


_SAMPLES: dict[str, Callable[[View, int], Term]] = {
    "queue": lambda v, t: v.queue(t),
    "inflight": lambda v, t: v.inflight(t),
    "peak_inflight": lambda v, t: v.inflight(t),
    "peak_queue": lambda v, t: v.queue(t),
    "peak_loss": lambda v, t: _sum_over_rtt(v, v.lost, t),
    "peak_sent": lambda v, t: _sum_over_rtt(v, v.sent, t),
}
PER_RTT = frozenset({"peak_loss", "peak_sent"})
"""Peaks of amounts per Rm, read at its end."""


def _sum_over_rtt(v: View, series: list[Any], t: int) -> Term:
    """Return the sum of a quantity of steps over the Rm that ends at sample t."""
    return sum(series[t - v.setting.steps_per_rtt + 2 : t + 1], start=series[t - v.setting.steps_per_rtt + 1])


def feature(v: View, name: str, t: int) -> Term:
    """Return a feature of a trace; peaks are read at sample t.

    Raises InputError for the buffer of a network without one, or a belief that is not encoded.
    """
    if name == "MSS":
        return v.alpha
    if name == "buffer":
        if v.beta is None:
            raise InputError("the buffer of this network is infinite; a comparison with it says nothing")
        return v.beta
    if name == "served":
        return v.G[v.last] - v.G[0]
    if name == "delivered":
        return v.S[v.last] - v.S[0]
    if name == "lost":
        return v.lost_until(v.last)
    if name in GROWN and f"{GROWN[name]}_kept" in v.extra:
        return v.extra[f"{GROWN[name]}_kept"][0]
    plain = GROWN.get(name, name.removesuffix("'"))
    at = t if name in PEAKS else v.last if name in GROWN or name.endswith("'") else 0
    if plain in _SAMPLES:
        return _SAMPLES[plain](v, at)
    series: list[Term] | None = getattr(v, plain)
    if series is None:
        raise InputError(f"{plain} is not encoded in this query")
    return series[at]


def on_trace(node: Node, v: View) -> Formula:
    """Return a formula on a trace; a comparison with a peak must hold at every sample from 1 on, or in every Rm."""
    if isinstance(node, Comparison):
        read = {name for name, _ in node.left.terms} & set(PEAKS)
        rtt = v.setting.steps_per_rtt
        times = range(rtt, v.setting.samples, rtt) if read & PER_RTT else range(1, v.setting.samples) if read else (0,)
        return all_of(_compare(node, node.left.value(lambda name, t=t: feature(v, name, t))) for t in times)  # type: ignore[misc]
    parts = [on_trace(part, v) for part in node.parts]
    return all_of(parts) if node.how == "all" else any_of(parts) if node.how == "any" else negate(parts[0])


def on_states(node: Node, of: Callable[[str], Any]) -> Formula:
    """Return a formula over features that are numbers or variables."""
    if isinstance(node, Comparison):
        return _compare(node, node.left.value(of))
    parts = [on_states(part, of) for part in node.parts]
    return all_of(parts) if node.how == "all" else any_of(parts) if node.how == "any" else negate(parts[0])


def _compare(node: Comparison, value: Term) -> Formula:
    return value < 0 if node.strict else value <= 0
