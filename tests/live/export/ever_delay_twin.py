"""The computation of the exported C of ``ever_delay`` in Python's integers: the reference that the C is compared with."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ccenv.agents.classic.ever_delay import REPAIRING, RULE, SETTLING, STARTING, TOLERATED_LOSS
from ccenv.agents.sender import ClassicSender
from ccenv.live.export.ever_delay import MOST_US, MOST_V, export_constants
from ccenv.live.export.twin import ACK_DTYPE

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
_ONE_Q24, _ONE_Q30, _ONE_Q31, _LN2_Q30 = 1 << 24, 1 << 30, 1 << 31, 744261118
_MOST_X_Q24, _MOST_SHORT_Q24, _MOST_AGE_US, _MOST_GROWTH_Q16 = 1023 << 24, 255 << 24, 1 << 38, 255 << 16
_MOST_LOST_BYTES, _MOST_MSS, _NO_QUEUE = 1 << 30, 16383, 2**64 - 1
_SPARE_BYTE = round(64e6 / TOLERATED_LOSS)
_START_SEGMENTS, _UNPACED_SEGMENTS = 4, 10
_U32 = 2**32


class EverDelayTwin:
    """The integer reference of one flow of the exported C."""

    def __init__(self, sender: ClassicSender, *, rtt_s: float | None = None) -> None:
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
