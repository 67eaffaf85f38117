"""Opponents of robust training: what attacked the sender of the last rounds, frozen policies ([Starvation] s.4), stored moves.

In each round a part of the environments plays against the pool. Patterns come from the searches of ``ccenv attack``, so what is
trained against is what was found; all of them run inside the kernel. Counterexamples are moves that an attack or a solver stored,
against whomever: they are played step by step on the path that they belong to.

Opponents of robust training per packet: patterns of jitter boxes that hurt the sender of the last rounds.

In each round a part of the environments plays against the pool; in the others the boxes let everything go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents.callbacks import ADVERSARY_SLOTS
from ccenv.agents.sender import ContractSender, PolicySender, Sender
from ccenv.attacks.boxes.run import named_boxes, senders_of
from ccenv.attacks.boxes.searches import PATTERN_SEARCHES, search
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.attacks.scenes import attack_path, scene_of
from ccenv.attacks.searches.patterns import PERIODS_RTTS
from ccenv.base.errors import InputError
from ccenv.base.random import uniform
from ccenv.envs.curve.core import parts_of
from ccenv.envs.curve.distribution import DRAWN, PathDistribution, PathSource, SomeGivenPaths
from ccenv.network.adversary import SUFFIX, Adversary, MlpAdversary, RecordedAdversary, load_moves
from ccenv.network.path import Path
from ccenv.simulation.boxes.game import BoxGame
from ccenv.simulation.boxes.players import KIND
from ccenv.training.config import TrainConfig
from ccenv.training.recipes.attacked import MODEL, AttackedPaths
from ccenv.training.settings import RobustSettings

WIDTH = 4  # moves of one flow: waste, rate, service, loss
ATTACK_RTTS = 60  # warm-up and window of an attack


def find_patterns(config: TrainConfig, sender: PolicySender | ContractSender, round_: int) -> np.ndarray:
    """Attack a sender on each path of the config; return one period of moves per search: (n, steps, WIDTH)."""
    robust = config.robust
    if robust is None or robust.share == 0:
        return np.zeros((0, 1, WIDTH))
    K = config.environment.steps_per_rtt
    length = math.lcm(*PERIODS_RTTS) * K  # recorded adversaries of one batch need one length
    found = []
    for place, name in enumerate(robust.paths):
        seed = int(uniform(config.seed, round_, place, 0) * 2**31)
        scene = Scene(sender, attack_path(name), "ccac", "engine", K, ATTACK_RTTS, ATTACK_RTTS)
        for spec in robust.searches:
            search = make_search(spec)
            adversary = search.run(Game(scene), robust.budget_flow_steps if search.weight else 0, seed).adversary
            if isinstance(adversary, RecordedAdversary):
                found.append(np.resize(adversary.moves, (length, WIDTH)))
    return np.array(found)


@dataclass(frozen=True)
class Counterexample:
    """Stored moves and where they are played.

    Attributes:
        file: where they come from.
        path: whose path they are.
        model: its network model.
        moves: (steps, WIDTH).
    """

    file: str
    path: Path
    model: str
    moves: np.ndarray


def load_counterexamples(config: TrainConfig) -> list[Counterexample]:
    """Read the store of a config, in the order of its names, files of a folder by name.

    Raises:
        InputError: for a file that is none, an empty folder, moves of another grid, of another model or with several flows, on a
            scene that is not trained on, or longer than an episode; for fixed paths.
    """
    robust = config.robust
    if robust is None or not robust.counterexamples:
        return []
    if not isinstance(config.environment.paths, PathDistribution):
        raise InputError("robust.counterexamples: they stand beside random paths; environment.paths must be a distribution")
    found = []
    for name in robust.counterexamples:
        folder = FilePath(name)
        files = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else [folder]
        if not files:
            raise InputError(f"robust.counterexamples: {name} holds no {SUFFIX} file")
        found += [_counterexample(config, robust, file) for file in files]
    return found


def _counterexample(config: TrainConfig, robust: RobustSettings, file: FilePath) -> Counterexample:
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
    """Return the drawn paths under attack of a config's rounds, with its counterexamples; None without any."""
    robust = config.robust
    if robust is None or robust.drawn is None or not robust.share:
        return None
    given = [(one.path, RecordedAdversary(one.file, one.moves)) for one in examples]
    share = robust.counterexample_share
    return AttackedPaths(robust.drawn, config.environment, config.num_envs, robust.share, config.seed, given, share)


