"""The quantities of a trace, as solver terms or as exact numbers: what laws, beliefs, senders and properties speak about."""

from __future__ import annotations

from dataclasses import dataclass, field

from ccenv.base.errors import CcenvError
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.solver.terms import Formula, Term


@dataclass
class View:
    """Flows on one bottleneck over T samples; units C = Rm = 1. Index t is sample t; lists have T entries.

    With several flows the view of the link has the sums of E, S, sent and lost, and ``flows`` a view of each flow: its own bytes,
    losses, beliefs and sender, and the link's tokens. On CCAC one delay element holds all flows' bytes, and they see one delay;
    on other models each flow has an element of its own, after the queue ([Starvation] s.3): what of it left the queue
    (``departed``), its past and its delays are its own. Senders, beliefs and properties of one flow read either.

    Attributes:
        setting: what is encoded.
        alpha: MSS.
        beta: buffer, or None where infinite.
        G: cumulative tokens admitted.
        E: cumulative bytes that entered the queue, A - L.
        S: cumulative bytes delivered; S[0] = 0.
        E_before: E at samples -1, -2, ..., as far back as the known past and delays look.
        G_before: G at the samples -1, -2, ... of the known past.
        S_before: S at the same samples.
        late_before: ``late`` at the same samples.
        first_late_before: ``first_late`` at the same samples.
        sent: bytes sent in (t-1, t]; entry 0 is None.
        lost: bytes lost in (t-1, t]; entry 0 is None.
        rate: sending rate in (t-1, t]; entry 0 is the rate before the trace.
        cwnd: congestion window in (t-1, t], or None for rate-based senders.
        lost_at_0: whether bytes were lost in the step that ended at sample 0.
        lost_before: k -> the same of the step that ended at sample -k, where ``lost_at_0`` and ``loss_seen`` do not tell it.
        loss_seen: whether a loss became known in (t-1, t]; the oracle reports with one Rm of delay.
        late: per sample, m -> whether the newest byte delivered by then had waited at least m steps (grid reading).
        first_late: the same for the first byte delivered in (t-1, t].
        C_L: lower bound on C, or None where nothing needs it; likewise C_U, C_L_lambda.
        q_U: upper bound on the queue in bytes, or None.
        extra: further named quantities of a sender (for traces and replay).
        flows: one view per flow where there are several; empty where the view is the only flow's.
        departed: of a flow with a delay element of its own: its bytes among the first G that left the queue.
    """

    setting: Setting
    alpha: Term
    beta: Term | None
    G: list[Term]
    E: list[Term]
    S: list[Term]
    E_before: list[Term]
    sent: list[Term]
    lost: list[Term]
    rate: list[Term]
    lost_at_0: Formula
    loss_seen: list[Formula]
    late: list[dict[int, Formula]]
    first_late: list[dict[int, Formula]]
    cwnd: list[Term] | None = None
    C_L: list[Term] | None = None
    C_U: list[Term] | None = None
    C_L_lambda: list[Term] | None = None
    q_U: list[Term] | None = None
    extra: dict[str, list[Term]] = field(default_factory=dict)
    G_before: list[Term] = field(default_factory=list)
    S_before: list[Term] = field(default_factory=list)
    late_before: list[dict[int, Formula]] = field(default_factory=list)
    first_late_before: list[dict[int, Formula]] = field(default_factory=list)
    flows: list[View] = field(default_factory=list)
    lost_before: dict[int, Formula] = field(default_factory=dict)
    departed: list[Term] = field(default_factory=list)

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
        """Return whether no token can have been wasted in step x (exact rule), as the sender knows at x + D.

        Args:
            x: step, 0 to T-1-D, or -D to -1 where the past is known. E(x) > S(x+D), or bytes were lost at x.
        """
        from ccenv.proofs.solver.terms import any_of

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
    """Return what the names of a flow's own variables begin with, where a path has several flows."""
    return f"flow{index}_"


def known(values: list[Term] | None, name: str) -> list[Term]:
    """Return the variables of a belief. Raises CcenvError where the encoding has none."""
    if values is None:
        raise CcenvError(f"the encoding has no variables for {name}, which a law needs")
    return values
