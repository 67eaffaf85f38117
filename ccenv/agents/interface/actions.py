"""Actions of a policy, and the probing of ``cwnd_exp2_probe``. One table drives the kernels, the spaces, the cards and the docs.

A sender with a constant window cannot tell its own queue from one that others fill. With ``cwnd_exp2_probe`` a flow's window is
slightly larger or smaller than the policy asks for, by a level of -1 or 1 that each decision draws anew. The response of the RTT
is an instrumental-variable estimate whose instrument is the change of the level: 1 if all packets of a full queue are the
flow's own, about its share of them otherwise.

The residual of the RTT's changes is due to other flows. Flows with the same policy probe too: their levels alternate, so that
residuals of neighbouring intervals have opposite signs. A sender that fills a queue steadily leaves residuals of one sign, a
bursty one leaves large ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ccenv.base.errors import unknown_name
from ccenv.base.kernels.decorator import kernel


@dataclass(frozen=True)
class Action:
    """A map from a number a in [-1, 1] to a rate or a window."""

    name: str  # used in configs and cards
    sets: str  # `"rate"` (the window is open) or `"cwnd"` (paced at `pacing_gain` windows per smoothed RTT)
    formula: str  # of the rate or window
    source: str = ""  # paper; empty: common knowledge
    # name -> (default, smallest, largest allowed value), at most two
    parameters: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    needs: str = ""  # what a flow must have: `"beliefs"`, `"shield"`, `"inner"` (an inner CCA), or nothing


_GAIN = {"pacing_gain": (2.0, 1.0, 16.0)}
ACTIONS = (
    Action("rate_log2", "rate", "rate = C_L * 2^(range*a), at least MSS/Rm", "", {"range": (3.0, 0.1, 8.0)}, "beliefs"),
    Action(
        "rate_delta",
        "rate",
        "rate * (1 + alpha*scale*a) for a >= 0, rate / (1 - alpha*scale*a) below; at least MSS per smoothed RTT",
        "[Aurora] s.4.1",
        {"alpha": (0.025, 1e-4, 1.0), "scale": (8.0, 0.1, 100.0)},
    ),
    Action("rate_exp2", "rate", "rate * 2^(step*a), at least MSS per smoothed RTT", "", {"step": (0.3, 0.01, 4.0)}),
    Action("rate_between", "rate", "low + (a + 1)/2 * (high - low) of a shield", "", {}, "shield"),
    Action(
        "cwnd_delta",
        "cwnd",
        "cwnd * (1 + step*a) for a >= 0, cwnd / (1 - step*a) below, at least two segments",
        "[Astraea] s.3.2",
        {"step": (0.025, 1e-4, 1.0), **_GAIN},
    ),
    Action("cwnd_exp2", "cwnd", "cwnd * 2^(step*a), at least two segments", "", {"step": (0.3, 0.01, 4.0), **_GAIN}),
    Action(
        "cwnd_exp2_over",
        "cwnd",
        "2^(range*a) * window of the inner CCA, at least two segments",
        "[Orca] s.4.1",
        {"range": (2.0, 0.1, 8.0), **_GAIN},
        "inner",
    ),
    Action(
        "cwnd_exp2_probe",
        "cwnd",
        "cwnd * 2^(step*a + probe*(change of a random level of -1 or 1)), at least two segments; paced at 2 windows per srtt",
        "",
        {"step": (0.5, 0.01, 4.0), "probe": (0.07, 0.0, 0.5)},
    ),
    Action(
        "rate_exp2_over", "rate", "rate * 2^(step*a), from which the inner CCA continues", "", {"step": (0.3, 0.01, 4.0)}, "inner"
    ),
    Action(
        "cwnd_exp2_even",
        "cwnd",
        "cwnd * 2^(step*a + 0.07*(change of a random level)), at least 1/8 segment, at most half where more than `flooded` of an "
        "interval was lost; four segments in an outage, then back as far as it is known to fit; first doubled per srtt until "
        "standing delay or loss rise; paced at 2 windows per srtt, at least one per smallest RTT of the interval, below two "
        "segments 1 per srtt",
        "",
        {"step": (0.5, 0.01, 4.0), "flooded": (0.25, 0.05, 1.0)},
    ),
    Action(
        "cwnd_exp2_pull",
        "cwnd",
        "cwnd * 2^(0.7*(a + min(0.8, sqrt(pull*MSS*srtt/cwnd))) + 0.07*(change of a random level)), at least 1/2 segment; "
        "no larger where nothing arrived, at most half where things were lost besides or more than `flooded` of an interval was; "
        "first doubled per srtt in which something arrives until standing delay or loss rise; paced as cwnd_exp2_even",
        "",
        {"pull": (35.0, 0.0, 1000.0), "flooded": (0.5, 0.05, 1.0)},
    ),
)
ACTION_NUMBERS = {action.name: number for number, action in enumerate(ACTIONS)}
(
    _RATE_LOG2, _RATE_DELTA, _RATE_EXP2, _RATE_BETWEEN, _CWND_DELTA, _CWND_EXP2, _CWND_EXP2_OVER, _CWND_EXP2_PROBE,
    _RATE_EXP2_OVER, _CWND_EXP2_EVEN, _CWND_EXP2_PULL,
) = range(len(ACTIONS))  # fmt: skip
MIN_CWND_SEGMENTS = 2.0
PROBE_PACING_GAIN = 2.0
EVEN_PROBE = 0.07
"""Change of the window (log2) per change of the random level with ``cwnd_exp2_even``."""
EVEN_SEGMENTS = 0.125
"""Least window of ``cwnd_exp2_even``: below one segment a single packet is in flight, paced."""
OUTAGE_SEGMENTS = 4.0
"""Window of ``cwnd_exp2_even`` in an outage. Where a small buffer is full, a lone one is lost too often: the RTO backs off."""
PULL_STEP, MOST_PULLED, PULL_SEGMENTS = 0.7, 0.8, 0.5
"""Of ``cwnd_exp2_pull``: the step per action (log2), the most that the pull adds to an action, the least window."""
START_DOUBLES = (_CWND_EXP2_EVEN, _CWND_EXP2_PULL)
"""Actions that decide once per smoothed RTT while a flow starts."""
RISEN_RTTS, LOST_SHARE = 0.25, 0.1
"""A start ends where the smallest RTT of an interval is this much above the smallest, in units of it, or so much is lost."""
STEADY, STARTING, STARTED = 0.0, 1.0, 2.0
"""A flow's start: over, under way, or at its last decision."""
START_SEGMENTS = 10.0
"""Segments per known Rm, or in the window, before the first decision of a flow (RFC 6928 s.2)."""
MOST_WINDOWS = 16.0
"""A window grows to so many times what arrived in a smoothed RTT at most so far, or so many first windows; a rate as far. A
flow that begins on a full buffer hears of its losses only after a time-out."""
LEAST_USED = 0.5
"""A window of START_SEGMENTS and more, or such a rate, grows no further where nothing is in flight, or less of it was sent in two
RTTs (in less time: and is in flight), nothing lost, no silence: RFC 7661 s.4.3. An inner CCA has a rule of its own."""


