"""Guarantees for unbounded runs, each decided on one trace of T samples (docs/verification.md, Endless runs).

A trace may only owe the change of a bounded quantity, so the debt occurs once per run. Units: C = Rm = 1; g = C*Rm/MSS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from ccenv.base.errors import InputError
from ccenv.proofs.claims.properties import FIRST, Property, buffer_line, consistent, used_in_cycle
from ccenv.proofs.formulas.encode import Needs, SmtSender
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, implies, negate, smaller

VERSION = 2
"""Version of the meaning of stored bounds: 1 excused a trace by any rise or fall, so its numbers are no bounds of a run."""

SAMPLES = 9
"""Default T of a guarantee: the shipped programs grow fast enough in eight Rm on every model."""

Law = Literal["factor", "segments"]
"""How a mark below its goal must grow: by a factor per trace, or by a number of MSS/Rm; the factor is the stronger claim."""

SLOWEST_GROWTH = Fraction(1, 24)
"""Share of itself (``factor``) or of MSS/Rm (``segments``) by which a mark below its goal grows per Rm, at least."""

GOAL: Mapping[Law, Fraction] = {"factor": Fraction(1, 2), "segments": Fraction(5, 4)}
"""A utilisation of f is guaranteed once the mark is at this share of f. Senders that double a safe rate use f from f/2 on;
additive ones probe once in a while and use less than their mark."""

MARK_IN_RTTS = Fraction(4)
"""Round trips of the link that a rise of the mark from 0 to C may cost in the whole run."""

REST = Fraction(2, 3)
"""A path is at rest with at most this share of the guaranteed bound on it; each trace ends at rest, where the next one starts."""

SHOWN_SEGMENTS = (10, 100, 1000)
"""Values of C*Rm/MSS for which reports give the length of the ramp."""

Mark = Literal["C_L", "C_L_lambda", "speed"]


def choose_mark(sender: SmtSender, setting: Setting) -> Mark:
    """Return the measure of a sender's progress: the belief that it reads, else its window or rate."""
    bounds = sender.needs(setting).bounds
    if bounds & {"C_L", "C_U"}:
        return "C_L"
    return "C_L_lambda" if bounds else "speed"


def endless_setting(setting: Setting, sender: SmtSender, *, timeouts: bool = False) -> Setting:
    """Return the setting of a guarantee for unbounded runs: C_U and C_L_lambda are read as the engine reads them.

    Raises InputError for time-outs of a sender that reads neither C_L nor C_U: those of C_L_lambda have no encoding.
    """
    if timeouts and choose_mark(sender, setting) != "C_L":
        raise InputError(f"sender {sender.name!r} reads neither C_L nor C_U: the time-outs of other beliefs have no encoding")
    rules = BeliefRules(upper="exact", lambda_extra_steps=0, timeout=TIMEOUT_PRESETS["artefact"] if timeouts else None)
    return replace(setting, beliefs=rules)


def choose_law(sender: SmtSender, setting: Setting) -> Law:
    """Return the law by which a sender's mark must grow: C_L by a factor, other marks by segments."""
    return "factor" if choose_mark(sender, setting) == "C_L" else "segments"


def mark(v: View, name: Mark, t: int) -> Term:
    """Return a mark at a sample."""
    if name == "speed":
        return (v.cwnd if v.cwnd is not None else v.rate)[t]
    series: list[Term] = getattr(v, name)
    return series[t]


def growth_per_trace(samples: int) -> Fraction:
    """Return the smallest growth of a mark below its goal over a trace, as a share of itself or of MSS/Rm."""
    return SLOWEST_GROWTH * (samples - 1)


