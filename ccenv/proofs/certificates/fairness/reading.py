"""A certificate of fairness as a file: design, sender, tables, queries with their answers, and the sentence."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import Field

from ccenv.base.config import StrictModel, data_folder, validate
from ccenv.base.errors import unknown_name
from ccenv.base.files import Format
from ccenv.base.foreign import JsonRules, is_file, read_bounded, read_lines
from ccenv.base.renamed import today
from ccenv.proofs.certificates.reading import Solver

MAX_BYTES = 8 << 20
MAX_CELLS = 200
SUFFIX = ".fairness.json"
SUFFIXES = (SUFFIX, SUFFIX + ".xz")
FORMAT = Format(
    "ccenv-fairness-certificate",
    1,
    "a certificate of fairness",
    rules=JsonRules(max_bytes=MAX_BYTES),
    older="prove the theorem again",
)

Decimal = Annotated[str, Field(pattern="^-?(0|[1-9][0-9]{0,5})([.][0-9]{1,12})?$")]
"""An exact number, such as "0.65"."""
Text = Annotated[str, Field(max_length=4000)]
Table = Annotated[list[Decimal], Field(min_length=4, max_length=MAX_CELLS + 1)]


class DesignData(StrictModel):
    """What was asked for."""

    fairness: Decimal  # s, the largest ratio of two rates
    jitter_rtts: Decimal  # D over Rm
    shares: Decimal  # mu+ over mu-, the range of C/N
    utilisation: Decimal  # kappa, the least sum of all rates over C
    freedom: Decimal = "1"  # f; each rate is within a factor f of the rule's, 1: it is the rule's
    early: Decimal = "0"  # e; by so many Rm delays may look shorter: Rm is taken for longer, or tokens serve bytes early
    unlike: Decimal = "0"  # beta; Rm of flows are 1 - beta to 1 of the largest


class SenderData(StrictModel):
    """The rule's numbers; C = Rm = 1."""

    slope: Decimal  # B
    gain: Decimal  # g, per Rm
    offset: Decimal  # theta+, that is A - ln mu+
    start: Decimal  # where v is more than this below the map A - B (X - 1), it grows at a rate of its own
    relief: Decimal  # where it is more than this above the map, it falls so


class ConstantsData(StrictModel):
    """Numbers of the proof."""

    spread: Decimal  # bound of e^(v_i - v_j)
    entropy: Decimal  # K, bound of ln N - entropy
    curvature: Decimal  # zeta, the share of B w^2 that the drift costs at the band's top


class TableData(StrictModel):
    """Bounds of X as lines between nodes of w, and bounds of the drift in each cell.

    Attributes:
        w: nodes; the first and the last are the band's ends.
        low, high: L and H at the nodes.
        rise, fall: bounds of V'/g and -V'/g in each cell.
    """

    w: Table
    low: Table
    high: Table
    rise: Table
    fall: Table


class BoundsData(StrictModel):
    """What is proved: ratio of two rates, sum of rates over C, RTT over Rm."""

    ratio: Decimal
    utilisation: Decimal
    rtt_rtts: Decimal


class QueryData(StrictModel):
    """One query of a lemma: its text and what was answered."""

    lemma: Annotated[str, Field(pattern="^L[1-6] [a-z]{1,20}( [0-9]{1,3})?$")]
    smtlib: Text
    answer: Annotated[str, Field(max_length=20)]
    solver: Solver
    seconds: float = Field(ge=0)


class FairCertificate(StrictModel):
    """A certificate of fairness."""

    format: Literal["ccenv-fairness-certificate"]
    version: Literal[1]
    sender: Literal["ever_delay"]
    design: DesignData
    rule: SenderData
    constants: ConstantsData
    tables: TableData
    bounds: BoundsData
    statement: str
    assumptions: list[str]
    queries: list[QueryData] = Field(max_length=6 * MAX_CELLS + 20)
    made_with: dict[Literal["ccenv"], Annotated[str, Field(pattern="^[0-9][0-9a-z.+]{0,40}$")]]


def parse_fair(content: bytes, where: str) -> FairCertificate:
    """Return what a certificate of fairness says. Raises InputError, one line, for a text that is none."""
    return validate(FairCertificate, FORMAT.parse(content, where), where)


def read_fair(file: FilePath) -> FairCertificate:
    """Read a certificate of fairness, packed with xz or not. Raises InputError for a file that is none."""
    if file.suffix == ".xz":
        content = b"".join(line + b"\n" for _, line in read_lines(file, max_bytes=MAX_BYTES, max_line_bytes=MAX_BYTES))
    else:
        content = read_bounded(file, MAX_BYTES)
    return parse_fair(content, str(file))


def shipped_fair() -> dict[str, FilePath]:
    """Return the shipped certificates of fairness by name; ``ever_delay`` is the default design's."""
    folder = data_folder("ccenv.proofs.certificates.shipped")
    return {file.name.removesuffix(SUFFIXES[1]): file for file in sorted(folder.glob(f"*{SUFFIXES[1]}"))}


def find_fair(text: str) -> FilePath | None:
    """Return the certificate of fairness that a user means, by path or by name; None for other names.

    Raises:
        UnknownNameError: for a name that begins like one of these, and is none.
    """
    if text.endswith(SUFFIXES):
        return FilePath(text)
    shipped = shipped_fair()
    if (name := today(text)) in shipped and not is_file(text):
        return shipped[name]
    if text.startswith("ever_delay") and "/" not in text and not is_file(text):
        raise unknown_name("certificate", text, shipped)
    return None


def exact(numbers: StrictModel) -> dict[str, Fraction]:
    """Return the exact numbers of a part of a certificate."""
    return {name: Fraction(value) for name, value in numbers.model_dump().items()}
