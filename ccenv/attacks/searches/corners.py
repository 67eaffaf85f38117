"""Constant moves: every combination of 0 and 1 of the open choices, and of 1/2 where it is cheap.

Measured in docs/adversaries.md: constants are the worst that is known for several senders, and per-step searches miss them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import Found, Game
from ccenv.network.adversary import RecordedAdversary

LEVELS = (0.0, 0.5, 1.0)


def constants(game: Game, levels: tuple[float, ...] = LEVELS) -> np.ndarray:
    """Return all constant patterns, shape (n, 1, open moves); the extreme ones first."""
    points = sorted(itertools.product(levels, repeat=len(game.open_moves)), key=lambda p: sum(x not in (0.0, 1.0) for x in p))
    return np.array(points)[:, None, :]


@dataclass(frozen=True)
class Corners:
    """Play all constant moves."""

    weight: float = 0.0

    def least_flow_steps(self, game: Game) -> int:
        """Return what it takes."""
        return int(len(LEVELS) ** len(game.open_moves)) * game.run_flow_steps

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst constant."""
        patterns = constants(game)
        moves = game.moves(patterns)
        utilisation = game.play(moves)
        worst = int(np.argmin(utilisation))
        values = dict(zip(game.open_names, patterns[worst, 0].tolist(), strict=True))
        return Found(RecordedAdversary("corners", moves[worst]), details={"moves": values, "tried": len(patterns)})


def search() -> Corners:
    """Build the search."""
    return Corners()
