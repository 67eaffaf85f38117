"""The computation of the exported C of 4CP in Python's integers: the reference that the C is compared with."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ccenv.agents.classic.fourcp import SQRT_LAW, TIMEOUT_RTTS
from ccenv.agents.sender import ClassicSender
from ccenv.live.export.fourcp import LEAST_TARP_Q48, MOST_TARP_Q48, export_constants
from ccenv.live.export.twin import ACK_DTYPE

# Windows and target after an ACK; names end with the bits after the point.
STATE_DTYPE = np.dtype(
    [
        ("wnd_q32", "<i8"),
        *((name, "<u8") for name in ("window_q32", "ssthresh_q32", "tarp_q48", "updates", "srtt_q8", "pacing_rate_Bps")),
        ("slow_start", "<u4"),
        ("cwnd", "<u4"),
    ],
    align=True,
)
_U32, _NO_RATE = 2**32, 2**64 - 1
_MOST_ACKED, _MOST_STEP_Q48, _MOST_US = 1 << 15, 1 << 42, (1 << 30) - 1


class FourcpTwin:
    """The integer reference of one flow of the exported C."""

    def __init__(self, sender: ClassicSender) -> None:
        self.constants = c = export_constants(sender)
        self.is_rate_based, self.has_timeouts = (bool(sender.parameters.get(key)) for key in ("rate_based", "pftk"))
        self.wnd_q32 = self.window_q32 = c["FIRST_Q32"]
        self.ssthresh_q32, self.tarp_q48 = c["MOST_Q32"], c["TARP_Q48"]
        self.updates = self.srtt_q8 = self.pacing_rate_Bps = self.cwnd = 0
        self.slow_start = 1
        self._last: dict[str, int] | None = None

    def run(self, acks: Iterable[Any]) -> np.ndarray:
        """Return the states (STATE_DTYPE) after each of the records (ACK_DTYPE), the first of which is the start."""
        states = []
        for ack in acks:
            values = {name: int(ack[name]) for name in ACK_DTYPE.names or ()}
            if self._last is not None:
                self._take(values, self._last)
            self._last = values
            self._set_window(min(max(values["mss"], 1), 16383))
            states.append(tuple(int(getattr(self, name)) for name in STATE_DTYPE.names or ()))
        return np.array(states, dtype=STATE_DTYPE)

    def _take(self, ack: dict[str, int], last: dict[str, int]) -> None:
        acked, lost = ((ack[name] - last[name]) % _U32 for name in ("delivered", "lost"))
        (timeouts, episodes, recovers), (old_timeouts, old_episodes, _) = (_split(one["answer"]) for one in (ack, last))
        if episodes != old_episodes:
            self._lose(lost, ack)
        if timeouts != old_timeouts:
            self.ssthresh_q32, self.window_q32, self.slow_start = self._in_force_q32(), 1 << 32, 1
        acked = min(acked, _MOST_ACKED)
        if acked and ack["rtt_us"] >= 0:
            sample_q8 = min(max(ack["rtt_us"], 1), _MOST_US) << 8
            share_q16 = min((acked << 32) // (self.constants["RATE_WINDOWS"] * self.window_q32 >> 16), 1 << 16)
            self.srtt_q8 = self.srtt_q8 + ((sample_q8 - self.srtt_q8) * share_q16 >> 19) if self.srtt_q8 else sample_q8
        if acked and not ack["app_limited"] and not recovers:
            self._grow(acked)

    def _in_force_q32(self) -> int:
        return min(max(self.wnd_q32, self.constants["LEAST_Q32"]), self.constants["MOST_Q32"])

    def _grow(self, acked: int) -> None:
        if self.slow_start:
            self.window_q32 = min(self.window_q32 + (acked << 32), self.ssthresh_q32)
            if self.window_q32 >= self.ssthresh_q32:
                self.slow_start, self.window_q32 = 0, self._in_force_q32()
            return
        self.wnd_q32 = min(self.wnd_q32 + min((acked << 48) // (self.window_q32 >> 16), 1 << 32), self.constants["MOST_Q32"])
        self.window_q32 = self._in_force_q32()
        if self.constants["FIRST_GAIN_Q48"] or self.constants["LAST_GAIN_Q48"]:
            self._adapt(acked)

    def _adapt(self, acked: int) -> None:
        c = self.constants
        left_q16 = (max(0, c["GAIN_UPDATES"] - self.updates) << 16) // c["GAIN_UPDATES"]
        gain_q48 = c["LAST_GAIN_Q48"] + ((c["FIRST_GAIN_Q48"] - c["LAST_GAIN_Q48"]) * left_q16 >> 16)
        excess_q16 = (friendly_q16(self.tarp_q48, self.has_timeouts) << 16) // (self.window_q32 >> 16) - (1 << 16)
        tarp = self.tarp_q48 + ((min(gain_q48 * acked, _MOST_STEP_Q48) >> 8) * excess_q16 >> 8)
        tarp = min(max(tarp, self.tarp_q48 // 2), 2 * self.tarp_q48)
        self.tarp_q48 = min(max(tarp, LEAST_TARP_Q48), MOST_TARP_Q48)
        self.updates = min(self.updates + acked, c["GAIN_UPDATES"])

    def _lose(self, lost: int, ack: dict[str, int]) -> None:
        c, inverse_q16 = self.constants, (2**64 - 1) // self.tarp_q48
        if self.slow_start and self.ssthresh_q32 == c["MOST_Q32"]:
            self.wnd_q32 = min(ack["in_flight"] + lost, 1 << 31) << 31
        else:
            bound_q28 = c["BOUND_Q28"] or min(c["BOUND_Q12"] * inverse_q16, 1 << 58)
            drop_q32 = (inverse_q16 << 23) // (self.window_q32 >> 16) << 9
            self.wnd_q32 = min(max(self.wnd_q32 - drop_q32, -(bound_q28 << 4)), c["MOST_Q32"])
        self.slow_start, self.window_q32 = 0, self._in_force_q32()

    def _set_window(self, mss: int) -> None:
        cwnd, self.pacing_rate_Bps = self.window_q32 >> 32, _NO_RATE
        if self.is_rate_based and self.srtt_q8:
            pace_q26 = (min(self.window_q32 >> 16, 1 << 36) * mss << 10) // max(self.srtt_q8 >> 8, 1)
            self.pacing_rate_Bps = max(min(pace_q26, 1 << 43) * 1_000_000 >> 26, 1)
            cwnd = self.window_q32 >> 31
        self.cwnd = min(max(cwnd, 1), _U32 - 1)


def _split(answer: int) -> tuple[int, int, bool]:
    """Return what ``answer`` of ACK_DTYPE says of 4CP: time-outs, loss episodes, whether fast recovery lasts (host.h)."""
    return answer % _U32, (answer >> 32) % (1 << 31), bool(answer >> 63)


def friendly_q16(tarp_q48: int, has_timeouts: bool) -> int:
    """Return the window of TCP at a loss event rate ([4CP] s.2.1.1)."""
    root_q16 = math.isqrt(round(2 * SQRT_LAW) * ((2**64 - 1) // tarp_q48) << 15)
    if not has_timeouts:
        return root_q16
    p_q32 = tarp_q48 >> 16
    cube_q32 = (p_q32 * p_q32 >> 32) * p_q32 >> 32
    return (root_q16 << 32) // ((1 << 32) + round(1.5 * TIMEOUT_RTTS * SQRT_LAW) * (p_q32 + 32 * cube_q32))
