"""Periodic patterns of moves: their shapes, the runs that a budget allows, and two plain searches, constants and random ones.

Constants are the worst known adversaries of several senders, and per-step searches miss them (docs/adversaries.md); random
patterns are the baseline of every other search.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass

import numpy as np

from ccenv.attacks.game import CHUNK, Found, Game, generator
from ccenv.base.errors import InputError
from ccenv.network.adversary import RecordedAdversary

PERIODS_RTTS = (1, 2, 3, 4)
PROOF_PERIODS_RTTS = (2, 4, 7, 12, 20, 30)  # with one step per Rm, patterns of 1-4 steps are few
VALUES_PER_RTT = (1, 2, 4)  # and one per step


@dataclass(frozen=True)
class Shape:
    """A pattern's shape; coarse ones hold moves for long, fine ones time them well."""

    period_rtts: int  # period in Rm
    values_per_rtt: int  # values per Rm and move, each held for an equal part of the Rm as far as the grid allows

    @property
    def n_values(self) -> int:
        return self.period_rtts * self.values_per_rtt

    def moves(self, game: Game, values: np.ndarray) -> np.ndarray:
        """Return complete moves (B, n_steps, 2 + 2 N) from patterns (B, n_values, number of open moves)."""
        K = game.scene.steps_per_rtt
        return game.moves(values[:, np.arange(self.period_rtts * K) * self.values_per_rtt // K])


def periods_rtts(game: Game) -> tuple[int, ...]:
    """Return the periods that are tried, in Rm."""
    return PROOF_PERIODS_RTTS if game.scene.timing == "smt" else PERIODS_RTTS


def shapes(game: Game) -> list[Shape]:
    """Return the shapes that are tried: every period, from one value per Rm to one per step."""
    K = game.scene.steps_per_rtt
    densities = sorted({min(number, K) for number in (*VALUES_PER_RTT, K)})
    return [Shape(period, density) for density in densities for period in periods_rtts(game)]


def affordable(game: Game, budget_flow_steps: int, name: str) -> int:
    """Return the number of runs that a budget allows. Raises InputError for less than one."""
    of_run = game.run_flow_steps
    runs = budget_flow_steps // of_run
    if runs < 1:
        raise InputError(
            f"adversary {name!r} has a budget of {budget_flow_steps} flow-steps, one run takes {of_run}: raise the budget"
        )
    return runs


LEVELS = (0.0, 0.5, 1.0)


def constants(game: Game, levels: tuple[float, ...] = LEVELS) -> np.ndarray:
    """Return all constant patterns, shape (n, 1, open moves); the extreme ones first."""
    points = sorted(itertools.product(levels, repeat=len(game.open_moves)), key=lambda p: sum(x not in (0.0, 1.0) for x in p))
    return np.array(points)[:, None, :]


class Corners:
    """Plays all constant moves: combinations of LEVELS of the open choices."""

    weight = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost."""
        return int(len(LEVELS) ** len(game.open_moves)) * game.run_flow_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        patterns = constants(game)
        moves = game.moves(patterns)
        utilisation = game.play(moves)
        worst = int(np.argmin(utilisation))
        values = dict(zip(game.open_names, patterns[worst, 0].tolist(), strict=True))
        return Found(RecordedAdversary("corners", moves[worst]), details={"moves": values, "tried": len(patterns)})


class RandomSearch:
    """Draws patterns of 1-4 Rm and all shapes, half of them uniform in [0, 1], half of zeros and ones, and keeps the worst."""

    weight = 1.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        draw = generator(seed, "random_search")
        all_shapes = shapes(game)
        left = affordable(game, budget_flow_steps, "random_search")
        best, best_moves, best_shape, tried = np.inf, np.empty(0), all_shapes[0], 0
        while left > 0:
            shape = all_shapes[tried // CHUNK % len(all_shapes)]
            n = min(left, CHUNK)
            values = draw.random((n, shape.n_values, len(game.open_moves)))
            values[::2] = np.round(values[::2])
            moves = shape.moves(game, values)
            utilisation = game.play(moves)
            worst = int(np.argmin(utilisation))
            if utilisation[worst] < best:
                best, best_moves, best_shape = float(utilisation[worst]), moves[worst].copy(), shape
            left, tried = left - n, tried + n
        return Found(RecordedAdversary("random_search", best_moves), details=asdict(best_shape) | {"tried": tried})
