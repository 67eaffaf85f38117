"""What players are worth to each other: runs on attacked paths, and nominal paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ccenv.agents import make_sender
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.goals import Counts, Goal
from ccenv.attacks.searches.lookahead import Look
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathSource, plain_paths
from ccenv.envs.curve.reward import TERMS, RewardWeights, weigh
from ccenv.base.errors import InputError
from ccenv.training.league.config import MODEL, LeagueConfig
from ccenv.network.adversary import Adversary, RecordedAdversary
from ccenv.network.path import Path
from ccenv.agents.sender import Sender
from ccenv.training.path_sets import PathSet, path_seed

NOMINAL_WARMUP_RTTS, NOMINAL_RTTS = 60, 64
REFERENCE = "cc_probe_drain"  # what a look costs does not depend on the sender


def _delivered_less_lost(counts: Counts) -> np.ndarray:
    return np.asarray((counts["S"].sum(axis=1) - counts["L"].sum(axis=1)) / counts["capacity"])


PAYOFF = Goal("payoff", "utilisation", 1, _delivered_less_lost, "leave the link idle, or make the sender lose what it sends")
"""Bytes delivered minus bytes lost in the measured window, over what the link could carry: the attacked part of the payoff."""


class AttackedPath(Game):
    """A sender on an attacked path, counted as the league counts."""

    @cached_property
    def goal(self) -> Goal:
        """The league's payoff, whatever the scene says."""
        return PAYOFF


class MixedGame(AttackedPath):
    """A game against a mixture of senders: what counts is the mean of their payoffs.

    Searches that look at an episode from inside, step by step, see the heaviest sender. The worst adversary ever played here is
    kept, so that a search cannot lose what it came upon. Flow-steps are those of one sender.

    Attributes:
        worst: the adversary with the lowest payoff; None before the first run.
        worst_payoff: its payoff.
    """

    def __init__(self, scenes: Sequence[Scene], weights: Sequence[float]) -> None:
        """Take scenes that differ in the sender only, the heaviest first, with positive weights."""
        super().__init__(scenes[0])
        self.worst: Adversary | None = None
        self.worst_payoff = np.inf
        self._others = [AttackedPath(scene) for scene in scenes[1:]]
        self._weights = np.asarray(weights) / np.sum(weights)

    def play_adversaries(self, adversaries: Sequence[Adversary]) -> np.ndarray:
        """Return the payoffs against each of several adversaries, (B,)."""
        payoffs: np.ndarray = self._weights[0] * super().play_adversaries(adversaries)
        for weight, game in zip(self._weights[1:], self._others, strict=True):
            payoffs = payoffs + weight * game.play_adversaries(adversaries)
        lowest = int(np.argmin(payoffs))
        if payoffs[lowest] < self.worst_payoff:
            one = adversaries[lowest]
            self.worst = replace(one, moves=one.moves.copy()) if isinstance(one, RecordedAdversary) else one
            self.worst_payoff = float(payoffs[lowest])
        return payoffs


def scene_of(config: LeagueConfig, sender: Sender, path: Path) -> Scene:
    """Return the game of one sender on a path."""
    K, warmup, window = config.steps_per_rtt, config.warmup_rtts, config.window_rtts
    return Scene(sender, path, MODEL, steps_per_rtt=K, warmup_rtts=warmup, window_rtts=window)


def check_budgets(config: LeagueConfig) -> None:
    """Raise InputError if a search that looks ahead gets less than its smallest look takes, before anything has begun."""
    game = AttackedPath(scene_of(config, make_sender(REFERENCE), draw_scenes(config)[0][0]))
    for what, specs, budget in (
        ("search_flow_steps", config.searches, config.search_flow_steps),
        ("hold_out_flow_steps", config.hold_outs, config.hold_out_flow_steps),
    ):
        for spec in specs:
            look = getattr(make_search(spec, code=False), "look", None)
            if isinstance(look, Look):
                try:
                    look.within(game, budget, spec)
                except InputError as error:
                    raise InputError(f"{what}: {error}") from None


def payoffs_on(config: LeagueConfig, sender: Sender, path: Path, networks: Sequence[Adversary]) -> np.ndarray:
    """Return what a sender gets on a path against each of several networks: (N,)."""
    return AttackedPath(scene_of(config, sender, path)).play_adversaries(list(networks))


def nominal_scores(config: LeagueConfig, sender: Sender, path_set: PathSet = PathSet.SELECT) -> np.ndarray:
    """Return the score of a sender on nominal paths from cold starts, by the usual weights: (P,).

    The paths are those of the training config's distribution, and its network plays; the set is one that nothing is trained on.
    """
    world = config.trained(0, 1).environment
    rtts = NOMINAL_WARMUP_RTTS + NOMINAL_RTTS
    cold = config.nominal_distribution.model_copy(update={"seeded_share": 0.0})
    settings = world.model_copy(update={"paths": cold, "staggered": False, "episode_rtts": rtts})
    core = Core(
        config.nominal_paths,
        settings,
        senders=[sender],
        adversary=settings.build_adversary(),
        groups=np.ones((1, 1), np.bool_),
    )
    core.reset(seed=path_seed(path_set, config.seed))
    for _ in range(NOMINAL_WARMUP_RTTS):
        core.advance()
    terms = np.zeros((config.nominal_paths, len(TERMS)))
    for _ in range(NOMINAL_RTTS):
        terms += core.advance()[:, 0]
    scores: np.ndarray = weigh(terms / NOMINAL_RTTS, RewardWeights().vector())
    return scores


def draw_scenes(config: LeagueConfig) -> tuple[list[Path], list[Path]]:
    """Return the paths that are learned on and the hold-out paths; the two sets share no key."""
    both = []
    for path_set, n in ((PathSet.TRAIN, config.scenes.count), (PathSet.REPORT, config.scenes.hold_outs)):
        seeds = np.full(n, path_seed(path_set, config.seed))
        drawn = PathSource(config.scenes.paths, config.steps_per_rtt, 1).draw(seeds, np.arange(n), np.zeros(n, np.int64)).paths
        both.append(plain_paths(drawn))
    return both[0], both[1]
