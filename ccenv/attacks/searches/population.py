"""Population searches over periodic patterns of moves: cross-entropy method and CMA-ES, with several shapes sharing a budget.

A pattern is a point of [0, 1]^n: one number per open choice and step, or part of an Rm, repeated with a period of 1 to 4 Rm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.patterns import Shape, affordable, constants, shapes
from ccenv.base.errors import require_extra
from ccenv.base.registry import number
from ccenv.network.adversary import RecordedAdversary

CMA_FIRST_DEVIATION = 0.35
PULL = 0.3  # from the corner to the middle


ShapeT = TypeVar("ShapeT")


def restart_cma(
    shapes: Sequence[ShapeT],
    runs: int,
    most: int,
    *,
    first: Callable[[ShapeT], np.ndarray],
    deviation: float,
    play: Callable[[ShapeT, np.ndarray], np.ndarray],
    draw: np.random.Generator,
    options: Mapping[str, Any],
) -> tuple[float, ShapeT, np.ndarray, int]:
    """Restart CMA-ES through shapes, in their order, with at most so many runs, and ``most`` of them per generation.

    Return the lowest outcome (infinite if nothing was played), its shape and its point, and the number of restarts.

    ``first`` (n,) is where a shape begins, ``play`` returns the outcomes of its points (runs, n), ``options`` are further ones of
    the library, which draws our random numbers and prints nothing.
    """
    require_extra("cma", "attack")
    import cma

    best, best_shape, best_point = np.inf, shapes[0], np.zeros(len(first(shapes[0])))
    left, restarts = runs, 0
    while left > 1:
        shape = shapes[restarts % len(shapes)]
        allowed = max(2, left // max(1, len(shapes) - restarts))
        population = min(most, allowed)
        numbers = {"popsize": population, "seed": np.nan, "randn": lambda n, m: draw.standard_normal((n, m))}
        strategy = cma.CMAEvolutionStrategy(first(shape), deviation, {**numbers, "verbose": -9, **options})
        used = 0
        while used + population <= allowed and not strategy.stop():
            points = strategy.ask()
            outcome = play(shape, np.array(points))
            strategy.tell(points, outcome.tolist())
            used += population
            lowest = int(np.argmin(outcome))
            if outcome[lowest] < best:
                best, best_shape, best_point = float(outcome[lowest]), shape, np.array(points[lowest])
        left -= used
        restarts += 1
        if used == 0:
            break
    return best, best_shape, best_point, restarts


@dataclass(frozen=True)
class CmaEs:
    """CMA-ES (Hansen: The CMA Evolution Strategy: A Tutorial, arXiv 1604.00772), with the library ``cma``.

    Restarts go through the shapes of patterns, coarse ones first. Each begins at the worst constant corner, pulled a little to
    the middle, because the landscape is flat around most patterns. Unlike the cross-entropy method it learns how the moves of a
    pattern depend on each other. ``population`` counts patterns per generation.
    """

    population: int
    weight: float = 2.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        draw = generator(seed, "cma_es")
        runs = affordable(game, budget_flow_steps, "cma_es")
        start = constants(game, (0.0, 1.0))[:runs]
        outcome = game.play(game.moves(start))
        worst = int(np.argmin(outcome))
        best_values, best_shape = start[worst], Shape(1, 1)
        corner = start[worst][0]

        def values(shape: Shape, points: np.ndarray) -> np.ndarray:
            clipped: np.ndarray = np.clip(points, 0.0, 1.0)
            return clipped.reshape(-1, shape.n_values, len(corner))

        best, shape, point, restarts = restart_cma(
            [shape for shape in shapes(game) if shape.n_values * len(corner) > 1],  # the library needs two dimensions
            runs - len(start),
            self.population,
            first=lambda shape: np.tile(corner + PULL * (0.5 - corner), shape.n_values),
            deviation=CMA_FIRST_DEVIATION,
            play=lambda shape, points: game.play(shape.moves(game, values(shape, points))),
            draw=draw,
            options={"bounds": [0.0, 1.0], "CMA_diagonal": False},
        )
        if best < outcome[worst]:
            best_values, best_shape = values(shape, point)[0], shape
        details = {**asdict(best_shape), "restarts": restarts, "population": self.population}
        return Found(RecordedAdversary("cma_es", best_shape.moves(game, best_values[None])[0]), details=details)


def search_cma_es(population: int = 64) -> CmaEs:
    """Build the search with 4 to 1024 patterns per generation."""
    return CmaEs(int(number("cma_es", "population", population, low=4, high=1024, whole=True)))


LEAST_GENERATIONS = 64  # with fewer, populations are smaller
SMALLEST_POPULATION = 32
LAST = 2  # distributions that are not dropped
SMOOTHING = 0.8


@dataclass
class Normal:
    """Cross-entropy search over one shape (patterns of a period, policies of a size), by a normal distribution per number.

    Rubinstein, Kroese: The Cross-Entropy Method, 2004, algorithm 4.2: points are drawn and clipped, and the next mean and
    deviation are those of the elite.
    """

    mean: np.ndarray
    deviation: np.ndarray
    play: Callable[[np.ndarray], np.ndarray]  # outcomes of several points, lower is worse for the sender: (n, *shape) to (n,)
    least_deviation: float  # keeps exploring
    limits: tuple[float, float]  # points are clipped to them
    opening: Callable[[np.ndarray], np.ndarray] | None = None  # the first generation from its random points; None: as drawn
    smoothing: float = SMOOTHING  # weight of the new elite in mean and deviation
    keeps_best: bool = True  # later generations hold the best point so far
    best: float = np.inf  # lowest outcome so far, at `best_values`
    best_values: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.best_values = self.mean.copy()

    def generation(self, population: int, elite: int, draw: np.random.Generator) -> None:
        """Draw, play, and move towards the elite."""
        noise = draw.standard_normal((population, *self.mean.shape))
        values = np.clip(self.mean + self.deviation * noise, *self.limits)
        if np.isinf(self.best):
            values = values if self.opening is None else self.opening(values)
        elif self.keeps_best:
            values[0] = self.best_values
        outcome = self.play(values)
        order = np.argsort(outcome, kind="stable")
        if outcome[order[0]] < self.best:
            self.best, self.best_values = float(outcome[order[0]]), values[order[0]].copy()
        chosen = values[order[:elite]]
        self.mean = (1 - self.smoothing) * self.mean + self.smoothing * chosen.mean(axis=0)
        spread = (1 - self.smoothing) * self.deviation + self.smoothing * chosen.std(axis=0)
        self.deviation = np.maximum(self.least_deviation, spread)


def choose_population(runs: int, most: int) -> int:
    """Return the number of points per generation for a number of runs in all."""
    return min(most, runs, max(SMALLEST_POPULATION, runs // LEAST_GENERATIONS))


def choose_elite(population: int, share: float) -> int:
    """Return the number of points of a generation to which the next one is fitted."""
    return max(2, round(share * population)) if population > 1 else 1


def halve(everyone: Sequence[Normal], generations: int, population: int, elite: int, draw: np.random.Generator) -> int:
    """Play generations by successive halving and return the index of the distribution with the lowest outcome.

    All distributions play an equal part, the worse half is dropped, and so on down to LAST (Karnin, Koren, Somekh, ICML 2013,
    algorithm 3).
    """
    alive, left = list(everyone), generations
    rounds = 1 + max(0, math.ceil(math.log2(len(alive) / LAST)))
    while left > 0:
        of_round = max(1, generations // rounds // len(alive)) * len(alive) if len(alive) > LAST else left
        for played in range(min(of_round, left)):
            alive[played % len(alive)].generation(population, elite, draw)
        left -= min(of_round, left)
        alive = sorted(alive, key=lambda one: one.best)[: max(LAST, len(alive) // 2)]
    return min(range(len(everyone)), key=lambda i: everyone[i].best)


FIRST_DEVIATION = 0.5
SMALLEST_DEVIATION = 0.02


def _make_distribution(game: Game, shape: Shape) -> Normal:
    size = (shape.n_values, len(game.open_moves))

    def opening(values: np.ndarray) -> np.ndarray:
        values[::2] = np.round(values[::2])
        constant_points = np.repeat(constants(game), shape.n_values, axis=1)[: len(values)]
        values[: len(constant_points)] = constant_points
        return values

    def play(values: np.ndarray) -> np.ndarray:
        return game.play(shape.moves(game, values))

    return Normal(np.full(size, 0.5), np.full(size, FIRST_DEVIATION), play, SMALLEST_DEVIATION, (0.0, 1.0), opening)


@dataclass(frozen=True)
class Cem:
    """Cross-entropy method over patterns of several shapes, by successive halving.

    The first generation contains the constants, because a free search per step misses them, and patterns of zeros and ones.
    """

    population: int = 256  # most patterns per generation
    elite_share: float = 0.1  # share of a generation to which the next one is fitted
    weight: float = 4.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        draw = generator(seed, "cem")
        runs = affordable(game, budget_flow_steps, "cem")
        population = choose_population(runs, self.population)
        all_shapes = shapes(game)
        arms = [_make_distribution(game, shape) for shape in all_shapes]
        generations = runs // population
        winner = halve(arms, generations, population, choose_elite(population, self.elite_share), draw)
        details = {**asdict(all_shapes[winner]), "generations": generations, "population": population}
        moves = all_shapes[winner].moves(game, arms[winner].best_values[None])[0]
        return Found(RecordedAdversary("cem", moves), details=details)


def search_cem(population: int = 256, elite_share: float = 0.1) -> Cem:
    """Build the search: at most 4 to 4096 patterns per generation; the next one is fitted to a share in (0, 0.5]."""
    return Cem(
        int(number("cem", "population", population, low=4, high=4096, whole=True)),
        number("cem", "elite_share", elite_share, above=0, high=0.5),
    )
