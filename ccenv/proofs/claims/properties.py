"""Properties over solver terms and exact traces alike ([CCmatic] s.5.2, s.6.1, App. F), and the formula language of lemma sets.

Units: C = Rm = 1. A formula is a condition's name, a list (their conjunction), or one of ``{all: [...]}``, ``{any: [...]}``,
``{not: ...}``, ``{CONDITION: NUMBER}``. A number is a number, a text ``"27/40"``, or the name of one of the set's constants.
State conditions are read at the start of the trace in a premise and at its end in a conclusion; the others hold of the whole
trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.foreign import parse_fraction
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.view import View
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, count, implies, negate

FIRST = 1
"""The sample at which objectives start: the solver chooses sample 0, so the sender's first step ends at sample 1."""

LOSS_SMALL_MSS = Fraction(3)
"""More than 3 MSS lost in a step is a large loss ([CCmatic] s.6.1)."""


@dataclass(frozen=True)
class Property:
    """A claim ``premise => holds`` about a trace.

    Attributes:
        text: the claim in one line.
        needs: bounds and delays that it reads.
        repeated: for a step of a claim about a sender's runs: the claim for a trace that ends in the state of sample ``FIRST``,
            and so can be repeated for ever. A trace that violates the step breaks no such claim, since the solver chooses its
            start. None: the claim is about traces from any start, and each violation breaks it.
        repeats: the premise demands such a return.
    """

    name: str
    text: str
    holds: Callable[[View], Formula]
    needs: Needs = field(default_factory=Needs)
    premise: Callable[[View], Formula] = lambda v: True
    repeated: Callable[[View], Formula] | None = None
    repeats: bool = False

    def violation(self, view: View) -> Formula:
        """Return the formula that a counterexample satisfies besides the encoding."""
        return all_of([self.premise(view), negate(self.holds(view))])


def utilisation(v: View, at_least: Term) -> Formula:
    """S(T-1) - S(0) >= f * C * (T - 1 - D): delivered against what the link could surely deliver, from the settled sample on."""
    first = v.setting.settle_steps
    return v.S[v.last] - v.S[first] >= at_least * (v.last - first - v.setting.jitter_steps)


def used_in_cycle(v: View, at_least: Term) -> Formula:
    """A trace that repeats from sample FIRST on delivers f * C in its time."""
    return v.S[v.last] - v.S[FIRST] >= at_least * (v.last - FIRST)


def inflight(v: View, at_most: Term) -> Formula:
    """Bytes in flight never exceed x * C * (Rm + D)."""
    return all_of(v.inflight(t) <= at_most * (1 + v.setting.jitter_steps) for t in range(FIRST, v.setting.samples))


def queue(v: View, at_most: Term) -> Formula:
    """Bytes waiting for the link never exceed x * C * (Rm + D)."""
    return all_of(v.queue(t) <= at_most * (1 + v.setting.jitter_steps) for t in range(FIRST, v.setting.samples))


def rtt(v: View, at_most_steps: int) -> Formula:
    """The newest byte delivered never waited ``at_most_steps`` whole steps or more beyond Rm (grid reading)."""
    return all_of(negate(v.late[t][at_most_steps]) for t in range(FIRST, v.setting.samples))


def loss_per_step(v: View, at_most_mss: Term = LOSS_SMALL_MSS, plus_bdp: Term = Fraction(0)) -> Formula:
    """No step loses more than x * MSS (plus y * C*Rm)."""
    if not v.setting.has_loss:
        return True
    return all_of(v.lost[t] <= at_most_mss * v.alpha + plus_bdp for t in range(FIRST, v.setting.samples))


def lossy_steps(v: View, at_most: Term) -> Formula:
    """At most so many steps lose bytes."""
    if not v.setting.has_loss:
        return True
    return count([v.lost[t] > 0 for t in range(FIRST, v.setting.samples)]) <= at_most


def loss_amount(v: View, at_most: Term) -> Formula:
    """The trace loses at most x * C*Rm bytes."""
    return True if not v.setting.has_loss else v.lost_until(v.last) <= at_most


