"""What a training run is, as a typed YAML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from ccenv.attack.paths import PATHS, REPORT, SCENE_SETS, TRAINING, scene_of, scene_set
from ccenv.config import StrictModel, find_data, validate
from ccenv.engine.compiled.mlp import MAX_WIDTH
from ccenv.envs import network
from ccenv.envs.distribution import PathDistribution
from ccenv.envs.settings import EXTERNAL, EnvSettings
from ccenv.errors import InputError, unknown_name
from ccenv.foreign import is_file, parse_yaml, read_yaml, resolve_inside, shown
from ccenv.network.path import Path
from ccenv.training.algorithm_settings import OffPolicySettings, PpoSettings, SacSettings, Td3Settings

CONFIGS = "ccenv.configs.train"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,47}", re.ASCII)
_OVERRIDE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)=(.*)", re.DOTALL)


def _kept_for_reports(where: str, name: str) -> str:
    allowed = ", ".join(SCENE_SETS[TRAINING])
    return f"{where}: worst cases are published on the scene {name!r}, so nothing is trained on it; there are {allowed}"


class CurriculumStage(StrictModel):
    """A part of a curriculum: the environment's models or paths are others until a step.

    Attributes:
        until_step: the stage ends at the first iteration that starts at this step or later.
        models: in place of the environment's; None: its own.
        paths: in place of the environment's; None: its own.
    """

    until_step: int = Field(ge=1)
    models: tuple[str, ...] | None = None
    paths: PathDistribution | None = None


class EarlyStop(StrictModel):
    """When to stop before ``total_steps``.

    Attributes:
        patience: evaluations in a row without a gain; 0: never stop early.
        min_gain: what counts as a gain of the held-out score.
    """

    patience: int = Field(default=0, ge=0)
    min_gain: float = Field(default=0.0005, ge=0, allow_inf_nan=False)


class RobustSettings(StrictModel):
    """Rounds of training against what attacked the sender of the rounds before (PPO senders).

    Attributes:
        start_step: plain training until here.
        round_steps: environment steps of a round; each round starts with an attack on the sender as it is then.
        share: share of the environments that play against the pool; 0: none, and no attack (a control run).
        log_std: logarithm of the standard deviation of the actions, set anew when the rounds start.
        searches: adversaries of ``ccenv attack`` that give periodic moves.
        paths: on these scenes of ``ccenv attack``; worst cases are published on the others.
        budget_flow_steps: of each search.
        keep: newest patterns in the pool.
        policies: adversary policies (files, registered names) that are always in the pool.
    """

    start_step: int = Field(ge=1)
    round_steps: int = Field(ge=1)
    share: float = Field(default=0.5, ge=0, le=1)
    log_std: float = Field(default=-1.5, ge=-10, le=2)
    searches: tuple[str, ...] = ("corners", "cem:population=64")
    paths: tuple[str, ...] = ("deep",)
    budget_flow_steps: int = Field(default=1_000_000, ge=1)
    keep: int = Field(default=8, ge=1, le=256)
    policies: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _training_scenes(self) -> RobustSettings:
        for name in self.paths:
            if name not in PATHS:
                raise ValueError(str(unknown_name("attack path", name, PATHS)))
            if scene_set(name) == REPORT:
                raise ValueError(_kept_for_reports("paths", name))
        return self

    def round_at(self, step: int) -> int:
        """Return the number of the round at a step; 0: before the first."""
        return 0 if step < self.start_step else 1 + (step - self.start_step) // self.round_steps


class EvaluationSettings(StrictModel):
    """Scores in the config's own world (``ccenv.training.evaluation``), on three sets of paths that share none.

    Attributes:
        every_steps: steps between evaluations during training, on the set that the best checkpoint is chosen on and, with an
            early stop, on the one that stops; 0: only at the end.
        n_paths: number of paths of the final evaluation.
        n_paths_during: number of paths of each of the others.
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
        trains: ``"sender"``: one flow of ``ccenv/Sender-v0`` with continuous actions; ``"network"``: the moves of
            ``ccenv/Network-v0`` against fixed senders, with PPO also discrete ones.
        shared_policy: several flows learn with one policy: each ``"external"`` sender is a row of its own, rewarded for itself
            (``ccenv.envs.batches.shared``). Steps are then decisions, one for each row.
        algorithm: ``"ppo"``, ``"sac"`` or ``"td3"``.
        environment: of the one that is trained.
        curriculum: other models or paths at first, in order of ``until_step``.
        robust: rounds against a pool of opponents; none: against the environment's own network only.
        ppo, sac, td3: the algorithms.
        evaluation: held-out scores.
        early_stop: on the held-out scores.
        checkpoint_every_steps: steps between checkpoints on disk; there is always one at the end and at Ctrl-C.
        log: further logs.
    """

    name: str
    seed: int = Field(default=0, ge=0, lt=2**31)
    total_steps: int = Field(ge=1)
    num_envs: int = Field(default=128, ge=1)
    trains: Literal["sender", "network"] = "sender"
    shared_policy: bool = False
    algorithm: Literal["ppo", "sac", "td3"] = "ppo"
    environment: EnvSettings = EnvSettings()
    curriculum: tuple[CurriculumStage, ...] = ()
    robust: RobustSettings | None = None
    ppo: PpoSettings = PpoSettings()
    sac: SacSettings = SacSettings()
    td3: Td3Settings = Td3Settings()
    evaluation: EvaluationSettings = EvaluationSettings()
    early_stop: EarlyStop = EarlyStop()
    checkpoint_every_steps: int = Field(default=100_000, ge=1)
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} must be a letter, then up to 47 letters, digits, '_', '-' or '.'")
        external = self.environment.senders.count(EXTERNAL)
        if self.shared_policy and (self.trains != "sender" or external < 2):
            raise ValueError(
                f"shared_policy is for senders with two or more 'external' flows, not for a {self.trains} with {external}"
            )
        if not self.shared_policy and external != (1 if self.trains == "sender" else 0):
            many = "exactly one" if self.trains == "sender" else "no"
            hint = "; for several set shared_policy" if self.trains == "sender" and external > 1 else ""
            raise ValueError(f"environment: training a {self.trains} needs {many} 'external' sender{hint}")
        if self.environment.step_info:
            raise ValueError("environment.step_info: training reads no info of steps; leave it out")
        if self.environment.is_discrete and self.algorithm != "ppo":
            raise ValueError(f"environment: a {self.algorithm} {self.trains} needs action 'box'; PPO may have discrete actions")
        if self.trains == "network":
            self.environment.require_beliefs("environment")
        elif self.environment.is_discrete and self.environment.n_actions > MAX_WIDTH:
            raise ValueError(f"environment.n_actions is {self.environment.n_actions}; at most {MAX_WIDTH}: kernel's widest layer")
        if self.environment.is_discrete and self.trains == "network":
            moves = network.NetworkAction(self.environment, len(self.environment.senders)).names
            seen, most = self.environment.n_actions, MAX_WIDTH // len(moves)
            if seen > most:
                raise ValueError(f"environment.n_actions is {seen}; at most {most} for {', '.join(moves)}: kernel's widest layer")
        if self.robust is not None and (self.trains, self.algorithm) != ("sender", "ppo"):
            raise ValueError(f"robust training is for PPO senders, not for a {self.algorithm} {self.trains}")
        if self.robust is not None and (self.curriculum or len(self.environment.senders) != 1):
            raise ValueError("robust training needs one flow and no curriculum")
        for path in fixed_paths(self.environment.paths):
            name = scene_of(path)
            if scene_set(name) == REPORT:
                raise ValueError(_kept_for_reports("environment.paths", str(name)))
        ends = [stage.until_step for stage in self.curriculum]
        if ends != sorted(set(ends)):
            raise ValueError(f"curriculum: until_step {ends} must rise from stage to stage")
        if self.early_stop.patience and not self.evaluation.every_steps:
            raise ValueError("early_stop needs evaluations: set evaluation.every_steps")
        samples = self.num_rows * self.ppo.n_steps
        if self.algorithm == "ppo" and samples % self.ppo.batch_size:
            rows = "num_envs * flows" if self.shared_policy else "num_envs"
            raise ValueError(f"{rows} * ppo.n_steps = {samples} is not a multiple of ppo.batch_size {self.ppo.batch_size}")
        return self

    @property
    def num_rows(self) -> int:
        """Rows of the batch: environments, or their flows where those share a policy."""
        return self.num_envs * (self.environment.senders.count(EXTERNAL) if self.shared_policy else 1)

    @property
    def iteration_steps(self) -> int:
        """Steps of all rows per iteration."""
        settings: PpoSettings | OffPolicySettings = getattr(self, self.algorithm)
        return self.num_rows * settings.n_steps

    @property
    def activation(self) -> Literal["tanh", "relu"]:
        """Activation of the action network."""
        return self.ppo.activation if self.algorithm == "ppo" else "tanh"

    def environment_at(self, step: int) -> EnvSettings:
        """Return the environment of an iteration that starts at a step: a stage's, or the config's own after the last."""
        for stage in self.curriculum:
            if step < stage.until_step:
                changed = {"models": stage.models, "paths": stage.paths}
                return validate(
                    EnvSettings, {**dict(self.environment), **{k: v for k, v in changed.items() if v is not None}}, "stage"
                )
        return self.environment

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return -(-self.total_steps // self.iteration_steps)

    def to_yaml(self) -> str:
        """Return the resolved config, every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def same_run(self, other: TrainConfig) -> bool:
        """Tell whether a checkpoint of the other config can go on as this one: all but length and logs must agree."""
        free = {"total_steps", "log", "checkpoint_every_steps"}
        if not self.early_stop.patience:
            free |= {"evaluation"}
        if self.ppo.learning_rate_end is not None:
            free -= {"total_steps"}  # the learning rate goes by it
        return self.model_dump(mode="json", exclude=free) == other.model_dump(mode="json", exclude=free)


