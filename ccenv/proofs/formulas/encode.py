"""Build the formulas of one query: variables, laws, beliefs, and the sender of one flow or of several identical flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

from ccenv.base.errors import CcenvError, InputError
from ccenv.proofs.formulas import beliefs, laws
from ccenv.proofs.formulas.setting import HISTORY_STEPS, Setting
from ccenv.proofs.formulas.view import View, flow_prefix
from ccenv.proofs.solver.solvers import Written, to_smtlib, write_formulas
from ccenv.proofs.solver.terms import Formula

MARKED_STEPS = 3
"""Steps before the trace whose marks are told apart; older bytes have the marks of the first of them."""

NETWORKS_KEPT = 16
"""Networks whose formulas are kept for the next sender."""

BOUNDS = ("C_L", "C_U", "C_L_lambda", "q_U")


@dataclass(frozen=True)
class Needs:
    """What a sender or a property reads of an encoding."""

    bounds: frozenset[str] = frozenset()  # names among C_L, C_U, C_L_lambda, q_U
    delays: frozenset[int] = frozenset()  # delays of the newest byte to be distinguished, in steps
    probe_window: int = 1  # T* of C_L_lambda in steps
    marks: bool = False  # ECN

    def __or__(self, other: Needs) -> Needs:
        """Return the union of both."""
        window = max(self.probe_window, other.probe_window)
        return Needs(self.bounds | other.bounds, self.delays | other.delays, window, self.marks or other.marks)


class SmtSender(Protocol):
    """A sender with an encoding."""

    @property
    def name(self) -> str:
        """Name for reports."""

    def needs(self, setting: Setting) -> Needs:
        """Return what the sender reads."""

    def declare(self, view: View, make: Variables) -> None:
        """Declare the sender's variables (``sent``, ``rate``, ``cwnd``, ``extra``); ``sent`` is a variable in each step."""

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield the sender's formulas."""

    def decider(self) -> Any:
        """Return the sender's step function for the exact replayer (``ccenv.proofs.replay.exact.Decision`` per step)."""

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return (a, b): at most a*C + b*MSS/Rm is sent while the beliefs are consistent; None if unknown."""


class Variables:
    """Declares solver variables by name and remembers them."""

    def __init__(self) -> None:
        self.prefix = ""
        self.all: dict[str, Any] = {}

    def of_flow(self, index: int) -> Variables:
        """Return a declarer for one flow: its variables are remembered here too, under names with the flow's prefix."""
        declarer = Variables()
        declarer.prefix, declarer.all = flow_prefix(index), self.all
        return declarer

    def real(self, name: str) -> Any:
        """Declare a real."""
        import z3

        return self.all.setdefault(self.prefix + name, z3.Real(self.prefix + name))

    def boolean(self, name: str) -> Any:
        """Declare a boolean."""
        import z3

        return self.all.setdefault(self.prefix + name, z3.Bool(self.prefix + name))

    def series(self, name: str, length: int) -> list[Any]:
        """Declare reals name_0, name_1, ..."""
        return [self.real(f"{name}_{t}") for t in range(length)]


@dataclass(frozen=True)
class Network:
    """The formulas of a network and its beliefs, whatever is sent, as (law or rule name, formula) pairs."""

    parts: tuple[tuple[str, Formula], ...]

    @cached_property
    def written(self) -> Written:
        """The formulas as SMT-LIB lines."""
        return write_formulas([formula for _, formula in self.parts if formula is not True])


@dataclass
class Encoding:
    """Formulas of a network, its beliefs and a sender (None: an arbitrary one), without a property."""

    setting: Setting
    sender: SmtSender | None
    view: View
    variables: Variables  # all declared variables by name
    parts: list[tuple[str, Formula]]  # (law or rule name, formula) pairs: first the network's, then the sender's
    network: Network  # shared by senders that name their sent bytes alike

    def formulas(self) -> list[Formula]:
        """Return all formulas that are not trivially true."""
        return [formula for _, formula in self.parts if formula is not True]

    def smtlib(self, *more: Formula) -> str:
        """Return all formulas and ``more`` as a benchmark, the same text as ``to_smtlib([*formulas(), *more])``."""
        sender_parts = self.parts[len(self.network.parts) :]
        return to_smtlib([*(formula for _, formula in sender_parts if formula is not True), *more], self.network.written)


def encode(
    setting: Setting,
    sender: SmtSender,
    needs: Needs | None = None,
    *,
    bounds: Literal["full", "constant"] = "full",
    flows: int = 1,
) -> Encoding:
    """Encode a network with a sender.

    With ``bounds`` "full" beliefs follow their rules; "constant" covers only the traces on which no bound moves, a sound and much
    smaller encoding for "beliefs do not shrink" that is not valid with time-outs. Of several flows the past is not known, and no
    loss in it. ``needs`` are those of the property. Raises CcenvError for several flows where only one has an encoding.
    """
    required = sender.needs(setting) | (needs or Needs())
    required = _add_implied(required, setting)
    if flows > 1:
        _check_flows(setting, required)
    make = Variables()
    view = _declare(setting, required, make, flows, constant=bounds == "constant")
    for index, flow in enumerate(view.each):
        sender.declare(flow, make.of_flow(index) if view.flows else make)
    _declare_losses(view, make)
    network = _network(setting, required, bounds, tuple(tuple(str(sent) for sent in flow.sent[1:]) for flow in view.each))
    sender_parts = [(f"sender {sender.name}", formula) for flow in view.each for formula in sender.sends(flow)]
    return Encoding(setting, sender, view, make, [*network.parts, *sender_parts], network)


