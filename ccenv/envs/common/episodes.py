"""Batches of episodes over either engine: the task of an agent, seeds, metrics."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.interface import Interface
from ccenv.base.errors import InputError, shown

SEED_LIMIT = 2**53


HELD_OUT_SEED = SEED_LIMIT // 2  # larger seeds are for evaluation (ccenv.training.path_sets) and never drawn at random


def as_numbers(actions: Any) -> np.ndarray:
    """Return actions as an array of numbers. Raises InputError for a text, None, or lists of different lengths."""
    try:
        numbers = np.asarray(actions)
    except ValueError:  # lists of different lengths
        numbers = np.empty(0, object)
    if numbers.dtype.kind not in "biuf":
        raise InputError(f"action is {shown(actions)}; numbers are needed, of the shape that action_space says")
    return numbers


def check_seed(seed: int) -> int:
    """Return the seed. Raises InputError if it is out of range."""
    if not 0 <= seed < SEED_LIMIT:
        raise InputError(f"seed {seed} is not in [0, 2**53)")
    return seed


class Task(Protocol):
    """One agent's view of a core.

    Attributes:
        core: the environments: a ``Core`` or ``PacketCore``.
        rows_per_env: rows of a network in the batch: 1, or the number of flows that share a policy.
        single_observation_space, single_action_space: of one row.
    """

    core: Any
    rows_per_env: int
    single_observation_space: spaces.Box
    single_action_space: spaces.Space[Any]

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Take one step with the actions of all environments; return the rewards (B,)."""

    def observe(self) -> np.ndarray:
        """Return the observations of all environments: a new float32 array (B, ...)."""


def find_interface(task: object) -> Interface | None:
    """Return the interface of a task's policy for ``ccenv.from_sb3`` and cards, with its own clock; None: of no sender."""
    interface: Interface | None = getattr(task, "interface", None)
    if interface is None or not interface.clock.common:
        return interface
    return interface.model_copy(
        update={"clock": interface.clock.model_copy(update={"common": False})}
    )  # a sender decides for itself


def episode_metrics(core: Any, mask: np.ndarray, rows_per_env: int = 1) -> dict[str, np.ndarray]:
    """Return the mean of each reward term over the episodes of the environments in ``mask``, (B,) bool.

    Each of the first ``rows_per_env`` groups of flows has one number, environment by environment.
    """
    means = core.means(mask)[:, :rows_per_env].reshape(-1, len(core.term_names))
    return {name: means[:, index].copy() for index, name in enumerate(core.term_names)}


def terminates(core: object) -> bool:
    """Return whether the end of an episode is the end of a game, after which nothing is to come, and not a limit of time."""
    return bool(getattr(core, "terminates", False))
