"""Random periodic patterns: what any cleverer search must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.adversaries.search.game import CHUNK, Found, Game, generator
from ccenv.adversaries.search.patterns import affordable, periods_rtts
from ccenv.adversary import RecordedAdversary


@dataclass(frozen=True)
class RandomSearch:
    """Draw patterns of 1-4 Rm, half of them uniform in [0, 1], half of zeros and ones; keep the worst."""

    weight: float = 1.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst of as many patterns as the budget allows."""
        draw = generator(seed, "random_search")
        periods = periods_rtts(game)
        left = affordable(game, budget_flow_steps, "random_search")
        best, best_moves, best_period, tried = np.inf, np.empty(0), 0, 0
        while left > 0:
            period = periods[tried // CHUNK % len(periods)]
            n = min(left, CHUNK)
            values = draw.random((n, period * game.scene.steps_per_rtt, len(game.open_moves)))
            values[::2] = np.round(values[::2])
            moves = game.moves(values)
            utilisation = game.play(moves)
            worst = int(np.argmin(utilisation))
            if utilisation[worst] < best:
                best, best_moves, best_period = float(utilisation[worst]), moves[worst].copy(), period
            left, tried = left - n, tried + n
        return Found(RecordedAdversary("random_search", best_moves), details={"period_rtts": best_period, "tried": tried})


def search() -> RandomSearch:
    """Build the search."""
    return RandomSearch()
