"""Sentence, figures and assumptions of a theorem, derived from its data alone; shared by prover and checker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.certificates.claims import STATE, Read, features, parts_of, read_formula
from ccenv.proofs.certificates.theorem import number, numbers_of

LAWS_VERSION = 1
"""Of the list of laws in docs/theorems.md. A certificate of another version is refused: its queries mean something else."""

CLAIMS = ("utilisation", "inflight_bdp", "loss_per_rtt")
SHOWN_SEGMENTS = (10, 100, 1000)
"""Values of C*Rm/MSS for which the time to the goal is given."""

SENTENCE_SEGMENTS = 100
BUFFERS = {
    "infinite": "an infinite buffer",
    "arbitrary": "any buffer",
    "large": "any buffer of at least 3 C (Rm + D)",
    "small": "a buffer of 1/2 C Rm",
}
MOST_TRACES = 10**5
DIGITS = 4  # that a sentence shows of a number, rounded to the side on which it stays true


def figures(theorem: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the three figures of a theorem, on the side on which they hold; None for what it does not claim."""
    numbers, values = numbers_of(theorem), dict[str, float | None](dict.fromkeys(CLAIMS))
    for name, claim in theorem["claims"].items():
        bound = number(claim["bound"], numbers, f"theorem.claims.{name}.bound")
        value, up = float(bound), name != "utilisation"
        if value != bound and (value < bound) == up:
            value = math.nextafter(value, math.inf if up else -math.inf)
        values[name] = value
    return values


def rounded(value: Fraction, *, up: bool) -> str:
    """Return a number in DIGITS digits: the next one above or below where it has more."""
    if value == 0:
        return "0"
    shift = DIGITS - 1 - math.floor(math.log10(abs(value)))
    unit = Fraction(10) ** -shift
    return f"{float((math.ceil if up else math.floor)(value / unit) * unit):.{DIGITS + 1}g}"


def _count(distance: str, step: Fraction) -> str:
    """Return how many steps lead over a distance, in words that have one reading."""
    return f"max(0, ceil({distance if step == 1 else f'({distance}) / ({step})'}))"


def traces_to_end(rank: Mapping[str, Any], numbers: Mapping[str, Fraction], segments: int, start: Fraction = Fraction(0)) -> int:
    """Return in how many traces a rank can move.

    Raises InputError for more than MOST_TRACES traces.

    Args:
        rank: of the theorem.
        numbers: constants.
        segments: g = C*Rm/MSS, for ranks that grow from MSS/Rm.
        start: initial value, for ranks that fall by a number.
    """
    until = number(rank["until"], numbers, "until")
    if rank.get("minus") is not None:
        traces = max(0, math.ceil((start - until) / number(rank["minus"], numbers, "minus")))
    elif rank.get("by_mss") is not None:
        traces = max(0, math.ceil((until * segments - 1) / number(rank["by_mss"], numbers, "by_mss")))
    else:
        law = "times" if rank.get("times") is not None else "over"
        factor, jumps = number(rank[law], numbers, law), 0
        span = until * segments
        if law == "over":
            span, jumps = number(rank["jump"], numbers, "jump") / until, 1
        traces = jumps + _powers(factor, span)
    if traces > MOST_TRACES:
        raise InputError(f"theorem.claims: a rank of {rank['of']} can move in {traces} traces; at most {MOST_TRACES} are counted")
    return traces


def _powers(factor: Fraction, span: Fraction) -> int:
    """Return the smallest n with factor**n >= span: by logarithms, then exactly."""
    if span <= 1:
        return 0
    growth = math.log(factor)
    n = math.log(span.numerator) - math.log(span.denominator)
    if growth * MOST_TRACES <= n:
        return MOST_TRACES + 1
    n = max(0, math.ceil(n / growth) - 2)
    while factor.numerator**n * span.denominator < span.numerator * factor.denominator**n:
        n += 1
    return n


