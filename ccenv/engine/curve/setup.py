"""How many steps the rings of a batch must hold, and the records of freshly reset environments."""

from __future__ import annotations

import math

import numpy as np

from ccenv.engine.compiled.beliefs import RECIPROCALS
from ccenv.engine.compiled.holds import Holds
from ccenv.engine.curve.layout import ENV_DTYPE, FLOW_DTYPE, ring_length
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.engine.curve.players import AdversaryTable, SenderTable
from ccenv.base.errors import InputError

DEEP_BUFFER_RTTS = 24  # queue that an infinite buffer can show: the receive window keeps it within the rings
_ENV_FROM_PATH = (
    "dt_s",
    "buffer_bytes",
    "mss_bytes",
    "link_rate_Bps",
    "link_rate_min_Bps",
    "link_rate_max_Bps",
    "n_rate_changes",
    "red_min_bytes",
    "red_max_bytes",
    "red_max_probability",
    "red_weight",
    "has_red",
)
_FLOW_FROM_PATH = (
    "jitter_steps",
    "start_step",
    "stop_step",
    "loss_budget",
    "workload",
    "workload_a",
    "workload_b",
)


def reset_envs(env: np.ndarray, which: np.ndarray, p: PathArrays, players: AdversaryTable, seed: int, keys: np.ndarray) -> None:
    """Write the records of the environments ``which``.

    Args:
        env: (B,) ENV_DTYPE.
        which: indices.
        p: paths of the whole batch.
        players: adversaries of the whole batch.
        seed: of the run.
        keys: one per environment in ``which``: what its random numbers depend on besides the seed.
    """
    env[which] = np.zeros(1, ENV_DTYPE)
    for name in _ENV_FROM_PATH:
        env[name][which] = getattr(p, name)[which]
    env["jitter_steps"][which] = p.jitter_steps[which, 0]
    env["link_rate_now_Bps"][which] = p.link_rate_Bps[which]
    env["adversary_kind"][which] = players.kind[which]
    env["adversary_index"][which] = players.index[which]
    env["seed"][which] = seed
    env["env_key"][which] = keys


def reset_flows(
    flow: np.ndarray, which: np.ndarray, p: PathArrays, senders: SenderTable, seed_C_L_Bps: np.ndarray, ring_length: int
) -> np.ndarray:
    """Write the records of all flows of the environments ``which``; return their rows.

    Args:
        flow: (B * N,) FLOW_DTYPE.
        which: indices of environments.
        p: paths of the whole batch.
        senders: of the whole batch.
        seed_C_L_Bps: (B, N) seeds of C_L.
        ring_length: H; the receive window keeps what is in flight within it.
    """
    N = p.rtt_steps.shape[1]
    rows: np.ndarray = (which[:, None] * N + np.arange(N)).ravel()
    flow[rows] = np.zeros(1, FLOW_DTYPE)
    for name in _FLOW_FROM_PATH:
        flow[name][rows] = getattr(p, name)[which].ravel()
    dt_s = np.repeat(p.dt_s[which], N)
    holds = Holds.of(p.rtt_steps[which], p.dt_s[which], senders.hold_s[which], senders.hold_window_s[which])
    for name in ("rtt_steps", "lag_steps", "hold_steps"):
        flow[name][rows] = getattr(holds, name).ravel()
    for name in ("target_steps", "window_steps"):
        flow[f"hold_{name}"][rows] = getattr(holds, name).ravel()
    flow["hold_until_step"][rows] = flow["start_step"][rows] + flow["hold_window_steps"][rows]
    flow["hold_rtt_min_steps"][rows] = np.inf
    flow["rtt_s"][rows] = flow["rtt_steps"][rows] * dt_s
    flow["jitter_s"][rows] = flow["jitter_steps"][rows] * dt_s
    span = ring_length - holds.lag_steps.max(axis=1) * 2 - p.jitter_steps[which].max(axis=1) - 3
    window = p.slowest_rate_Bps()[which] * p.dt_s[which] * span / N
    flow["receive_window_bytes"][rows] = np.repeat(window, N)
    flow["sender_kind"][rows] = senders.kind[which].ravel()
    flow["sender_index"][rows] = senders.index[which].ravel()
    for name in ("chooser", "chooser_index", "position"):
        flow[name][rows] = getattr(senders, name)[which].ravel()
    flow["cwnd_bytes"][rows] = np.inf
    flow["recovery_step"][rows] = -1
    flow["unfound_loss_step"][rows] = -1
    flow["rtt_min_steps"][rows] = np.inf
    flow["rtt_now_steps"][rows] = flow["rtt_steps"][rows]
    flow["probe_window_steps"][rows] = senders.probe_rtts[which].ravel() * flow["rtt_steps"][rows]
    flow["initial_C_L_Bps"][rows] = seed_C_L_Bps[which].ravel()
    # The same as the kernel's reset_beliefs, so that a freshly reset environment can be observed.
    floor = np.repeat(p.mss_bytes[which], N) / flow["rtt_s"][rows]
    seeded = np.maximum(flow["initial_C_L_Bps"][rows], floor)
    for name in ("C_L_Bps", "period_C_L_Bps", "C_L_lambda_Bps", "rate_Bps"):
        flow[name][rows] = seeded
    for name in ("C_U_Bps", "period_C_U_Bps"):
        flow[name][rows] = np.inf
    return rows


