"""Scripted network adversaries, one file each, over the structs of ``ccenv.agents.callbacks``, and their shared helpers."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from ccenv.base.registry import number
from ccenv.network.adversary import ScriptedAdversary

# Counters of random draws start here, so that adversaries and CCAs never share a draw.
FIRST_COUNTER = 2.0**40

# A step ends at a multiple of dt_s only up to rounding.
TIME_TOLERANCE = 1e-9


def scripted(name: str, module: types.ModuleType, state: np.dtype, **parameters: float) -> ScriptedAdversary:
    """Make an adversary from a module's init and play; without init its state begins with the parameters, all else 0."""
    return ScriptedAdversary(name, state, getattr(module, "init", keep), module.play, parameters)


def keep(state: Any, view: Any) -> None:
    """Keep the state."""


def share(name: str, parameter: str, value: float) -> float:
    """Check a parameter that must lie in [0, 1]."""
    return number(name, parameter, value, low=0, high=1)
