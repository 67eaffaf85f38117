"""Delay convergence ([Starvation] s.2, Definition 1): the range of delays in which a sender ends up on an ideal link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import KIND, Game
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import Path
from ccenv.agents.sender import Sender


@dataclass(frozen=True)
class Converged:
    """What a sender alone on ideal links does after its convergence. Arrays have one entry per link rate, ascending.

    Attributes:
        link_rate_Bps: C.
        delay_min_s, delay_max_s: range of the queueing delay after convergence (d_min - Rm and d_max - Rm).
        throughput_Bps: long-term throughput x(C).
        drift_s: by how much the range still moved between the two halves of what was measured.
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
    """Return the one-flow path of another rate with an infinite buffer; D stays: a sender may know it."""
    return path.model_copy(update={"link_rate_Bps": float(link_rate_Bps), "buffer_bytes": np.inf, "flows": path.flows[:1]})


def solo_engine(
    game: Game,
    sender: Sender,
    rates_Bps: Sequence[float] | np.ndarray,
    history_rtts: float,
    seed: int | None = None,
    record: bool = True,
) -> CurveEngine:
    """Return one environment per link rate in which the sender is alone and the network kind: [Starvation]'s ideal path."""
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
    """Return the time that a byte arriving now would wait, (B,)."""
    waiting: np.ndarray = engine.queue_bytes / engine.env("link_rate_now_Bps")
    return waiting
