"""Disjoint sets of random paths for training, selection and reports.

An episode is keyed by (seed, environment, episode). Each set owns 2**31 seeds, so no key is in two sets.
"""

from __future__ import annotations

from enum import StrEnum

from ccenv.base.errors import InputError
from ccenv.envs.common.episodes import HELD_OUT_SEED

SEEDS_PER_SET = 2**31


class PathSet(StrEnum):
    """Purpose of a set of paths.

    Attributes:
        TRAIN: training of policies, and states from which trees are grown.
        REPORT: published scores; nothing is chosen by them.
        SELECT: choice of checkpoints, or of shapes of programs.
        STOP: early stopping.
        POLISH: search over the constants of programs.
    """

    TRAIN = "train"
    REPORT = "report"
    SELECT = "select"
    STOP = "stop"
    POLISH = "polish"


FIXED = "fixed"
"""Instead of a set's name: the world has fixed paths, the same in training and evaluation."""

_FIRST = {
    PathSet.TRAIN: 0,
    **{
        path_set: HELD_OUT_SEED + place * SEEDS_PER_SET
        for place, path_set in enumerate((PathSet.REPORT, PathSet.SELECT, PathSet.STOP, PathSet.POLISH))
    },
}


def path_seed(path_set: PathSet, number: int = 0) -> int:
    """Return seed ``number`` (0 to 2**31 - 1) of a set, for ``Core.reset``. Raises InputError for a number out of range."""
    if not 0 <= number < SEEDS_PER_SET:
        raise InputError(f"seed is {number}; it must be a whole number from 0 to {SEEDS_PER_SET - 1}")
    return _FIRST[path_set] + number
