"""Evolution of path and moves together, with novelty.

A candidate is a path near the given one (link rate, D, buffer) and a periodic pattern of moves. Each generation keeps those that
hurt most and those with the most novel behaviour (Lehman, Stanley: Abandoning Objectives, Evolutionary Computation 2011: mean
distance to the nearest neighbours in an archive of behaviours), so that the result is not one failure but several different ones.
Behaviour: utilisation, mean queue, loss, and the position in the range of paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.attacks.game import CHUNK, Found, Game, generator
from ccenv.attacks.searches.patterns import affordable, periods_rtts
from ccenv.base.registry import number
from ccenv.engine.curve.path_arrays import PathArrays
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.path import Path

RATE_OCTAVES = 2.0  # the link rate varies by so many factors of 2 each way
BUFFER_OCTAVES = 3.0
NEIGHBOURS = 8  # of the novelty measure
NOVEL_SHARE = 0.5  # of the parents chosen for novelty
MUTATED_SHARE = 0.15  # of the moves of a child drawn anew
PATH_DEVIATION = 0.1  # of a mutation of the path's genes
GENES = 3  # link rate, D, buffer: each in [0, 1]
REPORTED = 5  # different failures in the details
LEAST_DISTANCE = 0.2  # between two of them


@dataclass
class _Scenarios:
    """A population."""

    genes: np.ndarray  # (n, GENES)
    period: np.ndarray  # (n,) index into the periods that are tried
    values: np.ndarray  # (n, longest period, open moves)

    def take(self, rows: np.ndarray) -> _Scenarios:
        return _Scenarios(self.genes[rows].copy(), self.period[rows].copy(), self.values[rows].copy())

    def join(self, other: _Scenarios) -> _Scenarios:
        pairs = ((self.genes, other.genes), (self.period, other.period), (self.values, other.values))
        genes, period, values = (np.concatenate(pair) for pair in pairs)
        return _Scenarios(genes, period, values)


@dataclass(frozen=True)
class Evolution:
    """The search, with ``population`` scenarios per generation."""

    population: int
    weight: float = 4.0

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost of the smallest generation, two scenarios."""
        return 2 * game.run_flow_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst scenario, with other different failures in the details."""
        game.require_one_flow("evolution")
        draw = generator(seed, "evolution")
        runs = affordable(game, budget_flow_steps, "evolution")
        size = min(self.population, max(2, runs))
        pool = _draw_scenarios(game, draw, size)
        behaviour = _measure_behaviour(game, pool)
        archive, tried = behaviour.copy(), size
        while tried + size <= runs:
            # One parent per child; the better half by either measure has two children.
            parents = np.resize(_select_survivors(behaviour, archive, max(1, size // 2)), size)
            children = _make_children(game, draw, pool.take(parents))
            outcome = _measure_behaviour(game, children)
            archive = np.concatenate((archive, outcome[_measure_novelty(outcome, archive) > LEAST_DISTANCE / 2]))
            candidates, behaviours = pool.join(children), np.concatenate((behaviour, outcome))
            survivors = _select_survivors(behaviours, archive, size)
            pool, behaviour = candidates.take(survivors), behaviours[survivors]
            tried += size
        order = np.argsort(behaviour[:, 0], kind="stable")
        worst = int(order[0])
        path = _make_path(game, pool.genes[worst])
        trace = _record_trace(game, pool, worst, path)
        details = {"tried": tried, "different_failures": _list_failures(game, pool, behaviour, order)}
        return Found(trace=trace, details=details)


def _draw_scenarios(game: Game, draw: np.random.Generator, n: int) -> _Scenarios:
    length = max(periods_rtts(game)) * game.scene.steps_per_rtt
    values = draw.random((n, length, len(game.open_moves)))
    values[::2] = np.round(values[::2])
    return _Scenarios(draw.random((n, GENES)), draw.integers(0, len(periods_rtts(game)), n), values)


def _make_children(game: Game, draw: np.random.Generator, parents: _Scenarios) -> _Scenarios:
    """Return one mutated child per parent; some take the moves of the next parent from a random step on."""
    n, length, _ = parents.values.shape
    genes = np.clip(parents.genes + PATH_DEVIATION * draw.standard_normal(parents.genes.shape), 0.0, 1.0)
    crossed = draw.random((n, 1)) < 0.5
    from_other = crossed & (np.arange(length) >= draw.integers(0, length, (n, 1)))
    values = np.where(from_other[:, :, None], np.roll(parents.values, 1, axis=0), parents.values)
    new = draw.random(values.shape)
    new = np.where(draw.random(values.shape) < 0.5, np.round(new), new)
    values = np.where(draw.random(values.shape) < MUTATED_SHARE, new, values)
    other_period = draw.random(size=n) < MUTATED_SHARE
    period = np.where(other_period, draw.integers(0, len(periods_rtts(game)), n), parents.period)
    return _Scenarios(genes, period, values)


def _make_path(game: Game, genes: np.ndarray) -> Path:
    """Return the path of a scenario, with D in whole steps between one and twice the given one."""
    base = game.scene.path
    dt_s = base.flows[0].rtt_s / game.scene.steps_per_rtt
    rate = base.link_rate_Bps * 2.0 ** (RATE_OCTAVES * (2 * genes[0] - 1))
    most = max(1, round(2 * base.flows[0].jitter_s / dt_s))
    jitter_s = (1 + round(genes[1] * (most - 1))) * dt_s
    buffer_bdp = base.buffer_bytes / base.bdp_bytes * 2.0 ** (BUFFER_OCTAVES * (2 * genes[2] - 1))
    flow = base.flows[0].model_copy(update={"jitter_s": jitter_s})
    return base.model_copy(
        update={"link_rate_Bps": rate, "buffer_bytes": buffer_bdp * rate * flow.rtt_s, "flows": (flow,)},
    )


def _expand_moves(game: Game, pool: _Scenarios, rows: np.ndarray) -> np.ndarray:
    moves = np.empty((len(rows), game.n_steps, 4))
    for i, row in enumerate(rows):
        length = periods_rtts(game)[int(pool.period[row])] * game.scene.steps_per_rtt
        moves[i] = game.moves(pool.values[row : row + 1, :length])[0]
    return moves


def _measure_behaviour(game: Game, pool: _Scenarios) -> np.ndarray:
    """Return the behaviour of each scenario: utilisation first, (n, 3 + GENES), each about in [0, 1]."""
    parts = []
    for first in range(0, len(pool.genes), CHUNK):
        rows = np.arange(first, min(first + CHUNK, len(pool.genes)))
        arrays = PathArrays.from_paths([_make_path(game, pool.genes[row]) for row in rows], game.scene.steps_per_rtt)
        run = game.play_paths(_expand_moves(game, pool, rows), arrays)
        loss = np.minimum(1.0, run["lost"] / np.maximum(run["sent"], 1.0))
        queue = run["queue_bdp"] / (1.0 + run["queue_bdp"])
        parts.append(np.column_stack([np.minimum(1.0, run["outcome"]), queue, loss, pool.genes[rows]]))
    return np.concatenate(parts)


def _measure_novelty(behaviour: np.ndarray, archive: np.ndarray) -> np.ndarray:
    """Return the mean distance to the nearest neighbours in the archive."""
    distance = np.sqrt(((behaviour[:, None, :] - archive[None, :, :]) ** 2).sum(axis=2))
    nearest = np.sort(distance, axis=1)[:, : min(NEIGHBOURS, len(archive))]
    return np.asarray(nearest.mean(axis=1))


def _select_survivors(behaviour: np.ndarray, archive: np.ndarray, size: int) -> np.ndarray:
    """Return the surviving rows: half for low utilisation, half for novelty."""
    worst = np.argsort(behaviour[:, 0], kind="stable")
    rows = list(worst[: size - int(NOVEL_SHARE * size)])
    novel = np.argsort(-_measure_novelty(behaviour, archive), kind="stable")
    rows += [row for row in novel if row not in set(rows)][: size - len(rows)]
    return np.array(rows)


def _record_trace(game: Game, pool: _Scenarios, row: int, path: Path) -> Any:
    moves = _expand_moves(game, pool, np.array([row]))[0]
    arrays = PathArrays.from_paths([path], game.scene.steps_per_rtt)
    engine = game.engine(RecordedAdversary("evolution", moves), 1, record=True, paths=arrays)
    engine.advance(game.n_steps)
    return engine.trace(0)


def _list_failures(game: Game, pool: _Scenarios, behaviour: np.ndarray, order: np.ndarray) -> list[dict[str, float | None]]:
    """Return the worst scenarios that differ from each other; ``buffer_bdp`` is None for an infinite buffer."""
    chosen: list[int] = []
    for row in order:
        if all(np.abs(behaviour[row] - behaviour[other]).max() > LEAST_DISTANCE for other in chosen):
            chosen.append(int(row))
        if len(chosen) == REPORTED:
            break
    out: list[dict[str, float | None]] = []
    for row in chosen:
        path = _make_path(game, pool.genes[row])
        out.append(
            {
                "utilisation": float(behaviour[row, 0]),
                "loss": float(behaviour[row, 2]),
                "link_rate_mbps": path.link_rate_Bps * 8e-6,
                "jitter_rtts": path.flows[0].jitter_s / path.flows[0].rtt_s,
                "buffer_bdp": float(path.buffer_bytes / path.bdp_bytes) if np.isfinite(path.buffer_bytes) else None,
                "period_rtts": float(periods_rtts(game)[int(pool.period[row])]),
            }
        )
    return out


def search(population: int = 128) -> Evolution:
    """Build the search with 4 to 2048 scenarios per generation."""
    return Evolution(int(number("evolution", "population", population, low=4, high=2048, whole=True)))
