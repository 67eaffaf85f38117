"""Generators of traces: cellular, LEO satellite, Wi-Fi, as data, with the sources of their constants, and compiled.

Each makes a trace of ``length_s``, which then begins again, from the seed of the run and the place of its link. ``mean_Bps`` is
the mean that the process tends to; a trace of a minute may be a good deal off it.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.calls import store
from ccenv.engine.packet.layout import LINK_DTYPE, LINK_KEY, TRACE_COUNTER, TRACE_KINDS
from ccenv.network.links import load_trace
from ccenv.network.links.table import (
    LONGEST_DELAY_S,
    ROW_BEFORE_BYTES,
    ROW_DELAY_S,
    ROW_TIME_S,
    ROW_VALUE,
    ROW_WIDTH,
    LinkTrace,
    MAX_RATE_Bps,
)

Rate = Annotated[float, Field(gt=0, le=MAX_RATE_Bps, allow_inf_nan=False)]
Length = Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)]
TICK_S = 0.02  # Sprout s.3.1
SLOT_S = 15.0  # of a LEO satellite
WOBBLE_S = 1.0  # between changes of rate within a slot
PEAK = 4.0  # times the mean: what windows and rings count with

# IEEE 802.11-2020 table 17-21 (OFDM in the 5 GHz band), 802.11ax-2021 table 27-61.
SIFS_S, WIFI_SLOT_S, MIN_WINDOW = 16e-6, 9e-6, 15
DIFS_S = SIFS_S + 2 * WIFI_SLOT_S
BLOCK_ACK_S = 50e-6  # of a block ACK at 24 Mbit/s, with its preamble, rounded up
LONGEST_PPDU_S = 0.005484


class Cellular(StrictModel):
    """A cellular link: a rate in Brownian motion between two walls, and outages.

    Attributes:
        kind: cellular.
        mean_Bps: mean rate outside of outages; the walls are at 0.05 and 1.95 times it.
        volatility: standard deviation of the rate's change within a second, over the mean. Sprout's model has 200 packets/s at a
            largest rate of 1000 packets/s: 0.4.
        outages_per_min: how many outages begin per minute. Our choice.
        outage_s: their mean length; exponential. Sprout's model leaves an outage once per second: 1.
        length_s: after which the trace begins again.

    Reference: K. Winstein, A. Sivaraman, H. Balakrishnan: Stochastic forecasts achieve high throughput and low delay over
        cellular networks, NSDI 2013, s.3.

    Deviation: within a tick of 20 ms the rate is constant (there: a Poisson process); steps are uniform with the variance of the
        normal ones; outages begin at any rate (there: when the rate comes to 0).
    """

    kind: Literal["cellular"]
    mean_Bps: Rate
    volatility: float = Field(default=0.4, ge=0, le=4, allow_inf_nan=False)
    outages_per_min: float = Field(default=2.0, ge=0, le=60, allow_inf_nan=False)
    outage_s: float = Field(default=1.0, ge=0, le=60, allow_inf_nan=False)
    length_s: Length = 60.0


class Leo(StrictModel):
    """A link over low satellites: every 15 s another one, with another rate and delay.

    Attributes:
        kind: leo.
        mean_Bps: mean over the satellites.
        spread: a satellite's rate is uniform within this share around the mean. Our choice.
        wobble: each second's rate is uniform within this share around its satellite's. Our choice.
        delay_s: largest delay, one way, that a satellite adds to the path's own; uniform. Smallest RTTs change every 15 s, in the
            worst case from 30 to 80 ms.
        handover_s: longest time without a link at the change; uniform. RTTs are some 30 to 50 ms longer there.
        length_s: after which the trace begins again, rounded up to whole slots.

    Reference: G. Huston: A transport protocol's view of Starlink, APNIC 2024; H. B. Tanveer et al.: Making sense of
        constellations, CoNEXT companion 2023 (slots of 15 s for all terminals at once).

    Deviation: packets do not overtake each other where the delay falls, and none is lost by the handover itself.
    """

    kind: Literal["leo"]
    mean_Bps: Rate
    spread: float = Field(default=0.4, ge=0, le=0.95, allow_inf_nan=False)
    wobble: float = Field(default=0.1, ge=0, le=0.95, allow_inf_nan=False)
    delay_s: float = Field(default=0.025, ge=0, le=LONGEST_DELAY_S, allow_inf_nan=False)
    handover_s: float = Field(default=0.05, ge=0, le=0.9, allow_inf_nan=False)
    length_s: Length = 300.0


class Wifi(StrictModel):
    """A Wi-Fi link: frames of many packets, between them those of other stations.

    Attributes:
        kind: wifi.
        mean_Bps: mean rate.
        stations: others that always have something to send; each win of the channel goes to any station alike.
        txop_s: air time of a frame; at most 5.484 ms (aPPDUMaxTime).
        fading: a frame's bytes are uniform within this share around their mean: rates are adapted. Our choice.
        length_s: after which the trace begins again, about.

    Reference: IEEE 802.11-2020 s.10.3 (DCF: DIFS, slots, smallest window 15), s.10.12 (A-MPDU); 802.11ax-2021 table 27-61
        (longest PPDU); G. Bianchi: Performance analysis of the IEEE 802.11 DCF, JSAC 2000 (stations win alike).

    Deviation: frames come whether or not packets wait, and a frame that is not full takes as long as a full one; collisions take
        no air time; packets of a frame arrive together at its end; no limit on their number; ACKs do not contend.
    """

    kind: Literal["wifi"]
    mean_Bps: Rate
    stations: float = Field(default=3.0, ge=0, le=50, allow_inf_nan=False)
    txop_s: float = Field(default=0.003, ge=0.0002, le=LONGEST_PPDU_S, allow_inf_nan=False)
    fading: float = Field(default=0.5, ge=0, le=0.95, allow_inf_nan=False)
    length_s: Length = 20.0


Generator = Annotated[Cellular | Leo | Wifi, Field(discriminator="kind")]
GENERATORS = {"cellular": 1, "leo": 2, "wifi": 3}
# Numbers of a generator in the order of the fields generator_a, b, c, d of a link's record.
PARAMETERS = {
    "cellular": ("volatility", "outages_per_min", "outage_s"),
    "leo": ("spread", "wobble", "delay_s", "handover_s"),
    "wifi": ("stations", "txop_s", "fading"),
}
FIELDS = ("generator_a", "generator_b", "generator_c", "generator_d")


def parameter_field(kind: str, name: str) -> str:
    """Return the field of a link's record that holds a generator's number; empty for one that it does not have."""
    names = PARAMETERS[kind]
    return FIELDS[names.index(name)] if name in names else ""


def with_mean_rate(link: dict[str, Any]) -> dict[str, Any]:
    """Return a link as data with the mean of its trace or generator as its rate, where it has one.

    Raises InputError where it has another rate, or its trace cannot be read.
    """
    generator = link.get("generator")
    mean: Any = None
    if link.get("trace"):
        mean = load_trace(str(link["trace"])).mean_Bps
    elif isinstance(generator, dict):
        mean = generator.get("mean_Bps")
    elif generator is not None:
        mean = getattr(generator, "mean_Bps", None)
    if not isinstance(mean, int | float):
        return link
    if not mean > 0:
        raise InputError(f"generator: a mean_mbps of {mean * 8e-6:g}; it must be above 0")
    if link.get("rate_Bps", mean) != mean:
        raise InputError("a link has a rate, or a trace or generator, not both")
    return {**link, "rate_Bps": mean}


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
    """Return the rows, (n, ROW_WIDTH), that a link's generator makes; kind, length and bytes of the (1,) LINK_DTYPE are set."""
    link = ln.view(np.recarray)[0]
    rows = np.zeros((int(generated_rows(link)), ROW_WIDTH))
    link.trace_at = rows.ctypes.data
    generate(link, float(seed))
    return rows


class _Made(StrictModel):
    generator: Generator


def generator_record(generator: Generator, link: np.ndarray) -> None:
    """Write a generator into the record of a link, (1,) LINK_DTYPE."""
    link["generator"], link["generator_mean_Bps"] = GENERATORS[generator.kind], generator.mean_Bps
    link["trace_length_s"], link["peak_Bps"] = generator.length_s, PEAK * generator.mean_Bps
    for name in PARAMETERS[generator.kind]:
        link[parameter_field(generator.kind, name)] = getattr(generator, name)


def made_trace(given: dict[str, Any], seed: int, link: int = 0) -> LinkTrace:
    """Return the trace that a generator, as data in SI units, makes for the n-th link of a run.

    Raises InputError for a generator that there is not, or numbers out of range.
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
