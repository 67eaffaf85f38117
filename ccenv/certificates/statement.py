"""What a theorem says: its sentence, figures and assumptions, made from the theorem's data alone.

Prover and checker both ask here, so a certificate's sentence is the one that its data means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ccenv.errors import InputError
from ccenv.foreign import fraction_of

CLAIMS = ("utilisation", "inflight_bdp", "loss_per_rtt")
SHOWN_SEGMENTS = (10, 100, 1000)
"""Values of C*Rm/MSS for which the time to the goal is told."""

SENTENCE_SEGMENTS = 100
BUFFERS = {"infinite": "an infinite buffer", "arbitrary": "any buffer", "large": "any buffer of at least 3 C (Rm + D)"}
MOST_TRACES = 10**5
DIGITS = 4  # that a sentence shows of a number, rounded to the side on which it stays true


def numbers_of(theorem: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return the constants of a theorem; ``rtts`` is T - 1."""
    read = {name: fraction_of(value, f"constant {name}") for name, value in theorem["constants"].items()}
    return {"rtts": Fraction(theorem["T"] - 1)} | read


def number(value: Any, numbers: Mapping[str, Fraction], where: str) -> Fraction:
    """Return a number given as such or as a constant's name."""
    return numbers[value] if isinstance(value, str) and value in numbers else fraction_of(value, where)


