"""The engine's belief rules, in proof timing, against exact belief sets on every board that play can reach.

A board is reached by many histories; of each board the first that the solver finds is replayed. The rules are those of
``tests/oracles/beliefs.py``, which other tests hold equal to the kernel bit by bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from copy import copy
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.proofs.games.boards import Boards, explore
from ccenv.proofs.games.game import Game
from tests.oracles.beliefs import ReferenceBeliefs

ONE, LONGEST = Fraction(1), 1000
GAMES = {
    "cbr any": Game(model="cbr", rates=(1, 2, 3, 4, 5), buffers=("up to C",), loss=1),
    "cbr deep": Game(model="cbr", rates=(1, 2, 3, 4, 5), buffers=(0, "C", "2C"), loss=1),
    "ccac": Game(model="ccac", rates=(1, 2, 3, 4), buffers=(0, "C"), loss=1),
    "cbr, D = 2": Game(model="cbr", jitter_steps=2, rates=(1, 2, 3, 4), buffers=(0, "C", "2C"), loss=1),
    "ideal": Game(model="ideal", jitter_steps=0, rates=(1, 2, 3, 4, 5), buffers=(0, "C", "2C"), loss=1),
}


class Seen(NamedTuple):
    """What the engine's rules know at a board, packets and steps of Rm: curves since the first board, and the bounds."""

    S: list[Fraction]
    E: list[Fraction]
    L: list[Fraction]
    q_U: Fraction
    beliefs: ReferenceBeliefs

    def after(self, sent: int, delivered: int, lost: int) -> Seen:
        """Return what they know a step later."""
        E, L, S = [*self.E, self.E[-1] + sent - lost], [*self.L, self.L[-1] + lost], [*self.S, self.S[-1] + delivered]
        beliefs = copy(self.beliefs)
        beliefs.ends = [*beliefs.ends]
        beliefs.update(E, L, S)
        q_U = min(max(Fraction(0), self.q_U + sent - beliefs.C_L_lambda), E[-1] - S[-1])
        return Seen(S, E, L, q_U, beliefs)


def walk(boards: Boards, settings: BeliefSettings) -> Iterator[tuple[int, Seen]]:
    """Yield each board with what the rules know after the first history that leads to it."""
    zero, game = [Fraction(0)], boards.game
    start = ReferenceBeliefs(1, game.jitter_steps, ONE, ONE, settings, 1, LONGEST)
    seen = {0: Seen(zero, zero, zero, Fraction(0), start)}
    for board in range(len(boards)):  # in the order in which they were found: each comes after the one that leads to it
        yield board, seen[board]
        for action in range(int(boards.actions[board])):
            for edge in boards.answers(board, action):
                target = int(boards.target[edge])
                if target not in seen:
                    seen[target] = seen[board].after(action, int(boards.delivered[edge]), int(boards.lost[edge]))


def compared(game: Game, settings: BeliefSettings) -> dict[str, Any]:
    """Return per bound on how many boards it is wrong, and the share of boards on which it is tight (on whole packets)."""
    boards = explore(game)
    unsound, tight = Counter[str](), Counter[str]()
    for board, (_, _, _, q_U, beliefs) in walk(boards, settings):
        slowest, fastest, (_, queue) = int(boards.slowest[board]), int(boards.fastest[board]), boards.queues(board)
        unsound["C_L"] += slowest < beliefs.C_L
        unsound["C_U"] += fastest > beliefs.C_U
        unsound["C_L_lambda"] += slowest < beliefs.C_L_lambda
        unsound["q_U"] += q_U < queue
        inside = [rate for rate in game.rates if beliefs.C_L <= rate <= beliefs.C_U]
        tight["C_L"] += inside[0] == slowest
        tight["C_L_lambda"] += min(rate for rate in game.rates if rate >= beliefs.C_L_lambda) == slowest
        tight["C_U"] += inside[-1] == fastest
        tight["q_U"] += int(q_U) == queue
        tight["C known"] += len(inside) == 1
        tight["C known exactly"] += slowest == fastest
    shares = {name: round(count / len(boards), 2) for name, count in tight.items()}
    return {"boards": len(boards), "unsound": {name: count for name, count in unsound.items() if count}, "tight": shares}


PAGE = Path(__file__).parents[3] / "docs" / "engine.md"


@pytest.mark.parametrize("name", GAMES)
def test_engine_bounds_are_sound_on_every_board_and_as_tight_as_the_page_says(name: str) -> None:
    paper, tighter = (compared(GAMES[name], BeliefSettings(tighter=rules, period_rtts=math.inf)) for rules in (False, True))
    # On CCAC C_L_lambda is no fact: kept tokens take bursts that no queue had to hold.
    assert paper["unsound"] == tighter["unsound"] == ({"C_L_lambda": 2} if name == "ccac" else {})
    first, second = paper["tight"], tighter["tight"]
    same = [first[bound] for bound in ("C_L", "C_L_lambda", "q_U")]
    assert same == [second[bound] for bound in ("C_L", "C_L_lambda", "q_U")]
    of_rates = [first["C_U"], second["C_U"], first["C known"], second["C known"], first["C known exactly"]]
    row = " | ".join([name, str(paper["boards"]), *(f"{share:.2f}" for share in (*same, *of_rates))])
    assert f"| {row} |" in PAGE.read_text(encoding="utf-8")
