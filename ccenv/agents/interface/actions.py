"""Actions: what a policy may set. One table drives the kernels, the spaces, the cards and the docs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ccenv.base.errors import unknown_name
from ccenv.base.kernels.decorator import kernel


@dataclass(frozen=True)
class Action:
    """A map from a number a in [-1, 1] to a rate or a window.

    Attributes:
        name: as configs and cards write it.
        sets: ``"rate"`` (the window is open) or ``"cwnd"`` (paced at ``pacing_gain`` windows per smoothed RTT).
        formula: what it sets.
        source: paper that it comes from; empty: common knowledge.
        parameters: names, default values and smallest and largest allowed values, at most two.
        needs: what a flow must have: ``"beliefs"``, ``"contract"``, ``"inner"`` (a CCA inside), or nothing.
    """

    name: str
    sets: str
    formula: str
    source: str = ""
    parameters: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    needs: str = ""


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
    Action("rate_between", "rate", "low + (a + 1)/2 * (high - low) of a contract", "", {}, "contract"),
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
)
ACTION_NUMBERS = {action.name: number for number, action in enumerate(ACTIONS)}
_RATE_LOG2, _RATE_DELTA, _RATE_EXP2, _RATE_BETWEEN, _CWND_DELTA, _CWND_EXP2, _CWND_EXP2_OVER, _CWND_EXP2_PROBE = range(
    len(ACTIONS)
)
MIN_CWND_SEGMENTS = 2.0
PROBE_PACING_GAIN = 2.0
START_SEGMENTS = 10.0
"""Segments per told Rm, or in the window, that a flow starts with before its first decision (RFC 6928 s.2)."""


def action(name: str) -> Action:
    """Return an action. Raises UnknownNameError with suggestions."""
    if name not in ACTION_NUMBERS:
        raise unknown_name("action", name, ACTION_NUMBERS)
    return ACTIONS[ACTION_NUMBERS[name]]


@kernel(inline="always")
def _scaled(value, change):
    return value * (1.0 + change) if change >= 0.0 else value / (1.0 - change)


@kernel
def set_by_action(number, first, second, a, m):
    """Return the pacing rate in bytes/s and the window in bytes that an action sets; infinite: none.

    Args:
        number: of the action in ACTIONS.
        first: its first parameter, in the order of its table row.
        second: its second one.
        a: the action, clipped to [-1, 1]; a number that is none counts as -1.
        m: a record of MEASURES; rate_Bps and cwnd_bytes are those that hold now.
    """
    a = -1.0 if np.isnan(a) else min(1.0, max(-1.0, a))
    least_Bps = m.mss_bytes / m.srtt_s if m.srtt_s > 0.0 else 0.0
    if number == _RATE_LOG2:
        return max(m.C_L_Bps * 2.0 ** (first * a), m.mss_bytes / m.told_rtt_s), np.inf
    if number == _RATE_DELTA:
        return max(_scaled(m.rate_Bps, first * second * a), least_Bps), np.inf
    if number == _RATE_EXP2:
        return max(m.rate_Bps * 2.0 ** (first * a), least_Bps), np.inf
    if number == _RATE_BETWEEN:
        rate_Bps = m.contract_low_Bps + 0.5 * (a + 1.0) * (m.contract_high_Bps - m.contract_low_Bps)
        return min(m.contract_high_Bps, max(m.contract_low_Bps, rate_Bps)), np.inf
    if number == _CWND_DELTA:
        cwnd_bytes = _scaled(m.cwnd_bytes, first * a)
    elif number == _CWND_EXP2:
        cwnd_bytes = m.cwnd_bytes * 2.0 ** (first * a)
    elif number == _CWND_EXP2_OVER:
        cwnd_bytes = m.inner_cwnd_bytes * 2.0 ** (first * a)
    else:
        cwnd_bytes, second = m.cwnd_bytes * 2.0 ** (first * a + second * m.probe_change), PROBE_PACING_GAIN
    cwnd_bytes = max(cwnd_bytes, MIN_CWND_SEGMENTS * m.mss_bytes)
    return (second * cwnd_bytes / m.srtt_s if m.srtt_s > 0.0 else np.inf), cwnd_bytes
