"""What a policy learned from data is worth: beside the data's behaviours, and where the data cover what it does."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ccenv.agents.sender import PolicySender
from ccenv.envs.packet.settings import PacketSettings
from ccenv.training.evaluation import Evaluation, cold_task, measure_networks, watch_networks
from ccenv.training.offline.config import sees_signals
from ccenv.training.offline.dataset import Data
from ccenv.training.path_sets import PathSet

NEIGHBOURS = 16_384  # transitions of the data among which the nearest is sought
SAMPLES = 64  # decisions of each network whose neighbours are sought


def report_offline(
    data: Data, settings: PacketSettings, policy: PolicySender, before: PolicySender | None, n_networks: int
) -> dict[str, Any]:
    """Return scores on ``PathSet.REPORT`` of a policy, of the behaviours of its data on the same networks, and the coverage.

    ``before`` is the policy before it played itself, or None.
    """
    shares = np.bincount(data.parts, minlength=len(data.config.parts)) / len(data.parts)
    senders: dict[str, float] = {}
    for part, share in zip(data.config.parts, shares.tolist(), strict=True):
        senders[part.behaviour] = senders.get(part.behaviour, 0.0) + share
    loaded = {part.behaviour: part.sender() for part in data.config.parts}
    behaviours: list[dict[str, Any]] = []
    of_networks = np.zeros(n_networks)
    for name, share in senders.items():
        sender = loaded[name]
        if isinstance(sender, PolicySender) and sees_signals(sender):
            evaluation, scores = play_policy(settings, sender, n_networks)
        else:
            evaluation, scores = watch_networks(settings, sender, n_networks)
        behaviours.append({"behaviour": name, "share": share, "score": evaluation.score, "score_p5": evaluation.score_p5})
        of_networks += share * scores
    evaluation, scores, seen, actions = _play(settings, policy, n_networks)
    mixture, best = float(of_networks.mean()), max(behaviours, key=lambda one: one["score"])
    return {
        "data": data.id,
        "sha256": data.sha256,
        "transitions": len(data.rewards),
        "score": evaluation.score,
        "behaviour_score": mixture,
        "gain": evaluation.score - mixture,
        "best_behaviour": best["behaviour"],
        "best_behaviour_score": best["score"],
        "behaviours": behaviours,
        "before_online": None if before is None else asdict(play_policy(settings, before, n_networks)[0]),
        "coverage": cover(data, seen, actions, scores - of_networks),
    }


def play_policy(settings: PacketSettings, policy: PolicySender, n_networks: int) -> tuple[Evaluation, np.ndarray]:
    """Return the evaluation of a policy and its score in each network, (n_networks,)."""
    return _play(settings, policy, n_networks)[:2]


def _play(
    settings: PacketSettings, policy: PolicySender, n_networks: int
) -> tuple[Evaluation, np.ndarray, np.ndarray, np.ndarray]:
    """Return evaluation and scores, and what the policy saw and did at each decision: (n_networks, decisions, width or 1)."""
    task, batch = cold_task(settings, policy, n_networks)
    seen: list[np.ndarray] = []
    actions: list[np.ndarray] = []

    def step() -> np.ndarray:
        seen.append(task.observe())
        actions.append(batch.actions(seen[-1])[:, None])
        return task.step(actions[-1])

    evaluation, scores = measure_networks(settings, task.core, step, path_set=PathSet.REPORT)
    return evaluation, scores, np.stack(seen, axis=1), np.stack(actions, axis=1)


def cover(data: Data, seen: np.ndarray, actions: np.ndarray, gains: np.ndarray) -> dict[str, float]:
    """Return how much of what a policy does lies near the data, and how much of its gain over the networks that explains.

    A decision is covered if its nearest neighbour among transitions of the data is no farther than 95 % of the data's own are
    from theirs, by newest signals and action, each over its standard deviation in the data.

    Args:
        data: that the policy learned from.
        seen: (networks, decisions, width) observations.
        actions: (networks, decisions, 1).
        gains: (networks,) score above that of the behaviours.

    Returns:
        ``covered``, share of the decisions; ``median_distance`` over the data's own; ``explained``, the squared correlation over
        networks of the share covered with the gain; ``correlation``, with its sign (0 where one of them does not vary).
    """
    from scipy.spatial import cKDTree

    generator = np.random.default_rng(0)
    width = len(data.config.signals)
    points = np.concatenate([data.observations[:, -width:], data.actions], axis=1).astype(np.float64)
    scale = np.maximum(points.std(axis=0), 1e-6)
    chosen = points[generator.permutation(len(points))[: 2 * NEIGHBOURS]] / scale
    half = len(chosen) // 2
    tree = cKDTree(chosen[:half])
    data_distances = tree.query(chosen[half:])[0]
    limit = float(np.quantile(data_distances, 0.95))
    at = np.linspace(0, seen.shape[1] - 1, min(SAMPLES, seen.shape[1])).astype(int)
    ours = np.concatenate([seen[:, at, -width:], actions[:, at]], axis=2) / scale
    distances = tree.query(ours.reshape(-1, width + 1))[0].reshape(len(gains), -1)
    covered = (distances <= limit).mean(axis=1)
    varied = covered.std() > 0 and gains.std() > 0
    correlation = float(np.corrcoef(covered, gains)[0, 1]) if varied else 0.0
    return {
        "covered": float(covered.mean()),
        "median_distance": float(np.median(distances) / max(np.median(data_distances), 1e-12)),
        "correlation": correlation,
        "explained": correlation**2,
    }
