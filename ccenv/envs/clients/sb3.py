"""Stable-Baselines3's VecEnv over a task, natively batched, with its same-step autoreset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ccenv.agents.interface.interface import Interface
from ccenv.base.errors import InputError, require_extra, unknown_name
from ccenv.envs import ENVIRONMENTS
from ccenv.envs.common.adapters import draw
from ccenv.envs.common.episodes import Task, episode_metrics, find_interface
from ccenv.envs.curve.interface import WatchedTask
from ccenv.envs.curve.network import NetworkTask
from ccenv.envs.curve.task import SenderTask
from ccenv.envs.packet.task import PacketNetworkTask, PacketTask
from ccenv.envs.rollouts.memory import RolloutCore

require_extra("stable_baselines3", "train")

from stable_baselines3.common.vec_env.base_vec_env import VecEnv  # noqa: E402  (only after the check that names the extra)


class CcenvVecEnv(VecEnv):
    """A batch of environments for Stable-Baselines3.

    When an episode ends, the returned observation is the first one of the next episode; ``infos[i]`` has the last one as
    ``"terminal_observation"``, ``"TimeLimit.truncated"``, and the mean of each reward term under its name. All other infos are
    empty, unless ``step_info`` is set. Wrap it in ``VecMonitor`` for episode returns.
    """

    def __init__(self, task: Task, render_mode: str | None = None) -> None:
        self.task = task
        self.render_mode = render_mode
        self._rollouts: tuple[Task, RolloutCore] | None = None
        self._rows = task.rows_per_env
        num_rows = self._rows * task.core.num_envs
        self._actions = np.zeros((num_rows, *(task.single_action_space.shape or ())))
        super().__init__(num_rows, task.single_observation_space, task.single_action_space)

    @property
    def interface(self) -> Interface | None:
        """Interface of policies for this environment (``ccenv.from_sb3``); None if it controls no sender."""
        return find_interface(self.task)

    def reset(self) -> np.ndarray:
        """Start new episodes everywhere, with the seeds given to ``seed`` since the last reset, if any."""
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds[:: self._rows])
        if any(self._options):
            raise InputError(f"options {self._options[0]}: these environments take none")
        self.task.core.reset(seed=seeds)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self.task.observe()

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions for ``step_wait``."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Take the step, and start new episodes in environments whose episode has ended."""
        rewards = self.task.step(self._actions).astype(np.float32)
        over = self.task.core.truncated()
        ended = np.repeat(over, self._rows)
        step_info = self.task.core.step_info(self._rows)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if step_info:
            infos = [dict(zip(step_info, row, strict=True)) for row in np.stack(list(step_info.values()), axis=1).tolist()]
        observations = self.task.observe()
        if over.any():
            metrics = episode_metrics(self.task.core, over, self._rows)
            for row, b in enumerate(np.flatnonzero(ended)):
                infos[b] |= {name: float(values[row]) for name, values in metrics.items()}
                infos[b]["terminal_observation"] = observations[b].copy()
                infos[b]["TimeLimit.truncated"] = not self.task.core.terminates
            self.task.core.reset(over)
            observations[ended] = self.task.observe()[ended]
        return observations, rewards, ended, infos

    def rollouts(self) -> RolloutCore:
        """Return the kernel for rollouts of the batch (``ccenv.training.ppo``). Raises InputError if the task has none."""
        if self._rollouts is None or self._rollouts[0] is not self.task:
            self._rollouts = self.task, _make_rollouts(self.task)
        return self._rollouts[1]

    def close(self) -> None:
        """Release nothing: there are no processes."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return an attribute of the batch, once per index."""
        return [getattr(self, attr_name)] * len(self._select_rows(indices))

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of the whole batch. Raises InputError for a part of the environments."""
        if len(self._select_rows(indices)) != self.num_envs:
            raise InputError(f"attribute {attr_name!r} belongs to the whole batch and cannot be set for some environments only")
        setattr(self, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the batch once; return its result once per index."""
        result = getattr(self, method_name)(*method_args, **method_kwargs)
        return [result] * len(self._select_rows(indices))

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: int | Iterable[int] | None = None
    ) -> list[bool]:
        """Return False: no environment has a Gymnasium wrapper."""
        return [False] * len(self._select_rows(indices))

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return an image of each environment's episode so far; None without a render mode."""
        if self.render_mode is None:
            return [None] * self.num_envs
        return [draw(self.task.core, row // self._rows) for row in range(self.num_envs)]

    def _select_rows(self, indices: int | Iterable[int] | None) -> list[int]:
        return list(self._get_indices(indices))


def _make_rollouts(task: Any) -> RolloutCore:
    """Return the kernel for rollouts of a task; kernels are imported on demand."""
    interface = getattr(task, "interface", None)
    if interface is not None and interface.extra is not None:
        raise InputError("signals: rollouts in the kernel evaluate no Python; leave the functions out, or step the environment")
    if isinstance(task, (PacketTask, PacketNetworkTask)):
        from ccenv.envs.rollouts.packet import PacketRollouts

        return PacketRollouts(task)
    if isinstance(task, (SenderTask, NetworkTask)):
        if isinstance(task, WatchedTask) and task.own_reward is not None:
            raise InputError("reward: rollouts in the kernel evaluate no Python; set ppo.rollouts to 'python'")
        from ccenv.envs.rollouts.curve import CurveRollouts

        return CurveRollouts(task)
    raise InputError(f"the kernel has no rollouts of a {type(task).__name__}: use Stable-Baselines3's own PPO")


def make_sb3(
    env_id: str = "ccenv/Sender-v0",
    num_envs: int = 128,
    render_mode: str | None = None,
    shared_policy: bool = False,
    **settings: Any,
) -> CcenvVecEnv:
    """Build a batch for Stable-Baselines3.

    Raises UnknownNameError for another id; InputError for settings that are not allowed.

    Args:
        env_id: ``"ccenv/Sender-v0"``, ``"ccenv/Network-v0"``, ``"ccenv/Packet-v0"``, ``"ccenv/PacketNetwork-v0"`` or
            ``"ccenv/Game-v0"``.
        num_envs: number of environments.
        render_mode: None or ``"rgb_array"``.
        shared_policy: each controlled flow is its own row (``SharedSenderTask``), so that all of them share one policy; the
            batch's ``num_envs`` is then num_envs times the number of controlled flows.
        **settings: fields of ``EnvSettings``, of the packet environments those of ``PacketSettings``,
            of games ``GameSettings``.
    """
    if env_id not in (names := ENVIRONMENTS.names("sb3")):
        raise unknown_name("environment", env_id, names)
    return CcenvVecEnv(ENVIRONMENTS.load(env_id).build(num_envs, render_mode, settings, shared_policy), render_mode)
