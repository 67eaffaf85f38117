"""Certificates as files: strict JSON with the theorem's data, the program, every query with its answer, and the sentence."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ccenv.config import StrictModel, validate
from ccenv.document import Format
from ccenv.foreign import JsonRules

LAWS_VERSION = 1
"""Of the list of laws in docs/theorems.md. A certificate of another version is refused: its queries mean something else."""

MAX_BYTES = 64 << 20
FORMAT = Format(
    "ccenv-certificate", 1, "a certificate of a theorem", rules=JsonRules(max_bytes=MAX_BYTES), older="prove the theorem again"
)

Number = str | int | float


class RankData(StrictModel):
    """A rank, as the theorem has it."""

    of: str
    times: Number | None = None
    by_mss: Number | None = None
    over: Number | None = None
    minus: Number | None = None
    until: Number
    jump: Number | None = None


class ClaimData(StrictModel):
    """A claim, as the theorem has it."""

    bound: Number
    rank: list[RankData] = Field(max_length=4)
    when: Any
    potential: str
    potential_range: tuple[Number, Number]


class LemmaData(StrictModel):
    """A lemma, as the theorem has it."""

    name: str
    text: str
    if_: Any = Field(alias="if")
    then: list[Any] = Field(min_length=1)
    given: list[str]


class TheoremData(StrictModel):
    """A theorem's data, every key written out."""

    name: str
    source: str
    sender: str
    model: Literal["ideal", "cbr_delay", "ccac"]
    buffer: str | float
    T: int = Field(ge=3, le=21)
    past: Literal["history", "sound"]
    timeouts: Literal["artefact", "paper", "none"]
    constants: dict[str, Number]
    states: dict[str, Any]
    start: Any
    invariant: Any
    lemmas: list[LemmaData] = Field(min_length=1, max_length=40)
    history_given: list[str] = Field(default_factory=list)
    claims: dict[Literal["utilisation", "inflight_bdp", "loss_per_rtt"], ClaimData] = Field(min_length=1)


class QueryData(StrictModel):
    """One query of a lemma.

    Attributes:
        lemma: its name; ``history`` is the lemma that carries the past from trace to trace.
        part: which of its conclusions, from 1 on.
        sha256: of the text.
        smtlib: the text.
        answer: of the solver.
        solver: name and version.
        seconds: time in the solver.
        witness: a trace of the premise: values of the names in the text, as "7/2", true or false.
    """

    lemma: str
    part: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    smtlib: str
    answer: str
    solver: str
    seconds: float = Field(ge=0)
    witness: dict[str, str | bool]


class StepData(StrictModel):
    """One step of the composition, with the solver's answer."""

    name: str
    answer: str


class Certificate(StrictModel):
    """A certificate.

    Attributes:
        laws: version of the list of laws.
        theorem: what is claimed, and the lemmas.
        program: the sender, as a belief program's JSON.
        sent_before: (a, b): before the start at most a*C*Rm + b*MSS was sent per Rm; None: anything.
        statement: the sentence.
        figures: the three numbers; None for what is not claimed.
        assumptions: what the statement takes for granted.
        converges: claim -> how long exceptions last.
        settles: claim -> whether exceptions come first.
        queries: all of them.
        composition: its steps.
        made_with: versions.
    """

    format: Literal["ccenv-certificate"]
    version: Literal[1]
    laws: int
    theorem: TheoremData
    program: dict[str, Any]
    sent_before: tuple[str, str] | None
    statement: str
    figures: dict[str, float | None]
    assumptions: list[str]
    converges: dict[str, Any]
    settles: dict[str, bool]
    queries: list[QueryData] = Field(max_length=400)
    composition: list[StepData] = Field(max_length=400)
    made_with: dict[str, str]

    def theorem_data(self) -> dict[str, Any]:
        """Return the theorem's data as plain JSON values."""
        return self.theorem.model_dump(by_alias=True, mode="json")


def parse_certificate(content: bytes, where: str) -> Certificate:
    """Return what a certificate says.

    Args:
        content: of the file.
        where: its name for messages.

    Raises:
        InputError: one line, for a text that is none, or of another version.
    """
    return validate(Certificate, FORMAT.parse(content, where), where)
