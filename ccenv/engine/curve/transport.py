"""Both halves of a step, compiled; see ``step``. The sender's: sending, acknowledgements, loss detection, classic CCAs.

The network's: moves, link rate, tokens, losses, departures, service.
"""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.beliefs import TIE, at, oldest_cursor
from ccenv.engine.compiled.calls import call_2, call_3, load, store
from ccenv.engine.compiled.holds import next_hold
from ccenv.engine.curve.layout import WORKLOADS

ERROR_SENDER, ERROR_ADVERSARY, ERROR_RINGS = 1, 2, 3


@kernel(inline="always")
def unit(x):
    """Clip to [0, 1]."""
    return min(1.0, max(0.0, x))


@kernel
def fail(ev, code, flow, k):
    """Note the first error of an environment."""
    if ev.error == 0:
        ev.error = code
        ev.error_flow = flow
        ev.error_step = k


@kernel
def look(ev, view, k):
    """Show the network's state before step k to its player."""
    view.now_s = (k - 1) * ev.dt_s
    view.step = k - 1
    view.queue_bytes = max(0.0, ev.enqueued_bytes - ev.tokens_bytes)
    view.spare_token_bytes = max(0.0, ev.tokens_bytes - ev.enqueued_bytes)
    view.link_rate_Bps = ev.link_rate_now_Bps


@kernel
def play(ev, fl, flow, k, hoards, view, move, init_call, play_call, state_at, view_at, move_at):
    """Let a scripted adversary choose its moves for one flow."""
    view.flow = flow
    view.rtt_s = fl.rtt_s
    view.jitter_s = fl.jitter_s
    view.held_bytes = (min(ev.tokens_bytes, ev.enqueued_bytes) - ev.served_bytes) if hoards else fl.P - fl.S
    if k == 1:
        call_2(init_call, state_at, view_at)
    call_3(play_call, state_at, view_at, move_at)
    if not (move.service >= 0.0 and move.waste >= 0.0 and move.rate >= 0.0 and move.loss >= 0.0):
        fail(ev, ERROR_ADVERSARY, flow, k)
        move.service = 1.0
        move.waste = 1.0
        move.rate = 1.0
        move.loss = 0.0


@kernel
def early_drop_share(ev):
    """Return the share of arrivals that RED drops in this step."""
    queue = max(0.0, ev.enqueued_bytes - ev.tokens_bytes)
    ev.red_average_bytes += ev.red_weight * (queue - ev.red_average_bytes)
    if ev.red_average_bytes > ev.red_max_bytes:
        return 1.0
    if ev.red_average_bytes > ev.red_min_bytes:
        share = (ev.red_average_bytes - ev.red_min_bytes) / (ev.red_max_bytes - ev.red_min_bytes)
        return ev.red_max_probability * share
    return 0.0


@kernel
def lose_on_the_way(fl, move, early_drop):
    """Take non-congestive loss and RED's share from what a flow sent; return what reaches the queue."""
    kept = fl.sent_bytes
    if fl.loss_budget > 0.0:
        free = unit(move.loss) * min(kept, max(0.0, fl.loss_budget * fl.A - fl.L_free))
        free = free if free > TIE * fl.A else 0.0
        fl.L_free += free
        fl.L += free
        kept -= free
    if early_drop > 0.0:
        fl.L += early_drop * kept
        kept -= early_drop * kept
    fl.kept_bytes = kept
    return kept


@kernel
def admit_tokens(ev, env_ring, g_at, k, mask, D, hoards, rate_Bps, X, waste):
    """Expire tokens that were not used within D, admit those of this step, waste a share of the spare ones; return G(k).

    X are the bytes that have arrived and were not lost before this step's overflow.
    """
    if hoards and k > D:
        late = load(env_ring, at(g_at, k - D, mask)) - X
        if late > 0.0:  # wasted at k - D, when nothing waited
            store(env_ring, at(g_at, k - D, mask), X)  # not by subtraction: the round-off of spare tokens may be above X
            for j in range(k - D + 1, k):
                where = at(g_at, j, mask)
                store(env_ring, where, max(X, load(env_ring, where) - late))
            ev.tokens_bytes = max(X, ev.tokens_bytes - late)
    before = ev.tokens_bytes
    G = before + rate_Bps * ev.dt_s
    ev.capacity_bytes += rate_Bps * ev.dt_s
    if G > X:
        if hoards and waste < 1.0:
            G = max(X, G - waste * (G - X))
        else:
            G = X
        if before > G:  # tokens kept from earlier steps were thrown away: they had been wasted then
            for j in range(max(k - D, 0), k):
                where = at(g_at, j, mask)
                store(env_ring, where, min(load(env_ring, where), G))
    ev.tokens_bytes = G
    store(env_ring, at(g_at, k, mask), G)
    return G


