"""Random periodic patterns: what any cleverer search must beat."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ccenv.attacks.game import CHUNK, Found, Game, generator
from ccenv.attacks.searches.patterns import affordable, shapes
from ccenv.network.adversary import RecordedAdversary


@dataclass(frozen=True)
class RandomSearch:
    """Draw patterns of 1-4 Rm and all shapes, half of them uniform in [0, 1], half of zeros and ones; keep the worst."""

    weight: float = 1.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst of as many patterns as the budget allows."""
        draw = generator(seed, "random_search")
        every = shapes(game)
        left = affordable(game, budget_flow_steps, "random_search")
        best, best_moves, best_shape, tried = np.inf, np.empty(0), every[0], 0
        while left > 0:
            shape = every[tried // CHUNK % len(every)]
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


def search() -> RandomSearch:
    """Build the search."""
    return RandomSearch()
