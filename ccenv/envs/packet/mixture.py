"""Several scenario distributions as one batch, whose parts differ in links, flows and competitors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ccenv.agents.interface.rewards import TERMS
from ccenv.base.errors import InputError
from ccenv.envs.packet.task import SharedPacketTask


class FlowMixture:
    """Several batches of networks with the same interface; each controlled flow of each network is a row.

    Raises InputError if the batches have different signals.

    Attributes:
        core: runs and restarts the networks.
        rows_per_env: 1, although rows of a network start and end together.
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
        """Apply the actions and run each network to its next decision; return the rewards of the rows."""
        return np.concatenate([task.step(part) for task, part in zip(self._tasks, self.core.split(actions), strict=True)])

    def observe(self) -> np.ndarray:
        """Return the observations of the rows' flows: (rows, width)."""
        return np.concatenate([task.observe() for task in self._tasks])


class MixtureCore:
    """The cores of a mixture as one, whose environments (``num_envs``) are the rows; ``networks``: their number."""

    term_names = tuple(term.name for term in TERMS)

    def __init__(self, tasks: Sequence[SharedPacketTask]) -> None:
        self._cores = [task.core for task in tasks]
        self._flows = [task.rows_per_env for task in tasks]
        sizes = [core.num_envs * flows for core, flows in zip(self._cores, self._flows, strict=True)]
        self._ends = np.cumsum(sizes)[:-1]
        self.num_envs, self.networks = sum(sizes), sum(core.num_envs for core in self._cores)

    def split(self, rows: np.ndarray) -> list[np.ndarray]:
        """Split an array over rows into the parts of each batch."""
        return np.split(np.asarray(rows), self._ends)

    def _repeat_rows(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.repeat(one, flows) for one, flows in zip(arrays, self._flows, strict=True)])

    @property
    def elapsed(self) -> np.ndarray:
        """Steps since the start of each row's episode."""
        return self._repeat_rows([core.elapsed for core in self._cores])

    @property
    def decides(self) -> np.ndarray:
        """Rows that are to decide now: (rows,) bool."""
        return np.concatenate([core.decides.reshape(-1) for core in self._cores])

    def truncated(self) -> np.ndarray:
        """Return the rows whose episode has ended: (rows,) bool."""
        return self._repeat_rows([core.truncated() for core in self._cores])

    def reset(self, mask: np.ndarray | None = None, seed: int | None = None) -> None:
        """Start new episodes in networks with a row in the mask; with a seed from its first episode on."""
        masks = [None] * len(self._cores) if mask is None else self.split(mask)
        for core, flows, part in zip(self._cores, self._flows, masks, strict=True):
            if part is None or part.any():
                core.reset(None if part is None else part[::flows], seed=seed)

    def means(self, mask: np.ndarray) -> np.ndarray:
        """Return the mean of each term over the decisions of the chosen rows' episodes so far: (n, 1, terms)."""
        parts = zip(self._cores, self._flows, self.split(mask), strict=True)
        return np.concatenate([core.means(part[::flows]).reshape(-1, 1, len(TERMS)) for core, flows, part in parts])

    def step_info(self, rows_per_env: int = 1) -> dict[str, np.ndarray]:
        """Return nothing: steps have no info."""
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """Return a copy of everything that decides the future."""
        return {f"{part}.{name}": array for part, core in enumerate(self._cores) for name, array in core.state().items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a result of ``state``. Raises InputError if it does not fit."""
        for part, core in enumerate(self._cores):
            prefix = f"{part}."
            core.set_state({name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)})
