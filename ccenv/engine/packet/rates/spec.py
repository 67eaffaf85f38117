"""Generators of traces as data: cellular, LEO satellite, Wi-Fi. Their constants with sources.

Each makes a trace of ``length_s``, which then begins again, from the seed of the run and the place of its link. ``mean_Bps`` is
the mean that the process tends to; a trace of a minute may be a good deal off it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError
from ccenv.network.links import load_trace
from ccenv.network.links.table import LONGEST_DELAY_S, MAX_RATE_Bps

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


class RateStep(StrictModel):
    """From time_s on the link serves at rate_Bps; 0: an outage."""

    time_s: float = Field(gt=0, allow_inf_nan=False)
    rate_Bps: float = Field(ge=0, allow_inf_nan=False)


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

    Raises:
        InputError: where it has another rate, or its trace cannot be read.
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
