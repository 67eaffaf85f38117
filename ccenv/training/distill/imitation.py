"""DAgger (Ross, Gordon, Bagnell 2011): the student drives, the teacher says what it would have done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ccenv.agents.sender import PolicySender
from ccenv.engine.compiled.policies import PolicyBatch
from ccenv.envs.curve.interface import WatchedTask
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.curve.task import ACTION_RANGE_LOG2, SenderTask
from ccenv.training.distill.tree import Samples, Template, features_of, grow, predict, rate_of
from ccenv.training.path_sets import PathSet, path_seed

ROUNDS = 6
ENVS = 128
STEPS = 90  # 11,520 samples a round
TEACHER_SHARE = 0.2  # of the decisions in the student's rounds


@dataclass(frozen=True)
class Imitation:
    """A tree and how near it is to its teacher.

    Attributes:
        template: the tree.
        numbers: of the tree.
        error: mean |rate / teacher's rate - 1| on the states of the last round, which the fit has not seen.
        samples: the states that it was fitted to.
    """

    template: Template
    numbers: np.ndarray
    error: float
    samples: Samples


def imitate(teacher: PolicySender, depth: int, seed: int, world: EnvSettings) -> Imitation:
    """Grow a tree that does what a policy does where the tree itself leads."""
    guide = guide_of(teacher, world, ENVS)
    guide.reset(path_seed(PathSet.TRAIN, seed))
    rng = np.random.default_rng(seed)
    seen, wanted = _drive(guide, None, rng)
    samples = Samples(seen, wanted)
    template, numbers = grow(samples, depth)
    error = float("nan")
    for _ in range(ROUNDS - 1):
        seen, wanted = _drive(guide, (template, numbers), rng)
        error = float(np.mean(np.abs(predict(template, numbers, seen) / wanted - 1.0)))
        samples = Samples(np.concatenate([samples.features, seen]), np.concatenate([samples.rate, wanted]))
        template, numbers = grow(samples, depth)
    return Imitation(template, numbers, error, samples)


def _drive(guide: Guide, student: tuple[Template, np.ndarray] | None, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    features, rates = [], []
    for _ in range(STEPS):
        seen, wanted = guide.ask()
        features.append(seen)
        rates.append(wanted)
        played = wanted
        if student is not None:
            own = np.maximum(predict(*student, seen), 1e-3)
            played = np.where(rng.random(len(own)) < TEACHER_SHARE, wanted, own)
        guide.play(played)
    return np.concatenate(features), np.concatenate(rates)


class Guide(Protocol):
    """A batch of flows that a student drives, with a teacher who is asked."""

    def reset(self, seed: int) -> None:
        """Start the episodes of a seed."""

    def ask(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what a tree reads, (n, features), and the teacher's rate / C_L, (n,)."""

    def play(self, rates: np.ndarray) -> None:
        """Take a step at these rates / C_L, (n,); start new episodes where it ended one."""


def guide_of(teacher: PolicySender, world: EnvSettings, n: int) -> Guide:
    """Return n flows in a world with a policy beside them."""
    return BeliefGuide(teacher, world, n) if teacher.is_first_version else WatchedGuide(teacher, world, n)


class BeliefGuide:
    """A teacher of the first version: a fully connected network over the beliefs that the tree reads too."""

    def __init__(self, teacher: PolicySender, world: EnvSettings, n: int) -> None:
        """Begin with n flows."""
        self._teacher, self._task = teacher, SenderTask(n, world)

    def reset(self, seed: int) -> None:
        """See ``Guide``."""
        self._task.core.reset(seed=seed)

    def ask(self) -> tuple[np.ndarray, np.ndarray]:
        """See ``Guide``."""
        observations = self._task.observe()
        seen = features_of(observations)
        return seen, rate_of(policy_actions(self._teacher, observations), seen[:, 2])

    def play(self, rates: np.ndarray) -> None:
        """See ``Guide``."""
        self._task.step((np.log2(rates) / ACTION_RANGE_LOG2)[:, None])
        ended = self._task.core.truncated()
        if ended.any():
            self._task.core.reset(ended)


class WatchedGuide:
    """A teacher over any interface that sets rates: it is asked once per decision of the world, and sees what the student did."""

    def __init__(self, teacher: PolicySender, world: EnvSettings, n: int) -> None:
        """Begin with n flows."""
        sees = teacher.interface
        own = {"signals": sees.signals, "history": sees.history, "action": sees.action, "action_parameters": sees.parameters}
        self._task = WatchedTask(n, world.model_copy(update=own))
        self._teacher = PolicyBatch(teacher, n)

    def reset(self, seed: int) -> None:
        """See ``Guide``."""
        self._task.core.reset(seed=seed)
        self._teacher.states[:] = 0.0

    def ask(self) -> tuple[np.ndarray, np.ndarray]:
        """See ``Guide``."""
        actions = self._teacher.actions(self._task.observe())[:, None]
        rates_Bps = self._task.rates_Bps(actions)[:, 0]
        core, flow = self._task.core, int(self._task.flows[0])
        seen = features_of(core.observations()[:, flow])
        wanted = np.clip(rates_Bps / core.flow("C_L_Bps")[:, flow], seen[:, 2], 2.0**ACTION_RANGE_LOG2)
        return seen, wanted

    def play(self, rates: np.ndarray) -> None:
        """See ``Guide``."""
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
