"""Groups of settings of a training config: curriculum, early stop, evaluation, logs, robust rounds, learning algorithms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ccenv.attacks.scenes import PATHS, REPORT, SCENE_SETS, TRAINING, scene_set
from ccenv.base.config import StrictModel
from ccenv.base.errors import unknown_name
from ccenv.engine.compiled.policies import MAX_WIDTH
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.path import Path
from ccenv.training.recipes.attacked import MODEL, DrawnAttacks, lanes_under_attack


class CurriculumStage(StrictModel):
    """A stage of a curriculum, with other models or paths until a step.

    Attributes:
        until_step: the stage ends at the first iteration that starts at this step or later.
        models: instead of the environment's; None: unchanged.
        paths: instead of the environment's; None: unchanged.
    """

    until_step: int = Field(ge=1)
    models: tuple[str, ...] | None = None
    paths: PathDistribution | None = None


class MixturePart(StrictModel):
    """A part of the environments of a mixture.

    Attributes:
        scenario: a scenario distribution, as ``packet.scenario``.
        num_envs: number of networks.
        episode_decisions: steps of an episode; None: those of ``packet``. A step is a decision of some flow of a network.
    """

    scenario: Any
    num_envs: int = Field(ge=1)
    episode_decisions: int | None = Field(default=None, ge=2, le=10_000_000)


class EarlyStop(StrictModel):
    """Early stopping before ``total_steps``.

    Attributes:
        patience: consecutive evaluations without a gain; 0: never stop early.
        min_gain: least increase of the held-out score that counts as a gain.
    """

    patience: int = Field(default=0, ge=0)
    min_gain: float = Field(default=0.0005, ge=0, allow_inf_nan=False)


class EvaluationSettings(StrictModel):
    """Scores in the config's own world (``ccenv.training.evaluation``), on three disjoint sets of paths.

    Attributes:
        worlds: further scenario distributions (``ccenv.simulation.ranges``), by name, in which a packet policy is evaluated at
            the end without having been trained there.
        every_steps: steps between evaluations during training, on ``PathSet.SELECT`` for the best checkpoint and, with an early
            stop, on ``PathSet.STOP``; 0: only at the end.
        n_paths: number of paths of the final evaluation.
        n_paths_during: number of paths of each evaluation during training.
    """

    worlds: dict[str, Any] = Field(default_factory=dict)
    every_steps: int = Field(default=0, ge=0)
    n_paths: int = Field(default=1024, ge=1)
    n_paths_during: int = Field(default=256, ge=1)


class WandbSettings(StrictModel):
    """Weights & Biases.

    Attributes:
        enabled: log to it.
        project: name of the project.
        mode: ``"offline"`` keeps everything in the run's folder.
    """

    enabled: bool = False
    project: str = Field(default="ccenv", min_length=1)
    mode: Literal["offline", "online"] = "offline"


class LogSettings(StrictModel):
    """Logs besides progress.csv, and evaluations during training besides the score.

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
    """Rounds of training against adversaries found against earlier versions of the sender (PPO senders).

    Attributes:
        start_step: plain training before it.
        round_steps: environment steps of a round; each round starts with an attack on the current sender.
        share: share of the environments that play against the pool; 0: none, and no attack (a control run).
        log_std: logarithm of the standard deviation of the actions, reset when the rounds start; with ``drawn`` in each round.
        searches: adversaries of ``ccenv attack`` that give periodic moves.
        paths: attack scenarios of ``ccenv attack`` to train on; worst cases are published on the others.
        budget_flow_steps: of each search.
        keep: newest patterns in the pool.
        policies: adversary policies (files, registered names) that are always in the pool.
        counterexamples: stored moves, ``NAME.moves.npz``, or folders of them, such as those of ``ccenv attack``. Each is played
            on its own path from a cold start. One in an attack scenario needs that scenario in ``paths``.
        counterexample_share: share of the attacked environments that play counterexamples.
        drawn: paths drawn and attacked in each round, and replayed with the adversaries found there
            (``ccenv.training.recipes.attacked``), instead of patterns: ``paths`` and ``policies`` are then empty.
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
                raise ValueError(report_scene_message("paths", name))
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
        available, n_attacked = len(lanes_under_attack(environment, num_envs, 1.0)), round(self.share * num_envs)
        if available < n_attacked:
            raise ValueError(
                f"robust.drawn attacks on {MODEL}: share {self.share:g} asks for {n_attacked} environments, {available} of "
                f"{num_envs} play {MODEL}; name it more often in environment.models"
            )

    def check_packet(self, *, has_boxes: bool, own_times: bool) -> None:
        """Raise ValueError for rounds without delay elements to attack with, and for settings of the curve environments."""
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
    """Return the fixed paths of an environment; empty if paths are drawn."""
    if isinstance(paths, PathDistribution):
        return ()
    return (paths,) if isinstance(paths, Path) else paths


def report_scene_message(key: str, name: str) -> str:
    """Return the error message for training on an attack scenario that is kept for reports."""
    allowed = ", ".join(SCENE_SETS[TRAINING])
    return f"{key}: worst cases are published on the scene {name!r}, so nothing is trained on it; there are {allowed}"


class PpoSettings(StrictModel):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) as Stable-Baselines3 implements it.

    Attributes:
        n_steps: environment steps per environment and iteration.
        batch_size: samples per gradient step.
        n_epochs: passes over the samples of an iteration.
        learning_rate: of Adam.
        last_learning_rate: of the last iteration (0.0001), reached in a straight line; None: ``learning_rate`` all the time. What
            a run ends with then depends less on its last minibatches.
        gamma: discount per environment step.
        gae_lambda: of the generalised advantage estimate.
        clip_range: of the probability ratio.
        entropy_weight: of the entropy bonus.
        value_weight: of the value loss.
        max_gradient_norm: larger gradients are scaled down.
        max_critic_gradient_norm: those of the critic apart from the actor's, for flows that decide at their own times (0.5);
            None: both together. Where rewards are large, the critic's gradient would otherwise leave the actor nothing.
        reward_scale: what rewards are multiplied by before anything is learned from them (0.05); records keep them as they are.
        hidden: widths of the hidden layers of policy and value network.
        activation: ``"tanh"`` or ``"relu"``.
        log_std: initial logarithm of the standard deviation of the actions.
        rollouts: ``"kernel"``: policy and environments in one compiled loop (``ccenv.training.ppo``); ``"python"``: the
            library's own loop. They differ only in their random numbers.
    """

    n_steps: int = Field(default=32, ge=2)
    batch_size: int = Field(default=1024, ge=2)
    n_epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    last_learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    clip_range: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    entropy_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    value_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    max_gradient_norm: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    max_critic_gradient_norm: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    reward_scale: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1, max_length=5)
    activation: Literal["tanh", "relu"] = "tanh"
    log_std: float = Field(default=-0.7, ge=-10, le=2)
    rollouts: Literal["kernel", "python"] = "kernel"

    @model_validator(mode="after")
    def _widths(self) -> PpoSettings:
        check_widths(self.hidden)
        return self