def rtts_to_reach(goal: Fraction, law: Law, samples: int, segments: int) -> int:
    """Return the most round trips from a mark of MSS/Rm to a goal in C on a link of g = C*Rm/MSS segments.

    That is (T - 1) N, with the smallest N for which MSS/Rm grown N times is at least goal*C. Raises InputError if C < MSS/Rm.
    """
    if segments < 1:
        raise InputError(f"the link carries {segments} segments per Rm; it must be at least 1")
    share, reached, traces = growth_per_trace(samples), Fraction(1), 0
    needed = goal * segments
    if law == "segments":
        traces = max(0, -((1 - needed) // share))
    while law == "factor" and reached < needed:
        reached, traces = reached * (1 + share), traces + 1
    return traces * (samples - 1)


def ramp(setting: Setting, sender: SmtSender, at_least: Fraction) -> dict[str, Any]:
    """Return the ramp to a proved utilisation, for a report."""
    law = choose_law(sender, setting)
    goal, share = goal_of(at_least, law), growth_per_trace(setting.samples)
    return {
        "mark": _NAMES[choose_mark(sender, setting)],
        "goal": float(goal),
        "grows_per_trace": float(share),
        "unit": "of itself" if law == "factor" else "MSS/Rm",
        "trace_rtts": setting.samples - 1,
        "rtts_to_reach": {str(g): rtts_to_reach(goal, law, setting.samples, g) for g in SHOWN_SEGMENTS},
        "owed_bdp": float(MARK_IN_RTTS + setting.jitter_steps),
        "timeouts": setting.beliefs.timeout is not None,
    }


def goal_of(at_least: Fraction, law: Law) -> Fraction:
    """Return the mark, in C, from which on a utilisation is guaranteed."""
    return at_least * GOAL[law]


def utilisation(setting: Setting, sender: SmtSender, at_least: Fraction) -> Property:
    """Build the guarantee of a utilisation.

    Of each trace that starts with true beliefs, one query states: the beliefs end true; a mark below its goal reaches it or grows
    by the law; a mark at its goal or above ends there, and the link serves f*C in each Rm, where a rise of the mark (up to C) by
    x counts as MARK_IN_RTTS * x of service and a fall costs as much. Service is counted in tokens that are not wasted, G: S lags
    by at most C*D in a run.
    """
    name, law = choose_mark(sender, setting), choose_law(sender, setting)
    goal = goal_of(at_least, law)

    def grows_and_pays(v: View) -> list[Formula]:
        first, last = mark(v, name, 0), mark(v, name, v.last)
        unit = first if law == "factor" else v.alpha
        ramps = any_of([last >= goal, last >= first + growth_per_trace(v.setting.samples) * unit])
        rise = smaller(last, 1) - smaller(first, 1)
        pays = v.G[v.last] - v.G[0] + MARK_IN_RTTS * rise >= at_least * v.last
        return [implies(first < goal, ramps), implies(first >= goal, all_of([last >= goal, pays]))]

    share = float(growth_per_trace(setting.samples))
    unit_name = "of itself" if law == "factor" else "MSS/Rm"
    text = (
        f"{_NAMES[name]} below {float(goal):.4g} C grows by {share:.3g} {unit_name} per trace; from there"
        f" on it stays there, and {float(at_least):.4g} of the link is used in the long run"
    )
    more: frozenset[str] = frozenset() if name == "speed" else frozenset({name})
    claim = _build_promise("utilisation", text, grows_and_pays, setting, sender, Needs(more))
    return replace(claim, repeated=lambda v: used_in_cycle(v, at_least))


def stays_below(
    metric: str, measure: Callable[[View, int], Term], setting: Setting, sender: SmtSender, at_most: Fraction
) -> Property:
    """Build the guarantee of a bound in C*(Rm + D): from a path at rest it is never exceeded, and each trace ends at rest."""

    def obligations(v: View) -> list[Formula]:
        bound = at_most * (1 + v.setting.jitter_steps)
        return [measure(v, t) <= bound for t in range(FIRST, v.setting.samples)]

    def rests(v: View, t: int) -> Formula:
        return measure(v, t) <= REST * at_most * (1 + v.setting.jitter_steps)

    start, most = float(REST * at_most), float(at_most)
    text = f"with at most {start:.4g} C(Rm+D) at the start, {metric} is at most {most:.4g} C(Rm+D) for ever"
    starts, ends = (lambda v: rests(v, 0)), (lambda v: rests(v, v.last))
    return _build_promise(metric, text, obligations, setting, sender, Needs(), starts, ends)


inflight = partial(stays_below, "inflight", View.inflight)
queue = partial(stays_below, "queue", View.queue)


def waits_below(setting: Setting, sender: SmtSender, steps: int) -> Property:
    """Build the guarantee of a delay: with at most half of it queued at the start, no byte ever waits ``steps`` whole Rm."""

    def obligations(v: View) -> list[Formula]:
        return [negate(v.late[t][steps]) for t in range(FIRST, v.setting.samples)]

    text = f"with at most {steps / 2:g} C Rm queued at the start, no byte waits {steps} Rm or more, for ever"
    needs = Needs(delays=frozenset({steps}))
    half = Fraction(steps, 2)
    return _build_promise(
        "rtt", text, obligations, setting, sender, needs, lambda v: v.queue(0) <= half, lambda v: v.queue(v.last) <= half
    )


def loss_per_step(setting: Setting, sender: SmtSender, at_most_bdp: Fraction) -> Property:
    """Build the guarantee of a loss: from any state with true beliefs no step loses more than x*C*Rm, and they stay true."""

    def obligations(v: View) -> list[Formula]:
        return [v.lost[t] <= at_most_bdp for t in range(FIRST, v.setting.samples)] if v.setting.has_loss else []

    text = f"from any start with true beliefs, no Rm loses more than {float(at_most_bdp):.4g} C Rm"
    return _build_promise("loss per Rm", text, obligations, setting, sender, Needs())


_NAMES: dict[Mark, str] = {"C_L": "C_L", "C_L_lambda": "C_L_lambda", "speed": "its window or rate"}


def _beliefs_true(v: View, t: int, sender: SmtSender) -> Formula:
    """Return "the sender's beliefs are true at sample t", which holds at the start of each trace of a run and at its end.

    Moreover q_U is at most what one step at the largest rate adds, which holds from an empty path on.
    """
    parts = [consistent(v, t), buffer_line(v, t, sender.needs(v.setting).probe_window)]
    largest = sender.largest_rate()
    if v.q_U is not None and v.C_L_lambda is not None and largest is not None:
        parts.append(v.q_U[t] <= largest[0] * v.C_L_lambda[t] + largest[1] * v.alpha)
    return all_of(parts)


def _build_promise(
    name: str,
    text: str,
    obligations: Callable[[View], list[Formula]],
    setting: Setting,
    sender: SmtSender,
    more: Needs,
    premise: Callable[[View], Formula] = lambda v: True,
    ends: Callable[[View], Formula] = lambda v: True,
) -> Property:
    """Build a guarantee: ``obligations`` in each trace; assumptions on its start (``premise``, beliefs) also hold at its end."""
    needs = sender.needs(setting) | more

    def holds(v: View) -> Formula:
        return all_of([*obligations(v), ends(v), _beliefs_true(v, v.last, sender)])

    def assumed(v: View) -> Formula:
        return all_of([_beliefs_true(v, 0, sender), premise(v)])

    return Property(name, text, holds, needs, assumed, repeated=lambda v: all_of(obligations(v)))
