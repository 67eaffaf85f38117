"""The reasoning of a theorem, written anew: lemmas about traces make a statement about endless runs (docs/theorems.md)."""

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
    """A lemma as the checker reads it: premise, what earlier lemmas gave it, and its conclusions."""

    name: str
    premise: Read
    granted: tuple[Read, ...]
    conclusions: tuple[Read, ...]


@dataclass(frozen=True)
class Reading:
    """A theorem as the checker reads it.

    Attributes:
        jitter: D in steps.
    """

    data: Mapping[str, Any]
    start: Read
    invariant: Read
    lemmas: tuple[Lemma, ...]
    jitter: int


def read_theorem(data: Mapping[str, Any], sent_before: tuple[Fraction, Fraction] | None, program: Program) -> Reading:
    """Read the formulas of a theorem's data.

    Raises:
        InputError: with the place, for what the language does not have or has no encoding, and for a lemma that rests on itself,
            on a later one, or on one that says less than it needs.
    """
    numbers, timed = numbers_of(data), data["timeouts"] != "none"

    def formula(part: Any, where: str) -> Read:
        return read_formula(part, f"theorem.{where}", numbers, data["states"])

    invariant, start = formula(data["invariant"], "invariant"), formula(data["start"], "start")
    for where, part in (("invariant", invariant), ("start", start)):
        _only(features(part), BETWEEN, f"theorem.{where}")
    lemmas: dict[str, Lemma] = {}

    def granted_by(given: Sequence[str], where: str, premise: Read) -> tuple[Read, ...]:
        granted: list[Read] = []
        for other in given:
            if other not in lemmas:
                raise InputError(f"{where}: {other!r} is no lemma that stands before it")
            if timed and any(features(one) & {"C_L'", "C_U'"} for one in lemmas[other].conclusions):
                raise InputError(f"{where}: {other!r} is about beliefs after a time-out")
            if not all(any(part == own for own in parts_of(premise)) for part in parts_of(lemmas[other].premise)):
                raise InputError(f"{where}: {other!r} needs more than this one's premise says")
            granted += lemmas[other].conclusions
        return tuple(granted)

    for lemma in data["lemmas"]:
        name, where = lemma["name"], f"lemmas.{lemma['name']}"
        premise = formula(lemma["if"], f"{where}.if")
        _only(features(premise), BETWEEN, f"theorem.{where}.if")
        granted = granted_by(lemma["given"], f"theorem.{where}.given", premise)
        lemmas[name] = Lemma(name, premise, granted, tuple(formula(part, f"{where}.then") for part in lemma["then"]))
    found = list(lemmas.values())
    if sent_before is not None:
        limit: Sum = {"peak_sent": Fraction(1), "": -sent_before[0], "MSS": -sent_before[1]}
        granted = granted_by(data["history_given"], "theorem.history_given", invariant)
        found.append(Lemma(HISTORY, invariant, granted, (("cmp", limit, False),)))
    reading = Reading(data, start, invariant, tuple(found), 0 if data["model"] == "ideal" else 1)
    formulas = [start, invariant, *(part for one in found for part in (one.premise, *one.conclusions))]
    for name, claim in data["claims"].items():
        formulas.append(formula(claim["when"], f"claims.{name}.when"))
        _read_claim(name, claim, numbers, formulas[-1])
    if buffer_of(data) == "infinite" and any("buffer" in features(part) for part in formulas):
        raise InputError("theorem.buffer: it is infinite; a comparison with it says nothing")
    if timed and data["T"] != PERIOD_RTTS + 1:
        raise InputError(f"theorem.T: beliefs time out every {PERIOD_RTTS} Rm: T is {data['T']}, it must be {PERIOD_RTTS + 1}")
    if timed and held_beliefs(reading, program.bounds()) & {"C_L_lambda", "q_U"}:
        raise InputError("theorem.timeouts: the time-outs of C_L_lambda, which q_U needs, have no encoding")
    return reading


def _only(read: frozenset[str], allowed: Set[str], where: str) -> None:
    if read - allowed:
        raise InputError(f"{where}: speaks of {', '.join(sorted(read - allowed))}; only {', '.join(sorted(allowed))} are allowed")


