"""A slow, plain packet-level link with one flow: the setting in which the classic CCAs can be checked by hand.

Drop-tail FIFO of rate C, propagation RTT Rm, optional extra delay per packet. Three later ACKs mark a packet lost; a
retransmission time-out of one second marks everything in flight lost. Lost data is not sent again (bulk transfer: new data
takes its place).
"""

import heapq
from dataclasses import dataclass, field

import numpy as np
from signals_play import compiled, fresh_state

from ccenv.agents.callbacks import ACK, LOSS, TICK

RTO_S = 1.0
TICK_S = 0.01


@dataclass
class Packet:
    seq: int
    sent_s: float
    delivered_bytes: float
    delivered_s: float
    first_sent_s: float
    inflight_bytes: float  # with it
    lost_bytes: float  # found lost before it was sent


@dataclass
class Run:
    rows: list = field(default_factory=list)  # (now_s, cwnd_bytes, rtt_s, inflight_bytes, delivered_bytes, pacing_rate_Bps)
    losses: list = field(default_factory=list)  # (now_s, lost_bytes, cwnd before, cwnd after, new_episode)
    states: list = field(default_factory=list)  # of the fields asked for, one row per ACK

    def column(self, name):
        names = ("now_s", "cwnd_bytes", "rtt_s", "inflight_bytes", "delivered_bytes", "pacing_rate_Bps")
        return np.array([row[names.index(name)] for row in self.rows])

    def rate_Bps(self, start_s, stop_s):
        now_s, delivered = self.column("now_s"), self.column("delivered_bytes")
        i, j = np.searchsorted(now_s, [start_s, stop_s]) - 1
        return (delivered[j] - delivered[i]) / (stop_s - start_s)


def run_link(sender, seconds, *, rate_Bps, rtt_s, buffer_packets=np.inf, mss=1500.0, extra_delay=None, watch=(), seed=7):
    """Run one flow. extra_delay(seq, now_s) is added to the ACK's delay, kept in order. Return a Run."""
    init, on_ack, on_loss, on_tick = compiled(sender)
    state = fresh_state(sender, False, mss_bytes=mss, seed=seed)
    init(state)
    ack, loss, tick = (np.zeros(1, d)[0] for d in (ACK, LOSS, TICK))  # as records they are written slowly
    ack["mss_bytes"] = loss["mss_bytes"] = tick["mss_bytes"] = mss

    out, now_s, seq, free_s, last_ack_at_s = Run(), 0.0, 0, 0.0, 0.0
    next_send_s = 0.0
    outstanding, inflight, delivered, delivered_s, first_sent_s = {}, 0.0, 0.0, 0.0, 0.0
    found_lost, newest_lost = 0.0, -2
    min_rtt_s, next_round_bytes, last_progress_s = np.inf, 0.0, 0.0
    episode_end_seq = -1
    events = [(TICK_S, -1)]  # (time, seq of the ACK, or -1: tick, -2: pacing)
    wake_s = np.inf

    def take_losses(found, timeout):
        for lost in [[p] for p in found] if sender.per_packet else [found]:
            hear_losses(lost, timeout)

    def hear_losses(lost, timeout):
        nonlocal inflight, episode_end_seq, found_lost, newest_lost
        found_lost += len(lost) * mss
        if sender.per_packet:
            loss["tx_inflight_bytes"], loss["lost_since_bytes"] = lost[0].inflight_bytes, found_lost - lost[0].lost_bytes
            loss["contiguous"] = float(lost[0].seq - 1 == newest_lost)
            newest_lost = lost[0].seq
        for p in lost:
            del outstanding[p.seq]
        inflight -= len(lost) * mss
        before = state["cwnd_bytes"]
        loss["now_s"], loss["lost_bytes"], loss["inflight_bytes"] = now_s, len(lost) * mss, inflight
        loss["delivered_bytes"], loss["timeout"] = delivered, float(timeout)
        loss["new_episode"] = float(max(p.seq for p in lost) > episode_end_seq)
        if loss["new_episode"]:
            episode_end_seq = seq - 1
        on_loss(state, loss)
        out.losses.append((now_s, loss["lost_bytes"], before, state["cwnd_bytes"], loss["new_episode"]))

    while now_s < seconds:
        # Send what window and pacing allow.
        while inflight + mss <= state["cwnd_bytes"] + 1e-6 and next_send_s <= now_s + 1e-12:
            if inflight == 0.0:
                delivered_s = first_sent_s = now_s
            inflight += mss
            outstanding[seq] = Packet(seq, now_s, delivered, delivered_s, first_sent_s, inflight, found_lost)
            queued_bytes = max(0.0, free_s - now_s) * rate_Bps
            if queued_bytes + mss <= buffer_packets * mss + mss * (1 + 1e-9):
                free_s = max(free_s, now_s) + mss / rate_Bps
                extra = extra_delay(seq, now_s) if extra_delay else 0.0
                last_ack_at_s = max(last_ack_at_s, free_s + rtt_s + extra)
                heapq.heappush(events, (last_ack_at_s, seq))
            seq += 1
            gap_s = 0.0 if np.isinf(state["pacing_rate_Bps"]) else mss / state["pacing_rate_Bps"]
            next_send_s = max(next_send_s, now_s) + gap_s
        if inflight + mss <= state["cwnd_bytes"] + 1e-6 and next_send_s < wake_s:
            wake_s = next_send_s
            heapq.heappush(events, (wake_s, -2))
        now_s, kind = heapq.heappop(events)
        if kind == -2:
            wake_s = np.inf
            continue
        if kind == -1:
            heapq.heappush(events, (now_s + TICK_S, -1))
            if inflight > 0 and now_s - last_progress_s > max(RTO_S, 2 * min(min_rtt_s, 10.0)):
                take_losses(list(outstanding.values()), timeout=True)
                last_progress_s = now_s
            tick["now_s"], tick["dt_s"], tick["inflight_bytes"] = now_s, TICK_S, inflight
            tick["delivered_bytes"], tick["min_rtt_s"] = delivered, min_rtt_s
            on_tick(state, tick)
            continue
        packet = outstanding.pop(kind, None)
        if packet is None:  # marked lost too early
            continue
        inflight -= mss
        delivered += mss
        rtt = now_s - packet.sent_s
        min_rtt_s, last_progress_s = min(min_rtt_s, rtt), now_s
        interval_s = max(now_s - packet.delivered_s, packet.sent_s - packet.first_sent_s)
        first_sent_s, delivered_s = packet.sent_s, now_s
        ack["now_s"], ack["acked_bytes"], ack["delivered_bytes"] = now_s, mss, delivered
        ack["rtt_s"], ack["min_rtt_s"] = rtt, min_rtt_s
        ack["delivery_rate_Bps"] = (delivered - packet.delivered_bytes) / interval_s
        ack["inflight_bytes"] = inflight
        ack["prior_delivered_bytes"] = packet.delivered_bytes
        if sender.per_packet:
            ack["tx_inflight_bytes"], ack["lost_since_bytes"] = packet.inflight_bytes, found_lost - packet.lost_bytes
        ack["round_start"] = float(packet.delivered_bytes >= next_round_bytes)
        if ack["round_start"]:
            next_round_bytes = delivered
        on_ack(state, ack)
        out.rows.append((now_s, state["cwnd_bytes"], rtt, inflight, delivered, state["pacing_rate_Bps"]))
        if watch:
            out.states.append([float(state[name]) for name in watch])
        lost = []
        for p in outstanding.values():  # in order of seq
            if p.seq > packet.seq - 3:
                break
            lost.append(p)
        if lost:
            take_losses(lost, timeout=False)
    return out
