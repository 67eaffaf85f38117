"""A learned policy that sets a window, for the kernel: C that tells of ACKs (``window.bpf.c.in``), and the process that decides.

The packet engine's own monitor measures what is told and lets the policy decide at its own times; the kernel takes window and
rate at the next ACK.
"""

from __future__ import annotations

import numpy as np

from ccenv.agents.interface.actions import START_SEGMENTS
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.engine.packet.batch.decisions import Decisions, sets_window
from ccenv.engine.packet.transport import WINDOW_SLACK_BYTES
from ccenv.live.export.bpf import export_template

ACKS = 4096  # that the ring holds
# struct talk of the C and of shared.h.
TALK_DTYPE = np.dtype(
    [
        *((name, "<i8") for name in ("n", "taken", "now_ns", "due_ns")),
        ("rate_Bps", "<u8"),
        *((name, "<u4") for name in ("cwnd", "sent", "in_flight", "delivered", "lost", "mss")),
        ("acks", [("now_us", "<i8"), ("rtt_us", "<i8")], ACKS),
    ]
)
_FASTEST_BPS = float(1 << 62)


def export_window(name: str) -> str:
    """Write the kernel's part as C, for one flow; it is the same for all policies."""
    constants = {"ACKS": ACKS, "START_SEGMENTS": round(START_SEGMENTS)}
    return export_template("window", name, "a process decides", "\n".join(f"#define {k} {v}" for k, v in constants.items()))


class KernelPolicy:
    """A policy that decides for a flow of the kernel.

    Raises InputError for a sender that is no policy with a window of its own, or one that needs what no kernel tells.
    """

    def __init__(self, policy: PolicySender, mss_bytes: float) -> None:
        """Begin a flow; ``mss_bytes`` is the size of its packets with their headers."""
        sees = policy.interface
        if not sets_window(policy) or sees.clock.every == "acks":
            does = f"decides per ACK, by {sees.clock.count:g}" if sets_window(policy) else f"sets {sees.action}"
            raise InputError(f"policy {policy.name!r} {does}; the kernel plays those that set a window, at times")
        self._decisions, self._mss_bytes = Decisions(policy, mss_bytes), mss_bytes

    def answer(self, talk: np.ndarray) -> None:
        """Take the ACKs that are told, (1,) TALK_DTYPE, and if it is time write window, rate and when to ask again."""
        told, decisions, size = talk[0], self._decisions, self._mss_bytes
        flow = decisions.flow
        for number in range(told["taken"], told["n"]):
            now_us, rtt_us = told["acks"][number % ACKS].tolist()
            if rtt_us >= 0:
                decisions.take_ack(now_us * 1e-6, max(rtt_us, 1) * 1e-6)
        for ours, theirs in (("sent", "sent"), ("delivered", "delivered"), ("found_lost", "lost"), ("inflight", "in_flight")):
            flow[f"{ours}_bytes"] = told[theirs] * size
        if decisions.decide(told["now_ns"] * 1e-9):
            # One packet may always be in flight; a segment's share of a packet are its rate's.
            told["cwnd"] = max(1, int((flow["cwnd_bytes"] + WINDOW_SLACK_BYTES) // size))
            told["rate_Bps"] = max(1, int(min(flow["rate_Bps"] * told["mss"] / size, _FASTEST_BPS)))
            told["due_ns"] = np.ceil(decisions.next_s * 1e9)
