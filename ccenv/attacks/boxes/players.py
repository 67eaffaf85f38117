"""Players of a delay element: a periodic pattern, two patterns in succession, a small policy, or any scripted adversary.

Every 10 ms they set the share of held packets to release; any choice is legal. Each type is a scripted adversary for the kernel,
with a few numbers as the state of a delay element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ccenv.adversaries.scripted import keep
from ccenv.agents.callbacks import ADVERSARY_SLOTS
from ccenv.engine.packet.layout import TICK_S
from ccenv.network.adversary import ScriptedAdversary

PATTERN_VALUES = ADVERSARY_SLOTS - 2
PHASE_VALUES = (ADVERSARY_SLOTS - 4) // 2
MIDDLE = 0.5  # a policy without weights releases half of it
INPUTS = ("1", "queue / (C Rm)", "held / (C Rm)", "growth of both in a tick / (C tick)", "what it let go last", "t / end")


class BoxPlayer(Protocol):
    """State of one scripted adversary of a delay element."""

    @property
    def adversary(self) -> ScriptedAdversary:
        """The adversary that the state belongs to."""

    def words(self) -> np.ndarray:
        """Return the state of a box that plays it, (ADVERSARY_SLOTS,)."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""


def play_pattern(state: Any, view: Any, move: Any) -> None:
    """Release the pattern's share of this tick."""
    move.service = state.values[np.int64(view.step / state.hold_ticks) % np.int64(state.length)]


def play_phases(state: Any, view: Any, move: Any) -> None:
    """Release the share of this tick in the pattern of this phase."""
    if view.step < state.switch_tick:
        move.service = state.first[np.int64(view.step / state.hold_ticks) % np.int64(state.first_length)]
    else:
        since = view.step - state.switch_tick
        move.service = state.second[np.int64(since / state.hold_ticks) % np.int64(state.second_length)]


def play_policy(state: Any, view: Any, move: Any) -> None:
    """Release a weighted sum of the inputs, decided every few ticks."""
    waiting = view.queue_bytes + view.held_bytes
    if np.int64(view.step) % np.int64(state.hold_ticks) == 0:
        bdp_bytes = max(view.link_rate_Bps * view.rtt_s, 1.0)
        share = state.weights[0]
        share += state.weights[1] * view.queue_bytes / bdp_bytes
        share += state.weights[2] * view.held_bytes / bdp_bytes
        share += state.weights[3] * (waiting - state.waiting_bytes) / max(view.link_rate_Bps * view.dt_s, 1.0)
        share += state.weights[4] * state.share
        share += state.weights[5] * view.now_s / state.end_s
        state.share = min(1.0, max(0.0, share))
    state.waiting_bytes = waiting
    move.service = state.share


PATTERN_STATE = np.dtype([("values", "<f8", (PATTERN_VALUES,)), ("length", "<f8"), ("hold_ticks", "<f8")])
PATTERN = ScriptedAdversary("pattern", PATTERN_STATE, keep, play_pattern)
PHASES_STATE = np.dtype(
    [
        *(("first", "<f8", (PHASE_VALUES,)), ("second", "<f8", (PHASE_VALUES,))),
        *((name, "<f8") for name in ("first_length", "second_length", "hold_ticks", "switch_tick")),
    ]
)
PHASES = ScriptedAdversary("two_phase", PHASES_STATE, keep, play_phases)
POLICY_STATE = np.dtype(
    [("weights", "<f8", (len(INPUTS),)), *((name, "<f8") for name in ("hold_ticks", "end_s", "share", "waiting_bytes"))]
)
POLICY = ScriptedAdversary("box_policy", POLICY_STATE, keep, play_policy)


@dataclass(frozen=True)
class Pattern:
    """A pattern of one delay element, or of all in a network: at most PATTERN_VALUES in [0, 1], each for ``hold_ticks``."""

    values: tuple[float, ...]
    hold_ticks: int = 1
    adversary = PATTERN

    def words(self) -> np.ndarray:
        """Return the state of a box that plays it, (ADVERSARY_SLOTS,)."""
        out = np.zeros(ADVERSARY_SLOTS)
        out[: len(self.values)] = self.values
        out[PATTERN_VALUES:] = len(self.values), self.hold_ticks
        return out

    def to_dict(self) -> dict[str, Any]:
        return {"values": [round(value, 6) for value in self.values], "hold_s": self.hold_ticks * TICK_S}


@dataclass(frozen=True)
class TwoPhases:
    """Two patterns in succession: 1 to PHASE_VALUES in [0, 1] each, every value for ``hold_ticks``, the second from a tick on."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    hold_ticks: int
    switch_tick: int
    adversary = PHASES

    def words(self) -> np.ndarray:
        """Return the state of a box that plays it, (ADVERSARY_SLOTS,)."""
        out = np.zeros(ADVERSARY_SLOTS)
        out[: len(self.first)] = self.first
        out[PHASE_VALUES : PHASE_VALUES + len(self.second)] = self.second
        out[2 * PHASE_VALUES :] = len(self.first), len(self.second), self.hold_ticks, self.switch_tick
        return out

    def to_dict(self) -> dict[str, Any]:
        data = {name: [round(value, 6) for value in getattr(self, name)] for name in ("first", "second")}
        return {**data, "hold_s": self.hold_ticks * TICK_S, "switch_s": self.switch_tick * TICK_S}


@dataclass(frozen=True)
class BoxPolicy:
    """A policy of one delay element: a weighted sum of INPUTS, clipped to [0, 1], decided every ``hold_ticks``.

    ``end_s`` is the length of the run, by which time is divided.
    """

    weights: tuple[float, ...]
    hold_ticks: int
    end_s: float
    adversary = POLICY

    def words(self) -> np.ndarray:
        """Return the state of a box that plays it, (ADVERSARY_SLOTS,)."""
        out = np.zeros(ADVERSARY_SLOTS)
        out[: len(INPUTS)] = self.weights
        out[len(INPUTS) : len(INPUTS) + 3] = self.hold_ticks, self.end_s, MIDDLE
        return out

    def to_dict(self) -> dict[str, Any]:
        weights = {name: round(weight, 6) for name, weight in zip(INPUTS, self.weights, strict=True)}
        return {"weights": weights, "hold_s": self.hold_ticks * TICK_S}


@dataclass(frozen=True)
class Stored:
    """A scripted adversary, or one of the others as it was stored: with its state and what JSON holds of it."""

    adversary: ScriptedAdversary
    state: tuple[float, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    def words(self) -> np.ndarray:
        """Return the state of a box that plays it, (ADVERSARY_SLOTS,)."""
        return np.array(self.state or np.zeros(ADVERSARY_SLOTS))

    def to_dict(self) -> dict[str, Any]:
        return self.data


KIND = Pattern((1.0,))
"""The benign pattern: everything is released at once."""
