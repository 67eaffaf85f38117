"""Initial states of a proof: flows that have converged elsewhere, put together on one link with a queue of our choice."""

from __future__ import annotations

import numpy as np

from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.curve.layout import FLOW_RINGS
from ccenv.engine.curve.tracing import Snapshot
from ccenv.base.errors import InputError

_P_RING = 4  # of the rings of a flow: S twice, E, L, P


def join_flows(solo: Snapshot, engine: CurveEngine, tokens_bytes: float, departed_bytes: np.ndarray) -> None:
    """Put the flows of one snapshot, each alone in its environment so far, on the one shared link of an engine.

    Each flow keeps its sender's state and everything that was sent, delivered and seen; the link is new: so many bytes have left
    it, the rest of what is under way waits in it.

    Args:
        solo: of an engine of N environments with one flow each, at the same step, with the same rings and the same senders.
        engine: one environment of N flows, freshly reset.
        tokens_bytes: total that has left the shared link (G).
        departed_bytes: (N,) what of each flow has left it (P_i), at least what was delivered.

    Raises:
        InputError: if the engines do not fit together.
    """
    own = engine.snapshot()
    arrays = {name: array.copy() for name, array in solo.arrays.items()}
    for name in ("_flow", "_ring", "_states"):
        if arrays[name].shape != own.arrays[name].shape:
            raise InputError(f"flows cannot be joined: {name} has shape {arrays[name].shape}, not {own.arrays[name].shape}")
    flow, env = arrays["_flow"], own.arrays["_env"]
    step = int(arrays["_env"]["step"][0])
    mask = len(arrays["_ring"]) // (len(flow) * FLOW_RINGS) - 1
    rings = arrays["_ring"].reshape(len(flow), FLOW_RINGS, mask + 1)
    flow["jitter_steps"], flow["jitter_s"] = own.arrays["_flow"]["jitter_steps"], own.arrays["_flow"]["jitter_s"]
    flow["P"] = departed_bytes
    rings[:, _P_RING, step & mask] = departed_bytes
    entered = arrays["_env_ring"].reshape(len(flow), 2, mask + 1)[:, 1].sum(axis=0)  # total E of each environment
    env["step"] = step
    env["enqueued_bytes"] = flow["E"].sum()
    env["served_bytes"] = flow["S"].sum()
    env["tokens_bytes"] = tokens_bytes
    env["fifo_step"] = _arrival_step(entered, step, mask, tokens_bytes)
    arrays["_env"] = env
    tokens = np.zeros(mask + 1)
    tokens[step & mask] = tokens_bytes
    arrays["_env_ring"] = np.concatenate((tokens, entered))
    for name in ("_adversary_states", "_flow_moves"):
        arrays[name] = own.arrays[name]
    if "flow_log" in arrays:
        arrays["flow_log"] = np.ascontiguousarray(arrays["flow_log"].swapaxes(0, 2))
        arrays["env_log"] = np.zeros((1, arrays["flow_log"].shape[1]), own.arrays["env_log"].dtype)
    engine.restore(Snapshot(arrays))


def lift_receive_window(engine: CurveEngine) -> None:
    """Let flows have any number of bytes in flight.

    The engine's receive window keeps a queue within its rings on the slowest link that a path allows. Where a construction keeps
    the delays short itself, that limit would be a limit of the sender and no law.
    """
    state = engine.snapshot()
    state.arrays["_flow"]["receive_window_bytes"] = np.inf
    engine.restore(state)


def _arrival_step(entered: np.ndarray, step: int, mask: int, departed: float) -> int:
    """Return the step in which the newest departed byte had arrived."""
    k = step
    while k > max(0, step - mask) and entered[(k - 1) & mask] >= departed:
        k -= 1
    return k
