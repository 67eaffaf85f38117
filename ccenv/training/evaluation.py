"""Scores on held-out paths: of a sender in its config's own world or in the common one, of a packet policy on drawn networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ccenv.agents.interface.rewards import TERM_NUMBERS
from ccenv.agents.sender import ExternalSender, PolicySender, Sender, ShieldSender
from ccenv.attacks.boxes.game import pattern_rows
from ccenv.attacks.boxes.players import KIND
from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import PolicyBatch
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.interface import WatchedTask
from ccenv.envs.curve.settings import REWARD_TERMS, EnvSettings, RewardWeights, weigh
from ccenv.envs.packet.core import PacketCore
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import SharedPacketTask, watched_core
from ccenv.network.adversary import Adversary
from ccenv.network.path import Path
from ccenv.training.path_sets import FIXED, PathSet, path_seed

MODELS = ("cbr_delay", "ccac")
WARMUP_RTTS, MEASURE_RTTS = 60, 64


@dataclass(frozen=True)
class Evaluation:
    """Means over paths; every path counts the same."""

    score: float  # the weighted terms of the reward; by default utilisation - 0.1*queue - loss
    utilisation: float  # bytes delivered of the evaluated flows / bytes that the link could carry; for a network, of all flows
    queue_bdp: float  # mean queue / (C*Rm)
    loss: float  # bytes lost of the evaluated flows / bytes that the link could carry
    delay_rtts: float  # mean queueing and jitter delay of the evaluated flows / Rm
    score_p5: float  # 5th percentile of the score over paths
    n_paths: int
    n_flows: int  # flows that share each path
    share: float  # share of the evaluated flows in all bytes delivered; 1 alone
    jain: float  # Jain's index of the flows' bytes delivered in the measured time; 1 alone
    link_utilisation: float  # bytes delivered of all flows / bytes that the link could carry
    path_set: str  # see `ccenv.training.path_sets`; `"fixed"`: the world's own paths, on which training takes place too


def evaluate_sender(
    sender: Sender,
    n_paths: int = 1024,
    seed: int = 0,
    *,
    path_set: PathSet = PathSet.REPORT,
    paths: PathDistribution | Path | Sequence[Path] | None = None,
    models: Sequence[str] = MODELS,
    adversary: Adversary | None = None,
    weights: RewardWeights | None = None,
    warmup_rtts: int = WARMUP_RTTS,
    measure_rtts: int = MEASURE_RTTS,
    steps_per_rtt: int = 8,
    beliefs: str = "artefact",
    threads: int = 1,
) -> Evaluation:
    """Score a sender alone on each of many paths, by default in the common world that all senders share.

    ``n_paths`` are divided among the models; ``seed`` selects the paths of the set and the moves of the network; ``adversary`` is
    by default the mixture used in training; ``weights`` are of the score's terms. With the ``beliefs`` ``untold`` the sender
    knows neither Rm nor D. Results do not depend on ``threads``. Raises InputError for an external sender.
    """
    chosen = PathDistribution() if paths is None else paths
    world = EnvSettings(
        paths=chosen if isinstance(chosen, (PathDistribution, Path)) else tuple(chosen),
        models=tuple(models),
        reward=weights or RewardWeights(),
        steps_per_rtt=steps_per_rtt,
        beliefs=beliefs,
        threads=threads,
    )
    return evaluate_in_world(
        world, sender, n_paths, seed, path_set=path_set, adversary=adversary, warmup_rtts=warmup_rtts, measure_rtts=measure_rtts
    )


def evaluate_in_world(
    world: EnvSettings,
    sender: Sender | None,
    n_paths: int = 1024,
    seed: int = 0,
    *,
    path_set: PathSet = PathSet.REPORT,
    adversary: Adversary | None = None,
    warmup_rtts: int = WARMUP_RTTS,
    measure_rtts: int = MEASURE_RTTS,
) -> Evaluation:
    """Score a sender (None: the network) in the world of its config: its competitors, paths, models and grid.

    The sender plays every external flow; other arguments are those of :func:`evaluate_sender`. Each path starts cold (C_L is one
    segment per Rm, an idle link) and is measured after a warm-up. Raises InputError for an external sender, or if the world has
    external flows without a sender or a sender without them.
    """
    if isinstance(sender, ExternalSender):
        raise InputError("an external sender cannot be evaluated: its rate comes from outside")
    external = world.external_flows()
    if bool(external) != (sender is not None):
        article = "no" if sender is None else "an"
        raise InputError(f"senders {list(world.senders)}: the evaluated world needs {article} 'external' flow")
    senders = world.build_senders()
    evaluated = np.ones(len(senders), np.bool_)
    if sender is not None and not isinstance(world.reward, RewardWeights):
        return _evaluate_by_table(world, sender, n_paths, seed, path_set, adversary, warmup_rtts, measure_rtts)
    if sender is not None:
        evaluated = np.isin(np.arange(len(senders)), external)
        senders = [sender if flow in external else other for flow, other in enumerate(senders)]
    core = Core(
        n_paths,
        _make_measured_world(world, warmup_rtts + measure_rtts),
        senders=senders,
        adversary=world.build_adversary() if adversary is None else adversary,
        groups=np.stack([evaluated, np.ones_like(evaluated)]),
    )
    core.reset(seed=path_seed(path_set, seed))
    for _ in range(warmup_rtts):
        core.advance()
    before = core.delivered_bytes
    terms = np.zeros((2, n_paths, len(REWARD_TERMS)))
    for _ in range(measure_rtts):
        terms += core.advance().swapaxes(0, 1)
    terms /= measure_rtts
    delivered = core.delivered_bytes - before
    link_utilisation = float(terms[1, :, REWARD_TERMS.index("utilisation")].mean())
    scores = weigh(terms[0], world.reward.vector())
    return _summarise(world, path_set, scores, terms[0], delivered, evaluated, link_utilisation)


def _summarise(
    world: EnvSettings,
    path_set: PathSet,
    scores: np.ndarray,
    terms: np.ndarray,
    delivered: np.ndarray,
    evaluated: np.ndarray,
    link_utilisation: float,
) -> Evaluation:
    """Return the means over paths of scores (B,), terms (B, len(REWARD_TERMS)) and bytes delivered (B, flows)."""
    mean = dict(zip(REWARD_TERMS, terms.mean(axis=0).tolist(), strict=True))
    return Evaluation(
        score=float(scores.mean()),
        utilisation=mean["utilisation"],
        queue_bdp=mean["queue"],
        loss=mean["loss"],
        delay_rtts=mean["delay"],
        score_p5=float(np.quantile(scores, 0.05)),
        n_paths=len(scores),
        n_flows=delivered.shape[1],
        share=float(delivered_share(delivered, evaluated).mean()),
        jain=float(jain_index(delivered).mean()),
        link_utilisation=link_utilisation,
        path_set=path_set.value if isinstance(world.paths, PathDistribution) else FIXED,
    )


def _evaluate_by_table(
    world: EnvSettings,
    sender: Sender,
    n_paths: int,
    seed: int,
    path_set: PathSet,
    adversary: Adversary | None,
    warmup_rtts: int,
    measure_rtts: int,
) -> Evaluation:
    """Score a policy by a reward of the table, measured at its decisions; it must have the world's interface."""
    if not isinstance(sender, PolicySender) or world.interface is None or sender.interface != world.interface:
        raise InputError(f"{sender.name!r} cannot be scored by this world's reward: it decides over another interface")
    measured = _make_measured_world(world, warmup_rtts + measure_rtts).model_copy(update={"decision_steps": world.decision_steps})
    adversaries = None if adversary is None else [adversary] * n_paths
    task = WatchedTask(n_paths, measured, adversaries=adversaries)
    core, n_flows, width = task.core, len(task.flows), sender.interface.width
    batch = PolicyBatch(sender, n_paths * n_flows)
    core.reset(seed=path_seed(path_set, seed))
    evaluated = core.groups[0]
    steps_per_rtt = world.steps_per_rtt / core.decision_steps

    def play(rtts: int) -> np.ndarray:
        total = np.zeros(n_paths)
        steps = max(1, round(rtts * steps_per_rtt))
        for _ in range(steps):
            actions = batch.actions(task.observe().reshape(-1, width)).reshape(n_paths, n_flows)
            total += task.step(actions if not task.levels else np.rint((actions + 1) / 2 * (task.levels - 1)).astype(np.int64))
        return total / steps

    play(warmup_rtts)
    before, sums = core.delivered_bytes, core.sums.copy()
    capacity = core.env("capacity_bytes")
    scores = play(measure_rtts)
    delivered = core.delivered_bytes - before
    terms = (core.sums - sums)[:, 0] / max(1, round(measure_rtts * steps_per_rtt))
    used = delivered.sum(axis=1) / (core.env("capacity_bytes") - capacity)
    return _summarise(world, path_set, scores, terms, delivered, evaluated, float(used.mean()))


