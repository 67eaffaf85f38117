"""What a training run is told besides its environment and algorithm: when to stop, what to measure, where to log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ccenv.config import StrictModel
from ccenv.envs.distribution import PathDistribution


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


class MixturePart(StrictModel):
    """A part of the environments of a mixture.

    Attributes:
        scenario: a scenario distribution, as ``packet.scenario``.
        num_envs: how many networks.
        episode_decisions: steps of an episode; None: as ``packet`` says. A step is a decision of some flow of a network.
    """

    scenario: Any
    num_envs: int = Field(ge=1)
    episode_decisions: int | None = Field(default=None, ge=2, le=10_000_000)


class EarlyStop(StrictModel):
    """When to stop before ``total_steps``.

    Attributes:
        patience: evaluations in a row without a gain; 0: never stop early.
        min_gain: what counts as a gain of the held-out score.
    """

    patience: int = Field(default=0, ge=0)
    min_gain: float = Field(default=0.0005, ge=0, allow_inf_nan=False)


class EvaluationSettings(StrictModel):
    """Scores in the config's own world (``ccenv.training.evaluation``), on three sets of paths that share none.

    Attributes:
        worlds: scenario distributions besides the own one (``ccenv.simulation.ranges``), by name, in which a packet policy is
            evaluated at the end: what it was not trained on.
        every_steps: steps between evaluations during training, on the set that the best checkpoint is chosen on and, with an
            early stop, on the one that stops; 0: only at the end.
        n_paths: number of paths of the final evaluation.
        n_paths_during: number of paths of each of the others.
    """

    worlds: dict[str, Any] = Field(default_factory=dict)
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
    """Where progress goes besides progress.csv, and what evaluations during training show besides their score.

    Attributes:
        tensorboard: write event files into the run's folder.
        wandb: see ``WandbSettings``.
        networks: adversaries by name; each evaluation of a sender is repeated against each of them.
        exploitability_flow_steps: budget of an attack on the sender at each evaluation, in engine steps of flows; 0: none.
        video: a video of one episode at each evaluation.
    """

    tensorboard: bool = False
    wandb: WandbSettings = WandbSettings()
    networks: tuple[str, ...] = Field(default=(), max_length=16)
    exploitability_flow_steps: int = Field(default=0, ge=0, le=10**9)
    video: bool = False
