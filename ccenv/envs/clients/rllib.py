"""RLlib (new API stack): creators of the batched environments, of duels, and of flows that are agents (FLOWS, PACKET_FLOWS).

After ``register_rllib()``: ``PPOConfig().environment("ccenv/Sender-v0", env_config={"models": ["cbr_delay"]})`` with
``.env_runners(num_envs_per_env_runner=64, gym_env_vectorize_mode="vector_entry_point")``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import require_extra
from ccenv.base.registry import load_target
from ccenv.base.user.python_file import held, with_files
from ccenv.envs import ENVIRONMENTS

FLOWS, PACKET_FLOWS = "ccenv/Flows", "ccenv/PacketFlows"
USER_FILES = "user_files"
"""Key of an env_config: absolute Python files -> hashes of their content; a runner refuses other content."""


def make_env_config(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an env_config that names Python files by absolute path and hash. Raises InputError if one cannot be read."""
    config, hashes = with_files(environment)
    return {**config, USER_FILES: hashes} if hashes else dict(environment)


def _make_creator(target: str) -> Callable[[Mapping[str, Any]], Any]:
    """Return what makes an environment of an env_config: for RLlib, batched with ``num_envs``, or single."""

    def create(env_config: Mapping[str, Any]) -> Any:
        settings = dict(env_config)
        hashes = settings.pop(USER_FILES, {})
        with held({FilePath(file): sha256 for file, sha256 in hashes.items()}):
            if "num_envs" in settings:
                return load_target(target.removesuffix("Env") + "VectorEnv")(**settings)
            single = load_target(target)
            if hasattr(single, "possible_agents"):
                require_extra("ray", "rllib")
                from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

                wrapper: Any = ParallelPettingZooEnv
                return wrapper(single(**settings))
            return single(**settings)

    return create


CREATORS = {
    **{entry.name: _make_creator(entry.target) for entry in ENVIRONMENTS},
    FLOWS: _make_creator("ccenv.envs.curve.duel:FlowsEnv"),
    PACKET_FLOWS: _make_creator("ccenv.envs.packet.duel:PacketFlowsEnv"),
}
"""Creators of the environments by id, each of an env_config; user files that changed since the run began are refused."""


def register_rllib() -> None:
    """Register the creators with RLlib under the environments' ids."""
    require_extra("ray", "rllib")
    from ray.tune.registry import register_env

    for env_id, create in CREATORS.items():
        register_env(env_id, create)
