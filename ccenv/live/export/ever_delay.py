"""Export of ``ever_delay`` as one C file (``ever_delay.bpf.c.in``), and the same computation in Python's integers.

Its rule is applied at ACKs. Roundings apart, it is that of ``ccenv.agents.classic.ever_delay``, but at one ACK v moves no further
than in one unit of time, a repair does no more than to double the rate, X is at most 1024, and a rate 3.6 GB/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np

from ccenv.agents import make_sender
from ccenv.agents.classic.ever_delay import (
    CALM_ROUNDS,
    CUT,
    ENTRY_MARGIN,
    REPAIRING,
    RULE,
    SETTLE_GAIN,
    SETTLE_RTTS,
    SETTLING,
    START_GAIN,
    STARTING,
    TOLERATED_LOSS,
)
from ccenv.agents.sender import ClassicSender
from ccenv.base.provenance import VERSION
from ccenv.live.export.bpf import ExportError, expand_kernel, kernel_name
from ccenv.live.export.twin import ACK_DTYPE
from ccenv.network.path import MBPS_IN_BPS

# The rule after an ACK; names end with the bits after the point.
STATE_DTYPE = np.dtype(
    [
        ("v_q48", "<i8"),
        *((name, "<u8") for name in ("x_q24", "rate_q6", "spare", "entry_q24", "pacing_rate_Bps")),
        ("phase", "<u4"),
        ("cwnd", "<u4"),
    ],
    align=True,
)
MOST_V, MOST_US = 22, 1 << 23
_ONE_Q24, _ONE_Q30, _ONE_Q31, _LN2_Q30 = 1 << 24, 1 << 30, 1 << 31, 744261118
_MOST_X_Q24, _MOST_SHORT_Q24, _MOST_AGE_US, _MOST_GROWTH_Q16 = 1023 << 24, 255 << 24, 1 << 38, 255 << 16
_MOST_LOST_BYTES, _MOST_MSS, _NO_QUEUE = 1 << 30, 16383, 2**64 - 1
_SPARE_BYTE = round(64e6 / TOLERATED_LOSS)
_START_SEGMENTS, _UNPACED_SEGMENTS = 4, 10
_U32 = 2**32


def load_ever_delay(spec: str) -> ClassicSender | None:
    """Return the sender of a spec if it is ``ever_delay``. Raises UnknownNameError for an unknown name."""
    sender = make_sender(spec)
    return sender if isinstance(sender, ClassicSender) and sender.name == "ever_delay" and not sender.source_sha256 else None


def export_ever_delay(sender: ClassicSender, *, name: str | None = None, rtt_s: float | None = None) -> str:
    """Write the sender as C for a BPF struct_ops congestion control. Raises ExportError for numbers that do not fit.

    Args:
        sender: with its design and parameters.
        name: in the kernel; by default ``ever_delay``.
        rtt_s: Rm, instead of the sender's ``rm_ms``.
    """
    constants = export_constants(sender, rtt_s=rtt_s)
    name = kernel_name(sender.name if name is None else name)
    rtt = f"{constants['RTT_US']} us" if constants["RTT_US"] else "the smallest RTT measured"
    unit = f"{constants['UNIT_US']} us" if constants["UNIT_US"] else "Rm"
    head = (
        f"// SPDX-License-Identifier: MIT OR GPL-2.0-only\n/*\n"
        f" * Congestion control {name}: {sender!r}, written by ccenv {VERSION}.\n"
        f" * Assumed: Rm is {rtt}, the unit of time {unit}, D {sender.parameters['jitter']:g} units. The theorem\n"
        " * (docs/fairness.md) is about continuous time; here the time between ACKs comes on top of D.\n */\n"
    )
    text = "\n".join(f"#define {key} {value}{'ULL' if key.endswith('US') else 'LL'}" for key, value in constants.items())
    template = resources.files(__package__).joinpath("ever_delay.bpf.c.in").read_text(encoding="utf-8")
    return head + expand_kernel(template.replace("@CONSTANTS@", f'#define EVER_DELAY\n#define NAME "{name}"\n{text}'))


def export_constants(sender: ClassicSender, *, rtt_s: float | None = None) -> dict[str, int]:
    """Return the numbers of an export. Raises ExportError where 64 bits cannot hold what comes of them."""
    parameters = sender.parameters
    rm_s = parameters["rm_s"] if rtt_s is None else rtt_s
    for what, value_s, is_set in (
        ("an Rm", rm_s, rtt_s is not None or rm_s),
        ("a unit", parameters["unit_s"], parameters["unit_s"]),
    ):
        if is_set and not 1e-6 <= value_s <= MOST_US * 1e-6:
            raise ExportError(f"{what} of {value_s:g} s; it must be from 1 us to {MOST_US * 1e-6:.3g} s")
    if not 0 <= parameters["v"] <= max(parameters["v"], parameters["target"]) <= MOST_V:
        share_mbps = math.exp(max(parameters["v"], parameters["target"])) / MBPS_IN_BPS
        least, most = 1 / MBPS_IN_BPS, math.exp(MOST_V) / MBPS_IN_BPS
        raise ExportError(f"{sender!r}: rates up to {share_mbps:.3g} Mbit/s; from {least:.1g} to {most:.3g} Mbit/s fit 64 bits")
    return {
        "RTT_US": round(1e6 * rm_s),
        "UNIT_US": round(1e6 * parameters["unit_s"]),
        "V_Q48": _fixed(parameters["v"], 48),
        "PHASE": int(parameters["phase"]),
        "TARGET_Q24": _fixed(parameters["target"], 24),
        "SLOPE_Q24": _fixed(parameters["slope"], 24),
        "START_Q24": _fixed(parameters["start"], 24),
        "RELIEF_Q24": _fixed(parameters["relief"], 24),
        "JITTER_Q24": _fixed(parameters["jitter"], 24),
        "MARGIN_Q24": _fixed(ENTRY_MARGIN, 24),
        "GAIN_Q36": _fixed(parameters["gain"], 36),
        "SETTLE_GAIN_Q36": _fixed(max(parameters["gain"], SETTLE_GAIN), 36),
        "START_GAIN_Q38": _fixed(START_GAIN, 38),
        "CUT_Q48": _fixed(CUT, 48),
        "SETTLE_UNITS": int(SETTLE_RTTS),
        "CALM_ROUNDS": int(CALM_ROUNDS),
    }


def _fixed(value: float, bits: int) -> int:
    return round(value * (1 << bits))


class EverDelayTwin:
    """The integer reference of one flow of the exported C."""

    def __init__(self, sender: ClassicSender, *, rtt_s: float | None = None) -> None:
        """Take the arguments of ``export_ever_delay``."""
        self.constants = c = export_constants(sender, rtt_s=rtt_s)
        self.rtt_us = c["RTT_US"]
        self.newest_us = self.last_us = self.since_us = self.cut_us = self.entry_q24 = self.spare = 0
        self.x_q24, self.v_q48, self.phase = _ONE_Q24, c["V_Q48"], c["PHASE"]
        self.rate_q6 = rate_q6_of(self.v_q48, self.x_q24)
        self.round_us = self.pacing_rate_Bps = self.cwnd = 0
        self._begun = self._sampled = False
        self._last: Any = None

    def run(self, acks: Iterable[Any]) -> np.ndarray:
        """Return the states (STATE_DTYPE) after each of the records (ACK_DTYPE), the first of which is the start."""
        states = []
        for ack in acks:
            values = {name: int(ack[name]) for name in ACK_DTYPE.names or ()}
            if self._last is None:
                self.rtt_us = min(self.constants["RTT_US"] or max(0, values["rtt_us"]), MOST_US)
                self.round_us = self.rtt_us
            else:
                self._take(values)
            self._last = values
            packets = self.rate_q6 * self.round_us // 64_000_000 // _mss(values)
            fresh = max(packets, 2) if self.round_us else _START_SEGMENTS
            self.cwnd = min(fresh if values["data_segs_out"] < _UNPACED_SEGMENTS else 8 * packets + 64, _U32 - 1)
            self.pacing_rate_Bps = max(self.rate_q6 >> 6, 1)
            states.append(tuple(int(getattr(self, name)) for name in STATE_DTYPE.names or ()))
        return np.array(states, dtype=STATE_DTYPE)

    def _take(self, ack: dict[str, int]) -> None:
        c, now_us, mss = self.constants, ack["now_us"], _mss(ack)
        if ack["rtt_us"] >= 0 and ack["delivered"] != self._last["delivered"]:
            rtt_us = max(ack["rtt_us"], 1)
            if not c["RTT_US"]:
                self.rtt_us = min(rtt_us, self.rtt_us or MOST_US, MOST_US)
            if not self._begun:
                self._begun, self.last_us = True, now_us
            self.newest_us = max(self.newest_us, now_us - rtt_us)
        if self._begun:
            self._advance(now_us, mss)
            if not self.entry_q24:
                queued = self.x_q24 > _ONE_Q24 + c["JITTER_Q24"] + c["MARGIN_Q24"]
                self.entry_q24 = self.x_q24 if queued else _NO_QUEUE
        if lost := (ack["lost"] - self._last["lost"]) % _U32:
            self._lose(now_us, lost * mss)

    def _advance(self, now_us: int, mss: int) -> None:
        c = self.constants
        unit_us = c["UNIT_US"] or self.rtt_us
        age_us = min(max(0, now_us - self.newest_us), _MOST_AGE_US)
        step_us = min(max(0, now_us - self.last_us), unit_us)
        self.last_us = now_us
        self.round_us = min(max(age_us, self.rtt_us), MOST_US)
        self.x_q24 = _ONE_Q24 + min((max(0, age_us - self.rtt_us) << 24) // unit_us, _MOST_X_Q24)
        met_q24 = min(self.x_q24, self.entry_q24) if self.phase == STARTING and self.entry_q24 else self.x_q24
        short_q24 = c["TARGET_Q24"] - (c["SLOPE_Q24"] * (met_q24 - _ONE_Q24) >> 24) - (self.v_q48 >> 24)
        approaching = self.phase in (STARTING, REPAIRING)
        if short_q24 <= 0 if approaching else not -c["RELIEF_Q24"] <= short_q24 <= c["START_Q24"]:
            self.phase, self.since_us = int(SETTLING), now_us
        elif self.phase == SETTLING and now_us > self.since_us + c["SETTLE_UNITS"] * unit_us:
            self.phase = int(RULE)
        most = mss * _SPARE_BYTE + self.rate_q6 * self.round_us
        self.spare = min(self.spare + self.rate_q6 * step_us, most)
        if self.phase == REPAIRING:
            self.v_q48 += min(self._repair_q48(now_us, step_us, mss), short_q24 << 24)
        else:
            change = self._drift_q38(short_q24) * step_us
            self.v_q48 += (abs(change) << 10) // unit_us * (1 if change >= 0 else -1)
        self.v_q48 = min(max(self.v_q48, 0), MOST_V << 48)
        self.rate_q6 = rate_q6_of(self.v_q48, self.x_q24)

    def _drift_q38(self, short_q24: int) -> int:
        c = self.constants
        gain_q36 = c["SETTLE_GAIN_Q36"] if self.phase == SETTLING else c["GAIN_Q36"]
        drift = min(max(short_q24, -_MOST_SHORT_Q24), _MOST_SHORT_Q24) * gain_q36 >> 22
        if self.phase != STARTING:
            return drift
        fast = c["START_GAIN_Q38"]
        if self.entry_q24 in (0, _NO_QUEUE):
            fast = (fast << 24) // max(_ONE_Q24, self.x_q24 - c["JITTER_Q24"])
        return max(drift, fast)

    def _repair_q48(self, now_us: int, step_us: int, mss: int) -> int:
        calm_us = min(max(0, now_us - self.cut_us), _MOST_AGE_US)
        rounds_us = self.constants["CALM_ROUNDS"] * self.round_us
        growth_q16 = 65_536 + min((calm_us << 16) // rounds_us, _MOST_GROWTH_Q16)
        more_q16 = min(growth_q16 * mss * step_us // self.round_us, 1 << 38)
        window_q10 = max(self.round_us * self.rate_q6 // 62_500, 1)
        return log1p_q31((more_q16 << 25) // window_q10 if more_q16 >> 6 < window_q10 else _ONE_Q31) << 17

    def _lose(self, now_us: int, lost_bytes: int) -> None:
        lost = min(lost_bytes, _MOST_LOST_BYTES) * _SPARE_BYTE
        if lost > self.spare and self.newest_us > self.cut_us:
            self.phase, self.cut_us = int(REPAIRING), now_us
            self.v_q48 = max(self.v_q48 - self.constants["CUT_Q48"], 0)
        self.spare = max(0, self.spare - lost)


def rate_q6_of(v_q48: int, x_q24: int) -> int:
    """Return e^v X^-1/2 for v from 0 to MOST_V: a series for what a power of 2 leaves, and a whole root."""
    doublings, rest_q30 = divmod(v_q48 >> 18, _LN2_Q30)
    power_q30 = _ONE_Q30
    for n in range(12, 0, -1):
        power_q30 = _ONE_Q30 + (rest_q30 * power_q30 >> 30) // n
    return max((power_q30 << doublings) // math.isqrt(x_q24 << 24), 1)


def log1p_q31(z_q31: int) -> int:
    """Return ln(1 + z) for z from 0 to 1 by the series of 2 atanh(z / (2 + z))."""
    ratio_q31 = (z_q31 << 31) // (2 * _ONE_Q31 + z_q31)
    square_q31, sum_q31 = ratio_q31 * ratio_q31 >> 31, 0
    for n in range(19, 0, -2):
        sum_q31 = _ONE_Q31 // n + (sum_q31 * square_q31 >> 31)
    return 2 * ratio_q31 * sum_q31 >> 31


def _mss(ack: dict[str, int]) -> int:
    return min(max(ack["mss"], 1), _MOST_MSS)
