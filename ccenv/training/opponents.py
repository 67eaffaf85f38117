"""Opponents of robust training: patterns found against earlier senders, frozen policies ([Starvation] s.4), stored moves.

In each round a share of the environments plays against the pool. Patterns come from the searches of ``ccenv attack`` and run
inside the kernel. Counterexamples are moves that an attack or a solver stored, against any sender; they are played step by step
on their own path. Per packet the pool holds patterns of delay elements, which hold nothing back in the other environments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents.callbacks import ADVERSARY_SLOTS
from ccenv.agents.sender import PolicySender, Sender, ShieldSender
from ccenv.attacks.boxes.game import BoxGame
from ccenv.attacks.boxes.players import KIND
from ccenv.attacks.boxes.run import named_boxes, senders_of
from ccenv.attacks.boxes.searches import PATTERN_SEARCHES, SEARCHES
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.scenes import attack_path, scene_of
from ccenv.attacks.searches.patterns import PERIODS_RTTS
from ccenv.base.errors import InputError
from ccenv.base.random import uniform
from ccenv.envs.curve.core import split_batch
from ccenv.envs.curve.distribution import DRAWN, PathDistribution, PathSource, SomeGivenPaths
from ccenv.network.adversary import SUFFIX, Adversary, MlpAdversary, RecordedAdversary, load_moves
from ccenv.network.path import Path
from ccenv.training.config import TrainConfig
from ccenv.training.recipes.attacked import MODEL, AttackedPaths, fit_moves
from ccenv.training.settings import RobustSettings

WIDTH = 4  # moves of one flow: waste, rate, service, loss
ATTACK_RTTS = 60  # warm-up and window of an attack


def find_patterns(config: TrainConfig, sender: PolicySender | ShieldSender, round_: int) -> np.ndarray:
    """Attack a sender in each attack scenario of the config; return one period of moves per search: (n, steps, WIDTH)."""
    robust = config.robust
    if robust is None or robust.share == 0:
        return np.zeros((0, 1, WIDTH))
    K = config.environment.steps_per_rtt
    length = math.lcm(*PERIODS_RTTS) * K  # recorded adversaries of one batch need one length
    patterns = []
    for number, name in enumerate(robust.paths):
        seed = int(uniform(config.seed, round_, number, 0) * 2**31)
        scene = Scene(sender, attack_path(name), "ccac", "engine", K, ATTACK_RTTS, ATTACK_RTTS)
        for spec in robust.searches:
            search = make_search(spec)
            adversary = search.run(Game(scene), robust.budget_flow_steps if search.weight else 0, seed).adversary
            if isinstance(adversary, RecordedAdversary):
                patterns.append(np.resize(adversary.moves, (length, WIDTH)))
    return np.array(patterns)


@dataclass(frozen=True)
class Counterexample:
    """Stored moves, (steps, WIDTH), with their file, path and network model."""

    file: str
    path: Path
    model: str
    moves: np.ndarray


def load_counterexamples(config: TrainConfig) -> list[Counterexample]:
    """Read the counterexamples of a config in its order, files of a folder by name.

    Raises InputError for a file of another format, an empty folder, moves of another grid, of another model or with several
    flows, in an attack scenario that is not trained on, or longer than an episode; for fixed paths.
    """
    robust = config.robust
    if robust is None or not robust.counterexamples:
        return []
    if not isinstance(config.environment.paths, PathDistribution):
        raise InputError("robust.counterexamples: they stand beside random paths; environment.paths must be a distribution")
    examples = []
    for name in robust.counterexamples:
        folder = FilePath(name)
        files = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else [folder]
        if not files:
            raise InputError(f"robust.counterexamples: {name} holds no {SUFFIX} file")
        examples += [_read_counterexample(config, robust, file) for file in files]
    return examples


def _read_counterexample(config: TrainConfig, robust: RobustSettings, file: FilePath) -> Counterexample:
    stored = load_moves(file)
    header, K, rtts = stored.header, config.environment.steps_per_rtt, config.environment.episode_rtts
    scene = scene_of(header.path)
    if header.steps_per_rtt != K:
        raise InputError(f"{file}: moves of {header.steps_per_rtt} steps per Rm; environment.steps_per_rtt is {K}")
    if robust.drawn is not None and header.model != MODEL:
        raise InputError(f"{file}: moves on {header.model}; with robust.drawn the network is attacked on {MODEL} alone")
    if header.model not in config.environment.models:
        raise InputError(f"{file}: moves on {header.model}; environment.models has {', '.join(config.environment.models)}")
    if header.path.n_flows != 1:
        raise InputError(f"{file}: moves of {header.path.n_flows} flows; robust training has one")
    if scene is not None and scene not in robust.paths:
        raise InputError(f"{file}: moves on the scene {scene!r}, which robust.paths {list(robust.paths)} does not name")
    if len(stored.moves) > rtts * K:
        raise InputError(f"{file}: moves of {len(stored.moves) / K:g} Rm; environment.episode_rtts is {rtts}")
    return Counterexample(str(file), header.path, header.model, stored.moves)


def attacked_paths(config: TrainConfig, examples: Sequence[Counterexample]) -> AttackedPaths | None:
    """Return the drawn paths that a config's rounds attack, with its counterexamples; None if it draws none."""
    robust = config.robust
    if robust is None or robust.drawn is None or not robust.share:
        return None
    stored = [(example.path, RecordedAdversary(example.file, example.moves)) for example in examples]
    share = robust.counterexample_share
    return AttackedPaths(robust.drawn, config.environment, config.num_envs, robust.share, config.seed, stored, share)


