"""Belief programs: senders as data ([CCmatic] Listing 1).

A program maps belief bounds to a sending rate by nested linear conditions. It is one JSON document: the engine interprets it,
the solver encodes it, the printer prints it. The format is described in ``docs/programs.md``.
"""

from __future__ import annotations

from ccenv.agents.programs.printer import expression_text, pseudo_code
from ccenv.agents.programs.program import (
    BOOLEANS,
    INPUT_INDEX,
    INPUTS,
    UNIT_OF,
    Branch,
    Decision,
    Expression,
    Interval,
    Leaf,
    MAX_RATE_Bps,
    Program,
    Rule,
    decide,
    interval,
    rate_at,
)
from ccenv.agents.programs.reader import load_program, parse_program, to_data, to_json

__all__ = [
    "BOOLEANS",
    "INPUTS",
    "INPUT_INDEX",
    "UNIT_OF",
    "Branch",
    "Decision",
    "Expression",
    "Interval",
    "Leaf",
    "MAX_RATE_Bps",
    "Program",
    "Rule",
    "decide",
    "expression_text",
    "interval",
    "load_program",
    "parse_program",
    "pseudo_code",
    "rate_at",
    "to_data",
    "to_json",
]
