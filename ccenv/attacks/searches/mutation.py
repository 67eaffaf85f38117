"""A beam that looks far ahead, then changed piece by piece (``ccenv.attacks.searches.attack_mutation``).

The beam (``ccenv.attacks.searches.lookahead``) is narrow and decides every other Rm: a place to begin, for what builds up over
many Rm and does not repeat. Most of the budget changes its sequence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.attack_mutation import mutate
from ccenv.attacks.searches.lookahead import Look, look_ahead
from ccenv.base.errors import InputError
from ccenv.network.adversary import RecordedAdversary
from ccenv.base.parameters import number

BEAM_SHARE = 0.3  # of the budget, at most


@dataclass(frozen=True)
class Mutation:
    """The search.

    Attributes:
        look: how far and how often the beam looks, if the budget allows.
    """

    look: Look
    weight: float = 6.0

    def least_flow_steps(self, game: Game) -> int:
        """Return what the smallest beam takes."""
        return self.look.least_flow_steps(game)

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
        """Return the worst sequence."""
        before = game.flow_steps
        look = self.look
        for share in (BEAM_SHARE, 1.0):
            try:
                look = look.within(game, int(share * budget_flow_steps), "mutation")
                break
            except InputError:
                if share == 1.0:
                    raise
        moves, outcome = look_ahead(game, look)
        left = budget_flow_steps - (game.flow_steps - before)
        moves, changed = mutate(game, moves, outcome, left, generator(seed, "mutation"))
        details = {**asdict(look), "before_mutation": outcome, "after_mutation": changed}
        return Found(RecordedAdversary("mutation", moves), details=details)


def search(width: int = 8, interval_rtts: int = 2, horizon_rtts: int = 16) -> Mutation:
    """Build the search.

    Args:
        width: prefixes kept, 1 to 256.
        interval_rtts: Rm per decision, 1 to 100.
        horizon_rtts: Rm looked ahead, interval included, 1 to 1000.
    """
    return Mutation(
        Look(
            int(number("mutation", "width", width, low=1, high=256, whole=True)),
            int(number("mutation", "interval_rtts", interval_rtts, low=1, high=100, whole=True)),
            int(number("mutation", "horizon_rtts", horizon_rtts, low=1, high=1000, whole=True)),
        )
    )
