"""Sets of random paths that share none: what is trained on, chosen on and reported on.

An episode is keyed by (seed, environment, episode). Each set owns 2**31 seeds of its own, so that no key lies in two sets.
"""

from __future__ import annotations

from enum import StrEnum

from ccenv.base.errors import InputError
from ccenv.envs.common.episodes import HELD_OUT_SEED

SEEDS_PER_SET = 2**31


class PathSet(StrEnum):
    """What a set of paths is for.

    Attributes:
        TRAIN: training of policies, and the states that trees are grown from.
        REPORT: scores that are published; nothing is chosen by them.
        SELECT: choice between checkpoints, or between shapes of programs.
        STOP: when to stop early.
        POLISH: search over the numbers of programs.
    """

    TRAIN = "train"
    REPORT = "report"
    SELECT = "select"
    STOP = "stop"
    POLISH = "polish"


FIXED = "fixed"
"""In place of a set's name: the world has fixed paths, the same in training and evaluation."""

_FIRST = {
    PathSet.TRAIN: 0,
    **{
        path_set: HELD_OUT_SEED + place * SEEDS_PER_SET
        for place, path_set in enumerate((PathSet.REPORT, PathSet.SELECT, PathSet.STOP, PathSet.POLISH))
    },
}


def path_seed(path_set: PathSet, number: int = 0) -> int:
    """Return a seed of ``Core.reset`` that belongs to one set alone.

    Args:
        path_set: the set.
        number: which of its seeds, 0 to 2**31 - 1.

    Raises:
        InputError: for a number out of range.
    """
    if not 0 <= number < SEEDS_PER_SET:
        raise InputError(f"seed is {number}; it must be a whole number from 0 to {SEEDS_PER_SET - 1}")
    return _FIRST[path_set] + number
