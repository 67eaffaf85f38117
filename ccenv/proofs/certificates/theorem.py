"""The data of a theorem, shared by prover and checker (docs/theorems.md): its keys, numbers and single name space."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError, shown
from ccenv.base.foreign import NAME_ALLOWED, fold_name, is_name, parse_fraction
from ccenv.proofs.certificates.claims import ALL

LARGEST = 10**9
"""Of the numerator and the denominator of a theorem's numbers."""

MAX_PARTS = 10_000
"""Of the formulas of a theorem, with each state put in for its name."""

MAX_DEPTH = 24
"""Of a formula in what it stands in, by the same count."""

RESERVED = ("rtts", "C", "Rm", "D", "K", "T", "g", "t", "alpha", "beta", "rate", "all", "any", "not", "true", "false")
"""Words with a meaning in a formula or a sentence, besides the features."""

RESULTS = (
    *("utilisation", "inflight", "inflight_bdp", "loss", "loss_per_rtt", "lost", "packets_lost", "delay", "rtt"),
    *("throughput", "goodput", "fairness", "jain", "bdp", "ratio"),
)
"""What a sentence may promise: a constant of such a name, printed with its value, would read as a result."""

HISTORY = "history"
"""Name of the lemma that carries ``past: history`` from the first trace of a run to all others."""


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError(f"the name {shown(value, 80)} is not allowed: {NAME_ALLOWED}")
    return value


def _line(value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{shown(value, 80)} is not one line of ASCII")
    return value


Number = str | int | float
Name = Annotated[str, AfterValidator(_name)]
Line = Annotated[str, Field(max_length=500), AfterValidator(_line)]
Word = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,39}$")]
LemmaName = Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_,.'-]*( [A-Za-z0-9_,.'-]+)*$", max_length=80)]


class Rank(StrictModel):
    """A quantity that moves monotonically to an end, by steps of a least size: exactly one of times, by_mss, over and minus."""

    of: str  # a belief or the queue
    times: Number | None = None  # least factor of growth (above 1) per step, until it is at least `until`
    by_mss: Number | None = None  # least growth per step, in MSS/Rm
    over: Number | None = None  # least factor of decrease (above 1) per step, until it is at most `until`
    minus: Number | None = None  # least decrease per step
    until: Number
    # with `over`: from above this value the first step leads to it or below, so that an infinite start counts one
    jump: Number | None = None


class Claim(StrictModel):
    """A claim about all traces of a run but a bounded number: in each of those a rank moves."""

    # utilisation in the long run; most bytes in flight, in C(Rm + D); most bytes lost per Rm in the long run, in C Rm
    bound: Number
    rank: list[Rank] = Field(default_factory=list, max_length=4)  # ranks of which one moves in each trace that violates the bound
    when: Any = Field(default_factory=list)  # assumptions on MSS and the buffer, which do not change
    potential: str = "0"  # of `utilisation` and `loss_per_rtt`: the credit or debt of a trace at its ends
    potential_range: tuple[Number, Number] = (0, 0)


class Lemma(StrictModel):
    """A statement about every trace: ``if`` and the conclusions of the ``given`` earlier lemmas imply each part of ``then``."""

    name: LemmaName
    text: Line
    if_: Any = Field(alias="if")
    then: list[Any] = Field(min_length=1)
    given: tuple[str, ...] = ()

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if fold_name(name) == fold_name(HISTORY):
            raise ValueError(f"{HISTORY!r} is the name of the lemma that carries the past from trace to trace")
        return name


class Theorem(StrictModel):
    """A theorem."""

    name: Name
    source: Line
    sender: Name  # registered belief program, or a program file beside the theorem
    model: Literal["ideal", "cbr_delay", "ccac"]
    buffer: str | float = "arbitrary"  # `infinite`, `small`, `large`, `arbitrary`, or a number of C*Rm
    T: int = Field(ge=3, le=21)  # samples of a trace; with time-outs 11, the engine's period
    past: Literal["history", "sound"] = "history"  # `history` or `sound`: treatment of the steps before a trace
    # `artefact` or `paper` (C_L and C_U time out at the end of each trace), or `none`
    timeouts: Literal["artefact", "paper", "none"] = "none"
    constants: dict[Word, Number] = Field(default_factory=dict)
    states: dict[Word, Any] = Field(default_factory=dict)
    start: Any  # assumption on the start of the run; an empty list is any state
    invariant: Any  # holds at the start and end of each trace
    lemmas: list[Lemma] = Field(min_length=1, max_length=40)
    # lemmas whose conclusions are assumed of a trace when its past is carried to the next one
    history_given: tuple[str, ...] = ()
    claims: dict[Literal["utilisation", "inflight_bdp", "loss_per_rtt"], Claim] = Field(min_length=1)

    def to_dict(self) -> dict[str, Any]:
        """Return the data as plain JSON values, with every key."""
        return self.model_dump(by_alias=True, mode="json")

    @field_validator("constants", "states")
    @classmethod
    def _one_space_of_names(cls, named: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Refuse a constant or state whose name equals or resembles any other name of the formula language."""
        taken = {fold_name(word): word for word in (*ALL, *RESERVED, *RESULTS, *info.data.get("constants", ()))}
        for name in named:
            if (look := fold_name(name)) in taken:
                raise ValueError(f"{name!r} bears, or looks like, the name of {taken[look]!r}")
            taken[look] = name
        return named

    @field_validator("states", "start", "invariant", "lemmas", "claims")
    @classmethod
    def _is_of_readable_size(cls, formulas: Any, info: ValidationInfo) -> Any:
        """Refuse formulas that grow without bound when states replace their names."""
        states = formulas if info.field_name == "states" else info.data.get("states", {})
        sizes: dict[str, int] = {}

        def size(data: Any, depth: int) -> int:
            if depth > MAX_DEPTH:
                return MAX_PARTS + 1
            if isinstance(data, str) and data in states:
                if data not in sizes:
                    sizes[data] = MAX_PARTS + 1  # what is met again before it is counted names itself
                    sizes[data] = size(states[data], depth + 1)
                return sizes[data]
            data = dict(data) if isinstance(data, StrictModel) else data
            parts = data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else ()
            return 1 + sum(size(part, depth + 1) for part in parts)

        if size(formulas, 0) > MAX_PARTS:
            raise ValueError(f"formulas have more than {MAX_PARTS} parts, or a state names itself")
        return formulas

    @field_validator("lemmas")
    @classmethod
    def _names_differ(cls, lemmas: list[Lemma]) -> list[Lemma]:
        names = [lemma.name for lemma in lemmas]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two lemmas are called {name!r}")
        return lemmas


def number(value: Any, numbers: Mapping[str, Fraction], where: str) -> Fraction:
    """Return a number given as such or as a constant's name. Raises InputError for none, and beyond LARGEST."""
    if isinstance(value, str) and value in numbers:
        return numbers[value]
    exact = parse_fraction(value, where)
    if max(abs(exact.numerator), exact.denominator) > LARGEST:
        raise InputError(f"{where}: {shown(value, 48)} is out of range: as a fraction at most {LARGEST} over {LARGEST}")
    return exact


def numbers_of(theorem: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return the constants of a theorem; ``rtts`` is T - 1."""
    constants = theorem["constants"].items()
    return {name: number(value, {}, f"theorem.constants.{name}") for name, value in constants} | {
        "rtts": Fraction(theorem["T"] - 1)
    }
