"""RLlib (new API stack): creators of the batched environments, of duels, and of flows that are agents (FLOWS, PACKET_FLOWS).

After ``register_rllib()``: ``PPOConfig().environment("ccenv/Sender-v0", env_config={"models": ["cbr_delay"]})`` with
``.env_runners(num_envs_per_env_runner=64, gym_env_vectorize_mode="vector_entry_point")``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import require_extra
from ccenv.base.user.python_file import held, with_files

FLOWS, PACKET_FLOWS = "ccenv/Flows", "ccenv/PacketFlows"
USER_FILES = "user_files"
"""Key of an env_config: absolute Python files -> hashes of their content; a runner refuses other content."""


def env_config_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an env_config that names Python files by absolute path and hash. Raises InputError if one cannot be read."""
    config, hashes = with_files(environment)
    return {**config, USER_FILES: hashes} if hashes else dict(environment)


def _check_user_files(create: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Make a creator refuse user files that have changed since the run began."""

    @wraps(create)
    def checked(env_config: Mapping[str, Any]) -> Any:
        settings = dict(env_config)
        hashes = settings.pop(USER_FILES, {})
        with held({FilePath(file): sha256 for file, sha256 in hashes.items()}):
            return create(settings)

    return checked


@_check_user_files
def create_sender(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Sender-v0``: batched if env_config has ``num_envs``, else single; the other keys are its arguments."""
    from ccenv.envs.curve.sender import SenderEnv, SenderVectorEnv

    settings = dict(env_config)
    return SenderVectorEnv(**settings) if "num_envs" in settings else SenderEnv(**settings)


@_check_user_files
def create_network(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Network-v0``, in the same way."""
    from ccenv.envs.curve.network import NetworkEnv, NetworkVectorEnv

    settings = dict(env_config)
    return NetworkVectorEnv(**settings) if "num_envs" in settings else NetworkEnv(**settings)


@_check_user_files
def create_packet(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Packet-v0``, in the same way."""
    from ccenv.envs.packet.sender import PacketEnv, PacketVectorEnv

    settings = dict(env_config)
    return PacketVectorEnv(**settings) if "num_envs" in settings else PacketEnv(**settings)


@_check_user_files
def create_packet_network(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/PacketNetwork-v0``, in the same way."""
    from ccenv.envs.packet.network import PacketNetworkEnv, PacketNetworkVectorEnv

    settings = dict(env_config)
    return PacketNetworkVectorEnv(**settings) if "num_envs" in settings else PacketNetworkEnv(**settings)


@_check_user_files
def create_game(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Game-v0``, in the same way."""
    from ccenv.envs.game import GameEnv, GameVectorEnv

    settings = dict(env_config)
    return GameVectorEnv(**settings) if "num_envs" in settings else GameEnv(**settings)


@_check_user_files
def create_packet_duel(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/PacketDuel-v0`` as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.packet.duel import PacketDuelEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(PacketDuelEnv(**dict(env_config)))


@_check_user_files
def create_duel(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Duel-v0`` as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.curve.duel import DuelEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(DuelEnv(**dict(env_config)))


@_check_user_files
def create_flows(env_config: Mapping[str, Any]) -> Any:
    """Return ``FlowsEnv``, each external flow an agent, as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.curve.duel import FlowsEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(FlowsEnv(**dict(env_config)))


@_check_user_files
def create_packet_flows(env_config: Mapping[str, Any]) -> Any:
    """Return ``PacketFlowsEnv``, each external flow an agent, as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.packet.flows import PacketFlowsEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(PacketFlowsEnv(**dict(env_config)))


def register_rllib() -> None:
    """Register the creators with RLlib under the environments' ids."""
    require_extra("ray", "rllib")
    from ray.tune.registry import register_env

    register_env("ccenv/Sender-v0", create_sender)
    register_env("ccenv/Network-v0", create_network)
    register_env("ccenv/Duel-v0", create_duel)
    register_env(FLOWS, create_flows)
    register_env(PACKET_FLOWS, create_packet_flows)
    register_env("ccenv/Packet-v0", create_packet)
    register_env("ccenv/PacketNetwork-v0", create_packet_network)
    register_env("ccenv/Game-v0", create_game)
    register_env("ccenv/PacketDuel-v0", create_packet_duel)
