"""What the papers predict, as functions: drawn under the simulated points of a report."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.registry import load_target
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS

FLUID_BDP_PACKETS = 83.0  # of the sweep "validation": 100 Mbit/s for 10 ms in packets of 1514 bytes, rounded up

# --- [4CP] --------------------------------------------------------------------------------------------------------------


def detector_root(r: float) -> float:
    """Return the solution a in (0, 1) of 1 - a = exp(-a r), for r = p/tarp > 1 ([4CP] eq. 8). Raises InputError for r <= 1."""
    if not r > 1:
        raise InputError(f"p/tarp is {r:g}; it must be above 1: the phase must be bad")
    low, high = 0.0, 1.0
    for _ in range(200):
        a = (low + high) / 2
        if 1 - a > math.exp(-a * r):
            low = a
        else:
            high = a
    return (low + high) / 2


def false_positives(wndbnd_mss: float, loss_ratio: float, tarp: float, mincwnd_mss: float = 2.0) -> float:
    """Return the share of time in which 4CP's detector wrongly says that the phase is good ([4CP] theorem 1).

    f = exp(-lambda a (mincwnd + wndbnd)) with lambda = mincwnd tarp r, r = p/tarp > 1 and tarp the target loss event rate.
    """
    return math.exp(-mincwnd_mss * tarp * loss_ratio * detector_root(loss_ratio) * (mincwnd_mss + wndbnd_mss))


def throughput_gain_bound(n: float) -> float:
    """Return (sqrt(n) + 1/sqrt(n))/2, 4CP's largest gain over TCP with up to n short transfers at once ([4CP] theorem 2 (i))."""
    return 0.5 * (math.sqrt(n) + 1 / math.sqrt(n))


def extremal_idle_share(n: float) -> float:
    """Return 1/sqrt(n), the share of time without short transfers at which the gain is largest ([4CP] theorem 2 (ii))."""
    return 1 / math.sqrt(n)


def phases_equilibrium(shares: Sequence[float], fourcp: int, tcp: int) -> tuple[float, float]:
    """Return the mean rates of a 4CP Automatic and of a TCP flow, as shares of the link, over phases of short TCP flows.

    ``shares`` are those of time of each phase; ``fourcp`` >= 1 and ``tcp`` count the long flows. In a good phase every TCP flow
    has the mean rate of 4CP and 4CP the rest; in a bad one 4CP has nothing.

    Reference: [4CP] appendix D, there for one flow each; solved by bisection, which needs no case of (17) and (18).
    """
    total = sum(shares)
    low, high = 0.0, 1.0 / fourcp
    for _ in range(200):
        x = (low + high) / 2
        got = sum(p * max(0.0, 1 - (u + tcp) * x) for u, p in enumerate(shares)) / total / fourcp
        if got > x:
            low = x
        else:
            high = x
    x = (low + high) / 2
    rates = [min(x, 1 / (u + tcp)) if u + tcp else 0.0 for u in range(len(shares))]
    return x, sum(p * rate for p, rate in zip(shares, rates, strict=True)) / total


def two_phase_rates(n: float, m: float, k: float, a: float) -> tuple[float, float]:
    """Return the mean rates of a long 4CP and of a long TCP flow as shares of the link ([4CP] theorem 3).

    Of m long flows k, 0 to m, are 4CP Automatic; n short transfers come per batch; a is their load, mean size / (mean idle time *
    capacity). 4CP is not a number for k = 0, TCP for k = m.
    """
    if k == 0:
        return math.nan, (1 - a * n / (1 + a * (n + m))) / m
    if a * k < 1 and n >= k / (1 - a * k):  # phase n is bad
        fourcp = 1 / (m + a * n * k)
        return fourcp, math.nan if k == m else (fourcp + a * n / (m - k + n)) / (1 + a * n)
    spare_share = 1 - a * (n + m)
    common_rate = (spare_share + math.sqrt(spare_share * spare_share + 4 * a * m)) / (2 * m)
    return common_rate, math.nan if k == m else common_rate


