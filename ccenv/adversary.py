"""What a network adversary can be. The adversaries themselves live in ``ccenv.adversaries``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ScriptedAdversary:
    """Compiled moves: ``init(state, view)`` once per flow, ``play(state, view, move)`` per flow and step.

    Records are those of ``ccenv.engine.signals``: ADVERSARY_STATE (or a record type with at most as many fields), VIEW, MOVE.
    """

    name: str
    state: np.dtype
    init: Callable[[Any, Any], None]
    play: Callable[[Any, Any, Any], None]
    parameters: dict[str, float] = field(default_factory=dict)


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


Adversary = ScriptedAdversary | ExternalAdversary | RecordedAdversary