class OffPolicySettings(StrictModel):
    """Common settings of SAC and TD3. Hidden layers are tanh: the kernel has one activation, and actions are squashed by it.

    Attributes:
        n_steps: environment steps per environment and iteration.
        gradient_steps: gradient steps per iteration.
        batch_size: samples per gradient step.
        buffer_size: samples in the replay buffer.
        learning_starts: initial steps of random actions.
        learning_rate: of Adam.
        gamma: discount per environment step.
        tau: rate at which the target networks follow, per gradient step.
        hidden: widths of the hidden layers of actor and critics.
    """

    n_steps: int = Field(default=4, ge=1)
    gradient_steps: int = Field(default=16, ge=1)
    batch_size: int = Field(default=256, ge=2)
    buffer_size: int = Field(default=65_536, ge=256, le=4_194_304)
    learning_starts: int = Field(default=4096, ge=0)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    tau: float = Field(default=0.02, gt=0, le=1)
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1, max_length=4)

    @model_validator(mode="after")
    def _widths(self) -> OffPolicySettings:
        check_widths(self.hidden)
        return self


class SacSettings(OffPolicySettings):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905).

    Attributes:
        initial_entropy_weight: start of the adaptive entropy weight.
    """

    initial_entropy_weight: float = Field(default=0.1, gt=0, allow_inf_nan=False)


class Td3Settings(OffPolicySettings):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477).

    Attributes:
        noise_std: standard deviation of the noise on actions.
        policy_delay: critic updates per actor update.
    """

    noise_std: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    policy_delay: int = Field(default=2, ge=1)


class OfflineSettings(StrictModel):
    """Learning from a data set (``ccenv data make``) with the networks and steps of ``td3``.

    Attributes:
        data: config of the data set: a shipped name or a YAML file. If it is not there, it is made.
        method: ``"bc"``: behaviour cloning; ``"iql"``: implicit Q-learning.
        online_from_step: from this step on it plays itself too, and half of each minibatch is its own; 0: never.
        expectile: of the values of a state's actions that is the value of the state; 0.5: their mean.
        temperature: of the weights of the imitated actions, per standard deviation of the advantage; 0: all weigh the same.
        most_weight: largest weight.
    """

    data: str = Field(default="quick", min_length=1, max_length=400)
    method: Literal["bc", "iql"] = "iql"
    online_from_step: int = Field(default=0, ge=0)
    expectile: float = Field(default=0.8, gt=0, lt=1)
    temperature: float = Field(default=2.0, ge=0, le=100)
    most_weight: float = Field(default=100.0, ge=1, allow_inf_nan=False)


def check_widths(hidden: tuple[int, ...]) -> None:
    """Raise ValueError for hidden layers that the kernel cannot evaluate."""
    if not all(1 <= width <= MAX_WIDTH for width in hidden):
        raise ValueError(f"hidden {list(hidden)}: widths must lie in 1 to {MAX_WIDTH}, what the kernel can evaluate")
