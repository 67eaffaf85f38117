"""The network's half of a step: moves, link rate, tokens, losses, departures, service. Compiled; see ``step``."""

from __future__ import annotations

import numpy as np

from ccenv.engine.compiled.beliefs import TIE
from ccenv.engine.compiled.calls import call_2, call_3, load, store
from ccenv.engine.compiled.rings import at
from ccenv.base.kernels.decorator import kernel

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
    """Expire tokens that were not used within D, admit those of this step, waste what is wasted; return G(k).

    Args:
        ev: environment record.
        env_ring: address of the environments' rings.
        g_at: where this environment's ring of G starts.
        k: step.
        mask: ring length - 1.
        D: jitter bound in steps.
        hoards: the model keeps spare tokens (CCAC with D > 0).
        rate_Bps: link rate of this step.
        X: bytes that have arrived and were not lost before this step's overflow.
        waste: share of the spare tokens to waste.
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
