"""Export of 4CP (``fourcp_fixed``, ``fourcp_auto``) as one C file (``fourcp.bpf.c.in``); tests have it in integers, too.

[4CP] s.5.2 has it as a module of a kernel that is not public. The rule is that of ``ccenv.agents.classic.fourcp``, rounded:
time-outs and episodes of fast recovery are the kernel's, and one ACK adapts the target by at most 1/64.
"""

from __future__ import annotations

import math

from ccenv.agents.classic.fourcp import MAX_TARGET_LOSS, MIN_TARGET_LOSS, detector_root
from ccenv.agents.sender import ClassicSender
from ccenv.live.export.bpf import ExportError, export_template, load_classic

LEAST_GAIN, MOST_GAIN = 2.0**-44, 2.0**-10  # the least has four bits
MOST_SEGMENTS = 1 << 30
LEAST_TARP_Q48, MOST_TARP_Q48 = round(MIN_TARGET_LOSS * 2**48), round(MAX_TARGET_LOSS * 2**48)


def load_fourcp(spec: str) -> ClassicSender | None:
    """Return the sender of a spec if it is 4CP. Raises UnknownNameError for an unknown name."""
    return load_classic(spec, "fourcp_fixed", "fourcp_auto")


def export_fourcp(sender: ClassicSender, *, name: str | None = None) -> str:
    """Write 4CP as C for a BPF struct_ops congestion control. Raises ExportError for numbers that do not fit.

    Args:
        sender: with its parameters.
        name: in the kernel; by default that of the sender.
    """
    names = [f"#define {key.upper()}" for key in ("pftk", "rate_based") if sender.parameters.get(key)]
    text = "\n".join([*names, *(f"#define {key} {value}LL" for key, value in export_constants(sender).items())])
    return export_template("fourcp", sender.name if name is None else name, repr(sender), text)


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
        "TARP_Q48": min(max(round(p["tarp"] * 2**48), LEAST_TARP_Q48), MOST_TARP_Q48),
        "BOUND_Q28": min(round(p["fixed_wndbnd_mss"] * 2**28), 1 << 58),
        "BOUND_Q12": round(bound * 2**12),
        "FIRST_GAIN_Q48": round(p.get("first_gain", 0.0) * 2**48),
        "LAST_GAIN_Q48": round(p.get("last_gain", 0.0) * 2**48),
        "GAIN_UPDATES": round(p.get("gain_updates", 1.0)),
        "RATE_WINDOWS": 2 if p["rate_based"] else 1,
    }
