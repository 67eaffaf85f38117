"""Formulas of theorems as claims about traces (views of T samples), and about states alone for the composition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccenv.base.errors import InputError
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, negate
from ccenv.proofs.theorems.language import GROWN, PEAKS, Comparison, Node

_SAMPLES: dict[str, Callable[[View, int], Term]] = {
    "queue": lambda v, t: v.queue(t),
    "inflight": lambda v, t: v.inflight(t),
    "peak_inflight": lambda v, t: v.inflight(t),
    "peak_queue": lambda v, t: v.queue(t),
    "peak_loss": lambda v, t: _in_rtt(v, v.lost, t),
    "peak_sent": lambda v, t: _in_rtt(v, v.sent, t),
}
PER_RTT = frozenset({"peak_loss", "peak_sent"})
"""Peaks of what happens in a Rm: read at its end."""


def _in_rtt(v: View, series: list[Any], t: int) -> Term:
    """Return the sum of a quantity of steps over the Rm that ends at sample t."""
    return sum(series[t - v.setting.steps_per_rtt + 2 : t + 1], start=series[t - v.setting.steps_per_rtt + 1])


def feature(v: View, name: str, t: int) -> Term:
    """Return a feature of a trace; peaks are read at sample t.

    Raises:
        InputError: for the buffer of a network without one, or a belief that is not encoded.
    """
    if name == "MSS":
        return v.alpha
    if name == "buffer":
        if v.beta is None:
            raise InputError("the buffer of this network is infinite; a comparison with it says nothing")
        return v.beta
    if name == "served":
        return v.G[v.last] - v.G[0]
    if name == "delivered":
        return v.S[v.last] - v.S[0]
    if name == "lost":
        return v.lost_until(v.last)
    if name in GROWN and f"{GROWN[name]}_kept" in v.extra:
        return v.extra[f"{GROWN[name]}_kept"][0]
    plain = GROWN.get(name, name.removesuffix("'"))
    at = t if name in PEAKS else v.last if name in GROWN or name.endswith("'") else 0
    if plain in _SAMPLES:
        return _SAMPLES[plain](v, at)
    series: list[Term] | None = getattr(v, plain)
    if series is None:
        raise InputError(f"{plain} is not encoded in this query")
    return series[at]


def on_trace(node: Node, v: View) -> Formula:
    """Return a formula's truth on a trace; a comparison with a peak must hold at every sample from 1 on, or in every Rm."""
    if isinstance(node, Comparison):
        read = {name for name, _ in node.left.terms} & set(PEAKS)
        rtt = v.setting.steps_per_rtt
        times = range(rtt, v.setting.samples, rtt) if read & PER_RTT else range(1, v.setting.samples) if read else (0,)
        return all_of(_truth(node, node.left.value(lambda name, t=t: feature(v, name, t))) for t in times)  # type: ignore[misc]
    parts = [on_trace(part, v) for part in node.parts]
    return all_of(parts) if node.how == "all" else any_of(parts) if node.how == "any" else negate(parts[0])


def on_states(node: Node, of: Callable[[str], Any]) -> Formula:
    """Return a formula's truth where each feature is a number or a variable of its own."""
    if isinstance(node, Comparison):
        return _truth(node, node.left.value(of))
    parts = [on_states(part, of) for part in node.parts]
    return all_of(parts) if node.how == "all" else any_of(parts) if node.how == "any" else negate(parts[0])


def _truth(node: Comparison, value: Term) -> Formula:
    return value < 0 if node.strict else value <= 0