@lru_cache(maxsize=NETWORKS_KEPT)
def _network(setting: Setting, needs: Needs, bounds: Literal["full", "constant"], sent: tuple[tuple[str, ...], ...]) -> Network:
    """Encode a network and its beliefs, shared by senders that name their sent bytes alike."""
    make = Variables()
    view = _declare(setting, needs, make, len(sent), constant=bounds == "constant")
    for flow, names in zip(view.each, sent, strict=True):
        flow.sent = [None, *(make.real(name) for name in names)]
    _declare_losses(view, make)
    parts: list[tuple[str, Formula]] = list(laws.network(view))
    if setting.beliefs.tighter:
        parts += [("upper_bound", formula) for formula in beliefs.windows_of_sent(view)]
    for flow in view.each:
        parts += [("initial_bounds", f) for f in beliefs.initial_bounds(flow)]
        if bounds == "constant":
            parts += [("constant_bounds", f) for f in beliefs.constant_bounds(flow, needs.probe_window)]
            if flow.q_U is not None:
                parts += [("queue_bound", f) for f in beliefs.queue_bound(flow)]
        else:
            parts += _moving_bounds(flow, needs)
    return Network(tuple((name, formula) for name, formula in parts if name not in setting.broken))


def _add_implied(needs: Needs, setting: Setting) -> Needs:
    bounds = set(needs.bounds)
    if setting.beliefs.timeout is not None and bounds & {"C_L", "C_U"}:
        bounds |= {"C_L", "C_U"}
    if "q_U" in bounds:
        bounds.add("C_L_lambda")
    delays = set(needs.delays)
    if "C_U" in bounds and setting.beliefs.upper == "paper":
        delays.add(setting.jitter_steps + 1)
    if setting.delay_rule == "artefact" and delays:
        delays = set(range(1, setting.samples + 1))
    return replace(needs, bounds=frozenset(bounds), delays=frozenset(delays))


def _check_flows(setting: Setting, needs: Needs) -> None:
    """Raise CcenvError for what has no meaning for one flow of several, or no encoding."""
    allowed = {"C_L", "C_U"} if setting.beliefs.upper == "exact" else {"C_L"}
    if needs.bounds - allowed:
        raise CcenvError(f"several flows: {', '.join(sorted(needs.bounds - allowed))} has no meaning for a share of a link")
    if needs.marks and not setting.delays_flows_apart:
        raise InputError(f"marks are encoded on cbr_delay, where each flow has a delay element; the model is {setting.model!r}")
    if setting.past_steps or setting.sent_before_at_most is not None or setting.delay_rule != "sound":
        raise CcenvError("several flows: what was sent before the trace is not known; delay_rule must be sound, past_steps 0")
    if setting.loss_detection != "oracle" or setting.beliefs.timeout is not None or setting.beliefs.tighter:
        raise CcenvError(
            "several flows: losses are told by the oracle, beliefs do not time out, and no rule reads what one flow sent"
        )


