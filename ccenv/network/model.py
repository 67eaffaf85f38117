"""The network models as data: which moves each gives to the adversary, weakest first."""

from __future__ import annotations

from dataclasses import dataclass

from ccenv.base.errors import unknown_name


@dataclass(frozen=True)
class Model:
    """What a network may choose per step.

    Attributes:
        name: id used in configs and traces.
        index: position in the order of strength; a sender that works on a higher one works on a lower one.
        has_jitter: may hold served bytes, up to D.
        hoards_tokens: may keep spare tokens for later instead of wasting them (CCAC).
        varies_rate: may choose the link rate in [C_min, C_max] per step.
        source: paper and section.
    """

    name: str
    index: int
    has_jitter: bool
    hoards_tokens: bool
    varies_rate: bool
    source: str


IDEAL = Model("ideal", 0, False, False, False, "[CCmatic] s.3")
CBR_DELAY = Model("cbr_delay", 1, True, False, False, "[CCmatic] s.3, [Starvation] s.3")
CCAC = Model("ccac", 2, True, True, False, "[CCmatic] s.3, Listing 3")
STRONG = Model("strong", 3, True, False, True, "[Starvation] s.6.5")

MODELS: dict[str, Model] = {m.name: m for m in (IDEAL, CBR_DELAY, CCAC, STRONG)}


def get_model(name: str) -> Model:
    """Return the model of a name. Raises UnknownNameError with suggestions."""
    if name not in MODELS:
        raise unknown_name("model", str(name), MODELS)
    return MODELS[name]
