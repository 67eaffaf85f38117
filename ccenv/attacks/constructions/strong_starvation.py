"""Theorem 3 of [Starvation] (s.6.5, App. B): in the `strong` model every deterministic, efficient, delay-bounding CCA starves.

Trace 1 is the CCA alone on an ideal link of rate C, with queueing delays d_1(t). Trace n + 1 is the CCA alone where a byte that
arrives at t waits max(0, d_n(t) - D), which the network achieves by varying the link rate. After Q/D traces the delay is zero,
and an efficient CCA's throughput must grow without bound. So the throughputs of some two neighbours differ by the target ratio.
Those two then share one queue with the delays of the second, which gets no jitter; the first gets the difference, at most D.
Neither can tell that it is not alone. No initial state is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.attacks.constructions.convergence import ideal_path, lift_receive_window, solo_engine
from ccenv.attacks.constructions.slow_link import emulate
from ccenv.attacks.constructions.starvation import BOUNDED_SHARE, EXACT, HISTORY_RTTS, scene_dt_s
from ccenv.attacks.game import Found, Game
from ccenv.base.errors import InputError
from ccenv.base.registry import number
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import ExternalAdversary, RecordedAdversary
from ccenv.network.path import Path
from ccenv.network.trace import Trace

BEYOND = 4.0  # a trace ends when its throughput exceeds its neighbour's by so many ratios: more would only lose digits
SLOWEST_SHARE, FASTEST_SHARE = 1e-9, 1e9  # of C: range of link rates of the network alone
ABOVE = 1.0 + 1e-12  # an empty queue needs a link at least as fast as the arrivals, despite round-off
RATE = 1


@dataclass(frozen=True)
class _Solo:
    """The CCA alone: curves E and S (rows), and the row in which a byte that arrives at row j is served, f(j)."""

    entered: np.ndarray
    served: np.ndarray
    finish: np.ndarray


@dataclass(frozen=True)
class StrongStarvation:
    """The construction for a ratio of throughputs, with traces of at most ``rtts`` Rm."""

    ratio: float
    rtts: int
    weight: float = 0.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Build the traces and the two-flow network of the best neighbours."""
        game.require_one_flow("strong_starvation")
        scene = game.scene
        flow = scene.path.flows[0]
        if flow.jitter_s == 0 or scene.timing == "smt":
            raise InputError("adversary 'strong_starvation' needs a path with D > 0 and timing 'engine'")
        jitter_steps = round(flow.jitter_s / scene_dt_s(game))
        steps = self.rtts * scene.steps_per_rtt
        alone, first = _run_alone(game, steps)
        solos = [first]
        longest = float((first.finish - np.arange(steps + 1)).max())
        if longest >= BOUNDED_SHARE * HISTORY_RTTS * scene.steps_per_rtt:
            details_alone = {
                "longest_delay_ms": longest * scene_dt_s(game) * 1e3,
                "played": "the ideal link: the theorem says nothing about a sender that does not bound its delay",
            }
            return Found(trace=alone, first_row=0, preconditions={"delay_bounding": False}, details=details_alone)
        while len(solos) == 1 or (solos[-2].finish > np.arange(len(solos[-2].finish)) + 1e-9).any():
            if len(solos) > 1 and (_compare_throughput(*solos[-2:]) >= self.ratio or len(solos) > 64):
                break
            solos.append(_run_faster(game, solos[-1], jitter_steps, BEYOND * self.ratio))
        pairs = range(len(solos) - 1)
        best = max(
            pairs, key=lambda n: max(_compare_throughput(solos[n], solos[n + 1]), 1 / _compare_throughput(solos[n], solos[n + 1]))
        )
        slow, fast = solos[best], solos[best + 1]
        trace, early_bytes, held_steps = _run_together(game, slow, fast, jitter_steps)
        rows = len(fast.served)
        differences = [float(np.abs(trace.S[:, i] - one.served[:rows]).max()) for i, one in enumerate((slow, fast))]
        moved = float(trace.S[-1].sum())
        throughputs = trace.S[-1] / (trace.n_steps * trace.header.dt_s)
        preconditions: dict[str, Any] = {
            "delay_bounding": True,
            "throughputs_differ_by_ratio": bool(_compare_throughput(slow, fast) >= self.ratio),
            "emulation_legal": bool(early_bytes <= EXACT * moved and held_steps <= jitter_steps + 1e-6),
            "emulation_exact": bool(max(differences) <= EXACT * moved),
        }
        details: dict[str, Any] = {
            "ratio": float(throughputs[1] / max(throughputs[0], 1e-300)),
            "ratio_asked": self.ratio,
            "throughputs_mbps": [float(x * 8e-6) for x in throughputs],
            "traces": len(solos),
            "pair": [best + 1, best + 2],
            "longest_delay_ms": longest * scene_dt_s(game) * 1e3,
            "D_ms": flow.jitter_s * 1e3,
            "rtts": trace.n_steps / scene.steps_per_rtt,
            "link_rate_mbps": [float(x * 8e-6) for x in (trace.link_rate_Bps.min(), trace.link_rate_Bps.max())],
            "largest_difference_bytes": max(differences),
            "model": "strong",
        }
        return Found(trace=trace, first_row=0, preconditions=preconditions, details=details)


def _compare_throughput(slow: _Solo, fast: _Solo) -> float:
    """Return the second's deliveries over the first's by the end of the shorter one."""
    row = min(len(slow.served), len(fast.served)) - 1
    return float(max(fast.served[row], 1e-300) / max(slow.served[row], 1e-300))


