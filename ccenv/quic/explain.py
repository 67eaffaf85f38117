"""What a sender's log proves of its network: whether a legal network explains it, the least D for each rate, and beliefs.

A network of the model ccac is a curve of tokens G = C t - W, where the waste W never falls and rises only while nothing waits.
Known are E (sent and not lost) and S (delivered). All laws bound W(k) from below or above, so what W can be after k steps is an
interval, which is propagated exactly: the decision for a rate C and a D is exact on the grid, up to whole packets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.synthesized import shipped_program
from ccenv.base.errors import InputError
from ccenv.base.figure import finish, panels, require_picture, save
from ccenv.live.export.twin import UNBOUNDED, Twin
from ccenv.network.path import MBPS_IN_BPS
from ccenv.quic.qlog import SenderLog, read_qlog

STEPS_PER_RTT = 40  # of the grid of an explanation
MOST_D_RTTS = 4.0  # a D beyond it explains nothing
RATES = np.geomspace(0.5, 2.0, 25)  # of the frontier, in the rate that was delivered in the busiest part of the log
BUSY_RTTS = 10
LEAST_RTT_S, MOST_STEPS = 1e-5, 1 << 17  # a longer log is explained up to there
MOST_ACKS = 20_000  # that the beliefs are computed from
PROGRAM = "cc_qdel"  # beliefs do not depend on it


@dataclass(frozen=True)
class Curves:
    """What a log says, on a grid."""

    dt_s: float  # length of a step
    E: np.ndarray  # (n,) bytes sent by each time and not lost
    S: np.ndarray  # (n,) bytes delivered by then, as the ACKs prove; behind its end unknown
    packet_bytes: float  # the largest packet: by so much whole packets may deviate


def curves_of(log: SenderLog, rtt_s: float) -> Curves:
    """Return the curves of a log: an ACK proves that its packets were delivered Rm before it.

    The log is cut where the fate of a packet is not told.
    """
    fate = {number for _, numbers in log.acks for number in numbers} | set(log.lost)
    asking = {number: (time_s, size) for number, (time_s, size, asks) in log.sent.items() if asks}
    open_s = [time_s for number, (time_s, _) in asking.items() if number not in fate]
    end_s = min(min(open_s, default=math.inf), log.acks[-1][0] - rtt_s)
    dt_s = rtt_s / STEPS_PER_RTT
    n = min(int(end_s / dt_s), MOST_STEPS)
    if n < 2 * STEPS_PER_RTT:
        raise InputError(f"the log tells {max(0.0, end_s):.3g} s of packets with a known fate; at least 2 Rm are needed")
    times_s = np.arange(n + 1) * dt_s

    def count(events: list[tuple[float, float]]) -> np.ndarray:
        events = sorted(events)
        total = np.concatenate(([0.0], np.cumsum([size for _, size in events])))
        return np.asarray(total[np.searchsorted([time_s for time_s, _ in events], times_s + 1e-9, "right")])

    entered = [one for number, one in asking.items() if number not in log.lost]
    delivered = [(time_s - rtt_s, asking[number][1]) for time_s, numbers in log.acks for number in numbers]
    return Curves(dt_s, count(entered), count(delivered), max(size for _, size in asking.values()))


def explains(curves: Curves, rate_Bps: float, jitter_steps: int, buffer_bytes: float = math.inf) -> bool:
    """Tell whether a legal network of this rate, D and buffer explains the curves."""
    n, slack = len(curves.E), curves.packet_bytes
    earned = np.arange(n) * (curves.dt_s * rate_Bps)
    later = np.concatenate((curves.S[jitter_steps:], np.full(min(jitter_steps, n), math.inf)))[:n]  # G(k) <= S(k + D)
    least = (earned - later - slack).tolist()
    most = (earned - np.maximum(curves.S, curves.E - buffer_bytes) + slack).tolist()
    idle = (earned - curves.E + slack).tolist()
    per_step = curves.dt_s * rate_Bps
    low = high = 0.0
    for k in range(1, n):
        if idle[k] >= low:
            high = max(high, min(idle[k], high + per_step))
        low = max(low, least[k])
        high = min(high, most[k])
        if low > high + 1e-6:
            return False
    return True


def least_jitter_s(curves: Curves, rate_Bps: float, buffer_bytes: float = math.inf) -> float | None:
    """Return the least D, a multiple of the grid, with which a network of this rate explains the curves; None up to 4 Rm."""
    low, high = 0, round(MOST_D_RTTS * STEPS_PER_RTT)
    if not explains(curves, rate_Bps, high, buffer_bytes):
        return None
    while low < high:
        middle = (low + high) // 2
        if explains(curves, rate_Bps, middle, buffer_bytes):
            high = middle
        else:
            low = middle + 1
    return low * curves.dt_s


def explain(
    file: FilePath, *, rtt_s: float, rate_mbps: float | None = None, jitter_s: float | None = None, out: FilePath | None = None
) -> dict[str, Any]:
    """Explain a sender's log.

    Raises InputError for a log that cannot be read or is too short.

    Args:
        file: qlog.
        rtt_s: Rm.
        rate_mbps: C; None: of the frontier the rate with the least D, the lowest of equals.
        jitter_s: D of the network, ACK delays included; None: the least one.
        out: figure of beliefs and frontier.

    Returns:
        dict: the JSON object of ``ccenv quic explain``; ``legal``: a legal network of that rate and D explains the log.
    """
    if out is not None:
        require_picture(out)
    if not rtt_s >= LEAST_RTT_S:
        raise InputError(f"quic: Rm is {rtt_s:g} s; at least {LEAST_RTT_S:g} s is explained")
    log = read_qlog(file)
    curves = curves_of(log, rtt_s)
    busy = min(len(curves.S) - 1, BUSY_RTTS * STEPS_PER_RTT)
    typical_Bps = float((curves.S[busy:] - curves.S[:-busy]).max()) / (busy * curves.dt_s)
    frontier = [(float(rate), least_jitter_s(curves, rate)) for rate in typical_Bps * RATES]
    explained = [(d_s, rate) for rate, d_s in frontier if d_s is not None]
    rate_Bps = min(explained)[1] if explained else typical_Bps
    if rate_mbps is not None:
        rate_Bps = rate_mbps * MBPS_IN_BPS
    least_s = least_jitter_s(curves, rate_Bps)
    held_s = jitter_s if jitter_s is not None else least_s
    legal = least_s is not None and (jitter_s is None or least_s <= jitter_s + 1e-9)
    times_s, lower, upper = _beliefs(log, rtt_s, 0.0 if held_s is None else held_s)
    if out is not None:
        _draw(out, (times_s, lower, upper), frontier, rate_Bps)
    return {
        "file": str(file),
        "events": log.events,
        "unknown_events": log.unknown,
        "packets": len(log.sent),
        "acks": len(log.acks),
        "lost": len(log.lost),
        "rtt_ms": 1e3 * rtt_s,
        "grid_ms": 1e3 * curves.dt_s,
        "seconds": len(curves.E) * curves.dt_s,
        "rate_mbps": rate_Bps / MBPS_IN_BPS,
        "least_D_ms_at_rate": None if least_s is None else 1e3 * least_s,
        "legal": legal,
        "C_L": float(lower[-1]) if len(lower) else None,
        "C_U": float(upper[-1]) if len(upper) and math.isfinite(upper[-1]) else None,
        "frontier": [{"rate_mbps": rate / MBPS_IN_BPS, "least_D_ms": None if d is None else 1e3 * d} for rate, d in frontier],
    }


def _beliefs(log: SenderLog, rtt_s: float, jitter_s: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times in s, C_L and C_U in Mbit/s after each ACK, for an assumed D."""
    acks = log.ack_records()[:MOST_ACKS]
    twin = Twin(shipped_program(PROGRAM), rtt_s=rtt_s, jitter_s=min(jitter_s, 16 * rtt_s))
    states = twin.run(acks)
    unit = (1 << twin.constants.fraction_bits) * (rtt_s / 8) * MBPS_IN_BPS / float(acks["mss"][0])
    upper = np.where(states["C_U"] == UNBOUNDED, np.inf, states["C_U"] / unit)
    return acks["now_us"] * 1e-6, states["C_L"] / unit, upper


def _draw(
    file: FilePath, bounds: tuple[np.ndarray, np.ndarray, np.ndarray], frontier: list[tuple[float, float | None]], rate_Bps: float
) -> None:
    figure, (beliefs, curve) = panels(2, 1, (7, 5))
    times_s, lower, upper = bounds
    beliefs.step(times_s, lower, where="post", label="C_L")
    beliefs.step(times_s, np.where(np.isfinite(upper), upper, np.nan), where="post", label="C_U")
    beliefs.axhline(rate_Bps / MBPS_IN_BPS, color="0.5", linestyle=":", label="C")
    beliefs.set_ylim(0, 3 * rate_Bps / MBPS_IN_BPS)
    known = [(rate / MBPS_IN_BPS, 1e3 * d_s) for rate, d_s in frontier if d_s is not None]
    curve.plot([rate for rate, _ in known], [d_ms for _, d_ms in known], marker="o", label="least D of a legal network")
    finish(beliefs, "time (s)", "Mbit/s", loc="best")
    finish(curve, "link rate C (Mbit/s)", "D (ms)", zero=True, loc="best")
    save(figure, file)
