"""Beam search on engine snapshots: as greedy, but several prefixes live on, because what hurts later may not hurt now."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ccenv.adversaries.search.game import Found, Game
from ccenv.adversaries.search.lookahead import Look, look_ahead
from ccenv.adversary import RecordedAdversary
from ccenv.parameters import number


@dataclass(frozen=True)
class Beam:
    """The search.

    Attributes:
        look: how far and how often it looks, if the budget allows.
    """

    look: Look
    weight: float = 2.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst complete sequence of moves."""
        look = self.look.within(game, budget_flow_steps, "beam")
        return Found(RecordedAdversary("beam", look_ahead(game, look)), details=asdict(look))


def search(width: int = 16, interval_rtts: int = 1, horizon_rtts: int = 8) -> Beam:
    """Build the search.

    Args:
        width: prefixes kept, 1 to 256.
        interval_rtts: Rm per decision, 1 to 100.
        horizon_rtts: Rm looked ahead, interval included, 1 to 1000.
    """
    return Beam(
        Look(
            int(number("beam", "width", width, low=1, high=256, whole=True)),
            int(number("beam", "interval_rtts", interval_rtts, low=1, high=100, whole=True)),
            int(number("beam", "horizon_rtts", horizon_rtts, low=1, high=1000, whole=True)),
        )
    )