def times_to_converge(theorem: Mapping[str, Any], settles: Mapping[str, bool]) -> dict[str, Any]:
    """Return how long the exceptions of each claim can last: as a function of the start, and for ``SHOWN_SEGMENTS``."""
    numbers, rtts = numbers_of(theorem), theorem["T"] - 1
    times: dict[str, Any] = {}
    for name, claim in theorem["claims"].items():
        counts, words = dict.fromkeys(SHOWN_SEGMENTS, 0), []
        for rank in claim["rank"]:
            until = number(rank["until"], numbers, "until")
            for g in SHOWN_SEGMENTS:
                counts[g] += traces_to_end(rank, numbers, g)
            if rank.get("minus") is not None:
                step = number(rank["minus"], numbers, "minus")
                distance = f"{rank['of']}(0) - {until}"
                words.append(_count(distance, step))
            elif rank.get("by_mss") is not None:
                words.append(_count(f"{until} g - 1", number(rank["by_mss"], numbers, "by_mss")))
            elif rank.get("times") is not None:
                words.append(f"max(0, ceil(log({until} g) / log({number(rank['times'], numbers, 'times')})))")
            else:
                words.append(f"{traces_to_end(rank, numbers, 1)}")
        times[name] = {
            "rtts": f"{rtts} * ({' + '.join(words) or '0'})",
            "from_one_segment": {str(g): rtts * count for g, count in counts.items()},
            "first": bool(settles.get(name, True)),
        }
    return times


def assumptions(theorem: Mapping[str, Any], sent_before: tuple[Fraction, Fraction] | None) -> list[str]:
    """Return the assumptions of the statement, one per line."""
    rtts = theorem["T"] - 1
    assumed = [
        f"network, beliefs and program obey the list of laws in docs/theorems.md, version {LAWS_VERSION}; C = Rm = 1 in formulas",
        "one flow with bulk data on one bottleneck; C, Rm and D do not change and are those that the sender was told",
        f"D = {_jitter(theorem)}",
        "the network acts, and the sender decides, once per Rm (K = 1); the rate in (t-1, t] is decided on what arrived by t-1",
        "MSS < C Rm / 5",
        "losses are deterministic drop-tail and known one Rm later",
        f"at the start: {_words(_formula(theorem, 'start'))}",
        "in the 3 Rm before the start the path obeyed its laws"
        + ("" if sent_before is None else f", and at most {sent_before[0]} C Rm + {sent_before[1]} MSS were sent per Rm"),
    ]
    if theorem["timeouts"] == "none":
        assumed.append(f"no belief times out; windows of beliefs begin anew every {rtts} Rm")
    else:
        assumed.append(
            f"beliefs time out by the rule {theorem['timeouts']} every {rtts} Rm from the start on; windows begin anew then"
        )
    if "C_L_lambda" in features(_formula(theorem, "invariant")):
        assumed.append("C_L_lambda is sent / (T* + D) with delays read exactly on the grid")
    return assumed


def _jitter(theorem: Mapping[str, Any]) -> str:
    return "0" if theorem["model"] == "ideal" else "Rm"


def _formula(theorem: Mapping[str, Any], key: str) -> Read:
    return read_formula(theorem[key], f"theorem.{key}", numbers_of(theorem), theorem["states"])


def _words(formula: Read) -> str:
    """Return a formula in words, its states and constants by what they stand for."""
    if formula[0] == "cmp":
        return _comparison(formula[1], strict=formula[2])
    if formula[0] == "not":
        return f"not ({_words(formula[1])})"
    if formula[0] == "all":
        parts = list(parts_of(formula))
        return " and ".join(_words(part) if part[0] != "any" else f"({_words(part)})" for part in parts) or "anything"
    return " or ".join(f"({_words(part)})" if part[0] == "all" else _words(part) for part in formula[1]) or "nothing"


