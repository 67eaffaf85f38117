"""Periodic patterns as what several searches look through: their shapes, and how many runs a budget allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.attacks.game import Game
from ccenv.base.errors import InputError

PERIODS_RTTS = (1, 2, 3, 4)
PROOF_PERIODS_RTTS = (2, 4, 7, 12, 20, 30)  # with one step per Rm, patterns of 1-4 steps are few
VALUES_PER_RTT = (1, 2, 4)  # and one per step


@dataclass(frozen=True)
class Shape:
    """A pattern's shape: coarse ones find what must be held for long, fine ones what must be timed well.

    Attributes:
        period_rtts: after so many Rm it repeats.
        values_per_rtt: values per Rm and move, each held for an equal part of the Rm as near as the grid allows.
    """

    period_rtts: int
    values_per_rtt: int

    @property
    def n_values(self) -> int:
        """Values per move."""
        return self.period_rtts * self.values_per_rtt

    def moves(self, game: Game, values: np.ndarray) -> np.ndarray:
        """Return complete moves (B, n_steps, 2 + 2 N) from patterns (B, n_values, number of open moves)."""
        K = game.scene.steps_per_rtt
        return game.moves(values[:, np.arange(self.period_rtts * K) * self.values_per_rtt // K])


def periods_rtts(game: Game) -> tuple[int, ...]:
    """Return the lengths of patterns that are tried, in Rm."""
    return PROOF_PERIODS_RTTS if game.scene.timing == "smt" else PERIODS_RTTS


def shapes(game: Game) -> list[Shape]:
    """Return the shapes that are tried: every period, from one value per Rm to one per step."""
    K = game.scene.steps_per_rtt
    densities = sorted({min(number, K) for number in (*VALUES_PER_RTT, K)})
    return [Shape(period, density) for density in densities for period in periods_rtts(game)]


def affordable(game: Game, budget_flow_steps: int, name: str) -> int:
    """Return how many runs a budget pays for. Raises InputError if not even one."""
    of_run = game.run_flow_steps
    runs = budget_flow_steps // of_run
    if runs < 1:
        raise InputError(
            f"adversary {name!r} has a budget of {budget_flow_steps} flow-steps, one run takes {of_run}: raise the budget"
        )
    return runs