@kernel
def served_by_tokens(ev, env_ring, g_at, k, mask, D, u):
    """Return the total service of CCAC at step k: u from the least to the most that the law allows."""
    lower = ev.served_bytes
    if k > D:
        lower = max(lower, load(env_ring, at(g_at, k - D, mask)))
    upper = min(ev.tokens_bytes, ev.enqueued_bytes)
    return upper if u >= 1.0 else max(lower, min(upper, lower + u * (upper - lower)))


@kernel
def fifo_position(ev, env_ring, e_total_at, k, mask, departed):
    """Advance ev.fifo_step to the step in which the newest departed byte arrived; return its place within the step."""
    t = ev.fifo_step
    while t < k and load(env_ring, at(e_total_at, t, mask)) < departed:
        t += 1
    ev.fifo_step = t
    after = load(env_ring, at(e_total_at, t, mask))
    if departed < after and t > 0:
        before = load(env_ring, at(e_total_at, t - 1, mask))
        if departed < before:
            fail(ev, ERROR_RINGS, -1, k)
        return (departed - before) / (after - before)
    return 1.0


@kernel
def fifo_share(fl, rings, t, fraction):
    """Return how many bytes of a flow have departed when those before place ``fraction`` of step t have."""
    left = load(rings.ring, at(rings.e_at, t, rings.mask))
    if fraction < 1.0:
        before = load(rings.ring, at(rings.e_at, t - 1, rings.mask))
        left = before + fraction * (left - before)
    return max(left, fl.P)


@kernel
def served_by_jitter(fl, rings, k, d, left, u):
    """Return a flow's service at step k where each byte may be held for up to d steps after it departed."""
    store(rings.ring, at(rings.p_at, k, rings.mask), left)
    lower = fl.S
    if k > d:
        lower = max(lower, load(rings.ring, at(rings.p_at, k - d, rings.mask)))
    return left if u >= 1.0 else max(lower, min(left, lower + u * (left - lower)))


@kernel
def overflow_of(X, G, buffer_bytes, kept_total):
    """Return what a drop-tail queue loses in a step.

    Round-off at a queue that is exactly full is not a loss: a sender would halve its window for it.
    """
    overflow = X - G - buffer_bytes
    return min(overflow, kept_total) if overflow > TIE * X else np.float64(0.0)


# A loss is found by SACK, when so many segments past it are acknowledged (RFC 6675 s.4); by RACK, when a byte sent one Rm
# after it is (RFC 8985 s.6.2); or by the RTO (RFC 6298).
LOSS_DETECTION_SEGMENTS = 3.0
CRUMB_TIES = 2.0  # room in a window below so many ties is round-off: bytes too few for an ACK would get no RTT of their own
PHASE_TIE = 1e-9  # in steps: a phase that ends on a grid point ends there, whatever the round-off

_RATE, _ON_OFF, _FINITE = (WORKLOADS[k] for k in ("rate", "on_off", "finite"))


@kernel
def offered_bytes(fl, k, dt_s):
    """Return what the application has ready for step k (retransmissions of found losses included)."""
    if k <= fl.start_step or k > fl.stop_step:
        return 0.0
    if fl.workload == _RATE:
        return max(0.0, fl.workload_a * (k - fl.start_step) * dt_s + fl.found_lost_bytes - fl.A)
    if fl.workload == _ON_OFF:
        phase = ((k - 1 - fl.start_step + PHASE_TIE) * dt_s) % (fl.workload_a + fl.workload_b)
        return np.inf if phase < fl.workload_a else 0.0
    if fl.workload == _FINITE:
        return max(0.0, fl.workload_a + fl.found_lost_bytes - fl.A)
    return np.inf


