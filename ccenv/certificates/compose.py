"""The reasoning of a theorem, written anew: lemmas about traces make a statement about endless runs (docs/theorems.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.certificates.claims import BELIEFS, GROWN, Read, Sum, add, ended, ended_sum, features, parts_of, read_formula, read_sum
from ccenv.certificates.claims import beliefs as beliefs_in
from ccenv.certificates.reason import follows
from ccenv.certificates.statement import number, numbers_of
from ccenv.errors import InputError

HISTORY = "history"
PERIOD_RTTS = 10  # of beliefs, in the engine
NOTHING: Read = ("any", ())


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
        data: the theorem's data.
        start: formula.
        invariant: formula.
        lemmas: in order, the one about the past last.
        jitter: D in steps.
    """

    data: Mapping[str, Any]
    start: Read
    invariant: Read
    lemmas: tuple[Lemma, ...]
    jitter: int


def read_theorem(data: Mapping[str, Any], sent_before: tuple[Fraction, Fraction] | None) -> Reading:
    """Read the formulas of a theorem's data.

    Raises:
        InputError: for what the language does not have, and for a lemma that rests on itself, on a later one, or on one that says
            less than it needs.
    """
    numbers = numbers_of(data)

    def formula(part: Any, where: str) -> Read:
        return read_formula(part, where, numbers, data["states"])

    if data["timeouts"] != "none" and data["T"] != PERIOD_RTTS + 1:
        raise InputError(f"beliefs time out every {PERIOD_RTTS} Rm: T is {data['T']}, it must be {PERIOD_RTTS + 1}")
    invariant = formula(data["invariant"], "invariant")
    lemmas: dict[str, Lemma] = {}
    names = [lemma["name"] for lemma in data["lemmas"]]

    def granted_by(given: Sequence[str], name: str, premise: Read) -> tuple[Read, ...]:
        granted: list[Read] = []
        for other in given:
            if other not in lemmas:
                what = "circular: it does not stand before it" if other in names else "unknown"
                raise InputError(f"lemma {name}: the given lemma {other!r} is {what}")
            if data["timeouts"] != "none" and any(features(one) & {"C_L'", "C_U'"} for one in lemmas[other].conclusions):
                raise InputError(f"lemma {name}: the given lemma {other!r} is about beliefs after a time-out")
            if not all(any(part == own for own in parts_of(premise)) for part in parts_of(lemmas[other].premise)):
                raise InputError(f"lemma {name}: the given lemma {other!r} needs more than this one's premise says")
            granted += lemmas[other].conclusions
        return tuple(granted)

    for lemma in data["lemmas"]:
        name = lemma["name"]
        premise = formula(lemma["if"], f"lemma {name}")
        granted = granted_by(lemma["given"], name, premise)
        if name in lemmas or name == HISTORY:
            raise InputError(f"two lemmas are called {name!r}")
        then = tuple(formula(part, f"lemma {name}") for part in lemma["then"])
        lemmas[name] = Lemma(name, premise, granted, then)
    found = list(lemmas.values())
    if sent_before is not None:
        limit: Sum = {"peak_sent": Fraction(1), "": -sent_before[0], "MSS": -sent_before[1]}
        granted = granted_by(data["history_given"], HISTORY, invariant)
        found.append(Lemma(HISTORY, invariant, granted, (("cmp", limit, False),)))
    start = formula(data["start"], "start")
    for where, part in (("start", start), ("invariant", invariant), *((f"lemma {one.name}: if", one.premise) for one in found)):
        loose = {name for name in features(part) if name.endswith("'") or name.startswith("peak_")}
        loose |= features(part) & {"served", "delivered", "lost", *GROWN}
        if loose:
            raise InputError(f"{where}: speaks of {', '.join(sorted(loose))}, which no state has")
    return Reading(data, start, invariant, tuple(found), 0 if data["model"] == "ideal" else 1)


def _below(left: Sum, right: Sum, *, strict: bool = False) -> Read:
    return ("cmp", add(left, right, Fraction(-1)), strict)


def _num(value: Fraction | int) -> Sum:
    return {"": Fraction(value)}


def _of(name: str, times: Fraction | int = 1) -> Sum:
    return {name: Fraction(times), "": Fraction(0)}


def known_facts(reading: Reading) -> list[Read]:
    """Return what the laws say of MSS, the buffer and losses, and what the lemmas say of every trace."""
    data, buffer = reading.data, reading.data["buffer"]
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
        else:
            size = Fraction(1, 2) if buffer == "small" else number(buffer, {}, "buffer")
            facts += [_below(_num(size), _of("buffer")), _below(_of("buffer"), _num(size))]
    return facts + [
        ("any", (("not", lemma.premise), ("all", lemma.conclusions))) for lemma in reading.lemmas if lemma.name != HISTORY
    ]


