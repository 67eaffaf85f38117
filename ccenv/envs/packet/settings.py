"""Settings of the packet environments; their fields are the keyword arguments of the adapters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, model_validator

from ccenv.agents.interface.interface import SENDER_V0, Clock, Interface, as_weights, read_interface
from ccenv.agents.interface.rewards import REWARDS
from ccenv.agents.interface.signals import signal
from ccenv.agents.interface.user import OwnReward, OwnSignals, as_signals, is_own_reward, own_reward
from ccenv.agents.programs import Program, parse_program
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError
from ccenv.base.renamed import with_keys_of_today
from ccenv.envs.curve.distribution import LogRange
from ccenv.envs.curve.settings import TableReward, as_shield, require_arguments
from ccenv.simulation.ranges import ScenarioDistribution, load_distribution, read_distribution
from ccenv.simulation.scenario import Scenario

_INSIDE = "rate_between"


def _as_distribution(value: Any) -> Any:
    if isinstance(value, ScenarioDistribution):
        return value
    if isinstance(value, str | os.PathLike):
        return load_distribution(os.fspath(value))
    if isinstance(value, Mapping | Scenario):
        return read_distribution(value)
    raise ValueError("neither a scenario, nor a name or a file of one")


def _check_signal(name: str) -> str:
    return signal(name).name


def _as_reward(value: Any) -> Any:
    """Read a reward: the name of a set, weights of terms, or user code."""
    if is_own_reward(value):
        return own_reward(value)
    if not isinstance(value, str | Mapping):
        raise ValueError("neither the name of a reward, nor weights of its terms, a Python file or a function")
    return validate(TableReward, {"weights": as_weights(value)}, "reward").weights


class PacketSettings(StrictModel):
    """Settings of the packet environments.

    Attributes:
        scenario: a scenario distribution (``ccenv.simulation.ranges``): a name, a file or a mapping. ``sender: external`` marks
            a controlled flow.
        signals: names of signals, or of a set of them (``ccenv.agents.interface.signals``); a list may also include user-defined
            functions of its signals, or Python files (``FILE.py``, ``FILE.py:NAME``; ``ccenv.agents.interface.user``).
        critic_signals: further signals of the newest interval for a critic only; ``truth`` ones are allowed. For flows that
            share a policy in training; never part of a card.
        history: intervals in an observation; None: the published length of the set of signals, else 1.
        action: name of the action (``ccenv.agents.interface.actions``).
        inner: the inner CCA, for actions that build on one.
        n_actions: discrete values of each action, evenly spaced over [-1, 1]; None: any number in between.
        shield: None, or a shield (a file, the name of an agent that runs inside one, a ``Program`` or its document):
            controlled flows run inside it. Their action is ``rate_between``: a is the position u = (a + 1) / 2 in the shield's
            interval of rates at the flow's beliefs. They decide when the shield does, once per propagation RTT or according to
            its leaves. Signals are then ``beliefs`` by default.
        clock: decision times of flows.
        reward: name of a reward, or weights of its terms (``ccenv.agents.interface.rewards``). Or a user-defined reward, slow: a
            function of ``ccenv.agents.interface.user.StepTerms``, called once per decision, or a Python file (``FILE.py``,
            ``FILE.py:NAME``).
        start_rate_share: log-uniform range of the initial rate of controlled flows (or of their window per Rm), as a share of
            the link rate; None: ten segments per Rm.
        link_rate_min_share: of ``ccenv/PacketNetwork-v0``: the agent also moves the link's rate, between this share of the drawn
            rate and that rate (the ``strong`` model). None: it is constant.
        staggered: end the first episode of each environment at a random time, so that a batch does not reset all at once.
        raw: put the measures behind the signals into each step's info.
        threads: that share the networks; results do not depend on it.
    """

    scenario: Annotated[Any, BeforeValidator(_as_distribution)] = "single"
    signals: Annotated[str | tuple[str | InstanceOf[OwnSignals], ...], BeforeValidator(as_signals)] = "aurora"
    critic_signals: tuple[Annotated[str, AfterValidator(_check_signal)], ...] = Field(default=(), max_length=32)
    history: int | None = None
    action: str = "rate_delta"
    action_parameters: dict[str, float] = Field(default_factory=dict)
    inner: str = ""
    n_actions: int | None = Field(default=None, ge=2, le=1001)
    shield: Annotated[Any, BeforeValidator(as_shield)] = None
    clock: Clock = Clock()
    reward: Annotated[Any, BeforeValidator(_as_reward)] = Field(default_factory=lambda: dict(REWARDS["default"]))
    start_rate_share: LogRange | None = None
    link_rate_min_share: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False)
    episode_decisions: int = Field(default=400, ge=2, le=10_000_000)
    staggered: bool = False
    raw: bool = False
    threads: int = Field(default=1, ge=1, le=1024)

    @model_validator(mode="before")
    @classmethod
    def _set_shield_defaults(cls, data: Any) -> Any:
        """Set the defaults of flows inside a shield: beliefs, and the shield's action and clock."""
        if isinstance(data, Mapping) and (data := with_keys_of_today(data)).get("shield") is not None:
            return {"signals": "beliefs", "action": _INSIDE, "clock": {"every": "rtt"}, **data}
        return data

    @model_validator(mode="after")
    def _decides_as_the_shield_does(self) -> PacketSettings:
        if (self.action == _INSIDE) != (self.shield is not None):
            needed = f"action {_INSIDE!r} needs a shield" if self.shield is None else f"inside one the action is {_INSIDE!r}"
            raise ValueError(f"shield: {needed} (got action {self.action!r})")
        if self.shield is not None and self.clock != Clock(every="rtt"):
            raise ValueError("shield: its flows decide when the shield does, once per propagation RTT; leave clock out")
        if self.shield is not None and self.start_rate_share is not None:
            raise ValueError("shield: its flows begin with the shield's first rate; leave start_rate_share out")
        return self

    def shield_program(self) -> Program | None:
        """Return the shield of the controlled flows, or None."""
        return None if self.shield is None else parse_program(self.shield, "shield")

    @property
    def distribution(self) -> ScenarioDistribution:
        """The scenarios."""
        scenarios: ScenarioDistribution = _as_distribution(self.scenario)
        return scenarios

    @property
    def own_reward(self) -> OwnReward | None:
        """The user-defined reward; None: it is a weighted sum of terms."""
        return self.reward if isinstance(self.reward, OwnReward) else None

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the reward's terms by name; empty for a user-defined reward."""
        term_weights: dict[str, float] = {} if self.own_reward is not None else self.reward
        return term_weights

    def interface(self) -> Interface:
        """Return the interface of the controlled flows. Raises InputError."""
        fields: dict[str, Any] = {"signals": self.signals, "action": self.action, "parameters": self.action_parameters}
        if self.history is not None:
            fields["history"] = self.history
        return read_interface({**fields, "inner": self.inner, "clock": self.clock.model_dump()}, "interface")

    def policy_interface(self) -> Interface:
        """Return the interface of a policy that was trained here, whose clock is its own; inside a shield that of beliefs."""
        if self.shield is not None:
            return SENDER_V0
        sees = self.interface()
        return sees.model_copy(update={"clock": sees.clock.model_copy(update={"common": False})})


def read_packet_settings(arguments: dict[str, Any], where: str, defaults: dict[str, Any] | None = None) -> PacketSettings:
    """Check the keyword arguments of the packet environment ``where``, whose ``defaults`` differ from those of the fields.

    Raises:
        UnexpectedArgumentError: for an unknown argument, with the nearest valid names; it is an InputError and a TypeError.
        InputError: one line, for a value that is not allowed.
    """
    require_arguments(PacketSettings, arguments, where)
    arguments = dict(arguments)
    if arguments.get("shield") is not None and (defaults or {}).get("clock", {}).get("common"):
        raise InputError(f"{where}: flows inside a shield decide at their own times; a shield is for ccenv/Packet-v0")
    steps = arguments.pop("max_episode_steps", None)
    if steps is not None:
        if "episode_decisions" in arguments:
            raise InputError(f"{where}: give either episode_decisions or max_episode_steps, not both")
        arguments["episode_decisions"] = steps
    return validate(PacketSettings, {**(defaults or {}), **arguments}, where)
