"""Export of ``ever_delay`` as one C file (``ever_delay.bpf.c.in``); tests have the same computation in Python's integers.

Its rule is applied at ACKs. Roundings apart, it is that of ``ccenv.agents.classic.ever_delay``, but at one ACK v moves no further
than in one unit of time, a repair does no more than to double the rate, X is at most 1024, and a rate 3.6 GB/s.
"""

from __future__ import annotations

import math

from ccenv.agents.classic.ever_delay import CALM_ROUNDS, CUT, ENTRY_MARGIN, SETTLE_GAIN, SETTLE_RTTS, START_GAIN
from ccenv.agents.sender import ClassicSender
from ccenv.live.export.bpf import ExportError, export_template, load_classic
from ccenv.network.path import MBPS_IN_BPS

MOST_V, MOST_US = 22, 1 << 23


def load_ever_delay(spec: str) -> ClassicSender | None:
    """Return the sender of a spec if it is ``ever_delay``. Raises UnknownNameError for an unknown name."""
    return load_classic(spec, "ever_delay")


def export_ever_delay(sender: ClassicSender, *, name: str | None = None, rtt_s: float | None = None) -> str:
    """Write the sender as C for a BPF struct_ops congestion control. Raises ExportError for numbers that do not fit.

    Args:
        sender: with its design and parameters.
        name: in the kernel; by default ``ever_delay``.
        rtt_s: Rm, instead of the sender's ``rm_ms``.
    """
    constants = export_constants(sender, rtt_s=rtt_s)
    rtt = f"{constants['RTT_US']} us" if constants["RTT_US"] else "the smallest RTT measured"
    unit = f"{constants['UNIT_US']} us" if constants["UNIT_US"] else "Rm"
    about = (
        f"{sender!r}\n * Assumed: Rm is {rtt}, the unit of time {unit}, D {sender.parameters['jitter']:g} units. The theorem\n"
        " * (docs/fairness.md) is about continuous time; here the time between ACKs comes on top of D."
    )
    text = "\n".join(f"#define {key} {value}{'ULL' if key.endswith('US') else 'LL'}" for key, value in constants.items())
    return export_template("ever_delay", sender.name if name is None else name, about, text)


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
