"""Logs of the curve engine, the traces made of them, and snapshots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.engine.curve.layout import RECORD_ENV, RECORD_FLOW
from ccenv.base.errors import InputError
from ccenv.network.trace import Trace, TraceHeader

_BELIEFS = ("C_L", "C_U", "C_L_lambda", "q_U", "qdel_L", "qdel_U", "rtt_s")


_FLOW_LOG = np.dtype([(name, "<f8") for name in RECORD_FLOW])
_ENV_LOG = np.dtype([(name, "<f8") for name in RECORD_ENV])


class Recorder:
    """The logs that the kernel writes: one row per step, grown as a run gets longer.

    Attributes:
        flow_log: (B, capacity, N) records of layout.RECORD_FLOW.
        env_log: (B, capacity) records of layout.RECORD_ENV.
    """

    def __init__(self, n_envs: int, n_flows: int, recording: bool) -> None:
        """Allocate the first rows; one row of one environment if nothing is recorded."""
        shape = (n_envs, 64) if recording else (1, 1)
        self.flow_log = np.zeros((*shape, n_flows if recording else 1), _FLOW_LOG)
        self.env_log = np.zeros(shape, _ENV_LOG)

    def make_room(self, last_step: int) -> None:
        """Make sure that there is a row for a step."""
        n_envs, capacity, n_flows = self.flow_log.shape
        if last_step < capacity:
            return
        rows = max(2 * capacity, last_step + 1)
        flow_log, env_log = np.zeros((n_envs, rows, n_flows), _FLOW_LOG), np.zeros((n_envs, rows), _ENV_LOG)
        flow_log[:, :capacity], env_log[:, :capacity] = self.flow_log, self.env_log
        self.flow_log, self.env_log = flow_log, env_log

    def clear(self, which: np.ndarray) -> None:
        """Start the logs of some environments anew."""
        self.flow_log[which, 0] = np.zeros(1, _FLOW_LOG)
        self.env_log[which, 0] = np.zeros(1, _ENV_LOG)


def build_trace(header: TraceHeader, flow_log: np.ndarray, env_log: np.ndarray, start_steps: np.ndarray, steps: int) -> Trace:
    """Return the trace of one environment.

    Args:
        header: who played on which path.
        flow_log: (capacity, N) log of the environment.
        env_log: (capacity,) log of the environment.
        start_steps: (N,) steps after which the flows start.
        steps: steps taken since the reset.
    """
    rows = slice(0, steps + 1)
    rate = env_log["link_rate_Bps"][rows].copy()
    if steps:
        rate[0] = rate[1]
    beliefs = {name: flow_log[name][rows].copy() for name in _BELIEFS}
    for i, start_step in enumerate(start_steps):  # before a flow's first row its beliefs are those of its second
        for name in _BELIEFS:
            beliefs[name][: min(start_step + 1, steps + 1), i] = beliefs[name][min(start_step + 1, steps), i]
    asked = {name: flow_log[name][rows].copy() for name in ("rate_Bps", "cwnd_bytes")}
    for values in asked.values():
        values[0] = values[1] if steps else 0.0
    return Trace(
        header=header,
        A=flow_log["A"][rows],
        L=flow_log["L"][rows],
        L_free=flow_log["L_free"][rows],
        S=flow_log["S"][rows],
        G=env_log["G"][rows],
        link_rate_Bps=rate,
        beliefs=beliefs,
        **asked,
    )


@dataclass(frozen=True)
class Snapshot:
    """A copy of the complete state of all environments of an engine."""

    arrays: dict[str, np.ndarray]


def put_back(snapshot: Snapshot, state: dict[str, np.ndarray], which: np.ndarray, n_envs: int) -> None:
    """Copy the environments ``which`` of a snapshot into an engine's arrays. Raises InputError if it is of another shape."""
    for name, target in state.items():
        saved = snapshot.arrays.get(name)
        if saved is None or saved.shape != target.shape:
            had = "no such array" if saved is None else f"shape {saved.shape}"
            raise InputError(f"snapshot with {name} of {had}; this engine has {target.shape}")
        if len(target) % n_envs == 0:  # else no environment uses it
            per_env = len(target) // n_envs
            target.reshape(n_envs, per_env, -1)[which] = saved.reshape(n_envs, per_env, -1)[which]
