"""Loss against convergence time: theorem 6.1 of [CCmatic] as functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ccenv.base.errors import InputError

LARGEST_K = 10_000_000


def ramp(loss_allowance: Callable[[float], float], start_Bps: float, buffer_s: float) -> Iterator[float]:
    """Yield F(0), F(1), ...: the highest rate that k round trips can reach while risking at most f(rate) bytes of loss.

    F(0) = C_0 and F(k) = F(k-1) + f(F(k-1)) / beta_s ([CCmatic] theorem 6.1).

    Args:
        loss_allowance: f, bytes of loss risked at a rate in bytes/s; positive.
        start_Bps: C_0, > 0.
        buffer_s: beta_s = beta / C in seconds, > 0.

    Raises:
        InputError: for values out of range, also of f.
    """
    if not start_Bps > 0 or not buffer_s > 0:
        raise InputError(f"start_Bps is {start_Bps} and buffer_s {buffer_s}; both must be above 0")
    rate = start_Bps
    while True:
        yield rate
        allowed = loss_allowance(rate)
        if not allowed > 0:
            raise InputError(f"the loss allowance at {rate:g} bytes/s is {allowed}; it must be above 0")
        rate += allowed / buffer_s


def rtts_to_reach(rate_Bps: float, loss_allowance: Callable[[float], float], start_Bps: float, buffer_s: float) -> int:
    """Return F^-1(C): the fewest round trips after which F is at least the rate (theorem 6.1).

    Raises InputError if it takes more than ten million round trips, or a value is out of range.
    """
    for k, reached in enumerate(ramp(loss_allowance, start_Bps, buffer_s)):
        if reached >= rate_Bps:
            return k
        if k >= LARGEST_K:
            break
    raise InputError(f"{rate_Bps:g} bytes/s is not reached within {LARGEST_K} round trips")


def convergence_time_s(
    rate_Bps: float, loss_allowance: Callable[[float], float], start_Bps: float, buffer_s: float, rtt_s: float
) -> float:
    """Return the lower bound F^-1(C) * (Rm + beta_s) on the convergence time, in seconds, for beta <= C*D (theorem 6.1)."""
    if not rtt_s > 0:
        raise InputError(f"rtt_s is {rtt_s}; it must be above 0")
    return rtts_to_reach(rate_Bps, loss_allowance, start_Bps, buffer_s) * (rtt_s + buffer_s)
