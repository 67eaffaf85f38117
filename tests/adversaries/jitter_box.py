"""A jitter box alone: bytes leave the bottleneck at a constant rate, an adversary holds them, in order and for at most D."""

import numpy as np
from machine_code import machine_code

from ccenv.agents.callbacks import MOVE, VIEW

MSS_BYTES = 1500.0


def fresh(adversary):
    state = np.zeros(1, adversary.state).view(np.recarray)[0]
    for name, value in adversary.parameters.items():
        state[name] = value
    return state


def view_of(*, rtt_s=0.04, jitter_s=0.04, dt_s=0.005, flow=0, n_flows=1, seed=11, env=2, now_s=0.0, step=0, held_bytes=0.0):
    view = np.zeros(1, VIEW).view(np.recarray)[0]
    view.now_s, view.step, view.dt_s, view.steps_per_rtt = now_s, step, dt_s, rtt_s / dt_s
    view.flow, view.n_flows, view.rtt_s, view.jitter_s = flow, n_flows, rtt_s, jitter_s
    view.link_rate_Bps, view.buffer_bytes, view.mss_bytes = 1.25e6, np.inf, MSS_BYTES
    view.held_bytes, view.seed, view.env = held_bytes, seed, env
    return view


def fresh_move():
    return np.zeros(1, MOVE).view(np.recarray)[0]


def compiled(adversary):
    return machine_code(adversary.init, adversary.state, VIEW), machine_code(adversary.play, adversary.state, VIEW, MOVE)


def run_box(adversary, n_steps, *, flow=0, steps_per_rtt=8, rtt_s=0.04, jitter_steps=8, rate_Bps=1.25e6, seed=11, start_step=0):
    """Run the box; return departures P, deliveries S (bytes, n_steps + 1) and the moves (n_steps,)."""
    dt_s = rtt_s / steps_per_rtt
    state, move = fresh(adversary), fresh_move()
    view = view_of(rtt_s=rtt_s, jitter_s=jitter_steps * dt_s, dt_s=dt_s, flow=flow, seed=seed)
    adversary.init(state, view)
    P, S, moves = np.zeros(n_steps + 1), np.zeros(n_steps + 1), np.zeros(n_steps, MOVE)
    for k in range(1, n_steps + 1):
        view.now_s, view.step, view.held_bytes = (k - 1) * dt_s, k - 1, P[k - 1] - S[k - 1]
        adversary.play(state, view, move)
        moves[k - 1] = move
        P[k] = P[k - 1] + (rate_Bps * dt_s if k > start_step else 0.0)
        low = max(S[k - 1], P[k - jitter_steps] if k >= jitter_steps else 0.0)
        S[k] = low + move.service * (P[k] - low)
    return P, S, moves


def delays_steps(P, S):
    """Return for each step k > 0 that sent bytes how many steps its last byte was held (nan: not delivered yet)."""
    out = np.full(len(P) - 1, np.nan)
    for k in range(1, len(P)):
        if P[k] > P[k - 1]:
            later = np.nonzero(S[k:] >= P[k] * (1 - 1e-12))[0]
            if len(later):
                out[k - 1] = later[0]
    return out
