"""Is a trace of whole packets legal? The laws of ``ccenv.network.laws`` with the slack of packets, and link rates over windows.

A law that compares the two ends of one step cannot tell link rates apart once it forgives whole packets: a step of a packet trace
carries about one. Over many steps the slack stays what it is, and the bytes that a wrong rate is worth grow.
"""

from __future__ import annotations

import numpy as np

from ccenv.network.laws import DEFAULT_TOLERANCE, Violation, check_trace
from ccenv.network.trace import Trace
from ccenv.simulation.packet_trace import packet_slack_bytes

CARRIED = "carried_over_windows"
WASTED = "wasted_over_windows"
_FORMULAS = {
    CARRIED: "G(k) - G(j) <= sum of C dt from j to k, for all j < k",
    WASTED: "no token is wasted from j to k where more bytes than the slack wait at all rows in between",
}


def check_packet_trace(trace: Trace, tolerance: float = DEFAULT_TOLERANCE) -> list[Violation]:
    """Check a trace of whole packets against every law of its model, and its link rates over all windows.

    Args:
        trace: of ``ccenv.simulation.packet_trace.packet_trace``.
        tolerance: as of ``check_trace``.

    Returns:
        Where each broken law is first broken, earliest first; empty for a legal trace.

    Raises:
        InputError: as ``check_trace``.
    """
    slack_bytes = packet_slack_bytes(trace)
    found = check_trace(trace, tolerance, slack_bytes)
    changes_s = np.array([change.time_s for change in trace.header.path.rate_changes])
    # A packet in service keeps the rate that it began with when a rate step of the path comes.
    kept_bytes = trace.header.path.mss_bytes * np.searchsorted(np.sort(changes_s), trace.times_s, "right")
    wasted = trace.W
    carried_too_much = np.maximum.accumulate(wasted) - wasted
    busy = trace.E.sum(axis=1) - trace.G > slack_bytes
    begins = busy & ~np.concatenate(([False], busy[:-1]))
    since = np.maximum.accumulate(np.where(begins, np.arange(len(busy)), 0))
    wasted_while_busy = np.where(busy, wasted - wasted[since], 0.0)
    for law, amount in ((CARRIED, carried_too_much), (WASTED, wasted_while_busy)):
        broken = amount > slack_bytes + kept_bytes + tolerance * float(np.abs(trace.G).max())
        if broken.any():
            row = int(np.argmax(broken))
            time_s, worst = row * trace.header.dt_s, float(amount[row])
            message = f"{law}: step {row} (t = {time_s:g} s): {_FORMULAS[law]} is broken by {worst:.6g} bytes"
            found.append(Violation(law, None, row, time_s, worst, int(broken.sum()), message))
    return sorted(found, key=lambda violation: violation.step)
