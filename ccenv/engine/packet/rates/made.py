"""Traces that the generators make, outside of a run: to be looked at, and to be stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.base.config import StrictModel, validate
from ccenv.engine.packet.layout import LINK_DTYPE, TRACE_KINDS
from ccenv.engine.packet.rates.generate import generated
from ccenv.engine.packet.rates.spec import GENERATORS, PARAMETERS, PEAK, Generator, parameter_field
from ccenv.base.errors import unknown_name
from ccenv.network.links.table import LinkTrace


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
    kind = names[int(record["trace_kind"][0])]
    return LinkTrace("rate" if kind == "rate" else "opportunities", rows, float(record["trace_length_s"][0]))
