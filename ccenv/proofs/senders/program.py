"""Belief programs as formulas and as exact steps, from the same JSON that the engine interprets ([CCmatic] Listing 1, App. C).

The rate in (t-1, t] is decided on the beliefs at sample t-1. Units: C = Rm = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.agents.programs import Branch, Expression, Leaf, Program, Rule, interval
from ccenv.base.errors import ProgramError
from ccenv.proofs.formulas.encode import Needs, Variables
from ccenv.proofs.formulas.setting import LARGEST_ALPHA, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import DecideStep, Decision, Run, number, require_law
from ccenv.proofs.senders.window import require_oracle
from ccenv.proofs.solver.terms import Formula, Term, any_of, choose, larger, same_truth

TIME_INPUTS = frozenset({"qdel_L", "qdel_U", "Rm"})


@dataclass(frozen=True)
class ProgramSmtSender:
    """A belief program as a sender for the solver; of a shield the solver chooses each rate inside the interval."""

    program: Program

    @property
    def name(self) -> str:
        return self.program.name

    def needs(self, setting: Setting) -> Needs:
        require_oracle(setting, self.name)
        inputs = self.program.inputs()
        bounds: set[str] = {name for name in ("C_L", "C_U", "C_L_lambda") if name in inputs}
        if inputs & {"q_U", "q_U/Rm"}:
            bounds.add("q_U")
        if not setting.plain_grid and "loss" in inputs:
            raise ProgramError(f"{self.name!r} reads losses of an interval, which other grids do not encode")
        delays = delay_thresholds(self.program, setting.jitter_steps, setting.steps_per_rtt)
        return Needs(frozenset(bounds), frozenset(delays), self.program.probe_window_rtts * setting.steps_per_rtt)

    def declare(self, view: View, make: Variables) -> None:
        """Declare the rate, the rest of a held decision, and whether the link was used before the trace."""
        n = view.setting.samples
        view.rate = make.series("rate", n)
        view.sent = [None, *(view.rate[1:] if view.setting.steps_per_rtt == 1 else make.series("sent", n)[1:])]
        if longest_hold(self.program) > 1:
            view.extra["held"] = make.series("held", n)
        if "utilised" in self.program.inputs() and view.setting.plain_grid and view.setting.jitter_steps:
            view.extra["utilised_before"] = [make.boolean("utilised_before")]

    def sends(self, view: View) -> Iterator[Formula]:
        return sends(view, self.program)

    def largest_rate(self) -> tuple[Fraction, Fraction] | None:
        """Return (a, b): the rate is at most a*C + b*MSS/Rm while the beliefs are consistent, or None."""
        return largest_rate(self.program)

    def decider(self) -> DecideStep:
        """Return the program's exact interpreter."""
        return program_decider(self.program)


def delay_value(name: str, steps: int, jitter_steps: int) -> int:
    """Return qdel_L or qdel_U in steps where the newest byte waited ``steps`` whole steps: [steps, steps + 1).

    qdel_L = max(0, RTT - Rm - D), qdel_U = RTT - Rm (5.1), read outward on the grid.
    """
    return max(0, steps - jitter_steps) if name == "qdel_L" else steps + 1


def time_condition(expression: Expression, jitter_steps: int, steps_per_rtt: int = 1) -> tuple[bool, dict[int, bool]]:
    """Reduce a condition on times to its truth at delay 0 and, for each delay m at which it changes, its truth from m on.

    Delays are whole steps, of which Rm has ``steps_per_rtt``.
    """
    slope = expression.coefficient("qdel_L") + expression.coefficient("qdel_U")
    offset = expression.coefficient("Rm") * steps_per_rtt
    far = jitter_steps + 2 + (int(abs(offset + _spread(expression)) / abs(slope)) + 1 if slope else 0)
    truths = [
        sum(
            (c * (steps_per_rtt if n == "Rm" else delay_value(n, d, jitter_steps)) for n, c in expression.terms),
            start=Fraction(0),
        )
        > 0
        for d in range(far + 1)
    ]
    changes = {m: truths[m] for m in range(1, far + 1) if truths[m] != truths[m - 1]}
    return truths[0], changes


