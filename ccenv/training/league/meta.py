"""The equilibrium of the game that two finite populations play, by linear programs.

Nature draws a scene, the network sees it, the sender does not. So the sender mixes once, and the network mixes in each scene
([PSRO] section 3 for the empirical game; von Stengel, Efficient computation of behavior strategies, Games and Economic
Behavior 1996, for linear programs over behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from ccenv.base.errors import CcenvError


@dataclass(frozen=True)
class Payoffs:
    """What senders get.

    Attributes:
        nominal: (S, P) score of each sender on each nominal path.
        attacked: (S, N, M) utilisation minus loss of each sender against each network in each scene.
        share: weight of the attacked part.
    """

    nominal: np.ndarray
    attacked: np.ndarray
    share: float

    @property
    def matrix(self) -> np.ndarray:
        """The payoff of each sender against each network, in the mean over scenes: (S, N)."""
        fixed = (1 - self.share) * self.nominal.mean(axis=1)
        return np.asarray(fixed[:, None] + self.share * self.attacked.mean(axis=2))

    @property
    def guarantees(self) -> np.ndarray:
        """What each sender gets alone against the worst of the networks in each scene: (S,)."""
        worst = self.attacked.min(axis=1).mean(axis=1)
        return np.asarray((1 - self.share) * self.nominal.mean(axis=1) + self.share * worst)


@dataclass(frozen=True)
class Mixtures:
    """An equilibrium of the empirical game.

    Attributes:
        value: what the sender's mixture gets.
        senders: (S,) probabilities.
        networks: (N, M) probabilities in each scene; each column adds up to one.
    """

    value: float
    senders: np.ndarray
    networks: np.ndarray


def equilibrium(payoffs: Payoffs) -> Mixtures:
    """Solve the game for both sides.

    Raises:
        CcenvError: if the solver of linear programs has no answer.
    """
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
    # Network: minimise w, where w is at least what every sender gets.
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


def against(payoffs: Payoffs, networks: np.ndarray) -> np.ndarray:
    """Return what each sender gets against mixtures of networks, (N, M) to (S,)."""
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
    found = linprog(cost, below, limits, equal, values, bounds, method="highs")
    if found.x is None:
        raise CcenvError(f"the mixture of the league has no answer: {found.message}")
    return np.asarray(found.x)


def _probabilities(values: np.ndarray) -> np.ndarray:
    clipped = np.maximum(values, 0.0)
    return np.asarray(clipped / clipped.sum(axis=0))
