"""The interface of a policy (signals, history, action, decision times), as in configs and cards, and that of Sender-v0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ccenv.agents.interface.actions import ACTION_NUMBERS, action
from ccenv.agents.interface.rewards import REWARDS, term
from ccenv.agents.interface.signals import SIGNAL_NUMBERS, SIGNAL_SETS, SIGNALS_HIGH, SIGNALS_LOW, Signal, fill_beliefs, signal
from ccenv.agents.interface.user import ExtraSignals, as_signals, split
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import unknown_name
from ccenv.base.kernels.decorator import kernel

MAX_HISTORY = 32


def _check_signal(name: str) -> str:
    return signal(name).name


def _check_action(name: str) -> str:
    return action(name).name


def as_weights(value: Any) -> Any:
    """Return the weights of a reward, which may be a name of REWARDS. Raises UnknownNameError with suggestions."""
    if isinstance(value, str) and value not in REWARDS:
        raise unknown_name("reward", value, REWARDS)
    return dict(REWARDS[value]) if isinstance(value, str) else value


class Clock(StrictModel):
    """Decision times of a flow.

    Attributes:
        every: unit of ``count``: the flow's smoothed RTT, its propagation RTT (oracle knowledge), seconds, ACKs, or for senders
            without oracle knowledge the minimum RTT seen (0.1 s before the first sample).
        count: units between two decisions.
        least_rtts: smallest RTTs seen between two decisions at least (``{every: seconds, count: 0.3, least_rtts: 2}``: the longer
            of 0.3 s and two RTTs).
        common: all controlled flows of a network decide at the same times (those of the first one).
    """

    every: Literal["srtt", "rtt", "seconds", "acks", "min_rtt"] = "srtt"
    count: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)
    common: bool = False
    least_rtts: float = Field(default=0.0, ge=0, le=1e3, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _without_least_rtts(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave ``least_rtts`` out where it is 0, so that the identities of older policies stay what they were."""
        data: dict[str, Any] = dump(self)
        if not self.least_rtts:
            del data["least_rtts"]
        return data

    @model_validator(mode="after")
    def _counts_time(self) -> Clock:
        if self.least_rtts and self.every == "acks":
            raise ValueError(f"clock.least_rtts is {self.least_rtts:g}; a clock of acks counts no time, leave it out")
        return self


class Interface(StrictModel):
    """The observation, action and decision times of a policy.

    Attributes:
        version: of the tables of signals and actions.
        signals: names, in the order of the observation.
        history: intervals in the observation, the newest last; before the first decision they are those of an idle flow.
        action: its name.
        parameters: of the action; missing ones have their defaults.
        inner: inner CCA, for actions that build on one.
        clock: decision times.
        extra: elements that user functions add after the history; None: none. Never stored.
    """

    version: Literal[1] = 1
    signals: tuple[Annotated[str, AfterValidator(_check_signal)], ...] = Field(min_length=1, max_length=64)
    history: int = Field(default=1, ge=1, le=MAX_HISTORY, strict=True)
    action: Annotated[str, AfterValidator(_check_action)] = "rate_log2"
    parameters: dict[str, float] = Field(default_factory=dict)
    inner: str = ""
    clock: Clock = Clock()
    _extra: ExtraSignals | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _expand_set(cls, data: Any) -> Any:
        """Expand the name of a set of signals; its history is the default."""
        if isinstance(data, dict) and isinstance(data.get("signals"), str):
            if data["signals"] not in SIGNAL_SETS and data["signals"] not in SIGNAL_NUMBERS:
                raise unknown_name("signal or set of signals", data["signals"], [*SIGNAL_SETS, *SIGNAL_NUMBERS])
            names, history = SIGNAL_SETS.get(data["signals"], ((data["signals"],), 1))
            return {"history": history, **data, "signals": names}
        return data

    @model_validator(mode="after")
    def _check_action_parameters(self) -> Interface:
        row = action(self.action)
        for name, value in self.parameters.items():
            if name not in row.parameters:
                allowed = ", ".join(row.parameters) or "none"
                raise ValueError(f"action {self.action!r} has no parameter {name!r}; it has {allowed}")
            _, low, high = row.parameters[name]
            if not low <= value <= high:
                raise ValueError(f"parameter {name} of action {self.action!r} is {value}; it must be in [{low:g}, {high:g}]")
        if (row.needs == "inner") != bool(self.inner):
            needed = "needs" if row.needs == "inner" else "takes no"
            raise ValueError(f"action {self.action!r} {needed} inner CCA (got {self.inner!r})")
        return self

    @property
    def extra(self) -> ExtraSignals | None:
        """Elements that user functions add to the observation."""
        return self._extra

    @property
    def rows(self) -> tuple[Signal, ...]:
        return tuple(signal(name) for name in self.signals)

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the signals, (len(signals),) int64."""
        return np.array([SIGNAL_NUMBERS[name] for name in self.signals], np.int64)

    @property
    def action_row(self) -> tuple[int, float, float]:
        """Number of the action and its two parameters, 0 for a missing one."""
        values = [self.parameters.get(name, default) for name, (default, _, _) in action(self.action).parameters.items()]
        first, second = [*values, 0.0, 0.0][:2]
        return ACTION_NUMBERS[self.action], first, second

    @property
    def table_width(self) -> int:
        """Length of the history of table signals in the observation."""
        return len(self.signals) * self.history

    @property
    def width(self) -> int:
        """Length of the observation."""
        return self.table_width + (len(self._extra.elements) if self._extra else 0)

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest values of the observation, (width,) float32 each."""
        low, high = (np.tile(ends[self.numbers], self.history) for ends in (SIGNALS_LOW, SIGNALS_HIGH))
        if self._extra is not None:
            low, high = np.append(low, self._extra.low), np.append(high, self._extra.high)
        return low.astype(np.float32), high.astype(np.float32)

    def require_data(self) -> None:
        """Raise ValueError if user functions add to the observation: stored policies are data."""
        if self._extra is not None:
            raise ValueError(
                f"signals: {', '.join(self._extra.elements)} are Python code, and no signals of a config, whose policies are "
                "stored as data; train in a loop of yours and take ccenv.from_sb3 or from_torch (docs/own-code.md)"
            )

    def with_extra(self, seen: np.ndarray) -> np.ndarray:
        """Append the elements of user functions: (..., table_width) to (..., width).

        Raises InputError with file and line, if such a function fails.
        """
        if self._extra is None:
            return seen
        return np.concatenate([seen, self._extra.values(seen).astype(seen.dtype)], axis=-1)