def opponents(
    config: TrainConfig, patterns: np.ndarray, examples: Sequence[Counterexample] = ()
) -> tuple[list[Adversary], PathSource | None]:
    """Return the adversary of each environment and the source of the paths (None: the config's own).

    A share of the environments plays against the pool, round robin; of those, a share plays the counterexamples of its model.
    """
    settings, robust = config.environment, config.robust
    nominal = settings.build_adversary()
    adversaries = [nominal] * config.num_envs
    if robust is None or not robust.share:
        return adversaries, None
    length = _common_length(config, examples)
    pool: list[Adversary] = [
        RecordedAdversary(f"pattern_{i}", np.resize(moves, (length, WIDTH)) if length else moves, periodic=True)
        for i, moves in enumerate(patterns)
    ]
    frozen = [make_adversary(spec) for spec in robust.policies]
    pool += [policy for policy in frozen if isinstance(policy, MlpAdversary)]
    attacked = [b for b in range(config.num_envs) if is_in_share(b, robust.share)]
    example_of_env = np.full(config.num_envs, DRAWN)
    turns = dict.fromkeys(settings.models, 0)
    model_of = np.repeat(
        settings.models[: config.num_envs], [s.stop - s.start for s in split_batch(config.num_envs, len(settings.models))]
    )
    recorded = [RecordedAdversary(one.file, fit_moves(one.moves, length), periodic=True) for one in examples]
    turn = 0
    for place, b in enumerate(attacked):
        model = model_of[b]
        matching = [i for i, one in enumerate(examples) if one.model == model]
        if matching and is_in_share(place, robust.counterexample_share):
            example_of_env[b] = matching[turns[model] % len(matching)]
            adversaries[b] = recorded[example_of_env[b]]
            turns[model] += 1
        elif pool:
            adversaries[b] = pool[turn % len(pool)]
            turn += 1
    if not examples or not isinstance(settings.paths, PathDistribution):
        return adversaries, None
    return adversaries, SomeGivenPaths(settings.paths, settings.steps_per_rtt, [one.path for one in examples], example_of_env)


def is_in_share(index: int, share: float) -> bool:
    """Tell whether an index is in an evenly spread share of all indices."""
    return math.floor((index + 1) * share) > math.floor(index * share)


def _common_length(config: TrainConfig, examples: Sequence[Counterexample]) -> int:
    """Return the common length of recorded moves: whole periods, at least an episode; 0: each has its own."""
    if not examples:
        return 0
    K = config.environment.steps_per_rtt
    period = math.lcm(*PERIODS_RTTS) * K
    return -(-config.environment.episode_rtts * K // period) * period


NETWORKS = 4  # drawn for each round


def find_box_patterns(config: TrainConfig, sender: Sender, round_: int) -> np.ndarray:
    """Attack a sender on some networks of the config's scenario; return delay-element states, (n, ADVERSARY_SLOTS)."""
    robust = config.robust
    if robust is None or robust.share == 0:
        return np.zeros((0, ADVERSARY_SLOTS))
    distribution = config.packet_settings().distribution
    patterns = []
    for number in range(NETWORKS):
        seed = int(uniform(config.seed, round_, number, 0) * 2**31)
        scenario = distribution.drawn(np.random.Generator(np.random.Philox(key=[seed, 0])))
        senders, attacked = senders_of(scenario, sender)
        game = BoxGame(scenario, senders, attacked, adversaries=named_boxes(scenario))
        for name in PATTERN_SEARCHES:
            runs = max(1, robust.budget_flow_steps // NETWORKS // game.run_flow_steps)
            patterns.append(SEARCHES[name].worst(game, runs, seed).words())
    return np.array(patterns)


def box_patterns(config: TrainConfig, patterns: np.ndarray) -> np.ndarray:
    """Return the delay elements of each environment: a share plays the pool, round robin; the others hold nothing back."""
    words = np.tile(KIND.words(), (config.num_envs, 1))
    robust = config.robust
    if robust is not None and len(patterns):
        attacked = [b for b in range(config.num_envs) if is_in_share(b, robust.share)]
        words[attacked] = patterns[np.arange(len(attacked)) % len(patterns)]
    return words