@kernel(forceinline=True)
def send(fl, k, dt_s, tie_bytes):
    """Send what pacing, windows and workload allow in step k."""
    room = min(fl.cwnd_bytes, fl.receive_window_bytes) - (fl.A - fl.acked_bytes - fl.found_lost_bytes)
    if room <= CRUMB_TIES * tie_bytes:
        room = 0.0
    sent = min(fl.rate_Bps * dt_s, room)
    sent = min(sent, offered_bytes(fl, k, dt_s))
    fl.A += sent
    fl.sent_bytes = sent


@kernel(forceinline=True)
def acknowledge(ev, fl, flow, rings, n, k, dt_s, tie_bytes):
    """Take in S(n); return the newly acknowledged bytes."""
    ring, mask, e_at = rings.ring, rings.mask, rings.e_at
    served = load(ring, at(rings.s_at, n, mask))
    newly = served - fl.acked_bytes
    if newly <= tie_bytes:
        return 0.0
    p = fl.ack_sent_step
    while p < n and load(ring, at(e_at, p, mask)) < served - tie_bytes:
        p += 1
    fl.ack_sent_step = p
    fl.delay_floor_steps = n - p
    after = load(ring, at(e_at, p, mask))
    before = load(ring, at(e_at, p - 1, mask))
    if before > served + tie_bytes:  # sent before the oldest step that a cursor may stand at
        fail(ev, ERROR_RINGS, flow, k)
    sent_at = float(p)
    if after > served and after > before:
        sent_at = p - 1 + max(0.0, (served - before) / (after - before))
    rtt = n - sent_at + fl.lag_steps
    fl.acked_bytes = served
    fl.last_ack_step = k
    fl.rtt_now_steps = rtt
    fl.rtt_min_steps = min(fl.rtt_min_steps, rtt)
    fl.rtt_byte_sum_s += newly * (n - sent_at) * dt_s
    if fl.srtt_steps == 0.0:  # RFC 6298 s.2
        fl.srtt_steps = rtt
        fl.rttvar_steps = 0.5 * rtt
    else:
        fl.rttvar_steps += 0.25 * (abs(fl.srtt_steps - rtt) - fl.rttvar_steps)
        fl.srtt_steps += 0.125 * (rtt - fl.srtt_steps)
    return newly


@kernel
def adjust_hold(fl, k):
    """Take the newest RTT sample at a proxy; at the end of its window choose the hold of the next one, in whole steps."""
    fl.hold_rtt_min_steps = min(fl.hold_rtt_min_steps, fl.rtt_now_steps)
    if k >= fl.hold_until_step:
        hold = np.int64(next_hold(fl.hold_target_steps, fl.hold_steps, fl.hold_rtt_min_steps) + 0.5)
        fl.lag_steps += hold - fl.hold_steps
        fl.hold_steps = hold
        fl.hold_rtt_min_steps = np.inf
        fl.hold_until_step = k + fl.hold_window_steps


@kernel(forceinline=True)
def find_losses(fl, rings, n, k, oracle, rto_min_steps, mss_bytes):
    """Advance fl.loss_step; return (newly found bytes, newest step with a found loss, whether an RTO found them)."""
    ring, mask, e_at, l_at = rings.ring, rings.mask, rings.e_at, rings.l_at
    reach = fl.loss_step
    by_rto = False
    if oracle:
        reach = n
    else:
        while reach < n and (
            fl.ack_sent_step - reach > fl.rtt_steps
            or load(ring, at(e_at, reach + 1, mask)) + LOSS_DETECTION_SEGMENTS * mss_bytes <= fl.acked_bytes
        ):
            reach += 1
        if k - fl.last_ack_step > rto_min_steps:
            outstanding = fl.A - fl.acked_bytes - fl.found_lost_bytes
            overdue = k - fl.last_ack_step > fl.srtt_steps + 4.0 * fl.rttvar_steps
            if overdue and outstanding > TIE * fl.A and n > reach:
                by_rto = True
                reach = n
                fl.last_ack_step = k
    newest = np.int64(-1)
    lost = 0.0
    if reach > fl.loss_step:
        all_lost = load(ring, at(l_at, reach, mask))
        lost = all_lost - fl.found_lost_bytes
        if lost > 0.0:
            newest = reach
            while newest > fl.loss_step and not load(ring, at(l_at, newest, mask)) > load(ring, at(l_at, newest - 1, mask)):
                newest -= 1
            if newest == fl.loss_step:
                newest = fl.unfound_loss_step
            fl.found_lost_bytes = all_lost
        fl.unfound_loss_step = -1
        fl.loss_step = reach
    return lost, newest, by_rto


