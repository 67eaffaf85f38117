"""Random losses of packets and ACKs: one by one, and in bursts (Gilbert, Elliott). Compiled."""

from __future__ import annotations

from ccenv.base.random import uniform
from ccenv.engine.packet.layout import ACK_LOSS_COUNTER, BURST_COUNTER, LOSS_COUNTER
from ccenv.base.kernels.decorator import kernel

DRAWS_PER_PACKET = 2  # of a chain: loss, then step
DRAWS_PER_ACK = 3  # loss one by one, then those of the chain


@kernel(inline="always")
def loses_packet(fl, tx, seed):
    """Tell whether a packet is lost before the first link."""
    lost = fl.loss_rate > 0.0 and uniform(seed, 0.0, float(fl.index), LOSS_COUNTER + tx) < fl.loss_rate
    if fl.bursts == 1:
        at = BURST_COUNTER + DRAWS_PER_PACKET * tx
        hit = uniform(seed, 0.0, float(fl.index), at) < (fl.burst_loss if fl.burst_bad == 1 else fl.burst_loss_between)
        if uniform(seed, 0.0, float(fl.index), at + 1.0) < (fl.burst_leave if fl.burst_bad == 1 else fl.burst_enter):
            fl.burst_bad = 1 - fl.burst_bad
        lost = lost or hit
    return lost


@kernel
def loses_ack(fl, seed):
    """Tell whether the next ACK is lost as it leaves the receiver."""
    at = ACK_LOSS_COUNTER + DRAWS_PER_ACK * fl.acks_sent
    fl.acks_sent += 1.0
    lost = fl.ack_loss_rate > 0.0 and uniform(seed, 0.0, float(fl.index), at) < fl.ack_loss_rate
    if fl.ack_bursts == 1:
        bad = fl.ack_burst_bad == 1
        hit = uniform(seed, 0.0, float(fl.index), at + 1.0) < (fl.ack_burst_loss if bad else fl.ack_burst_loss_between)
        if uniform(seed, 0.0, float(fl.index), at + 2.0) < (fl.ack_burst_leave if bad else fl.ack_burst_enter):
            fl.ack_burst_bad = 1 - fl.ack_burst_bad
        lost = lost or hit
    if lost:
        fl.acks_lost += 1.0
    return lost
