"""DAgger (Ross, Gordon, Bagnell 2011): the student drives, the teacher says what it would have done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.distill.template import Template
from ccenv.distill.tree import Samples, features_of, grow, predict, rate_of
from ccenv.envs.settings import EnvSettings
from ccenv.envs.task import ACTION_RANGE_LOG2, SenderTask
from ccenv.network.sender import PolicySender
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
    """Grow a tree that does what a policy does where the tree itself leads.

    Args:
        teacher: the policy.
        depth: of the tree.
        seed: of the training paths and of mixing.
        world: that the teacher was trained in.
    """
    task = SenderTask(ENVS, world)
    task.core.reset(seed=path_seed(PathSet.TRAIN, seed))
    rng = np.random.default_rng(seed)
    seen, wanted = _drive(task, teacher, None, rng)
    samples = Samples(seen, wanted)
    template, numbers = grow(samples, depth)
    error = float("nan")
    for _ in range(ROUNDS - 1):
        seen, wanted = _drive(task, teacher, (template, numbers), rng)
        error = float(np.mean(np.abs(predict(template, numbers, seen) / wanted - 1.0)))
        samples = Samples(np.concatenate([samples.features, seen]), np.concatenate([samples.rate, wanted]))
        template, numbers = grow(samples, depth)
    return Imitation(template, numbers, error, samples)


def policy_actions(policy: PolicySender, observations: np.ndarray) -> np.ndarray:
    """Return a policy's actions (n,) in [-1, 1] for observations (n, N_OBSERVATION)."""
    x = observations.astype(np.float64)
    for weight, bias in zip(policy.weights[:-1], policy.biases[:-1], strict=True):
        x = x @ weight + bias
        x = np.tanh(x) if policy.activation == "tanh" else np.maximum(0.0, x)
    actions: np.ndarray = np.clip((x @ policy.weights[-1] + policy.biases[-1])[:, 0], -1.0, 1.0)
    return actions


def _drive(
    task: SenderTask, teacher: PolicySender, student: tuple[Template, np.ndarray] | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    features, rates = [], []
    for _ in range(STEPS):
        observations = task.observe()
        seen = features_of(observations)
        wanted = rate_of(policy_actions(teacher, observations), seen[:, 2])
        features.append(seen)
        rates.append(wanted)
        played = wanted
        if student is not None:
            own = np.maximum(predict(*student, seen), 1e-3)
            played = np.where(rng.random(len(own)) < TEACHER_SHARE, wanted, own)
        task.step((np.log2(played) / ACTION_RANGE_LOG2)[:, None])
        ended = task.core.truncated()
        if ended.any():
            task.core.reset(ended)
    return np.concatenate(features), np.concatenate(rates)