def _read_claim(name: str, claim: Mapping[str, Any], numbers: Mapping[str, Fraction], when: Read) -> None:
    """Refuse a claim with a number, a rank or a potential that has no meaning."""
    where = f"theorem.claims.{name}"
    _only(features(when), {"MSS", "buffer"}, f"{where}.when")
    number(claim["bound"], numbers, f"{where}.bound")
    for rank in claim["rank"]:
        _laws_of(rank, numbers, f"{where}.rank")
    potential = read_sum(claim["potential"], f"{where}.potential", numbers)
    _only(frozenset(potential) - {""}, set() if name == "inflight_bdp" else set(STATE), f"{where}.potential")
    low, high = (number(end, numbers, f"{where}.potential_range") for end in claim["potential_range"])
    if low > high:
        raise InputError(f"{where}.potential_range: from {low} to {high}; its first number must not be above its second one")


def buffer_of(data: Mapping[str, Any]) -> str | Fraction:
    """Return the buffer: ``infinite``, ``arbitrary``, ``large``, or a number of C*Rm."""
    if data["buffer"] in ("infinite", "arbitrary", "large"):
        return str(data["buffer"])
    size = Fraction(1, 2) if data["buffer"] == "small" else number(data["buffer"], {}, "theorem.buffer")
    if size <= 0:
        raise InputError(f"theorem.buffer: {size} C Rm; it must be above 0")
    return size


def _below(left: Sum, right: Sum, *, strict: bool = False) -> Read:
    return ("cmp", add(left, right, Fraction(-1)), strict)


def _num(value: Fraction | int) -> Sum:
    return {"": Fraction(value)}


def _of(name: str, times: Fraction | int = 1) -> Sum:
    return {name: Fraction(times), "": Fraction(0)}


def known_facts(reading: Reading) -> list[Read]:
    """Return what the laws say of MSS, the buffer and losses, and what the lemmas say of every trace."""
    data, buffer = reading.data, buffer_of(reading.data)
    facts = [_below(_num(0), _of("MSS"), strict=True), _below(_of("MSS"), _num(Fraction(1, 5)), strict=True)]
    facts.append(_below(_num(0), _of("lost")))
    if buffer == "infinite":
        facts.append(_below(_of("lost"), _num(0)))
    else:
        facts.append(_below(_of("lost"), _of("peak_loss", data["T"] - 1)))
        if buffer == "arbitrary":
            facts.append(_below(_num(0), _of("buffer"), strict=True))
        elif buffer == "large":
            facts.append(_below(_num(3 * (1 + reading.jitter)), _of("buffer")))
        elif isinstance(buffer, Fraction):
            facts += [_below(_num(buffer), _of("buffer")), _below(_of("buffer"), _num(buffer))]
    return facts + [
        ("any", (("not", lemma.premise), ("all", lemma.conclusions))) for lemma in reading.lemmas if lemma.name != HISTORY
    ]


def _laws_of(rank: Mapping[str, Any], numbers: Mapping[str, Fraction], where: str) -> tuple[Read, Read, Read, bool]:
    """Return what it means that a rank moves, that it does not go back, that it is at its end; and whether it grows."""
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
    now, then, end = _of(name), _of(f"{name}'"), _num(until)
    if law in ("times", "by_mss"):
        far = _of(name, step) if law == "times" else add(now, _of("MSS", step))
        moves: Read = ("all", (_below(now, end, strict=True), ("any", (_below(end, then), _below(far, then)))))
        return moves, ("any", (_below(end, then), _below(now, then))), _below(end, now), True
    near: Read = _below(then, add(now, _num(-step)))
    if law == "over":
        jump = number(rank["jump"], numbers, f"{where}.jump")
        if jump < until:
            raise InputError(f"{where}: of {name}: jump is {jump}, below until")
        top = _num(jump)
        inside = ("all", (_below(now, top), _below(_of(f"{name}'", step), now)))
        near = ("any", (inside, ("all", (_below(top, now, strict=True), _below(then, top)))))
    moves = ("all", (_below(end, now, strict=True), ("any", (_below(then, end), near))))
    return moves, ("any", (_below(then, end), _below(then, now))), _below(now, end), False


