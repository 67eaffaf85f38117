"""Greedy one-step search on engine snapshots: at each decision the corner whose consequences are the worst so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ccenv.adversaries.search.game import Found, Game
from ccenv.adversaries.search.lookahead import Look, look_ahead
from ccenv.adversary import RecordedAdversary
from ccenv.parameters import number


@dataclass(frozen=True)
class Greedy:
    """The search.

    Attributes:
        look: how far and how often it looks, if the budget allows.
    """

    look: Look
    weight: float = 0.5

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the moves chosen one after the other."""
        look = self.look.within(game, budget_flow_steps, "greedy")
        return Found(RecordedAdversary("greedy", look_ahead(game, look)), details=asdict(look))


def search(interval_rtts: int = 1, horizon_rtts: int = 8) -> Greedy:
    """Build the search.

    Args:
        interval_rtts: Rm per decision, 1 to 100.
        horizon_rtts: Rm looked ahead, interval included, 1 to 1000.
    """
    return Greedy(
        Look(
            1,
            int(number("greedy", "interval_rtts", interval_rtts, low=1, high=100, whole=True)),
            int(number("greedy", "horizon_rtts", horizon_rtts, low=1, high=1000, whole=True)),
        )
    )
