"""Memory of rollouts, filled by the kernels of either engine, and the protocol of batches with such kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ccenv.base.kernels.decorator import kernel
from ccenv.envs.common.episodes import episode_metrics
from ccenv.envs.rollouts.actor_critic import ActorCritic, critic_value, sample


class Memory(NamedTuple):
    """A rollout of T steps of B environments with R rows each; row r of environment b is at ``b * R + r``.

    Attributes:
        observations: (T, B R, n) float32.
        actions: (T, B R, n_actions) float32 as sampled: not clipped, or indices of values.
        rewards: (T, B R) float32.
        values, log_probs: (T, B R) float32.
        episode_starts: (T, B R) float32, 1 for an episode's first step.
        dones: (T, B R) bool, the step ended its episode.
        at: (B,) int64, steps collected so far.
        starting: (B,) bool, the next step is an episode's first.
        ended: (B,) bool, the episode has ended and the environment waits for its reset.
        final: (B R, n) float32, last observations of those episodes.
        final_values: (B R,) float32, their values.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    values: np.ndarray
    log_probs: np.ndarray
    episode_starts: np.ndarray
    dones: np.ndarray
    at: np.ndarray
    starting: np.ndarray
    ended: np.ndarray
    final: np.ndarray
    final_values: np.ndarray


@kernel
def decide(networks, memory, scratch, key, row, step, starts):  # type: ignore[no-untyped-def]
    """Sample a row's action for the observation in the memory, and store action, log-probability and episode start.

    ``scratch`` is (3, longest) float32, ``key`` that of the noise.
    """
    for j in range(memory.observations.shape[2]):
        scratch[0, j] = memory.observations[step, row, j]
    memory.log_probs[step, row] = sample(networks, scratch, key, row, step, memory.actions[step, row])
    memory.episode_starts[step, row] = 1.0 if starts else 0.0


@kernel
def judge(networks, memory, scratch, row, first, last):  # type: ignore[no-untyped-def]
    """Fill in the values of a row's observations at the steps first .. last - 1.

    All at once after the steps: the weights of actor and critic together do not fit into the first-level cache.
    """
    for step in range(first, last):
        for j in range(memory.observations.shape[2]):
            scratch[0, j] = memory.observations[step, row, j]
        memory.values[step, row] = critic_value(networks, scratch)


@kernel
def judge_end(networks, memory, scratch, row):  # type: ignore[no-untyped-def]
    """Fill in the value of the last observation of a row's episode."""
    for j in range(memory.final.shape[1]):
        scratch[0, j] = memory.final[row, j]
    memory.final_values[row] = critic_value(networks, scratch)


class RolloutCore:
    """A batch of B environments with rollouts inside a kernel; rows_per_env is 1 unless several flows share the policy.

    ``levels`` is the number of values of each discrete action, 0 for continuous ones.
    """

    task: Any
    num_envs: int
    rows_per_env: int
    levels: int
    n_actions: int

    def play(self, networks: ActorCritic, memory: Memory, key: int) -> None:
        """Run each environment from ``memory.at`` until T steps are collected or its episode ends.

        ``key``, a whole number below 2**53, keys the random numbers of the actions.

        Raises:
            EngineError: if a sender or an adversary left the finite numbers.
        """
        raise NotImplementedError

    def finish(self, ended: np.ndarray) -> list[dict[str, float]]:
        """Start new episodes where one has ended; return the metrics of each of their rows, in order."""
        core = self.task.core
        metrics = episode_metrics(core, ended, self.rows_per_env)
        core.reset(ended)
        return [dict(zip(metrics, row, strict=True)) for row in np.stack(list(metrics.values()), axis=1).tolist()]
