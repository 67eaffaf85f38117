"""What a kernel that collects rollouts reads and fills in, whatever its engine is."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ccenv.envs.batches.actor_critic import ActorCritic


class Memory(NamedTuple):
    """A rollout of T steps of B environments with R rows each: row B's r stands at ``b * R + r``.

    Attributes:
        observations: (T, B R, n) float32.
        actions: (T, B R, n_actions) float32 as they were drawn: not clipped, or indices of values.
        rewards: (T, B R) float32.
        values, log_probs: (T, B R) float32.
        episode_starts: (T, B R) float32, 1 for an episode's first step.
        dones: (T, B R) bool, the step ended its episode.
        at: (B,) int64, steps collected so far.
        starting: (B,) bool, the next step is an episode's first.
        ended: (B,) bool, set where an episode ended: the environment waits for its reset.
        final: (B R, n) float32, what those episodes ended in.
        final_values: (B R,) float32, its value.
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


class RolloutCore(Protocol):
    """A batch of environments that a kernel can play with a policy: what every engine that has rollouts in its kernel offers.

    Attributes:
        num_envs: B.
        rows_per_env: R, 1 unless several flows share the policy.
        levels: number of values of each discrete action; 0: continuous ones.
        n_actions: numbers in an action.
    """

    num_envs: int
    rows_per_env: int
    levels: int
    n_actions: int

    def play(self, networks: ActorCritic, memory: Memory, key: int) -> None:
        """Let each environment go on from ``memory.at`` until T steps are collected or its episode ends, whichever is first.

        Args:
            networks: the policy.
            memory: what is read and filled in.
            key: of the random numbers of the actions, a whole number below 2**53.

        Raises:
            EngineError: if a sender or an adversary left the finite numbers.
        """

    def finish(self, ended: np.ndarray) -> list[dict[str, float]]:
        """Start new episodes where one has ended; return what is known of each of their rows, in order."""
