"""What a network adversary can be. The adversaries themselves live in ``ccenv.adversaries``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccenv.base.registry import spec_text

# Columns of a row of moves: waste, rate, then service per flow, then loss per flow.
WASTE, RATE, FIRST_SERVICE = range(3)


def moves_width(n_flows: int) -> int:
    """Return the length of a row of moves."""
    return FIRST_SERVICE + 2 * n_flows


@dataclass(frozen=True)
class ScriptedAdversary:
    """Compiled moves: ``init(state, view)`` once per flow, ``play(state, view, move)`` per flow and step.

    Records are those of ``ccenv.agents.callbacks``: ADVERSARY_STATE (or a type with at most as many fields), VIEW, MOVE.
    ``source_sha256`` is the hash of the file it was loaded from; empty for what comes with ccenv.
    """

    name: str
    state: np.dtype
    init: Callable[[Any, Any], None]
    play: Callable[[Any, Any, Any], None]
    parameters: dict[str, float] = field(default_factory=dict)
    source_sha256: str = ""

    def __repr__(self) -> str:
        """Return one line."""
        return f"ScriptedAdversary({spec_text(self.name, self.parameters)})"


@dataclass(frozen=True)
class ExternalAdversary:
    """Moves come from outside (an environment's action), one set per call of ``advance``."""

    name: str = "external"


@dataclass(frozen=True)
class RecordedAdversary:
    """Moves recorded per step, e.g. from a solver's counterexample.

    Attributes:
        name: where they come from.
        moves: array (steps, 2 + 2 * n_flows) in [0, 1]: waste, rate, service per flow, loss per flow.
        periodic: start over after the last set; otherwise the last set is repeated.
    """

    name: str
    moves: np.ndarray
    periodic: bool = False

    def __repr__(self) -> str:
        """Return one line."""
        return f"RecordedAdversary({self.name}: {len(self.moves)} steps{', over and over' if self.periodic else ''})"


@dataclass(frozen=True)
class MlpAdversary:
    """A frozen policy over the Network-v0 observation, evaluated in the kernel.

    Attributes:
        name: where it comes from.
        weights: one (n_in, n_out) float64 array per layer; n_in is the length of the observation for the number of flows.
        biases: one (n_out,) float64 array per layer.
        activation: ``"tanh"`` or ``"relu"`` between the layers; the last layer is linear.
        observation_version: version of the observation table that it was trained on.
        columns: which moves it makes, as columns of (waste, rate, service per flow, loss per flow); the others are kind.
        decision_steps: engine steps for which moves are kept; 0: one smallest Rm.
        episode_rtts: length of the episodes that it was trained on: what its observation calls the share that is over.
        levels: 0: one output per move, clipped to [0, 1]; n: the last layer has n outputs per move, scores of the n evenly
            spaced values from 0 to 1, and the value with the highest score is played (the lowest of equals).
    """

    name: str
    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str
    observation_version: int
    columns: tuple[int, ...]
    decision_steps: int = 0
    episode_rtts: int = 64
    levels: int = 0

    def __repr__(self) -> str:
        """Return one line."""
        n_numbers = sum(array.size for array in (*self.weights, *self.biases))
        return f"MlpAdversary({self.name}: {len(self.columns)} moves, {len(self.weights)} layers, {n_numbers} numbers)"


Adversary = ScriptedAdversary | ExternalAdversary | RecordedAdversary | MlpAdversary
