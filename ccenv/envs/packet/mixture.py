"""Flows of several scenario distributions as one batch: parts of a batch differ in links, flows and competitors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.rewards import TERMS
from ccenv.base.errors import InputError
from ccenv.envs.packet.task import SharedPacketTask


class FlowMixture:
    """Several batches of networks side by side; each controlled flow of each network is a row.

    Args:
        tasks: the batches; they see and set the same.

    Attributes:
        core: what runs and restarts the networks.
        rows_per_env: 1: a row stands for itself; rows of a network start and end together.

    Raises:
        InputError: if the batches see different things.
    """

    rows_per_env = 1

    def __init__(self, tasks: Sequence[SharedPacketTask]) -> None:
        self._tasks = list(tasks)
        self.single_observation_space: spaces.Box = self._tasks[0].single_observation_space
        self.single_action_space: spaces.Space[Any] = self._tasks[0].single_action_space
        if any(task.single_observation_space != self.single_observation_space for task in self._tasks):
            raise InputError("a mixture needs batches that see the same signals")
        self.core = MixtureCore(self._tasks)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Set what the actions say and run each network to its next decision; return the rewards of the rows."""
        return np.concatenate([task.step(part) for task, part in zip(self._tasks, self.core.split(actions), strict=True)])

    def observe(self) -> np.ndarray:
        """Return what is seen of each row's flow: (rows, width)."""
        return np.concatenate([task.observe() for task in self._tasks])


class MixtureCore:
    """The cores of a mixture as one, whose environments are the rows.

    Attributes:
        num_envs: rows.
        networks: networks of all batches.
    """

    term_names = tuple(term.name for term in TERMS)

    def __init__(self, tasks: Sequence[SharedPacketTask]) -> None:
        self._cores = [task.core for task in tasks]
        self._flows = [task.rows_per_env for task in tasks]
        sizes = [core.num_envs * flows for core, flows in zip(self._cores, self._flows, strict=True)]
        self._ends = np.cumsum(sizes)[:-1]
        self.num_envs, self.networks = sum(sizes), sum(core.num_envs for core in self._cores)

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return the parts of an array over rows that belong to each batch."""
        return np.split(np.asarray(rows), self._ends)

    def _over_rows(self, found: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.repeat(one, flows) for one, flows in zip(found, self._flows, strict=True)])

    @property
    def elapsed(self) -> np.ndarray:
        """Steps since the start of each row's episode."""
        return self._over_rows([core.elapsed for core in self._cores])

    @property
    def decides(self) -> np.ndarray:
        """Which rows are to decide now: (rows,) bool."""
        return np.concatenate([core.decides.reshape(-1) for core in self._cores])

    def truncated(self) -> np.ndarray:
        """Return which rows have reached the end of their episode."""
        return self._over_rows([core.truncated() for core in self._cores])

    def reset(self, mask: np.ndarray | None = None, seed: int | None = None) -> None:
        """Start new episodes where a row of the mask is set; with a seed from the first episode on."""
        masks = [None] * len(self._cores) if mask is None else self.split(mask)
        for core, flows, part in zip(self._cores, self._flows, masks, strict=True):
            if part is None or part.any():
                core.reset(None if part is None else part[::flows], seed=seed)

    def means(self, mask: np.ndarray) -> np.ndarray:
        """Return the mean of each term over the decisions of the chosen rows' episodes so far: (n, 1, terms)."""
        parts = zip(self._cores, self._flows, self.split(mask), strict=True)
        return np.concatenate([core.means(part[::flows]).reshape(-1, 1, len(TERMS)) for core, flows, part in parts])

    def step_info(self, rows_per_env: int = 1) -> dict[str, np.ndarray]:
        """Return nothing: steps tell nothing besides."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of everything that decides the future."""
        return {f"{part}.{name}": array for part, core in enumerate(self._cores) for name, array in core.state().items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go back to what ``state`` returned. Raises InputError if it does not fit."""
        for part, core in enumerate(self._cores):
            prefix = f"{part}."
            core.set_state({name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)})
