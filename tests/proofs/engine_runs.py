"""Runs of the curve engine whose numbers all stay exact, for comparison with the solver's model; and numbers of such a model."""

from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.agents.sender import ExternalSender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import ExternalAdversary
from ccenv.network.path import Path

MSS = 0.125  # in C*Rm; powers of two keep every curve exact in float64
FAST, EAGER = (0.125, 0.5, 1.0, 1.5, 2.0, 3.0), (0.0, 0.25, 0.5, 1.0)


def engine_runs(
    model: str, buffer: float, n: int, steps: int, seed: int, rates: Any = FAST, moves: Any = EAGER, D: float = 1.0, **grid: Any
) -> CurveEngine:
    """Run environments with C = Rm = 1, from an empty path, with random dyadic rates in C, and moves."""
    rng = np.random.default_rng(seed)
    flow = {"rtt_s": 1.0, "jitter_s": 0.0 if model == "ideal" else D}
    path = Path.from_dict({"link_rate_Bps": 1.0, "buffer_bytes": buffer, "mss_bytes": MSS, "flows": [flow]})
    engine = CurveEngine(
        [path] * n, model=model, senders=[ExternalSender()], adversary=ExternalAdversary(), loss_detection="oracle",
        beliefs=None, record=True, history_rtts=64, **(grid or {"steps_per_rtt": 1, "timing": "smt"}),
    )  # fmt: skip
    for _ in range(steps):
        engine.advance(1, actions=rng.choice(rates, size=(n, 1)), moves=rng.choice(moves, size=(n, 4)))
    return engine


def exact(value: Any) -> Fraction | bool:
    """Return a number or truth value of a solver's model."""
    import z3

    return bool(z3.is_true(value)) if z3.is_bool(value) else Fraction(value.numerator_as_long(), value.denominator_as_long())


def size_of(buffer: float) -> str | Fraction:
    """Return the buffer as a setting has it."""
    return "infinite" if buffer == np.inf else Fraction(buffer)