def action(name: str) -> Action:
    """Return an action. Raises UnknownNameError with suggestions."""
    if name not in ACTION_NUMBERS:
        raise unknown_name("action", name, ACTION_NUMBERS)
    return ACTIONS[ACTION_NUMBERS[name]]


@kernel(inline="always")
def _scale(value, change):
    return value * (1.0 + change) if change >= 0.0 else value / (1.0 - change)


@kernel
def set_by_action(number, first, second, a, m):
    """Return the pacing rate in bytes/s and the window in bytes that an action sets; infinite: none.

    Args:
        number: of the action in ACTIONS.
        first: its first parameter, in the order of its table row.
        second: its second parameter.
        a: the action, clipped to [-1, 1]; NaN counts as -1.
        m: a struct of MEASURES; rate_Bps and cwnd_bytes are those in force.
    """
    a = -1.0 if np.isnan(a) else min(1.0, max(-1.0, a))
    least_Bps = m.mss_bytes / m.srtt_s if m.srtt_s > 0.0 else 0.0
    if number == _RATE_LOG2:
        return max(m.C_L_Bps * 2.0 ** (first * a), m.mss_bytes / m.told_rtt_s), np.inf
    if number == _RATE_BETWEEN:
        rate_Bps = m.shield_low_Bps + 0.5 * (a + 1.0) * (m.shield_high_Bps - m.shield_low_Bps)
        return min(m.shield_high_Bps, max(m.shield_low_Bps, rate_Bps)), np.inf
    first_bytes = START_SEGMENTS * m.mss_bytes
    most_bytes = MOST_WINDOWS * max(first_bytes, m.throughput_most_Bps * m.srtt_s)
    asked_bytes = min(m.cwnd_bytes, m.rate_Bps * m.srtt_s)  # per smoothed RTT
    idle = m.inner_cwnd_bytes == 0.0 and (m.inflight_bytes == 0.0 or (m.lost_bytes == 0.0 and m.acked_bytes > 0.0))
    used_bytes = max(m.sent_bytes * m.srtt_s / m.interval_s, m.inflight_bytes if m.interval_s < 2.0 * m.srtt_s else 0.0)
    if idle and asked_bytes >= first_bytes and used_bytes < LEAST_USED * asked_bytes:
        most_bytes = 0.0
    if number in (_RATE_DELTA, _RATE_EXP2, _RATE_EXP2_OVER):
        rate_Bps = _scale(m.rate_Bps, first * second * a) if number == _RATE_DELTA else m.rate_Bps * 2.0 ** (first * a)
        most_Bps = most_bytes / m.srtt_s if m.srtt_s > 0.0 else np.inf
        return max(min(rate_Bps, max(m.rate_Bps, most_Bps)), least_Bps), np.inf
    if number == _CWND_DELTA:
        cwnd_bytes = _scale(m.cwnd_bytes, first * a)
    elif number == _CWND_EXP2:
        cwnd_bytes = m.cwnd_bytes * 2.0 ** (first * a)
    elif number == _CWND_EXP2_OVER:
        cwnd_bytes = m.inner_cwnd_bytes * 2.0 ** (first * a)
    elif number == _CWND_EXP2_EVEN and m.outage_cwnd_bytes > 0.0:
        cwnd_bytes = OUTAGE_SEGMENTS * m.mss_bytes
        if m.acked_bytes > 0.0:
            # RFC 5681 s.3.1: half of it; more where the largest throughput filled more
            cwnd_bytes = min(m.outage_cwnd_bytes, max(0.5 * m.outage_cwnd_bytes, m.throughput_most_Bps * m.min_rtt_s))
    elif number == _CWND_EXP2_EVEN:
        cwnd_bytes = m.cwnd_bytes
        if m.starting == STARTING:
            cwnd_bytes *= 2.0
        else:
            if m.starting == STARTED:  # what the newest interval shows was sent with half of the window
                cwnd_bytes *= 0.5
            cwnd_bytes *= 2.0 ** (first * a + EVEN_PROBE * m.probe_change)
            if m.lost_bytes > second * (m.lost_bytes + m.acked_bytes):
                cwnd_bytes = min(cwnd_bytes, 0.5 * m.cwnd_bytes)
        cwnd_bytes = max(cwnd_bytes, EVEN_SEGMENTS * m.mss_bytes)
    elif number == _CWND_EXP2_PULL:
        cwnd_bytes = m.cwnd_bytes
        if m.starting == STARTING:
            cwnd_bytes *= 2.0 if m.acked_bytes > 0.0 else 1.0
        else:
            if m.starting == STARTED:
                cwnd_bytes *= 0.5
            pulled = a + min(MOST_PULLED, np.sqrt(first * m.mss_bytes * m.srtt_s / m.cwnd_bytes))
            cwnd_bytes *= 2.0 ** (PULL_STEP * pulled + EVEN_PROBE * m.probe_change)
            least = second if m.acked_bytes > 0.0 else 0.0
            if m.lost_bytes > least * (m.lost_bytes + m.acked_bytes):
                cwnd_bytes = min(cwnd_bytes, 0.5 * m.cwnd_bytes)
            elif m.acked_bytes == 0.0:
                cwnd_bytes = min(cwnd_bytes, m.cwnd_bytes)
        cwnd_bytes = max(cwnd_bytes, PULL_SEGMENTS * m.mss_bytes)
    else:
        cwnd_bytes, second = m.cwnd_bytes * 2.0 ** (first * a + second * m.probe_change), PROBE_PACING_GAIN
    cwnd_bytes = min(cwnd_bytes, max(m.cwnd_bytes, most_bytes))
    pacing_rtt_s = m.srtt_s
    if number in START_DOUBLES:
        second = PROBE_PACING_GAIN if cwnd_bytes >= MIN_CWND_SEGMENTS * m.mss_bytes else 1.0
        rtt_s = m.min_rtt_s if m.outage_cwnd_bytes > 0.0 else m.rtt_min_s
        if number == _CWND_EXP2_EVEN and second > 1.0 and rtt_s > 0.0:  # an outage leaves a smoothed RTT as long as itself
            pacing_rtt_s = min(pacing_rtt_s, second * rtt_s)
    else:
        cwnd_bytes = max(cwnd_bytes, MIN_CWND_SEGMENTS * m.mss_bytes)
    return (second * cwnd_bytes / pacing_rtt_s if pacing_rtt_s > 0.0 else np.inf), cwnd_bytes


