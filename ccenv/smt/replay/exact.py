"""Replay a solver model in exact rational numbers, independently of the encoder.

The encoder states laws as formulas; this module plays the sender, the queue and the belief updates forward in plain arithmetic
from the initial state and the network's moves (G and S), and checks the moves against the laws of [CCmatic] Listing 3. A model
that the replayer does not reproduce number by number is a bug of one of the two, and is reported as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.errors import CcenvError
from ccenv.programs import Program, decide
from ccenv.smt.network.setting import Setting, TimeoutRule
from ccenv.smt.network.view import View

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
    """The state of a replay; lists grow by one entry per sample."""

    def __init__(self, setting: Setting, values: Values, bounds: frozenset[str]) -> None:
        """Start at sample 0 of a solver model."""
        self.setting = setting
        self.d = setting.jitter_steps
        self.values = values
        self.bounds = bounds
        n = setting.samples
        self.alpha = number(values, "alpha")
        self.beta = number(values, "beta") if setting.has_loss else None
        self.G = [number(values, f"G_{t}") for t in range(n)]
        self.S = [number(values, f"S_{t}") for t in range(n)]
        self.past: list[Fraction] = []
        while f"E_before_{len(self.past)}" in values:
            self.past.append(number(values, f"E_before_{len(self.past)}"))
        before = range(setting.past_steps)
        self.G_past = [number(values, f"G_before_{k}") for k in before]
        self.S_past = [number(values, f"S_before_{k}") for k in before]
        self.late_past = [_flags(values, "late_before", k) for k in before]
        self.first_late_past = [_flags(values, "first_late_before", k) for k in before]
        self.E = [number(values, "E_0")]
        self.sent: list[Any] = [None]
        self.lost: list[Any] = [None]
        self.rate = [number(values, "rate_0")]
        self.cwnd = [number(values, "cwnd_0")] if "cwnd_0" in values else None
        self.lost_at_0 = bool(values.get("lost_at_0", False))
        self.loss_seen = [bool(values.get("loss_seen_at_0", False))]
        self.late = [_flags(values, "late", 0)]
        self.first_late = [_flags(values, "first_late", 0)]
        self.kept: dict[str, list[Fraction]] = {}
        self.beliefs = {name: [number(values, f"{name}_0")] for name in sorted(bounds)}

    def enqueued(self, t: int) -> Fraction:
        """Return E at a sample, negative ones included."""
        return self.E[t] if t >= 0 else self.past[-t - 1]


def replay(setting: Setting, values: Values, bounds: frozenset[str], probe_window: int, decide_step: DecideStep) -> View:
    """Play a model forward and check it against the laws.

    Args:
        setting: the network.
        values: the solver model: variable name -> Fraction or bool; missing ones count as 0 or false.
        bounds: belief bounds that the query had.
        probe_window: T* in steps.
        decide_step: the sender.

    Returns:
        View: the trace in exact numbers.

    Raises:
        ReplayError: naming the law or variable that disagrees, where and by how much.
    """
    from ccenv.smt.replay.past import check_start

    run = Run(setting, values, bounds)
    check_start(run)
    state: dict[str, Any] = {}
    for t in range(1, setting.samples):
        state = advance(run, t, decide_step, state)
        _arrive(run, t)
        _check_moves(run, t)
        observe(run, t)
        update_beliefs(run, t, probe_window)
    view = _as_view(run)
    _compare(run, view)
    return view


def advance(run: Run, t: int, decide_step: DecideStep, state: dict[str, Any]) -> dict[str, Any]:
    """Let the sender decide step t; append rate, bytes and window, and return its state."""
    decision = decide_step(run, t, state)
    run.rate.append(decision.rate)
    run.sent.append(decision.sent)
    if run.cwnd is not None:
        run.cwnd.append(decision.state["cwnd"])
    return decision.state


def program_decider(program: Program) -> DecideStep:
    """Return the step function of a belief program, by the exact reference interpreter."""

    def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
        held = state.get("held", int(number(run.values, "held_0")))
        if held > 0:
            return Decision(run.rate[t - 1], run.rate[t - 1], {"held": held - 1})
        chosen = decide(program, _program_inputs(run, t - 1))
        rate = Fraction(chosen.rate)
        return Decision(rate, rate, {"held": chosen.hold_rtts - 1})

    return step


def recorded_decider() -> DecideStep:
    """Return the step function of an arbitrary sender: it sends what the solver chose, at least one MSS per Rm."""

    def step(run: Run, t: int, state: dict[str, Any]) -> Decision:
        rate = number(run.values, f"rate_{t}")
        law("at least one MSS per Rm", t, rate >= run.alpha, rate)
        return Decision(rate, rate, {})

    return step


def _program_inputs(run: Run, t: int) -> dict[str, Any]:
    steps = max([m for m, flag in run.late[t].items() if flag], default=0)
    # Only the delays that the query tells apart are known; the smallest delay of that class decides like every other one.
    inputs: dict[str, Any] = {
        "MSS/Rm": run.alpha,
        "MSS": run.alpha,
        "Rm": Fraction(1),
        "rate": run.rate[t],
        "qdel_L": Fraction(max(0, steps - run.d)),
        "qdel_U": Fraction(steps + 1),
        "loss": run.loss_seen[t],
        "utilised": _step_utilised(run, t - run.d),
    }
    for name in ("C_L", "C_U", "C_L_lambda"):
        if name in run.beliefs:
            inputs[name] = run.beliefs[name][t]
    if "q_U" in run.beliefs:
        inputs["q_U"] = inputs["q_U/Rm"] = run.beliefs["q_U"][t]
    return inputs


def _step_utilised(run: Run, x: int) -> bool:
    if x < 0:
        if run.setting.past_steps:
            return run.enqueued(x) > run.S[x + run.d] or run.loss_seen[0]
        return bool(run.values.get("utilised_before", False))
    lost = run.lost_at_0 if x == 0 else run.lost[x] > 0
    return run.E[x] > run.S[x + run.d] or lost


def _arrive(run: Run, t: int) -> None:
    wanted = run.E[t - 1] + run.sent[t]
    room = wanted if run.beta is None else run.G[t] + run.beta
    entered = min(wanted, room)
    run.lost.append(wanted - entered)
    run.E.append(entered)


def _check_moves(run: Run, t: int) -> None:
    gained = run.G[t] - run.G[t - 1]
    law("tokens arrive at most at rate C", t, gained <= 1, gained)
    law("tokens are not taken back", t, gained >= 0, gained)
    if run.setting.model == "ccac":
        law("no token is wasted while bytes queue", t, gained == 1 or run.E[t] <= run.G[t], gained)
    else:
        full = run.E[t - 1] + run.sent[t]
        law("tokens are wasted exactly when the queue is empty", t, run.G[t] == min(run.G[t - 1] + 1, full), run.G[t])
    law("delivered bytes stay delivered", t, run.S[t] >= run.S[t - 1], run.S[t])
    law("S <= G", t, run.S[t] <= run.G[t], run.S[t])
    law("S <= A - L", t, run.S[t] <= run.E[t], run.S[t])
    law("S(t) >= G(t - D)", t, run.S[t] >= run.G[t - run.d], run.S[t])


def observe(run: Run, t: int) -> None:
    """Append what the sender sees at sample t: losses and delays, from S, E and the losses of the run so far."""
    if run.setting.has_loss:
        run.loss_seen.append(run.lost_at_0 if t == 1 else run.lost[t - 1] > 0)
    else:
        run.loss_seen.append(False)
    served = run.S[t] > run.S[t - 1]
    newest, first = {}, {}
    for m in run.late[0]:
        known = m <= t or run.setting.delay_rule == "sound"
        if not served:
            newest[m] = run.late[t - 1][m]
        else:
            newest[m] = run.S[t] <= run.enqueued(t - m) if known else _flags(run.values, "late", t)[m]
    for m in run.first_late[0]:
        first[m] = run.S[t - 1] < run.enqueued(t - m) if served else run.first_late[t - 1][m]
    run.late.append(newest)
    run.first_late.append(first)


def update_beliefs(run: Run, t: int, probe_window: int) -> None:
    """Append the beliefs at sample t."""
    beliefs = run.beliefs
    if "C_L" in beliefs:
        beliefs["C_L"].append(max([beliefs["C_L"][t - 1], *_delivery_rates(run, t)]))
    if "C_U" in beliefs:
        beliefs["C_U"].append(min([beliefs["C_U"][t - 1], *_utilised_rates(run, t)]))
    if "C_L_lambda" in beliefs:
        beliefs["C_L_lambda"].append(max([beliefs["C_L_lambda"][t - 1], *_sending_rates(run, t, probe_window)]))
    if "q_U" in beliefs:
        unknown = run.lost[t]
        inflight = run.E[t] + unknown - run.S[t]
        drained = max(Fraction(0), beliefs["q_U"][t - 1] + run.sent[t] - beliefs["C_L_lambda"][t])
        beliefs["q_U"].append(min(inflight, drained))
    rule = run.setting.beliefs.timeout
    if rule is not None and t == run.setting.samples - 1 and "C_L" in beliefs and "C_U" in beliefs:
        _time_out(run, rule)


def _delivery_rates(run: Run, t: int) -> list[Fraction]:
    return [(run.S[t] - run.S[s]) / (t - s + run.d) for s in range(t)]


def _utilised_rates(run: Run, t: int) -> list[Fraction]:
    rates = []
    for s in range(t - run.d):
        if run.setting.beliefs.upper == "paper":
            used = all(run.late[x][run.d + 1] or _loss_counts(run, x) for x in range(s + 1, t + 1))
        else:
            used = all(_step_utilised(run, x) for x in range(s + 1, t - run.d + 1))
        if used:
            rates.append((run.S[t] - run.S[s]) / (t - s - run.d))
    return rates


def _loss_counts(run: Run, x: int) -> bool:
    return run.loss_seen[x] if run.d else run.lost[x] > 0


def _sending_rates(run: Run, t: int, window: int) -> list[Fraction]:
    slack = run.d + run.setting.beliefs.lambda_extra_steps
    rates = []
    for end in range(window, t + 1):
        calm = not any(_late_first(run, x, slack + 1) or run.loss_seen[x] for x in range(end - window + 1, t + 1))
        if calm and run.E[end] <= run.S[t]:
            rates.append(sum(run.sent[end - window + 1 : end + 1], start=Fraction(0)) / (window + slack))
    return rates


def _late_first(run: Run, t: int, steps: int) -> bool:
    stale = run.S[t] == run.S[t - 1]
    return run.first_late[t][steps] and not (stale and run.setting.beliefs.lambda_delay == "seen")


def _time_out(run: Run, rule: TimeoutRule) -> None:
    lower, upper = run.beliefs["C_L"], run.beliefs["C_U"]
    kept_lower, kept_upper = lower[-1], upper[-1]
    run.kept = {"C_L_kept": [kept_lower], "C_U_kept": [kept_upper]}
    tight, empty = kept_upper <= rule.close_factor * kept_lower, kept_upper < kept_lower
    lower_moved, upper_moved = kept_lower > lower[0], kept_upper < upper[0]
    lower_far, upper_far = kept_lower > rule.moved_factor * lower[0], kept_upper * rule.moved_factor < upper[0]
    if tight and not lower_moved and ((upper_moved and empty) or not upper_far):
        lower[-1] = max(rate for t in range(1, run.setting.samples) for rate in _delivery_rates(run, t))
    if tight and not upper_moved and ((lower_moved and empty) or not lower_far):
        upper[-1] = max(lower[-1], rule.rise_factor * upper[-2])


def _as_view(run: Run) -> View:
    view = View(
        setting=run.setting,
        alpha=run.alpha,
        beta=run.beta,
        G=run.G,
        E=run.E,
        S=run.S,
        E_before=run.past,
        sent=run.sent,
        lost=run.lost,
        rate=run.rate,
        lost_at_0=run.lost_at_0,
        loss_seen=run.loss_seen,
        late=run.late,
        first_late=run.first_late,
        cwnd=run.cwnd,
        extra=dict(run.kept),
        G_before=run.G_past,
        S_before=run.S_past,
        late_before=run.late_past,
        first_late_before=run.first_late_past,
    )
    for name, series in run.beliefs.items():
        setattr(view, name, series)
    return view


def _compare(run: Run, view: View) -> None:
    """Compare what was computed with what the solver said."""
    for name in ("E", "rate", *(["cwnd"] if run.cwnd is not None else []), *sorted(run.bounds)):
        for t, value in enumerate(getattr(view, name)):
            said = run.values.get(f"{name}_{t}", run.values.get(f"{name}_0") if name in run.bounds else None)
            if said is not None and said != value:
                raise ReplayError(f"replay: {name}({t}) is {value}, the solver said {said}")
    for name, series in (("late", run.late), ("first_late", run.first_late)):
        for t, flags in enumerate(series):
            for m, flag in flags.items():
                said = run.values.get(f"{name}_{t}_{m}")
                if said is not None and said != flag:
                    raise ReplayError(f"replay: {name}({t}, {m}) is {flag}, the solver said {said}")


def law(name: str, t: int, holds: bool, value: Any) -> None:
    """Raise ReplayError unless a law holds at a sample; names it and the value seen."""
    if not holds:
        raise ReplayError(f"replay: the solver's trace breaks the law {name!r} at sample {t} (value {value})")


def number(values: Values, name: str) -> Fraction:
    """Return a variable's value; what the solver left open counts as 0."""
    return Fraction(values.get(name, 0))


def _flags(values: Values, name: str, t: int) -> dict[int, bool]:
    prefix = f"{name}_{t}_"
    return {int(key.removeprefix(prefix)): bool(value) for key, value in values.items() if key.startswith(prefix)}
