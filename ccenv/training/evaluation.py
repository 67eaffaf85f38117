"""The score of a sender on fixed held-out paths, the same for learned, synthesised and classic ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.adversary import Adversary
from ccenv.envs.core import SEED_LIMIT, Core
from ccenv.envs.distribution import PathDistribution
from ccenv.envs.mixture import MoveMixture
from ccenv.envs.reward import TERMS, RewardWeights, weigh
from ccenv.envs.settings import EnvSettings
from ccenv.errors import InputError
from ccenv.path import Path
from ccenv.sender import ExternalSender, Sender

HELD_OUT_SEED = SEED_LIMIT // 2  # training seeds lie below 2**31
MODELS = ("cbr_delay", "ccac")


@dataclass(frozen=True)
class Evaluation:
    """Means over paths; every path counts the same.

    Attributes:
        score: utilisation - 0.1*queue - loss, or as the weights say.
        utilisation: bytes delivered / bytes that the link could carry.
        queue_bdp: mean queue / (C*Rm).
        loss: bytes lost / bytes that the link could carry.
        delay_rtts: mean queueing and jitter delay / Rm.
        score_p5: score of the path at the 5th percentile.
        n_paths: number of paths.
    """

    score: float
    utilisation: float
    queue_bdp: float
    loss: float
    delay_rtts: float
    score_p5: float
    n_paths: int


def evaluate_sender(
    sender: Sender,
    n_paths: int = 1024,
    seed: int = HELD_OUT_SEED,
    *,
    paths: PathDistribution | Path | Sequence[Path] | None = None,
    models: Sequence[str] = MODELS,
    adversary: Adversary | None = None,
    weights: RewardWeights | None = None,
    warmup_rtts: int = 60,
    measure_rtts: int = 64,
    steps_per_rtt: int = 8,
    threads: int = 1,
) -> Evaluation:
    """Score a sender that runs alone on each of many paths.

    Each path starts cold (C_L is one segment per Rm, an idle link) and is measured after a warm-up.

    Args:
        sender: any sender that decides for itself.
        n_paths: number of paths, divided among the models.
        seed: of the paths and the network's moves.
        paths: where the paths come from; by default ``PathDistribution`` with cold starts.
        models: network models.
        adversary: the network's player; by default the mixture that training meets.
        weights: of the score's terms.
        warmup_rtts: round trips before the measurement.
        measure_rtts: round trips measured.
        steps_per_rtt: K.
        threads: threads for the engine; results do not depend on it.

    Raises:
        InputError: for an external sender.
    """
    if isinstance(sender, ExternalSender):
        raise InputError("an external sender cannot be evaluated: its rate comes from outside")
    chosen = PathDistribution(seeded_share=0.0) if paths is None else paths
    settings = EnvSettings(
        paths=chosen if isinstance(chosen, (PathDistribution, Path)) else tuple(chosen),
        models=tuple(models),
        steps_per_rtt=steps_per_rtt,
        episode_rtts=warmup_rtts + measure_rtts,
        threads=threads,
    )
    player = MoveMixture().adversary() if adversary is None else adversary
    core = Core(n_paths, settings, senders=[sender], adversary=player, groups=np.ones((1, 1), np.bool_))
    core.reset(seed=seed)
    for _ in range(warmup_rtts):
        core.advance()
    terms = np.zeros((n_paths, len(TERMS)))
    for _ in range(measure_rtts):
        terms += core.advance()[:, 0]
    terms /= measure_rtts
    scores = weigh(terms, (weights or RewardWeights()).vector())
    mean = dict(zip(TERMS, terms.mean(axis=0).tolist(), strict=True))
    return Evaluation(
        score=float(scores.mean()),
        utilisation=mean["utilisation"],
        queue_bdp=mean["queue"],
        loss=mean["loss"],
        delay_rtts=mean["delay"],
        score_p5=float(np.quantile(scores, 0.05)),
        n_paths=n_paths,
    )
