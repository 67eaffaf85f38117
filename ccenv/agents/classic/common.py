"""What several classic CCAs share: constants, windowed filters, and the factory."""

from __future__ import annotations

import types

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.agents.sender import ClassicSender
from ccenv.base.parameters import number

INITIAL_WINDOW_MSS = 10.0  # RFC 6928 s.2
UNLIMITED_BYTES = 1e15  # "arbitrarily high" (RFC 5681 s.3.1), yet finite
RTT_GAIN = 0.125  # alpha of RFC 6298 s.2, per round trip

Samples = tuple[float, float, float, float, float, float]


@kernel
def smoothed_rtt(srtt_s: float, rtt_s: float, share: float) -> float:
    """Update a smoothed RTT (RFC 6298 s.2) for any number of samples per round trip (as RFC 7323 app. G).

    Args:
        srtt_s: value so far; 0: none.
        rtt_s: the sample.
        share: share of a window that the signal acknowledges, in (0, 1].
    """
    if srtt_s <= 0.0:
        return rtt_s
    return srtt_s + RTT_GAIN * share * (rtt_s - srtt_s)


@kernel
def windowed_min(filter_state: Samples, now: float, value: float, window: float) -> Samples:
    """Update a windowed minimum in constant space: the three-sample estimator of K. Nichols.

    The first sample is the minimum and always at most ``window`` old. The second and third are the smallest since the first
    and since the second, taken afresh when they are older than a quarter and a half of the window, so that a good
    successor is at hand when the first expires.

    Args:
        filter_state: (value, time) of the three samples, flat; the first value is 0 before the first sample.
        now: time of the new sample, in any unit (seconds, rounds).
        value: the new sample, not 0.
        window: length of the window in the unit of now.

    Returns:
        tuple: the updated samples.
    """
    best, best_at, second, second_at, third, third_at = filter_state
    if best == 0.0 or value <= best or now - third_at > window:
        return value, now, value, now, value, now
    if value <= second:
        second, second_at, third, third_at = value, now, value, now
    elif value <= third:
        third, third_at = value, now
    if now - best_at > window:
        best, best_at, second, second_at, third, third_at = second, second_at, third, third_at, value, now
        if now - best_at > window:
            best, best_at, second, second_at = second, second_at, third, third_at
    elif second_at == best_at and now - second_at > 0.25 * window:
        second, second_at, third, third_at = value, now, value, now
    elif third_at == second_at and now - third_at > 0.5 * window:
        third, third_at = value, now
    return best, best_at, second, second_at, third, third_at


def classic_sender(name: str, module: types.ModuleType, state: np.dtype, **parameters: float) -> ClassicSender:
    """Return the sender made of a module's init, on_ack, on_loss and on_tick; with PER_PACKET it hears of each lost packet."""
    per_packet = getattr(module, "PER_PACKET", False)
    return ClassicSender(name, state, module.init, module.on_ack, module.on_loss, module.on_tick, parameters, "", per_packet)


def chosen(**options: float) -> dict[str, float]:
    """Return the options that are not 0, which is what a state holds without them: a new option changes no sender's hash."""
    return {name: value for name, value in options.items() if value != 0}


def initial_window(name: str, value: float) -> float:
    """Check the parameter initial_window_mss."""
    return number(name, "initial_window_mss", value, low=1, high=1e6)