def _make_measured_world(world: EnvSettings, rtts: int) -> EnvSettings:
    """Return the world for measurements: cold starts, and episodes of equal length."""
    paths = world.paths.model_copy(update={"seeded_share": 0.0}) if isinstance(world.paths, PathDistribution) else world.paths
    return world.model_copy(update={"paths": paths, "staggered": False, "decision_steps": None, "episode_rtts": rtts})


def delivered_share(delivered: np.ndarray, flows: np.ndarray) -> np.ndarray:
    """Return the share of some flows in the bytes delivered, (B,); 0 where nothing was delivered."""
    total = delivered.sum(axis=1)
    share: np.ndarray = np.divide(delivered[:, flows].sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
    return share


def jain_index(delivered: np.ndarray) -> np.ndarray:
    """Return Jain's index of each row, (B,); 1 where nothing was delivered, as in the reward."""
    squares = delivered.shape[1] * (delivered**2).sum(axis=1)
    index: np.ndarray = np.divide(delivered.sum(axis=1) ** 2, squares, out=np.ones_like(squares), where=squares > 0)
    return index


PacketPolicy = PolicySender | ShieldSender
WARMUP_SHARE = 0.25  # share of an episode's decisions that is not measured


def evaluate_packet(
    settings: PacketSettings, policy: PacketPolicy, n_networks: int, seed: int = 0, *, path_set: PathSet = PathSet.REPORT
) -> Evaluation:
    """Score a policy that plays every controlled flow of each network, each network started cold.

    The policy has the settings' interface, or is inside their shield; ``seed`` selects the networks of the set. The first
    quarter of an episode's decisions is not measured. Means are over the measured decisions of a network, then over the networks.
    """
    task, batch = cold_task(settings, policy, n_networks)
    step = lambda: task.step(batch.actions(task.observe())[:, None])  # noqa: E731
    return measure_networks(settings, task.core, step, seed, path_set=path_set)[0]


def watch_networks(
    settings: PacketSettings, sender: Sender, n_networks: int, *, path_set: PathSet = PathSet.REPORT
) -> tuple[Evaluation, np.ndarray]:
    """Score a sender that decides by itself in place of the policy of :func:`evaluate_packet`, on the same networks.

    Returns the evaluation, and the score in each network, (n_networks,).
    """
    core = watched_core(n_networks, settings.model_copy(update={"staggered": False, "start_rate_share": None}), sender)
    return measure_networks(settings, core, core.advance, path_set=path_set)


def measure_networks(
    settings: PacketSettings,
    core: PacketCore,
    step: Callable[[], np.ndarray],
    seed: int = 0,
    *,
    path_set: PathSet = PathSet.REPORT,
) -> tuple[Evaluation, np.ndarray]:
    """Play an episode in each network of a core with ``step``, which returns rewards; see :func:`evaluate_packet`.

    Returns the evaluation, and the score in each network, (n_networks,).
    """
    n_networks = core.num_envs
    core.reset(seed=path_seed(path_set, seed))
    warmup = round(WARMUP_SHARE * core.episode_steps)

    def totals() -> tuple[np.ndarray, ...]:
        return core.flow("delivered_bytes"), core.flow("found_lost_bytes"), core.sums.copy(), core.counts.copy()

    (before, lost, sums, counts), reward_sums = totals(), np.zeros(n_networks)
    for number in range(core.episode_steps):
        if number == warmup:
            before, lost, sums, counts = totals()
        if core.truncated().all():
            break
        rewards = step().reshape(n_networks, -1)
        reward_sums += rewards.sum(axis=1) * (number >= warmup)
    decisions = np.maximum((core.counts - counts).sum(axis=1), 1.0)
    terms = (core.sums - sums).sum(axis=1) / decisions[:, None]
    weights = np.array([settings.weights.get(name, 0.0) for name in TERM_NUMBERS])
    scores = terms @ weights if settings.own_reward is None else reward_sums / decisions
    delivered = core.flow("delivered_bytes") - before
    evaluated = np.zeros(delivered.shape[1], np.bool_)
    evaluated[core.flows] = True
    mean = {name: float(terms[:, number].mean()) for name, number in TERM_NUMBERS.items()}
    used, share = terms[:, TERM_NUMBERS["utilisation"]], delivered_share(delivered, evaluated)
    capacity_bytes = delivered.sum(axis=1) / np.maximum(used, 1e-9)
    lost_bytes = (core.flow("found_lost_bytes") - lost)[:, evaluated].sum(axis=1)
    evaluation = Evaluation(
        score=float(scores.mean()),
        utilisation=float((used * share).mean()),
        queue_bdp=mean["queue"],
        loss=float((lost_bytes / np.maximum(capacity_bytes, 1.0)).mean()),
        delay_rtts=mean["delay"],
        score_p5=float(np.quantile(scores, 0.05)),
        n_paths=n_networks,
        n_flows=delivered.shape[1],
        share=float(share.mean()),
        jain=float(jain_index(delivered).mean()),
        link_utilisation=mean["utilisation"],
        path_set=path_set.value,
    )
    return evaluation, scores


def cold_task(
    settings: PacketSettings, policy: PacketPolicy, n_networks: int, record: bool = False, within: np.ndarray | None = None
) -> tuple[SharedPacketTask, PolicyBatch]:
    """Return networks whose flows start cold, and the policy of each flow with continuous actions.

    ``external`` delay elements hold nothing back. ``within`` is that of ``SharedPacketTask``.
    """
    cold = settings.model_copy(update={"staggered": False, "start_rate_share": None, "n_actions": None, "critic_signals": ()})
    task = SharedPacketTask(n_networks, cold, record, benign_boxes(settings, n_networks), within)
    network = policy.policy if isinstance(policy, ShieldSender) else policy
    if network is None or (settings.shield_program() is not None) != isinstance(policy, ShieldSender):
        raise InputError(f"{policy.name!r} cannot be scored here: environment and policy must run inside the same shield")
    return task, PolicyBatch(network, n_networks * task.rows_per_env)


def benign_boxes(settings: PacketSettings, n_networks: int) -> np.ndarray | None:
    """Return delay elements that hold nothing back, (n_networks, ADVERSARY_SLOTS); None if none is ``external``."""
    return np.tile(KIND.words(), (n_networks, 1)) if len(pattern_rows(settings.distribution.largest)) else None


def evaluate_mixture(
    parts: Sequence[tuple[PacketSettings, int]], policy: PacketPolicy, n_networks: int, *, path_set: PathSet = PathSet.REPORT
) -> Evaluation:
    """Score a policy in each part of a mixture, weighted by its networks in training; each gets its share, at least one."""
    weights = np.array([number for _, number in parts], np.float64) / sum(number for _, number in parts)
    sizes = [max(1, round(n_networks * weight)) for weight in weights.tolist()]
    evaluations = [evaluate_packet(part, policy, size, path_set=path_set) for (part, _), size in zip(parts, sizes, strict=True)]
    means = {
        field.name: float(sum(w * getattr(one, field.name) for w, one in zip(weights.tolist(), evaluations, strict=True)))
        for field in fields(Evaluation)
        if isinstance(getattr(evaluations[0], field.name), float)
    }
    return replace(evaluations[0], **means, n_paths=sum(sizes), n_flows=max(one.n_flows for one in evaluations))  # type: ignore[arg-type]
