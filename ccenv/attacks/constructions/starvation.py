"""Theorem 1 of [Starvation] (s.4.3, App. A): two flows of one delay-convergent CCA, one of which starves.

1. Measure, on ideal links of many rates C, the range of delays [d_min(C), d_max(C)] to which the CCA converges. Choose C1 and C2
   whose throughputs differ by the ratio s and whose ranges lie within an interval shorter than D/2.
2. Run the CCA alone on C1 and on C2 until it has converged, and record the deliveries from there on.
3. Put both flows, with their states, on one link of rate C1 + C2 with a chosen queue. The jitter of each flow (at most D)
   reproduces the deliveries of its own link. A deterministic sender cannot tell the difference, so both continue for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccenv.attacks.constructions.convergence import (
    Converged,
    ideal_path,
    join_flows,
    measure_convergence,
    queueing_delay_s,
    solo_engine,
)
from ccenv.attacks.constructions.slow_link import departures, emulate
from ccenv.attacks.game import Found, Game
from ccenv.base.errors import InputError
from ccenv.base.registry import number
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.trace import Trace

LADDER_STEP = 2.0**0.5  # between the link rates on which convergence is measured
LADDER_OCTAVES = (-6, 7)  # around the path's own rate
MEASURE_RTTS = 200
HISTORY_RTTS = 60.0  # common length of the rings of all engines
PREFERRED_EFFICIENCY = 0.9  # a pair in which both flows reach it is preferred to one with closer delays
EFFICIENT = 0.01  # [Starvation] s.4.2 takes 1 % as an example of f
BOUNDED_SHARE = 0.5  # of the engine's receive window: a longer delay is bounded by nothing else
FASTER_LINKS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0, 8.0)  # case 2 of the proof: times C1 + C2
EXACT = 1e-6  # share of the delivered bytes by which an emulation may differ from what it emulates
FIRST_SERVICE = 2


@dataclass(frozen=True)
class _Pair:
    """Two rungs of the ladder: indices of C1 and C2, and the size of the interval that holds both ranges."""

    slow: int
    fast: int
    interval_s: float


@dataclass(frozen=True)
class _Link:
    """A shared link, its departures before the start, and the moves of the delay elements.

    Attributes:
        rate_Bps: of the link.
        queue_bytes: waiting in it at the start.
        departed_bytes: (2,) P_i at the start.
        service: (steps, 2) moves.
        early_bytes: most by which a delivery would be ahead of the departure.
        jitter_steps: smallest D that suffices.
    """

    rate_Bps: float
    queue_bytes: float
    departed_bytes: np.ndarray
    service: np.ndarray
    early_bytes: float
    jitter_steps: float


@dataclass(frozen=True)
class Starvation:
    """The construction for throughputs of ratio s; a flow alone counts as converged after ``converge_rtts``."""

    ratio: float
    converge_rtts: int
    weight: float = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost: the ladder of links, the pair alone and together, and the pair twice for determinism."""
        K, start = game.scene.steps_per_rtt, self.converge_rtts * game.scene.steps_per_rtt
        return len(_ladder()) * (start + MEASURE_RTTS * K) + 2 * (3 * start + 2 * game.n_steps)

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Build the two-flow network and play it; failed preconditions are reported."""
        game.require_one_flow("starvation")
        scene = game.scene
        jitter_s = scene.path.flows[0].jitter_s
        if jitter_s == 0 or scene.timing == "smt":
            raise InputError("adversary 'starvation' needs a path with D > 0 and timing 'engine'")
        rates = scene.path.link_rate_Bps * _ladder()
        measured = measure_convergence(game, scene.sender, rates, self.converge_rtts, MEASURE_RTTS, HISTORY_RTTS)
        pair = _choose(measured, self.ratio, jitter_s)
        chosen = np.array([rates[pair.slow], rates[pair.fast]])

        solo = solo_engine(game, scene.sender, chosen, HISTORY_RTTS)
        start = self.converge_rtts * scene.steps_per_rtt
        solo.advance(start)
        state = solo.snapshot()
        delays_s = queueing_delay_s(solo)
        solo.advance(game.n_steps)
        game.count(solo, start + game.n_steps)
        traces = [solo.trace(0), solo.trace(1)]
        link = _shared_link(game, traces, start, chosen, measured, pair, delays_s)

        trace = _play(game, state, start, link)
        differences = [float(np.abs(trace.S[:, i] - traces[i].S[start:, 0]).max()) for i in (0, 1)]
        window = trace.S[-1] - trace.S[game.first_row]
        throughputs = window / (scene.window_rtts * scene.path.flows[0].rtt_s)
        moved = max(1.0, float((trace.S[-1] - trace.S[0]).max()))
        pair_rows = [pair.slow, pair.fast]
        delta_max_s = float(max((measured.delay_max_s - measured.delay_min_s)[pair_rows]))
        preconditions: dict[str, Any] = {
            "deterministic": _deterministic(game, chosen, start),
            "efficient": bool((measured.efficiency[pair_rows] >= EFFICIENT).all()),
            "delay_bounding": bool(
                (measured.delay_max_s[pair_rows] < BOUNDED_SHARE * HISTORY_RTTS * scene.path.flows[0].rtt_s).all()
            ),
            "delay_convergent": bool((measured.drift_s[pair_rows] <= jitter_s / 4).all()),
            "D_above_2_delta_max": bool(jitter_s > 2 * delta_max_s),
            "ranges_within_half_D": bool(pair.interval_s < jitter_s / 2),
            "rates_differ_by_ratio": bool(
                measured.throughput_Bps[pair.fast] >= self.ratio * measured.throughput_Bps[pair.slow] * (1 - EXACT)
            ),
            "emulation_legal": link.early_bytes <= EXACT * moved and link.jitter_steps <= jitter_s / scene_dt_s(game),
            "emulation_exact": max(differences) <= EXACT * moved,
        }
        details: dict[str, Any] = {
            "ratio": float(throughputs[1] / max(throughputs[0], 1e-300)),
            "ratio_asked": self.ratio,
            "throughputs_mbps": [float(x * 8e-6) for x in throughputs],
            "C1_mbps": float(chosen[0] * 8e-6),
            "C2_mbps": float(chosen[1] * 8e-6),
            "shared_link_mbps": float(link.rate_Bps * 8e-6),
            "delta_max_ms": delta_max_s * 1e3,
            "interval_ms": pair.interval_s * 1e3,
            "D_ms": jitter_s * 1e3,
            "smallest_D_ms": link.jitter_steps * scene_dt_s(game) * 1e3,
            "initial_queue_ms": link.queue_bytes / link.rate_Bps * 1e3,
            "largest_difference_bytes": max(differences),
            "model": "cbr_delay",
            "rate_delay": _rate_delay(measured),
        }
        return Found(trace=trace, preconditions=preconditions, details=details)


def _ladder() -> np.ndarray:
    """Return the link rates on which convergence is measured, in units of the path's."""
    return np.asarray(2.0 ** np.arange(*LADDER_OCTAVES, np.log2(LADDER_STEP)))


