"""The quantities of a trace that laws, beliefs, senders and properties read, as solver terms or exact numbers.

:func:`as_trace` converts exact numbers to a ``ccenv.Trace``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.base.errors import CcenvError
from ccenv.network.path import DEFAULT_MSS_BYTES, Path
from ccenv.network.trace import Trace, TraceHeader
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.solver.terms import Formula, Term, any_of


@dataclass
class View:
    """Flows on one bottleneck over T samples; units C = Rm = 1. Index t is sample t; lists have T entries.

    With several flows the link's view has the sums of E, S, sent and lost, and ``flows`` has a view per flow with its bytes,
    losses, beliefs and sender, and the link's tokens. On CCAC one delay element holds all flows' bytes, so they see one delay; on
    other models each flow has a delay element after the queue ([Starvation] s.3), and so its own ``departed``, past and delays.
    Senders, beliefs and properties of one flow read either view.
    """

    setting: Setting
    alpha: Term  # MSS
    beta: Term | None  # buffer, or None where infinite
    G: list[Term]  # cumulative tokens admitted
    E: list[Term]  # cumulative bytes that entered the queue, A - L
    S: list[Term]  # cumulative bytes delivered; S[0] = 0
    E_before: list[Term]  # E at samples -1, -2, ..., as far back as the known past and delays look
    sent: list[Term]  # bytes sent in (t-1, t], entry 0 is None; likewise `lost`
    lost: list[Term]
    rate: list[Term]  # sending rate in (t-1, t]; entry 0 is the rate before the trace
    lost_at_0: Formula  # whether bytes were lost in the step that ended at sample 0
    loss_seen: list[Formula]  # whether a loss became known in (t-1, t]; the oracle reports with one Rm of delay
    # per sample, m -> whether the newest byte delivered by then had waited at least m steps (grid reading)
    late: list[dict[int, Formula]]
    first_late: list[dict[int, Formula]]  # the same for the first byte delivered in (t-1, t]
    cwnd: list[Term] | None = None  # congestion window in (t-1, t], or None for rate-based senders
    C_L: list[Term] | None = None  # lower bound on C, or None where nothing needs it; likewise C_U, C_L_lambda
    C_U: list[Term] | None = None
    C_L_lambda: list[Term] | None = None
    q_U: list[Term] | None = None  # upper bound on the queue in bytes, or None
    extra: dict[str, list[Term]] = field(default_factory=dict)  # further named quantities of a sender (for traces and replay)
    # G at the samples -1, -2, ... of the known past; likewise S_before, late_before and first_late_before
    G_before: list[Term] = field(default_factory=list)
    S_before: list[Term] = field(default_factory=list)
    late_before: list[dict[int, Formula]] = field(default_factory=list)
    first_late_before: list[dict[int, Formula]] = field(default_factory=list)
    flows: list[View] = field(default_factory=list)  # one view per flow if there are several, else empty
    # k -> the same of the step that ended at sample -k, unless `lost_at_0` or `loss_seen` holds it
    lost_before: dict[int, Formula] = field(default_factory=dict)
    # of a flow with its own delay element: its bytes among the first G that left the queue
    departed: list[Term] = field(default_factory=list)
    mark_above: Term | None = None  # queue above which bytes that enter in a step are marked, or None without ECN
    # per step, whether bytes that entered in it are marked; `marked_before`: k -> those of step -1-k
    marked: list[Formula] = field(default_factory=list)
    marked_before: list[Formula] = field(default_factory=list)
    echo_before: Formula = False  # of a flow, whether it saw marks at sample 0

    @property
    def each(self) -> list[View]:
        """The view of every flow."""
        return self.flows or [self]

    @property
    def last(self) -> int:
        """Index of the last sample."""
        return self.setting.samples - 1

    def enqueued(self, t: int) -> Term:
        """Return E at a sample, negative ones included."""
        return self.E[t] if t >= 0 else self.E_before[-t - 1]

    def admitted(self, t: int) -> Term:
        """Return G at a sample, those of the known past included."""
        return self.G[t] if t >= 0 else self.G_before[-t - 1]

    def delivered(self, t: int) -> Term:
        """Return S at a sample, those of the known past included."""
        return self.S[t] if t >= 0 else self.S_before[-t - 1]

    def newest_late(self, t: int) -> dict[int, Formula]:
        """Return ``late`` at a sample, those of the known past included."""
        return self.late[t] if t >= 0 else self.late_before[-t - 1]

    def oldest_late(self, t: int) -> dict[int, Formula]:
        """Return ``first_late`` at a sample, those of the known past included."""
        return self.first_late[t] if t >= 0 else self.first_late_before[-t - 1]

    def step_marked(self, x: int) -> Formula:
        """Return whether bytes that entered in step x were marked."""
        return self.marked[x] if x >= 0 else self.marked_before[-x - 1]

    def inflight(self, t: int) -> Term:
        """Return bytes sent, not lost and not delivered: A - L - S."""
        return self.E[t] - self.S[t]

    def queue(self, t: int) -> Term:
        """Return bytes that wait for tokens, E - G; negative where tokens are in stock."""
        return self.E[t] - self.G[t]

    def lost_until(self, t: int) -> Term:
        """Return bytes lost since sample 0."""
        return sum((self.lost[x] for x in range(1, t + 1)), start=0)

    def step_utilised(self, x: int) -> Formula:
        """Return whether no token can have been wasted in step x, as known at x + D: E(x) > S(x + D), or bytes were lost at x.

        Steps are 0 to T-1-D, and -D to -1 where the past is known.
        """
        waiting = self.enqueued(x) > self.S[x + self.setting.jitter_steps]
        return any_of([waiting, self.step_lost(x)]) if self.setting.has_loss else waiting

    def step_lost(self, x: int) -> Formula:
        """Return whether bytes were lost in the step that ended at sample x, those of the known past included."""
        return self.lost[x] > 0 if x > 0 else self.lost_in_past(-x)

    def lost_in_past(self, k: int) -> Formula:
        """Return whether bytes were lost in the step that ended at sample -k."""
        if k == 0:
            return self.lost_at_0
        return self.loss_seen[0] if k == self.setting.steps_per_rtt else self.lost_before[k]


def flow_prefix(index: int) -> str:
    """Return the prefix of the names of one flow's variables among several flows."""
    return f"flow{index}_"


