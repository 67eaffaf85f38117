"""What attacks leave of a program, for teachers that were trained against attacks ([Starvation] s.4).

The pool starts with the constant corners. Rounds as in robust training: attack the best program, remember the pattern, polish on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccenv.attacks import attack_path, make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.searches.corners import constants
from ccenv.network.adversary import RecordedAdversary
from ccenv.agents.sender import ProgramSender, Sender
from ccenv.agents.programs import Program
from ccenv.training.settings import RobustSettings


class WorstCase:
    """Lowest utilisation of programs over a pool of moves, on the attack paths of a robust config.

    Args:
        settings: paths, searches, their budget and how many newest patterns are kept.
        seed: of the searches.
    """

    def __init__(self, settings: RobustSettings, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._rounds = 0
        self._found: dict[str, list[np.ndarray]] = {path: [] for path in settings.paths}

    def utilisation(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the worst utilisation of each program; the result of one does not depend on the others."""
        return np.array([min(self._play(program, path) for path in self._settings.paths) for program in programs])

    def learn(self, program: Program) -> float:
        """Attack a program and remember the moves; return the worst utilisation known of it then."""
        for place, path in enumerate(self._settings.paths):
            for spec in self._settings.searches:
                search = make_search(spec)
                if not search.weight:
                    continue  # the corners: all of them are in the pool
                seed = self._seed + 1000 * self._rounds + place
                game = self._game(ProgramSender(program.name, program), path)
                adversary = search.run(game, self._settings.budget_flow_steps, seed).adversary
                if isinstance(adversary, RecordedAdversary):
                    self._found[path] = [*self._found[path], adversary.moves][-self._settings.keep :]
        self._rounds += 1
        return float(self.utilisation([program])[0])

    def _game(self, sender: Sender, path: str) -> Game:
        return Game(Scene(sender, attack_path(path), "ccac"))

    def _play(self, program: Program, path: str) -> float:
        game = self._game(ProgramSender(program.name, program), path)
        moves = np.concatenate([game.moves(constants(game)), *(found[None] for found in self._found[path])])
        return float(game.play(moves).min())