DECAY = 0.9
"""Decay per interval of the sums over earlier intervals."""
PRIOR = 0.28
"""Prior sum of level changes times changes of the window (log2), without a change of the RTT."""
FLOOR_WEIGHT, PEAK_WEIGHT, LOSS_WEIGHT, REST_WEIGHT = 0.1, 0.05, 0.05, 0.07
"""Weights of the newest interval in the decay of floor and peak and in the averages of loss, roughness and persistence."""
LEAST_SQUARES = 1e-5
"""Added to the sum of squares of two residuals (log2), by which their product is divided."""

PROBE_FIELDS = tuple(
    (name, "<f8")
    for name in (
        "level",  # -1 or 1; 0 before the first decision
        "level_change",  # at the newest decision
        "moved_rtt",  # decaying sum of level change times change of log2 of the smoothed RTT
        "moved_window",  # the same of the window
        "rest",  # of the newest change of log2 of the smoothed RTT
        "roughness",
        "persistence",
        "srtt_before_s",
        "window_before_bytes",
        "floor_log2",
        "peak_log2",
        "loss_smoothed",
        "heard",  # 1 after the first interval with an RTT
        "starting",  # of ``cwnd_exp2_even``
        "silent_s",  # since something arrived, in whole intervals
        "outage_cwnd_bytes",
    )
)
"""Fields that an engine's monitor needs."""

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(63))


