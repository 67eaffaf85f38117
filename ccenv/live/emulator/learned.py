"""Learned adversaries: what they see of the flows, computed from the packets of the emulator, and their moves. Compiled.

Beliefs are those that a sender with the flow's history would hold, by the packet engine's own steps. The rate of a flow is what
it sent in the newest Rm: a kernel's sender may have no pacing rate.
"""

from __future__ import annotations

from ccenv.engine.curve.decision import close_interval, play_policy
from ccenv.engine.packet.beliefs import take_step
from ccenv.base.kernels.decorator import kernel
from ccenv.live.emulator.layout import CCAC
from ccenv.live.emulator.link import ON_TIME_S, count_services


@kernel
def watch(m, time_s):
    """Take all steps of the flows' beliefs up to a time."""
    run = m.run[0]
    for i in range(run.n_flows):
        fl, path, beliefs = m.flows[i], m.paths[i], m.beliefs[i]
        while beliefs.start_s + (beliefs.step + 1) * beliefs.dt_s <= time_s + ON_TIME_S:
            path.sent_bytes = fl.transmissions * run.mss_bytes
            path.dropped_bytes = fl.dropped_bytes
            path.random_lost_bytes = fl.random_lost_bytes
            lost_bytes = fl.dropped_bytes + fl.random_lost_bytes
            path.inflight_bytes = max(0.0, path.sent_bytes - lost_bytes - path.acked_count * run.mss_bytes)
            k = take_step(beliefs, path)
            if k >= beliefs.decision_step:
                close_interval(beliefs, k)
                beliefs.rate_Bps = max(run.mss_bytes, beliefs.sent_last_interval_bytes) / beliefs.rtt_s


@kernel
def learned_moves(m, step, time_s):
    """Set the moves of a learned adversary after so many steps; between its decisions they stay."""
    run, ev = m.run[0], m.env[0]
    watch(m, time_s)
    if run.model != CCAC:
        count_services(m, time_s)
        ev.link_rate_now_Bps = run.link_rate_Bps
        ev.enqueued_bytes = run.accepted * run.mss_bytes
        ev.tokens_bytes = run.departed * run.mss_bytes
        released = 0
        for i in range(run.n_flows):
            released += m.flows[i].forward_due
        ev.served_bytes = released * run.mss_bytes
    play_policy(
        ev, m.beliefs, m.moves, 0, run.n_flows, step, m.mlp_weights, m.mlp_shapes, m.mlp_moves, m.observation, m.mlp_scratch
    )


@kernel
def note_ack(m, i, packet):
    """Note an ACK of flow i as the sender hears it now."""
    path = m.paths[i]
    if packet.count > path.acked_count:
        path.acked_count = packet.count
        path.rtt_s = packet.due_s - packet.sent_s
        path.min_rtt_s = min(path.min_rtt_s, path.rtt_s)
