"""Generators of traces, compiled: from the numbers in a link's record and the seed to rows of a trace, also outside of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import unknown_name
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import store
from ccenv.engine.packet.layout import LINK_DTYPE, LINK_KEY, TRACE_COUNTER, TRACE_KINDS
from ccenv.engine.packet.rates.spec import (
    BLOCK_ACK_S,
    DIFS_S,
    GENERATORS,
    MIN_WINDOW,
    PARAMETERS,
    PEAK,
    SIFS_S,
    SLOT_S,
    TICK_S,
    WIFI_SLOT_S,
    WOBBLE_S,
    Generator,
    parameter_field,
)
from ccenv.network.links.table import ROW_BEFORE_BYTES, ROW_DELAY_S, ROW_TIME_S, ROW_VALUE, ROW_WIDTH, LinkTrace

CELLULAR, LEO, WIFI = (GENERATORS[name] for name in ("cellular", "leo", "wifi"))
RATE, OPPORTUNITIES = TRACE_KINDS["rate"], TRACE_KINDS["opportunities"]
LOW_WALL, HIGH_WALL = 0.05, 1.95  # times the mean
SECONDS_PER_SLOT = round(SLOT_S / WOBBLE_S)


@kernel
def cycle_s(stations, txop_s):
    """Return the mean time from frame to frame of a Wi-Fi station beside others."""
    return (1.0 + stations) * (txop_s + DIFS_S + WIFI_SLOT_S * MIN_WINDOW / 2 + SIFS_S + BLOCK_ACK_S)


@kernel
def generated_rows(ln):
    """Return how many rows the trace of a link's generator has."""
    if ln.generator == CELLULAR:
        return max(1, math.floor(ln.trace_length_s / TICK_S + 0.5))
    if ln.generator == LEO:
        return math.ceil(ln.trace_length_s / SLOT_S - 1e-9) * (1 + SECONDS_PER_SLOT)
    return max(1, math.ceil(ln.trace_length_s / cycle_s(ln.generator_a, ln.generator_b)))


@kernel
def draw(ln, seed, counter):
    """Return a number in [0, 1) that the generator of a link draws."""
    return uniform(seed, 0.0, LINK_KEY + ln.index, TRACE_COUNTER + counter)


@kernel
def put_row(ln, row, time_s, value, delay_s):
    """Write a row of the trace of a link."""
    at = row * ROW_WIDTH
    store(ln.trace_at, at + ROW_TIME_S, time_s)
    store(ln.trace_at, at + ROW_VALUE, value)
    store(ln.trace_at, at + ROW_BEFORE_BYTES, ln.trace_bytes)
    store(ln.trace_at, at + ROW_DELAY_S, delay_s)


@kernel
def generate(ln, seed):
    """Make the trace of a link's generator: its rows at ``trace_at``, its kind, length and bytes."""
    ln.trace_rows = generated_rows(ln)
    ln.trace_bytes = 0.0
    if ln.generator == CELLULAR:
        _cellular(ln, seed)
    elif ln.generator == LEO:
        _leo(ln, seed)
    else:
        _wifi(ln, seed)


@kernel
def _cellular(ln, seed):
    """Reflected steps of variance volatility^2 mean^2 per second; outages of exponential length."""
    ln.trace_kind = RATE
    mean = ln.generator_mean_Bps
    low, high = LOW_WALL * mean, HIGH_WALL * mean
    step = ln.generator_a * mean * math.sqrt(3.0 * TICK_S)
    begins = ln.generator_b / 60.0 * TICK_S if ln.generator_c > 0.0 else 0.0
    stays = math.exp(-TICK_S / ln.generator_c) if ln.generator_c > 0.0 else 0.0
    rate = low + (high - low) * draw(ln, seed, 0.0)
    dark = False
    for row in range(ln.trace_rows):
        rate += step * (2.0 * draw(ln, seed, 2.0 * row + 1.0) - 1.0)
        while rate < low or rate > high:
            rate = 2.0 * low - rate if rate < low else 2.0 * high - rate
        dark = row > 0 and draw(ln, seed, 2.0 * row + 2.0) < (stays if dark else begins)
        value = 0.0 if dark else rate
        put_row(ln, row, row * TICK_S, value, 0.0)
        ln.trace_bytes += value * TICK_S
    ln.trace_length_s = ln.trace_rows * TICK_S


