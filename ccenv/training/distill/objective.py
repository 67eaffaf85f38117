"""What programs are polished for: the teacher's own score, and for a robust teacher its worst case too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ccenv.training.distill.scores import ProgramScorer
from ccenv.training.distill.robust import WorstCase
from ccenv.training.distill.teacher import Teacher
from ccenv.agents.programs import Program
from ccenv.training.path_sets import PathSet

WORST_WEIGHT = 0.5
"""Of the worst utilisation, for a teacher that was trained against attacks; the score has the rest."""


class Objective:
    """Values of programs: the score in the teacher's own world, for a robust teacher the worst utilisation too.

    Numbers are searched on one set of paths, shapes are chosen on another; neither is the one that is reported.
    """

    def __init__(self, teacher: Teacher, n_paths: int, seed: int) -> None:
        self.n_paths = n_paths
        self._polish = ProgramScorer(teacher.world, n_paths, PathSet.POLISH, seed)
        self._select = ProgramScorer(teacher.world, n_paths, PathSet.SELECT, seed)
        self._worst = None if teacher.robust is None else WorstCase(teacher.robust, seed)

    @property
    def under_attack(self) -> bool:
        """Whether the worst case counts."""
        return self._worst is not None

    def values(self, programs: Sequence[Program]) -> np.ndarray:
        """Return the value of each program on the paths of the search; larger is better."""
        return self._valued(self._polish, programs)

    def select_value(self, program: Program) -> float:
        """Return the value of a program on paths that its numbers were not searched on."""
        return float(self._valued(self._select, [program])[0])

    def _valued(self, scorer: ProgramScorer, programs: Sequence[Program]) -> np.ndarray:
        scores = scorer.scores(programs).score
        if self._worst is None:
            return scores
        return (1 - WORST_WEIGHT) * scores + WORST_WEIGHT * self._worst.utilisation(programs)

    def learn(self, program: Program) -> float | None:
        """Attack a program, so that later values count what was found; return its worst utilisation, None without attacks."""
        return None if self._worst is None else self._worst.learn(program)
