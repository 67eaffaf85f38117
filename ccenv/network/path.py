"""Paths (link rate, buffer, queue discipline; delays, workload and loss budget per flow) and the network models as data.

Inside ccenv all quantities are seconds, bytes and bytes/s; :func:`make_path` converts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, PathError, shown, unknown_name

MBPS_IN_BPS = 125_000.0
DEFAULT_MSS_BYTES = 1500.0
MAX_FLOWS = 64
GRID_TOLERANCE = 1e-6
# Bounds of a path: far beyond any network, and such that no product or quotient of its numbers overflows a float.
SHORTEST_S, LONGEST_S = 1e-9, 1e9
SLOWEST_BPS, FASTEST_BPS = 1e-9, 1e18
FEWEST_BYTES, MOST_BYTES = 1e-9, 1e18

WORKLOAD_FIELDS = {"bulk": (), "rate": ("rate_Bps",), "on_off": ("on_s", "off_s"), "finite": ("size_bytes",)}
"""Numbers that a workload needs, by its type."""


class Workload(StrictModel):
    """The data that the application offers.

    Attributes:
        kind: ``bulk`` (unlimited), ``rate`` (a constant stream), ``on_off`` (bulk during on phases), ``finite`` (one transfer).
        rate_Bps: rate of the stream, for ``rate``.
        on_s: length of an on phase, for ``on_off``.
        off_s: length of an off phase, for ``on_off``.
        size_bytes: size of the transfer, for ``finite``.
    """

    kind: Literal["bulk", "rate", "on_off", "finite"] = "bulk"
    rate_Bps: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    on_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    off_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    size_bytes: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _needs_its_fields(self) -> Workload:
        for name in WORKLOAD_FIELDS[self.kind]:
            if getattr(self, name) <= 0:
                raise ValueError(f"workload {self.kind!r} needs {name} > 0")
        return self


class RedParameters(StrictModel):
    """Random early detection in fluid form: the share of arrivals dropped is a function of the averaged queue.

    Attributes:
        min_bytes: averaged queue below which nothing is dropped.
        max_bytes: averaged queue at which the share is ``max_probability`` (above it everything is dropped: gentle off).
        max_probability: share dropped at ``max_bytes``, in (0, 1].
        weight: weight of the newest queue in the average, in (0, 1].
    """

    min_bytes: float = Field(ge=0, allow_inf_nan=False)
    max_bytes: float = Field(gt=0, allow_inf_nan=False)
    max_probability: float = Field(0.1, gt=0, le=1)
    weight: float = Field(0.1, gt=0, le=1)

    @model_validator(mode="after")
    def _check_order(self) -> RedParameters:
        if self.max_bytes <= self.min_bytes:
            raise ValueError(f"max_bytes {self.max_bytes} is not above min_bytes {self.min_bytes}")
        return self


class FlowPath(StrictModel):
    """One flow's part of a path.

    Attributes:
        rtt_s: propagation round-trip time Rm, > 0.
        jitter_s: bound D on the non-congestive delay, >= 0.
        start_s: when the flow starts.
        stop_s: when it stops (infinite: never).
        loss_budget: largest fraction of its bytes lost without congestion, in [0, 1) ([Starvation] s.5.4).
        workload: what the application offers.
    """

    rtt_s: float = Field(ge=SHORTEST_S, le=LONGEST_S, allow_inf_nan=False)
    jitter_s: float = Field(default=0.0, ge=0, le=LONGEST_S, allow_inf_nan=False)
    start_s: float = Field(default=0.0, ge=0, le=LONGEST_S, allow_inf_nan=False)
    stop_s: float = Field(math.inf, gt=0)
    loss_budget: float = Field(0.0, ge=0, lt=1)
    workload: Workload = Workload()


class RateChange(StrictModel):
    """From time_s on the link rate is link_rate_Bps ([CCmatic] App. H)."""

    time_s: float = Field(gt=0, le=LONGEST_S, allow_inf_nan=False)
    link_rate_Bps: float = Field(ge=SLOWEST_BPS, le=FASTEST_BPS, allow_inf_nan=False)


class Path(StrictModel):
    """A bottleneck link shared by one or more flows.

    Attributes:
        link_rate_Bps: C, > 0.
        buffer_bytes: beta, > 0 or infinite.
        mss_bytes: largest segment, > 0.
        flows: one entry per flow, at most MAX_FLOWS.
        red: RED instead of drop-tail when given (drop-tail at buffer_bytes stays behind it).
        rate_changes: steps of C at given times, ascending: a scenario, not a move of the adversary.
        link_rate_min_Bps: smallest rate that the ``strong`` model may choose (None: C).
        link_rate_max_Bps: largest rate that the ``strong`` model may choose (None: C).
    """

    link_rate_Bps: float = Field(ge=SLOWEST_BPS, le=FASTEST_BPS, allow_inf_nan=False)
    buffer_bytes: float = Field(math.inf, ge=FEWEST_BYTES)
    mss_bytes: float = Field(DEFAULT_MSS_BYTES, ge=FEWEST_BYTES, le=MOST_BYTES, allow_inf_nan=False)
    flows: tuple[FlowPath, ...] = Field(min_length=1, max_length=MAX_FLOWS)
    red: RedParameters | None = None
    rate_changes: tuple[RateChange, ...] = ()
    link_rate_min_Bps: float | None = Field(None, ge=SLOWEST_BPS, le=FASTEST_BPS, allow_inf_nan=False)
    link_rate_max_Bps: float | None = Field(None, ge=SLOWEST_BPS, le=FASTEST_BPS, allow_inf_nan=False)

    @model_validator(mode="after")
    def _consistent(self) -> Path:
        times = [change.time_s for change in self.rate_changes]
        if times != sorted(set(times)):
            raise ValueError("rate_changes must have ascending, distinct times")
        low = self.link_rate_min_Bps or self.link_rate_Bps
        high = self.link_rate_max_Bps or self.link_rate_Bps
        if not low <= high:
            raise ValueError(f"link_rate_min_Bps {low} is above link_rate_max_Bps {high}")
        return self

    @property
    def n_flows(self) -> int:
        return len(self.flows)

    @property
    def bdp_bytes(self) -> float:
        """C times the smallest propagation RTT, in bytes."""
        return self.link_rate_Bps * min(flow.rtt_s for flow in self.flows)

    def __repr__(self) -> str:
        flow, bdp = self.flows[0], self.buffer_bytes / self.bdp_bytes
        flow_count = f", {self.n_flows} flows" if self.n_flows > 1 else ""
        return (
            f"Path({self.link_rate_Bps / MBPS_IN_BPS:g} Mbit/s, Rm {1e3 * flow.rtt_s:g} ms, D {1e3 * flow.jitter_s:g} ms, "
            f"buffer {bdp:.3g} BDP{flow_count})"
        )

    __str__ = __repr__

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready dictionary; infinities become the text ``"inf"``."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @staticmethod
    def from_dict(data: object) -> Path:
        """Validate a dictionary (``"inf"`` is read as infinity). Raises PathError."""
        try:
            return validate(Path, data, "path")
        except InputError as error:
            raise PathError(str(error)) from None


@dataclass(frozen=True)
class Grid:
    """A path on the time grid of the curve engine: Rm (>= 1) and D (>= 0) of each flow are whole numbers of steps.

    ``dt_s`` is the length of a step, the smallest Rm of the path divided by ``steps_per_rtt``, K.
    """

    dt_s: float
    steps_per_rtt: int
    rtt_steps: tuple[int, ...]
    jitter_steps: tuple[int, ...]


def make_grid(path: Path, steps_per_rtt: int) -> Grid:
    """Put a path on a grid of K steps per smallest Rm.

    Raises PathError if some Rm or D is not a whole number of steps; names the flow, the value and the nearest allowed ones.
    """
    if steps_per_rtt < 1:
        raise PathError(f"steps_per_rtt is {steps_per_rtt}; it must be at least 1")
    dt_s = min(flow.rtt_s for flow in path.flows) / steps_per_rtt
    rtt_steps = tuple(_whole_steps(flow.rtt_s, dt_s, i, "rtt_s") for i, flow in enumerate(path.flows))
    jitter_steps = tuple(_whole_steps(flow.jitter_s, dt_s, i, "jitter_s") for i, flow in enumerate(path.flows))
    return Grid(dt_s, steps_per_rtt, rtt_steps, jitter_steps)


def _whole_steps(value_s: float, dt_s: float, flow: int, name: str) -> int:
    steps = round(value_s / dt_s)
    if abs(value_s - steps * dt_s) > GRID_TOLERANCE * dt_s:
        low = math.floor(value_s / dt_s) * dt_s
        raise PathError(
            f"flow {flow}: {name} {value_s:g} is not a whole number of steps of {dt_s:g} s; nearest {low:g} and {low + dt_s:g}"
        )
    return steps


def make_path(
    *,
    link_rate_mbps: float,
    rtt_ms: float | list[float] = 40.0,
    jitter_ms: float | list[float] = 0.0,
    buffer_bdp: float = math.inf,
    n_flows: int = 1,
    mss_bytes: float = DEFAULT_MSS_BYTES,
) -> Path:
    """Build a path; Rm and D are one value or one per flow, the buffer is in units of C * smallest Rm.

    Raises PathError for impossible values.
    """
    for name, value in (("link_rate_mbps", link_rate_mbps), ("buffer_bdp", buffer_bdp), ("mss_bytes", mss_bytes)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise PathError(f"{name} is {shown(value)}; it must be a number")
    rtts = rtt_ms if isinstance(rtt_ms, list) else [rtt_ms] * n_flows
    jitters = jitter_ms if isinstance(jitter_ms, list) else [jitter_ms] * n_flows
    if len(rtts) != len(jitters):
        raise PathError(f"{len(rtts)} values of rtt_ms but {len(jitters)} of jitter_ms")
    rate_Bps = link_rate_mbps * MBPS_IN_BPS
    return Path.from_dict(
        {
            "link_rate_Bps": rate_Bps,
            "buffer_bytes": math.inf if math.isinf(buffer_bdp) else buffer_bdp * rate_Bps * min(rtts, default=0.0) / 1e3,
            "mss_bytes": mss_bytes,
            "flows": [{"rtt_s": r / 1e3, "jitter_s": d / 1e3} for r, d in zip(rtts, jitters, strict=True)],
        }
    )


@dataclass(frozen=True)
class Model:
    """A network model: what the adversary may choose per step. ``MODELS`` lists them, weakest first."""

    name: str
    index: int  # position in the order of strength; a sender that works on a higher one works on a lower one
    has_jitter: bool  # may hold served bytes, up to D
    hoards_tokens: bool  # may keep spare tokens for later instead of wasting them (CCAC)
    varies_rate: bool  # may choose the link rate in [C_min, C_max] per step
    source: str  # paper and section


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