@kernel
def drawn_level(now_s, rtt_s):
    """Return a level, -1 or 1: a bit of the time in microseconds and the newest RTT in nanoseconds, mixed (SplitMix64)."""
    x = np.uint64(np.int64(np.floor(now_s * 1e6 + 0.5))) * _MIX[0] + np.uint64(np.int64(np.floor(rtt_s * 1e9 + 0.5)))
    x = (x ^ (x >> _SHIFTS[0])) * _MIX[1]
    x = (x ^ (x >> _SHIFTS[1])) * _MIX[2]
    return 1.0 if (x >> _SHIFTS[2]) == np.uint64(1) else -1.0


@kernel
def follow_probes(monitor, m):
    """Update a flow's memory, and draw the level of the interval that begins.

    Args:
        monitor: a struct with ``decisions``, those before this one, and PROBE_FIELDS.
        m: a struct of MEASURES, filled but for the fields that this sets: ``probe_change``, ``probe_response``,
            ``roughness``, ``persistence``, ``floor_log2``, ``peak_log2``, ``loss_smoothed``, ``outage_cwnd_bytes``, ``starting``.
    """
    if monitor.decisions == 0:
        monitor.level = monitor.level_change = monitor.moved_rtt = monitor.moved_window = 0.0
        monitor.rest = monitor.roughness = monitor.persistence = monitor.srtt_before_s = monitor.window_before_bytes = 0.0
        monitor.floor_log2 = monitor.peak_log2 = monitor.loss_smoothed = monitor.heard = 0.0
        monitor.silent_s = monitor.outage_cwnd_bytes = 0.0
        monitor.starting = STARTING
    elif m.srtt_s > 0.0:
        if monitor.srtt_before_s > 0.0:
            _respond(monitor, m)
        _remember(monitor, m)
    _follow_outage(monitor, m)
    monitor.srtt_before_s, monitor.window_before_bytes = m.srtt_s, m.cwnd_bytes
    if m.outage_cwnd_bytes > 0.0:  # what the outage does to window and RTT is no answer to a probe
        monitor.srtt_before_s = 0.0
    level = drawn_level(m.now_s, m.rtt_last_s)
    monitor.level_change = level - monitor.level
    monitor.level = level
    m.probe_change = monitor.level_change
    m.probe_response, m.roughness, m.persistence = _response(monitor), monitor.roughness, monitor.persistence
    m.floor_log2, m.peak_log2, m.loss_smoothed = monitor.floor_log2, monitor.peak_log2, monitor.loss_smoothed
    if monitor.starting == STARTED:
        monitor.starting = STEADY
    elif monitor.starting == STARTING and monitor.decisions > 0:
        late = m.rtt_samples > 0.0 and m.rtt_min_s > (1.0 + RISEN_RTTS) * m.min_rtt_s
        if late or m.lost_bytes > LOST_SHARE * (m.lost_bytes + m.acked_bytes):
            monitor.starting = STARTED
    m.starting = monitor.starting


