"""The learner: Stable-Baselines3 over the native batch, interruptible between iterations.

The random numbers of iteration i are keyed by (seed, i) alone, so a resumed run draws the same as an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ccenv.agents.interface.interface import OBSERVATION_VERSION, SENDER_V0, Interface
from ccenv.agents.learned import inner_cca
from ccenv.agents.learned.preferences import with_preference
from ccenv.agents.learned.weights import LearnedPlayer
from ccenv.agents.sender import PolicySender, ShieldSender
from ccenv.base.errors import CcenvError, require_extra
from ccenv.base.random import uniform
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.interface import sender_task
from ccenv.envs.curve.network import NetworkTask
from ccenv.envs.curve.task import SenderTask
from ccenv.envs.packet.mixture import FlowMixture
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.network.adversary import MlpAdversary
from ccenv.training.algorithms import ALGORITHMS, GradientNorm, action_layers, pack_memory, put_action_layers, unpack_memory
from ccenv.training.checkpoint import Stopwatch, TrainingState, pack_torch, select_tensors, unpack_torch
from ccenv.training.config import TrainConfig
from ccenv.training.logs import Progress
from ccenv.training.opponents import (
    WIDTH,
    attacked_paths,
    box_patterns,
    find_box_patterns,
    find_patterns,
    load_counterexamples,
    opponents,
)
from ccenv.training.path_sets import PathSet, path_seed
from ccenv.training.recipes import attacked
from ccenv.training.recipes.gap import PreferenceTask, assign_boxes, find_gap
from ccenv.training.recipes.replay import ReplayedPaths
from ccenv.training.settings import RobustSettings

require_extra("stable_baselines3", "train")
require_extra("torch", "train")

import torch  # noqa: E402  (only after the checks that name the extra)
from stable_baselines3.common.buffers import RolloutBuffer  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.logger import Logger  # noqa: E402

from ccenv.envs.clients.sb3 import CcenvVecEnv  # noqa: E402

_INITIAL_WEIGHTS = 2**20  # counter of the random numbers of the first weights; iterations count from 0
_POOL = "pool.moves"
_PROMOTED = "promoted.boxes"
_REPLAY = "replay."
MOST_LOSS = 1e12  # a loss beyond it is that of a run that diverges, though it is a number; not a number is beyond it too
_NO_DISTRIBUTION = "Expected parameter"  # torch's message for means or deviations of actions that are not finite

AfterIteration = Callable[[TrainingState, Progress], bool]


class DivergedError(CcenvError):
    """Training left the finite numbers."""


class Learner:
    """A training run whose state can be taken between iterations and restored; without a state it starts anew."""

    def __init__(self, config: TrainConfig, state: TrainingState | None = None) -> None:
        self.config = config
        self._algorithm = ALGORITHMS[config.algorithm]
        start = 0 if state is None else state.iteration * config.iteration_steps
        self._settings = config.environment_at(start)
        self._round = _find_round(config, start)
        self._patterns = np.zeros((0, 1, WIDTH)) if state is None else state.tensors.get(_POOL, np.zeros((0, 1, WIDTH)))
        self._promoted = np.zeros((0, 0, 2)) if state is None else state.tensors.get(_PROMOTED, np.zeros((0, 0, 2)))
        self._examples = load_counterexamples(config)
        self._attacked = attacked_paths(config, self._examples)
        self._findings = [] if state is None else attacked.unpack(state.tensors)
        self._replay: ReplayedPaths | None = None
        self._task = self._make_task()
        self.env = CcenvVecEnv(self._task)
        with _isolated_generators():
            _seed_all(config.seed, _INITIAL_WEIGHTS, self.env)
            self._model = self._algorithm.make(config, self.env)
        if state is None and (begun := config.warm_policy()) is not None:
            put_action_layers(self._algorithm, self._model, begun)
        self._model.set_logger(Logger(None, []))
        self._gradients = GradientNorm(self._model, self._algorithm.optimizers(self._model))
        self.clock = Stopwatch()
        self.marks: dict[str, float] = {}
        if state is None:
            self._task.core.reset(seed=path_seed(PathSet.TRAIN, config.seed))
        else:
            self._restore(state)
        if self._replay is not None:
            self._replay.begin(self._task.core.elapsed == 0)
        self._observe()
        self.state = self._pending = self._pack()

    def _observe(self) -> None:
        self._model._last_obs = self._task.observe()
        self._model._last_episode_starts = np.repeat(self._task.core.elapsed == 0, self._task.rows_per_env)

    def _restore(self, state: TrainingState) -> None:
        unpack_torch(self._model.policy, self._algorithm.optimizers(self._model), state.tensors)
        unpack_memory(self._model, state.tensors)
        if self._replay is not None:
            self._replay.set_state(select_tensors(state.tensors, _REPLAY))
        self._task.core.set_state(select_tensors(state.tensors, "env."))
        self._model.num_timesteps = state.iteration * self.config.iteration_steps
        self.clock = Stopwatch(state.seconds, state.cpu_seconds)
        self.marks = dict(state.marks)

    def _make_task(self) -> SenderTask | NetworkTask | SharedPacketTask | FlowMixture:
        if self.config.mixture:
            parts = self.config.mixture
            return FlowMixture([SharedPacketTask(part.num_envs, self.config.part_settings(part)) for part in parts])
        if self.config.packet is not None:
            packet, recipe, num_envs = self.config.packet_settings(), self.config.recipe, self.config.num_envs
            if recipe.preferences is not None:
                return PreferenceTask(num_envs, packet, recipe.preferences)
            boxes = box_patterns(self.config, self._patterns) if self.config.robust else None
            within = None
            if recipe.gap is not None and len(self._promoted):
                within = assign_boxes(num_envs, recipe.gap.share, self._promoted, len(packet.distribution.leaves))
            return SharedPacketTask(num_envs, packet, patterns=boxes, within=within)
        if self.config.trains == "network":
            return NetworkTask(self.config.num_envs, self._settings)
        if self.config.replay is not None and isinstance(self._settings.paths, PathDistribution):
            K, num_envs = self._settings.steps_per_rtt, self.config.num_envs
            self._replay = ReplayedPaths(self._settings.paths, K, num_envs, self.config.replay)
            return sender_task(num_envs, self._settings, source=self._replay)
        adversaries, source = None, None
        if self._round and self._attacked is not None:
            adversaries, source = self._attacked.meet(self._findings, self._round)
        elif self._round:
            adversaries, source = opponents(self.config, self._patterns, self._examples)
        return sender_task(self.config.num_envs, self._settings, False, adversaries, source, shared=self.config.shared_policy)

    def _next_stage(self, state: TrainingState) -> bool:
        """Change the environments if the next iteration begins a stage of the curriculum or a round; tell whether it did."""
        step = self._model.num_timesteps
        settings, round_ = self.config.environment_at(step), _find_round(self.config, step)
        if settings == self._settings and round_ == self._round:
            return False
        if round_ > self._round and self.config.robust is not None:
            self._start_round(round_, self.config.robust, state)
        if round_ > self._round and self.config.recipe.gap is not None:
            self._promote(round_, state)
        self._settings, self._round = settings, round_
        self._task = self.env.task = self._make_task()
        self._task.core.reset(seed=path_seed(PathSet.TRAIN, self.config.seed))
        self._observe()
        return True

    def _start_round(self, round_: int, robust: RobustSettings, state: TrainingState) -> None:
        """Attack the current sender; what the searches find joins the pool."""
        if self._round == 0 or self._attacked is not None:
            with torch.no_grad():
                self._model.policy.log_std.fill_(robust.log_std)
        policy = self.player(state)
        if self._attacked is not None and isinstance(policy, (PolicySender, ShieldSender)):
            self._findings = self._attacked.newest([*self._findings, *self._attacked.attack(policy, round_)], round_)
            return
        find = find_patterns if self.config.packet is None else find_box_patterns
        patterns = self._patterns if isinstance(policy, MlpAdversary) else find(self.config, policy, round_)
        pool = [self._patterns, patterns] if len(self._patterns) and len(patterns) else [patterns]
        self._patterns = np.concatenate(pool)[-robust.keep :]

    def _promote(self, round_: int, state: TrainingState) -> None:
        """Draw more often from the box in which the policy falls furthest behind the baseline."""
        policy, gap = self.player(state), self.config.recipe.gap
        if gap is None or gap.share == 0 or isinstance(policy, MlpAdversary):
            return
        box = find_gap(self.config.packet_settings(), policy, gap, self.config.seed, round_)[None]
        self._promoted = np.concatenate([self._promoted, box]) if len(self._promoted) else box

    def run(self, after_iteration: AfterIteration) -> None:
        """Train to the end of the config; ``state`` is always that of the last iteration kept, also after an exception.

        ``after_iteration`` is called with the new state and its progress, and returns whether to stop; what it does before
        ``keep`` is repeated after an interruption. Raises DivergedError if weights or losses are no longer finite.
        """
        remaining = self.config.iterations * self.config.iteration_steps - self._model.num_timesteps
        if remaining <= 0:
            return
        callback = _IterationCallback(self, after_iteration)
        self.clock.start()
        with _isolated_generators():
            try:
                self._model.learn(remaining, callback=callback, log_interval=None, reset_num_timesteps=False)
            except _Enough:
                return
            except ValueError as error:
                if self._finite() and _NO_DISTRIBUTION not in str(error):
                    raise
                raise self._diverged_error() from None
            try:
                callback.finish_iteration()
            except _Enough:
                return

    def score_levels(self, rollout: RolloutBuffer) -> None:
        """Update the replayed paths' regrets with a rollout's advantages."""
        if self._replay is not None:
            self._replay.score(rollout.advantages, rollout.episode_starts)

    def keep(self, marks: dict[str, float] | None = None) -> None:
        """Make the newest state the one to resume from, with the marks of evaluations (None: unchanged)."""
        if marks is not None:
            self.marks = marks
        self.state = self._pending = replace(self._pending, marks=dict(self.marks))

    def player(self, state: TrainingState | None = None) -> LearnedPlayer | ShieldSender:
        """Return the policy of a state (by default the last one kept) for the engines; it takes the mean action."""
        weights, biases = action_layers(self._algorithm, (state or self.state).tensors)
        config = self.config
        if not isinstance(self._task, NetworkTask):
            interface, discrete = self._interface()
            inner, head = inner_cca(interface, config.name), "categorical" if discrete else "mean"
            policy = PolicySender(config.name, weights, biases, config.activation, interface, head, inner=inner)
            if config.recipe.preferences is not None:
                return with_preference(policy, config.recipe.preferences.default)
            world = config.environment if config.packet is None else config.packet_settings()
            shield = world.shield_program()
            return policy if shield is None else ShieldSender(config.name, shield, "policy", policy)
        return MlpAdversary(
            config.name,
            weights,
            biases,
            config.activation,
            OBSERVATION_VERSION,
            self._task.move_columns,
            decision_steps=config.environment.decision_steps or 0,
            episode_rtts=config.environment.episode_rtts,
            levels=self._task.levels,
        )

    def _interface(self) -> tuple[Interface, bool]:
        if self.config.packet is not None:
            packet = self.config.packet_settings()
            return packet.policy_interface(), packet.n_actions is not None
        return self._settings.interface or SENDER_V0, self._settings.is_discrete

    def finish_iteration(self, reward: float, episodes: list[dict[str, float]]) -> tuple[TrainingState, Progress]:
        """Return the new state, not kept yet, and the iteration's progress without its evaluation."""
        metrics = {name: float(value) for name, value in self._model.logger.name_to_value.items() if name.startswith("train/")}
        losses = [value for name, value in metrics.items() if name.endswith("loss")]
        if not (self._finite() and all(abs(loss) < MOST_LOSS for loss in losses) and math.isfinite(reward)):
            raise self._diverged_error()
        state = self._pack()
        if self._next_stage(state):
            state = self._pack()
        self._pending = state

        of_episodes = {
            name: float(np.mean([episode[name] for episode in episodes])) if episodes else math.nan
            for name in ("utilisation", "queue", "loss", "delay", "jain")
        }
        policy_loss, value_loss = (metrics.get(name, math.nan) for name in self._algorithm.metrics)
        names = ("approx_kl", "explained_variance", "std", "entropy_loss", "clip_fraction")
        of_update = {name: metrics.get(f"train/{name}", math.nan) for name in names}
        progress = Progress(
            steps=self._model.num_timesteps,
            seconds=state.seconds,
            reward=reward,
            policy_loss=policy_loss,
            value_loss=value_loss,
            evaluation_score=math.nan,
            gradient_norm=self._gradients.take(),
            **of_episodes,
            **of_update,
        )
        return state, progress

    def _pack(self) -> TrainingState:
        tensors = pack_torch(self._model.policy, self._algorithm.optimizers(self._model)) | pack_memory(self._model)
        if self._round and self.config.robust is not None:
            tensors |= {_POOL: self._patterns} | attacked.pack(self._findings)
        if len(self._promoted):
            tensors[_PROMOTED] = self._promoted
        tensors |= {f"env.{name}": array for name, array in self._task.core.state().items()}
        if self._replay is not None:
            tensors |= {f"{_REPLAY}{name}": array for name, array in self._replay.state().items()}
        iteration = self._model.num_timesteps // self.config.iteration_steps
        return TrainingState(iteration, *self.clock.read(), tensors, dict(self.marks))

    def _finite(self) -> bool:
        return all(bool(np.isfinite(value.detach().numpy()).all()) for value in self._model.policy.parameters())

    def _diverged_error(self) -> DivergedError:
        good = self.state.iteration * self.config.iteration_steps
        return DivergedError(
            f"training left the finite numbers after step {good}, or its losses {MOST_LOSS:g}; the checkpoint of step {good} "
            f"is kept. Try a smaller {self.config.algorithm}.learning_rate (it is {self._model.lr_schedule(1.0):g})"
        )


