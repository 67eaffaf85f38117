"""The empirical game of a league: payoffs on attacked and nominal paths, and its equilibrium by linear programs.

Nature draws an attack scenario; the network sees it, the sender does not. So the sender has one mixture, and the network one in
each scenario ([PSRO] section 3 for the empirical game; von Stengel, Efficient computation of behavior strategies, Games and
Economic Behavior 1996, for linear programs over behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from ccenv.agents import make_sender
from ccenv.agents.sender import Sender
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.goals import Counts, Goal
from ccenv.attacks.searches.lookahead import Look
from ccenv.base.errors import CcenvError, InputError
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathSource, plain_paths
from ccenv.envs.curve.settings import REWARD_TERMS, RewardWeights, weigh
from ccenv.network.adversary import Adversary, RecordedAdversary
from ccenv.network.path import Path
from ccenv.training.league.config import MODEL, LeagueConfig
from ccenv.training.path_sets import PathSet, path_seed

NOMINAL_WARMUP_RTTS, NOMINAL_RTTS = 60, 64
REFERENCE = "cc_probe_drain"  # the cost of a look-ahead does not depend on the sender


def _delivered_less_lost(counts: Counts) -> np.ndarray:
    return np.asarray((counts["delivered"].sum(axis=1) - counts["lost"].sum(axis=1)) / counts["capacity"])


PAYOFF = Goal("payoff", "utilisation", 1, _delivered_less_lost, "leave the link idle, or make the sender lose what it sends")
"""The attacked part of the payoff: bytes delivered minus bytes lost in the measured window, over what the link could carry."""


class AttackedPath(Game):
    """A sender on an attacked path, with the league's payoff."""

    @cached_property
    def goal(self) -> Goal:
        """The league's payoff, whatever the goal of the scenario."""
        return PAYOFF


class MixedGame(AttackedPath):
    """A game against a mixture of senders, with their mean payoff; ``worst`` is the adversary with the lowest, None at first.

    Searches that step through an episode see the heaviest sender. The worst adversary ever played is kept, so that a search
    cannot lose it. Flow-steps are those of one sender.
    """

    def __init__(self, scenes: Sequence[Scene], weights: Sequence[float]) -> None:
        """Take scenarios that differ only in the sender, the heaviest first, with positive weights."""
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


def make_scene(config: LeagueConfig, sender: Sender, path: Path) -> Scene:
    K, warmup, window = config.steps_per_rtt, config.warmup_rtts, config.window_rtts
    return Scene(sender, path, MODEL, steps_per_rtt=K, warmup_rtts=warmup, window_rtts=window)


def check_budgets(config: LeagueConfig) -> None:
    """Raise InputError, before a league begins, if the budget of a look-ahead search is below its smallest look-ahead."""
    game = AttackedPath(make_scene(config, make_sender(REFERENCE), draw_scenes(config)[0][0]))
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


def play_payoffs(config: LeagueConfig, sender: Sender, path: Path, networks: Sequence[Adversary]) -> np.ndarray:
    """Return a sender's payoffs on a path against each of several networks, (N,)."""
    return AttackedPath(make_scene(config, sender, path)).play_adversaries(list(networks))


def nominal_scores(config: LeagueConfig, sender: Sender, path_set: PathSet = PathSet.SELECT) -> np.ndarray:
    """Return a sender's scores with the default weights on nominal paths from cold starts, (P,).

    Paths and network are those of the training config; nothing is trained on the set of paths.
    """
    world = config.training_config(0, 1).environment
    rtts = NOMINAL_WARMUP_RTTS + NOMINAL_RTTS
    cold = config.nominal_distribution.model_copy(update={"seeded_share": 0.0})
    settings = world.model_copy(update={"paths": cold, "staggered": False, "episode_rtts": rtts})
    core = Core(
        config.nominal_paths, settings, senders=[sender], adversary=settings.build_adversary(), groups=np.ones((1, 1), np.bool_)
    )
    core.reset(seed=path_seed(path_set, config.seed))
    for _ in range(NOMINAL_WARMUP_RTTS):
        core.advance()
    terms = np.zeros((config.nominal_paths, len(REWARD_TERMS)))
    for _ in range(NOMINAL_RTTS):
        terms += core.advance()[:, 0]
    scores: np.ndarray = weigh(terms / NOMINAL_RTTS, RewardWeights().vector())
    return scores


def draw_scenes(config: LeagueConfig) -> tuple[list[Path], list[Path]]:
    """Return the paths to learn on and the hold-out paths; the two sets share no key."""
    both = []
    for path_set, n in ((PathSet.TRAIN, config.scenes.count), (PathSet.REPORT, config.scenes.hold_outs)):
        seeds = np.full(n, path_seed(path_set, config.seed))
        drawn = PathSource(config.scenes.paths, config.steps_per_rtt, 1).draw(seeds, np.arange(n), np.zeros(n, np.int64)).paths
        both.append(plain_paths(drawn))
    return both[0], both[1]


