"""Windows of a run in proof timing, like the solver's traces: T samples one Rm apart, in units where C = Rm = 1.

A proved bound is a least delivery in every window that satisfies a premise. To compare a search with it, the search must consider
the same windows and count like the proof (docs/verification.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.trace import Trace

NO_WINDOW = 100.0  # added if no window satisfies the premise: worse for a search than any window
STILL = 1e-12  # relative: smaller moves of a belief count as none
TRUE = 1e-9  # relative: round-off of a true belief
BYTES = ("S", "inflight", "queue", "q_U")
RATES = ("C_L", "C_U", "C_L_lambda", "rate")


@dataclass(frozen=True)
class Samples:
    """Rows of a run, one per Rm; every array is (rows, B).

    Attributes:
        inflight: sent, neither delivered nor lost.
        queue: waiting for the link.
        C_L, C_U, C_L_lambda, q_U: beliefs after the row was seen.
        rate: in force in the Rm that ends at the row.
        jitter_steps: D, (B,).
    """

    S: np.ndarray
    inflight: np.ndarray
    queue: np.ndarray
    C_L: np.ndarray
    C_U: np.ndarray
    C_L_lambda: np.ndarray
    q_U: np.ndarray
    rate: np.ndarray
    jitter_steps: np.ndarray


class SampleLog:
    """Collects the samples of a running engine."""

    def __init__(self, engine: CurveEngine) -> None:
        self._engine = engine
        self._rows: dict[str, list[np.ndarray]] = {name: [] for name in BYTES + RATES}
        self._next_rate = engine.flow("rate_Bps")[:, 0]
        self.take()

    def take(self) -> None:
        """Add the engine's current row."""
        flow = {name: self._engine.flow(name)[:, 0] for name in ("A", "L", "S", "rate_Bps", "q_U_bytes")}
        row = {"S": flow["S"], "inflight": flow["A"] - flow["L"] - flow["S"], "queue": self._engine.queue_bytes}
        row |= {"q_U": flow["q_U_bytes"], "rate": self._next_rate}
        row |= {name: self._engine.flow(f"{name}_Bps")[:, 0] for name in ("C_L", "C_U", "C_L_lambda")}
        self._next_rate = flow["rate_Bps"]
        for name, rows in self._rows.items():
            rows.append(row[name])

    def samples(self) -> Samples:
        """Return the collected samples, scaled."""
        rate = self._engine.env("link_rate_Bps")
        bdp = rate * self._engine.env("dt_s")
        units = dict.fromkeys(BYTES, bdp) | dict.fromkeys(RATES, rate)
        curves = {name: np.array(rows) / units[name] for name, rows in self._rows.items()}
        return Samples(**curves, jitter_steps=self._engine.env("jitter_steps"))


def samples_of(trace: Trace, first_row: int) -> Samples:
    """Return the samples of a recorded one-flow trace from a row on, (rows, 1)."""
    rate = trace.header.path.link_rate_Bps
    bdp = rate * trace.header.dt_s
    rows = slice(first_row, None)
    return Samples(
        S=trace.S[rows] / bdp,
        inflight=(trace.E - trace.S)[rows] / bdp,
        queue=trace.queue_bytes[rows, None] / bdp,
        C_L=trace.beliefs["C_L"][rows] / rate,
        C_U=trace.beliefs["C_U"][rows] / rate,
        C_L_lambda=trace.beliefs["C_L_lambda"][rows] / rate,
        q_U=trace.beliefs["q_U"][rows] / bdp,
        rate=trace.rate_Bps[rows] / rate,
        jitter_steps=np.array([trace.grid.jitter_steps[0]]),
    )


Premise = Callable[[Samples, int], np.ndarray]


def always(s: Samples, last: int) -> np.ndarray:
    return np.ones((len(s.S) - last, s.S.shape[1]), np.bool_)


