"""Environments: thin adapters (Gymnasium, Stable-Baselines3, RLlib, PettingZoo) over one batched core, imported on first use."""

from __future__ import annotations

from ccenv.base.registry import Registry

ENVIRONMENTS = Registry("environment")
ENVIRONMENTS.add(
    "ccenv/Sender-v0",
    "ccenv.envs.curve.sender:SenderEnv",
    tags=("gymnasium", "vector", "sb3", "rllib"),
    summary="control the sending rate of one or all flows against a legal network",
)
ENVIRONMENTS.add(
    "ccenv/Network-v0",
    "ccenv.envs.curve.network:NetworkEnv",
    tags=("gymnasium", "vector", "sb3", "rllib"),
    summary="control the legal moves of the network against fixed senders",
)
ENVIRONMENTS.add(
    "ccenv/Duel-v0",
    "ccenv.envs.curve.duel:DuelEnv",
    tags=("pettingzoo",),
    summary="flows and network play each other (PettingZoo parallel)",
)
ENVIRONMENTS.add(
    "ccenv/Packet-v0",
    "ccenv.envs.packet.sender:PacketEnv",
    tags=("gymnasium", "vector", "sb3", "rllib", "packet"),
    summary="control flows per packet: networks from a scenario distribution, signals, actions and rewards by name",
)
ENVIRONMENTS.add(
    "ccenv/PacketNetwork-v0",
    "ccenv.envs.packet.network:PacketNetworkEnv",
    tags=("gymnasium", "vector", "sb3", "rllib", "packet"),
    summary="control the jitter boxes of a network per packet, against any senders",
)
ENVIRONMENTS.add(
    "ccenv/PacketDuel-v0",
    "ccenv.envs.packet.duel:PacketDuelEnv",
    tags=("pettingzoo", "packet"),
    summary="flows and jitter boxes play each other per packet (PettingZoo parallel)",
)
ENVIRONMENTS.add(
    "ccenv/Game-v0",
    "ccenv.envs.game:GameEnv",
    tags=("gymnasium", "vector", "sb3", "rllib", "game"),
    summary="play a solved game of sender and network on an integer grid, with the exact regret of each decision",
)
ENVIRONMENTS.add(
    "ccenv/GameDuel-v0",
    "ccenv.envs.game_duel:GameDuelEnv",
    tags=("pettingzoo", "game"),
    summary="sender and network play a solved game against each other (PettingZoo parallel)",
)


def register() -> None:
    """Register the Gymnasium ids, idempotently.

    It is also the entry point ``gymnasium.envs``, which may be called while Gymnasium itself is being imported.
    """
    from gymnasium.envs import registration

    for entry in ENVIRONMENTS:
        if "gymnasium" in entry.tags and entry.name not in registration.registry:
            batched = entry.target.removesuffix("Env") + "VectorEnv"
            registration.register(entry.name, entry_point=entry.target, vector_entry_point=batched)
