"""The checker's own composition: how lemmas about traces make a statement about unbounded runs (docs/theorems.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError, shown
from ccenv.proofs.certificates.claims import (
    BELIEFS,
    STATE,
    Read,
    Sum,
    add,
    ended,
    ended_sum,
    features,
    parts_of,
    read_formula,
    read_sum,
)
from ccenv.proofs.certificates.claims import beliefs as beliefs_in
from ccenv.proofs.certificates.program import Program
from ccenv.proofs.certificates.theorem import HISTORY, number, numbers_of

PERIOD_RTTS = 10  # of beliefs, in the engine
BETWEEN = frozenset((*STATE, "MSS", "buffer"))
"""What holds at one sample, between two traces."""


@dataclass(frozen=True)
class Lemma:
    """A lemma as the checker reads it: premise, conclusions granted by earlier lemmas, and its own conclusions."""

    name: str
    premise: Read
    granted: tuple[Read, ...]
    conclusions: tuple[Read, ...]


@dataclass(frozen=True)
class Reading:
    """A theorem as the checker reads it; ``jitter``: D in steps."""

    data: Mapping[str, Any]
    start: Read
    invariant: Read
    lemmas: tuple[Lemma, ...]
    jitter: int


def read_theorem(data: Mapping[str, Any], sent_before: tuple[Fraction, Fraction] | None, program: Program) -> Reading:
    """Read the formulas of a theorem's data.

    Raises InputError with the place: for what has no meaning or no encoding, and for a lemma that rests on itself, on a later
    one, or on one whose premise is stronger than its own.
    """
    numbers, timed = numbers_of(data), data["timeouts"] != "none"

    def formula(part: Any, where: str) -> Read:
        return read_formula(part, f"theorem.{where}", numbers, data["states"])

    invariant, start = formula(data["invariant"], "invariant"), formula(data["start"], "start")
    for where, part in (("invariant", invariant), ("start", start)):
        _require_features(features(part), BETWEEN, f"theorem.{where}")
    lemmas: dict[str, Lemma] = {}

    def collect_conclusions(given: Sequence[str], where: str, premise: Read) -> tuple[Read, ...]:
        granted: list[Read] = []
        for other in given:
            if other not in lemmas:
                raise InputError(f"{where}: {other!r} is no lemma that stands before it")
            if timed and any(features(one) & {"C_L'", "C_U'"} for one in lemmas[other].conclusions):
                raise InputError(f"{where}: {other!r} is about beliefs after a time-out")
            if not all(any(part == stated for stated in parts_of(premise)) for part in parts_of(lemmas[other].premise)):
                raise InputError(f"{where}: {other!r} needs more than this one's premise says")
            granted += lemmas[other].conclusions
        return tuple(granted)

    for lemma in data["lemmas"]:
        name, where = lemma["name"], f"lemmas.{lemma['name']}"
        premise = formula(lemma["if"], f"{where}.if")
        _require_features(features(premise), BETWEEN, f"theorem.{where}.if")
        granted = collect_conclusions(lemma["given"], f"theorem.{where}.given", premise)
        lemmas[name] = Lemma(name, premise, granted, tuple(formula(part, f"{where}.then") for part in lemma["then"]))
    lemmas_read = list(lemmas.values())
    if sent_before is not None:
        limit: Sum = {"peak_sent": Fraction(1), "": -sent_before[0], "MSS": -sent_before[1]}
        granted = collect_conclusions(data["history_given"], "theorem.history_given", invariant)
        lemmas_read.append(Lemma(HISTORY, invariant, granted, (("cmp", limit, False),)))
    reading = Reading(data, start, invariant, tuple(lemmas_read), 0 if data["model"] == "ideal" else 1)
    formulas = [start, invariant, *(part for one in lemmas_read for part in (one.premise, *one.conclusions))]
    for name, claim in data["claims"].items():
        formulas.append(formula(claim["when"], f"claims.{name}.when"))
        _read_claim(name, claim, numbers, formulas[-1])
    if read_buffer(data) == "infinite" and any("buffer" in features(part) for part in formulas):
        raise InputError("theorem.buffer: it is infinite; a comparison with it says nothing")
    if timed and data["T"] != PERIOD_RTTS + 1:
        raise InputError(f"theorem.T: beliefs time out every {PERIOD_RTTS} Rm: T is {data['T']}, it must be {PERIOD_RTTS + 1}")
    if timed and held_beliefs(reading, program.bounds()) & {"C_L_lambda", "q_U"}:
        raise InputError("theorem.timeouts: the time-outs of C_L_lambda, which q_U needs, have no encoding")
    return reading


def _require_features(read: frozenset[str], allowed: Set[str], where: str) -> None:
    if read - allowed:
        raise InputError(f"{where}: speaks of {', '.join(sorted(read - allowed))}; only {', '.join(sorted(allowed))} are allowed")


def _read_claim(name: str, claim: Mapping[str, Any], numbers: Mapping[str, Fraction], when: Read) -> None:
    """Refuse a claim with a number, a rank or a potential that has no meaning."""
    where = f"theorem.claims.{name}"
    _require_features(features(when), {"MSS", "buffer"}, f"{where}.when")
    number(claim["bound"], numbers, f"{where}.bound")
    for rank in claim["rank"]:
        _rank_laws(rank, numbers, f"{where}.rank")
    potential = read_sum(claim["potential"], f"{where}.potential", numbers)
    _require_features(frozenset(potential) - {""}, set() if name == "inflight_bdp" else set(STATE), f"{where}.potential")
    low, high = (number(end, numbers, f"{where}.potential_range") for end in claim["potential_range"])
    if low > high:
        raise InputError(f"{where}.potential_range: from {low} to {high}; its first number must not be above its second one")


def read_buffer(data: Mapping[str, Any]) -> str | Fraction:
    """Return the buffer: ``infinite``, ``arbitrary``, ``large``, or a number of C*Rm."""
    if data["buffer"] in ("infinite", "arbitrary", "large"):
        return str(data["buffer"])
    size = Fraction(1, 2) if data["buffer"] == "small" else number(data["buffer"], {}, "theorem.buffer")
    if size <= 0:
        raise InputError(f"theorem.buffer: {size} C Rm; it must be above 0")
    return size


def _at_most(left: Sum, right: Sum, *, strict: bool = False) -> Read:
    return ("cmp", add(left, right, Fraction(-1)), strict)


def _constant(value: Fraction | int) -> Sum:
    return {"": Fraction(value)}


def _feature(name: str, times: Fraction | int = 1) -> Sum:
    return {name: Fraction(times), "": Fraction(0)}


def known_facts(reading: Reading) -> list[Read]:
    """Return what the laws say of MSS, the buffer and losses, and what the lemmas say of every trace."""
    data, buffer = reading.data, read_buffer(reading.data)
    facts = [
        _at_most(_constant(0), _feature("MSS"), strict=True),
        _at_most(_feature("MSS"), _constant(Fraction(1, 5)), strict=True),
    ]
    facts.append(_at_most(_constant(0), _feature("lost")))
    if buffer == "infinite":
        facts.append(_at_most(_feature("lost"), _constant(0)))
    else:
        facts.append(_at_most(_feature("lost"), _feature("peak_loss", data["T"] - 1)))
        if buffer == "arbitrary":
            facts.append(_at_most(_constant(0), _feature("buffer"), strict=True))
        elif buffer == "large":
            facts.append(_at_most(_constant(3 * (1 + reading.jitter)), _feature("buffer")))
        elif isinstance(buffer, Fraction):
            facts += [_at_most(_constant(buffer), _feature("buffer")), _at_most(_feature("buffer"), _constant(buffer))]
    return facts + [
        ("any", (("not", lemma.premise), ("all", lemma.conclusions))) for lemma in reading.lemmas if lemma.name != HISTORY
    ]


def _rank_laws(rank: Mapping[str, Any], numbers: Mapping[str, Fraction], where: str) -> tuple[Read, Read, Read, bool]:
    """Return the formulas "the rank moves", "it does not go back" and "it is at its end", and whether it grows."""
    name = rank["of"]
    if name not in BELIEFS | {"queue"}:
        raise InputError(f"{where}: of {shown(name)}: only beliefs and the queue have a rank")
    laws = [law for law in ("times", "by_mss", "over", "minus") if rank.get(law) is not None]
    if len(laws) != 1:
        raise InputError(f"{where}: of {name}: one law is needed, {len(laws)} are given")
    law = laws[0]
    step, until = number(rank[law], numbers, f"{where}.{law}"), number(rank["until"], numbers, f"{where}.until")
    if step <= (1 if law in ("times", "over") else 0):
        raise InputError(f"{where}: of {name}: steps of {step} by {law} do not lead anywhere")
    if law in ("times", "over") and until <= 0:
        raise InputError(f"{where}: of {name}: until is {until}; with {law} it must be above 0")
    if (rank.get("jump") is not None) != (law == "over"):
        raise InputError(f"{where}: of {name}: jump, the value that one step from anywhere above leads to, goes with over")
    now, then, end = _feature(name), _feature(f"{name}'"), _constant(until)
    if law in ("times", "by_mss"):
        far = _feature(name, step) if law == "times" else add(now, _feature("MSS", step))
        moves: Read = ("all", (_at_most(now, end, strict=True), ("any", (_at_most(end, then), _at_most(far, then)))))
        return moves, ("any", (_at_most(end, then), _at_most(now, then))), _at_most(end, now), True
    near: Read = _at_most(then, add(now, _constant(-step)))
    if law == "over":
        jump = number(rank["jump"], numbers, f"{where}.jump")
        if jump < until:
            raise InputError(f"{where}: of {name}: jump is {jump}, below until")
        top = _constant(jump)
        inside = ("all", (_at_most(now, top), _at_most(_feature(f"{name}'", step), now)))
        near = ("any", (inside, ("all", (_at_most(top, now, strict=True), _at_most(then, top)))))
    moves = ("all", (_at_most(end, now, strict=True), ("any", (_at_most(then, end), near))))
    return moves, ("any", (_at_most(then, end), _at_most(then, now))), _at_most(now, end), False


def held_beliefs(reading: Reading, read: frozenset[str]) -> frozenset[str]:
    """Return the beliefs in any query of a theorem; ``read`` are those that the program reads."""
    formulas = [part for lemma in reading.lemmas for part in (lemma.premise, *lemma.granted, *lemma.conclusions)]
    held = read.union(*(beliefs_in(part) for part in (reading.start, reading.invariant, *formulas)))
    for claim in reading.data["claims"].values():
        held |= {rank["of"] for rank in claim["rank"]} & BELIEFS
        held |= set(read_sum(claim["potential"], "potential", numbers_of(reading.data))) & BELIEFS
    if reading.data["timeouts"] != "none":
        held |= {"C_L", "C_U"}
    return held | {"C_L_lambda"} if "q_U" in held else held


def beginnings(reading: Reading, read: frozenset[str]) -> Iterator[tuple[str, Read]]:
    """Yield, in words and as formulas, what every query assumes of the beliefs at sample 0; q_U >= 0 follows from its rule."""
    held = held_beliefs(reading, read)
    if "C_L" in held:
        yield "C_L is at least MSS/Rm", _at_most(_feature("MSS"), _feature("C_L"))
    if {"C_L", "C_U"} <= held:
        yield "C_L is at most C_U", _at_most(_feature("C_L"), _feature("C_U"))
    if "C_L_lambda" in held:
        yield "C_L_lambda is at least MSS/Rm", _at_most(_feature("MSS"), _feature("C_L_lambda"))


def possibilities(reading: Reading) -> Iterator[tuple[str, tuple[Read, ...]]]:
    """Yield what some trace has to satisfy, or the theorem would be vacuous: start, invariant and premises."""
    yield "start", (reading.start,)
    yield "invariant", (reading.invariant,)
    for name, claim in reading.data["claims"].items():
        when = read_formula(claim["when"], f"theorem.claims.{name}.when", numbers_of(reading.data), reading.data["states"])
        if list(parts_of(when)):
            yield f"claims.{name}.when", (reading.start, when)
    for lemma in reading.lemmas:
        yield f"lemmas.{lemma.name}.if", (lemma.premise, *lemma.granted)


def obligations(reading: Reading, read: frozenset[str]) -> Iterator[tuple[str, list[Read], Read]]:
    """Yield (name, facts, goal) of every step of the composition; ``read`` are the beliefs that the program reads."""
    data, numbers, facts = reading.data, numbers_of(reading.data), known_facts(reading)
    plain = facts[: len(facts) - len([one for one in reading.lemmas if one.name != HISTORY])]
    for k, part in enumerate(parts_of(reading.invariant), start=1):
        yield f"the start is covered ({k})", [*plain, reading.start], part
    facts = [*facts, reading.invariant]
    for k, part in enumerate(parts_of(reading.invariant), start=1):
        yield f"the invariant is kept ({k})", facts, ended(part)
    for text, allowed in beginnings(reading, read):
        yield f"a trace may begin at each cut: {text}", [*plain, reading.invariant], allowed
    for name, claim in data["claims"].items():
        premises = [*facts, read_formula(claim["when"], f"{name}: when", numbers, data["states"])]
        moves = []
        for rank in claim["rank"]:
            step, stays, _, grows = _rank_laws(rank, numbers, name)
            moves.append(step)
            yield f"{name}: {rank['of']} does not go back", premises, stays
            if grows:
                yield f"{name}: {rank['of']} starts at MSS/Rm or above", premises, _at_most(_feature("MSS"), _feature(rank["of"]))
        potential = read_sum(claim["potential"], f"{name}: potential", numbers)
        yield (
            f"{name}: a trace is good, or a rank moves",
            premises,
            ("any", (_good_trace(reading, name, claim, potential, numbers), *moves)),
        )
        low, high = (_constant(number(end, numbers, name)) for end in claim["potential_range"])
        needed = premises if set(potential) - {""} else []  # a number needs no facts
        yield f"{name}: the potential is bounded", needed, ("all", (_at_most(low, potential), _at_most(potential, high)))


def settling(reading: Reading, name: str) -> tuple[list[Read], Read]:
    """Return facts and goal of "while a rank of the claim is not at its end, one moves"."""
    numbers, claim = numbers_of(reading.data), reading.data["claims"][name]
    when = read_formula(claim["when"], f"{name}: when", numbers, reading.data["states"])
    laws = [_rank_laws(rank, numbers, name) for rank in claim["rank"]]
    done: Read = ("all", tuple(end for _, _, end, _ in laws))
    return [*known_facts(reading), reading.invariant, when], ("any", (done, *(step for step, _, _, _ in laws)))


def _good_trace(reading: Reading, name: str, claim: Mapping[str, Any], potential: Sum, numbers: Mapping[str, Fraction]) -> Read:
    bound, rtts = number(claim["bound"], numbers, name), reading.data["T"] - 1
    rise = add(ended_sum(potential), potential, Fraction(-1))
    if name == "utilisation":
        return _at_most(_constant(bound * rtts), add(_feature("served"), rise))
    if name == "loss_per_rtt":
        return _at_most(add(_feature("lost"), rise), _constant(bound * rtts))
    return _at_most(_feature("peak_inflight"), _constant(bound * (1 + reading.jitter)))