def fairness_ratio(first: Term, second: Term, at_most: Term) -> Formula:
    """The second flow gets at most x times the first one's; the flows are identical, so one direction covers both."""
    return second <= at_most * first


def consistent(v: View, t: int) -> Formula:
    """C_L <= C <= C_U, and C_L_lambda and q_U are true bounds, at a sample."""
    parts: list[Formula] = []
    if v.C_L is not None:
        parts.append(v.C_L[t] <= 1)
    if v.C_U is not None:
        parts.append(v.C_U[t] >= 1)
    if v.C_L_lambda is not None:
        parts.append(v.C_L_lambda[t] <= 1)
    if v.q_U is not None:
        parts.append(v.q_U[t] >= v.queue(t))
    return all_of(parts)


def buffer_line(v: View, t: int, window: int) -> Formula:
    """C*T* + beta >= C_L_lambda*(T* + D) at a sample (6.3), with the grid's extra steps."""
    if v.C_L_lambda is None or v.beta is None:
        return True
    slack = v.setting.jitter_steps + v.setting.beliefs.lambda_extra_steps
    return window + v.beta >= v.C_L_lambda[t] * (window + slack)


def beliefs_shrink(v: View) -> Formula:
    """Some bound became tighter over the trace and none looser."""
    better, worse = [], []
    for series, sign in ((v.C_L, 1), (v.C_U, -1), (v.C_L_lambda, 1)):
        if series is not None:
            better.append(sign * (series[v.last] - series[0]) > 0)
            worse.append(sign * (series[v.last] - series[0]) < 0)
    return all_of([any_of(better), negate(any_of(worse))])


def rises(v: View) -> Formula:
    """Rate, bytes in flight or the queue are higher at the end than at the first decision."""
    return any_of(v_last > v_first for v_first, v_last in _progress(v))


def falls(v: View) -> Formula:
    """Rate, bytes in flight or the queue are lower at the end than at the first decision."""
    return any_of(v_last < v_first for v_first, v_last in _progress(v))


def _progress(v: View) -> list[tuple[Term, Term]]:
    return [
        *((flow.rate[FIRST], flow.rate[v.last]) for flow in v.each),
        (v.inflight(FIRST), v.inflight(v.last)),
        (v.queue(FIRST), v.queue(v.last)),
    ]