@dataclass(frozen=True)
class Payoffs:
    """Payoffs of the senders."""

    nominal: np.ndarray  # (S, P) score of each sender on each nominal path
    attacked: np.ndarray  # (S, N, M) utilisation minus loss of each sender against each network in each scenario
    share: float  # weight of the attacked part

    @property
    def matrix(self) -> np.ndarray:
        """Payoff of each sender against each network, mean over scenarios: (S, N)."""
        fixed = (1 - self.share) * self.nominal.mean(axis=1)
        return np.asarray(fixed[:, None] + self.share * self.attacked.mean(axis=2))

    @property
    def guarantees(self) -> np.ndarray:
        """Payoff of each single sender against the worst network in each scenario: (S,)."""
        worst = self.attacked.min(axis=1).mean(axis=1)
        return np.asarray((1 - self.share) * self.nominal.mean(axis=1) + self.share * worst)


@dataclass(frozen=True)
class Mixtures:
    """An equilibrium of the empirical game."""

    value: float  # payoff of the sender's mixture
    senders: np.ndarray  # (S,) probabilities
    networks: np.ndarray  # (N, M) probabilities in each scenario; each column adds up to one


def equilibrium(payoffs: Payoffs) -> Mixtures:
    """Solve the game for both sides. Raises CcenvError if a linear program is not solved."""
    fixed, attacked, weight = payoffs.nominal.mean(axis=1), payoffs.attacked, payoffs.share
    n_senders, n_networks, n_scenes = attacked.shape
    # Sender: maximise (1 - share) fixed . x + share / M * sum_k v_k, where v_k <= sum_i x_i attacked[i, j, k] for all j.
    below = np.zeros((n_networks * n_scenes, n_senders + n_scenes))
    below[:, :n_senders] = -attacked.reshape(n_senders, -1).T
    below[:, n_senders:] = np.tile(np.eye(n_scenes), (n_networks, 1))
    cost = -np.concatenate([(1 - weight) * fixed, np.full(n_scenes, weight / n_scenes)])
    one = np.concatenate([np.ones(n_senders), np.zeros(n_scenes)])[None]
    of_senders: list[tuple[float | None, float | None]] = [(0.0, 1.0)] * n_senders + [(None, None)] * n_scenes
    x = _solve(cost, below, np.zeros(len(below)), one, np.ones(1), of_senders)
    # Network: minimise w, where w is at least every sender's payoff.
    above = np.zeros((n_senders, n_networks * n_scenes + 1))
    above[:, :-1] = weight / n_scenes * attacked.reshape(n_senders, -1)
    above[:, -1] = -1.0
    ones = np.zeros((n_scenes, n_networks * n_scenes + 1))
    ones[:, :-1] = np.tile(np.eye(n_scenes), (1, n_networks))
    target = np.concatenate([np.zeros(n_networks * n_scenes), [1.0]])
    of_networks: list[tuple[float | None, float | None]] = [(0.0, 1.0)] * (n_networks * n_scenes) + [(None, None)]
    y = _solve(target, above, -(1 - weight) * fixed, ones, np.ones(n_scenes), of_networks)
    senders = _probabilities(x[:n_senders])
    networks = _probabilities(y[:-1].reshape(n_networks, n_scenes))
    worst = np.tensordot(senders, attacked, 1).min(axis=0).mean()
    return Mixtures(float((1 - weight) * fixed @ senders + weight * worst), senders, networks)


def payoffs_against(payoffs: Payoffs, networks: np.ndarray) -> np.ndarray:
    """Return each sender's payoff, (S,), against mixtures of networks, (N, M)."""
    of_scene = (payoffs.attacked * networks).sum(axis=1)
    return np.asarray((1 - payoffs.share) * payoffs.nominal.mean(axis=1) + payoffs.share * of_scene.mean(axis=1))


def _solve(
    cost: np.ndarray,
    below: np.ndarray,
    limits: np.ndarray,
    equal: np.ndarray,
    values: np.ndarray,
    bounds: list[tuple[float | None, float | None]],
) -> np.ndarray:
    solution = linprog(cost, below, limits, equal, values, bounds, method="highs")
    if solution.x is None:
        raise CcenvError(f"the mixture of the league has no answer: {solution.message}")
    return np.asarray(solution.x)


def _probabilities(values: np.ndarray) -> np.ndarray:
    clipped = np.maximum(values, 0.0)
    return np.asarray(clipped / clipped.sum(axis=0))
