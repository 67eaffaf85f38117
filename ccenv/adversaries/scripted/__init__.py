"""Scripted network adversaries, one file each, over the records of ``ccenv.agents.callbacks``.

What several scripted adversaries share.
"""

from __future__ import annotations

import types

import numpy as np

from ccenv.base.registry import number
from ccenv.network.adversary import ScriptedAdversary

# Counters of random draws start here, so that no draw of an adversary equals one of a CCA with the same key.
FIRST_COUNTER = 2.0**40

# A step ends at a multiple of dt_s only up to rounding.
TIME_TOLERANCE = 1e-9


def scripted(name: str, module: types.ModuleType, state: np.dtype, **parameters: float) -> ScriptedAdversary:
    """Return the adversary made of a module's init and play."""
    return ScriptedAdversary(name, state, module.init, module.play, parameters)


def share(name: str, parameter: str, value: float) -> float:
    """Check a parameter that must lie in [0, 1]."""
    return number(name, parameter, value, low=0, high=1)
