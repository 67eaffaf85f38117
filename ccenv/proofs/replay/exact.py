"""Replay a solver model in exact rational numbers, independently of the encoder.

The encoder states laws as formulas; this module plays senders, queue and belief updates forward in plain arithmetic from the
initial state and the network's moves (G and S; with several flows also which one a full buffer hits), and checks the moves
against the laws of [CCmatic] Listing 3. A model that the replayer does not reproduce number by number is a bug of one of the two,
and is reported as such.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.setting import Setting, TimeoutRule
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.past import check_start
from ccenv.proofs.replay.run import DecideStep, ReplayError, Run, Values, flags, law, number


def replay(
    setting: Setting, values: Values, bounds: frozenset[str], probe_window: int, decide_step: DecideStep, flows: int = 1
) -> View:
    """Play a model forward and check it against the laws.

    Returns:
        View: the trace in exact numbers.

    Raises:
        ReplayError: naming the law or variable that disagrees, where and by how much.
    """
    run = Run(setting, values, bounds, flows)
    check_start(run)
    _check_order(run, 0)
    states: list[dict[str, Any]] = [{} for _ in run.each]
    for t in range(1, setting.samples):
        states = [advance(flow, t, decide_step, state) for flow, state in zip(run.each, states, strict=True)]
        arrive(run, t)
        _check_moves(run, t)
        _check_order(run, t)
        observe(run, t)
        for flow in run.each:
            update_beliefs(flow, t, probe_window)
    for one in [run, *run.flows]:
        _compare(one)
    return run.view()


def advance(run: Run, t: int, decide_step: DecideStep, state: dict[str, Any]) -> dict[str, Any]:
    """Let the sender decide step t; append rate, bytes and window, and return its state."""
    decision = decide_step(run, t, state)
    run.rate.append(decision.rate)
    run.sent.append(decision.sent)
    if run.cwnd is not None:
        run.cwnd.append(decision.state["cwnd"])
    return decision.state


def arrive(run: Run, t: int) -> None:
    """Append what enters the queue of what was sent in step t, and what is lost."""
    if run.flows:
        run.sent.append(sum((flow.sent[t] for flow in run.flows), start=Fraction(0)))
    wanted = run.E[t - 1] + run.sent[t]
    room = wanted if run.beta is None else run.G[t] + run.beta
    entered = min(wanted, room)
    run.lost.append(wanted - entered)
    run.E.append(entered)
    for flow in run.flows:
        # Which flow a full buffer hits is the network's move.
        offered = flow.E[t - 1] + flow.sent[t]
        flow.E.append(offered if run.beta is None else number(flow.values, f"E_{t}"))
        flow.lost.append(offered - flow.E[t])
        law("no flow loses more than it sent", t, 0 <= flow.lost[t] <= flow.sent[t], flow.lost[t])
    if run.flows:
        law("the flows lose what the buffer has no room for", t, sum(flow.E[t] for flow in run.flows) == entered, entered)


def _check_moves(run: Run, t: int) -> None:
    gained = run.G[t] - run.G[t - 1]
    whole = run.setting.step
    law("tokens arrive at most at rate C", t, gained <= whole, gained)
    law("tokens are not taken back", t, gained >= 0, gained)
    if run.setting.model == "ccac":
        law("no token is wasted while bytes queue", t, gained == whole or run.E[t] <= run.G[t], gained)
    else:
        full = run.E[t - 1] + run.sent[t]
        law("tokens are wasted exactly when the queue is empty", t, run.G[t] == min(run.G[t - 1] + whole, full), run.G[t])
    law("delivered bytes stay delivered", t, run.S[t] >= run.S[t - 1], run.S[t])
    law("S <= G", t, run.S[t] <= run.G[t], run.S[t])
    law("S <= A - L", t, run.S[t] <= run.E[t], run.S[t])
    admitted = run.G[t - run.d] if t >= run.d else run.G_past[run.d - t - 1]
    law("S(t) >= G(t - D)", t, run.S[t] >= admitted, run.S[t])


def _check_order(run: Run, t: int) -> None:
    """Check that each flow of several gets its own bytes, and all of a sample's bytes are served before any later one.

    Where each flow has a delay element, that is the order in which bytes leave the queue; then each flow's wait at most D.
    """
    apart = run.setting.delays_flows_apart
    if apart and run.flows:
        departed = sum((flow.departed[t] for flow in run.flows), start=Fraction(0))
        law("what left the queue is the flows'", t, departed == run.G[t], departed)
    for flow in run.flows:
        law("delivered bytes stay delivered, per flow", t, t == 0 or flow.S[t] >= flow.S[t - 1], flow.S[t])
        law("S <= A - L, per flow", t, flow.S[t] <= flow.E[t], flow.S[t])
        total, own = (run.G[t], flow.departed[t]) if apart else (run.S[t], flow.S[t])
        for x in range(-len(flow.past) if apart else 0, t + 1):
            in_order = own >= flow.enqueued(x) if total > run.enqueued(x) else own <= flow.enqueued(x)
            law("first in, first out", t, in_order, own)
        if apart:
            law("what left the queue stays out, per flow", t, t == 0 or own >= flow.departed[t - 1], own)
            late = t >= run.d and flow.S[t] < flow.departed[t - run.d]
            law("a flow's bytes wait at most D after the queue", t, flow.S[t] <= own and not late, flow.S[t])


def observe(run: Run, t: int) -> None:
    """Append what senders see at sample t: losses and delays, from S, E and the losses of the run so far."""
    for flow in [run, *run.flows]:
        known = t - run.setting.steps_per_rtt
        lost = flow.lost[known] > 0 if known > 0 else flow.lost_in_past(-known)
        flow.loss_seen.append(run.setting.has_loss and lost)
    for one in [run, *(run.flows if run.setting.delays_flows_apart else [])]:
        served = one.S[t] > one.S[t - 1]
        newest, first = {}, {}
        for m in one.late[0]:
            exact = m <= t or run.setting.delay_rule == "sound"
            if not served:
                newest[m] = one.late[t - 1][m]
            else:
                newest[m] = one.S[t] <= one.enqueued(t - m) if exact else flags(run.values, "late", t)[m]
        for m in one.first_late[0]:
            first[m] = one.S[t - 1] < one.enqueued(t - m) if served else one.first_late[t - 1][m]
        one.late.append(newest)
        one.first_late.append(first)


def update_beliefs(run: Run, t: int, probe_window: int) -> None:
    """Append the beliefs at sample t."""
    beliefs = run.beliefs
    if run.setting.beliefs.tighter and t > run.d:
        run.extra[f"sent_windows_{t}"] = _sent_windows(run, t)
    if "C_L" in beliefs:
        beliefs["C_L"].append(max([beliefs["C_L"][t - 1], *_delivery_rates(run, t)]))
    if "C_U" in beliefs:
        beliefs["C_U"].append(min([beliefs["C_U"][t - 1], *_utilised_rates(run, t)]))
    if "C_L_lambda" in beliefs:
        beliefs["C_L_lambda"].append(max([beliefs["C_L_lambda"][t - 1], *_sending_rates(run, t, probe_window)]))
    if "q_U" in beliefs:
        unknown = run.lost[t]
        inflight = run.E[t] + unknown - run.S[t]
        drained = max(Fraction(0), beliefs["q_U"][t - 1] + run.sent[t] - beliefs["C_L_lambda"][t] * run.setting.step)
        beliefs["q_U"].append(min(inflight, drained))
    rule = run.setting.beliefs.timeout
    if rule is not None and t == run.setting.samples - 1 and "C_L" in beliefs and "C_U" in beliefs:
        _time_out(run, rule)


def _delivery_rates(run: Run, t: int) -> list[Fraction]:
    rates = [(run.S[t] - run.S[s]) / ((t - s + run.d) * run.setting.step) for s in range(t)]
    if run.setting.beliefs.tighter:
        end = t - run.setting.steps_per_rtt
        rates += [(run.E[end] - run.E[a]) / ((end - a) * run.setting.step) for a in range(end) if _step_lost(run, a)]
    return rates


def _utilised_rates(run: Run, t: int) -> list[Fraction]:
    rates = []
    for s in range(t - run.d):
        if run.setting.beliefs.upper == "paper":
            used = all(run.late[x][run.d + 1] or _loss_counts(run, x) for x in range(s + 1, t + 1))
        else:
            used = all(run.step_utilised(x) for x in range(s + 1, t - run.d + 1))
        if used:
            rates.append((run.S[t] - run.S[s]) / ((t - s - run.d) * run.setting.step))
    return rates + _rates_of_sent(run, t) if run.setting.beliefs.tighter else rates


def _sent_windows(run: Run, t: int) -> list[Fraction]:
    """Return V(x) of docs/beliefs.md: for each first sample the largest of its window and of what was sent by those after it."""
    end = t - run.d
    of_sent = [(run.S[t] - run.E[y]) / ((end - y) * run.setting.step) for y in range(end)]
    delivered = [(run.S[t] - run.S[y]) / ((end - y) * run.setting.step) for y in range(end)]
    return [min(max([delivered[first], *of_sent[first + 1 : x + 1]]) for first in range(x + 1)) for x in range(end)]


def _rates_of_sent(run: Run, t: int) -> list[Fraction]:
    """Return the bounds on C from above of what was sent, in windows whose steps were all used."""
    end = t - run.d
    windows = run.extra.get(f"sent_windows_{t}", [])
    rates = [windows[x] for x in range(1, end) if all(run.step_utilised(y) for y in range(x + 1, end + 1))]
    newest = t - max(run.d, run.setting.steps_per_rtt)
    for x in range(newest if newest > 0 and _step_lost(run, newest) else 0):
        if all(run.step_utilised(y) for y in range(x + 1, newest + 1)):
            rates.append((run.E[newest] - run.E[x]) / ((newest - x) * run.setting.step))
    return rates


def _step_lost(run: Run, x: int) -> bool:
    return run.setting.has_loss and (run.lost[x] > 0 if x > 0 else run.lost_in_past(-x))


def _loss_counts(run: Run, x: int) -> bool:
    return run.loss_seen[x] if run.d else run.lost[x] > 0


def _sending_rates(run: Run, t: int, window: int) -> list[Fraction]:
    slack = run.d + run.setting.beliefs.lambda_extra_steps
    rates = []
    for end in range(window, t + 1):
        calm = not any(_late_first(run, x, slack + 1) or run.loss_seen[x] for x in range(end - window + 1, t + 1))
        if calm and run.E[end] <= run.S[t]:
            rates.append(sum(run.sent[end - window + 1 : end + 1], start=Fraction(0)) / ((window + slack) * run.setting.step))
    return rates


def _late_first(run: Run, t: int, steps: int) -> bool:
    stale = run.S[t] == run.S[t - 1]
    return run.first_late[t][steps] and not (stale and run.setting.beliefs.lambda_delay == "seen")


def _time_out(run: Run, rule: TimeoutRule) -> None:
    lower, upper = run.beliefs["C_L"], run.beliefs["C_U"]
    kept_lower, kept_upper = lower[-1], upper[-1]
    run.extra |= {"C_L_kept": [kept_lower], "C_U_kept": [kept_upper]}
    tight, empty = kept_upper <= rule.close_factor * kept_lower, kept_upper < kept_lower
    lower_moved, upper_moved = kept_lower > lower[0], kept_upper < upper[0]
    lower_far, upper_far = kept_lower > rule.moved_factor * lower[0], kept_upper * rule.moved_factor < upper[0]
    if tight and not lower_moved and ((upper_moved and empty) or not upper_far):
        lower[-1] = max(rate for t in range(1, run.setting.samples) for rate in _delivery_rates(run, t))
    if tight and not upper_moved and ((lower_moved and empty) or not lower_far):
        upper[-1] = max(lower[-1], rule.rise_factor * upper[-2])


def _compare(run: Run) -> None:
    """Compare what was computed with what the solver said."""
    computed: dict[str, list[Any]] = {"E": run.E, "rate": run.rate, "cwnd": run.cwnd or []}
    for name, series in (computed | run.beliefs).items():
        for t, value in enumerate(series):
            said = run.values.get(f"{name}_{t}", run.values.get(f"{name}_0") if name in run.beliefs else None)
            if said is not None and said != value:
                raise ReplayError(f"replay: {name}({t}) is {value}, the solver said {said}")
    for name, series in (("late", run.late), ("first_late", run.first_late)):
        for t, known in enumerate(series):
            for m, flag in known.items():
                said = run.values.get(f"{name}_{t}_{m}")
                if said is not None and said != flag:
                    raise ReplayError(f"replay: {name}({t}, {m}) is {flag}, the solver said {said}")
