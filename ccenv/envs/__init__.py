"""Environments: thin adapters (Gymnasium, Stable-Baselines3, RLlib, PettingZoo) over one batched core, imported on first use."""

from __future__ import annotations

from ccenv.base.registry import Registry

ENVIRONMENTS = Registry("environment")

_TASK = ("gymnasium", "vector", "sb3", "rllib")
for _name, _target, _tags, _summary in (
    ("Sender", "curve.sender:SenderEnv", _TASK, "control the sending rate of one or all flows against a legal network"),
    ("Network", "curve.network:NetworkEnv", _TASK, "control the legal moves of the network against fixed senders"),
    ("Duel", "curve.duel:DuelEnv", ("pettingzoo",), "flows and network play each other (PettingZoo parallel)"),
    (
        "Packet",
        "packet.sender:PacketEnv",
        (*_TASK, "packet"),
        "control flows per packet: networks from a scenario distribution, signals, actions and rewards by name",
    ),
    (
        "PacketNetwork",
        "packet.network:PacketNetworkEnv",
        (*_TASK, "packet"),
        "control the jitter boxes of a network per packet, against any senders",
    ),
    (
        "PacketDuel",
        "packet.duel:PacketDuelEnv",
        ("pettingzoo", "packet"),
        "flows and jitter boxes play each other per packet (PettingZoo parallel)",
    ),
    (
        "Game",
        "game:GameEnv",
        (*_TASK, "game"),
        "play a solved game of sender and network on an integer grid, with the exact regret of each decision",
    ),
    (
        "GameDuel",
        "game_duel:GameDuelEnv",
        ("pettingzoo", "game"),
        "sender and network play a solved game against each other (PettingZoo parallel)",
    ),
):
    ENVIRONMENTS.add(f"ccenv/{_name}-v0", f"ccenv.envs.{_target}", tags=_tags, summary=_summary)


def register() -> None:
    """Register the Gymnasium ids, idempotently.

    It is also the entry point ``gymnasium.envs``, which may be called while Gymnasium itself is being imported.
    """
    from gymnasium.envs import registration

    for entry in ENVIRONMENTS:
        if "gymnasium" in entry.tags and entry.name not in registration.registry:
            batched = entry.target.removesuffix("Env") + "VectorEnv"
            registration.register(entry.name, entry_point=entry.target, vector_entry_point=batched)