def _run_alone(game: Game, steps: int) -> tuple[Trace, _Solo]:
    """Return the trace of the CCA alone on the ideal link of the scene's rate, and its curves."""
    engine = solo_engine(game, game.scene.sender, [game.scene.path.link_rate_Bps], HISTORY_RTTS)
    engine.advance(steps)
    game.count(engine, steps)
    trace = engine.trace(0)
    waits = trace.queue_bytes / (game.scene.path.link_rate_Bps * trace.header.dt_s)
    return trace, _Solo(trace.E[:, 0], trace.S[:, 0], np.arange(steps + 1) + waits)


def _arrival_rows(finish: np.ndarray) -> np.ndarray:
    """Return for each row k the tau <= k whose arrivals are served by row k: the inverse of f."""
    rows = np.arange(len(finish))
    below = np.maximum(np.searchsorted(finish, rows + 1e-9, side="right") - 1, 0)
    above = np.minimum(below + 1, len(finish) - 1)
    gap = finish[above] - finish[below]
    share = np.where(gap > 0, (rows - finish[below]) / np.where(gap > 0, gap, 1.0), 0.0)
    return np.asarray(np.minimum(rows, below + np.clip(share, 0.0, 1.0)))


def _strong_path(game: Game, low_Bps: float, high_Bps: float, n_flows: int) -> Path:
    path = game.scene.path
    rates = {
        "link_rate_min_Bps": min(low_Bps, path.link_rate_Bps),
        "link_rate_max_Bps": max(high_Bps, path.link_rate_Bps),
    }
    return ideal_path(path, path.link_rate_Bps).model_copy(update={**rates, "flows": path.flows[:1] * n_flows})


def _run_faster(game: Game, before: _Solo, jitter_steps: int, enough: float) -> _Solo:
    """Return the CCA alone where every byte waits D less than in the previous trace, down to zero."""
    rows = np.arange(len(before.finish))
    finish = np.maximum(rows, before.finish - jitter_steps)
    arrival = _arrival_rows(finish)
    rate = game.scene.path.link_rate_Bps
    low, high = SLOWEST_SHARE * rate, FASTEST_SHARE * rate
    engine = _make_engine(game, _strong_path(game, low, high, 1), ExternalAdversary(), record=False)
    dt_s = scene_dt_s(game)
    entered, served = [0.0], [0.0]
    moves = np.array([[1.0, 1.0, 1.0, 0.0]])
    state = engine.snapshot()
    for k in range(1, len(rows)):
        moves[0, RATE] = 1.0
        engine.advance(1, moves=moves)  # to read this step's arrivals, which no move changes
        entered.append(float(engine.flow("E")[0, 0]))
        if arrival[k] < k:
            engine.restore(state)
            served_bytes = float(np.interp(arrival[k], rows[: k + 1], entered)) - served[-1]
            moves[0, RATE] = np.clip((served_bytes / dt_s - low) / (high - low), 0.0, 1.0)
            engine.advance(1, moves=moves)
        served.append(float(engine.flow("S")[0, 0]))
        state = engine.snapshot()
        if served[-1] > enough * before.served[k] and k >= 2 * game.scene.steps_per_rtt and before.served[k] > 0:
            break
    game.count(engine, len(served) - 1)
    return _Solo(np.array(entered), np.array(served), finish[: len(served)])


def _make_engine(game: Game, path: Path, adversary: ExternalAdversary | RecordedAdversary, record: bool) -> CurveEngine:
    engine = CurveEngine(
        [path],
        model="strong",
        senders=[game.scene.sender] * path.n_flows,
        adversary=adversary,
        steps_per_rtt=game.scene.steps_per_rtt,
        seed=game.scene.seed,
        history_rtts=HISTORY_RTTS,
        record=record,
    )
    lift_receive_window(engine)
    return engine


def _run_together(game: Game, slow: _Solo, fast: _Solo, jitter_steps: int) -> tuple[Trace, float, float]:
    """Return the trace of both flows on one queue with the delays of the second, and the emulation's early bytes and jitter."""
    rows = len(fast.served)
    entered = np.stack([slow.entered[:rows], fast.entered], axis=1)
    arrival = _arrival_rows(fast.finish)[:rows]
    total = entered.sum(axis=1)
    left_total = np.interp(arrival, np.arange(rows), total)
    departed = np.stack([np.interp(arrival, np.arange(rows), entered[:, i]) for i in (0, 1)], axis=1)
    emulation = emulate(departed[:, 0], slow.served[:rows], jitter_steps)
    dt_s = scene_dt_s(game)
    rates = ABOVE * np.diff(left_total) / dt_s
    low = SLOWEST_SHARE * game.scene.path.link_rate_Bps
    path = _strong_path(game, low, float(rates.max()), 2)
    high = path.link_rate_max_Bps or path.link_rate_Bps
    moves = np.ones((rows - 1, 6))
    moves[:, RATE] = np.clip((rates - low) / (high - low), 0.0, 1.0)
    moves[:, 2] = emulation.service
    moves[:, 4:] = 0.0
    engine = _make_engine(game, path, RecordedAdversary("strong_starvation", moves), record=True)
    engine.advance(rows - 1)
    game.count(engine, rows - 1)
    return engine.trace(0), emulation.early_bytes, emulation.jitter_steps


def search(ratio: float = 20.0, rtts: int = 400) -> StrongStarvation:
    """Build the construction: target ratio of the two throughputs above 1, traces of at most 10 to 10,000 Rm."""
    return StrongStarvation(
        number("strong_starvation", "ratio", ratio, above=1, high=1e6),
        int(number("strong_starvation", "rtts", rtts, low=10, high=10_000, whole=True)),
    )
