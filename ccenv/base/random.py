"""Counter-based random numbers: a function of (seed, environment, flow, counter), never a global generator.

The generator is SplitMix64's finaliser applied to the mixed key (Steele, Lea, Flood: Fast splittable
pseudorandom number generators, OOPSLA 2014, figure 15).
"""

from __future__ import annotations

import numpy as np

from ccenv.base.kernels.decorator import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 1.0 / 9007199254740992.0  # 2**-53


@kernel(inline="always")
def _mix(z: np.uint64) -> np.uint64:
    z = np.uint64((z ^ (z >> np.uint64(30))) * _MIX_1)
    z = np.uint64((z ^ (z >> np.uint64(27))) * _MIX_2)
    return np.uint64(z ^ (z >> np.uint64(31)))


@kernel
def uniform(seed: float, env: float, flow: float, counter: float) -> float:
    """Return a number in [0, 1) that depends on nothing but its four keys (whole numbers, >= 0)."""
    z = _mix(np.uint64(seed) + _GOLDEN)
    z = _mix(z + (np.uint64(env) + np.uint64(1)) * _GOLDEN)
    z = _mix(z + (np.uint64(flow) + np.uint64(1)) * _GOLDEN)
    z = _mix(z + (np.uint64(counter) + np.uint64(1)) * _GOLDEN)
    return float(z >> np.uint64(11)) * _TO_UNIT