@dataclass(frozen=True)
class Objectives:
    """Steady-state objectives with the paper's loose constants ([CCmatic] s.6.1)."""

    utilisation: Fraction = Fraction(1, 2)  # smallest fraction of the link used
    inflight: Fraction = Fraction(5)  # largest bytes in flight, in C*(Rm+D)
    # a step that loses more is a large loss; none may occur. None: losses do not matter
    large_loss_mss: Fraction | None = LOSS_SMALL_MSS
    loss_every_steps: int = 2  # at most one lossy step in so many
    no_large_loss_when_probing: bool = False  # also demand no large loss whenever the rate rises (transient objective of G4, G7)

    def met_or_progress(self, v: View) -> Formula:
        """Each objective is met, or excused by progress towards it."""
        parts = [any_of([utilisation(v, self.utilisation), rises(v)]), any_of([inflight(v, self.inflight), falls(v)])]
        return all_of([*parts, any_of([self._small_losses(v), falls(v)])])

    def met_in_cycle(self, v: View) -> Formula:
        """A trace that repeats from sample FIRST on, and so makes no progress, meets each objective."""
        return all_of([used_in_cycle(v, self.utilisation), inflight(v, self.inflight), self._small_losses(v)])

    def _small_losses(self, v: View) -> Formula:
        if self.large_loss_mss is None:
            return True
        return all_of([loss_per_step(v, self.large_loss_mss), lossy_steps(v, -(-v.last // self.loss_every_steps))])

    def transient(self, v: View) -> Formula:
        """No large loss while the rate rises, if demanded."""
        if not self.no_large_loss_when_probing or self.large_loss_mss is None:
            return True
        return implies(v.rate[v.last] > v.rate[FIRST], loss_per_step(v, self.large_loss_mss))


Numbers = Mapping[str, Fraction]
MAX_CASES = 26  # of a premise: each becomes a query, lettered a to z


@dataclass(frozen=True)
class Condition:
    """A named condition."""

    of: Callable[[View, int, Any], Formula]  # (view, sample, number) -> formula; the sample is the start or the end
    bounds: frozenset[str]  # beliefs that it reads
    needs_number: bool
    text: str  # in words, with `{x}` for the number


def _state_condition(name: str, compare: Callable[[Term, Any], Formula], text: str) -> Condition:
    def of(v: View, t: int, x: Any) -> Formula:
        series = getattr(v, name)
        # A premise about a bound that the query does not read is dropped, which makes the claim stronger.
        return True if series is None else compare(series[t], x)

    return Condition(of, frozenset({name}), "{x}" in text, text)


def _queue_state(v: View, t: int, x: Any) -> Formula:
    return v.queue(t) <= x * (1 + v.setting.jitter_steps)


def _change_condition(name: str, compare: Callable[[Term, Term, Any], Formula], text: str) -> Condition:
    def of(v: View, t: int, x: Any) -> Formula:
        series = getattr(v, name)
        return compare(series[0], series[v.last], x)

    return Condition(of, frozenset({name}), "{x}" in text, text)


_NONE: frozenset[str] = frozenset()

CONDITIONS: dict[str, Condition] = {
    "C_L_true": _state_condition("C_L", lambda c, _: c <= 1, "C_L <= C"),
    "C_U_true": _state_condition("C_U", lambda c, _: c >= 1, "C_U >= C"),
    "C_L_lambda_true": _state_condition("C_L_lambda", lambda c, _: c <= 1, "C_L_lambda <= C"),
    "C_L_at_least": _state_condition("C_L", lambda c, x: c >= x, "C_L >= {x} C"),
    "C_U_at_most": _state_condition("C_U", lambda c, x: c <= x, "C_U <= {x} C"),
    "C_L_lambda_at_least": _state_condition("C_L_lambda", lambda c, x: c >= x, "C_L_lambda >= {x} C"),
    "buffer_line": Condition(
        lambda v, t, _: buffer_line(v, t, 1), frozenset({"C_L_lambda"}), False, "C T* + beta >= C_L_lambda (T* + D)"
    ),
    "q_U_true": Condition(
        lambda v, t, _: v.q_U is None or v.q_U[t] >= v.queue(t), frozenset({"q_U"}), False, "q_U bounds the queue"
    ),
    "q_U_at_most": _state_condition("q_U", lambda q, x: q <= x, "q_U <= {x} C Rm"),
    "queue_at_most": Condition(_queue_state, _NONE, True, "queue <= {x} C (Rm+D)"),
    "C_L_falls_by": _change_condition("C_L", lambda a, b, x: b * x < a, "C_L falls by the factor {x}"),
    "C_U_falls_by": _change_condition("C_U", lambda a, b, x: b * x < a, "C_U falls by the factor {x}"),
    "C_L_rises_by": _change_condition("C_L", lambda a, b, x: b > x * a, "C_L rises by the factor {x}"),
    "C_U_rises_by": _change_condition("C_U", lambda a, b, x: b > x * a, "C_U rises by the factor {x}"),
    "C_L_not_higher": _change_condition("C_L", lambda a, b, _: b <= a, "C_L does not rise"),
    "C_U_not_higher": _change_condition("C_U", lambda a, b, _: b <= a, "C_U does not rise"),
    "C_L_not_lower": _change_condition("C_L", lambda a, b, _: b >= a, "C_L does not fall"),
    "C_U_not_lower": _change_condition("C_U", lambda a, b, _: b >= a, "C_U does not fall"),
    "C_L_lambda_not_lower": _change_condition("C_L_lambda", lambda a, b, _: b >= a, "C_L_lambda does not fall"),
    "C_L_lambda_rises_by_mss": Condition(
        lambda v, t, x: v.C_L_lambda[v.last] >= v.C_L_lambda[0] + x * v.alpha,  # type: ignore[index]
        frozenset({"C_L_lambda"}),
        True,
        "C_L_lambda rises by {x} MSS/Rm",
    ),
    "q_U_falls_by": _change_condition("q_U", lambda a, b, x: b < a - x, "q_U falls by {x} C Rm"),
    "C_L_wrong_at_start": Condition(lambda v, t, _: v.C_L[0] > 1, frozenset({"C_L"}), False, "C_L(0) > C"),  # type: ignore[index]
    "C_U_wrong_at_start": Condition(lambda v, t, _: v.C_U[0] < 1, frozenset({"C_U"}), False, "C_U(0) < C"),  # type: ignore[index]
    "inflight_rises_by": Condition(
        lambda v, t, x: v.inflight(v.last) > v.inflight(0) + x * v.C_L[0],  # type: ignore[index]
        frozenset({"C_L"}),
        True,
        "bytes in flight rise by {x} C_L Rm",
    ),
    "queue_falls_by": Condition(lambda v, t, x: v.queue(v.last) < v.queue(0) - x, _NONE, True, "queue falls by {x} C Rm"),
    "utilisation_at_least": Condition(lambda v, t, x: utilisation(v, x), _NONE, True, "utilisation >= {x}"),
    "inflight_at_most": Condition(lambda v, t, x: inflight(v, x), _NONE, True, "inflight <= {x} C (Rm+D)"),
    "queue_always_at_most": Condition(lambda v, t, x: queue(v, x), _NONE, True, "queue always <= {x} C (Rm+D)"),
    "loss_per_step_at_most_mss": Condition(lambda v, t, x: loss_per_step(v, x), _NONE, True, "at most {x} MSS lost per Rm"),
    "loss_per_step_at_most_bdp": Condition(
        lambda v, t, x: loss_per_step(v, Fraction(0), x), _NONE, True, "at most {x} C Rm lost per Rm"
    ),
    "lossy_steps_at_most": Condition(lambda v, t, x: lossy_steps(v, x), _NONE, True, "at most {x} steps with loss"),
    "rate_rises": Condition(lambda v, t, _: v.rate[v.last] > v.rate[FIRST], _NONE, False, "the rate rises"),
    "buffer_at_least": Condition(lambda v, t, x: v.beta is None or v.beta >= x, _NONE, True, "beta >= {x} C Rm"),
    "buffer_above_mss": Condition(lambda v, t, _: v.beta is None or v.beta > v.alpha, _NONE, False, "beta > MSS"),
}


def expand_lists(data: Any) -> Any:
    """Return parsed YAML with each list that stands for a conjunction written as ``all``."""
    if isinstance(data, list):
        return {"all": [expand_lists(part) for part in data]}
    if not isinstance(data, dict):
        return data
    return {
        key: [expand_lists(part) for part in value] if key in ("all", "any") and isinstance(value, list) else expand_lists(value)
        for key, value in data.items()
    }


def compile_formula(data: Any, where: str, numbers: Numbers, states: Mapping[str, Any]) -> Callable[[View, int], Formula]:
    """Turn parsed YAML into a function of (view, sample). Raises InputError for an unknown condition or number, naming where."""
    if isinstance(data, str):
        if data in states:
            return compile_formula(states[data], f"{where}.{data}", numbers, {k: v for k, v in states.items() if k != data})
        condition = _find_condition(data, where, states)
        if condition.needs_number:
            raise InputError(f"{where}: condition {data!r} needs a number")
        return lambda v, t: condition.of(v, t, None)
    if not isinstance(data, dict) or len(data) != 1:
        raise InputError(f"{where}: a formula is a name, or one of all, any, not or CONDITION with its value; got {data!r}")
    ((key, value),) = data.items()
    if key in ("all", "any"):
        if not isinstance(value, list):
            raise InputError(f"{where}: {key} needs a list")
        parts = [compile_formula(part, where, numbers, states) for part in value]
        join = all_of if key == "all" else any_of
        return lambda v, t: join(part(v, t) for part in parts)
    if key == "not":
        inner = compile_formula(value, where, numbers, states)
        return lambda v, t: negate(inner(v, t))
    condition = _find_condition(str(key), where, states)
    number = read_number(value, where, numbers)
    return lambda v, t: condition.of(v, t, number)


def collect_bounds(data: Any, states: Mapping[str, Any]) -> frozenset[str]:
    """Return the beliefs that a formula reads."""
    if isinstance(data, str):
        return collect_bounds(states[data], states) if data in states else CONDITIONS[data].bounds
    ((key, value),) = data.items()
    if key in ("all", "any"):
        return frozenset().union(*(collect_bounds(part, states) for part in value))
    return collect_bounds(value, states) if key == "not" else CONDITIONS[key].bounds


def describe_formula(data: Any, numbers: Numbers, states: Mapping[str, Any]) -> str:
    """Return a formula as text."""
    if isinstance(data, str):
        return data.replace("_", " ") if data in states else CONDITIONS[data].text
    ((key, value),) = data.items()
    if key in ("all", "any"):
        return "(" + (" and " if key == "all" else " or ").join(describe_formula(part, numbers, states) for part in value) + ")"
    if key == "not":
        return "not " + describe_formula(value, numbers, states)
    return CONDITIONS[key].text.format(x=float(read_number(value, key, numbers)))


def split_cases(data: Any, states: Mapping[str, Any]) -> list[Any]:
    """Split a formula into cases whose disjunction it is, one query each: this is easier than one query for all.

    A disjunction, or the negation of a conjunction, gives one case per part; a conjunction the combinations of its parts' cases.
    """
    if isinstance(data, str):
        cases = split_cases(states[data], states) if data in states else []
        return cases if len(cases) > 1 else [data]
    ((key, value),) = data.items()
    if key == "any":
        parts = [case for part in value for case in split_cases(part, states)]
        if len(parts) > MAX_CASES:
            raise InputError(f"a formula has {len(parts)} cases; at most {MAX_CASES} are allowed")
        return parts
    if key == "all":
        combined: list[list[Any]] = [[]]
        for part in value:
            cases = split_cases(part, states)
            if len(combined) * len(cases) > MAX_CASES:
                raise InputError(f"a formula has more than {MAX_CASES} cases: alternatives within one 'all' multiply")
            combined = [[*done, case] for done in combined for case in cases]
        return [{"all": parts} for parts in combined]
    if key == "not":
        inner = states.get(value, value) if isinstance(value, str) else value
        if isinstance(inner, dict) and "all" in inner:
            return [{"not": part} for part in inner["all"]]
    return [data]


def split_conjuncts(data: Any, states: Mapping[str, Any]) -> frozenset[str]:
    """Return the parts whose conjunction is the formula, each as JSON."""
    if isinstance(data, str) and data in states:
        return split_conjuncts(states[data], {k: v for k, v in states.items() if k != data})
    if isinstance(data, dict) and list(data) == ["all"]:
        return frozenset().union(*(split_conjuncts(part, states) for part in data["all"]))
    return frozenset({json.dumps(data, sort_keys=True)})


def collect_names(data: Any) -> set[str]:
    """Return all texts in a formula: conditions, states and constants."""
    if isinstance(data, str):
        return {data}
    if isinstance(data, dict):
        return set().union(*(collect_names(value) for value in data.values()))
    return set().union(*(collect_names(part) for part in data)) if isinstance(data, list) and data else set()


def read_number(value: Any, where: str, numbers: Numbers) -> Fraction:
    """Return the value of a number, its text or a constant's name."""
    if isinstance(value, str) and value in numbers:
        return numbers[value]
    try:
        return parse_fraction(value, where)
    except InputError:
        if not isinstance(value, str):
            raise
        raise InputError(f"{where}: {unknown_name('number or constant', value, numbers)}") from None


def _find_condition(name: str, where: str, states: Mapping[str, Any]) -> Condition:
    if name not in CONDITIONS:
        raise InputError(f"{where}: {unknown_name('condition', name, {*CONDITIONS, *states})}")
    return CONDITIONS[name]
