"""A theorem as data: what is claimed of an endless run, and the lemmas about traces that it rests on (docs/theorems.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from ccenv.config import StrictModel, find_data, validate
from ccenv.errors import InputError, unknown_name
from ccenv.foreign import fraction_of, read_yaml, resolve_inside
from ccenv.programs import Program
from ccenv.smt.network.encode import SmtSender
from ccenv.smt.network.setting import TIMEOUT_PRESETS, BeliefRules, Setting, named_setting
from ccenv.smt.senders.catalog import program_of
from ccenv.smt.senders.program import ProgramSmtSender
from ccenv.smt.theorems.language import BELIEFS, START, Linear, Node, conjuncts, features_of, parse, parse_linear

THEOREMS = "ccenv.configs.theorem"
PERIOD_RTTS = 10
"""Length of a belief period of the engine, in Rm: with time-outs traces are periods, T = 11."""

MOST_SAMPLES = 21
HISTORY = "history"
"""Name of the lemma that makes ``past: history`` true of every trace of a run, if it is true of the first."""

Number = str | int | float


class Rank(StrictModel):
    """A quantity that only moves one way, by steps that are not too small, until it reaches an end.

    Exactly one of ``times``, ``by_mss``, ``over`` and ``minus`` is given.

    Attributes:
        of: a belief or the queue.
        times: it grows at least by this factor (above 1) in a step, until it is at least ``until``.
        by_mss: it grows at least by so many MSS/Rm.
        over: it falls at least by this factor (above 1), until it is at most ``until``.
        minus: it falls at least by this number.
        until: the end.
        jump: with ``over``: from above this value the first step leads to it or below, so that an infinite start counts one.
    """

    of: str
    times: Number | None = None
    by_mss: Number | None = None
    over: Number | None = None
    minus: Number | None = None
    until: Number
    jump: Number | None = None


class Claim(StrictModel):
    """A claim about all traces of a run but a bounded number: in each of those a rank moves.

    Attributes:
        bound: of the link in the long run; most bytes in flight in C(Rm + D); most bytes lost per Rm in the long run, in C Rm.
        rank: what moves in each trace that is not good.
        when: what the claim takes for granted of MSS and the buffer, which do not change.
        potential: of ``utilisation`` and ``loss_per_rtt``: what a trace may owe, or has saved, at its ends.
    """

    bound: Number
    rank: list[Rank] = Field(default_factory=list, max_length=4)
    when: Any = Field(default_factory=list)
    potential: str = "0"
    potential_range: tuple[Number, Number] = (0, 0)


class Lemma(StrictModel):
    """A statement about every trace: from ``if`` follows each part of ``then``.

    Attributes:
        name: for reports.
        text: one line.
        given: earlier lemmas whose conclusions are assumed too.
    """

    name: str
    text: str
    if_: Any = Field(alias="if")
    then: list[Any] = Field(min_length=1)
    given: tuple[str, ...] = ()


class Theorem(StrictModel):
    """A theorem.

    Attributes:
        name: of the theorem.
        source: where the lemmas come from.
        sender: registered belief program, or a program file beside the theorem.
        model: network model.
        buffer: ``infinite``, ``small``, ``large``, ``arbitrary``, or a number of C*Rm.
        T: samples of a trace; with time-outs 11, the engine's period.
        past: ``history`` or ``sound``: what is known of the steps before a trace.
        timeouts: ``artefact`` or ``paper`` (C_L and C_U time out at the end of each trace), or ``none``.
        constants: named numbers.
        states: named formulas.
        start: what is assumed of the start of the run; an empty list is any state.
        invariant: what holds at the start and end of each trace.
        lemmas: about traces.
        history_given: lemmas whose conclusions are assumed of a trace when its past is carried on to the next one.
        claims: ``utilisation``, ``inflight_bdp``, ``loss_per_rtt``.
    """

    name: str
    source: str
    sender: str
    model: Literal["ideal", "cbr_delay", "ccac"]
    buffer: str | float = "arbitrary"
    T: int = Field(ge=3, le=MOST_SAMPLES)
    past: Literal["history", "sound"] = "history"
    timeouts: Literal["artefact", "paper", "none"] = "none"
    constants: dict[str, Number] = Field(default_factory=dict)
    states: dict[str, Any] = Field(default_factory=dict)
    start: Any
    invariant: Any
    lemmas: list[Lemma] = Field(min_length=1, max_length=40)
    history_given: tuple[str, ...] = ()
    claims: dict[Literal["utilisation", "inflight_bdp", "loss_per_rtt"], Claim] = Field(min_length=1)


@dataclass(frozen=True)
class ReadLemma:
    """A lemma with its formulas read: the premise with what is given, and the conclusions."""

    name: str
    text: str
    premise: Node
    granted: tuple[Node, ...]
    conclusions: tuple[Node, ...]


@dataclass(frozen=True)
class ReadRank:
    """A rank with its numbers read; ``law`` is times, by_mss, over or minus."""

    of: str
    law: str
    step: Fraction
    until: Fraction
    jump: Fraction | None


@dataclass(frozen=True)
class ReadClaim:
    """A claim with its formulas and numbers read."""

    name: str
    bound: Fraction
    ranks: tuple[ReadRank, ...]
    when: Node
    potential: Linear
    potential_range: tuple[Fraction, Fraction]


@dataclass(frozen=True)
class LoadedTheorem:
    """A theorem with everything in it read and checked.

    Attributes:
        theorem: as written.
        program: the sender's.
        setting: of its queries, with time-outs where it has them.
        start: formula.
        invariant: formula.
        lemmas: in order.
        claims: in order.
        history_granted: what is assumed when the past is carried on.
    """

    theorem: Theorem
    program: Program
    setting: Setting
    start: Node
    invariant: Node
    lemmas: tuple[ReadLemma, ...]
    claims: tuple[ReadClaim, ...]
    history_granted: tuple[Node, ...] = ()

    @property
    def sender(self) -> SmtSender:
        """The program as a sender for the solver."""
        return ProgramSmtSender(self.program)


def load_theorem(name: str) -> LoadedTheorem:
    """Read a theorem by name or by the path of a YAML file, and check every formula in it.

    Raises:
        UnknownNameError: if no such theorem exists.
        InputError: for unknown keys, features, constants and states; one line.
        NoEncodingError: for a sender that is no belief program.
    """
    file = find_data(THEOREMS, name, ".yaml", "theorem")
    theorem = validate(Theorem, read_yaml(file), file.name)
    spec = theorem.sender
    if spec.endswith(".json"):
        spec = str(resolve_inside(file.parent, spec, f"{file.name}: sender"))
    return read_theorem(theorem, program_of(spec), file.name)


def with_constants(loaded: LoadedTheorem, values: Mapping[str, str]) -> LoadedTheorem:
    """Return a theorem with other values of some of its constants.

    Raises:
        UnknownNameError: for a constant that it has not.
        InputError: for a value that is no number, or that its formulas cannot have.
    """
    theorem = loaded.theorem
    for name in values:
        if name not in theorem.constants:
            raise unknown_name(f"constant of {theorem.name}", name, theorem.constants)
    constants = {**theorem.constants, **values}
    return read_theorem(theorem.model_copy(update={"constants": constants}), loaded.program, theorem.name)


def read_theorem(theorem: Theorem, program: Program, where: str) -> LoadedTheorem:
    """Read the formulas of a theorem. Raises InputError as :func:`load_theorem` does."""
    numbers = {"rtts": Fraction(theorem.T - 1)}
    for key, value in theorem.constants.items():
        numbers[key] = fraction_of(value, f"{where}: constants.{key}")

    def formula(data: Any, place: str) -> Node:
        return parse(data, f"{where}: {place}", numbers, theorem.states)

    def number(value: Number, place: str) -> Fraction:
        return numbers[value] if isinstance(value, str) and value in numbers else fraction_of(value, f"{where}: {place}")

    _only_states(start := formula(theorem.start, "start"), f"{where}: start")
    _only_states(invariant := formula(theorem.invariant, "invariant"), f"{where}: invariant")
    lemmas: dict[str, ReadLemma] = {}
    for lemma in theorem.lemmas:
        place = f"lemma {lemma.name}"
        if lemma.name == HISTORY:
            raise InputError(f"{where}: {HISTORY!r} is the name of the lemma that carries the past from trace to trace")
        if lemma.name in lemmas:
            raise InputError(f"{where}: two lemmas are called {lemma.name!r}")
        premise = formula(lemma.if_, place)
        _only_states(premise, f"{where}: {place}: if")
        granted = _granted(lemma.given, premise, lemmas, f"{where}: {place}", theorem)
        then = tuple(formula(part, place) for part in lemma.then)
        lemmas[lemma.name] = ReadLemma(lemma.name, lemma.text, premise, granted, then)
    claims = []
    for name, claim in theorem.claims.items():
        place = f"claim {name}"
        ranks = tuple(_rank(rank, f"{where}: {place}", number) for rank in claim.rank)
        when = formula(claim.when, place)
        if features_of(when) - {"MSS", "buffer"}:
            raise InputError(f"{where}: {place}: when may only speak of MSS and buffer")
        bound = number(claim.bound, place)
        potential = parse_linear(claim.potential, f"{where}: {place}: potential", numbers)
        if any(feature not in START for feature, _ in potential.terms):
            raise InputError(f"{where}: {place}: a potential reads {', '.join(START)} at one sample, without a prime")
        if potential.terms and name == "inflight_bdp":
            raise InputError(f"{where}: {place}: a bound on a peak has no potential")
        low, high = (number(value, f"{place}: potential_range") for value in claim.potential_range)
        claims.append(ReadClaim(name, bound, ranks, when, potential, (low, high)))
    setting = _setting(theorem, program, where)
    carried = _granted(theorem.history_given, invariant, lemmas, f"{where}: {HISTORY}", theorem)
    return LoadedTheorem(theorem, program, setting, start, invariant, tuple(lemmas.values()), tuple(claims), carried)


def _only_states(node: Node, where: str) -> None:
    wrong = sorted(features_of(node) - {*START, "MSS", "buffer"})
    if wrong:
        raise InputError(f"{where}: speaks of {', '.join(wrong)}; only what holds at one sample is allowed here")


def _granted(
    given: Sequence[str], premise: Node, earlier: Mapping[str, ReadLemma], where: str, theorem: Theorem
) -> tuple[Node, ...]:
    """Return what the given lemmas conclude: they stand earlier, and their premises are parts of this one's."""
    own = set(conjuncts(premise))
    granted: list[Node] = []
    for name in given:
        if name not in earlier:
            raise InputError(f"{where}: given: {unknown_name('earlier lemma', name, earlier)}")
        if not set(conjuncts(earlier[name].premise)) <= own:
            raise InputError(f"{where}: given: the premise of {name!r} is no part of this lemma's")
        granted += earlier[name].conclusions
        if theorem.timeouts != "none" and any(features_of(part) & {"C_L'", "C_U'"} for part in earlier[name].conclusions):
            raise InputError(f"{where}: given: {name!r} is about beliefs after a time-out; only those before it may be given")
    return tuple(granted)


