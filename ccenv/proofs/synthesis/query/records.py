"""The records that the simulator works on: a network trace as moves, conditions, rates and objectives, all in exact integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from ccenv.proofs.formulas.setting import LONGEST_TRACE, BeliefRules

MOST_SAMPLES = 16
"""Longest trace of a synthesis query; the repertoire and the integer scale are made for it."""

PAST = 6
"""Samples before the trace whose E a trace carries (sound delay rule)."""

SHARES = 16
"""Shares of a band are given in sixteenths."""

GRAIN = 2 * math.lcm(*range(1, MOST_SAMPLES + 1))
"""Adversaries place S and G on multiples of this, so that every division by a window's length is exact."""

LINK = GRAIN * 240
"""C*Rm in integer units, for traces that the repertoire makes."""

LARGEST = 1 << 52
"""A trace with larger numbers is not replayed in integers: products must stay inside 63 bits."""

MOST_SENT = 2 * LARGEST
"""A program that sends more in a step of a trace is not judged by it. What it enqueues then stays below 2**57."""

LARGEST_SUM = 16
"""The coefficients of one expression sum up to no more, so that with such numbers it stays inside 63 bits."""

ANY_LOSS = np.int64(1) << 60

if MOST_SAMPLES > LONGEST_TRACE:  # pragma: no cover - a guard for whoever changes either
    raise ValueError("MOST_SAMPLES must not exceed the longest trace of the encoder")

TRACE = np.dtype(
    [
        ("samples", np.int64),
        ("jitter", np.int64),  # D in steps
        ("exact_waste", np.int64),  # 1: tokens are wasted exactly when the queue is empty (ideal, cbr_delay)
        ("past_known", np.int64),  # 1: sound delay rule, delays of old bytes follow from E_before; 0: published rule
        ("hold", np.int64),  # 1: service is clamped so that no bound moves
        ("link", np.int64),  # C*Rm
        ("alpha", np.int64),  # MSS
        ("beta", np.int64),  # buffer, -1 infinite
        ("G", np.int64),
        ("E", np.int64),
        ("C_L", np.int64),
        ("C_U", np.int64),
        ("delay", np.int64),  # of the newest byte at sample 0, whole steps; samples means at least so many
        ("lost", np.int64),  # bytes were lost in the step that ended at sample 0
        ("seen", np.int64),  # a loss became known at sample 0
        ("probes", np.int64),  # 1: C_L_lambda and q_U are kept, too
        ("C_L_lambda", np.int64),
        ("q_U", np.int64),
        (
            "windows",
            np.int64,
        ),  # 0: those of [CCmatic] s.5.1.1; 1: exact ones of C_U; 2: these, and those of what was sent and lost
        ("late_kept", np.int64),  # 1: a late first byte counts until another byte arrives; 0: in the step that delivers it
        ("first_late", np.int64),  # the first byte delivered by sample 0 had waited beyond what jitter explains
        ("E_before", np.int64, (PAST,)),
        ("waste", np.int64, (MOST_SAMPLES,)),  # share of spare tokens wasted, or -1: G_at says where G goes
        ("serve", np.int64, (MOST_SAMPLES,)),  # share of the legal band of S, or -1: S_at says where S goes
        ("G_at", np.int64, (MOST_SAMPLES,)),
        ("S_at", np.int64, (MOST_SAMPLES,)),
        ("delay_at", np.int64, (MOST_SAMPLES,)),  # wanted delay where the published rule leaves it open
    ],
    align=True,
)

CONDITION = np.dtype(
    [
        ("timed", np.int64),  # 1: over qdel_L and Rm
        ("C_L", np.int64),  # twice the coefficient
        ("C_U", np.int64),
        ("alpha", np.int64),
        ("qdel", np.int64),
        ("Rm", np.int64),
        ("C_L_lambda", np.int64),
        ("q_U", np.int64),
    ],
    align=True,
)

RATE = np.dtype(
    [("C_L", np.int64), ("alpha", np.int64), ("C_L_lambda", np.int64), ("q_U", np.int64)], align=True
)  # twice the coefficients

GOAL = np.dtype(
    [
        ("utilised", np.int64),  # smallest S(T-1) - S(0)
        ("inflight", np.int64),  # largest bytes in flight
        ("step_loss", np.int64),  # largest loss of a step that counts as small
        ("lossy_steps", np.int64),  # largest number of steps with loss
        ("loss", np.int64),  # largest loss of the trace
        ("timeouts", np.int64),  # 1: bounds may time out at the last sample, by the three factors below
        ("close", np.int64, (2,)),  # numerator and denominator
        ("rise", np.int64, (2,)),
        ("far", np.int64, (2,)),
        ("transient", np.int64),  # 0: none; 1: a large loss is excused by a fall only; 2: no large loss where the rate rises
    ],
    align=True,
)


def windows_code(rules: BeliefRules) -> int:
    """Return which windows bound C, as TRACE says it."""
    if rules.upper == "paper":
        return 0
    return 2 if rules.tighter else 1


def twice(value: Fraction) -> int:
    """Return 2*value as an integer. Raises ValueError if it is none."""
    doubled = 2 * value
    if doubled.denominator != 1:
        raise ValueError(f"coefficient {value} is not a multiple of 1/2")
    return int(doubled)


RATE_FIELDS = {"C_L": "C_L", "MSS/Rm": "alpha", "C_L_lambda": "C_L_lambda", "q_U/Rm": "q_U"}
"""Inputs of rates -> fields of RATE."""

CONDITION_FIELDS = RATE_FIELDS | {"C_U": "C_U", "qdel_L": "qdel", "Rm": "Rm"}
"""Inputs of conditions -> fields of CONDITION."""


def condition_records(conditions: list[tuple[tuple[str, Fraction], ...]]) -> np.ndarray:
    """Return conditions as records."""
    out = np.zeros(len(conditions), dtype=CONDITION)
    for row, terms in zip(out, conditions, strict=True):
        for name, value in terms:
            row[CONDITION_FIELDS[name]] = twice(value)
        row["timed"] = any(name in ("qdel_L", "Rm") for name, _ in terms)
    return out


def rate_records(rates: list[tuple[tuple[str, Fraction], ...]]) -> np.ndarray:
    """Return rates as records."""
    out = np.zeros(len(rates), dtype=RATE)
    for row, terms in zip(out, rates, strict=True):
        for name, value in terms:
            row[RATE_FIELDS[name]] = twice(value)
    return out
