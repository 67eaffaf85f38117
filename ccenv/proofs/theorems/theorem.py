"""Theorems read from YAML: claims about unbounded runs, and the lemmas about traces that imply them (docs/theorems.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.agents.programs import Program
from ccenv.base.config import find_data, validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.foreign import read_yaml, resolve_inside
from ccenv.proofs.certificates.theorem import HISTORY, Number, Rank, Theorem, numbers_of
from ccenv.proofs.certificates.theorem import number as number_of
from ccenv.proofs.formulas.encode import SmtSender
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules, Setting, named_setting
from ccenv.proofs.senders.catalog import program_of, require_own_name
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.theorems.language import (
    BELIEFS,
    START,
    Linear,
    Node,
    beliefs_in,
    conjuncts,
    list_features_read,
    parse,
    parse_linear,
)

THEOREMS = "ccenv.configs.theorem"
PERIOD_RTTS = 10
"""Length of the engine's belief period in Rm: with time-outs traces are periods, T = 11."""


@dataclass(frozen=True)
class ReadLemma:
    """A lemma with its formulas read: premise, granted conclusions of earlier lemmas, and its own conclusions."""

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
    """A theorem with everything in it read and checked."""

    theorem: Theorem
    program: Program
    setting: Setting  # of its queries, with time-outs if any
    start: Node
    invariant: Node
    lemmas: tuple[ReadLemma, ...]
    claims: tuple[ReadClaim, ...]
    history_granted: tuple[Node, ...] = ()  # assumptions for carrying the past on

    @property
    def sender(self) -> SmtSender:
        return ProgramSmtSender(self.program)

    def held_beliefs(self) -> frozenset[str]:
        formulas = (node for lemma in self.lemmas for node in (lemma.premise, *lemma.granted, *lemma.conclusions))
        held = frozenset().union(*(beliefs_in(node) for node in (self.start, self.invariant, *formulas)))
        held |= {name.removesuffix("/Rm") for name in self.program.inputs()} & BELIEFS
        for claim in self.claims:
            held |= {*(rank.of for rank in claim.ranks), *(name for name, _ in claim.potential.terms)} & BELIEFS
        if self.setting.beliefs.timeout is not None:
            held |= {"C_L", "C_U"}
        return held | {"C_L_lambda"} if "q_U" in held else held


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
    program = program_of(spec)
    require_own_name(program, program.name)
    return read_theorem(theorem, program, file.name)


def with_constants(loaded: LoadedTheorem, values: Mapping[str, str]) -> LoadedTheorem:
    """Return a theorem with other values of some of its constants.

    Raises UnknownNameError for a constant that it has not; InputError for a value that is no number, or that its formulas cannot
    have.
    """
    theorem = loaded.theorem
    for name in values:
        if name not in theorem.constants:
            raise unknown_name(f"constant of {theorem.name}", name, theorem.constants)
    constants = {**theorem.constants, **values}
    return read_theorem(theorem.model_copy(update={"constants": constants}), loaded.program, theorem.name)


