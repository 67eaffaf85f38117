"""What a sender can be, for both engines and the solver. The agents themselves live in ``ccenv.agents``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ccenv.programs import Program


@dataclass(frozen=True)
class ClassicSender:
    """A CCA in the common on_ack/on_loss/on_tick interface (``ccenv.engine.signals``).

    Attributes:
        name: registry name.
        state: record type made by ``state_record``.
        init: sets the state at the start of a flow.
        on_ack: called with newly acknowledged bytes.
        on_loss: called with newly found losses.
        on_tick: called as time passes.
        parameters: initial values of state fields, set before ``init`` runs.
    """

    name: str
    state: np.dtype
    init: Callable[[Any], None]
    on_ack: Callable[[Any, Any], None]
    on_loss: Callable[[Any, Any], None]
    on_tick: Callable[[Any, Any], None]
    parameters: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramSender:
    """A belief program; its rate is decided once per propagation RTT."""

    name: str
    program: Program


@dataclass(frozen=True)
class MlpSender:
    """A small fully connected policy over the Sender-v0 observation, evaluated in the kernel.

    Attributes:
        name: registry name.
        weights: one (n_in, n_out) float64 array per layer.
        biases: one (n_out,) float64 array per layer.
        activation: ``"tanh"`` or ``"relu"`` between the layers; the last layer is linear, its output clipped to [-1, 1].
        observation_version: version of the observation table that it was trained on.
    """

    name: str
    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str
    observation_version: int


@dataclass(frozen=True)
class ExternalSender:
    """A flow whose rate comes from outside (an environment's action)."""

    name: str = "external"


Sender = ClassicSender | ProgramSender | MlpSender | ExternalSender
