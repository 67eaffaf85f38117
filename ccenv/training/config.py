"""What a training run is, as a typed YAML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from ccenv.config import StrictModel, find_data, read_yaml, validate
from ccenv.envs.settings import EXTERNAL, EnvSettings
from ccenv.errors import InputError

CONFIGS = "ccenv.configs.train"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,47}", re.ASCII)
_OVERRIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)=(.*)", re.DOTALL)


class PpoSettings(StrictModel):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) as Stable-Baselines3 implements it.

    Attributes:
        n_steps: environment steps per environment and iteration.
        batch_size: samples per gradient step.
        n_epochs: passes over the samples of an iteration.
        learning_rate: of Adam.
        gamma: discount per environment step.
        gae_lambda: of the generalised advantage estimate.
        clip_range: of the probability ratio.
        entropy_weight: of the entropy bonus.
        value_weight: of the value loss.
        max_gradient_norm: larger gradients are scaled down.
        hidden: widths of the hidden layers of policy and value network.
        activation: ``"tanh"`` or ``"relu"``.
        log_std: initial logarithm of the standard deviation of the actions.
    """

    n_steps: int = Field(default=32, ge=2)
    batch_size: int = Field(default=1024, ge=2)
    n_epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    clip_range: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    entropy_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    value_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    max_gradient_norm: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1, max_length=5)
    activation: Literal["tanh", "relu"] = "tanh"
    log_std: float = Field(default=-0.7, ge=-10, le=2)

    @model_validator(mode="after")
    def _widths(self) -> PpoSettings:
        if not all(1 <= width <= 256 for width in self.hidden):
            raise ValueError(f"hidden {list(self.hidden)}: widths must lie in 1 to 256, what the kernel can evaluate")
        return self


class EvaluationSettings(StrictModel):
    """Scores on held-out paths (``ccenv.training.evaluation``).

    Attributes:
        every_steps: steps between evaluations during training; 0: only at the end.
        n_paths: number of paths of the final evaluation.
        n_paths_during: number of paths of the others.
    """

    every_steps: int = Field(default=0, ge=0)
    n_paths: int = Field(default=1024, ge=1)
    n_paths_during: int = Field(default=256, ge=1)


class WandbSettings(StrictModel):
    """Weights & Biases.

    Attributes:
        enabled: log there too.
        project: name of the project.
        mode: ``"offline"`` keeps everything in the run's folder.
    """

    enabled: bool = False
    project: str = Field(default="ccenv", min_length=1)
    mode: Literal["offline", "online"] = "offline"


class LogSettings(StrictModel):
    """Where progress goes besides progress.csv.

    Attributes:
        tensorboard: write event files into the run's folder.
        wandb: see ``WandbSettings``.
    """

    tensorboard: bool = False
    wandb: WandbSettings = WandbSettings()


class TrainConfig(StrictModel):
    """A training run.

    Attributes:
        name: of the run and its policy; by default the name of the file.
        seed: decides everything random: weights, exploration, minibatches, paths.
        total_steps: environment steps; rounded up to whole iterations.
        num_envs: environments.
        environment: of ``ccenv/Sender-v0``; one controlled flow with continuous actions.
        ppo: the algorithm.
        evaluation: held-out scores.
        checkpoint_every_steps: steps between checkpoints on disk; there is always one at the end and at Ctrl-C.
        log: further logs.
    """

    name: str
    seed: int = Field(default=0, ge=0, lt=2**31)
    total_steps: int = Field(ge=1)
    num_envs: int = Field(default=128, ge=1)
    environment: EnvSettings = EnvSettings()
    ppo: PpoSettings = PpoSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint_every_steps: int = Field(default=100_000, ge=1)
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} must be a letter, then up to 47 letters, digits, '_', '-' or '.'")
        if self.environment.senders.count(EXTERNAL) != 1 or self.environment.action != "box":
            raise ValueError("environment: training needs exactly one 'external' sender and action 'box'")
        samples = self.num_envs * self.ppo.n_steps
        if samples % self.ppo.batch_size:
            raise ValueError(f"num_envs * ppo.n_steps = {samples} is not a multiple of ppo.batch_size {self.ppo.batch_size}")
        return self

    @property
    def iteration_steps(self) -> int:
        """Environment steps per iteration."""
        return self.num_envs * self.ppo.n_steps

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return -(-self.total_steps // self.iteration_steps)

    def to_yaml(self) -> str:
        """Return the resolved config, every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def same_run(self, other: TrainConfig) -> bool:
        """Tell whether a checkpoint of the other config can go on as this one: all but length and logs must agree."""
        free = {"total_steps", "log", "evaluation", "checkpoint_every_steps"}
        return self.model_dump(mode="json", exclude=free) == other.model_dump(mode="json", exclude=free)


def load_config(name: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a config.

    Args:
        name: shipped name or path of a YAML file.
        overrides: ``"a.b=value"`` each, the value as YAML.

    Raises:
        InputError: one line, with the nearest valid names for an unknown key.
    """
    file = find_data(CONFIGS, name, ".yaml")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InputError(f"{file}: a mapping of keys to values is needed")
    data.setdefault("name", file.stem)
    for text in overrides:
        _override(data, text)
    return validate(TrainConfig, data, str(file))


def read_config(file: FilePath) -> TrainConfig:
    """Read the resolved config of a run."""
    return validate(TrainConfig, read_yaml(file), str(file))


def _override(data: dict[str, Any], text: str) -> None:
    match = _OVERRIDE.fullmatch(text)
    if match is None:
        raise InputError(f"--set {text!r} is not of the form key=value or key.key=value")
    *parents, last = match[1].split(".")
    try:
        value = yaml.safe_load(match[2])
    except yaml.YAMLError:
        raise InputError(f"--set {text!r}: the value is not valid YAML") from None
    target = data
    for key in parents:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise InputError(f"--set {text!r}: {key!r} is not a group of settings")
    target[last] = value
