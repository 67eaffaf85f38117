"""Cross-entropy search over the open numbers of a template (Rubinstein 1999), for any objective of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.agents.programs import Program
from ccenv.training.distill.tree import Template, build, initial_spread

Judge = Callable[[Sequence[Program]], np.ndarray]
ELITE_SHARE = 0.2
SMALLEST_SPREAD = 0.05  # share of the first spread; keeps the grid within reach to the end
WIDENING = 1.1


@dataclass(frozen=True)
class Polished:
    """The best program of a search, and the mean of its last distribution."""

    numbers: np.ndarray
    program: Program
    value: float
    mean: np.ndarray


def polish(
    template: Template,
    start: np.ndarray,
    judge: Judge,
    *,
    name: str,
    source: str = "",
    seed: int = 0,
    generations: int = 14,
    population: int = 40,
    reach: float = 1.0,
    report: Callable[[int, float], None] | None = None,
) -> Polished:
    """Search the numbers of a template with the highest value, beginning with ``start``.

    ``judge`` returns values of programs, larger is better, and must be deterministic. ``population`` is the number of programs
    per generation, ``reach`` a factor on the first spread; ``report`` gets the generation and the best value so far.
    """
    rng = np.random.default_rng(seed)
    first = initial_spread(template) * reach
    mean, deviation = start.astype(float), first.copy()
    best_numbers, best_value = mean, -np.inf
    for generation in range(generations):
        tried = mean + deviation * rng.standard_normal((population, len(mean)))
        tried[0] = mean
        tried[1] = best_numbers
        values = judge([build(template, numbers, name, source) for numbers in tried])
        order = np.argsort(-values, kind="stable")
        if values[order[0]] > best_value:
            best_numbers, best_value = tried[order[0]], float(values[order[0]])
        elite = tried[order[: max(2, round(ELITE_SHARE * population))]]
        mean = elite.mean(axis=0)
        deviation = np.maximum(WIDENING * elite.std(axis=0), SMALLEST_SPREAD * first)
        if report is not None:
            report(generation, best_value)
    return Polished(best_numbers, build(template, best_numbers, name, source), best_value, mean)
