"""What the record of a flow holds for RACK-TLP (RFC 8985 s.5.3), at its end."""

from __future__ import annotations

RACK_FIELDS = [
    ("rack", "<i8"),  # 0: losses by duplicates, and nothing below is used
    ("resent_at", "<i8"),  # per segment: number + 1 once it was sent again
    ("first_segment", "<i8"),
    ("fack", "<i8"),  # newest segment that has arrived
    ("rack_rtt_s", "<f8"),  # RTT of the newest transmission that has arrived
    ("reordering_seen", "<i8"),
    ("reordering_s", "<f8"),  # the reordering window, in steps of a quarter of the smallest RTT
    ("reordering_steps", "<i8"),
    ("reordering_persists", "<i8"),  # recoveries for which they are kept
    ("dsack_below", "<i8"),  # segment with which the round ends in which something arrived twice
    ("recovering", "<i8"),
    ("recovery_below", "<i8"),  # segment with which the recovery ends
    ("hole_tx", "<i8"),
    ("hole_seen", "<i8"),
    ("timer", "<i8"),  # what rto_deadline_s is for
    ("rto_expires_s", "<f8"),
    ("probe_tx", "<i8"),
    ("probe_samples", "<f8"),  # RTT samples when it was sent
    ("beyond_window", "<i8"),  # what may be sent although the window is full
]
