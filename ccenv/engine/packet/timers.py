"""The one timer of a sender with RACK-TLP: RTO, reordering timer or tail loss probe (RFC 8985 s.7, 8). Compiled."""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.calls import load, store
from ccenv.engine.packet.layout import OUTSTANDING, SENT_S, STATUS, TX_STRIDE
from ccenv.engine.packet.rack import (NO_PACKET, PROBE, PROBE_TIMER, REORDERING_TIMER, RTO_TIMER, newest_hole, sacked_segments, set_reordering_window)
from ccenv.engine.packet.transport import rto_s
from ccenv.base.kernels.decorator import kernel

PROBE_RTTS = 2.0  # s.7.2


@kernel
def _wait_for_probe(fl, now_s):
    """Set the timer to the next probe, or to the RTO where none may be sent (s.7.2; before the RTT is known: s.7.3)."""
    fl.timer = RTO_TIMER
    fl.rto_deadline_s = fl.rto_expires_s
    if fl.recovering == 1 or sacked_segments(fl) > 0.5 or fl.srtt_s == 0.0:
        return
    wait_s = PROBE_RTTS * fl.srtt_s
    if fl.ack_every > 1 and fl.inflight_bytes < 1.5 * fl.mss_bytes:
        wait_s += fl.ack_timeout_s  # TLP.max_ack_delay: as the receiver's timer
    fl.timer = PROBE_TIMER
    fl.rto_deadline_s = min(now_s + wait_s, fl.rto_expires_s)


@kernel
def arm(fl, now_s, rto_min_s):
    """Set the timer after an ACK, or after the timer (s.8): to the first that is needed of reordering, probe and RTO."""
    if fl.inflight_bytes <= 0.0:
        fl.timer = RTO_TIMER
        fl.rto_deadline_s = fl.rto_expires_s = np.inf
        return
    fl.rto_expires_s = now_s + rto_s(fl, rto_min_s)
    hole_tx = newest_hole(fl)
    if hole_tx >= 0:
        fl.timer = REORDERING_TIMER
        fl.rto_deadline_s = load(fl.tx_at, (hole_tx & fl.mask) * TX_STRIDE + SENT_S) + fl.rack_rtt_s + fl.reordering_s
    else:
        _wait_for_probe(fl, now_s)


@kernel
def take_timer(fl, now_s, rto_min_s):
    """Take the timer where it is not the RTO; return whether losses are to be looked for.

    A probe is sent where no other one is on its way and the RTT was measured since (s.7.3): new data, or the last segment again.
    It may exceed the window, and does not wait for its pacing.
    """
    if fl.timer == REORDERING_TIMER:
        set_reordering_window(fl)
        return True
    fl.timer = RTO_TIMER
    fl.rto_deadline_s = fl.rto_expires_s = now_s + rto_s(fl, rto_min_s)
    probing = fl.probe_tx >= fl.loss_scan and load(fl.tx_at, (fl.probe_tx & fl.mask) * TX_STRIDE + STATUS) == OUTSTANDING
    if not probing and fl.rtt_samples > fl.probe_samples:
        window_full = fl.next_segment - fl.confirmed_below > fl.mask
        if fl.next_segment >= fl.app_segments or window_full:
            store(fl.resend_at, fl.resend_tail & fl.mask, float(fl.next_segment - 1))
            fl.resend_tail += 1
        fl.beyond_window = PROBE
        fl.probe_samples = fl.rtt_samples
        fl.next_send_s = min(fl.next_send_s, now_s)
    return False


@kernel
def arm_after_sending(fl, now_s, rto_min_s):
    """Set the timer after packets were sent; after a probe it is the RTO (s.7.3)."""
    probe = fl.beyond_window == PROBE
    fl.beyond_window = NO_PACKET
    if probe:
        fl.probe_tx = fl.next_tx - 1
    if probe or fl.rto_expires_s == np.inf:
        fl.rto_expires_s = now_s + rto_s(fl, rto_min_s)
    if probe:
        fl.timer = RTO_TIMER
        fl.rto_deadline_s = fl.rto_expires_s
    elif fl.timer != REORDERING_TIMER:
        _wait_for_probe(fl, now_s)