def _declare(setting: Setting, needs: Needs, make: Variables, flows: int, *, constant: bool) -> View:
    n = setting.samples
    reads_first = "C_L_lambda" in needs.bounds
    first_delays = [setting.jitter_steps + setting.beliefs.lambda_extra_steps + 1] if reads_first else []
    look_back = setting.past_steps + max([0, *needs.delays, *first_delays])
    if needs.marks:
        look_back = max(look_back, MARKED_STEPS)
    if setting.sent_before_at_most is not None and not setting.past_steps:
        look_back = max(look_back + 1, HISTORY_STEPS * setting.steps_per_rtt)
    past_steps = range(setting.past_steps)
    own_delays = flows > 1 and setting.delays_flows_apart
    delays = sorted(needs.delays)
    view = View(
        setting=setting,
        alpha=make.real("alpha"),
        beta=make.real("beta") if setting.has_loss else None,
        G=make.series("G", n),
        E=make.series("E", n) if flows == 1 else [],
        S=make.series("S", n) if flows == 1 else [],
        E_before=[] if own_delays else make.series("E_before", look_back),
        sent=[],
        lost=[],
        rate=[],
        lost_at_0=make.boolean("lost_at_0") if setting.has_loss and flows == 1 else False,
        loss_seen=[False] * n,
        late=[{} if own_delays else {m: make.boolean(f"late_{t}_{m}") for m in delays} for t in range(n)],
        first_late=[{m: make.boolean(f"first_late_{t}_{m}") for m in first_delays} for t in range(n)],
        G_before=make.series("G_before", setting.past_steps),
        S_before=make.series("S_before", setting.past_steps),
        mark_above=make.real("mark_above") if needs.marks else None,
        marked=[make.boolean(f"marked_{t}") for t in range(n)] if needs.marks else [],
        marked_before=[make.boolean(f"marked_before_{k}") for k in range(MARKED_STEPS)] if needs.marks else [],
        late_before=[{m: make.boolean(f"late_before_{k}_{m}") for m in delays} for k in past_steps],
        first_late_before=[{m: make.boolean(f"first_late_before_{k}_{m}") for m in first_delays} for k in past_steps],
    )
    if flows > 1:
        declarers = [make.of_flow(index) for index in range(flows)]
        view.flows = [
            replace(view, E=declarer.series("E", n), S=declarer.series("S", n), E_before=[], loss_seen=[False] * n, extra={})
            for declarer in declarers
        ]
        if own_delays:
            for flow, declarer in zip(view.flows, declarers, strict=True):
                flow.departed, flow.E_before = declarer.series("departed", n), declarer.series("E_before", look_back)
                flow.late = [{m: declarer.boolean(f"late_{t}_{m}") for m in delays} for t in range(n)]
            view.E_before = _sum_series(flow.E_before for flow in view.flows)
        view.E, view.S = _sum_series(flow.E for flow in view.flows), _sum_series(flow.S for flow in view.flows)
        for flow, declarer in zip(view.flows, declarers, strict=True):
            flow.echo_before = declarer.boolean("echo_before") if needs.marks else False
            _declare_bounds(flow, needs, declarer, constant=constant)
        return view
    view.echo_before = make.boolean("echo_before") if needs.marks else False
    _declare_bounds(view, needs, make, constant=constant)
    if setting.beliefs.timeout is not None and "C_L" in needs.bounds and not constant:
        for name in ("C_L_kept", "C_U_kept", "C_L_recomputed"):
            view.extra[name] = [make.real(name)]
    if setting.beliefs.tighter:
        for t in range(setting.jitter_steps + 1, n):
            view.extra[f"sent_windows_{t}"] = make.series(f"sent_windows_{t}", t - setting.jitter_steps)
    return view


def _sum_series(series: Iterable[list[Any]]) -> list[Any]:
    """Return the sums of several series, sample by sample."""
    return [sum(values[1:], start=values[0]) for values in zip(*series, strict=True)]


def _declare_bounds(view: View, needs: Needs, make: Variables, *, constant: bool) -> None:
    n = view.setting.samples
    for name in BOUNDS:
        if name in needs.bounds:
            fixed = constant and name != "q_U"
            setattr(view, name, [make.real(f"{name}_0")] * n if fixed else make.series(name, n))


def _declare_losses(view: View, make: Variables) -> None:
    """Express losses in terms of E and the bytes sent; several flows have no known loss before the trace."""
    n = view.setting.samples
    for flow in view.flows:
        flow.lost = [
            None,
            *(flow.E[t - 1] + flow.sent[t] - flow.E[t] if view.setting.has_loss else Fraction(0) for t in range(1, n)),
        ]
        if view.setting.has_loss:
            flow.loss_seen = [False, False, *(flow.lost[t - 1] > 0 for t in range(2, n))]
    if view.flows:
        view.sent = [None, *_sum_series(flow.sent[1:] for flow in view.flows)]
        view.lost = [None, *_sum_series(flow.lost[1:] for flow in view.flows)]
        return
    if not view.setting.has_loss:
        view.lost = [None] + [Fraction(0)] * (n - 1)
        return
    view.lost = [None] + [view.E[t - 1] + view.sent[t] - view.E[t] for t in range(1, n)]
    rtt = view.setting.steps_per_rtt
    seen_at_0 = make.boolean("loss_seen_at_0")
    others = [k for k in view.setting.losses_before if k not in (0, rtt)]
    view.lost_before = {k: make.boolean(f"lost_before_{k}") for k in others}
    losses_seen = [seen_at_0, *(view.lost_before[k] for k in range(rtt - 1, 0, -1)), view.lost_at_0]
    view.loss_seen = [*losses_seen, *(view.lost[t - rtt] > 0 for t in range(rtt + 1, n))]


def _moving_bounds(view: View, needs: Needs) -> Iterator[tuple[str, Formula]]:
    rules = {
        "C_L": ("lower_bound", beliefs.lower_bound),
        "C_U": ("upper_bound", beliefs.upper_bound),
        "q_U": ("queue_bound", beliefs.queue_bound),
    }
    for bound, (name, rule) in rules.items():
        if bound in needs.bounds:
            yield from ((name, formula) for formula in rule(view))
    if "C_L_lambda" in needs.bounds:
        yield from (("sent_lower_bound", formula) for formula in beliefs.sent_lower_bound(view, needs.probe_window))
    if "C_L" in needs.bounds:
        yield from (("timeout", formula) for formula in beliefs.timeout(view))
