"""Boxes of contracts around a program, and what is known of them.

A contract is a vector of levels, one per leaf, end and kind of change; a level of 0 changes nothing. A larger level gives an end
that is further out at every belief, because all inputs are positive. So a contract below a proved one is proved, and one above a
refuted one is refuted: stored answers decide whole boxes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.document import Format, hash_of
from ccenv.errors import CcenvError, InputError
from ccenv.foreign import parse_json
from ccenv.programs import Branch, Expression, Leaf, Program, Rule, to_data

SCALE_STEP = Fraction(1, 20)
OFFSET_STEP = Fraction(1, 4)  # in MSS/Rm
SCALE_LEVELS, OFFSET_LEVELS = 6, 2
SEGMENT = "MSS/Rm"
FORMAT = Format("ccenv-contract-answers", 1, "answers about contracts", older="--fresh discards them", indent=None)

Levels = tuple[int, ...]
Answer = Literal["proved", "refuted", "undecided"]


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
    by_leaf = {(way.leaf, way.end, way.kind): level for way, level in zip(ways, levels, strict=True)}
    numbers = iter(range(len(ways)))

    def rebuild(rule: Rule) -> Rule:
        if isinstance(rule, Branch):
            return Branch(rule.condition, rebuild(rule.then), rebuild(rule.otherwise))
        number = next(numbers)
        ends = [
            _moved(rule.ends[min(end, len(rule.ends) - 1)], by_leaf[number, end, "scale"], by_leaf[number, end, "offset"], end)
            for end in (0, 1)
        ]
        return Leaf(ends[0], rule.hold_rtts, ends[1] if ends[0] != ends[1] else None)

    return Program(name, rebuild(program.rule), program.source, program.probe_window_rtts)


def _moved(end: Expression, scale: int, offset: int, which: int) -> Expression:
    """Move an end outwards: down for the lower one, up for the upper one, at every belief."""
    sign = 1 if which else -1
    terms: dict[str, Fraction] = {}
    for name, coefficient in end.terms:
        grown = coefficient + sign * scale * SCALE_STEP * abs(coefficient) if name != SEGMENT else coefficient
        terms[name] = grown
    terms[SEGMENT] = terms.get(SEGMENT, Fraction(0)) + sign * offset * OFFSET_STEP
    kept = tuple((name, value) for name, value in terms.items() if value != 0)
    return Expression(kept or ((SEGMENT, Fraction(sign)),))


@dataclass
class Known:
    """Answers about boxes, in a file of one line each; the first line says what they are about.

    Attributes:
        file: grows by one line per answer; a line that a killed process left half-written is dropped.
        about: hash of program, constants and network.
        proved: levels whose contracts are proved.
        refuted: levels whose contracts are refuted.
        undecided: levels -> the time limit at which the solver gave up.
        held: query -> levels of which that query alone is proved, whatever became of the others.
    """

    file: FilePath
    about: str
    proved: list[Levels] = field(default_factory=list)
    refuted: list[Levels] = field(default_factory=list)
    undecided: dict[Levels, float] = field(default_factory=dict)
    held: dict[str, list[Levels]] = field(default_factory=dict)

    @staticmethod
    def open(file: FilePath, program: Program, question: dict[str, Any], fresh: bool = False) -> Known:
        """Open the answers about a program under given constants.

        Raises:
            InputError: for a file about something else, or a damaged one.
            CcenvError: if it cannot be read or written.
        """
        about = hash_of({"program": to_data(program), **question})
        known = Known(file, about)
        try:
            if fresh or not file.is_file() or file.stat().st_size == 0:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(FORMAT.content({"about": about}))
                return known
            content = file.read_bytes()
        except OSError as error:
            raise CcenvError(f"{file}: cannot be read or written ({error.strerror})") from None
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines()
        head = FORMAT.parse(lines[0], str(file)) if lines else {}
        if head.get("about") != about:
            raise InputError(f"{file}: answers about another program or other constants; choose another --out, or --fresh")
        for number, line in enumerate(lines[1:], start=2):
            known._take(parse_json(line, f"{file}:{number}"), number, len(directions(program)))
        if len(whole) < len(content):
            with file.open("r+b") as stream:
                stream.truncate(len(whole))
        return known

    def _take(self, row: Any, number: int, width: int) -> None:
        levels = row.get("levels") if isinstance(row, dict) else None
        whole = isinstance(levels, list) and len(levels) == width and all(type(x) is int and x >= 0 for x in levels)
        if not whole or row.get("answer") not in ("proved", "refuted", "undecided"):
            raise InputError(f"{self.file}:{number}: no answer about a contract; --fresh discards the file")
        held = row.get("held", [])
        if not isinstance(held, list) or not all(isinstance(name, str) for name in held):
            raise InputError(f"{self.file}:{number}: held is no list of queries; --fresh discards the file")
        self._add(tuple(row["levels"]), row["answer"], float(row.get("limit_s", 0.0)), held)

    def _add(self, levels: Levels, answer: Answer, limit_s: float, held: Sequence[str]) -> None:
        for name in held:
            self.held.setdefault(name, []).append(levels)
        if answer == "undecided":
            self.undecided[levels] = max(limit_s, self.undecided.get(levels, 0.0))
        else:
            (self.proved if answer == "proved" else self.refuted).append(levels)

    def answer(self, levels: Levels, limit_s: float) -> Answer | None:
        """Return what follows from the answers so far; None: the solver must be asked."""
        if any(below(levels, proved) for proved in self.proved):
            return "proved"
        if any(below(refuted, levels) for refuted in self.refuted):
            return "refuted"
        return "undecided" if self.undecided.get(levels, -1.0) >= limit_s else None

    def holds(self, query: str, levels: Levels) -> bool:
        """Tell whether a query is proved of a contract because it was of one around it."""
        return any(below(levels, wider) for wider in self.held.get(query, ()))

    def store(self, levels: Levels, answer: Answer, limit_s: float, held: Sequence[str] = (), **more: Any) -> None:
        """Keep an answer, in memory and on disk, with the queries that were proved on the way to it."""
        self._add(levels, answer, limit_s, held)
        row = {"levels": list(levels), "answer": answer, "limit_s": limit_s, "held": list(held), **more}
        with self.file.open("ab") as stream:
            stream.write(json.dumps(row).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())


def below(a: Levels, b: Levels) -> bool:
    """Tell whether a is at most b in every direction: its contract then lies inside the other."""
    return all(x <= y for x, y in zip(a, b, strict=True))
