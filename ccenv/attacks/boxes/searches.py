"""Searches over the moves of delay elements: constants, periodic patterns, patterns of two phases, small policies.

``cem`` is the cross-entropy method (Rubinstein, Kroese: The Cross-Entropy Method, 2004, algorithm 4.2); ``two_phase`` and
``policy_cem`` apply it to their parameters, and several shapes share the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.adversary import ScriptedAdversary
from ccenv.simulation.boxes.game import BoxGame
from ccenv.simulation.boxes.players import (
    INPUTS,
    KIND,
    MIDDLE,
    PATTERN,
    PATTERN_VALUES,
    PHASE_VALUES,
    PHASES,
    POLICY,
    BoxPlayer,
    BoxPolicy,
    Pattern,
    TwoPhases,
)

CONSTANTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
PERIODS_RTTS = (1, 2, 4)
POPULATION, ELITE_SHARE, SMOOTHING, FIRST_STD, LEAST_STD = 32, 0.2, 0.7, 0.4, 0.02
POLICY_STD = (0.5, 1.0, 1.0, 0.3, 0.5, 1.0)  # of the weights of INPUTS at first

Build = Callable[[np.ndarray], BoxPlayer]


class BoxSearch(NamedTuple):
    """A search: the adversary of its delay elements, and a function of game, number of runs and random numbers."""

    adversary: ScriptedAdversary
    run: Callable[[BoxGame, int, np.random.Generator], BoxPlayer]


def search(game: BoxGame, name: str, runs: int, seed: int) -> BoxPlayer:
    """Return the worst adversary that a search finds in so many runs. Raises InputError for less than one run."""
    if runs < 1:
        raise InputError(f"adversary {name!r} has a budget below one run of {game.steps_of_run} flow-steps: raise the budget")
    return SEARCHES[name].run(game, runs, np.random.Generator(np.random.Philox(key=[seed, 1])))


def _corners(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    patterns = [Pattern((share,)) for share in CONSTANTS][:runs]
    return patterns[int(np.argmin(game.play(patterns)))]


def _cem(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    def build(hold_ticks: int) -> Build:
        return lambda row: Pattern(tuple(row.tolist()), hold_ticks)

    shapes = _shapes(game.ticks_of_rtt)
    return _share(game, runs, rng, [(build(hold), np.full(n, 0.5), np.full(n, FIRST_STD), True) for n, hold in shapes])


def _two_phase(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    """Search patterns of whole RTTs, as far as ticks allow, and the time of the switch."""

    def build(n: int, hold_ticks: int) -> Build:
        def of(row: np.ndarray) -> BoxPlayer:
            switch = round(float(row[0]) * game.ticks_of_run)
            return TwoPhases(tuple(row[1 : 1 + n].tolist()), tuple(row[1 + n :].tolist()), hold_ticks, switch)

        return of

    arms = []
    for period in PERIODS_RTTS:
        ticks = period * game.ticks_of_rtt
        hold = -(-ticks // PHASE_VALUES)
        n = max(1, round(ticks / hold))
        arms.append((build(n, hold), np.full(1 + 2 * n, 0.5), np.full(1 + 2 * n, FIRST_STD), True))
    return _share(game, runs, rng, arms)


def _policy_cem(game: BoxGame, runs: int, rng: np.random.Generator) -> BoxPlayer:
    def build(hold_ticks: int) -> Build:
        return lambda row: BoxPolicy(tuple(row.tolist()), hold_ticks, game.end_s)

    mean = np.zeros(len(INPUTS))
    mean[0] = MIDDLE
    holds = list(dict.fromkeys((1, max(1, game.ticks_of_rtt // 2), game.ticks_of_rtt)))
    return _share(game, runs, rng, [(build(hold), mean, np.array(POLICY_STD), False) for hold in holds])


SEARCHES: Mapping[str, BoxSearch] = {
    "corners": BoxSearch(PATTERN, _corners),
    "cem": BoxSearch(PATTERN, _cem),
    "two_phase": BoxSearch(PHASES, _two_phase),
    "policy_cem": BoxSearch(POLICY, _policy_cem),
}
"""All searches by name, in the panel's order."""
PATTERN_SEARCHES = tuple(name for name, one in SEARCHES.items() if one.adversary is PATTERN)
"""Searches for periodic patterns, against which robust rounds train."""


def _shapes(ticks_of_rtt: int) -> list[tuple[int, int]]:
    """Return lengths and holds of patterns that repeat after whole RTTs, as far as ticks allow; the finest last."""
    shapes = []
    for period in PERIODS_RTTS:
        ticks = period * ticks_of_rtt
        hold = -(-ticks // PATTERN_VALUES)
        shapes.append((max(2, round(ticks / hold)), hold))
    return list(dict.fromkeys(shapes))


def _share(
    game: BoxGame, runs: int, rng: np.random.Generator, arms: Sequence[tuple[Build, np.ndarray, np.ndarray, bool]]
) -> BoxPlayer:
    """Share the runs among shapes and return the worst of all. An arm: builder, mean, deviation, whether in [0, 1]."""
    best: BoxPlayer = KIND
    worst = np.inf
    arms_tried = arms[: max(1, runs // POPULATION)]
    for build, first_mean, first_std, bounded in arms_tried:
        mean, std = first_mean, first_std
        population = min(POPULATION, max(1, runs // len(arms_tried)))
        for _ in range(max(1, runs // len(arms_tried) // population)):
            drawn = mean + std * rng.standard_normal((population, len(mean)))
            drawn = np.clip(drawn, 0.0, 1.0) if bounded else drawn
            players = [build(row) for row in drawn]
            outcome = game.play(players)
            order = np.argsort(outcome, kind="stable")
            if outcome[order[0]] < worst:
                best, worst = players[order[0]], float(outcome[order[0]])
            elite = drawn[order[: max(2, round(ELITE_SHARE * population))]]
            mean = (1 - SMOOTHING) * mean + SMOOTHING * elite.mean(axis=0)
            std = np.maximum((1 - SMOOTHING) * std + SMOOTHING * elite.std(axis=0), LEAST_STD)
    return best