def response_time(n: float, m: float, k: float, a: float) -> float:
    """Return the mean time of a short transfer in units of its time alone ([4CP] s.4.3.2): all TCP for k = 0, else k 4CP."""
    if k == 0:
        return n + m
    return n if a <= 1 / k - 1 / n else 1 / two_phase_rates(n, m, k, a)[0]


def best_response_time(n: float, m: float, k: float) -> float:
    """Return the smallest mean response time over all loads: n if k < n, else m ([4CP] proposition 1)."""
    return n if k < n else m


def reference_rate(n_tcp: float, target_mbps: float, link_rate_mbps: float) -> float:
    """Return what each of n TCP flows gets beside 4CP with a fixed target: the target, or its share ([4CP] figure 2)."""
    return min(target_mbps, link_rate_mbps / n_tcp)


# --- [Starvation] -------------------------------------------------------------------------------------------------------


def queue_keeper_delay_s(rate_Bps: float, rtt_s: float, alpha_bytes: float, base_rtts: float = 1.0) -> float:
    """Return the equilibrium RTT of a flow that keeps alpha bytes in the queue: base * Rm + alpha / C.

    ``base_rtts`` is 1 for Vegas, FAST and Copa, 2 for BBR limited by its window ([Starvation] s.4.1, 5.1, 5.2).
    """
    return base_rtts * rtt_s + alpha_bytes / rate_Bps


# --- for figures: arguments are parameters of suites, values are in the units of the metrics -----------------------------


def _delay(base: float, alpha_mss: float) -> Callable[[float, float], float]:
    def curve(link_rate_mbps: float, rtt_ms: float) -> float:
        return queue_keeper_delay_s(link_rate_mbps * MBPS_IN_BPS, rtt_ms / 1e3, alpha_mss * DEFAULT_MSS_BYTES, base)

    return curve


def _gain_rates(n: float) -> float:
    shares = [0.0] * (int(n) + 1)
    shares[0], shares[int(n)] = extremal_idle_share(n), 1 - extremal_idle_share(n)
    fourcp, tcp = phases_equilibrium(shares, 1, 1)
    return fourcp / tcp


def _pyramid(height: float, k: float, t: float) -> tuple[float, float]:
    """Shares of the link in a pyramid: of its 2h steps phase 0 and phase h have one, the others two."""
    h = int(height)
    shares = [0.5 / h] + [1.0 / h] * (h - 1) + [0.5 / h]
    return phases_equilibrium(shares, int(k), int(t))


def _switching(k: float, m: float, n: float, busy: float) -> tuple[float, float]:
    """Shares of the link of a 4CP and a TCP flow: k of m long flows are 4CP, n short ones are there for a share of the time."""
    shares = [1 - busy, *[0.0] * (int(n) - 1), busy]
    if k == 0:
        return math.nan, sum(p / (m + u) for u, p in enumerate(shares))
    return phases_equilibrium(shares, int(k), int(m - k))


def response_time_of_period(period_s: float, n: float, m: float, k: float, alone_s: float) -> float:
    """Return the mean response time, in seconds, where n transfers come every period; NaN where a batch outlasts the period.

    [4CP] s.4.3 has a mean idle time tau; with a period it is what the response leaves, so that a = alone / tau.
    """
    low, high = 0.0, period_s * (1 - 1e-9)
    if alone_s * response_time(n, m, k, alone_s / (period_s - high)) > high:
        return math.nan
    for _ in range(100):
        r = (low + high) / 2
        if alone_s * response_time(n, m, k, alone_s / (period_s - r)) > r:
            low = r
        else:
            high = r
    return (low + high) / 2


def _ramp(link_rate_mbps: float, alpha_mss: float, rtt_ms: float, buffer_bdp: float, start_mbps: float, share: float) -> float:
    """Bound on the time to a share of the link for a sender whose probes risk 2 alpha."""
    bound: Callable[..., float] = load_target("ccenv.proofs.claims.impossibility:convergence_time_s")
    return bound(
        share * link_rate_mbps * MBPS_IN_BPS,
        lambda rate_Bps: 2 * alpha_mss * DEFAULT_MSS_BYTES,
        start_mbps * MBPS_IN_BPS,
        buffer_bdp * rtt_ms / 1e3,
        rtt_ms / 1e3,
    )