@kernel
def _leo(ln, seed):
    """Per slot of 15 s: nothing for the handover, then a rate that wobbles every second, and a delay."""
    ln.trace_kind = RATE
    slots = ln.trace_rows // (1 + SECONDS_PER_SLOT)
    row = 0
    for slot in range(slots):
        first = slot * (3.0 + SECONDS_PER_SLOT)
        slot_Bps = ln.generator_mean_Bps * (1.0 + ln.generator_a * (2.0 * draw(ln, seed, first) - 1.0))
        delay_s = ln.generator_c * draw(ln, seed, first + 1.0)
        dark_s = ln.generator_d * draw(ln, seed, first + 2.0)
        put_row(ln, row, slot * SLOT_S, 0.0, delay_s)
        row += 1
        for second in range(SECONDS_PER_SLOT):
            begin_s = slot * SLOT_S + (dark_s if second == 0 else second * WOBBLE_S)
            end_s = slot * SLOT_S + (second + 1.0) * WOBBLE_S
            value = slot_Bps * (1.0 + ln.generator_b * (2.0 * draw(ln, seed, first + 3.0 + second) - 1.0))
            put_row(ln, row, begin_s, value, delay_s)
            ln.trace_bytes += value * (end_s - begin_s)
            row += 1
    ln.trace_length_s = slots * SLOT_S


@kernel
def _wifi(ln, seed):
    """Wins of the channel go to this station or another alike; each takes a backoff, a frame and its ACK."""
    ln.trace_kind = OPPORTUNITIES
    usual = ln.generator_mean_Bps * cycle_s(ln.generator_a, ln.generator_b)
    own_share = 1.0 / (1.0 + ln.generator_a)
    time_s = 0.0
    counter = 0.0
    for row in range(ln.trace_rows):
        while True:
            backoff = math.floor((MIN_WINDOW + 1.0) * draw(ln, seed, counter))
            time_s += DIFS_S + WIFI_SLOT_S * backoff + ln.generator_b
            won = draw(ln, seed, counter + 1.0) < own_share
            counter += 2.0
            if won:
                break
            time_s += SIFS_S + BLOCK_ACK_S
        value = usual * (1.0 + ln.generator_c * (2.0 * draw(ln, seed, counter) - 1.0))
        counter += 1.0
        put_row(ln, row, time_s, value, 0.0)
        ln.trace_bytes += value
        time_s += SIFS_S + BLOCK_ACK_S
    ln.trace_length_s = time_s


def generated(ln: np.ndarray, seed: int) -> np.ndarray:
    """Return the rows that a link's generator makes: (n, ROW_WIDTH).

    Args:
        ln: (1,) LINK_DTYPE with a generator; its kind, length and bytes are set.
        seed: of the run.
    """
    link = ln.view(np.recarray)[0]
    rows = np.zeros((int(generated_rows(link)), ROW_WIDTH))
    link.trace_at = rows.ctypes.data
    generate(link, float(seed))
    return rows


class _Made(StrictModel):
    generator: Generator


def generator_record(generator: Generator, link: np.ndarray) -> None:
    """Write a generator into the record of a link.

    Args:
        generator: it.
        link: (1,) LINK_DTYPE.
    """
    link["generator"], link["generator_mean_Bps"] = GENERATORS[generator.kind], generator.mean_Bps
    link["trace_length_s"], link["peak_Bps"] = generator.length_s, PEAK * generator.mean_Bps
    for name in PARAMETERS[generator.kind]:
        link[parameter_field(generator.kind, name)] = getattr(generator, name)


def made_trace(given: dict[str, Any], seed: int, link: int = 0) -> LinkTrace:
    """Return the trace that a generator makes for a link of a run.

    Args:
        given: the generator as data, in SI units.
        seed: of the run.
        link: place of the link.

    Raises:
        InputError: for a generator that there is not, or numbers out of range.
    """
    if given.get("kind") not in GENERATORS:
        raise unknown_name("generator", str(given.get("kind")), GENERATORS)
    record = np.zeros(1, LINK_DTYPE)
    record["index"] = link
    generator_record(validate(_Made, {"generator": given}, "generator").generator, record)
    rows = generated(record, seed)
    names = {number: name for name, number in TRACE_KINDS.items()}
    trace_kind = names[int(record["trace_kind"][0])]
    return LinkTrace("rate" if trace_kind == "rate" else "opportunities", rows, float(record["trace_length_s"][0]))