def _comparison(total: Mapping[str, Fraction], *, strict: bool) -> str:
    """Return ``total <= 0`` with every term on the side where it is positive, a belief on the left."""
    sides = [[(name, sign * value) for name, value in total.items() if sign * value > 0] for sign in (1, -1)]
    turned = not any(name in STATE for name, _ in sides[0])
    left, right = (
        " + ".join(f"{'' if value == 1 and name else value}{' ' if value != 1 and name else ''}{name}" for name, value in side)
        or "0"
        for side in (reversed(sides) if turned else sides)
    )
    return f"{left} {'>' if turned else '<'}{'' if strict else '='} {right}"


def subject(sender: str, is_shield: bool) -> str:
    """Return the subject of a theorem: a program, or every sender inside a shield's intervals."""
    return f"whoever chooses inside the shield {sender}" if is_shield else sender


def sentence(theorem: Mapping[str, Any], sender: str, settles: Mapping[str, bool]) -> str:
    """Return the theorem in one sentence, with its grid and every constant."""
    numbers, parts, rtts = numbers_of(theorem), [], theorem["T"] - 1
    buffer = str(theorem["buffer"])
    buffer = BUFFERS.get(buffer) or f"a buffer of {number(buffer, {}, 'theorem.buffer')} C Rm"
    for name, claim in theorem["claims"].items():
        value = number(claim["bound"], numbers, name)
        least, most = rounded(value, up=False), rounded(value, up=True)
        low, high = (number(end, numbers, name) for end in claim["potential_range"])
        if name == "utilisation":
            owed = rounded(high - low + (0 if theorem["model"] == "ideal" else 1), up=True)
            promise = f"uses at least {least} of the link in the long run "
            promise += f"(in traces of {rtts} Rm in a row, t Rm together, at least {least} C t - {owed} C Rm)"
        elif name == "inflight_bdp":
            promise = f"keeps at most {most} C (Rm + D) in flight at the end of every Rm"
        else:
            promise = f"loses at most {most} C Rm per Rm in the long run"
        when = read_formula(claim["when"], f"theorem.claims.{name}.when", numbers, theorem["states"])
        promise += f" where {_words(when)}" if list(parts_of(when)) else ""
        parts.append(promise + _exceptions(theorem, name, numbers, settles))
    networks = f"every network of the model {theorem['model']} with K = 1, D = {_jitter(theorem)} and {buffer}"
    values = "".join(f"{name} = {value}, " for name, value in numbers.items())
    return (
        f"From any start with {_words(_formula(theorem, 'start'))}, on {networks}, {sender} {', '.join(parts)}, for ever; "
        f"{values}C = Rm = 1 in formulas."
    )


def _exceptions(theorem: Mapping[str, Any], name: str, numbers: Mapping[str, Fraction], settles: Mapping[str, bool]) -> str:
    """Return in words when a claim need not hold; t is counted in whole traces without these."""
    ranks, rtts = theorem["claims"][name]["rank"], theorem["T"] - 1
    if not ranks:
        return ""
    counts, grows = [], False
    for rank in ranks:
        if rank.get("minus") is not None:
            until, step = (number(rank[key], numbers, key) for key in ("until", "minus"))
            counts.append(_count(f"{rank['of']} at the start - {until}", step))
        else:
            counts.append(str(traces_to_end(rank, numbers, SENTENCE_SEGMENTS)))
            grows |= rank.get("times") is not None or rank.get("by_mss") is not None
    total = counts[0] if len(counts) == 1 else f"({' + '.join(counts)})"
    when = f"after the first {rtts} Rm" if settles.get(name, True) else f"but in at most {rtts} Rm"
    anew = "" if settles.get(name, True) else ", and t is counted anew after each"
    return f" ({when} times {total}{f' at C Rm = {SENTENCE_SEGMENTS} MSS' if grows else ''}{anew})"


def in_full(statement: str, taken_for_granted: list[str]) -> str:
    """Return a sentence together with all that it takes for granted."""
    return f"{statement} Taken for granted: {'; '.join(taken_for_granted)}."
