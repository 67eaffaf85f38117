"""RLlib (new API stack): creators of the batched environments, of the duel, and of flows that are agents each (FLOWS).

After ``register_rllib()``: ``PPOConfig().environment("ccenv/Sender-v0", env_config={"models": ["cbr_delay"]})`` with
``.env_runners(num_envs_per_env_runner=64, gym_env_vectorize_mode="vector_entry_point")``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccenv.errors import require_extra

FLOWS = "ccenv/Flows"


def create_sender(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Sender-v0``: batched if env_config has ``num_envs``, else single; the other keys are its arguments."""
    from ccenv.envs.sender import SenderEnv, SenderVectorEnv

    settings = dict(env_config)
    return SenderVectorEnv(**settings) if "num_envs" in settings else SenderEnv(**settings)


def create_network(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Network-v0``, in the same way."""
    from ccenv.envs.network import NetworkEnv, NetworkVectorEnv

    settings = dict(env_config)
    return NetworkVectorEnv(**settings) if "num_envs" in settings else NetworkEnv(**settings)


def create_packet(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Packet-v0``, in the same way."""
    from ccenv.envs.packet.sender import PacketEnv, PacketVectorEnv

    settings = dict(env_config)
    return PacketVectorEnv(**settings) if "num_envs" in settings else PacketEnv(**settings)


def create_packet_network(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/PacketNetwork-v0``, in the same way."""
    from ccenv.envs.packet.network import PacketNetworkEnv, PacketNetworkVectorEnv

    settings = dict(env_config)
    return PacketNetworkVectorEnv(**settings) if "num_envs" in settings else PacketNetworkEnv(**settings)


def create_packet_duel(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/PacketDuel-v0`` as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.packet.duel import PacketDuelEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(PacketDuelEnv(**dict(env_config)))


def create_duel(env_config: Mapping[str, Any]) -> Any:
    """Return ``ccenv/Duel-v0`` as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.duel import DuelEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(DuelEnv(**dict(env_config)))


def create_flows(env_config: Mapping[str, Any]) -> Any:
    """Return ``FlowsEnv``, each external flow an agent, as an RLlib multi-agent environment."""
    require_extra("ray", "rllib")
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    from ccenv.envs.duel import FlowsEnv

    wrapper: Any = ParallelPettingZooEnv
    return wrapper(FlowsEnv(**dict(env_config)))


def register_rllib() -> None:
    """Register the creators with RLlib under the environments' ids."""
    require_extra("ray", "rllib")
    from ray.tune.registry import register_env

    register_env("ccenv/Sender-v0", create_sender)
    register_env("ccenv/Network-v0", create_network)
    register_env("ccenv/Duel-v0", create_duel)
    register_env("ccenv/Packet-v0", create_packet)
    register_env("ccenv/PacketNetwork-v0", create_packet_network)
    register_env("ccenv/PacketDuel-v0", create_packet_duel)
    register_env(FLOWS, create_flows)
