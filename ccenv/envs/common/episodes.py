"""Batches of episodes over any engine: seeds, lengths and means of the episodes, and the task of an agent."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

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


def check_levels(actions: np.ndarray, levels: int) -> np.ndarray:
    """Return discrete actions unchanged. Raises InputError unless all are whole numbers in [0, levels)."""
    if not np.issubdtype(actions.dtype, np.integer) or (actions < 0).any() or (actions >= levels).any():
        raise InputError(f"a discrete action must be a whole number in [0, {levels})")
    return actions


class Actions:
    """The actions of each row of a batch: n numbers in [low, 1].

    Args:
        values: (levels,) of discrete actions, which are indices of them; None: any number, clipped into the range.
    """

    def __init__(self, n: int, values: np.ndarray | None = None, low: float = -1.0) -> None:
        self.n, self.low, self.values = n, low, values
        self.space: spaces.Space[Any] = spaces.Box(low, 1.0, (n,), np.float32)
        if values is not None:
            self.space = spaces.Discrete(len(values)) if n == 1 else spaces.MultiDiscrete(np.full(n, len(values)))

    def read(self, actions: Any, rows: int) -> np.ndarray:
        """Return the numbers, (rows, n) float64. Raises InputError for a wrong shape, NaN, or an invalid index."""
        numbers = as_numbers(actions)
        if numbers.size != rows * self.n:
            raise InputError(f"actions of shape {numbers.shape}; {(rows, self.n)} is needed")
        numbers = numbers.reshape(rows, self.n)
        if self.values is not None:
            numbers = self.values[check_levels(numbers, len(self.values))]
        clipped: np.ndarray = np.clip(numbers.astype(np.float64), self.low, 1.0)
        if np.isnan(clipped).any():
            raise InputError("an action is not a number (NaN)")
        return clipped


class Episodes:
    """Seeds, lengths and sums of the episodes of a batch without autoreset; the cores of the engines begin them.

    Args:
        sums: shape of an environment's sums, (groups, terms).
        staggered: end the first episodes at random times.

    Attributes:
        elapsed: (B,) int64 steps of the episode so far.
        lengths: (B,) int64 steps of the episode.
        sums: (B, groups, terms) sum of each term over the episode so far.
        terminates: the end of an episode is the end of a game, after which nothing is to come, and not a limit of time.
    """

    term_names: tuple[str, ...]
    terminates: ClassVar[bool] = False
    stored: ClassVar[dict[str, str]] = {
        **{"_seed": "seeds", "_lane": "lanes", "_episode": "numbers"},
        **{"elapsed": "elapsed", "_length": "lengths", "_sums": "sums"},
    }
    """Name in a stored state -> attribute."""

    def __init__(self, num_envs: int, steps: int, sums: tuple[int, int], staggered: bool = False) -> None:
        if num_envs < 1:
            raise InputError(f"num_envs is {num_envs}; it must be at least 1")
        self.num_envs, self.episode_steps, self._staggered = num_envs, steps, staggered
        self.seeds, self.lanes, self.numbers = np.zeros(num_envs, np.int64), np.arange(num_envs), np.zeros(num_envs, np.int64)
        self._seeded = False
        self.elapsed, self.lengths = np.zeros(num_envs, np.int64), np.full(num_envs, steps)
        self.sums = np.zeros((num_envs, *sums))

    def reset(self, mask: np.ndarray | None = None, seed: int | Sequence[int | None] | None = None) -> None:
        """Start new episodes.

        Args:
            mask: (B,) bool, environments to reset; None: all.
            seed: None: continue each environment's sequence of episodes (of a random seed by default). A number: key all of them
                by (seed, environment, episode), from episode 0. One number per environment: environment b then equals a single
                environment that was reset with that number (None: it continues).
        """
        indices = np.arange(self.num_envs) if mask is None else np.flatnonzero(mask)
        self.numbers[indices] += 1
        if seed is None and not self._seeded:
            seed = secrets.randbelow(HELD_OUT_SEED)
        if isinstance(seed, (int, np.integer)):
            self.seeds[indices], self.lanes[indices], self.numbers[indices] = check_seed(int(seed)), indices, 0
        elif seed is not None:
            if len(seed) != self.num_envs:
                raise InputError(f"{len(seed)} seeds for {self.num_envs} environments")
            for b in indices.tolist():
                if (env_seed := seed[b]) is not None:
                    self.seeds[b], self.lanes[b], self.numbers[b] = check_seed(int(env_seed)), 0, 0
        self._seeded = True
        self._start(indices)

    def _start(self, indices: np.ndarray) -> None:
        """Begin the episodes that the keys of these environments name."""
        raise NotImplementedError

    def keys(self, indices: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return copies of the keys of environments' episodes (None: all): seeds, lanes and numbers of the episode."""
        rows = np.arange(self.num_envs) if indices is None else indices
        return self.seeds[rows], self.lanes[rows], self.numbers[rows]

    def _begin(self, indices: np.ndarray, stagger: np.ndarray) -> None:
        """Set the counters to the start of an episode; ``stagger`` (n,) in [0, 1) is where a staggered one begins."""
        self.lengths[indices] = self.episode_steps
        if self._staggered:
            first = self.numbers[indices] == 0
            self.lengths[indices[first]] = 1 + np.floor(stagger[first] * self.episode_steps).astype(np.int64)
        self.elapsed[indices], self.sums[indices] = 0, 0.0

    def truncated(self) -> np.ndarray:
        """Return a new (B,) bool array of the environments whose episode has ended."""
        over: np.ndarray = self.elapsed >= self.lengths
        return over

    def means(self, mask: np.ndarray) -> np.ndarray:
        """Return the mean of each term over the episode so far, for the n environments in the mask: (n, groups, terms)."""
        means: np.ndarray = self.sums[mask] / np.maximum(self.elapsed[mask], 1)[:, None, None]
        return means

    def step_info(self, rows_per_env: int = 1) -> dict[str, np.ndarray]:
        """Return numbers of the last step for the first ``rows_per_env`` groups, by name."""
        del rows_per_env
        return {}

    def _counters(self) -> dict[str, np.ndarray]:
        """Return a copy of the counters, by their names in a stored state."""
        return {name: getattr(self, attribute).copy() for name, attribute in self.stored.items()}

    def _read_counters(self, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the counters of a stored state. Raises InputError if they do not fit."""
        return {name: read_array(state, name, getattr(self, attribute)) for name, attribute in self.stored.items()}

    def _set_counters(self, counters: Mapping[str, np.ndarray]) -> None:
        """Restore a result of ``_counters`` or ``_read_counters``."""
        for name, attribute in self.stored.items():
            getattr(self, attribute)[...] = counters[name]


def read_array(state: Mapping[str, np.ndarray], name: str, like: np.ndarray) -> np.ndarray:
    """Return an array of a stored state, of the shape and type of another one. Raises InputError if there is none."""
    if name not in state:
        raise InputError(f"environment state without {name!r}")
    array = state[name]
    if array.nbytes != like.nbytes:
        raise InputError(f"environment state with {name!r} of shape {array.shape}; {like.shape} is needed")
    return np.frombuffer(array.tobytes(), like.dtype).reshape(like.shape)


class Task(Protocol):
    """One agent's view of a core.

    Attributes:
        rows_per_env: rows of a network in the batch: 1, or the number of flows that share a policy.
        single_observation_space, single_action_space: of one row.
    """

    core: Any  # Episodes, or what has their attributes and methods
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
