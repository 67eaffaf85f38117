"""What a replay in exact rational numbers is made of: the curves of a path and of its flows, decisions, and broken laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View, flow_prefix

Values = Mapping[str, Any]


class ReplayError(CcenvError):
    """A solver model that the exact replayer does not reproduce: encoder and replayer disagree."""


@dataclass(frozen=True)
class Decision:
    """What a sender decided for one step: rate, bytes sent, and its own state afterwards."""

    rate: Fraction
    sent: Fraction
    state: dict[str, Any]


DecideStep = Callable[["Run", int, dict[str, Any]], Decision]


class Run:
    """The state of a replay of one flow, or of a path and its flows; lists grow by one entry per sample.

    Attributes:
        flows: where the path has several flows, one run per flow: it has its own bytes, losses, beliefs and decisions, and the
            link's tokens, and on CCAC its delays. The path's own E, S, sent and lost are then sums. Empty where the run is the
            only flow's.
    """

    def __init__(self, setting: Setting, values: Values, bounds: frozenset[str], flows: int = 1) -> None:
        """Start at sample 0 of a solver model."""
        self.setting = setting
        self.d = setting.jitter_steps
        self.values = values
        n = setting.samples
        self.alpha = number(values, "alpha")
        self.beta = number(values, "beta") if setting.has_loss else None
        self.G = [number(values, f"G_{t}") for t in range(n)]
        self.past: list[Fraction] = []
        while f"E_before_{len(self.past)}" in values:
            self.past.append(number(values, f"E_before_{len(self.past)}"))
        before = range(setting.past_steps)
        self.G_past = [number(values, f"G_before_{k}") for k in before]
        self.S_past = [number(values, f"S_before_{k}") for k in before]
        self.late_past = [flags(values, "late_before", k) for k in before]
        self.first_late_past = [flags(values, "first_late_before", k) for k in before]
        self.sent: list[Any] = [None]
        self.lost: list[Any] = [None]
        self.lost_at_0 = bool(values.get("lost_at_0", False))
        self.loss_seen = [bool(values.get("loss_seen_at_0", False))]
        others = [k for k in setting.losses_before if k not in (0, setting.steps_per_rtt)]
        self.lost_before = {k: bool(values.get(f"lost_before_{k}", False)) for k in others}
        self.late = [flags(values, "late", 0)]
        self.first_late = [flags(values, "first_late", 0)]
        self.extra: dict[str, list[Fraction]] = {}
        self.flows: list[Run] = []
        self.departed: list[Fraction] = []
        self.rate: list[Fraction] = []
        self.cwnd: list[Fraction] | None = None
        self.beliefs: dict[str, list[Fraction]] = {}
        if flows == 1:
            self.E = [number(values, "E_0")]
            self.S = [number(values, f"S_{t}") for t in range(n)]
            self.rate = [number(values, "rate_0")]
            self.cwnd = [number(values, "cwnd_0")] if "cwnd_0" in values else None
            self.beliefs = {name: [number(values, f"{name}_0")] for name in sorted(bounds)}
            return
        self.flows = [Run(setting, values_of_flow(values, index), bounds) for index in range(flows)]
        for flow in self.flows:
            flow.G = self.G
            if setting.delays_flows_apart:
                flow.departed = [number(flow.values, f"departed_{t}") for t in range(n)]
            else:
                flow.late, flow.first_late, flow.past = self.late, self.first_late, []
        if setting.delays_flows_apart:
            self.past = [sum(entered, start=Fraction(0)) for entered in zip(*(flow.past for flow in self.flows), strict=True)]
        self.E = [sum((flow.E[0] for flow in self.flows), start=Fraction(0))]
        self.S = [sum((flow.S[t] for flow in self.flows), start=Fraction(0)) for t in range(n)]

    @property
    def each(self) -> list[Run]:
        """Return the run of every flow."""
        return self.flows or [self]

    def enqueued(self, t: int) -> Fraction:
        """Return E at a sample, negative ones included."""
        return self.E[t] if t >= 0 else self.past[-t - 1]

    def step_utilised(self, x: int) -> bool:
        """Return whether no token can have been wasted in step x (exact rule), as the sender knows at x + D."""
        if x < 0:
            if self.setting.past_steps:
                return self.enqueued(x) > self.S[x + self.d] or self.lost_in_past(-x)
            return bool(self.values.get("utilised_before", False))
        lost = self.lost_at_0 if x == 0 else self.lost[x] > 0
        return self.E[x] > self.S[x + self.d] or lost

    def lost_in_past(self, k: int) -> bool:
        """Return whether bytes were lost in the step that ended at sample -k."""
        if k == 0:
            return self.lost_at_0
        return self.loss_seen[0] if k == self.setting.steps_per_rtt else self.lost_before[k]

    def delay(self, t: int) -> int:
        """Return the longest delay, in whole steps, that the newest byte at a sample is known to have had."""
        return max([m for m, late in self.late[t].items() if late], default=0)

    def view(self) -> View:
        """Return the trace in exact numbers."""
        view = View(
            setting=self.setting,
            alpha=self.alpha,
            beta=self.beta,
            G=self.G,
            E=self.E,
            S=self.S,
            E_before=self.past,
            sent=self.sent,
            lost=self.lost,
            rate=self.rate,
            lost_at_0=self.lost_at_0,
            loss_seen=self.loss_seen,
            late=self.late,
            first_late=self.first_late,
            cwnd=self.cwnd,
            extra=dict(self.extra),
            G_before=self.G_past,
            S_before=self.S_past,
            late_before=self.late_past,
            first_late_before=self.first_late_past,
            flows=[flow.view() for flow in self.flows],
            lost_before=dict(self.lost_before),
            departed=self.departed,
        )
        for name, series in self.beliefs.items():
            setattr(view, name, series)
        return view


def values_of_flow(values: Values, index: int) -> dict[str, Any]:
    """Return the values that a flow among several has of its own, by their short names, and those of the link."""
    prefix = flow_prefix(index)
    own = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    return dict(values) | own


def law(name: str, t: int, holds: bool, value: Any) -> None:
    """Raise ReplayError unless a law holds at a sample; names it and the value seen."""
    if not holds:
        raise ReplayError(f"replay: the solver's trace breaks the law {name!r} at sample {t} (value {value})")


def number(values: Values, name: str) -> Fraction:
    """Return a variable's value; what the solver left open counts as 0."""
    return Fraction(values.get(name, 0))


def flags(values: Values, name: str, t: int) -> dict[int, bool]:
    """Return m -> truth of the values name_t_m."""
    prefix = f"{name}_{t}_"
    return {int(key.removeprefix(prefix)): bool(value) for key, value in values.items() if key.startswith(prefix)}
