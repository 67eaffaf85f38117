"""The checker that decides whether a trace is legal for its network model: one function per law, one table of laws.

Written from the laws of docs/networks.md ([CCmatic] s.3 and Listing 3, [Starvation] s.3, s.5.4, s.6.5), not from an engine.
A law measures by how many bytes each row (or row and flow) breaks it; what exceeds roundoff is a violation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.path import GRID_TOLERANCE, FlowPath
from ccenv.network.trace import Floats, Trace

# Relative to the largest curve, in units of float64's resolution: of the numbers of a trace as they are written, and of the
# additions of a step. Engine runs stay below 100 after 600 steps and 1,100 after 60,000.
ROUNDINGS, ROUNDINGS_PER_STEP = 1024, 2
LARGEST_OFF = 1e-3  # of a step's bytes: if roundoff may hide more than this, a trace is not judged


class Curves:
    """A trace and derived quantities, shared by the laws: what a step sent, lost and wasted, departures, delays on the grid.

    Rows are 0..T. Per-step quantities have T + 1 rows too; row 0, where no step ends, is zero.
    """

    def __init__(self, trace: Trace, tolerance: float, slack_bytes: float = 0.0) -> None:
        """Derive the quantities; tolerance is relative to the bytes at stake at a row, slack_bytes are added to it."""
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
        self.reached = self.sent - self.lost_free  # the step's bytes that reached the bottleneck
        # Before congestive loss: bytes that had entered plus those that reached the bottleneck in this step.
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
        """Return the possible error of float64 sums at each row, (T+1,) bytes: each step adds its rounding."""
        magnitude = np.maximum.reduce([np.abs(c).sum(axis=1) for c in (self.A, self.L, self.S)] + [np.abs(self.G)])
        roundings = ROUNDINGS + ROUNDINGS_PER_STEP * np.arange(len(magnitude))
        return roundings * np.finfo(np.float64).eps * np.maximum.accumulate(magnitude)

    def require_resolution(self) -> None:
        """Raise InputError if float64 cannot resolve a trace's steps: the checker would then pass anything."""
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
        """P_i: bytes of each flow that have left the bottleneck when P = min(G, E) bytes of all flows have, as (least, most)."""
        return self.fifo(np.minimum(self.G, self.E_total))

    def fifo(self, total: Floats) -> tuple[Floats, Floats]:
        """Split the first ``total`` bytes of the queue, (T+1,), over the flows in the order of arrival.

        Returns least and most bytes per flow, (T+1, N) each. They differ only for bytes that arrived before row 0.
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


DEFAULT_TOLERANCE = 1e-9  # of the bytes at stake at a row (sent in its step, waiting, spare), not of cumulative bytes

_NEVER = -math.inf  # the amount where a law does not apply
_DEFINITION = "definition of the curves"

Measure = Callable[[Curves], Floats]


@dataclass(frozen=True)
class Law:
    """One law of the network, or of what makes a trace."""

    name: str
    meaning: str
    formula: str  # for messages and documentation
    source: str  # paper and equation
    measure: Measure  # bytes by which each row (T+1,) or each row and flow (T+1, N) breaks it; at most 0 where it holds
    applies: Callable[[Curves], bool] = lambda c: True
    compares_rates: bool = False  # the tolerance is relative to the bytes of one step at the link rate instead of those at stake


def _knows_past(c: Curves) -> bool:
    return c.knows_past


def _hoards(c: Curves) -> bool:
    return c.model.hoards_tokens


def _wastes(c: Curves) -> bool:
    return not c.model.hoards_tokens


def _initial_state(c: Curves) -> Floats:
    out = np.full_like(c.A, _NEVER)
    out[0] = np.maximum.reduce([np.abs(curve[0]) for curve in (c.A, c.L, c.L_free, c.S)])
    out[0] = np.maximum(out[0], abs(c.G[0]))
    return out


def _link_rate_legal(c: Curves) -> Floats:
    low, high = link_rate_bounds(c)
    rate = c.trace.link_rate_Bps
    return np.maximum(low - rate, rate - high) * c.dt_s


def link_rate_bounds(c: Curves) -> tuple[Floats, Floats]:
    """Return the smallest and the largest legal link rate of each row, (T+1,) each, in bytes/s."""
    fuzz_s = GRID_TOLERANCE * c.dt_s
    begins_s = np.maximum(0.0, c.trace.times_s - c.dt_s)  # row 0 repeats the first step's rate
    low = np.full_like(begins_s, c.path.link_rate_Bps)
    high = low.copy()
    for change in c.path.rate_changes:
        before = begins_s + fuzz_s >= change.time_s
        within = ~before & (begins_s + c.dt_s - fuzz_s > change.time_s)
        low[within] = np.minimum(low[within], change.link_rate_Bps)
        high[within] = np.maximum(high[within], change.link_rate_Bps)
        low[before] = high[before] = change.link_rate_Bps
    if c.model.varies_rate:
        if c.path.link_rate_min_Bps is not None:
            low = np.full_like(low, c.path.link_rate_min_Bps)
        if c.path.link_rate_max_Bps is not None:
            high = np.full_like(high, c.path.link_rate_max_Bps)
    return low, high


def _sent_within_rate(c: Curves) -> Floats:
    out = c.sent - c.trace.rate_Bps * c.dt_s
    out[0] = _NEVER
    return out


def _sent_within_window(c: Curves) -> Floats:
    left = np.concatenate((c.L[:1], c.L[:-1]))
    for i, steps in enumerate(c.trace.grid.rtt_steps):
        before = 0.0 if c.knows_past else np.inf
        left[:, i] += c.delayed(c.S[:, i], steps, before)
    return np.minimum(c.sent, c.A - left - c.trace.cwnd_bytes)


def _sent_while_active(c: Curves) -> Floats:
    out = np.full_like(c.sent, _NEVER)
    fuzz_s = GRID_TOLERANCE * c.dt_s
    ends_s = c.trace.times_s
    for i, flow in enumerate(c.path.flows):
        outside = (ends_s <= flow.start_s + fuzz_s) | (ends_s - c.dt_s >= flow.stop_s - fuzz_s)
        out[outside, i] = c.sent[outside, i]
    return out


def _sent_within_workload(c: Curves) -> Floats:
    out = np.full_like(c.A, _NEVER)
    again = np.concatenate((c.L[:1], c.L[:-1]))
    for i, flow in enumerate(c.path.flows):
        if flow.workload.kind == "on_off":
            unasked = np.where(_in_on_phase(flow, c), 0.0, c.sent[:, i])
            out[:, i] = np.cumsum(unasked) - again[:, i]
        elif flow.workload.kind == "finite":
            out[:, i] = c.A[:, i] - again[:, i] - flow.workload.size_bytes
        elif flow.workload.kind == "rate":
            active_s = np.maximum(0.0, np.minimum(c.trace.times_s, flow.stop_s) - flow.start_s)
            out[:, i] = c.A[:, i] - again[:, i] - flow.workload.rate_Bps * active_s
    return out


def _in_on_phase(flow: FlowPath, c: Curves) -> np.ndarray:
    """Tell for each row whether the step that ends there overlaps an on phase, (T+1,)."""
    fuzz_s = GRID_TOLERANCE * c.dt_s
    period_s = flow.workload.on_s + flow.workload.off_s
    begins_s = (c.trace.times_s - c.dt_s - flow.start_s + fuzz_s) % period_s
    return (begins_s < flow.workload.on_s) | (begins_s + c.dt_s - 2 * fuzz_s > period_s)


def _red_loss(c: Curves) -> Floats:
    lost, reached = c.lost_congestive_total, c.reached.sum(axis=1)
    least = np.maximum(red_share(c, 0.0, -c.roundoff) * reached, c.overflow)
    unknown_past_bytes = 0.0 if c.knows_past else min(c.path.buffer_bytes, sys.float_info.max)
    most = np.maximum(red_share(c, unknown_past_bytes, c.roundoff) * reached, c.overflow)
    out: Floats = np.maximum(lost - most, least - lost)
    out[0] = _NEVER
    return out


def red_share(c: Curves, average_bytes: float, margin_bytes: Floats) -> Floats:
    """Return the share of each step's arrivals that RED drops, (T+1,).

    ``average_bytes`` is the averaged queue before row 0; ``margin_bytes``, (T+1,), is added to the average, for roundoff at the
    thresholds.
    """
    red = c.path.red
    if red is None:
        raise InputError("red_share needs a path with RED")
    average = np.empty_like(c.G)
    average[0] = average_bytes
    for k, queue_bytes in enumerate(c.trace.queue_bytes[:-1]):  # the queue at the end of the step before
        average[k + 1] = (1.0 - red.weight) * average[k] + red.weight * queue_bytes
    average += margin_bytes
    ramp = red.max_probability * (average - red.min_bytes) / (red.max_bytes - red.min_bytes)
    return np.where(average > red.max_bytes, 1.0, np.clip(ramp, 0.0, 1.0))


def _loss_split(c: Curves) -> Floats:
    reached = c.reached.sum(axis=1, keepdims=True)
    share: Floats = np.divide(c.reached, reached, out=np.zeros_like(c.reached), where=reached > 0)
    return np.abs(c.lost_congestive - share * c.lost_congestive_total[:, None])


def _fifo_order(c: Curves) -> Floats:
    least, most = c.fifo(c.S_total)
    return np.maximum(least - c.S, c.S - most)


def _delivered_within_jitter(c: Curves) -> Floats:
    least, _ = c.departed
    out = np.full_like(c.S, _NEVER)
    for i, steps in enumerate(c.jitter_steps):
        out[:, i] = c.delayed(least[:, i], steps) - c.S[:, i]
    return out


LAWS = (
    Law("initial_state", "Nothing happened before row 0.",
        "A = L = S = G = 0 at row 0", _DEFINITION, _initial_state, _knows_past),
    Law("sent_monotone", "Bytes sent stay sent.", "A_i(k) >= A_i(k-1)", _DEFINITION, lambda c: -c.sent),
    Law("lost_monotone", "Bytes lost stay lost.", "L_i(k) >= L_i(k-1)", _DEFINITION, lambda c: -c.lost),
    Law("free_loss_monotone", "Bytes lost without congestion stay lost.",
        "Lfree_i(k) >= Lfree_i(k-1)", _DEFINITION, lambda c: -c.lost_free),
    Law("delivered_monotone", "Bytes delivered stay delivered.", "S_i(k) >= S_i(k-1)", _DEFINITION, lambda c: -step(c.S)),
    Law("tokens_monotone", "Tokens admitted stay admitted.", "G(k) >= G(k-1)", _DEFINITION, lambda c: -step(c.G)),
    Law("link_rate_legal", "The link rate is the path's; only the strong model chooses it, within its bounds.",
        "C(k) is the path's rate; strong: C_min <= C(k) <= C_max", "[CCmatic] s.3, App. H; [Starvation] s.6.5",
        _link_rate_legal, compares_rates=True),
    Law("tokens_within_link_rate", "No more tokens than the link rate makes; the same as: tokens wasted stay wasted.",
        "G(k) - G(k-1) <= C(k) dt, i.e. W(k) >= W(k-1)", "[CCmatic] Listing 3 (B.4)", lambda c: -c.wasted),
    Law("sent_within_rate", "A step sends at most what the rate in force allows.",
        "A_i(k) - A_i(k-1) <= rate_i(k) dt", _DEFINITION, _sent_within_rate),
    Law("sent_within_window",
        "A step sends within the window in force; bytes delivered an Rm ago or lost before the step no longer count against it.",
        "A_i(k) > A_i(k-1) => A_i(k) <= cwnd_i(k) + S_i(k-Rm_i) + L_i(k-1)", "RFC 9002 s.7", _sent_within_window),
    Law("sent_while_active", "A flow sends only between its start and its stop.",
        "A_i(k) = A_i(k-1) before start_i and after stop_i", _DEFINITION, _sent_while_active),
    Law("sent_within_workload",
        "A flow sends what its application has offered so far, plus retransmissions of what was lost by the step before.",
        "A_i(k) <= offered_i(t_k) + L_i(k-1)", _DEFINITION, _sent_within_workload, _knows_past),
    Law("lost_within_sent", "A step loses at most what it sent: a byte in the queue is never dropped.",
        "L_i(k) - L_i(k-1) <= A_i(k) - A_i(k-1)", "drop-tail, [CCmatic] s.3", lambda c: c.lost - c.sent),
    Law("free_loss_within_lost", "Loss without congestion is part of the step's loss.",
        "Lfree_i(k) - Lfree_i(k-1) <= L_i(k) - L_i(k-1)", _DEFINITION, lambda c: c.lost_free - c.lost),
    Law("free_loss_budget", "Loss without congestion stays within the flow's budget.",
        "Lfree_i(k) <= eps_i A_i(k)", "[Starvation] s.5.4",
        lambda c: c.L_free - np.array([flow.loss_budget for flow in c.path.flows]) * c.A),
    Law("waste_only_when_idle", "Tokens are wasted only while nothing waits for one.",
        "W(k) > W(k-1) => E(k) <= G(k)", "[CCmatic] Listing 3 (B.5), (B.6)", lambda c: np.minimum(c.wasted, c.E_total - c.G)),
    Law("no_hoarding", "A link that may not hoard wastes every token that no byte uses.",
        "ideal, cbr_delay, strong: G(k) <= E(k)", "[CCmatic] s.3", lambda c: c.G - c.E_total, _wastes),
    Law("buffer_bound", "The buffer holds at most beta bytes: overflow is lost.",
        "E(k) - G(k) <= beta", "[CCmatic] s.3", lambda c: c.E_total - c.G - c.path.buffer_bytes),
    Law("drop_tail_loss", "Drop-tail loses the overflow of the buffer and nothing else.",
        "congestive loss = max(0, X(k) - G(k) - beta), X = bytes offered to the buffer", "[CCmatic] s.3",
        lambda c: np.abs(c.lost_congestive_total - c.overflow), lambda c: c.path.red is None),
    Law("red_loss", "RED loses its share of the arrivals, and drop-tail behind it the remaining overflow.",
        "congestive loss = max(p(avg) arrivals, X(k) - G(k) - beta)", "[BBR-fluid] text above (6); Floyd, Jacobson 1993",
        _red_loss, lambda c: c.path.red is not None),
    Law("loss_split", "Congestive loss hits the flows in proportion to what each brought to the bottleneck in the step.",
        "congestive loss of flow i in proportion to its arrivals", "drop-tail, fluid form", _loss_split),
    Law("delivered_within_entered", "Only what was sent and not lost is delivered.",
        "S_i(k) <= E_i(k) = A_i(k) - L_i(k)", "[CCmatic] Listing 3 (B.2)", lambda c: c.S - c.E),
    Law("delivered_within_tokens", "Every byte delivered used a token.",
        "S(k) <= G(k)", "[CCmatic] Listing 3 (B.1)", lambda c: c.S_total - c.G),
    Law("tokens_used_in_time", "A token is used within D of its admission.",
        "ccac: S(k) >= G(k-D)", "[CCmatic] Listing 3 (B.3)", lambda c: c.delayed(c.G, c.token_steps) - c.S_total, _hoards),
    Law("fifo_order", "Bytes are delivered in the order of arrival.",
        "ccac: S_i(k) = E_i(tau) where E(tau) = S(k)", "first in, first out; [Starvation] App. C", _fifo_order, _hoards),
    Law("delivered_after_departure", "A flow's bytes are delivered after they leave the first-in-first-out bottleneck.",
        "ideal, cbr_delay, strong: S_i(k) <= P_i(k)", "[CCmatic] s.3, [Starvation] s.3", lambda c: c.S - c.departed[1], _wastes),
    Law("delivered_within_jitter",
        "A flow's bytes are delivered at most D_i after they leave the bottleneck; at once without jitter.",
        "ideal: S_i(k) >= P_i(k); cbr_delay, strong: S_i(k) >= P_i(k-D_i)", "[CCmatic] s.3, [Starvation] s.3",
        _delivered_within_jitter, _wastes),
)  # fmt: skip
"""All laws, in the order in which violations of the same step are listed: curves, sending, tokens, loss, service."""


@dataclass(frozen=True)
class Violation:
    """The first violation of a law in a trace.

    ``flow`` is None for laws about all flows together; ``step`` is the row at the end of the step, ``amount_bytes`` the excess
    there. ``steps_broken`` counts the rows that break the law.
    """

    law: str
    flow: int | None
    step: int
    time_s: float
    amount_bytes: float
    steps_broken: int
    message: str

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def check_trace(trace: Trace, tolerance: float = DEFAULT_TOLERANCE, slack_bytes: float = 0.0) -> list[Violation]:
    """Check a trace against every law of its model.

    Returns the first violation of each broken law, earliest first, then in the order of ``LAWS``; empty for a legal trace. Raises
    InputError for a tolerance outside [0, 1), negative or infinite slack, or curves whose steps float64 cannot tell apart.

    Args:
        trace: its curves in bytes, with the name of its model.
        tolerance: in [0, 1), beyond float64's resolution, relative to the bytes at stake; for the link rate to those of one step.
        slack_bytes: tolerated at every row: the difference between whole packets and the fluid of the laws.
    """
    for name, value, end in (("tolerance", tolerance, 1), ("slack_bytes", slack_bytes, math.inf)):
        if not 0 <= value < end:
            raise InputError(f"{name} is {value}; it must be in [0, {end})")
    curves = Curves(trace, tolerance, slack_bytes)
    curves.require_resolution()
    violations = (_find_violation(law, curves, tolerance) for law in LAWS if law.applies(curves))
    return sorted((v for v in violations if v is not None), key=lambda violation: violation.step)


def _find_violation(law: Law, curves: Curves, tolerance: float) -> Violation | None:
    amount = law.measure(curves)
    allowed = tolerance * curves.trace.link_rate_Bps * curves.dt_s if law.compares_rates else curves.roundoff
    by_flow = amount.ndim == 2
    broken = amount > (allowed[:, None] if by_flow else allowed)
    if not broken.any():
        return None
    rows = broken.any(axis=1) if by_flow else broken
    row = int(np.argmax(rows))
    flow = int(np.argmax(np.where(broken[row], amount[row], -math.inf))) if by_flow else None
    worst = float(amount[row, flow] if by_flow else amount[row])
    who = "" if flow is None else f"flow {flow}, "
    message = f"{law.name}: {who}step {row} (t = {row * curves.dt_s:g} s): {law.formula} is broken by {worst:.6g} bytes"
    return Violation(law.name, flow, row, row * curves.dt_s, worst, int(rows.sum()), message)
