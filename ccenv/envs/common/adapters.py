"""Gymnasium's single and vector classes of an environment, made from the factory of its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ccenv.agents.interface.interface import Interface
from ccenv.base.errors import InputError, did_you_mean
from ccenv.envs.common.episodes import as_numbers, episode_metrics, find_interface

RENDER_MODES = (None, "rgb_array")
FRAMES_PER_SECOND = 10
WIDTH_PX, HEIGHT_PX = 900, 800


def check_render_mode(render_mode: str | None) -> bool:
    """Tell whether the engine must record. Raises InputError for an unknown mode."""
    if render_mode not in RENDER_MODES:
        raise InputError(f"unknown render_mode {render_mode!r}.{did_you_mean(str(render_mode), ['rgb_array'])}")
    return render_mode is not None


def draw(core: Any, env: int) -> np.ndarray:
    """Return an image of an environment's curves and queue, white before the first step: (height, width, 3) uint8."""
    if core.elapsed[env] == 0:
        return np.full((HEIGHT_PX, WIDTH_PX, 3), 255, np.uint8)
    from ccenv.network.figure import draw_trace

    return draw_trace(core.trace(env), WIDTH_PX, HEIGHT_PX)


class TaskEnv(gym.Env[np.ndarray, Any]):
    """A single environment over a task of one.

    Attributes:
        read_settings: checks ``(settings, env_id, defaults)``.
        make_task: builds a task of ``(num_envs, checked settings, record)``; its ``infos()``, if any, are arrays for each info.
        make_shared: the same, with each flow as a row; None: there are no such tasks.
        defaults: settings that differ from those of their model.
    """

    env_id: ClassVar[str]
    read_settings: ClassVar[Callable[..., Any]]
    make_task: ClassVar[Any]
    make_shared: ClassVar[Any] = None
    defaults: ClassVar[dict[str, Any]] = {}
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}  # type: ignore[misc]
    _spec: EnvSpec | None = None

    @classmethod
    def build(cls, num_envs: int, render_mode: str | None, settings: dict[str, Any], shared: bool = False) -> Any:
        """Return the task of a batch; with ``shared`` each flow is a row. Raises InputError for what is not allowed."""
        make, checked = cls.make_shared if shared else cls.make_task, cls.read_settings(settings, cls.env_id, cls.defaults)
        if make is None:
            raise InputError(f"shared_policy is for the flows of ccenv/Sender-v0 and ccenv/Packet-v0, not for {cls.env_id}")
        return make(num_envs, checked, check_render_mode(render_mode))

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        """Build the environment of some settings; ``render_mode`` is None or ``"rgb_array"``."""
        self.task = self.build(1, render_mode, settings)
        self.render_mode = render_mode
        self.observation_space = self.task.single_observation_space
        self.action_space = self.task.single_action_space

    @property
    def interface(self) -> Interface | None:
        """What a policy of this environment sees and sets, and when (``ccenv.from_sb3``); None: it plays no sender."""
        return find_interface(self.task)

    @property
    def spec(self) -> EnvSpec | None:
        """Specification of the environment, with the length of its episodes as ``max_episode_steps``."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None and spec.max_episode_steps is None:
            spec.max_episode_steps = self.task.core.episode_steps
        self._spec = spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the next episode, or with a seed the first one of that seed. No options are used."""
        super().reset(seed=seed)
        self.task.core.reset(seed=seed)
        return self.task.observe()[0].copy(), {name: values[0] for name, values in _read_infos(self.task).items()}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step; the info of an episode's last step holds the mean of each reward term."""
        reward = float(self.task.step(as_numbers(action)[None])[0])
        ended = bool(self.task.core.truncated()[0])
        numbers = self.task.core.step_info()
        if ended:
            numbers |= episode_metrics(self.task.core, np.ones(1, np.bool_))
        info: dict[str, Any] = {name: float(values[0]) for name, values in numbers.items()}
        info |= {name: values[0] for name, values in _read_infos(self.task).items()}
        by_rule = self.task.core.terminates
        return self.task.observe()[0].copy(), reward, ended and by_rule, ended and not by_rule, info

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an image of the episode so far: curves and queue."""
        return None if self.render_mode is None else draw(self.task.core, 0)


def _read_infos(task: Any) -> dict[str, np.ndarray]:
    return task.infos() if hasattr(task, "infos") else {}


class TaskVectorEnv(VectorEnv[np.ndarray, Any, np.ndarray]):
    """A batch of environments of the class ``single``, natively vectorised.

    Autoreset is NEXT_STEP (the step after an episode's last one ignores the action, starts the next episode and gives reward
    0), SAME_STEP (the last step returns the next episode's first observation, with ``final_obs`` and ``final_info`` in the info)
    or DISABLED (``reset(options={"reset_mask": mask})`` starts new episodes).
    """

    single: ClassVar[type[TaskEnv]]

    def __init__(
        self,
        num_envs: int = 1,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ) -> None:
        """Build the batch of some settings; ``render_mode`` is None or ``"rgb_array"``."""
        self.task = self.single.build(num_envs, render_mode, settings)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = _read_autoreset(autoreset_mode)
        self.metadata = {**self.single.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.task.single_observation_space
        self.single_action_space = self.task.single_action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended = np.zeros(num_envs, np.bool_)

    @property
    def interface(self) -> Interface | None:
        """What a policy of this environment sees and sets, and when (``ccenv.from_sb3``); None: it plays no sender."""
        return find_interface(self.task)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: one number for the batch, or one per environment, which then equals a single environment of that seed.
            options: ``{"reset_mask": (B,) bool}`` resets only some environments.
        """
        super().reset(seed=seed if seed is None or isinstance(seed, int) else None)
        mask = None if options is None else options.get("reset_mask")
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
                raise InputError(f"reset_mask of shape {mask.shape}, {mask.dtype}; ({self.num_envs},) of bool is needed")
        self.task.core.reset(mask, seed)
        self._ended[... if mask is None else mask] = False
        return self.task.observe(), self._infos()

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step; for episodes that end, the info holds the mean of each reward term and its mask."""
        starting = self._ended
        if self.autoreset_mode is AutoresetMode.DISABLED and starting.any():
            raise InputError(
                f"{int(starting.sum())} environments have ended: reset them with options={{'reset_mask': mask}} first"
            )
        rewards = self.task.step(actions)
        if starting.any():
            self.task.core.reset(starting)
            rewards[starting] = 0.0
        truncated = self.task.core.truncated()
        info: dict[str, Any] = {}
        observations = self.task.observe()
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._ended = np.zeros_like(truncated) if same_step else truncated.copy()
        numbers = self.task.core.step_info()
        ending = info
        if truncated.any():
            if same_step:
                ending = info["final_info"] = {}
                info["final_obs"] = np.full(self.num_envs, None, dtype=object)
                for b in np.flatnonzero(truncated).tolist():
                    info["final_obs"][b] = observations[b].copy()
                info["_final_obs"], info["_final_info"] = truncated.copy(), truncated.copy()
                _put_numbers(ending, {name: values[truncated] for name, values in numbers.items()}, truncated)
            _put_numbers(ending, episode_metrics(self.task.core, truncated), truncated)
        going_on = ~truncated if same_step else np.ones_like(truncated)
        _put_numbers(info, {name: values[going_on] for name, values in numbers.items()}, going_on)
        if same_step and truncated.any():
            self.task.core.reset(truncated)
            observations[truncated] = self.task.observe()[truncated]
        none = np.zeros(self.num_envs, np.bool_)
        ends = (truncated, none) if self.task.core.terminates else (none, truncated)
        return observations, rewards, *ends, info | self._infos()

    def _infos(self) -> dict[str, np.ndarray]:
        infos = _read_infos(self.task)
        return infos | {f"_{name}": np.ones(self.num_envs, np.bool_) for name in infos}

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        """Return an image of each environment's episode so far."""
        return None if self.render_mode is None else tuple(draw(self.task.core, b) for b in range(self.num_envs))


def _put_numbers(info: dict[str, Any], numbers: dict[str, np.ndarray], mask: np.ndarray) -> None:
    """Add numbers of some environments to an info, 0 for the others, each with its mask."""
    for name, values in numbers.items():
        info[name] = np.zeros(len(mask))
        info[name][mask] = values
        info[f"_{name}"] = mask.copy()


def _read_autoreset(mode: AutoresetMode | str) -> AutoresetMode:
    for candidate in AutoresetMode:
        if mode in (candidate, candidate.name, candidate.value):
            return candidate
    raise InputError(f"autoreset_mode {mode!r} is not allowed.{did_you_mean(str(mode), [m.name for m in AutoresetMode])}")
