"""Canonical forms of SMT-LIB assertions, and their evaluation: two texts assert the same if their forms are equal.

A form is a nested tuple. Comparisons become ``linear <= 0``, ``< 0`` or ``= 0`` with coprime integer coefficients; negations move
inwards; parts of ``and`` and ``or`` are sorted; ``let`` is expanded (forms are shared, so this does not grow).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from ccenv.base.errors import InputError

Sexpr: TypeAlias = "str | list[Any]"
Form: TypeAlias = tuple[Any, ...]
Linear: TypeAlias = dict[Any, Fraction]  # atom (a name or an ("ite", ...) form) -> coefficient; the constant stands under 1


class InternedForm(tuple[Any, ...]):
    """A form that a reader holds once: equal to itself alone, so that a look-up does not walk through its parts."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


TRUE: Form = InternedForm(("true",))
FALSE: Form = InternedForm(("false",))
MAX_DEPTH = 400
MAX_TOKENS = 3_000_000
MAX_WORK = 20_000_000
"""Parts of sums and formulas that one reader joins; the queries of the largest shipped theorem take a twentieth."""

_TOKEN = re.compile(r"[()]|[^\s()]+")
_COMMAND = re.compile(r"\n(?=\((?:assert|declare-fun|check-sat)\b)")
_NUMBER = re.compile(r"[0-9]{1,60}(\.[0-9]{1,20})?")


def read_commands(text: str, where: str) -> list[Sexpr]:
    """Read an SMT-LIB text as nested lists.

    Raises InputError for brackets that do not match, or a text that is too large or too deep.
    """
    stack: list[list[Any]] = [[]]
    for count, token in enumerate(_TOKEN.findall(text)):
        if count > MAX_TOKENS or len(stack) > MAX_DEPTH:
            raise InputError(f"{where}: the text is too large or too deep to be a query")
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise InputError(f"{where}: a bracket closes that was not opened")
            stack[-2].append(stack.pop())
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise InputError(f"{where}: a bracket is not closed")
    return stack[0]


