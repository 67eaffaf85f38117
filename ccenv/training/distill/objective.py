"""What programs are polished for: the teacher's own score, and for a robust teacher its worst case too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccenv.programs import Program
from ccenv.training.distill.robust import WorstCase
from ccenv.training.distill.scores import ProgramScorer
from ccenv.training.distill.teacher import Teacher

WORST_WEIGHT = 0.5
"""Of the worst utilisation, for a teacher that was trained against attacks; the score has the rest."""


class Objective:
    """Values of programs: the teacher's own score on the paths of the search, for a robust teacher the worst utilisation too.

    Args:
        teacher: whose weights and rounds count.
        n_paths: of the score.
        seed: of paths and attacks.
    """

    def __init__(self, teacher: Teacher, n_paths: int, seed: int) -> None:
        self.n_paths = n_paths
        self._scorer = ProgramScorer(n_paths, seed, weights=teacher.weights)
        self._worst = None if teacher.robust is None else WorstCase(teacher.robust, seed)

    @property
    def under_attack(self) -> bool:
        """Whether the worst case counts."""
        return self._worst is not None

    def values(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the value of each program; larger is better."""
        scores = self._scorer.scores(programs).score
        if self._worst is None:
            return scores
        return (1 - WORST_WEIGHT) * scores + WORST_WEIGHT * self._worst.utilisation(programs)

    def learn(self, program: Program) -> float | None:
        """Attack a program, so that later values count what was found; return its worst utilisation, None without attacks."""
        return None if self._worst is None else self._worst.learn(program)
