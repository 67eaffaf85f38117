"""What a training run is told besides its environment and algorithm: when to stop, what to measure, where to log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ccenv.attacks.scenes import PATHS, REPORT, SCENE_SETS, TRAINING, scene_set
from ccenv.base.config import StrictModel
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.settings import EnvSettings
from ccenv.base.errors import unknown_name
from ccenv.network.path import Path
from ccenv.training.recipes.attacked import MODEL, DrawnAttacks, lanes_under_attack


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


class RobustSettings(StrictModel):
    """Rounds of training against what attacked the sender of the rounds before (PPO senders).

    Attributes:
        start_step: plain training until here.
        round_steps: environment steps of a round; each round starts with an attack on the sender as it is then.
        share: share of the environments that play against the pool; 0: none, and no attack (a control run).
        log_std: logarithm of the standard deviation of the actions, set anew when the rounds start; with ``drawn`` in each round.
        searches: adversaries of ``ccenv attack`` that give periodic moves.
        paths: on these scenes of ``ccenv attack``; worst cases are published on the others.
        budget_flow_steps: of each search.
        keep: newest patterns in the pool.
        policies: adversary policies (files, registered names) that are always in the pool.
        counterexamples: stored moves, ``NAME.moves.npz``, or folders that hold some, such as those of ``ccenv attack``. Each is
            played on its own path from a cold start. One on a scene needs that scene in ``paths``.
        counterexample_share: share of the attacked environments that play counterexamples.
        drawn: paths drawn for each round, attacked, and played again with what was found there
            (``ccenv.training.recipes.attacked``), in place of patterns from scenes: ``paths`` and ``policies`` are then empty.
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
    counterexamples: tuple[str, ...] = ()
    counterexample_share: float = Field(default=0.5, ge=0, le=1)
    drawn: DrawnAttacks | None = None

    @model_validator(mode="after")
    def _training_scenes(self) -> RobustSettings:
        if self.drawn is not None and (self.paths or self.policies):
            raise ValueError("drawn: the paths of rounds are drawn and nothing else is attacked; set paths and policies to []")
        for name in self.paths:
            if name not in PATHS:
                raise ValueError(str(unknown_name("attack path", name, PATHS)))
            if scene_set(name) == REPORT:
                raise ValueError(kept_for_reports("paths", name))
        return self

    def round_at(self, step: int) -> int:
        """Return the number of the round at a step; 0: before the first."""
        return 0 if step < self.start_step else 1 + (step - self.start_step) // self.round_steps

    def check_drawn(self, environment: EnvSettings, num_envs: int) -> None:
        """Raise ValueError if drawn paths cannot be attacked in these environments."""
        if self.drawn is None:
            return
        if not isinstance(environment.paths, PathDistribution):
            raise ValueError("robust.drawn: attacked paths stand beside random ones; environment.paths must be a distribution")
        able, wanted = len(lanes_under_attack(environment, num_envs, 1.0)), round(self.share * num_envs)
        if able < wanted:
            raise ValueError(
                f"robust.drawn attacks on {MODEL}: share {self.share:g} asks for {wanted} environments, {able} of {num_envs} "
                f"play {MODEL}; name it more often in environment.models"
            )

    def check_packet(self, *, has_boxes: bool, own_times: bool) -> None:
        """Raise ValueError for rounds with nothing to attack with, and for what only those of the curve environments have."""
        if not has_boxes:
            raise ValueError("robust: per packet the jitter boxes attack; packet.scenario has none with adversary 'external'")
        if own_times:
            raise ValueError(
                "robust: rounds per packet are for flows that decide at once; set packet.clock.common: true, no mixture"
            )
        for name in ("policies", "counterexamples", "paths", "searches", "drawn"):
            if getattr(self, name) != RobustSettings.model_fields[name].default:
                raise ValueError(f"robust.{name} is for the curve environments; per packet there are corners and cem")


def fixed_paths(paths: PathDistribution | Path | tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the paths of an environment that are not drawn."""
    if isinstance(paths, PathDistribution):
        return ()
    return (paths,) if isinstance(paths, Path) else paths


def kept_for_reports(where: str, name: str) -> str:
    """Return what is said of a scene that nothing may be trained on."""
    allowed = ", ".join(SCENE_SETS[TRAINING])
    return f"{where}: worst cases are published on the scene {name!r}, so nothing is trained on it; there are {allowed}"