def _laws_of(rank: Mapping[str, Any], numbers: Mapping[str, Fraction]) -> tuple[Read, Read, Read, bool]:
    """Return what it means that a rank moves, that it does not go back, that it is at its end; and whether it grows."""
    name = rank["of"]
    if name not in BELIEFS | {"queue"}:
        raise InputError(f"rank of {name!r}: only beliefs and the queue have one")
    laws = [law for law in ("times", "by_mss", "over", "minus") if rank.get(law) is not None]
    if len(laws) != 1:
        raise InputError(f"rank of {name}: one law is needed, {len(laws)} are given")
    law = laws[0]
    step, until = number(rank[law], numbers, law), number(rank["until"], numbers, "until")
    if step <= (1 if law in ("times", "over") else 0):
        raise InputError(f"rank of {name}: steps of {step} by {law} do not lead anywhere")
    now, then, end = _of(name), _of(f"{name}'"), _num(until)
    if law in ("times", "by_mss"):
        far = _of(name, step) if law == "times" else add(now, _of("MSS", step))
        moves: Read = ("all", (_below(now, end, strict=True), ("any", (_below(end, then), _below(far, then)))))
        return moves, ("any", (_below(end, then), _below(now, then))), _below(end, now), True
    near: Read = _below(then, add(now, _num(-step)))
    if law == "over":
        if rank.get("jump") is None or until <= 0:
            raise InputError(f"rank of {name}: over needs jump, and an end above 0")
        top = _num(number(rank["jump"], numbers, "jump"))
        inside = ("all", (_below(now, top), _below(_of(f"{name}'", step), now)))
        near = ("any", (inside, ("all", (_below(top, now, strict=True), _below(then, top)))))
    moves = ("all", (_below(end, now, strict=True), ("any", (_below(then, end), near))))
    return moves, ("any", (_below(then, end), _below(then, now))), _below(now, end), False


def beginnings(reading: Reading, read: frozenset[str]) -> Iterator[tuple[str, Read]]:
    """Yield, in words and as formulas, what every query of a lemma assumes of the beliefs at the start of its trace.

    That q_U is no less than 0 it has by its rule.

    Args:
        reading: a theorem.
        read: beliefs that the program reads.
    """
    held = set(read)
    for lemma in reading.lemmas:
        for formula in (lemma.premise, *lemma.granted, *lemma.conclusions):
            held |= beliefs_in(formula)
    if reading.data["timeouts"] != "none":
        held |= {"C_L", "C_U"}
    if "q_U" in held:
        held.add("C_L_lambda")
    if "C_L" in held:
        yield "C_L is at least MSS/Rm", _below(_of("MSS"), _of("C_L"))
    if {"C_L", "C_U"} <= held:
        yield "C_L is at most C_U", _below(_of("C_L"), _of("C_U"))
    if "C_L_lambda" in held:
        yield "C_L_lambda is at least MSS/Rm", _below(_of("MSS"), _of("C_L_lambda"))


def impossible(reading: Reading, read: frozenset[str]) -> str | None:
    """Return what cannot be, so that a theorem is about nothing: the start, or a claim's ``when``; None if all can."""
    queue, flying = _of("queue"), _of("inflight")
    facts = [fact for fact in known_facts(reading) if fact[0] == "cmp"]
    facts += [_below(_num(0), flying), _below(queue, flying), _below(flying, add(queue, _num(reading.jitter)))]
    if reading.data["buffer"] != "infinite":
        facts.append(_below(queue, _of("buffer")))
    facts += [reading.start, *(part for _, part in beginnings(reading, read))]
    if follows(facts, NOTHING):
        return "the start"
    for name, claim in reading.data["claims"].items():
        when = read_formula(claim["when"], f"{name}: when", numbers_of(reading.data), reading.data["states"])
        if follows([*facts, when], NOTHING):
            return f"{name}: when, with the start,"
    return None


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
        if features(told[-1]) - {"MSS", "buffer"}:
            raise InputError(f"{name}: when may only speak of MSS and buffer")
        moves = []
        for rank in claim["rank"]:
            step, stays, _, grows = _laws_of(rank, numbers)
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
        if set(potential) - {""}:
            low, high = (_num(number(end, numbers, "potential_range")) for end in claim["potential_range"])
            yield f"{name}: the potential is bounded", told, ("all", (_below(low, potential), _below(potential, high)))


def settling(reading: Reading, name: str) -> tuple[list[Read], Read]:
    """Return facts and goal of: while a rank of a claim is not at its end, one moves."""
    numbers, claim = numbers_of(reading.data), reading.data["claims"][name]
    when = read_formula(claim["when"], f"{name}: when", numbers, reading.data["states"])
    laws = [_laws_of(rank, numbers) for rank in claim["rank"]]
    done: Read = ("all", tuple(end for _, _, end, _ in laws))
    return [*known_facts(reading), reading.invariant, when], ("any", (done, *(step for step, _, _, _ in laws)))


def _good(reading: Reading, name: str, claim: Mapping[str, Any], potential: Sum, numbers: Mapping[str, Fraction]) -> Read:
    bound, rtts = number(claim["bound"], numbers, name), reading.data["T"] - 1
    rise = add(ended_sum(potential), potential, Fraction(-1))
    if name == "utilisation":
        return _below(_num(bound * rtts), add(_of("served"), rise))
    if name == "loss_per_rtt":
        return _below(add(_of("lost"), rise), _num(bound * rtts))
    if set(potential) - {""}:
        raise InputError(f"{name}: a bound on a peak has no potential")
    return _below(_of("peak_inflight"), _num(bound * (1 + reading.jitter)))