def _fluid(metric: str, scale: float) -> Callable[[str, str, float], float]:
    def curve(mix: str, discipline: str, buffer_packets: float) -> float:
        return float(_fluid_cell(mix, discipline, max(1, round(buffer_packets / FLUID_BDP_PACKETS)))[metric]) * scale

    return curve


@cache
def _fluid_cell(mix: str, discipline: str, buffer_bdp: int) -> dict[str, Any]:
    """Run one cell of the sweep ``validation`` in the fluid model."""
    sweep = load_target("ccenv.engine.fluid.sweep:load_sweep")("validation")
    changes = {"mixes": (mix,), "disciplines": (discipline,), "buffers_bdp": (float(buffer_bdp),)}
    cell: dict[str, Any] = sweep.model_copy(update=changes).run(threads=1)[0]
    return cell


THEORY: dict[str, tuple[str, Callable[..., float]]] = {
    "throughput_gain_bound": ("(sqrt n + 1/sqrt n)/2, [4CP] theorem 2", throughput_gain_bound),
    "gain_at_extreme": ("equilibrium at the extremal phases, [4CP] app. D", _gain_rates),
    "false_positives": ("[4CP] theorem 1", false_positives),
    "response_time": ("[4CP] s.4.3.2", response_time),
    "response_time_of_period": ("[4CP] s.4.3.2 with tau = period - response", response_time_of_period),
    "fourcp_of_phases": ("equilibrium over phases, [4CP] app. D", lambda height, k, t: _pyramid(height, k, t)[0]),
    "tcp_of_phases": ("equilibrium over phases, [4CP] app. D", lambda height, k, t: _pyramid(height, k, t)[1]),
    "switched_rate": ("equilibrium over phases, [4CP] app. D", lambda k, m, n, busy: _switching(k, m, n, busy)[0]),
    "unswitched_rate": ("equilibrium over phases, [4CP] app. D", lambda k, m, n, busy: _switching(k, m, n, busy)[1]),
    "best_response_time": ("[4CP] proposition 1", best_response_time),
    "reference_rate": ("reference system, [4CP] figure 2", reference_rate),
    "vegas_delay": ("Rm + alpha/C, [Starvation] s.5.1", _delay(1.0, 4.0)),
    "fast_delay": ("Rm + alpha/C, [Starvation] s.5.1", _delay(1.0, 20.0)),
    "copa_delay": ("Rm + 2 MSS/C, [Starvation] s.5.1", _delay(1.0, 2.0)),
    "bbr_delay": ("2 Rm + alpha/C, [Starvation] s.5.2", _delay(2.0, 3.0)),
    "fluid_jain": ("fluid model, ccenv ode", _fluid("jain", 1.0)),
    "fluid_loss": ("fluid model, ccenv ode", _fluid("loss_pct", 0.01)),
    "fluid_occupancy": ("fluid model, ccenv ode", _fluid("occupancy_pct", 0.01)),
    "fluid_utilisation": ("fluid model, ccenv ode", _fluid("utilisation_pct", 0.01)),
    "loss_allowance_bound": ("F^-1(C) (Rm + beta), [CCmatic] theorem 6.1", _ramp),
}


def evaluate(name: str, arguments: dict[str, Any]) -> float | None:
    """Return a prediction for those named arguments that the function takes; None where the statement does not speak about them.

    Raises UnknownNameError for an unknown function.
    """
    if name not in THEORY:
        raise unknown_name("theory", name, THEORY)
    function = THEORY[name][1]
    needed = inspect.signature(function).parameters
    if any(p.default is p.empty and n not in arguments for n, p in needed.items()):
        return None
    try:
        value = function(**{n: arguments[n] for n in needed if n in arguments})
    except InputError:
        return None
    return value if math.isfinite(value) else None