@kernel(inline="always")
def _response(monitor):
    return monitor.moved_rtt / (max(monitor.moved_window, 0.0) + PRIOR)


@kernel(inline="always")
def _respond(monitor, m):
    moved = 0.0
    if 0.0 < monitor.window_before_bytes < np.inf and 0.0 < m.cwnd_bytes < np.inf:
        moved = np.log2(m.cwnd_bytes / monitor.window_before_bytes)
    monitor.moved_window = DECAY * monitor.moved_window + monitor.level_change * moved
    change = np.log2(m.srtt_s / monitor.srtt_before_s)
    monitor.moved_rtt = DECAY * monitor.moved_rtt + monitor.level_change * change
    residual, before = change - _response(monitor) * moved, monitor.rest
    monitor.roughness += REST_WEIGHT * (abs(residual - before) - monitor.roughness)
    product = residual * before / (residual * residual + before * before + LEAST_SQUARES)
    monitor.persistence += REST_WEIGHT * (product - monitor.persistence)
    monitor.rest = residual


@kernel(inline="always")
def _remember(monitor, m):
    least = np.log2(m.rtt_min_s / m.min_rtt_s) if m.rtt_min_s > 0.0 and m.min_rtt_s > 0.0 else 0.0
    mean = np.log2(m.rtt_mean_s / m.min_rtt_s) if m.rtt_mean_s > 0.0 and m.min_rtt_s > 0.0 else 0.0
    gone_bytes = m.lost_bytes + m.acked_bytes
    loss = m.lost_bytes / gone_bytes if gone_bytes > 0.0 else 0.0
    if monitor.heard == 0.0:
        monitor.floor_log2, monitor.heard = least, 1.0
    else:
        monitor.floor_log2 = min(least, monitor.floor_log2 + FLOOR_WEIGHT * (mean - monitor.floor_log2))
    monitor.peak_log2 = max(mean, monitor.peak_log2 + PEAK_WEIGHT * (mean - monitor.peak_log2))
    monitor.loss_smoothed += LOSS_WEIGHT * (loss - monitor.loss_smoothed)


@kernel(inline="always")
def _follow_outage(monitor, m):
    """Keep the window in force before nothing arrived for a smoothed RTT, up to the first interval in which something does."""
    silent = monitor.decisions > 0 and m.acked_bytes == 0.0 and m.inflight_bytes > 0.0
    monitor.silent_s = monitor.silent_s + m.interval_s if silent else 0.0
    late = 0.0 < m.srtt_s < monitor.silent_s
    if late and monitor.outage_cwnd_bytes == 0.0 and START_SEGMENTS * m.mss_bytes <= m.cwnd_bytes < np.inf:
        monitor.outage_cwnd_bytes = m.cwnd_bytes
    m.outage_cwnd_bytes = monitor.outage_cwnd_bytes
    if m.acked_bytes > 0.0:
        monitor.outage_cwnd_bytes = 0.0