class Reader:
    """Reads assertions into forms; equal forms are one object, so comparing them is quick."""

    def __init__(self) -> None:
        self.forms: dict[Form, Form] = {}
        self._indices: dict[int, int] = {id(TRUE): -2, id(FALSE): -1}
        self._negations: dict[int, Form] = {}
        self._pieces_read: dict[str, list[Form]] = {}
        self._sorts: dict[str, str] = {}
        self._work = 0

    def assertions(self, text: str, where: str) -> list[Form]:
        """Return the forms of all assertions of a query.

        Commands begin at the start of a line. Queries of one theorem share most of theirs, so each is read once. Raises
        InputError for a command or an operator that a query has no use for, or a name that is not declared.
        """
        forms = []
        for piece in _COMMAND.split(text):
            if piece not in self._pieces_read:
                try:
                    self._pieces_read[piece] = self._read_commands(piece, where)
                except RecursionError:
                    raise InputError(f"{where}: the text is too deep to be a query") from None
            forms += self._pieces_read[piece]
        return forms

    def _read_commands(self, piece: str, where: str) -> list[Form]:
        forms = []
        for command in read_commands(piece, where):
            match command:
                case ["set-logic", "QF_LRA"] | ["check-sat"]:
                    continue
                case ["declare-fun", str(name), [], ("Real" | "Bool") as sort]:
                    if self._sorts.setdefault(name, sort) != sort:
                        raise InputError(f"{where}: {name} is declared as {sort} and as {self._sorts[name]}")
                case ["assert", body]:
                    forms.append(self.boolean(body, self._sorts, {}, where))
                case _:
                    raise InputError(f"{where}: {str(command)[:60]!r} is no command of a query")
        return forms

    def boolean(self, body: Sexpr, sorts: Mapping[str, str], names: Mapping[str, Any], where: str) -> Form:
        value = self._read(body, sorts, names, where)
        if not isinstance(value, tuple):
            raise InputError(f"{where}: {str(body)[:60]!r} is a number where a truth value is needed")
        return value

    def _read(self, body: Sexpr, sorts: Mapping[str, str], names: Mapping[str, Any], where: str) -> Any:
        """Return a form (a tuple) for a formula, a Linear (a dict) for a term."""
        if isinstance(body, str):
            return self._read_word(body, sorts, names, where)
        if not body or not isinstance(body[0], str):
            raise InputError(f"{where}: {str(body)[:60]!r} has no operator")
        head, *rest = body
        if head == "let":
            inner = dict(names)
            if len(rest) != 2 or not isinstance(rest[0], list):
                raise InputError(f"{where}: {str(body)[:60]!r} is no let")
            self._spend(len(names), where)
            for binding in rest[0]:
                if not isinstance(binding, list) or len(binding) != 2 or not isinstance(binding[0], str):
                    raise InputError(f"{where}: {str(binding)[:60]!r} binds no name")
                inner[binding[0]] = self._read(binding[1], sorts, names, where)
            return self._read(rest[1], sorts, inner, where)
        parts = [self._read(part, sorts, names, where) for part in rest]
        self._spend(sum(_count_parts(part) for part in parts), where)
        operator = _OPERATORS.get(head)
        if operator is None or not parts:
            raise InputError(f"{where}: operator {head!r} has no place in a query")
        try:
            return operator(self, parts)
        except (TypeError, ValueError, AttributeError, ZeroDivisionError):
            raise InputError(f"{where}: {str(body)[:60]!r} mixes numbers and truth values, or is not linear") from None

    def _spend(self, work: int, where: str) -> None:
        self._work += 1 + work
        if self._work > MAX_WORK:
            raise InputError(f"{where}: the text takes too much work to be a query")

    def _read_word(self, word: str, sorts: Mapping[str, str], names: Mapping[str, Any], where: str) -> Any:
        if word in names:
            return names[word]
        if word in ("true", "false"):
            return TRUE if word == "true" else FALSE
        if _NUMBER.fullmatch(word):
            return {1: Fraction(word)}
        if word not in sorts:
            raise InputError(f"{where}: {word!r} is not declared")
        return self._intern(("is", word)) if sorts[word] == "Bool" else {word: Fraction(1)}

    def _intern(self, form: Form) -> Form:
        interned = self.forms.get(form)
        if interned is None:
            interned = self.forms[form] = InternedForm(form)
            self._indices[id(interned)] = len(self._indices)
        return interned

    def _index(self, form: Form) -> int:
        """Return a form's index in the order of first reading."""
        return self._indices[id(form)]

    def negate(self, form: Form) -> Form:
        """Return the negation of a form, pushed inwards."""
        if id(form) not in self._negations:
            self._negations[id(form)] = self._push_negation(form)
        return self._negations[id(form)]

    def _push_negation(self, form: Form) -> Form:
        match form[0]:
            case "true":
                return FALSE
            case "false":
                return TRUE
            case "not":
                return form[1]  # type: ignore[no-any-return]
            case "and" | "or":
                return self.join("or" if form[0] == "and" else "and", [self.negate(part) for part in form[1]])
            case "<=" | "<":
                return self._compare("<" if form[0] == "<=" else "<=", {atom: -c for atom, c in form[1]})
            case "iff":
                return self._intern(("iff", form[1], form[2], not form[3]))
        return self._intern(("not", form))

    def join(self, how: str, parts: list[Form]) -> Form:
        """Return a conjunction (``and``) or a disjunction (``or``), flat, sorted and without repetition."""
        unit, zero = (TRUE, FALSE) if how == "and" else (FALSE, TRUE)
        flat: dict[int, Form] = {}
        for part in parts:
            flat |= {self._index(one): one for one in (part[1] if part[0] == how else (part,))}
        flat.pop(self._index(unit), None)
        if self._index(zero) in flat:
            return zero
        if len(flat) < 2:
            return next(iter(flat.values()), unit)
        return self._intern((how, tuple(flat[place] for place in sorted(flat))))

    def same(self, left: Form, right: Form) -> Form:
        """Return left <=> right."""
        for one, other in ((left, right), (right, left)):
            if one in (TRUE, FALSE):
                return other if one == TRUE else self.negate(other)
        alike = True
        pair = []
        for form in (left, right):
            positive = min(form, self.negate(form), key=self._index)
            alike ^= positive is not form
            pair.append(positive)
        first, second = sorted(pair, key=self._index)
        if first is second:
            return TRUE if alike else FALSE
        return self._intern(("iff", first, second, alike))

    def _compare(self, sign: str, difference: Linear) -> Form:
        terms = {atom: c for atom, c in difference.items() if c != 0}
        if set(terms) <= {1}:
            value = terms.get(1, Fraction(0))
            return TRUE if (value == 0 if sign == "=" else value < 0 or (sign == "<=" and value == 0)) else FALSE
        ordered = sorted(terms.items(), key=self._atom_order)
        scale = Fraction(math.lcm(*(c.denominator for _, c in ordered)), math.gcd(*(c.numerator for _, c in ordered)))
        first = next(c for atom, c in ordered if atom != 1)
        if sign == "=" and first < 0:
            scale = -scale
        scale = scale if scale > 0 or sign == "=" else -scale
        terms_coprime = _make_coprime(tuple((atom, c * scale) for atom, c in ordered))
        return self._intern((sign, terms_coprime))

    def choose(self, condition: Form, then: Any, otherwise: Any) -> Any:
        """Return ``ite(condition, then, otherwise)`` of formulas or of terms."""
        if condition in (TRUE, FALSE):
            return then if condition == TRUE else otherwise
        if isinstance(then, tuple):
            return self.join("or", [self.join("and", [condition, then]), self.join("and", [self.negate(condition), otherwise])])
        if then == otherwise:
            return then
        positive = min(condition, self.negate(condition), key=self._index)
        if positive is not condition:
            then, otherwise = otherwise, then
        return {self._intern(("ite", positive, self._freeze(then), self._freeze(otherwise))): Fraction(1)}

    def _freeze(self, linear: Linear) -> tuple[tuple[Any, Fraction], ...]:
        return tuple(sorted(((atom, c) for atom, c in linear.items() if c != 0), key=self._atom_order))

    def _atom_order(self, term: tuple[Any, Fraction]) -> tuple[int, str, int]:
        """Return an atom's sort key in a sum: the constant, names, then choices in the order of their forms."""
        atom = term[0]
        return (0, "", 0) if atom == 1 else (1, atom, 0) if isinstance(atom, str) else (2, "", self._index(atom))