def figures(theorem: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the three figures of a theorem; None for what it does not claim."""
    numbers = numbers_of(theorem)
    claims = theorem["claims"]
    return {name: float(number(claims[name]["bound"], numbers, name)) if name in claims else None for name in CLAIMS}


def rounded(value: Fraction, *, up: bool) -> str:
    """Return a number in DIGITS digits: the next one above or below where it has more."""
    if value == 0:
        return "0"
    shift = DIGITS - 1 - math.floor(math.log10(abs(value)))
    unit = Fraction(10) ** -shift
    return f"{float((math.ceil if up else math.floor)(value / unit) * unit):.{DIGITS + 1}g}"


def _steps(distance: str, step: Fraction) -> str:
    """Return a distance over a step, in words that have one reading."""
    return distance if step == 1 else f"({distance}) / ({step})"


def traces_to_end(rank: Mapping[str, Any], numbers: Mapping[str, Fraction], segments: int, start: Fraction = Fraction(0)) -> int:
    """Return in how many traces a rank can move.

    Args:
        rank: as the theorem has it.
        numbers: constants.
        segments: g = C*Rm/MSS, for what grows from MSS/Rm.
        start: where the quantity starts, for what falls by a number.

    Raises:
        InputError: for more than MOST_TRACES traces.
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
        raise InputError(f"a rank of {rank['of']} can move in {traces} traces; at most {MOST_TRACES} are counted")
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
    """Return, claim by claim, how long its exceptions can last: as a function of the start, and for some starts.

    Args:
        theorem: its data.
        settles: claim -> whether its exceptions come first, so that their number is a time.
    """
    numbers, rtts = numbers_of(theorem), theorem["T"] - 1
    found: dict[str, Any] = {}
    for name, claim in theorem["claims"].items():
        counts, words = dict.fromkeys(SHOWN_SEGMENTS, 0), []
        for rank in claim["rank"]:
            until = number(rank["until"], numbers, "until")
            for g in SHOWN_SEGMENTS:
                counts[g] += traces_to_end(rank, numbers, g)
            if rank.get("minus") is not None:
                step = number(rank["minus"], numbers, "minus")
                distance = f"{rank['of']}(0) - {until}"
                words.append(f"ceil({_steps(distance, step)}), 0 if that is below 0")
            elif rank.get("by_mss") is not None:
                words.append(f"ceil(({until} g - 1) / {number(rank['by_mss'], numbers, 'by_mss')})")
            elif rank.get("times") is not None:
                words.append(f"ceil(log({until} g) / log({number(rank['times'], numbers, 'times')}))")
            else:
                words.append(f"{traces_to_end(rank, numbers, 1)}")
        found[name] = {
            "rtts": f"{rtts} * ({' + '.join(words) or '0'})",
            "from_one_segment": {str(g): rtts * count for g, count in counts.items()},
            "first": bool(settles.get(name, True)),
        }
    return found


def assumptions(theorem: Mapping[str, Any], sent_before: tuple[Fraction, Fraction] | None) -> list[str]:
    """Return what the statement takes for granted."""
    rtts = theorem["T"] - 1
    told = [
        "one flow with bulk data on one bottleneck; C, Rm and D do not change and are those that the sender was told",
        "D = 0" if theorem["model"] == "ideal" else "D = Rm",
        "the network acts, and the sender decides, once per Rm (K = 1); the rate in (t-1, t] is decided on what arrived by t-1",
        "MSS < C Rm / 5",
        "losses are deterministic drop-tail and known one Rm later",
        f"at the start: {_words(theorem['start'], theorem)}",
        "in the 3 Rm before the start the path obeyed its laws"
        + ("" if sent_before is None else f", and at most {sent_before[0]} C Rm + {sent_before[1]} MSS were sent per Rm"),
    ]
    if theorem["timeouts"] == "none":
        told.append(f"no belief times out; windows of beliefs begin anew every {rtts} Rm")
    else:
        told.append(
            f"beliefs time out by the rule {theorem['timeouts']} every {rtts} Rm from the start on; windows begin anew then"
        )
    if "C_L_lambda" in str(theorem["invariant"]):
        told.append("C_L_lambda is sent / (T* + D) with delays read exactly on the grid")
    return told


def _words(data: Any, theorem: Mapping[str, Any]) -> str:
    """Return a formula as words: states by what they stand for."""
    if isinstance(data, list):
        return " and ".join(_words(part, theorem) for part in data) or "anything"
    if isinstance(data, dict):
        ((how, value),) = data.items()
        if how == "not":
            return f"not ({_words(value, theorem)})"
        return "(" + (" and " if how == "all" else " or ").join(_words(part, theorem) for part in value) + ")"
    return _words(theorem["states"][data], theorem) if data in theorem["states"] else str(data)


def subject(sender: str, is_contract: bool) -> str:
    """Return whom a theorem is about: a program, or all that stay inside a contract's intervals."""
    return f"whoever chooses inside the contract {sender}" if is_contract else sender


def sentence(theorem: Mapping[str, Any], sender: str, settles: Mapping[str, bool]) -> str:
    """Return the theorem in one sentence.

    Args:
        theorem: its data.
        sender: whom it is about, as :func:`subject` says.
        settles: claim -> whether its exceptions come first.
    """
    numbers, parts = numbers_of(theorem), []
    buffer = BUFFERS.get(str(theorem["buffer"]), f"a buffer of {theorem['buffer']} C Rm")
    for name, claim in theorem["claims"].items():
        value = number(claim["bound"], numbers, name)
        least, most = rounded(value, up=False), rounded(value, up=True)
        low, high = (number(end, numbers, name) for end in claim["potential_range"])
        if name == "utilisation":
            owed = rounded(high - low + (0 if theorem["model"] == "ideal" else 1), up=True)
            told = f"uses at least {least} of the link in the long run (in t Rm, at least {least} C t - {owed} C Rm)"
        elif name == "inflight_bdp":
            told = f"keeps at most {most} C (Rm + D) in flight"
        else:
            told = f"loses at most {most} C Rm per Rm in the long run"
        told += f" where {_words(claim['when'], theorem)}" if claim["when"] else ""
        parts.append(told + _exceptions(theorem, name, numbers, settles))
    where = f"From any start with {_words(theorem['start'], theorem)}, on every {theorem['model']} network with {buffer}"
    return f"{where}, {sender} {', '.join(parts)}, for ever."


def _exceptions(theorem: Mapping[str, Any], name: str, numbers: Mapping[str, Fraction], settles: Mapping[str, bool]) -> str:
    """Return in words when a claim need not hold; t is counted in whole traces without these."""
    ranks, rtts = theorem["claims"][name]["rank"], theorem["T"] - 1
    if not ranks:
        return ""
    counts, grows = [], False
    for rank in ranks:
        if rank.get("minus") is not None:
            until, step = (number(rank[key], numbers, key) for key in ("until", "minus"))
            distance = f"{rank['of']} at the start - {until}"
            counts.append(f"ceil({_steps(distance, step)})")
        else:
            counts.append(str(traces_to_end(rank, numbers, SENTENCE_SEGMENTS)))
            grows |= rank.get("times") is not None or rank.get("by_mss") is not None
    which = f"after the first {rtts} Rm" if settles.get(name, True) else f"but in at most {rtts} Rm"
    return f" ({which} times {' + '.join(counts)}{f' at C Rm = {SENTENCE_SEGMENTS} MSS' if grows else ''})"
