"""Formulas of theorems in a certificate: the checker's own reader, and their SMT-LIB for a trace.

A read formula is ``("cmp", {feature: coefficient, "": constant}, strict)`` for a sum that is at most (below) 0, or
``("all", parts)``, ``("any", parts)``, ``("not", part)``. Units: C = Rm = 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from ccenv.base.errors import InputError
from ccenv.base.foreign import parse_fraction, shown
from ccenv.proofs.certificates.laws import Path, conj, disj, num

Read: TypeAlias = tuple[Any, ...]
Sum: TypeAlias = dict[str, Fraction]

STATE = ("C_L", "C_U", "C_L_lambda", "q_U", "queue", "inflight")
GROWN = {"C_L_grown": "C_L", "C_U_grown": "C_U"}  # at the end, before a time-out
PEAKS = ("peak_inflight", "peak_queue", "peak_loss", "peak_sent")
ALL = frozenset((*STATE, *(f"{name}'" for name in STATE), "MSS", "buffer", "served", "delivered", "lost", *GROWN, *PEAKS))
BELIEFS = frozenset(("C_L", "C_U", "C_L_lambda", "q_U"))
_WORDS = re.compile(r"[A-Za-z_]\w*'?|\d+(?:\.\d+)?(?:/\d+)?", re.ASCII)
_TERM = re.compile(rf"\s*(?:{_WORDS.pattern})(?:\s*\*\s*(?:{_WORDS.pattern})|\s*(?=[A-Za-z_])(?:{_WORDS.pattern}))*\s*", re.ASCII)
MAX_FACTORS = 8
MAX_CHARS = 400  # of an expression


def read_formula(data: Any, where: str, numbers: Mapping[str, Fraction], states: Mapping[str, Any], depth: int = 0) -> Read:
    """Read a formula. Raises InputError for what the language does not have."""
    if depth > 12:
        raise InputError(f"{where}: a formula nests too deep")
    if isinstance(data, list):
        return ("all", tuple(read_formula(part, where, numbers, states, depth + 1) for part in data))
    if isinstance(data, dict) and set(data) == {"not"}:
        return ("not", read_formula(data["not"], where, numbers, states, depth + 1))
    for how in ("all", "any"):
        if isinstance(data, dict) and set(data) == {how} and isinstance(data[how], list):
            return (how, tuple(read_formula(part, where, numbers, states, depth + 1) for part in data[how]))
    if not isinstance(data, str):
        raise InputError(f"{where}: {shown(data)} is no formula")
    if data in states:
        return read_formula(states[data], where, numbers, states, depth + 1)
    sides = re.split(r"(<=|>=|<|>)", data)
    if len(sides) != 3:
        raise InputError(f"{where}: {shown(data)} is neither a state nor one comparison")
    left, right = read_sum(sides[0], where, numbers), read_sum(sides[2], where, numbers)
    if sides[1][0] == ">":
        left, right = right, left
    total = add(left, right, Fraction(-1))
    if any(total.get(name, Fraction(0)) < 0 for name in PEAKS):
        raise InputError(f"{where}: {shown(data)} bounds a peak from below")
    if len(set(total) & set(PEAKS)) > 1:
        raise InputError(f"{where}: {shown(data)} adds up peaks, which need not be at one time")
    return ("cmp", total, len(sides[1]) == 1)


def read_sum(text: str, where: str, numbers: Mapping[str, Fraction]) -> Sum:
    """Read a linear expression. Raises InputError for what is none."""
    total: Sum = {"": Fraction(0)}
    pieces = re.findall(r"([-+]?)([^-+]+)", text)
    if "".join(sign + piece for sign, piece in pieces) != text or not text.strip() or len(text) > MAX_CHARS:
        raise InputError(f"{where}: {shown(text)} is no sum")
    if not pieces[0][1].strip():  # a space before the first sign
        pieces = pieces[1:]
    for index, (sign, piece) in enumerate(pieces):
        words = _WORDS.findall(piece)
        if not 0 < len(words) <= MAX_FACTORS or _TERM.fullmatch(piece) is None or (index and not sign):
            raise InputError(f"{where}: {shown(text)} is no sum of numbers times features")
        factor, name = Fraction(-1 if sign == "-" else 1), ""
        for word in words:
            if word[0].isdigit():
                factor *= parse_fraction(word, where)
            elif word in numbers:
                factor *= numbers[word]
            elif word in ALL and not name:
                name = word
            else:
                raise InputError(f"{where}: {shown(word)} is no feature, or the second one of a product")
        total = add(total, {name: factor})
    return total


def add(left: Sum, right: Sum, times: Fraction = Fraction(1)) -> Sum:
    """Return left + times * right."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, Fraction(0)) + times * value
    return {name: value for name, value in total.items() if value or name == ""}


