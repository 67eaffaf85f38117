"""A fully connected network as a list of steps, between a foreign format and the engines' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Linear:
    """x @ weight + bias, of shapes (n_in, n_out) and (n_out,)."""

    weight: np.ndarray
    bias: np.ndarray


Activation = Literal["tanh", "relu"]
Step = Linear | Activation
"""One step of a network."""