def _rank(rank: Rank, where: str, number: Any) -> ReadRank:
    laws = [law for law in ("times", "by_mss", "over", "minus") if getattr(rank, law) is not None]
    if len(laws) != 1:
        raise InputError(f"{where}: rank of {rank.of}: one of times, by_mss, over and minus is needed; {len(laws)} are given")
    if rank.of not in BELIEFS | {"queue"}:
        raise InputError(f"{where}: {unknown_name('feature with a rank', rank.of, [*BELIEFS, 'queue'])}")
    law, step = laws[0], number(getattr(rank, laws[0]), "step")
    least = 1 if law in ("times", "over") else 0
    if not step > least:
        raise InputError(f"{where}: rank of {rank.of}: {law} is {step}; it must be above {least}")
    until = number(rank.until, "until")
    jump = None if rank.jump is None else number(rank.jump, "jump")
    if jump is not None and (law != "over" or jump < until):
        raise InputError(f"{where}: rank of {rank.of}: jump goes with over and is not below until")
    if law in ("times", "over") and until <= 0:
        raise InputError(f"{where}: rank of {rank.of}: until is {until}; it must be above 0")
    if law == "over" and jump is None:
        raise InputError(f"{where}: rank of {rank.of}: over needs jump, the value that one step from anywhere above leads to")
    return ReadRank(rank.of, law, step, until, jump)


def _setting(theorem: Theorem, program: Program, where: str) -> Setting:
    timeout = None if theorem.timeouts == "none" else TIMEOUT_PRESETS[theorem.timeouts]
    if timeout is not None and theorem.T != PERIOD_RTTS + 1:
        raise InputError(f"{where}: beliefs time out after {PERIOD_RTTS} Rm: T is {theorem.T}, it must be {PERIOD_RTTS + 1}")
    if timeout is not None and program.inputs() & {"C_L_lambda", "q_U", "q_U/Rm"}:
        raise InputError(f"{where}: the time-outs of C_L_lambda have no encoding")
    buffer: Any = theorem.buffer
    if not isinstance(buffer, str) or buffer not in ("infinite", "small", "large", "arbitrary"):
        buffer = fraction_of(buffer, f"{where}: buffer")
    rules = BeliefRules(upper="exact", lambda_extra_steps=0, timeout=timeout)
    base = Setting(theorem.model, buffer, theorem.T, beliefs=rules)
    return named_setting(theorem.past, base, ProgramSmtSender(program).largest_rate())