def fixed_paths(paths: PathDistribution | Path | tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths of an environment that are not drawn."""
    if isinstance(paths, PathDistribution):
        return ()
    return (paths,) if isinstance(paths, Path) else paths


def load_data(name: str, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """Return what a config file says after ``extends`` and overrides, not yet checked, and the file's name for messages.

    Args:
        name: shipped name or path of a YAML file.
        overrides: ``"a.b=value"`` each, the value as YAML.
    """
    file = find_data(CONFIGS, name, ".yaml", "config")
    data = _read_extended(file, ())
    data["name"] = data.get("name", file.stem)
    for text in overrides:
        _override(data, text)
    return data, str(file)


def load_config(name: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read the config of a run of Stable-Baselines3.

    Args:
        name: shipped name or path of a YAML file.
        overrides: ``"a.b=value"`` each, the value as YAML.

    Raises:
        InputError: one line, with the nearest valid names for an unknown key.
    """
    data, where = load_data(name, overrides)
    if data.get("trains") == "network" and isinstance(data.get("environment", {}), dict):
        data["environment"] = {**network.DEFAULTS, **data.get("environment", {})}
    return validate(TrainConfig, data, where)


def _read_extended(file: FilePath, seen: tuple[FilePath, ...]) -> dict[str, Any]:
    """Read a config on top of the one that it extends (a shipped name, or a path beside it); groups are merged key by key."""
    if file.resolve() in seen:
        raise InputError(f"{file}: extends itself, by way of {', '.join(f.name for f in seen)}")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InputError(f"{file}: a mapping of keys to values is needed")
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise InputError(f"{file}: extends: a name or path is needed, not {shown(base)}")
    beside = resolve_inside(file.parent, base, f"{file}: extends")
    below = _read_extended(beside if is_file(beside) else find_data(CONFIGS, base, ".yaml", "config"), (*seen, file.resolve()))
    below.pop("name", None)
    return _merged(below, data)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out


def read_config(file: FilePath) -> TrainConfig:
    """Read the resolved config of a run."""
    return validate(TrainConfig, read_yaml(file), str(file))


def _override(data: dict[str, Any], text: str) -> None:
    match = _OVERRIDE.fullmatch(text)
    if match is None:
        raise InputError(f"--set {shown(text)} is not of the form key=value or key.key=value")
    *parents, last = match[1].split(".")
    value = parse_yaml(match[2], f"--set {shown(text)}: the value")
    target = data
    for key in parents:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise InputError(f"--set {shown(text)}: {shown(key)} is not a group of settings")
    target[last] = value