def read_theorem(theorem: Theorem, program: Program, where: str) -> LoadedTheorem:
    """Read the formulas of a theorem. Raises InputError as :func:`load_theorem` does."""
    numbers = numbers_of({"constants": theorem.constants, "T": theorem.T})

    def formula(data: Any, place: str) -> Node:
        return parse(data, f"{where}: {place}", numbers, theorem.states)

    def number(value: Number, place: str) -> Fraction:
        return number_of(value, numbers, f"{where}: {place}")

    _require_states(start := formula(theorem.start, "start"), f"{where}: start")
    _require_states(invariant := formula(theorem.invariant, "invariant"), f"{where}: invariant")
    lemmas: dict[str, ReadLemma] = {}
    for lemma in theorem.lemmas:
        place = f"lemma {lemma.name}"
        premise = formula(lemma.if_, place)
        _require_states(premise, f"{where}: {place}: if")
        granted = _collect_granted(lemma.given, premise, lemmas, f"{where}: {place}", theorem)
        then = tuple(formula(part, place) for part in lemma.then)
        lemmas[lemma.name] = ReadLemma(lemma.name, lemma.text, premise, granted, then)
    claims = []
    for name, claim in theorem.claims.items():
        place = f"claim {name}"
        ranks = tuple(_read_rank(rank, f"{where}: {place}", number) for rank in claim.rank)
        when = formula(claim.when, place)
        if list_features_read(when) - {"MSS", "buffer"}:
            raise InputError(f"{where}: {place}: when may only speak of MSS and buffer")
        bound = number(claim.bound, place)
        potential = parse_linear(claim.potential, f"{where}: {place}: potential", numbers)
        if any(feature not in START for feature, _ in potential.terms):
            raise InputError(f"{where}: {place}: a potential reads {', '.join(START)} at one sample, without a prime")
        if potential.terms and name == "inflight_bdp":
            raise InputError(f"{where}: {place}: a bound on a peak has no potential")
        low, high = (number(value, f"{place}: potential_range") for value in claim.potential_range)
        if low > high:
            raise InputError(
                f"{where}: {place}: potential_range is [{low}, {high}]; its first number must not be above its second"
            )
        claims.append(ReadClaim(name, bound, ranks, when, potential, (low, high)))
    setting = _build_setting(theorem, program, where)
    carried = _collect_granted(theorem.history_given, invariant, lemmas, f"{where}: {HISTORY}", theorem)
    loaded = LoadedTheorem(theorem, program, setting, start, invariant, tuple(lemmas.values()), tuple(claims), carried)
    if setting.beliefs.timeout is not None and loaded.held_beliefs() & {"C_L_lambda", "q_U"}:
        raise InputError(f"{where}: the time-outs of C_L_lambda, which q_U needs, have no encoding")
    return loaded


def _require_states(node: Node, where: str) -> None:
    wrong = sorted(list_features_read(node) - {*START, "MSS", "buffer"})
    if wrong:
        raise InputError(f"{where}: speaks of {', '.join(wrong)}; only what holds at one sample is allowed here")


def _collect_granted(
    given: Sequence[str], premise: Node, earlier: Mapping[str, ReadLemma], where: str, theorem: Theorem
) -> tuple[Node, ...]:
    """Return the conclusions of the given lemmas, which must come earlier and have premises that are parts of this one's."""
    parts = set(conjuncts(premise))
    granted: list[Node] = []
    for name in given:
        if name not in earlier:
            raise InputError(f"{where}: given: {unknown_name('earlier lemma', name, earlier)}")
        if not set(conjuncts(earlier[name].premise)) <= parts:
            raise InputError(f"{where}: given: the premise of {name!r} is no part of this lemma's")
        granted += earlier[name].conclusions
        if theorem.timeouts != "none" and any(list_features_read(part) & {"C_L'", "C_U'"} for part in earlier[name].conclusions):
            raise InputError(f"{where}: given: {name!r} is about beliefs after a time-out; only those before it may be given")
    return tuple(granted)


def _read_rank(rank: Rank, where: str, number: Any) -> ReadRank:
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


def _build_setting(theorem: Theorem, program: Program, where: str) -> Setting:
    timeout = None if theorem.timeouts == "none" else TIMEOUT_PRESETS[theorem.timeouts]
    if timeout is not None and theorem.T != PERIOD_RTTS + 1:
        raise InputError(f"{where}: beliefs time out after {PERIOD_RTTS} Rm: T is {theorem.T}, it must be {PERIOD_RTTS + 1}")
    buffer: Any = theorem.buffer
    if not isinstance(buffer, str) or buffer not in ("infinite", "small", "large", "arbitrary"):
        buffer = number_of(buffer, {}, f"{where}: buffer")
    rules = BeliefRules(upper="exact", lambda_extra_steps=0, timeout=timeout)
    base = Setting(theorem.model, buffer, theorem.T, beliefs=rules)
    return named_setting(theorem.past, base, ProgramSmtSender(program).largest_rate())