def opponents(
    config: TrainConfig, patterns: np.ndarray, examples: Sequence[Counterexample] = ()
) -> tuple[list[Adversary], PathSource | None]:
    """Return the network's player of each environment, and where its paths come from (None: from the config).

    A share of the environments plays against the pool in turn; of those, a share plays the counterexamples of its model in turn.
    """
    settings, robust = config.environment, config.robust
    plain = settings.build_adversary()
    players = [plain] * config.num_envs
    if robust is None or not robust.share:
        return players, None
    length = _common_length(config, examples)
    pool: list[Adversary] = [
        RecordedAdversary(f"pattern_{i}", np.resize(moves, (length, WIDTH)) if length else moves, periodic=True)
        for i, moves in enumerate(patterns)
    ]
    frozen = [make_adversary(spec) for spec in robust.policies]
    pool += [policy for policy in frozen if isinstance(policy, MlpAdversary)]
    attacked = [b for b in range(config.num_envs) if falls(b, robust.share)]
    given_of_lane = np.full(config.num_envs, DRAWN)
    turns = dict.fromkeys(settings.models, 0)
    model_of = np.repeat(
        settings.models[: config.num_envs], [s.stop - s.start for s in parts_of(config.num_envs, len(settings.models))]
    )
    played = [RecordedAdversary(one.file, _padded(one.moves, length), periodic=True) for one in examples]
    turn = 0
    for place, b in enumerate(attacked):
        model = model_of[b]
        own = [i for i, one in enumerate(examples) if one.model == model]
        if own and falls(place, robust.counterexample_share):
            given_of_lane[b] = own[turns[model] % len(own)]
            players[b] = played[given_of_lane[b]]
            turns[model] += 1
        elif pool:
            players[b] = pool[turn % len(pool)]
            turn += 1
    if not examples or not isinstance(settings.paths, PathDistribution):
        return players, None
    return players, SomeGivenPaths(settings.paths, settings.steps_per_rtt, [one.path for one in examples], given_of_lane)


def falls(place: int, share: float) -> bool:
    """Tell whether a place is one of a share, evenly spread."""
    return math.floor((place + 1) * share) > math.floor(place * share)


def _common_length(config: TrainConfig, examples: Sequence[Counterexample]) -> int:
    """Return the length of all recorded moves: whole periods, an episode at least; 0: each has its own."""
    if not examples:
        return 0
    K = config.environment.steps_per_rtt
    period = math.lcm(*PERIODS_RTTS) * K
    return -(-config.environment.episode_rtts * K // period) * period


def _padded(moves: np.ndarray, length: int) -> np.ndarray:
    """Return moves of a length: the last set is repeated."""
    return np.concatenate([moves, np.repeat(moves[-1:], length - len(moves), axis=0)])


NETWORKS = 4  # drawn for each round


def find_box_patterns(config: TrainConfig, sender: Sender, round_: int) -> np.ndarray:
    """Attack a sender on some networks of the config's scenario; return what was found, (n, ADVERSARY_SLOTS) states of boxes."""
    robust = config.robust
    if robust is None or robust.share == 0:
        return np.zeros((0, ADVERSARY_SLOTS))
    distribution = config.packet_settings().distribution
    found = []
    for place in range(NETWORKS):
        seed = int(uniform(config.seed, round_, place, 0) * 2**31)
        scenario = distribution.drawn(np.random.Generator(np.random.Philox(key=[seed, 0])))
        senders, attacked = senders_of(scenario, sender)
        game = BoxGame(scenario, senders, attacked, adversaries=named_boxes(scenario, None))
        for name in PATTERN_SEARCHES:
            runs = max(1, robust.budget_flow_steps // NETWORKS // game.steps_of_run)
            found.append(search(game, name, runs, seed).words())
    return np.array(found)


def box_patterns(config: TrainConfig, patterns: np.ndarray) -> np.ndarray:
    """Return what the boxes of each environment play: one of the pool in turn in a share of them, else nothing is held."""
    words = np.tile(KIND.words(), (config.num_envs, 1))
    robust = config.robust
    if robust is not None and len(patterns):
        attacked = [b for b in range(config.num_envs) if falls(b, robust.share)]
        words[attacked] = patterns[np.arange(len(attacked)) % len(patterns)]
    return words
