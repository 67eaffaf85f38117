"""Held-out scores of packet policies: networks drawn from a scenario distribution, each started cold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from ccenv.engine.compiled.policies import PolicyBatch
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.base.errors import InputError
from ccenv.agents.interface.rewards import TERM_NUMBERS
from ccenv.agents.sender import ContractSender, PolicySender
from ccenv.simulation.boxes.players import KIND
from ccenv.simulation.boxes.game import pattern_rows
from ccenv.training.evaluation import Evaluation, jain_of, share_of
from ccenv.training.path_sets import PathSet, path_seed

PacketPlayer = PolicySender | ContractSender
WARMUP_SHARE = 0.25  # of an episode's decisions are not measured


def evaluate_packet(
    settings: PacketSettings, policy: PacketPlayer, n_networks: int, seed: int = 0, *, path_set: PathSet = PathSet.REPORT
) -> Evaluation:
    """Score a policy that plays every controlled flow of each network.

    Each network is measured from a quarter of the episode's decisions on to its end. Means are of the measured decisions of a
    network, then of the networks.

    Args:
        settings: of ``ccenv/Packet-v0``.
        policy: over the settings' interface, or inside their contract.
        n_networks: networks.
        seed: which networks of the set.
        path_set: which networks are drawn.
    """
    task, batch = cold_task(settings, policy, n_networks)
    core = task.core
    core.reset(seed=path_seed(path_set, seed))
    warmup = round(WARMUP_SHARE * core.episode_steps)
    before, lost, sums, counts, own_sums = _delivered(core), _lost(core), core.sums, core.counts, np.zeros(n_networks)
    for step in range(core.episode_steps):
        if step == warmup:
            before, lost, sums, counts = _delivered(core), _lost(core), core.sums, core.counts
        if core.truncated().all():
            break
        rewards = task.step(batch.actions(task.observe())[:, None]).reshape(n_networks, -1)
        own_sums += rewards.sum(axis=1) * (step >= warmup)
    decisions = np.maximum((core.counts - counts).sum(axis=1), 1.0)
    terms = (core.sums - sums).sum(axis=1) / decisions[:, None]
    weights = np.array([settings.weights.get(name, 0.0) for name in TERM_NUMBERS])
    scores = terms @ weights if settings.own_reward is None else own_sums / decisions
    delivered = _delivered(core) - before
    own = np.zeros(delivered.shape[1], np.bool_)
    own[core.flows] = True
    mean = {name: float(terms[:, number].mean()) for name, number in TERM_NUMBERS.items()}
    used, share = terms[:, TERM_NUMBERS["utilisation"]], share_of(delivered, own)
    capacity_bytes = delivered.sum(axis=1) / np.maximum(used, 1e-9)
    own_lost_bytes = (_lost(core) - lost)[:, own].sum(axis=1)
    return Evaluation(
        score=float(scores.mean()),
        utilisation=float((used * share).mean()),
        queue_bdp=mean["queue"],
        loss=float((own_lost_bytes / np.maximum(capacity_bytes, 1.0)).mean()),
        delay_rtts=mean["delay"],
        score_p5=float(np.quantile(scores, 0.05)),
        n_paths=n_networks,
        n_flows=delivered.shape[1],
        share=float(share.mean()),
        jain=float(jain_of(delivered).mean()),
        link_utilisation=mean["utilisation"],
        path_set=path_set.value,
    )


def cold_task(
    settings: PacketSettings, policy: PacketPlayer, n_networks: int, record: bool = False, within: np.ndarray | None = None
) -> tuple[SharedPacketTask, PolicyBatch]:
    """Return networks whose flows start cold, and the policy that plays each of these flows: its actions are numbers.

    Jitter boxes that are ``external`` let everything go. ``within`` is as of ``SharedPacketTask``.
    """
    cold = settings.model_copy(update={"staggered": False, "start_rate_share": None, "n_actions": None, "critic_signals": ()})
    task = SharedPacketTask(n_networks, cold, record, kind_boxes(settings, n_networks), within)
    chooses = policy.policy if isinstance(policy, ContractSender) else policy
    if chooses is None or (settings.contract_program() is not None) != isinstance(policy, ContractSender):
        raise InputError(f"{policy.name!r} cannot be scored here: environment and policy must run inside the same contract")
    return task, PolicyBatch(chooses, n_networks * task.rows_per_env)


def kind_boxes(settings: PacketSettings, n_networks: int) -> np.ndarray | None:
    """Return jitter boxes that let everything go, (n_networks, ADVERSARY_SLOTS); None where none is ``external``."""
    return np.tile(KIND.words(), (n_networks, 1)) if len(pattern_rows(settings.distribution.largest)) else None


def evaluate_mixture(
    parts: Sequence[tuple[PacketSettings, int]], policy: PacketPlayer, n_networks: int, *, path_set: PathSet = PathSet.REPORT
) -> Evaluation:
    """Score a policy in each part of a mixture, so many networks of each; means are weighted by how many it trains on.

    Args:
        parts: settings and number of networks in training.
        policy: plays every controlled flow.
        n_networks: networks in all; each part gets its share, at least one.
        path_set: which networks are drawn.
    """
    weights = np.array([number for _, number in parts], np.float64) / sum(number for _, number in parts)
    sizes = [max(1, round(n_networks * weight)) for weight in weights.tolist()]
    found = [evaluate_packet(part, policy, size, path_set=path_set) for (part, _), size in zip(parts, sizes, strict=True)]
    means = {
        field.name: float(sum(w * getattr(one, field.name) for w, one in zip(weights.tolist(), found, strict=True)))
        for field in fields(Evaluation)
        if isinstance(getattr(found[0], field.name), float)
    }
    return replace(found[0], **means, n_paths=sum(sizes), n_flows=max(one.n_flows for one in found))  # type: ignore[arg-type]


def _lost(core: PacketCore) -> np.ndarray:
    return core.flow("found_lost_bytes")


def _delivered(core: PacketCore) -> np.ndarray:
    return core.flow("delivered_bytes")