def held_beliefs(reading: Reading, read: frozenset[str]) -> frozenset[str]:
    """Return the beliefs that some query of a theorem holds; ``read`` are those that the program reads."""
    formulas = [part for lemma in reading.lemmas for part in (lemma.premise, *lemma.granted, *lemma.conclusions)]
    held = read.union(*(beliefs_in(part) for part in (reading.start, reading.invariant, *formulas)))
    for claim in reading.data["claims"].values():
        held |= {rank["of"] for rank in claim["rank"]} & BELIEFS
        held |= set(read_sum(claim["potential"], "potential", numbers_of(reading.data))) & BELIEFS
    if reading.data["timeouts"] != "none":
        held |= {"C_L", "C_U"}
    return held | {"C_L_lambda"} if "q_U" in held else held


def beginnings(reading: Reading, read: frozenset[str]) -> Iterator[tuple[str, Read]]:
    """Yield, in words and as formulas, what every query of a lemma assumes of the beliefs at the start of its trace.

    That q_U is no less than 0 it has by its rule.
    """
    held = held_beliefs(reading, read)
    if "C_L" in held:
        yield "C_L is at least MSS/Rm", _below(_of("MSS"), _of("C_L"))
    if {"C_L", "C_U"} <= held:
        yield "C_L is at most C_U", _below(_of("C_L"), _of("C_U"))
    if "C_L_lambda" in held:
        yield "C_L_lambda is at least MSS/Rm", _below(_of("MSS"), _of("C_L_lambda"))


def possibilities(reading: Reading) -> Iterator[tuple[str, tuple[Read, ...]]]:
    """Yield what has to hold of a trace at least, so that a theorem is not about nothing: start, invariant and premises."""
    yield "start", (reading.start,)
    yield "invariant", (reading.invariant,)
    for name, claim in reading.data["claims"].items():
        when = read_formula(claim["when"], f"theorem.claims.{name}.when", numbers_of(reading.data), reading.data["states"])
        if list(parts_of(when)):
            yield f"claims.{name}.when", (reading.start, when)
    for lemma in reading.lemmas:
        yield f"lemmas.{lemma.name}.if", (lemma.premise, *lemma.granted)


def obligations(reading: Reading, read: frozenset[str]) -> Iterator[tuple[str, list[Read], Read]]:
    """Yield (name, facts, goal) of every step that the statement rests on; ``read`` are the beliefs that the program reads."""
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
        told = [*facts, read_formula(claim["when"], f"{name}: when", numbers, data["states"])]
        moves = []
        for rank in claim["rank"]:
            step, stays, _, grows = _laws_of(rank, numbers, name)
            moves.append(step)
            yield f"{name}: {rank['of']} does not go back", told, stays
            if grows:
                yield f"{name}: {rank['of']} starts at MSS/Rm or above", told, _below(_of("MSS"), _of(rank["of"]))
        potential = read_sum(claim["potential"], f"{name}: potential", numbers)
        yield (
            f"{name}: a trace is good, or a rank moves",
            told,
            ("any", (_good(reading, name, claim, potential, numbers), *moves)),
        )
        low, high = (_num(number(end, numbers, name)) for end in claim["potential_range"])
        about = told if set(potential) - {""} else []  # a number needs no facts
        yield f"{name}: the potential is bounded", about, ("all", (_below(low, potential), _below(potential, high)))


def settling(reading: Reading, name: str) -> tuple[list[Read], Read]:
    """Return facts and goal of: while a rank of a claim is not at its end, one moves."""
    numbers, claim = numbers_of(reading.data), reading.data["claims"][name]
    when = read_formula(claim["when"], f"{name}: when", numbers, reading.data["states"])
    laws = [_laws_of(rank, numbers, name) for rank in claim["rank"]]
    done: Read = ("all", tuple(end for _, _, end, _ in laws))
    return [*known_facts(reading), reading.invariant, when], ("any", (done, *(step for step, _, _, _ in laws)))


def _good(reading: Reading, name: str, claim: Mapping[str, Any], potential: Sum, numbers: Mapping[str, Fraction]) -> Read:
    bound, rtts = number(claim["bound"], numbers, name), reading.data["T"] - 1
    rise = add(ended_sum(potential), potential, Fraction(-1))
    if name == "utilisation":
        return _below(_num(bound * rtts), add(_of("served"), rise))
    if name == "loss_per_rtt":
        return _below(add(_of("lost"), rise), _num(bound * rtts))
    return _below(_of("peak_inflight"), _num(bound * (1 + reading.jitter)))
