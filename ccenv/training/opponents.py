"""Opponents of robust training: what attacked the sender of the last rounds, and frozen adversary policies ([Starvation] s.4).

In each round a part of the environments plays against the pool. Patterns come from the searches of ``ccenv attack``, so what is
trained against is what was found; all of them run inside the kernel.
"""

from __future__ import annotations

import math

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.attack import attack_path, make_search
from ccenv.attack.game import Game, Scene
from ccenv.attack.patterns import PERIODS_RTTS
from ccenv.engine.compiled.rng import uniform
from ccenv.network.adversary import Adversary, MlpAdversary, RecordedAdversary
from ccenv.network.sender import ContractSender, PolicySender
from ccenv.training.config import TrainConfig

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


def opponents(config: TrainConfig, patterns: np.ndarray) -> list[Adversary]:
    """Return the network's player of each environment: the config's own, and for a share of them one of the pool in turn."""
    plain = config.environment.build_adversary()
    robust = config.robust
    pool: list[Adversary] = [RecordedAdversary(f"pattern_{i}", moves, periodic=True) for i, moves in enumerate(patterns)]
    if robust is None or not robust.share:
        return [plain] * config.num_envs
    frozen = [make_adversary(spec) for spec in robust.policies]
    pool += [policy for policy in frozen if isinstance(policy, MlpAdversary)]
    players = [plain] * config.num_envs
    attacked = [b for b in range(config.num_envs) if math.floor((b + 1) * robust.share) > math.floor(b * robust.share)]
    for turn, b in enumerate(attacked):
        if pool:
            players[b] = pool[turn % len(pool)]
    return players