def parts_of(formula: Read) -> Iterator[Read]:
    """Yield the parts whose conjunction a formula is."""
    if formula[0] == "all":
        for part in formula[1]:
            yield from parts_of(part)
    else:
        yield formula


def features(formula: Read) -> frozenset[str]:
    if formula[0] == "cmp":
        return frozenset(formula[1]) - {""}
    parts = [formula[1]] if formula[0] == "not" else formula[1]
    return frozenset().union(*(features(part) for part in parts))


def beliefs(formula: Read) -> frozenset[str]:
    """Return the beliefs that a formula reads at either end."""
    return frozenset(GROWN.get(name, name.removesuffix("'")) for name in features(formula)) & BELIEFS


def ended(formula: Read) -> Read:
    """Return what a formula about a trace's start says of its end."""
    if formula[0] == "cmp":
        return ("cmp", ended_sum(formula[1]), formula[2])
    if formula[0] == "not":
        return ("not", ended(formula[1]))
    return (formula[0], tuple(ended(part) for part in formula[1]))


def ended_sum(total: Sum) -> Sum:
    """Return a sum with the features of the end in place of the start's."""
    return {f"{name}'" if name in STATE else name: value for name, value in total.items()}


def on_trace(formula: Read, path: Path, *, timed: bool) -> str:
    """Write a formula for a trace; a comparison with a peak is one for each sample from 1 on."""
    if formula[0] == "not":
        return f"(not {on_trace(formula[1], path, timed=timed)})"
    if formula[0] == "cmp":
        sign = "<" if formula[2] else "<="
        times = range(1, path.samples) if features(formula) & set(PEAKS) else range(1)
        return conj(*(f"({sign} {_write_sum(formula[1], path, t, timed=timed)} 0.0)" for t in times))
    return (conj if formula[0] == "all" else disj)(*(on_trace(part, path, timed=timed) for part in formula[1]))


def _write_sum(total: Sum, path: Path, t: int, *, timed: bool) -> str:
    terms = (f"(* {num(value)} {_write_feature(name, path, t, timed=timed)})" for name, value in total.items() if name)
    return f"(+ {num(total.get('', Fraction(0)))} {' '.join(terms)})"


def _write_feature(name: str, path: Path, t: int, *, timed: bool) -> str:
    last = path.last
    if name in GROWN:
        return f"{GROWN[name]}_kept" if timed else f"{GROWN[name]}_{last}"
    at = last if name.endswith("'") else 0
    plain = name.removesuffix("'")
    trace_terms = {"served": f"(- G_{last} G_0)", "delivered": f"(- S_{last} S_0)", "MSS": "alpha", "buffer": "beta"}
    if plain in trace_terms:
        return trace_terms[plain]
    if plain == "lost":
        return f"(+ 0.0 {' '.join(path.lost(x) for x in range(1, path.samples))})"
    samples = {
        "queue": f"(- E_{at} G_{at})",
        "inflight": f"(- E_{at} S_{at})",
        "peak_queue": f"(- E_{t} G_{t})",
        "peak_inflight": f"(- E_{t} S_{t})",
        "peak_sent": f"rate_{t}",
    }
    if plain == "peak_loss":
        return path.lost(t)
    return samples.get(plain, f"{plain}_{at}")