def require_variables(values: list[Term] | None, name: str) -> list[Term]:
    """Return the variables of a belief. Raises CcenvError if the encoding has none."""
    if values is None:
        raise CcenvError(f"the encoding has no variables for {name}, which a law needs")
    return values


RTT_S = 0.04
"""Rm of exported traces, the solver's unit of time."""


def as_trace(view: View, sender: str, notes: str = "") -> Trace:
    """Convert a view in exact numbers to a trace in seconds and bytes.

    The unit C*Rm becomes MSS/alpha bytes with an MSS of 1500 bytes; Rm becomes 40 ms. The model lets the network choose which of
    several flows a full buffer hits, so their losses are written as non-congestive, with the smallest loss budget that allows
    them.
    """
    bdp_bytes = DEFAULT_MSS_BYTES / float(view.alpha)
    link_rate_Bps = bdp_bytes / RTT_S
    times = view.setting.times
    origin = Fraction(view.delivered(times[0]))
    lost = _stack_columns(view, lambda flow: np.cumsum(_scale(_list_losses(flow), bdp_bytes)))
    A = _stack_columns(view, lambda flow: _scale([flow.enqueued(t) - origin for t in times], bdp_bytes)) + lost
    share = np.divide(lost, A, out=np.zeros_like(lost), where=lost > 0).max(axis=0)
    budgets = [{"loss_budget": min(float(most) * (1 + 1e-12), 1 - 1e-12)} if view.flows else {} for most in share]
    delays = {"rtt_s": RTT_S, "jitter_s": RTT_S * float(view.setting.jitter)}
    path = Path.from_dict(
        {
            "link_rate_Bps": link_rate_Bps,
            "buffer_bytes": math.inf if view.beta is None else float(view.beta) * bdp_bytes,
            "flows": [delays | budget for budget in budgets],
        }
    )
    header = TraceHeader(
        path=path,
        model=view.setting.model,
        timing="smt",
        steps_per_rtt=view.setting.steps_per_rtt,
        dt_s=RTT_S / view.setting.steps_per_rtt,
        history="empty" if view.setting.past_start == "empty" else "free",
        past_rows=view.setting.past_steps,
        senders=(sender,) * len(view.each),
        adversary="solver",
        notes=notes,
    )
    return Trace(
        header=header,
        A=A,
        L=lost,
        L_free=lost if view.flows else np.zeros_like(lost),
        S=_stack_columns(view, lambda flow: _scale([flow.delivered(t) - origin for t in times], bdp_bytes)),
        G=_scale([view.admitted(t) - origin for t in times], bdp_bytes),
        link_rate_Bps=np.full(len(times), link_rate_Bps),
        rate_Bps=_stack_columns(view, lambda flow: _scale(_list_rates(flow), link_rate_Bps)),
        cwnd_bytes=_stack_columns(view, lambda flow: _list_windows(flow, bdp_bytes)),
        beliefs=_scale_beliefs(view, link_rate_Bps, bdp_bytes),
    )


