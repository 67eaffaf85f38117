"""Export of 4CP (``fourcp_fixed``, ``fourcp_auto``) as one C file (``fourcp.bpf.c.in``), and the same computation in integers.

[4CP] s.5.2 has it as a module of a kernel that is not public. The rule is that of ``ccenv.agents.classic.fourcp``, rounded:
time-outs and episodes of fast recovery are the kernel's, and one ACK adapts the target by at most 1/64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np

from ccenv.agents import make_sender
from ccenv.agents.classic.fourcp import MAX_TARGET_LOSS, MIN_TARGET_LOSS, SQRT_LAW, TIMEOUT_RTTS, detector_root
from ccenv.agents.sender import ClassicSender
from ccenv.base.provenance import VERSION
from ccenv.live.export.bpf import ExportError, expand_kernel, kernel_name
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
LEAST_GAIN, MOST_GAIN = 2.0**-44, 2.0**-10  # the least has four bits
MOST_SEGMENTS = 1 << 30
_NAMES = ("fourcp_fixed", "fourcp_auto")
_U32, _NO_RATE = 2**32, 2**64 - 1
_MOST_ACKED, _MOST_STEP_Q48, _MOST_US = 1 << 15, 1 << 42, (1 << 30) - 1
_LEAST_TARP_Q48, _MOST_TARP_Q48 = round(MIN_TARGET_LOSS * 2**48), round(MAX_TARGET_LOSS * 2**48)


def load_fourcp(spec: str) -> ClassicSender | None:
    """Return the sender of a spec if it is 4CP. Raises UnknownNameError for an unknown name."""
    sender = make_sender(spec)
    return sender if isinstance(sender, ClassicSender) and sender.name in _NAMES and not sender.source_sha256 else None


def export_fourcp(sender: ClassicSender, *, name: str | None = None) -> str:
    """Write 4CP as C for a BPF struct_ops congestion control. Raises ExportError for numbers that do not fit.

    Args:
        sender: with its parameters.
        name: in the kernel; by default that of the sender.
    """
    constants = export_constants(sender)
    name = kernel_name(sender.name if name is None else name)
    head = (
        f"// SPDX-License-Identifier: MIT OR GPL-2.0-only\n/*\n"
        f" * Congestion control {name}: {sender!r}, written by ccenv {VERSION}.\n */\n"
    )
    names = [key.upper() for key in ("pftk", "rate_based") if sender.parameters.get(key)]
    text = "\n".join(["#define FOURCP", *(f"#define {key}" for key in names), f'#define NAME "{name}"'])
    text += "".join(f"\n#define {key} {value}LL" for key, value in constants.items())
    template = resources.files(__package__).joinpath("fourcp.bpf.c.in").read_text(encoding="utf-8")
    return head + expand_kernel(template.replace("@CONSTANTS@", text))


def export_constants(sender: ClassicSender) -> dict[str, int]:
    """Return the numbers of an export. Raises ExportError where 64 bits cannot hold what comes of them."""
    p = sender.parameters
    for key, most in (("maxcwnd_mss", MOST_SEGMENTS), ("first_gain", MOST_GAIN), ("last_gain", MOST_GAIN)):
        if p.get(key, 0.0) > most:
            raise ExportError(f"{sender!r}: {key} is {p[key]:g}; at most {most:g} fits 64 bits")
    for key in ("first_gain", "last_gain"):
        if 0.0 < p.get(key, 0.0) < LEAST_GAIN:
            raise ExportError(f"{sender!r}: {key} is {p[key]:g}; at least {LEAST_GAIN:g}, or 0, is written")
    most = min(p["maxcwnd_mss"], MOST_SEGMENTS)
    bound = -math.log(p["false_positives"]) / (p["mincwnd_mss"] * detector_root(p["loss_ratio"]) * p["loss_ratio"])
    return {
        "FIRST_Q32": round(p["initial_window_mss"] * 2**32),
        "LEAST_Q32": round(p["mincwnd_mss"] * 2**32),
        "MOST_Q32": round(most * 2**32),
        "TARP_Q48": min(max(round(p["tarp"] * 2**48), _LEAST_TARP_Q48), _MOST_TARP_Q48),
        "BOUND_Q28": min(round(p["fixed_wndbnd_mss"] * 2**28), 1 << 58),
        "BOUND_Q12": round(bound * 2**12),
        "FIRST_GAIN_Q48": round(p.get("first_gain", 0.0) * 2**48),
        "LAST_GAIN_Q48": round(p.get("last_gain", 0.0) * 2**48),
        "GAIN_UPDATES": round(p.get("gain_updates", 1.0)),
        "RATE_WINDOWS": 2 if p["rate_based"] else 1,
    }


class FourcpTwin:
    """The integer reference of one flow of the exported C."""

    def __init__(self, sender: ClassicSender) -> None:
        """Take the sender of ``export_fourcp``."""
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
        self.tarp_q48 = min(max(tarp, _LEAST_TARP_Q48), _MOST_TARP_Q48)
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
