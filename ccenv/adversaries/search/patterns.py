"""Periodic patterns as what several searches look through: lengths, and how many runs a budget allows."""

from __future__ import annotations

from ccenv.adversaries.search.game import Game
from ccenv.errors import InputError

PERIODS_RTTS = (1, 2, 3, 4)
PROOF_PERIODS_RTTS = (2, 4, 7, 12)  # with one step per Rm, patterns of 1-4 steps are few


def periods_rtts(game: Game) -> tuple[int, ...]:
    """Return the lengths of patterns that are tried, in Rm."""
    return PROOF_PERIODS_RTTS if game.scene.timing == "smt" else PERIODS_RTTS


def affordable(game: Game, budget_flow_steps: int, name: str) -> int:
    """Return how many runs a budget pays for. Raises InputError if not even one."""
    runs = budget_flow_steps // game.n_steps
    if runs < 1:
        raise InputError(
            f"adversary {name!r} has a budget of {budget_flow_steps} flow-steps, one run takes {game.n_steps}: raise the budget"
        )
    return runs