def read_interface(data: Mapping[str, Any], where: str) -> Interface:
    """Return the interface of the fields in ``data``, whose signals may include user functions (``interface.user``).

    Raises:
        InputError: one line, with file and line for a function that fails.
    """
    table_signals, functions = split(as_signals(data.get("signals")))
    interface = validate(Interface, {**data, "signals": table_signals}, where)
    if functions:
        interface._extra = ExtraSignals(functions, interface.signals, interface.history)
    return interface


def _check_weights(value: dict[str, float]) -> dict[str, float]:
    for name in value:
        term(name)
    return value


Weights = Annotated[dict[str, float], BeforeValidator(as_weights), AfterValidator(_check_weights)]
SENDER_V0 = Interface(signals="beliefs", action="rate_log2", clock=Clock(every="rtt"))  # type: ignore[arg-type]
"""The interface of ``ccenv/Sender-v0`` since its first version: the ten belief signals."""


OBSERVATION_VERSION = 1


@dataclass(frozen=True)
class Element:
    """One element of an observation: name, unit after scaling, and the range that it is clipped to."""

    name: str
    unit: str
    low: float
    high: float


OBSERVATION = tuple(Element(row.formula, row.unit, row.low, row.high) for row in SENDER_V0.rows)
N_OBSERVATION = len(OBSERVATION)
OBSERVATION_LOW = np.array([e.low for e in OBSERVATION], dtype=np.float32)
OBSERVATION_HIGH = np.array([e.high for e in OBSERVATION], dtype=np.float32)
_LOW = OBSERVATION_LOW.astype(np.float64)
_HIGH = OBSERVATION_HIGH.astype(np.float64)


@kernel
def fill_observation(ev, fl, out):
    """Write the observation of a flow into out, a float array of length N_OBSERVATION; elements as in OBSERVATION."""
    inflight_bytes = fl.A - fl.acked_bytes - fl.found_lost_bytes
    fill_beliefs(fl, fl.rtt_s, ev.mss_bytes, fl.sent_last_interval_bytes, fl.lost_last_interval_bytes, inflight_bytes, out, 0)
    for j in range(N_OBSERVATION):
        out[j] = min(_HIGH[j], max(_LOW[j], out[j]))


@kernel
def fill_observations(env, flow, n_flows, out):
    """Write the observations of all flows: out has shape (B, n_flows, N_OBSERVATION)."""
    for b in range(env.shape[0]):
        for i in range(n_flows):
            fill_observation(env[b], flow[b * n_flows + i], out[b, i])
