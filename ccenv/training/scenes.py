"""What a trained sender has seen of the scenes that it is attacked on."""

from __future__ import annotations

import math

from ccenv.attacks.scenes import PATHS
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.network.path import Path
from ccenv.training.config import TrainConfig
from ccenv.training.rllib.config import RllibConfig
from ccenv.training.settings import fixed_paths

ATTACKED, TRAINED, IN_RANGE = "attacked", "trained", "in range"
"""Seen how: in rounds of attacks; as a fixed path; as a point of the distribution that paths were drawn from."""


def attacked_scenes(config: TrainConfig | RllibConfig) -> tuple[str, ...]:
    """Return the scenes on which attacks were part of the training."""
    robust = config.robust if isinstance(config, TrainConfig) else None
    return robust.paths if robust is not None and robust.share > 0 else ()


def seen(config: TrainConfig | RllibConfig, scene: str) -> str | None:
    """Return how a config's training has met a scene; None: it has not."""
    path = PATHS[scene]
    if scene in attacked_scenes(config):
        return ATTACKED
    if isinstance(config, TrainConfig):
        worlds = [config.environment.paths, *(stage.paths for stage in config.curriculum if stage.paths is not None)]
        if config.robust is not None and config.robust.drawn is not None:
            worlds.append(config.robust.drawn.paths)
    else:
        worlds = [config.settings().paths]
    if any(path in fixed_paths(world) for world in worlds):
        return TRAINED
    if any(isinstance(world, PathDistribution) and covers(world, path) for world in worlds):
        return IN_RANGE
    return None


def covers(distribution: PathDistribution, path: Path) -> bool:
    """Tell whether every number of a path of one flow lies in the range that a distribution draws it from."""
    flow = path.flows[0]
    numbers = (
        (path.bdp_bytes / path.mss_bytes, distribution.link_rate_mss_per_rtt),
        (flow.rtt_s, distribution.rtt_s),
        (flow.jitter_s / flow.rtt_s, distribution.jitter_rtts),
        (path.buffer_bytes / path.bdp_bytes, distribution.buffer_bdp),
    )
    return path.mss_bytes == distribution.mss_bytes and all(_within(value, *limits) for value, limits in numbers)


def _within(value: float, low: float, high: float) -> bool:
    return math.isfinite(value) and low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