def _rate_delay(measured: Converged) -> list[dict[str, float]]:
    """Return the measured map from link rates to delays and throughputs ([Starvation] Figure 3)."""
    columns = {
        "link_rate_mbps": measured.link_rate_Bps * 8e-6,
        "delay_min_ms": measured.delay_min_s * 1e3,
        "delay_max_ms": measured.delay_max_s * 1e3,
        "throughput_mbps": measured.throughput_Bps * 8e-6,
    }
    return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def scene_dt_s(game: Game) -> float:
    """Return the length of a step."""
    return game.scene.path.flows[0].rtt_s / game.scene.steps_per_rtt


def _choose(solo: Converged, ratio: float, jitter_s: float) -> _Pair:
    """Choose C1 and C2: throughputs apart by the ratio, delay ranges in the smallest common interval.

    Raises InputError if no two rates of the ladder are that far apart.
    """
    best: _Pair | None = None
    best_key = (True, np.inf)
    for slow in range(len(solo.link_rate_Bps)):
        for fast in range(slow + 1, len(solo.link_rate_Bps)):
            if solo.throughput_Bps[fast] < ratio * solo.throughput_Bps[slow]:
                continue
            interval = max(solo.delay_max_s[[slow, fast]]) - min(solo.delay_min_s[[slow, fast]])
            interval += max(solo.drift_s[[slow, fast]])
            key = (bool((solo.efficiency[[slow, fast]] < PREFERRED_EFFICIENCY).any()), interval)
            if key < best_key:
                best, best_key = _Pair(slow, fast, float(interval)), key
    if best is None:
        raise InputError(
            f"starvation: no two link rates from {solo.link_rate_Bps[0] * 8e-6:g} to {solo.link_rate_Bps[-1] * 8e-6:g} Mbit/s "
            f"have throughputs {ratio:g} times apart: the sender does not follow the link rate there, or the ratio is too large"
        )
    return best


