"""What follows from a trace's curves: departures in order of arrival, delays on the grid, what a step sent, lost and wasted."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.trace import Floats, Trace

# Relative to the largest curve, in units of float64's resolution: of the numbers of a trace as they are written, and of the
# additions of a step. Engine runs stay below 100 after 600 steps and 1,100 after 60,000.
ROUNDINGS, ROUNDINGS_PER_STEP = 1024, 2
LARGEST_OFF = 1e-3  # of a step's bytes: where round-off may hide more than this, a trace is not judged


class Curves:
    """A trace with what follows from it, computed once and shared by the laws.

    Rows are 0..T. Per-step quantities have T + 1 rows too; row 0, where no step ends, is zero.
    """

    def __init__(self, trace: Trace, tolerance: float, slack_bytes: float = 0.0) -> None:
        """Take the trace apart; tolerance is relative to the bytes at stake at a row, slack_bytes come on top."""
        self.trace = trace
        self.path = trace.header.path
        self.model = trace.model
        self.dt_s = trace.header.dt_s
        self.knows_past = trace.header.history == "empty"
        self.A, self.L, self.L_free, self.S, self.G = trace.A, trace.L, trace.L_free, trace.S, trace.G
        self.E = trace.E
        self.E_total: Floats = self.E.sum(axis=1)
        self.S_total: Floats = self.S.sum(axis=1)
        self.sent = step(self.A)
        self.lost = step(self.L)
        self.lost_free = step(self.L_free)
        self.lost_congestive: Floats = self.lost - self.lost_free
        self.lost_congestive_total: Floats = self.lost_congestive.sum(axis=1)
        self.reached = self.sent - self.lost_free  # what of the step's bytes reached the bottleneck
        # Before congestive loss: what had entered and what reached the bottleneck in this step.
        self.offered = np.concatenate((self.E_total[:1], self.E_total[:-1] + self.reached[1:].sum(axis=1)))
        self.earned = trace.link_rate_Bps * self.dt_s
        self.earned[0] = 0.0
        self.wasted: Floats = self.earned - step(self.G)
        self.overflow: Floats = np.maximum(0.0, self.offered - self.G - self.path.buffer_bytes)
        waiting = np.abs(self.A - self.L - self.S).sum(axis=1) + np.abs(self.G - self.E_total)
        self.at_stake = waiting + np.abs(self.sent).sum(axis=1)  # bytes that the laws of a row tell apart
        self.resolution = self._resolution()
        self.roundoff = tolerance * self.at_stake + self.resolution + slack_bytes

    def _resolution(self) -> Floats:
        """Return by how many bytes sums of float64 may be off at each row, (T+1,): each step adds the rounding of its own."""
        magnitude = np.maximum.reduce([np.abs(c).sum(axis=1) for c in (self.A, self.L, self.S)] + [np.abs(self.G)])
        roundings = ROUNDINGS + ROUNDINGS_PER_STEP * np.arange(len(magnitude))
        return roundings * np.finfo(np.float64).eps * np.maximum.accumulate(magnitude)

    def require_resolution(self) -> None:
        """Raise InputError where float64 cannot tell a trace's steps apart: a checker would then pass anything."""
        steps = max(1, self.trace.n_steps)
        sent = float((self.A[-1] - self.A[0]).sum()) / steps
        carried = float(self.earned.sum()) / steps
        step_bytes = min(carried, sent) if sent > 0 else carried
        off = float(self.resolution[-1])
        if not off <= LARGEST_OFF * step_bytes:
            largest = max(float(np.abs(c).max()) for c in (self.A, self.L, self.S, self.G))
            raise InputError(
                f"trace of {steps} steps with curves of up to {largest:.3g} bytes: float64 is off by up to {off:.3g} there; "
                f"at most {LARGEST_OFF:g} of what a mean step sends or the link carries, {step_bytes:.3g} bytes, is allowed"
            )

    @cached_property
    def jitter_steps(self) -> tuple[int, ...]:
        """D per flow in steps; 0 where the model has no jitter."""
        return self.trace.grid.jitter_steps if self.model.has_jitter else (0,) * self.trace.n_flows

    @cached_property
    def token_steps(self) -> int:
        """D of the tokens, which belong to the path and not to a flow: the largest D of its flows."""
        return max(self.jitter_steps)

    @cached_property
    def departed(self) -> tuple[Floats, Floats]:
        """P_i: bytes of each flow that have left the bottleneck when P = min(G, E) of all flows have, as (least, most)."""
        return self.fifo(np.minimum(self.G, self.E_total))

    def fifo(self, total: Floats) -> tuple[Floats, Floats]:
        """Split the first ``total`` bytes of the queue over the flows in the order of arrival.

        Args:
            total: (T+1,) cumulative bytes of all flows that left by each row: they arrived by then.

        Returns:
            Least and most bytes per flow, (T+1, N) each. They differ only for bytes that arrived before row 0.
        """
        arrivals = np.maximum.accumulate(self.E_total)
        rows = np.arange(len(arrivals))
        right = np.clip(np.searchsorted(arrivals, total, side="left"), 1, np.maximum(1, rows))
        width = arrivals[right] - arrivals[right - 1]
        share = np.divide(total - arrivals[right - 1], width, out=np.ones_like(width), where=width > 0)
        share = np.clip(share, 0.0, 1.0)[:, None]
        exact = self.E[right - 1] + share * (self.E[right] - self.E[right - 1])
        ahead = np.maximum(0.0, self.E_total[0] - total)[:, None]  # arrived before row 0, in an order that nobody knows
        most = exact if self.trace.n_flows > 1 else exact - ahead
        return exact - ahead, most

    def delayed(self, curve: Floats, steps: int, before: float = -np.inf) -> Floats:
        """Return a curve (T+1,) delayed by a number of steps; ``before`` fills the rows before row 0 (-inf: no lower bound)."""
        out = np.full_like(curve, before)
        out[steps:] = curve[: max(0, len(curve) - steps)]
        return out


def step(curve: Floats) -> Floats:
    """Return the growth in the step that ends at each row; zero at row 0."""
    out = np.zeros_like(curve)
    out[1:] = curve[1:] - curve[:-1]
    return out