def _count_parts(value: Any) -> int:
    """Return how many parts are visited when a value is joined or added."""
    return (
        len(value[1]) if isinstance(value, tuple) and value[0] in ("and", "or") else len(value) if isinstance(value, dict) else 1
    )


def _make_coprime(terms: tuple[tuple[Any, Fraction], ...]) -> tuple[tuple[Any, Fraction], ...]:
    divisor = math.gcd(*(int(c) for _, c in terms))
    return tuple((atom, c / divisor) for atom, c in terms)


def _add(parts: list[Linear]) -> Linear:
    total: Linear = {}
    for part in parts:
        for atom, coefficient in part.items():
            total[atom] = total.get(atom, Fraction(0)) + coefficient
    return {atom: c for atom, c in total.items() if c != 0}


def _scale(part: Linear, by: Fraction) -> Linear:
    return {atom: c * by for atom, c in part.items() if c * by != 0}


def _subtract(parts: list[Linear]) -> Linear:
    if len(parts) == 1:
        return _scale(parts[0], Fraction(-1))
    return _add([parts[0], *(_scale(part, Fraction(-1)) for part in parts[1:])])


def _multiply(parts: list[Linear]) -> Linear:
    result: Linear = {1: Fraction(1)}
    for part in parts:
        constants = [one for one in (result, part) if set(one) <= {1}]
        if not constants:
            raise ValueError("a product of variables")
        other = part if constants[0] is result else result
        result = _scale(other, constants[0].get(1, Fraction(0)))
    return result