def _shared_link(
    game: Game, traces: list[Trace], start: int, rates: np.ndarray, measured: Converged, pair: _Pair, delays_s: np.ndarray
) -> _Link:
    """Choose rate and initial queue of the shared link as in the proof, and compute the jitter."""
    jitter_s = game.scene.path.flows[0].jitter_s
    total = float(rates.sum())
    if min(measured.delay_min_s[[pair.slow, pair.fast]]) > jitter_s / 2:  # case 1: subtract delta_max + epsilon = D/2
        queue = max(0.0, float(delays_s @ rates) / total - jitter_s / 2) * total
        return _link(game, traces, start, total, queue)
    links = [_link(game, traces, start, total * faster, 0.0) for faster in FASTER_LINKS]
    moved = EXACT * max(1.0, float(traces[1].S[-1, 0] - traces[1].S[start, 0]))
    return next((link for link in links if link.early_bytes <= moved), links[-1])


def _link(game: Game, traces: list[Trace], start: int, rate_Bps: float, queue_bytes: float) -> _Link:
    """Compute the departures from a shared link in the order of arrival, and the jitter that emulates both deliveries."""
    entered = np.stack([trace.E[:, 0] for trace in traces], axis=1)
    total = entered.sum(axis=1)
    first = total[start] - queue_bytes
    left_total = np.concatenate(([first], departures(total[start + 1 :], rate_Bps * scene_dt_s(game), first)))
    jitter_steps = round(game.scene.path.flows[0].jitter_s / scene_dt_s(game))
    service, early_bytes, held_steps, departed = [], 0.0, 0.0, []
    for i, trace in enumerate(traces):
        departed_flow = np.interp(left_total, total, entered[:, i])
        emulation = emulate(departed_flow, trace.S[start:, 0], jitter_steps)
        service.append(emulation.service)
        departed.append(max(departed_flow[0], trace.S[start, 0]))
        early_bytes, held_steps = max(early_bytes, emulation.early_bytes), max(held_steps, emulation.jitter_steps)
    return _Link(rate_Bps, queue_bytes, np.array(departed), np.stack(service, axis=1), early_bytes, held_steps)


def _play(game: Game, state: Any, start: int, link: _Link) -> Trace:
    """Restore both flows on the shared link, play the jitter, and return the trace from there on."""
    scene = game.scene
    flow = scene.path.flows[0]
    path = ideal_path(scene.path, link.rate_Bps).model_copy(update={"flows": (flow, flow)})
    moves = np.ones((start + game.n_steps, 6))
    moves[start:, FIRST_SERVICE : FIRST_SERVICE + 2] = link.service
    moves[:, FIRST_SERVICE + 2 :] = 0.0
    engine = CurveEngine(
        [path],
        model="cbr_delay",
        senders=[scene.sender, scene.sender],
        adversary=RecordedAdversary("starvation", moves),
        steps_per_rtt=scene.steps_per_rtt,
        seed=scene.seed,
        history_rtts=HISTORY_RTTS,
        record=True,
    )
    tokens = float(sum(state.arrays["_flow"]["E"])) - link.queue_bytes
    join_flows(state, engine, tokens, link.departed_bytes)
    engine.advance(game.n_steps)
    game.count(engine, game.n_steps)
    return _from_row(engine.trace(0), start)


def _from_row(trace: Trace, row: int) -> Trace:
    """Return a trace from a row on, since the past of the flows was on other links."""
    rows = slice(row, None)
    header = trace.header.model_copy(update={"history": "free", "notes": "both flows converged alone before row 0"})
    arrays = {name: getattr(trace, name)[rows] for name in ("A", "L", "L_free", "S", "G", "rate_Bps", "cwnd_bytes")}
    rate = trace.link_rate_Bps[rows].copy()
    rate[0] = rate[1]
    return replace(
        trace, header=header, link_rate_Bps=rate, beliefs={name: b[rows] for name, b in trace.beliefs.items()}, **arrays
    )


def _deterministic(game: Game, rates: np.ndarray, steps: int) -> bool:
    """Return whether the sender behaves equally with other random numbers."""
    runs = []
    for seed in (None, game.scene.seed + 1):
        engine = solo_engine(game, game.scene.sender, rates, HISTORY_RTTS, seed=seed, record=False)
        engine.advance(steps)
        game.count(engine, steps)
        runs.append(engine.totals())
    return all(bool((runs[0][name] == runs[1][name]).all()) for name in ("A", "S"))


def search(ratio: float = 20.0, converge_rtts: int = 2000) -> Starvation:
    """Build the construction: target ratio of the two throughputs above 1, convergence within 10 to 100,000 Rm."""
    return Starvation(
        number("starvation", "ratio", ratio, above=1, high=1e6),
        int(number("starvation", "converge_rtts", converge_rtts, low=10, high=100_000, whole=True)),
    )
