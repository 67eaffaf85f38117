"""A league that runs in seconds."""

from typing import Any

from ccenv.base.config import validate
from ccenv.training.league.config import LeagueConfig

TRAINING: dict[str, Any] = {
    "name": "small", "total_steps": 64, "num_envs": 8, "ppo": {"n_steps": 8, "batch_size": 64, "hidden": [8], "n_epochs": 1},
}  # fmt: skip
SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "senders": ["cc_probe_drain"],
    "networks": ["slowest", "uniform"],
    "training": TRAINING,
    "start_steps": 64,
    "round_steps": 64,
    "scenes": {"count": 2, "hold_outs": 1},
    "steps_per_rtt": 2,
    "warmup_rtts": 10,
    "window_rtts": 10,
    "nominal_paths": 4,
    "searches": ["corners", "two_phase:population=8", "policy_cem:population=8"],
    "search_flow_steps": 1000,
    "hold_outs": ["square", "mutation:width=1"],
    "hold_out_flow_steps": 10000,
}


def small(**changes: Any) -> LeagueConfig:
    return validate(LeagueConfig, {**SMALL, **changes}, "small.yaml")
