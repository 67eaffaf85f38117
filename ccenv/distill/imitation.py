"""DAgger (Ross, Gordon, Bagnell 2011): the student drives, the teacher says what it would have done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.distill.guide import Guide, guide_of
from ccenv.distill.template import Template
from ccenv.distill.tree import Samples, grow, predict
from ccenv.envs.settings import EnvSettings
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
