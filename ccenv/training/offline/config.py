"""The config of a data set: who behaves in which networks, and what of it a learner sees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import Field, field_validator, model_validator

from ccenv.agents.interface.interface import Clock
from ccenv.agents.sender import HeldSender, PolicySender, Sender, ShieldSender
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, require_extra
from ccenv.base.foreign import read_yaml
from ccenv.base.registry import load_target
from ccenv.base.settings import put
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings, TableReward
from ccenv.envs.curve.settings import read_settings as read_curve_settings
from ccenv.envs.packet.settings import PacketSettings, read_packet_settings
from ccenv.envs.packet.task import controlled_flows

CONFIGS = "ccenv.configs.data"
ACTION = "cwnd_exp2"
CHUNKS_PER_SEED = 2**20  # of a data set; each plays networks of a seed of its own
_LOAD_SENDER = "ccenv.agents.load:load_sender"  # looked up at run time: a behaviour may be any sender
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}", re.ASCII)


class DataPart(StrictModel):
    """One sender in one kind of networks.

    Attributes:
        behaviour: the sender of the controlled flows: any name, file or folder that ``ccenv bench run --agent`` takes. A policy
            that sees more than beliefs must have the interface of the data set.
        weight: share of the data set's transitions, in proportion to the other parts.
        packet: arguments of ``ccenv/Packet-v0`` besides those of the data set, ``scenario`` first of all.
        environment: in its place, arguments of ``ccenv/Sender-v0``: the curve engine, with ``models`` and ``adversary``.
    """

    behaviour: str = Field(min_length=1, max_length=400)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    packet: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one_engine(self) -> DataPart:
        if (self.packet is None) == (self.environment is None):
            raise ValueError(f"behaviour {self.behaviour!r}: give packet or environment, one of them")
        return self

    @property
    def engine(self) -> str:
        """``"packet"`` or ``"curve"``."""
        return "curve" if self.packet is None else "packet"

    def sender(self) -> Sender:
        """Return the sender. Raises InputError for one that cannot behave."""
        sender: Sender = load_target(_LOAD_SENDER)(self.behaviour)
        if isinstance(sender, HeldSender):
            raise InputError(f"behaviour {self.behaviour!r}: stands behind a proxy; name the sender itself")
        if isinstance(sender, ShieldSender) and sender.chooser == EXTERNAL:
            raise InputError(f"behaviour {self.behaviour!r}: its chooser is external; name one that chooses")
        return sender


class DataConfig(StrictModel):
    """A data set.

    Attributes:
        name: of the data set, ``ccenv/NAME-v0`` for Minari; by default the name of the file.
        seed: of networks and random moves.
        transitions: number of transitions; rounded up to whole chunks of each part.
        networks: that a chunk plays, one episode each.
        episode_decisions: decisions of an episode, on the curve engine Rm.
        checked: networks of the first chunk of each part that are played again with a record, against the laws.
        signals, history, action_parameters, clock, reward: the interface of observations, actions and rewards, as of
            ``ccenv/Packet-v0``; actions are those of ``cwnd_exp2``.
        parts: the mixture.
    """

    name: str
    seed: int = Field(default=0, ge=0, lt=2**11)
    transitions: int = Field(ge=1, le=10**12)
    networks: int = Field(default=64, ge=1, le=4096)
    episode_decisions: int = Field(default=200, ge=2, le=1_000_000)
    checked: int = Field(default=1, ge=0, le=64)
    signals: tuple[str, ...] = Field(min_length=1)
    history: int = Field(default=1, ge=1, le=64)
    action_parameters: dict[str, float] = Field(default_factory=dict)
    clock: Clock = Clock(every="min_rtt")
    reward: Any = "default"
    parts: tuple[DataPart, ...] = Field(min_length=1, max_length=256)

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} must be a letter, then up to 47 letters, digits or '_'")
        return name

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        for part in self.parts:
            sender = part.sender()
            if part.packet is not None:
                packet = self.packet_settings(part)
                if not controlled_flows(packet.distribution):
                    raise ValueError(f"{packet.distribution.where}: no flow has the sender 'external' for {part.behaviour!r}")
                if packet.own_reward is not None:
                    raise ValueError("reward: user code cannot be checked from the data; name terms of the table")
                if packet.staggered or packet.shield is not None or packet.n_actions is not None or packet.critic_signals:
                    raise ValueError("packet: staggered, shield, n_actions and critic_signals are no part of data")
                if sees_signals(sender) and sender.interface != packet.policy_interface():  # type: ignore[union-attr]
                    raise ValueError(f"behaviour {part.behaviour!r} decides over another interface than that of the data set")
                continue
            curve = self.curve_settings(part)
            if not isinstance(curve.reward, TableReward) or curve.is_discrete or curve.staggered or not curve.external_flows():
                raise ValueError("environment: an 'external' flow, continuous actions and a reward of the table are needed")
            if sees_signals(sender):
                raise ValueError(f"behaviour {part.behaviour!r} sees more than beliefs: per packet only")
        if sum(self.chunks_of_parts()) > CHUNKS_PER_SEED:
            most = CHUNKS_PER_SEED * self.networks * self.episode_decisions
            raise ValueError(f"transitions {self.transitions}: about {most} at most; raise networks or episode_decisions")
        return self

    def packet_settings(self, part: DataPart | None = None) -> PacketSettings:
        """Return the packet environment of a part, or one with the interface of the data set."""
        own = {"signals": self.signals, "history": self.history, "action": ACTION, "action_parameters": self.action_parameters}
        own |= {"clock": self.clock, "reward": self.reward, "episode_decisions": self.episode_decisions}
        given = {} if part is None or part.packet is None else part.packet
        return read_packet_settings(_merged(own, given, "packet"), "packet")

    def curve_settings(self, part: DataPart) -> EnvSettings:
        """Return the curve environment of a part."""
        own = {"signals": self.signals, "history": self.history, "action": ACTION, "action_parameters": self.action_parameters}
        own |= {"reward": self.reward, "episode_rtts": self.episode_decisions}
        return read_curve_settings(_merged(own, part.environment or {}, "environment"), "environment")

    def chunks_of_parts(self) -> list[int]:
        """Return the number of chunks of each part."""
        total = sum(part.weight for part in self.parts)
        size = self.networks * self.episode_decisions
        return [max(1, -(-int(self.transitions * part.weight / total) // size)) for part in self.parts]


def require_data() -> None:
    """Raise MissingExtraError without the extra ``data``."""
    require_extra("minari", "data")
    require_extra("pyarrow", "data")


def sees_signals(sender: Sender) -> bool:
    """Tell whether a sender is a policy that sees more than beliefs: its own actions are known, and need no estimate."""
    return isinstance(sender, PolicySender) and not sender.is_first_version


def _merged(own: dict[str, Any], given: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return arguments with those of a part. Raises ValueError for one that the whole data set has."""
    for name in given:
        if name in own:
            raise ValueError(f"{key}.{name}: is the same in the whole data set; give {name} beside parts")
    return {**own, **given}


def load_data_config(name: str, overrides: dict[str, Any] | None = None) -> DataConfig:
    """Read a config by its shipped name or its file. Raises InputError, one line."""
    file = find_data(CONFIGS, name, ".yaml", "data config")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InputError(f"{file}: a mapping of keys to values is needed")
    return validate(DataConfig, put({"name": FilePath(file).stem, **data}, overrides or {}), str(file))