def still(beliefs: frozenset[str]) -> Premise:
    """Beliefs are true and do not move, and there is no progress: rate, bytes in flight and queue do not rise.

    The premise and the excuse of an envelope entry (``ccenv.proofs.claims.envelope``). ``beliefs`` are those of the proof: C_L,
    C_U, and C_L_lambda and q_U if the sender reads them.
    """

    def premise(s: Samples, last: int) -> np.ndarray:
        n = len(s.S) - last
        holds = (s.C_L[:n] <= 1 + TRUE) & (s.C_U[:n] >= 1 - TRUE)
        if "C_L_lambda" in beliefs:
            holds &= s.C_L_lambda[:n] <= 1 + TRUE
        if "q_U" in beliefs:
            holds &= s.q_U[:n] >= s.queue[:n] - TRUE
        for belief in (getattr(s, name) for name in sorted(beliefs)):
            for step in range(1, last + 1):
                now, start = belief[step : step + n], belief[:n]
                with np.errstate(invalid="ignore"):  # infinite C_U: equal to itself, its distance undefined
                    holds &= (now == start) | (np.abs(now - start) <= STILL * start)
        for curve in (s.rate, s.inflight, s.queue):
            holds &= curve[last:] <= curve[1 : 1 + n] * (1 + STILL) + STILL
        return holds

    return premise


def _only_tightens(belief: np.ndarray, last: int, sign: int = 1) -> np.ndarray:
    """Return whether a belief only tightens before the window's last sample: a lower bound (sign 1) rises, an upper one falls.

    The proofs let beliefs time out at the last sample only, where it decides nothing inside the window.
    """
    n = len(belief) - last
    tightens = np.ones((n, belief.shape[1]), np.bool_)
    for step in range(1, last):
        before, now = belief[step - 1 : step - 1 + n], belief[step : step + n]
        tightens &= sign * now >= sign * before - STILL * before
    return tightens


def converged(low: float, high: float, most_queue: float) -> Premise:
    """Beliefs are true, C_L and C_U within bounds, the queue at most so many C*(Rm + D): the steady state of cc_qdel's lemmas.

    Beliefs do not time out before the last sample.
    """

    def premise(s: Samples, last: int) -> np.ndarray:
        n = len(s.S) - last
        C_L, C_U = s.C_L[:n], s.C_U[:n]
        beliefs_true = (C_L <= 1 + TRUE) & (C_U >= 1 - TRUE)
        drained = s.queue[:n] <= most_queue * (1 + s.jitter_steps)
        no_timeout = _only_tightens(s.C_L, last) & _only_tightens(s.C_U, last, -1)
        holds: np.ndarray = beliefs_true & drained & no_timeout & np.less_equal(low, C_L) & np.less_equal(C_U, high)
        return holds

    return premise


def probed(low: float, most_q_U: float) -> Premise:
    """C_L_lambda and q_U are true, C_L_lambda >= low*C, q_U at most so many C*Rm: the steady state of cc_probe_slow's lemmas.

    C_L_lambda does not time out before the last sample.
    """

    def premise(s: Samples, last: int) -> np.ndarray:
        n = len(s.S) - last
        probe, q_U = s.C_L_lambda[:n], s.q_U[:n]
        beliefs_true = (probe <= 1 + TRUE) & (q_U >= s.queue[:n] - TRUE)
        holds: np.ndarray = beliefs_true & _only_tightens(s.C_L_lambda, last) & np.less_equal(low, probe) & (q_U <= most_q_U)
        return holds

    return premise


@dataclass(frozen=True)
class Claim:
    """The windows of a bound."""

    samples: int  # T
    premise: Premise  # whether a window counts, given the samples and T - 1: (rows - T + 1, B)
    text: str
    settle: int = 0  # samples at the start of a window that utilisation does not count; T includes them
    # the premise as a formula about a window of the solver (`ccenv.attacks.cold_start`), if any
    encoded: Callable[..., Any] | None = None

    def worst(self, s: Samples) -> np.ndarray:
        """Return the smallest utilisation of the windows that count, (B,); at least NO_WINDOW if none does.

        Utilisation is S(T-1) - S(0) over C*((T-1) Rm - D), from the settled sample on, as in ``ccenv.proofs.claims.properties``.
        """
        last = self.samples - 1
        utilisation = (s.S[last:] - s.S[self.settle : len(s.S) - last + self.settle]) / (last - self.settle - s.jitter_steps)
        counts = self.premise(s, last)
        counted: np.ndarray = np.where(counts, utilisation, np.inf).min(axis=0)
        return np.where(np.isfinite(counted), counted, NO_WINDOW + utilisation.min(axis=0))


ANY_WINDOW = Claim(10, always, "every window of T = 10 samples")
