"""Build the formulas of one query: variables, laws, beliefs, and the sender of one flow or of several flows that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol

from ccenv.base.errors import CcenvError
from ccenv.proofs.formulas import beliefs, laws
from ccenv.proofs.formulas.setting import HISTORY_STEPS, Setting
from ccenv.proofs.formulas.view import View, flow_prefix
from ccenv.proofs.solver.solvers import Written, to_smtlib, write_formulas
from ccenv.proofs.solver.terms import Formula

NETWORKS_KEPT = 16
"""Networks whose formulas are kept for the next sender."""

BOUNDS = ("C_L", "C_U", "C_L_lambda", "q_U")


@dataclass(frozen=True)
class Needs:
    """What a sender or a property wants to be encoded.

    Attributes:
        bounds: names among C_L, C_U, C_L_lambda, q_U.
        delays: delays of the newest byte, in steps, that must be told apart.
        probe_window: T* of C_L_lambda in steps.
    """

    bounds: frozenset[str] = frozenset()
    delays: frozenset[int] = frozenset()
    probe_window: int = 1

    def __or__(self, other: Needs) -> Needs:
        """Return what both need together."""
        return Needs(self.bounds | other.bounds, self.delays | other.delays, max(self.probe_window, other.probe_window))


class SmtSender(Protocol):
    """A sender with an encoding."""

    @property
    def name(self) -> str:
        """Name for reports."""

    def needs(self, setting: Setting) -> Needs:
        """Return what the sender reads."""

    def declare(self, view: View, make: Variables) -> None:
        """Declare the sender's own variables (``sent``, ``rate``, ``cwnd``, ``extra``); ``sent`` is a variable in each step."""

    def sends(self, view: View) -> Iterator[Formula]:
        """Yield the sender's formulas."""

    def decider(self) -> Any:
        """Return the sender's step function for the exact replayer (``ccenv.proofs.replay.exact.Decision`` per step)."""

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return (a, b): at most a*C + b*MSS/Rm is sent while the beliefs are consistent; None where that is not known."""


class Variables:
    """Declares solver variables by name and remembers them."""

    def __init__(self) -> None:
        """Start with none."""
        self.prefix = ""
        self.all: dict[str, Any] = {}

    def of_flow(self, index: int) -> Variables:
        """Return a declarer of one flow's own variables: they are remembered here too, under names with the flow's prefix."""
        own = Variables()
        own.prefix, own.all = flow_prefix(index), self.all
        return own

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
    """What a network and its beliefs say whatever is sent.

    Attributes:
        parts: (law or rule name, formula) pairs.
    """

    parts: tuple[tuple[str, Formula], ...]

    @cached_property
    def written(self) -> Written:
        """The formulas as SMT-LIB lines."""
        return write_formulas([formula for _, formula in self.parts if formula is not True])


@dataclass
class Encoding:
    """Formulas of a network, its beliefs and a sender, before any property.

    Attributes:
        setting: what is encoded.
        sender: the sender, or None for an arbitrary one.
        view: the terms.
        variables: all declared variables by name.
        parts: (law or rule name, formula) pairs: first the network's, then the sender's.
        network: the first of them, which senders that name their bytes alike share.
    """

    setting: Setting
    sender: SmtSender | None
    view: View
    variables: Variables
    parts: list[tuple[str, Formula]]
    network: Network

    def formulas(self) -> list[Formula]:
        """Return all formulas that are not trivially true."""
        return [formula for _, formula in self.parts if formula is not True]

    def smtlib(self, *more: Formula) -> str:
        """Return all formulas and some more as a benchmark, the same text as ``to_smtlib([*formulas(), *more])``."""
        own = self.parts[len(self.network.parts) :]
        return to_smtlib([*(formula for _, formula in own if formula is not True), *more], self.network.written)


def encode(
    setting: Setting,
    sender: SmtSender,
    needs: Needs | None = None,
    *,
    bounds: Literal["full", "constant"] = "full",
    flows: int = 1,
) -> Encoding:
    """Encode a network with a sender.

    Args:
        setting: model, buffer, T, rules.
        sender: the sender.
        needs: what the property reads besides.
        bounds: ``full``: beliefs follow their rules; ``constant``: only the traces on which no bound moves (a sound and much
            smaller encoding for "beliefs do not shrink"; not valid with time-outs).
        flows: how many flows of the sender share the path. Of several the past is not known, and no loss of it.

    Returns:
        Encoding: without a property.

    Raises:
        CcenvError: for several flows where only one is encoded.
    """
    wanted = sender.needs(setting) | (needs or Needs())
    wanted = _closed(wanted, setting)
    if flows > 1:
        _check_several(setting, wanted)
    make = Variables()
    view = _declare(setting, wanted, make, flows, constant=bounds == "constant")
    for index, flow in enumerate(view.each):
        sender.declare(flow, make.of_flow(index) if view.flows else make)
    _declare_losses(view, make)
    network = _network(setting, wanted, bounds, tuple(tuple(str(sent) for sent in flow.sent[1:]) for flow in view.each))
    own = [(f"sender {sender.name}", formula) for flow in view.each for formula in sender.sends(flow)]
    return Encoding(setting, sender, view, make, [*network.parts, *own], network)


@lru_cache(maxsize=NETWORKS_KEPT)
def _network(setting: Setting, wanted: Needs, bounds: Literal["full", "constant"], sent: tuple[tuple[str, ...], ...]) -> Network:
    """Encode a network and its beliefs; senders that name their bytes alike share it."""
    make = Variables()
    view = _declare(setting, wanted, make, len(sent), constant=bounds == "constant")
    for flow, names in zip(view.each, sent, strict=True):
        flow.sent = [None, *(make.real(name) for name in names)]
    _declare_losses(view, make)
    parts: list[tuple[str, Formula]] = list(laws.network(view))
    if setting.beliefs.tighter:
        parts += [("upper_bound", formula) for formula in beliefs.windows_of_sent(view)]
    for flow in view.each:
        parts += [("initial_bounds", f) for f in beliefs.initial_bounds(flow)]
        if bounds == "constant":
            parts += [("constant_bounds", f) for f in beliefs.constant_bounds(flow, wanted.probe_window)]
            if flow.q_U is not None:
                parts += [("queue_bound", f) for f in beliefs.queue_bound(flow)]
        else:
            parts += _moving_bounds(flow, wanted)
    return Network(tuple((name, formula) for name, formula in parts if name not in setting.broken))


def _closed(wanted: Needs, setting: Setting) -> Needs:
    bounds = set(wanted.bounds)
    if setting.beliefs.timeout is not None and bounds & {"C_L", "C_U"}:
        bounds |= {"C_L", "C_U"}
    if "q_U" in bounds:
        bounds.add("C_L_lambda")
    delays = set(wanted.delays)
    if "C_U" in bounds and setting.beliefs.upper == "paper":
        delays.add(setting.jitter_steps + 1)
    if setting.delay_rule == "artefact" and delays:
        delays = set(range(1, setting.samples + 1))
    return Needs(frozenset(bounds), frozenset(delays), wanted.probe_window)


def _check_several(setting: Setting, wanted: Needs) -> None:
    """Raise CcenvError for what has no meaning for one flow of several, or no encoding."""
    own = {"C_L", "C_U"} if setting.beliefs.upper == "exact" else {"C_L"}
    if wanted.bounds - own:
        raise CcenvError(f"several flows: {', '.join(sorted(wanted.bounds - own))} has no meaning for a share of a link")
    if setting.past_steps or setting.sent_before_at_most is not None or setting.delay_rule != "sound":
        raise CcenvError("several flows: what was sent before the trace is not known; delay_rule must be sound, past_steps 0")
    if setting.loss_detection != "oracle" or setting.beliefs.timeout is not None or setting.beliefs.tighter:
        raise CcenvError(
            "several flows: losses are told by the oracle, beliefs do not time out, and no rule reads what one flow sent"
        )


def _declare(setting: Setting, wanted: Needs, make: Variables, flows: int, *, constant: bool) -> View:
    n = setting.samples
    first_delays = _first_delays(setting, wanted)
    look_back = setting.past_steps + max([0, *wanted.delays, *first_delays])
    if setting.sent_before_at_most is not None and not setting.past_steps:
        look_back = max(look_back + 1, HISTORY_STEPS * setting.steps_per_rtt)
    before = range(setting.past_steps)
    apart = flows > 1 and setting.delays_flows_apart
    delays = sorted(wanted.delays)
    view = View(
        setting=setting,
        alpha=make.real("alpha"),
        beta=make.real("beta") if setting.has_loss else None,
        G=make.series("G", n),
        E=make.series("E", n) if flows == 1 else [],
        S=make.series("S", n) if flows == 1 else [],
        E_before=[] if apart else make.series("E_before", look_back),
        sent=[],
        lost=[],
        rate=[],
        lost_at_0=make.boolean("lost_at_0") if setting.has_loss and flows == 1 else False,
        loss_seen=[False] * n,
        late=[{} if apart else {m: make.boolean(f"late_{t}_{m}") for m in delays} for t in range(n)],
        first_late=[{m: make.boolean(f"first_late_{t}_{m}") for m in first_delays} for t in range(n)],
        G_before=make.series("G_before", setting.past_steps),
        S_before=make.series("S_before", setting.past_steps),
        late_before=[{m: make.boolean(f"late_before_{k}_{m}") for m in delays} for k in before],
        first_late_before=[{m: make.boolean(f"first_late_before_{k}_{m}") for m in first_delays} for k in before],
    )
    if flows > 1:
        own = [make.of_flow(index) for index in range(flows)]
        view.flows = [
            replace(view, E=mine.series("E", n), S=mine.series("S", n), E_before=[], loss_seen=[False] * n, extra={})
            for mine in own
        ]
        if apart:
            for flow, mine in zip(view.flows, own, strict=True):
                flow.departed, flow.E_before = mine.series("departed", n), mine.series("E_before", look_back)
                flow.late = [{m: mine.boolean(f"late_{t}_{m}") for m in delays} for t in range(n)]
            view.E_before = _sums(flow.E_before for flow in view.flows)
        view.E, view.S = _sums(flow.E for flow in view.flows), _sums(flow.S for flow in view.flows)
        for flow, mine in zip(view.flows, own, strict=True):
            _declare_bounds(flow, wanted, mine, constant=constant)
        return view
    _declare_bounds(view, wanted, make, constant=constant)
    if setting.beliefs.timeout is not None and "C_L" in wanted.bounds and not constant:
        for name in ("C_L_kept", "C_U_kept", "C_L_recomputed"):
            view.extra[name] = [make.real(name)]
    if setting.beliefs.tighter:
        for t in range(setting.jitter_steps + 1, n):
            view.extra[f"sent_windows_{t}"] = make.series(f"sent_windows_{t}", t - setting.jitter_steps)
    return view


def _sums(series: Iterable[list[Any]]) -> list[Any]:
    """Return the sums of several series, sample by sample."""
    return [sum(values[1:], start=values[0]) for values in zip(*series, strict=True)]


def _declare_bounds(view: View, wanted: Needs, make: Variables, *, constant: bool) -> None:
    n = view.setting.samples
    for name in BOUNDS:
        if name in wanted.bounds:
            fixed = constant and name != "q_U"
            setattr(view, name, [make.real(f"{name}_0")] * n if fixed else make.series(name, n))


def _first_delays(setting: Setting, wanted: Needs) -> list[int]:
    if "C_L_lambda" not in wanted.bounds:
        return []
    return [setting.jitter_steps + setting.beliefs.lambda_extra_steps + 1]


def _declare_losses(view: View, make: Variables) -> None:
    """Say what is lost in terms of E and what is sent; several flows know of no loss before the trace."""
    n = view.setting.samples
    for flow in view.flows:
        flow.lost = [
            None,
            *(flow.E[t - 1] + flow.sent[t] - flow.E[t] if view.setting.has_loss else Fraction(0) for t in range(1, n)),
        ]
        if view.setting.has_loss:
            flow.loss_seen = [False, False, *(flow.lost[t - 1] > 0 for t in range(2, n))]
    if view.flows:
        view.sent = [None, *_sums(flow.sent[1:] for flow in view.flows)]
        view.lost = [None, *_sums(flow.lost[1:] for flow in view.flows)]
        return
    if not view.setting.has_loss:
        view.lost = [None] + [Fraction(0)] * (n - 1)
        return
    view.lost = [None] + [view.E[t - 1] + view.sent[t] - view.E[t] for t in range(1, n)]
    rtt = view.setting.steps_per_rtt
    seen = make.boolean("loss_seen_at_0")
    others = [k for k in view.setting.losses_before if k not in (0, rtt)]
    view.lost_before = {k: make.boolean(f"lost_before_{k}") for k in others}
    known = [seen, *(view.lost_before[k] for k in range(rtt - 1, 0, -1)), view.lost_at_0]
    view.loss_seen = [*known, *(view.lost[t - rtt] > 0 for t in range(rtt + 1, n))]


def _moving_bounds(view: View, wanted: Needs) -> Iterator[tuple[str, Formula]]:
    rules = {
        "C_L": ("lower_bound", beliefs.lower_bound),
        "C_U": ("upper_bound", beliefs.upper_bound),
        "q_U": ("queue_bound", beliefs.queue_bound),
    }
    for bound, (name, rule) in rules.items():
        if bound in wanted.bounds:
            yield from ((name, formula) for formula in rule(view))
    if "C_L_lambda" in wanted.bounds:
        yield from (("sent_lower_bound", formula) for formula in beliefs.sent_lower_bound(view, wanted.probe_window))
    if "C_L" in wanted.bounds:
        yield from (("timeout", formula) for formula in beliefs.timeout(view))