def _spread(expression: Expression) -> Fraction:
    return abs(expression.coefficient("qdel_L")) + abs(expression.coefficient("qdel_U"))


def delay_thresholds(program: Program, jitter_steps: int, steps_per_rtt: int = 1) -> set[int]:
    """Return the delays (in steps) that the program's conditions distinguish."""
    thresholds: set[int] = set()
    for rule in program.rules():
        if isinstance(rule, Branch) and isinstance(rule.condition, Expression) and rule.condition.unit == "s":
            thresholds |= set(time_condition(rule.condition, jitter_steps, steps_per_rtt)[1])
    return thresholds


def longest_hold(program: Program) -> int:
    return max(rule.hold_rtts for rule in program.rules() if isinstance(rule, Leaf))


def sends(v: View, program: Program) -> Iterator[Formula]:
    """Yield the formulas of a program sender: rate by the rule, at least MSS/Rm (line 7), and the bytes of a step.

    It decides once per Rm on the beliefs at the previous sample; a shield's rate lies between its two ends, both raised by
    line 7.
    """
    longest, ends = longest_hold(program), (0, 1) if program.is_shield else (0,)
    held = v.extra.get("held")
    yield v.rate[0] >= v.alpha
    if v.setting.past_steps and "utilised_before" in v.extra:
        yield same_truth(v.extra["utilised_before"][0], v.step_utilised(-1))
    rtt = v.setting.steps_per_rtt
    for t in range(1, v.setting.samples):
        if rtt > 1:
            yield v.sent[t] == v.setting.step * v.rate[t]
        if (t - 1) % rtt:
            yield v.rate[t] == v.rate[t - 1]
            if held is not None:
                yield held[t] == held[t - 1]
            continue
        bounds = [larger(rule_rate(program.rule, v, t - 1, end), v.alpha) for end in ends]
        if held is not None:
            holding = held[t - 1] > 0
            bounds = [choose(holding, v.rate[t - 1], bound) for bound in bounds]
        if len(bounds) == 1:
            yield v.rate[t] == bounds[0]
        else:
            yield v.rate[t] >= bounds[0]
            yield v.rate[t] <= bounds[1]
        if held is not None:
            yield held[t] == choose(holding, held[t - 1] - 1, _hold(program.rule, v, t - 1) - 1)
        if rtt == 1:
            yield v.sent[t] == v.rate[t]
    if held is not None:
        yield any_of(held[0] == steps for steps in range(longest))


def rule_rate(rule: Rule, v: View, t: int, end: int = 0) -> Term:
    """Return the rate that a rule decides on the beliefs at sample t, before line 7: its lower end (0) or its upper end (1)."""
    if isinstance(rule, Leaf):
        return _linear(rule.ends[min(end, len(rule.ends) - 1)], v, t)
    then, otherwise = rule_rate(rule.then, v, t, end), rule_rate(rule.otherwise, v, t, end)
    return choose(_condition(rule.condition, v, t), then, otherwise)


def _hold(rule: Rule, v: View, t: int) -> Term:
    if isinstance(rule, Leaf):
        return rule.hold_rtts
    then, otherwise = _hold(rule.then, v, t), _hold(rule.otherwise, v, t)
    return then if isinstance(then, int) and then == otherwise else choose(_condition(rule.condition, v, t), then, otherwise)


def _condition(condition: Expression | str, v: View, t: int) -> Formula:
    if condition == "loss":
        return v.loss_seen[t]
    if condition == "utilised":
        x = t - v.setting.jitter_steps
        return v.extra["utilised_before"][0] if x < 0 and v.setting.plain_grid else v.step_utilised(x)
    if isinstance(condition, str):
        raise ProgramError(f"condition {condition!r} has no encoding")
    if condition.unit != "s":
        return _linear(condition, v, t) > 0
    truth, changes = time_condition(condition, v.setting.jitter_steps, v.setting.steps_per_rtt)
    formula: Formula = truth
    longest = v.setting.samples
    if v.setting.delay_rule == "artefact" and max(changes, default=0) > longest:
        raise ProgramError(
            f"a condition tells delays of {max(changes)} steps apart; by the published delay rule a trace of T = {longest} shows"
            f" at most {longest}"
        )
    for m, value in sorted(changes.items()):
        formula = choose(v.late[t][m], value, formula)
    return formula


