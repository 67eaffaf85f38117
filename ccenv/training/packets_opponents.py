"""Opponents of robust training per packet: patterns of jitter boxes that hurt the sender of the last rounds.

In each round a part of the environments plays against the pool; in the others the boxes let everything go.
"""

from __future__ import annotations

import numpy as np

from ccenv.base.random import uniform
from ccenv.agents.callbacks import ADVERSARY_SLOTS
from ccenv.agents.sender import Sender
from ccenv.attacks.boxes.run import named_boxes, senders_of
from ccenv.simulation.boxes.players import KIND
from ccenv.attacks.boxes.searches import PATTERN_SEARCHES, search
from ccenv.simulation.boxes.game import BoxGame
from ccenv.training.config import TrainConfig
from ccenv.training.opponents import falls

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
