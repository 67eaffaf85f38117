"""Theorems 1 and 3 of [Starvation].

Theorem 1 (s.4.3, App. A): of two flows of one delay-convergent CCA one starves.

1. Measure, on ideal links of many rates C, the range of delays [d_min(C), d_max(C)] to which the CCA converges. Choose C1 and C2
   whose throughputs differ by the ratio s and whose ranges lie within an interval shorter than D/2.
2. Run the CCA alone on C1 and on C2 until it has converged, and record the deliveries from there on.
3. Put both flows, with their states, on one link of rate C1 + C2 with a chosen queue. The jitter of each flow (at most D)
   reproduces the deliveries of its own link. A deterministic sender cannot tell the difference, so both continue for ever.

Theorem 3 (s.6.5, App. B): in the `strong` model every deterministic, efficient, delay-bounding CCA starves. Trace 1 is the CCA
alone on an ideal link of rate C, with queueing delays d_1(t). Trace n + 1 is the CCA alone where a byte that arrives at t waits
max(0, d_n(t) - D), which the network achieves by varying the link rate. After Q/D traces the delay is zero, and an efficient
CCA's throughput must grow without bound. So the throughputs of some two neighbours differ by the target ratio. Those two then
share one queue with the delays of the second, which gets no jitter; the first gets the difference, at most D. Neither can tell
that it is not alone. No initial state is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ccenv.attacks.constructions.convergence import (
    Converged,
    ideal_path,
    join_flows,
    lift_receive_window,
    measure_convergence,
    queueing_delay_s,
    solo_engine,
)
from ccenv.attacks.constructions.slow_link import departures, emulate
from ccenv.attacks.game import Found, Game
from ccenv.base.errors import InputError
from ccenv.base.registry import number
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import ExternalAdversary, RecordedAdversary
from ccenv.network.path import Path
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
    """A shared link, its departures before the start, and the moves of the delay elements."""

    rate_Bps: float
    queue_bytes: float  # waiting in it at the start
    departed_bytes: np.ndarray  # (2,) P_i at the start
    service: np.ndarray  # (steps, 2) moves
    early_bytes: float  # most by which a delivery would be ahead of the departure
    jitter_steps: float  # smallest D that suffices


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
    """The construction of theorem 3 for a ratio of throughputs, with traces of at most ``rtts`` Rm."""

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


def search_strong(ratio: float = 20.0, rtts: int = 400) -> StrongStarvation:
    """Build the construction: target ratio of the two throughputs above 1, traces of at most 10 to 10,000 Rm."""
    return StrongStarvation(
        number("strong_starvation", "ratio", ratio, above=1, high=1e6),
        int(number("strong_starvation", "rtts", rtts, low=10, high=10_000, whole=True)),
    )