class _Enough(Exception):
    """Raised to end training after an iteration."""


class _IterationCallback(BaseCallback):
    """Seeds each iteration and hands over its result when the next one starts."""

    def __init__(self, learner: Learner, after_iteration: AfterIteration) -> None:
        super().__init__()
        self._learner = learner
        self._after = after_iteration
        self._collected = 0
        self._reset()

    def _reset(self) -> None:
        self._reward_sum = 0.0
        self._steps = 0
        self._episodes: list[dict[str, float]] = []

    def _on_rollout_start(self) -> None:
        if self._steps:
            self.finish_iteration()
        _seed_all(self._learner.config.seed, self._learner.state.iteration, self._learner.env)

    def _on_step(self) -> bool:
        self._reward_sum += float(self.locals["rewards"].mean(dtype=np.float64))
        self._steps += 1
        self._episodes += [info for info in self.locals["infos"] if "terminal_observation" in info]
        return True

    def _on_rollout_end(self) -> None:
        if isinstance(buffer := getattr(self.model, "rollout_buffer", None), RolloutBuffer):
            self._learner.score_levels(buffer)

    def finish_iteration(self) -> None:
        state, progress = self._learner.finish_iteration(self._reward_sum / self._steps, self._episodes)
        enough = self._after(state, progress)
        self._learner.keep()
        self._reset()
        if enough:
            raise _Enough


def _find_round(config: TrainConfig, step: int) -> int:
    rounds = config.robust or config.recipe.gap
    return 0 if rounds is None else rounds.round_at(step)


def _seed_all(seed: int, counter: int, env: CcenvVecEnv) -> None:
    """Key the generators that Stable-Baselines3 draws from by (seed, counter)."""
    key = int(uniform(seed, 0, 0, counter) * 2**32)
    torch.default_generator.manual_seed(key)  # torch.manual_seed looks for other devices first, which takes a millisecond
    np.random.seed(key)
    env.action_space.seed(key)


@contextmanager
def _isolated_generators() -> Iterator[None]:
    """Isolate the caller's random generators; use one torch thread, because sums over several depend on their number."""
    threads, torch_state, numpy_state = torch.get_num_threads(), torch.get_rng_state(), np.random.get_state()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