def _stack_columns(view: View, column: Callable[[View], np.ndarray]) -> np.ndarray:
    """Return one column per flow, (T, N)."""
    return np.column_stack([column(flow) for flow in view.each])


def _list_losses(flow: View) -> list[Fraction]:
    """Return what is lost in each step of the known past and the trace."""
    times = flow.setting.times
    return [Fraction(0), *(find_past_loss(flow, t) for t in times[1 : flow.setting.past_steps + 1]), *flow.lost[1:]]


def _list_rates(flow: View) -> list[Fraction]:
    """Return the rate of each step, before the trace from the bytes sent; the first known sample repeats the next one's."""
    steps = flow.setting.past_steps
    if not steps:
        return flow.rate
    step = flow.setting.step
    sent = [(flow.enqueued(t) - flow.enqueued(t - 1) + find_past_loss(flow, t)) / step for t in flow.setting.times[1 : steps + 1]]
    return [*sent[:1], *sent, *flow.rate[1:]]


def _list_windows(flow: View, bdp_bytes: float) -> np.ndarray:
    windows = np.full(len(flow.setting.times), np.inf)
    if flow.cwnd is not None:
        # What was sent before sample 0 is not what the window of sample 0 allowed.
        first = 1 if flow.setting.past_steps else 0
        windows[flow.setting.past_steps + first :] = _scale(flow.cwnd[first:], bdp_bytes)
    return windows


def find_past_loss(view: View, t: int) -> Fraction:
    """Return bytes lost in the step that ended at sample t <= 0 of the known past.

    The solver only decides whether each of the last steps lost bytes. The loss is taken as one MSS, or less if the sender's
    largest rate allows no more.
    """
    if -t not in view.setting.losses_before or not view.lost_in_past(-t):
        return Fraction(0)
    limit = view.setting.sent_before_at_most
    if limit is None:
        return Fraction(view.alpha)
    most = (limit[0] + limit[1] * Fraction(view.alpha)) * view.setting.step
    room = most - Fraction(view.enqueued(t) - view.enqueued(t - 1))
    return min(Fraction(view.alpha), room)


def _scale_beliefs(view: View, link_rate_Bps: float, bdp_bytes: float) -> dict[str, np.ndarray]:
    out = {}
    for name, unit in (("C_L", link_rate_Bps), ("C_U", link_rate_Bps), ("C_L_lambda", link_rate_Bps), ("q_U", bdp_bytes)):
        if getattr(view.each[0], name) is not None:
            # The past has no beliefs: write bounds that always hold.
            nothing = [np.inf if name in ("C_U", "q_U") else 0.0] * view.setting.past_steps
            out[name] = np.column_stack([[*nothing, *_scale(getattr(flow, name), unit)] for flow in view.each])
    return out


def _scale(series: list[Any], unit: float) -> np.ndarray:
    return np.array([float(Fraction(x)) * unit for x in series])