@kernel
def take_decision(ev, fl, state, flow, k):
    """Read what a CCA has set; a CCA that leaves the positive numbers is stopped."""
    if state.cwnd_bytes > 0.0 and state.pacing_rate_Bps > 0.0:
        fl.cwnd_bytes = state.cwnd_bytes
        fl.rate_Bps = state.pacing_rate_Bps
    else:
        fl.cwnd_bytes = 1.0
        fl.rate_Bps = 1.0
        fail(ev, ERROR_SENDER, flow, k)


@kernel
def fill_ack(ack, fl, rings, n, k, early_feedback, dt_s, mss_bytes, newly, inflight):
    """Describe newly acknowledged bytes to a CCA; what was in flight and lost is that since the round began."""
    ack.now_s = k * dt_s
    ack.acked_bytes = newly
    ack.delivered_bytes = fl.acked_bytes
    ack.rtt_s = fl.rtt_now_steps * dt_s
    ack.min_rtt_s = fl.rtt_min_steps * dt_s
    # Delivery rate since the newest acknowledged byte was sent (draft-cheng-iccrg-delivery-rate-estimation s.2.2).
    earlier = max(fl.ack_sent_step - fl.lag_steps + early_feedback, oldest_cursor(k, rings.mask))  # older: bytes fewer than a tie
    acked_before = load(rings.ring, at(rings.s_at, earlier, rings.mask)) if earlier > 0 else 0.0
    ack.delivery_rate_Bps = (fl.acked_bytes - acked_before) / (max(1, n - earlier) * dt_s)
    ack.inflight_bytes = inflight
    ack.round_start = 0.0
    if fl.acked_bytes >= fl.round_end_bytes:
        ack.round_start = 1.0
        fl.round_end_bytes = fl.E
        fl.round_inflight_bytes = inflight
        fl.round_found_lost_bytes = fl.found_lost_bytes
    limited = fl.workload != 0 and fl.sent_bytes < min(fl.rate_Bps * dt_s, fl.cwnd_bytes - inflight)
    ack.app_limited = fl.app_limited = 1.0 if limited else 0.0
    ack.ecn_fraction = 0.0
    ack.mss_bytes = mss_bytes
    ack.prior_delivered_bytes = acked_before
    ack.tx_inflight_bytes = fl.round_inflight_bytes
    ack.lost_since_bytes = fl.found_lost_bytes - fl.round_found_lost_bytes


@kernel
def fill_loss(loss, fl, k, dt_s, mss_bytes, lost, newest_loss, by_rto, inflight):
    """Describe newly found losses to a CCA, those of a step as one packet; see ``fill_ack``."""
    loss.now_s = k * dt_s
    loss.lost_bytes = lost
    loss.inflight_bytes = inflight
    loss.delivered_bytes = fl.acked_bytes
    loss.timeout = 1.0 if by_rto else 0.0
    loss.new_episode = 0.0
    if newest_loss > fl.recovery_step:
        loss.new_episode = 1.0
        fl.recovery_step = k
    loss.mss_bytes = mss_bytes
    loss.tx_inflight_bytes = fl.round_inflight_bytes
    loss.lost_since_bytes = fl.found_lost_bytes - fl.round_found_lost_bytes
    loss.app_limited = fl.app_limited
    loss.contiguous = 0.0


@kernel
def react(ev, fl, state, tick, flow, k, newly, lost, inflight, on_ack, on_loss, on_tick, state_at, signals_at):
    """Call a classic CCA with what happened in this step (ack and loss records are already filled in) and read its decision.

    The CCA's functions, its state and the three signals (ack, loss, tick) are given by address.
    """
    ack_at, loss_at, tick_at = signals_at
    if newly > 0.0:
        call_2(on_ack, state_at, ack_at)
    if lost > 0.0:
        call_2(on_loss, state_at, loss_at)
    tick.now_s = k * ev.dt_s
    tick.dt_s = ev.dt_s
    tick.inflight_bytes = inflight
    tick.delivered_bytes = fl.acked_bytes
    tick.min_rtt_s = fl.rtt_min_steps * ev.dt_s
    tick.mss_bytes = ev.mss_bytes
    call_2(on_tick, state_at, tick_at)
    take_decision(ev, fl, state, flow, k)
