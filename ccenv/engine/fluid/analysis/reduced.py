"""The reduced models of BBRv1 and BBRv2 for one bottleneck ([BBR-fluid] sections 5.1.1 and 5.2.1).

State: the bottleneck-bandwidth estimates x_btl of N flows and the queue q. Time is in seconds with the printed unit gain of
eq. 38, so an eigenvalue of -1 means one adaptation per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ccenv.base.errors import InputError, unknown_name

Model = Literal["bbr1", "bbr2"]
MODELS: tuple[Model, ...] = ("bbr1", "bbr2")
REGIONS = ("pacing", "between", "window")
PROBE_GAIN = 1.25


@dataclass(frozen=True)
class Bottleneck:
    """One bottleneck with a queue, shared by N flows.

    Attributes:
        capacity_Bps: C, bytes/s, above 0.
        rtt_s: propagation RTT d_i of each flow, s, above 0.
        buffer_bytes: B, above 0; infinity for a buffer that never fills.
    """

    capacity_Bps: float
    rtt_s: tuple[float, ...]
    buffer_bytes: float = float("inf")

    def __post_init__(self) -> None:
        """Check the values. Raises InputError."""
        if not self.rtt_s:
            raise InputError("an equilibrium needs at least one flow (got 0)")
        for name, value in (("capacity_Bps", self.capacity_Bps), ("buffer_bytes", self.buffer_bytes)):
            if not value > 0:
                raise InputError(f"{name} must be above 0 (got {value:g})")
        if not np.isfinite(self.capacity_Bps):
            raise InputError("capacity_Bps must be finite (got inf)")
        bad = [d for d in self.rtt_s if not (d > 0 and np.isfinite(d))]
        if bad:
            raise InputError(f"rtt_s must be above 0 and finite (got {bad[0]:g})")

    @property
    def flows(self) -> int:
        """Number of flows N."""
        return len(self.rtt_s)

    @property
    def common_rtt_s(self) -> float:
        """The propagation RTT that all flows share. Raises InputError when they differ."""
        if len(set(self.rtt_s)) > 1:
            raise InputError(f"closed forms need equal RTTs (got {min(self.rtt_s):g} to {max(self.rtt_s):g} s)")
        return self.rtt_s[0]


def known_model(name: str) -> Model:
    """Return the reduced model of a name. Raises UnknownNameError."""
    for model in MODELS:
        if model == name:
            return model
    raise unknown_name("reduced model", name, MODELS)


def window_factor(model: Model, rtt_s: np.ndarray, queue_delay_s: complex | float) -> np.ndarray:
    """Return what the window allows, as a multiple of x_btl: Delta_i (BBRv1) or delta_i (BBRv2).

    Reference: [BBR-fluid] eq. 37 (Delta), eq. 49 (delta = Delta/2).
    """
    return (2.0 if model == "bbr1" else 1.0) * rtt_s / (rtt_s + queue_delay_s)


def region_of(model: Model, rtt_s: np.ndarray, queue_delay_s: float) -> np.ndarray:
    """Return per flow the index into REGIONS: who limits the rate.

    `pacing`: the window never binds; `between`: it binds while probing; `window`: it always binds. BBRv2 knows
    `window` only (delta <= 1, and eq. 49 scales the pulse with it).
    """
    if model == "bbr2":
        return np.full(len(rtt_s), 2)
    factor = np.real(window_factor(model, rtt_s, queue_delay_s))
    return np.where(factor >= PROBE_GAIN, 0, np.where(factor >= 1.0, 1, 2))


def factors(model: Model, rtt_s: np.ndarray, queue_delay_s: complex | float, region: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (while probing, otherwise) the sending rate as a multiple of x_btl.

    Within a region both are smooth in the queueing delay, which may be complex (complex-step derivatives).

    Reference: [BBR-fluid] eqs. 37, 49, 50.
    """
    free = window_factor(model, rtt_s, queue_delay_s)
    if model == "bbr2":
        return PROBE_GAIN * free, free
    return np.where(region == 0, PROBE_GAIN, free), np.where(region == 2, free, 1.0)


def derivatives(
    model: Model,
    path: Bottleneck,
    x_btl: np.ndarray,
    queue: complex | float,
    *,
    region: np.ndarray | None = None,
    saturated: bool | None = None,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Return (dx_btl/dt, dq/dt without limits, sending rates x).

    Args:
        model: `bbr1` or `bbr2`.
        path: the bottleneck.
        x_btl: (N,) bytes/s.
        queue: bytes.
        region: (N,) index into REGIONS to force one side of a kink; by default that of the queue.
        saturated: whether the first case of eqs. 37 and 51 applies; by default if the queue is above 0 or y >= C.

    Reference: [BBR-fluid] eqs. 2, 37, 38, 51.
    Deviation: an empty queue on a saturated link counts as saturated, as in the correction of eq. 18.
    """
    rtt = np.asarray(path.rtt_s)
    delay = queue / path.capacity_Bps
    if region is None:
        region = region_of(model, rtt, np.real(delay))
    probing, cruising = factors(model, rtt, delay, region)
    sending = cruising * x_btl
    pulse = probing * x_btl
    total = np.sum(sending)
    if saturated is None:
        saturated = bool(np.real(queue) > 0 or np.real(total) >= path.capacity_Bps * (1.0 - 1e-12))
    if saturated:
        x_max = pulse * path.capacity_Bps / (pulse + total - sending)
    else:
        x_max = pulse
    return x_max - x_btl, total - path.capacity_Bps, sending


def limited(path: Bottleneck, queue: float, growth: float) -> float:
    """Return dq/dt with the queue kept in [0, B]."""
    if (queue <= 0 and growth < 0) or (queue >= path.buffer_bytes and growth > 0):
        return 0.0
    return growth


def rtt_sensitivity(x_btl: float, others: float, rtt_s: float, queue: float, capacity_Bps: float) -> float:
    """Return the derivative of a window-limited BBRv1 flow's delivery rate by its own propagation RTT, in bytes/s^2.

    Reference: [BBR-fluid] eqs. 34-36.
    Deviation: the printed numerator 2 x_btl sum_j x_j lacks the factor q. Differentiating eq. 35 with
    x_i = 2 d x_btl/(d + q/C) leaves 2 x_btl q sum_j x_j; with an empty queue the sensitivity is zero.
    """
    bottom = 2.0 * rtt_s * x_btl + (rtt_s + queue / capacity_Bps) * others
    return 2.0 * x_btl * queue * others / bottom**2