def _divide(parts: list[Linear]) -> Linear:
    result = parts[0]
    for part in parts[1:]:
        if not set(part) <= {1}:
            raise ValueError("a quotient by a variable")
        result = _scale(result, 1 / part.get(1, Fraction(0)))
    return result


def _make_comparison(sign: str, flipped: bool) -> Any:
    def compare(reader: Reader, parts: list[Any]) -> Form:
        left, right = parts
        if flipped:
            left, right = right, left
        return reader._compare(sign, _add([left, _scale(right, Fraction(-1))]))

    return compare


def _equal(reader: Reader, parts: list[Any]) -> Form:
    left, right = parts
    if isinstance(left, tuple):
        return reader.same(left, right)
    return reader._compare("=", _add([left, _scale(right, Fraction(-1))]))


_OPERATORS: dict[str, Any] = {
    "and": lambda reader, parts: reader.join("and", parts),
    "or": lambda reader, parts: reader.join("or", parts),
    "not": lambda reader, parts: reader.negate(*parts),
    "=>": lambda reader, parts: reader.join("or", [reader.negate(parts[0]), parts[1]]),
    "ite": lambda reader, parts: reader.choose(*parts),
    "=": _equal,
    "<=": _make_comparison("<=", False),
    ">=": _make_comparison("<=", True),
    "<": _make_comparison("<", False),
    ">": _make_comparison("<", True),
    "+": lambda reader, parts: _add(parts),
    "-": lambda reader, parts: _subtract(parts),
    "*": lambda reader, parts: _multiply(parts),
    "/": lambda reader, parts: _divide(parts),
}


def abbreviate(form: Form, deep: int = 4) -> str:
    """Return a form for messages, its inner parts cut short."""
    if not isinstance(form, tuple):
        return str(form)
    return f"({' '.join(abbreviate(part, deep - 1) for part in form[:8])})" if deep else "..."


def holds(form: Form, values: Mapping[str, Fraction | bool], done: dict[Form, Any]) -> bool:
    """Return whether a form is true at exact values; a name without a value is 0 or false."""
    if form not in done:
        done[form] = _evaluate_form(form, values, done)
    return bool(done[form])


def _evaluate_form(form: Form, values: Mapping[str, Fraction | bool], done: dict[Form, Any]) -> bool:
    match form[0]:
        case "true" | "false":
            return bool(form[0] == "true")
        case "is":
            return values.get(form[1], False) is True
        case "not":
            return not holds(form[1], values, done)
        case "and":
            return all(holds(part, values, done) for part in form[1])
        case "or":
            return any(holds(part, values, done) for part in form[1])
        case "iff":
            return (holds(form[1], values, done) == holds(form[2], values, done)) is form[3]
    total = _evaluate_sum(form[1], values, done)
    return total == 0 if form[0] == "=" else total < 0 or (form[0] == "<=" and total == 0)


def _evaluate_sum(terms: Any, values: Mapping[str, Fraction | bool], done: dict[Form, Any]) -> Fraction:
    total = Fraction(0)
    for atom, coefficient in terms:
        if atom == 1:
            total += coefficient
        elif isinstance(atom, str):
            total += coefficient * Fraction(values.get(atom, 0))
        else:
            if atom not in done:
                done[atom] = _evaluate_sum(atom[2] if holds(atom[1], values, done) else atom[3], values, done)
            total += coefficient * done[atom]
    return total
