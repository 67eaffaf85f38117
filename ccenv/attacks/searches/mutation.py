"""Local search over complete sequences of moves, which improves the result of another search by mutations.

Every generation holds children of the worst sequence so far; a child differs in one to three blocks of steps. The logarithms of
their lengths are uniform, from one step to 40 Rm, so that single moments and whole phases both change. The worst child becomes
the next parent if it is at least as bad (Beyer, Schwefel: Evolution Strategies, Natural Computing 2002, (1 + lambda)).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ccenv.attacks.game import Found, Game, generator
from ccenv.attacks.searches.lookahead import Look, build_look, look_ahead
from ccenv.base.errors import InputError
from ccenv.network.adversary import RecordedAdversary

CHILDREN = 16
MOST_BLOCKS = 3
LONGEST_RTTS = 40
MOST_SHIFT_RTTS = 1
SET_ALL, SET_ONE, COPY, SHIFT = range(4)


def mutate(
    game: Game, moves: np.ndarray, outcome: float, budget_flow_steps: int, draw: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Make moves (n_steps, 2 + 2 N) with a known outcome worse for the sender; return the worst moves and their outcome.

    A budget below one generation leaves the moves as they are.
    """
    of_run = game.run_flow_steps
    generations = budget_flow_steps // (of_run * (CHILDREN + 1))
    parent, best = moves, outcome
    for _ in range(generations):
        family = np.stack([parent, *(child(game, parent, draw) for _ in range(CHILDREN))])
        outcomes = game.play(family)
        worst = len(family) - 1 - int(np.argmin(outcomes[::-1]))  # prefers a child among equals, to cross plateaus
        parent, best = family[worst], float(outcomes[worst])
    return parent, best


def child(game: Game, parent: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return a copy in which a few blocks of steps are set to corners, copied from elsewhere, or shifted in time."""
    K, first = game.scene.steps_per_rtt, game.calm_steps
    columns = np.array(game.open_moves)
    out = parent.copy()
    n = game.n_steps - first
    for _ in range(int(draw.integers(1, MOST_BLOCKS + 1))):
        length = min(n, int(np.exp(draw.uniform(0.0, np.log(LONGEST_RTTS * K)))))
        start = first + int(draw.integers(0, n))
        end = min(start + length, game.n_steps)
        operation = int(draw.integers(0, 4))
        if operation == SET_ALL:
            out[start:end, columns] = draw.integers(0, 2, len(columns))
        elif operation == SET_ONE:
            out[start:end, columns[int(draw.integers(0, len(columns)))]] = draw.integers(0, 2)
        elif operation == COPY:
            source = first + int(draw.integers(0, n - (end - start) + 1))
            out[start:end] = parent[source : source + end - start]
        else:
            shift = int(draw.integers(-MOST_SHIFT_RTTS * K, MOST_SHIFT_RTTS * K + 1))
            out[start:] = np.roll(out[start:], shift, axis=0)
    return out


BEAM_SHARE = 0.3  # of the budget, at most


@dataclass(frozen=True)
class Mutation:
    """A narrow beam that decides every other Rm (``ccenv.attacks.searches.lookahead``), then mutations of its sequence.

    The beam finds attacks that build up over many Rm without repeating; most of the budget goes into mutations.
    """

    look: Look
    weight: float = 6.0

    def least_flow_steps(self, game: Game) -> int:
        """Return the cost of the smallest beam."""
        return self.look.least_flow_steps(game)

    def run(self, game: Game, budget_flow_steps: int, seed: int) -> Found:
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
    """Build the search: 1 to 256 prefixes, 1 to 100 Rm per decision, horizons of 1 to 1000 Rm including the interval."""
    return Mutation(build_look("mutation", width, interval_rtts, horizon_rtts))
