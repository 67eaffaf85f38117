"""A scripted or learned adversary, played as it is."""

from __future__ import annotations

from dataclasses import dataclass

from ccenv.adversaries.load import load_adversary
from ccenv.attacks.game import Found, Game


@dataclass(frozen=True)
class Scripted:
    """One run against an adversary of ``ccenv.adversaries``.

    Attributes:
        spec: what ``ccenv.adversaries.load.load_adversary`` takes.
    """

    spec: str
    weight: float = 0.0

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Build the adversary; the attack itself plays it."""
        found = Found(load_adversary(self.spec))
        game.flow_steps += game.run_flow_steps
        return found
