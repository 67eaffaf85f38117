"""Belief programs: senders as data ([CCmatic] Listing 1).

A program maps belief bounds to a sending rate by nested linear conditions. It is one JSON document: the engine interprets it,
the solver encodes it, the printer prints it. The format is described in ``docs/programs.md``.

``compile_program`` and ``evaluate`` need numba and are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccenv.programs.printer import expression_text, pseudo_code
from ccenv.programs.program import (
    BOOLEANS,
    INPUT_INDEX,
    INPUTS,
    UNIT_OF,
    Branch,
    Decision,
    Expression,
    Leaf,
    MAX_RATE_Bps,
    Program,
    Rule,
    decide,
)
from ccenv.programs.reader import load_program, parse_program, to_data, to_json

if TYPE_CHECKING:
    from ccenv.programs.compiled import CompiledProgram, compile_program, evaluate, stack_programs

_COMPILED = ("CompiledProgram", "compile_program", "evaluate", "stack_programs")

__all__ = [
    "BOOLEANS",
    "INPUTS",
    "INPUT_INDEX",
    "UNIT_OF",
    "Branch",
    "CompiledProgram",
    "Decision",
    "Expression",
    "Leaf",
    "MAX_RATE_Bps",
    "Program",
    "Rule",
    "compile_program",
    "decide",
    "evaluate",
    "expression_text",
    "load_program",
    "parse_program",
    "pseudo_code",
    "stack_programs",
    "to_data",
    "to_json",
]


def __getattr__(name: str) -> Any:
    if name in _COMPILED:
        from ccenv.programs import compiled

        return getattr(compiled, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