def reset_views(views: np.ndarray, which: np.ndarray, p: PathArrays, seed: int, keys: np.ndarray) -> None:
    """Write what does not change of what scripted adversaries see in the environments ``which``.

    Args:
        views: (B,) VIEW.
        which: indices.
        p: paths of the whole batch.
        seed: of the run.
        keys: one per environment in ``which``.
    """
    views["dt_s"][which] = p.dt_s[which]
    views["steps_per_rtt"] = p.steps_per_rtt
    views["n_flows"] = p.rtt_steps.shape[1]
    views["buffer_bytes"][which] = p.buffer_bytes[which]
    views["mss_bytes"][which] = p.mss_bytes[which]
    views["seed"] = seed
    views["env"][which] = keys


def needed_ring(p: PathArrays, senders: SenderTable, window_rtts: int, history_rtts: float | None) -> int:
    """Return the length of the rings, a power of two.

    Args:
        p: paths.
        senders: their senders.
        window_rtts: longest window of the beliefs, in Rm.
        history_rtts: length asked for, in units of the longest Rm; None: what buffers need.

    Raises:
        InputError: if they were too long for the tables of the beliefs.
    """
    length = _ring_for(p, senders, window_rtts, history_rtts)
    if 4 * length > RECIPROCALS:
        raise InputError(
            f"paths need rings of {length} steps; at most {RECIPROCALS // 4}: use fewer steps_per_rtt or shorter delays"
        )
    return length


def _ring_for(p: PathArrays, senders: SenderTable, window_rtts: int, history_rtts: float | None) -> int:
    """Return how many steps the rings should hold, as a power of two; arguments as of ``needed_ring``."""
    rtt = _longest_lag_steps(p, senders)
    need = max(window_rtts * rtt + rtt, _reach_steps(p, senders))
    if history_rtts is not None:
        return ring_length(max(need, math.ceil(history_rtts * rtt)))
    slowest = p.slowest_rate_Bps()
    queue_s = np.minimum(p.buffer_bytes, DEEP_BUFFER_RTTS * p.link_rate_Bps * p.dt_s * rtt) / slowest
    queue_steps = math.ceil(float((queue_s / p.dt_s).max()))
    return ring_length(max(need, min(queue_steps, 4 * DEEP_BUFFER_RTTS * rtt) + 4 * rtt + 2 * int(p.jitter_steps.max()) + 3))


def least_ring(p: PathArrays, senders: SenderTable) -> int:
    """Return the length below which the rings of a built engine cannot hold other paths."""
    return max(2 * (2 * _longest_lag_steps(p, senders) + int(p.jitter_steps.max()) + 2), _reach_steps(p, senders))


def _reach_steps(p: PathArrays, senders: SenderTable) -> int:
    """Return how many steps back a step on some paths reads, queues and belief windows aside: those fit the rings."""
    probe = int(senders.probe_rtts.max()) * _longest_lag_steps(p, senders)
    return 2 * _longest_lag_steps(p, senders) + int(p.jitter_steps.max()) + probe + 2


def _longest_lag_steps(p: PathArrays, senders: SenderTable) -> int:
    """Return the longest time from delivery to feedback that the senders can have on some paths."""
    return int((p.rtt_steps.max(axis=1) + np.ceil(senders.hold_s.max() / p.dt_s)).max())
