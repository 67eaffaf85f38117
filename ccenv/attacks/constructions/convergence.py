"""Delay convergence ([Starvation] s.2, Definition 1), the range of a sender's delays on an ideal link, and joint initial states.

:func:`join_flows` puts flows that have converged alone on one link with a chosen queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.agents.sender import Sender
from ccenv.attacks.game import KIND, Game
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine, Snapshot
from ccenv.engine.curve.layout import FLOW_RINGS
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import Path


@dataclass(frozen=True)
class Converged:
    """Behaviour of a sender alone on ideal links after its convergence. Arrays have one entry per link rate, ascending.

    Attributes:
        link_rate_Bps: C.
        delay_min_s, delay_max_s: range of the queueing delay after convergence (d_min - Rm and d_max - Rm).
        throughput_Bps: long-term throughput x(C).
        drift_s: change of the range between the two halves of the measurement.
    """

    link_rate_Bps: np.ndarray
    delay_min_s: np.ndarray
    delay_max_s: np.ndarray
    throughput_Bps: np.ndarray
    drift_s: np.ndarray

    @property
    def efficiency(self) -> np.ndarray:
        """f: throughput over link rate."""
        return np.asarray(self.throughput_Bps / self.link_rate_Bps)


def ideal_path(path: Path, link_rate_Bps: float) -> Path:
    """Return the one-flow path of another rate with an infinite buffer; D stays, since a sender may know it."""
    return path.model_copy(update={"link_rate_Bps": float(link_rate_Bps), "buffer_bytes": np.inf, "flows": path.flows[:1]})


def solo_engine(
    game: Game,
    sender: Sender,
    rates_Bps: Sequence[float] | np.ndarray,
    history_rtts: float,
    seed: int | None = None,
    record: bool = True,
) -> CurveEngine:
    """Return one environment per link rate with the sender alone on a benign network: [Starvation]'s ideal path."""
    engine = CurveEngine(
        [ideal_path(game.scene.path, rate) for rate in rates_Bps],
        model="cbr_delay",
        senders=[sender],
        adversary=RecordedAdversary("kind", np.array([KIND])),
        steps_per_rtt=game.scene.steps_per_rtt,
        seed=game.scene.seed if seed is None else seed,
        history_rtts=history_rtts,
        record=record,
    )
    engine.reset(keys=np.zeros(len(rates_Bps)) if seed is None else np.full(len(rates_Bps), 1.0))
    return engine


def measure_convergence(
    game: Game, sender: Sender, rates_Bps: np.ndarray, converge_rtts: int, measure_rtts: int, history_rtts: float
) -> Converged:
    """Run a sender alone on ideal links and measure the range of its queueing delay after ``converge_rtts``."""
    engine = solo_engine(game, sender, rates_Bps, history_rtts, record=False)
    K = game.scene.steps_per_rtt
    engine.advance(converge_rtts * K)
    before = engine.totals()
    halves = []
    for steps in (measure_rtts * K // 2, measure_rtts * K - measure_rtts * K // 2):
        low, high = np.full(len(rates_Bps), np.inf), np.zeros(len(rates_Bps))
        for _ in range(steps):
            engine.advance(1)
            waiting_s = queueing_delay_s(engine)
            low, high = np.minimum(low, waiting_s), np.maximum(high, waiting_s)
        halves.append((low, high))
    after = engine.totals()
    game.count(engine, (converge_rtts + measure_rtts) * K)
    (low_1, high_1), (low_2, high_2) = halves
    return Converged(
        rates_Bps,
        np.minimum(low_1, low_2),
        np.maximum(high_1, high_2),
        (after["S"] - before["S"])[:, 0] / (after["time_s"] - before["time_s"]),
        np.maximum(np.abs(low_1 - low_2), np.abs(high_1 - high_2)),
    )


def queueing_delay_s(engine: CurveEngine) -> np.ndarray:
    """Return the queueing delay of a byte arriving now, (B,)."""
    waiting: np.ndarray = engine.queue_bytes / engine.env("link_rate_now_Bps")
    return waiting


_P_RING = 4  # of the rings of a flow: S twice, E, L, P


def join_flows(solo: Snapshot, engine: CurveEngine, tokens_bytes: float, departed_bytes: np.ndarray) -> None:
    """Put the flows of one snapshot, each alone in its environment so far, on the one shared link of an engine.

    Each flow keeps its sender's state and all bytes sent, delivered and seen. The link is new: ``tokens_bytes`` have left it, and
    the rest of the bytes in flight waits in it. Raises InputError if the engines do not fit together.

    Args:
        solo: of an engine of N environments with one flow each, at the same step, with the same rings and the same senders.
        engine: one environment of N flows, freshly reset.
        tokens_bytes: total that has left the shared link (G).
        departed_bytes: (N,) bytes of each flow that have left it (P_i), at least those delivered.
    """
    target = engine.snapshot()
    arrays = {name: array.copy() for name, array in solo.arrays.items()}
    for name in ("_flow", "_ring", "_states"):
        if arrays[name].shape != target.arrays[name].shape:
            raise InputError(f"flows cannot be joined: {name} has shape {arrays[name].shape}, not {target.arrays[name].shape}")
    flow, env = arrays["_flow"], target.arrays["_env"]
    step = int(arrays["_env"]["step"][0])
    mask = len(arrays["_ring"]) // (len(flow) * FLOW_RINGS) - 1
    rings = arrays["_ring"].reshape(len(flow), FLOW_RINGS, mask + 1)
    flow["jitter_steps"], flow["jitter_s"] = target.arrays["_flow"]["jitter_steps"], target.arrays["_flow"]["jitter_s"]
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
        arrays[name] = target.arrays[name]
    if "flow_log" in arrays:
        arrays["flow_log"] = np.ascontiguousarray(arrays["flow_log"].swapaxes(0, 2))
        arrays["env_log"] = np.zeros((1, arrays["flow_log"].shape[1]), target.arrays["env_log"].dtype)
    engine.restore(Snapshot(arrays))


def lift_receive_window(engine: CurveEngine) -> None:
    """Allow flows any number of bytes in flight.

    The engine's receive window keeps a queue within its rings on the slowest link that a path allows. If a construction keeps the
    delays short itself, that limit would restrict the sender without being a law.
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
