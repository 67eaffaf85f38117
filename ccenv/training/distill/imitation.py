"""DAgger (Ross, Gordon, Bagnell 2011): the student acts, and the teacher labels the states that it visits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ccenv.agents.sender import PolicySender
from ccenv.engine.compiled.policies import PolicyBatch
from ccenv.envs.curve.interface import WatchedTask
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.curve.task import ACTION_RANGE_LOG2, SenderTask
from ccenv.training.distill.tree import Samples, Template, action_rates, grow, make_features, predict
from ccenv.training.path_sets import PathSet, path_seed

ROUNDS = 6
ENVS = 128
STEPS = 90  # 11,520 samples a round
TEACHER_SHARE = 0.2  # share of the teacher's decisions in the student's rounds


@dataclass(frozen=True)
class Imitation:
    """A tree with its numbers, the states that it was fitted to, and its distance from the teacher.

    ``error`` is the mean of abs(rate / teacher's rate - 1) on the states of the last round before they were fitted.
    """

    template: Template
    numbers: np.ndarray
    error: float
    samples: Samples


def imitate(teacher: PolicySender, depth: int, seed: int, world: EnvSettings) -> Imitation:
    """Grow a tree that imitates a policy in the states that the tree itself visits."""
    guide = make_guide(teacher, world, ENVS)
    guide.reset(path_seed(PathSet.TRAIN, seed))
    rng = np.random.default_rng(seed)
    features, rates = _drive(guide, None, rng)
    samples = Samples(features, rates)
    template, numbers = grow(samples, depth)
    error = float("nan")
    for _ in range(ROUNDS - 1):
        features, rates = _drive(guide, (template, numbers), rng)
        error = float(np.mean(np.abs(predict(template, numbers, features) / rates - 1.0)))
        samples = Samples(np.concatenate([samples.features, features]), np.concatenate([samples.rate, rates]))
        template, numbers = grow(samples, depth)
    return Imitation(template, numbers, error, samples)


def _drive(guide: Guide, student: tuple[Template, np.ndarray] | None, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    features, rates = [], []
    for _ in range(STEPS):
        seen, teacher_rates = guide.ask()
        features.append(seen)
        rates.append(teacher_rates)
        applied = teacher_rates
        if student is not None:
            student_rates = np.maximum(predict(*student, seen), 1e-3)
            applied = np.where(rng.random(len(student_rates)) < TEACHER_SHARE, teacher_rates, student_rates)
        guide.play(applied)
    return np.concatenate(features), np.concatenate(rates)


class Guide(Protocol):
    """A batch of flows driven by a student, with a teacher that labels its states."""

    def reset(self, seed: int) -> None:
        """Start the episodes of a seed."""

    def ask(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs of a tree, (n, features), and the teacher's rate / C_L, (n,)."""

    def play(self, rates: np.ndarray) -> None:
        """Take a step at these rates / C_L, (n,); start new episodes where one ended."""


def make_guide(teacher: PolicySender, world: EnvSettings, n: int) -> Guide:
    return BeliefGuide(teacher, world, n) if teacher.is_first_version else WatchedGuide(teacher, world, n)


class BeliefGuide:
    """A teacher of the first version: a fully connected network over the same beliefs as the tree."""

    def __init__(self, teacher: PolicySender, world: EnvSettings, n: int) -> None:
        self._teacher, self._task = teacher, SenderTask(n, world)

    def reset(self, seed: int) -> None:
        self._task.core.reset(seed=seed)

    def ask(self) -> tuple[np.ndarray, np.ndarray]:
        observations = self._task.observe()
        features = make_features(observations)
        return features, action_rates(policy_actions(self._teacher, observations), features[:, 2])

    def play(self, rates: np.ndarray) -> None:
        self._task.step((np.log2(rates) / ACTION_RANGE_LOG2)[:, None])
        ended = self._task.core.truncated()
        if ended.any():
            self._task.core.reset(ended)


class WatchedGuide:
    """A teacher with any interface that sets rates: it is asked once per decision, and observes the student's actions."""

    def __init__(self, teacher: PolicySender, world: EnvSettings, n: int) -> None:
        interface = teacher.interface
        interface_settings = {
            "signals": interface.signals,
            "history": interface.history,
            "action": interface.action,
            "action_parameters": interface.parameters,
        }
        self._task = WatchedTask(n, world.model_copy(update=interface_settings))
        self._teacher = PolicyBatch(teacher, n)

    def reset(self, seed: int) -> None:
        self._task.core.reset(seed=seed)
        self._teacher.states[:] = 0.0

    def ask(self) -> tuple[np.ndarray, np.ndarray]:
        actions = self._teacher.actions(self._task.observe())[:, None]
        rates_Bps = self._task.rates_Bps(actions)[:, 0]
        core, flow = self._task.core, int(self._task.flows[0])
        features = make_features(core.observations()[:, flow])
        teacher_rates = np.clip(rates_Bps / core.flow("C_L_Bps")[:, flow], features[:, 2], 2.0**ACTION_RANGE_LOG2)
        return features, teacher_rates

    def play(self, rates: np.ndarray) -> None:
        core = self._task.core
        self._task.drive(np.maximum(rates * core.flow("C_L_Bps")[:, int(self._task.flows[0])], 1.0)[:, None])
        ended = core.truncated()
        if ended.any():
            core.reset(ended)
            self._teacher.reset(ended)


def policy_actions(policy: PolicySender, observations: np.ndarray) -> np.ndarray:
    """Return the actions (n,) in [-1, 1] of a policy of the first version for observations (n, N_OBSERVATION)."""
    x = observations.astype(np.float64)
    for weight, bias in zip(policy.weights[:-1], policy.biases[:-1], strict=True):
        x = x @ weight + bias
        x = np.tanh(x) if policy.activation == "tanh" else np.maximum(0.0, x)
    actions: np.ndarray = np.clip((x @ policy.weights[-1] + policy.biases[-1])[:, 0], -1.0, 1.0)
    return actions