def _linear(expression: Expression, v: View, t: int) -> Term:
    return sum((coefficient * _input(name, v, t) for name, coefficient in expression.terms), start=Fraction(0))


def _input(name: str, v: View, t: int) -> Term:
    if name in ("MSS/Rm", "MSS"):
        return v.alpha
    if name == "rate":
        return v.rate[t]
    series = v.q_U if name in ("q_U", "q_U/Rm") else getattr(v, name, None)
    if series is None:
        raise ProgramError(f"input {name!r} has no encoding")
    return series[t]


def largest_rate(program: Program) -> tuple[Fraction, Fraction] | None:
    """Return (a, b) such that the rate never exceeds a*C + b*MSS/Rm while C_L <= C and C_L_lambda <= C.

    None if a leaf grows with a quantity that C does not bound.
    """
    parts = [_leaf_bound(rule) for rule in program.rules() if isinstance(rule, Leaf)]
    bounded = [part for part in parts if part is not None]
    if len(bounded) < len(parts):
        return None
    # Line 7 sends MSS/Rm at least; that is below a*C wherever a >= 1/5, the largest MSS.
    bdp, mss = max(a for a, _ in bounded), max(Fraction(0), *(b for _, b in bounded))
    return bdp, mss if bdp >= LARGEST_ALPHA else max(mss, Fraction(1))


def _leaf_bound(leaf: Leaf) -> tuple[Fraction, Fraction] | None:
    bdp, mss = Fraction(0), Fraction(0)
    for name, coefficient in leaf.ends[-1].terms:
        if name == "MSS/Rm":
            mss += coefficient
        elif name in ("C_L", "C_L_lambda"):
            bdp += max(coefficient, Fraction(0))
        elif coefficient > 0:
            return None
    return bdp, mss


def program_decider(program: Program) -> DecideStep:
    """Return the step function of a belief program, by the exact reference interpreter.

    The solver chooses a shield's rate, which is checked against the interval of the interpreter.
    """

    def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
        if (t - 1) % run.setting.steps_per_rtt:
            return Decision(run.rate[t - 1], run.rate[t - 1] * run.setting.step, state)
        held = state.get("held", int(number(run.values, "held_0")))
        if held > 0:
            return Decision(run.rate[t - 1], run.rate[t - 1] * run.setting.step, {"held": held - 1})
        lo, hi, hold_rtts = interval(program, program_inputs(run, t - 1))
        rate = number(run.values, f"rate_{t}") if program.is_shield else Fraction(lo)
        require_law(f"rate within [{lo}, {hi}]", t, lo <= rate <= hi, rate)
        return Decision(rate, rate * run.setting.step, {"held": hold_rtts - 1})

    return step


def program_inputs(run: Run, t: int) -> dict[str, Any]:
    """Return the inputs of a program at sample t of a replay, in exact numbers."""
    steps = run.delay(t)
    # Only the delay class of the query is known; its smallest delay decides like every other one.
    inputs: dict[str, Any] = {
        "MSS/Rm": run.alpha,
        "MSS": run.alpha,
        "Rm": Fraction(1),
        "rate": run.rate[t],
        "qdel_L": max(0, steps - run.d) * run.setting.step,
        "qdel_U": (steps + 1) * run.setting.step,
        "loss": run.loss_seen[t],
        "utilised": run.step_utilised(t - run.d),
    }
    for name in ("C_L", "C_U", "C_L_lambda"):
        if name in run.beliefs:
            inputs[name] = run.beliefs[name][t]
    if "q_U" in run.beliefs:
        inputs["q_U"] = inputs["q_U/Rm"] = run.beliefs["q_U"][t]
    return inputs
