"""Replay a solver model in exact rational numbers, independently of the encoder.

This module runs senders, queue and belief updates in plain arithmetic from the initial state and the network's moves (G and S;
with several flows also which one a full buffer hits), and checks the initial state, the known past and the moves against the laws
of [CCmatic] Listing 3. It shares no formula with the encoder: a model that is not reproduced number by number is a bug of one of
the two, and is reported as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.proofs.formulas.setting import LARGE_BUFFER_RTTS, LARGEST_ALPHA, SMALL_BUFFER, Setting, TimeoutRule
from ccenv.proofs.formulas.view import View, flow_prefix

Values = Mapping[str, Any]


class ReplayError(CcenvError):
    """A solver model that the exact replayer does not reproduce: encoder and replayer disagree."""


@dataclass(frozen=True)
class Decision:
    """A sender's decision for one step: rate, bytes sent, and its next state."""

    rate: Fraction
    sent: Fraction
    state: dict[str, Any]


DecideStep = Callable[["Run", int, dict[str, Any]], Decision]


class Run:
    """The state of a replay of one flow, or of a path and its flows; lists grow by one entry per sample.

    With several flows ``flows`` has a run per flow, with its bytes, losses, beliefs and decisions, and the link's tokens (on CCAC
    also its delays); E, S, sent and lost of the path are then sums. With one flow ``flows`` is empty.
    """

    def __init__(self, setting: Setting, values: Values, bounds: frozenset[str], flows: int = 1) -> None:
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
        self.mark_above = number(values, "mark_above") if "mark_above" in values else None
        self.marked_past: list[bool] = []
        while f"marked_before_{len(self.marked_past)}" in values:
            self.marked_past.append(bool(values[f"marked_before_{len(self.marked_past)}"]))
        self.marked: list[bool] = []
        self.echoes = [bool(values.get("echo_before", False))]
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
        self.flows = [Run(setting, select_flow_values(values, index), bounds) for index in range(flows)]
        for flow in self.flows:
            flow.G, flow.marked = self.G, self.marked
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
        return self.flows or [self]

    def enqueued(self, t: int) -> Fraction:
        """Return E at a sample, negative ones included."""
        return self.E[t] if t >= 0 else self.past[-t - 1]

    def step_utilised(self, x: int) -> bool:
        """Return whether no token can have been wasted in step x (exact rule), as known at x + D."""
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
        """Return the largest known delay, in whole steps, of the newest byte at a sample."""
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
            mark_above=self.mark_above,
            marked=list(self.marked),
            marked_before=list(self.marked_past),
            echo_before=self.echoes[0],
        )
        for name, series in self.beliefs.items():
            setattr(view, name, series)
        return view


def select_flow_values(values: Values, index: int) -> dict[str, Any]:
    """Return the values of one flow among several, without its prefix, and those of the link."""
    prefix = flow_prefix(index)
    flow_values = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    return dict(values) | flow_values


def require_law(name: str, t: int, holds: bool, value: Any) -> None:
    """Raise ReplayError, with law, sample and value, unless a law holds."""
    if not holds:
        raise ReplayError(f"replay: the solver's trace breaks the law {name!r} at sample {t} (value {value})")


def number(values: Values, name: str) -> Fraction:
    """Return a variable's value, 0 if the solver left it open."""
    return Fraction(values.get(name, 0))


def flags(values: Values, name: str, t: int) -> dict[int, bool]:
    """Return m -> truth of the values name_t_m."""
    prefix = f"{name}_{t}_"
    return {int(key.removeprefix(prefix)): bool(value) for key, value in values.items() if key.startswith(prefix)}


def check_start(run: Run) -> None:
    """Check segment, buffer, sample 0, the past and the beliefs at sample 0. Raises ReplayError with the broken law."""
    require_law("segment size", 0, 0 < run.alpha < LARGEST_ALPHA, run.alpha)
    if run.beta is not None:
        allowed: dict[Any, bool] = {
            "small": run.beta == SMALL_BUFFER,
            "large": run.beta >= LARGE_BUFFER_RTTS * (1 + run.setting.jitter),
            "arbitrary": run.beta > 0,
        }
        require_law("buffer size", 0, allowed.get(run.setting.buffer, run.beta == run.setting.buffer), run.beta)
        require_law("loss at sample 0 needs a full buffer", 0, not run.lost_at_0 or run.E[0] == run.G[0] + run.beta, run.E[0])
    _check_states(run)
    _check_steps(run)
    for part in [run, *(run.flows if run.setting.delays_flows_apart else [])]:
        _check_sending(part)
        if run.setting.delay_rule == "sound":
            _check_delays(part)
    for flow in run.each:
        _check_flow(flow)


def _check_flow(flow: Run) -> None:
    """Check bytes and beliefs of one flow at sample 0."""
    require_law("S(0) = 0", 0, flow.S[0] == 0, flow.S[0])
    require_law("S <= A - L", 0, flow.E[0] >= 0, flow.E[0])
    if "C_L" in flow.beliefs:
        lower = flow.beliefs["C_L"][0]
        require_law("C_L(0) >= MSS/Rm", 0, lower >= flow.alpha, lower)
        if "C_U" in flow.beliefs:
            require_law("C_L(0) <= C_U(0)", 0, lower <= flow.beliefs["C_U"][0], lower)


def _check_states(run: Run) -> None:
    """Check the laws of a single sample, for sample 0 and those of the past."""
    steps = run.setting.past_steps
    E, G, S = [run.E[0], *run.past], [run.G[0], *run.G_past], [run.S[0], *run.S_past]
    for k in range(steps + 1):
        require_law("S <= G", -k, S[k] <= G[k], S[k])
        require_law("S <= A - L", -k, S[k] <= E[k], S[k])
        if run.beta is not None:
            require_law("drop-tail", -k, E[k] <= G[k] + run.beta, E[k])
    require_law("S >= G - C*D at the first sample", -steps, S[steps] >= G[steps] - run.setting.jitter, S[steps])
    if run.setting.model != "ccac":
        require_law("an empty queue keeps no tokens", -steps, G[steps] <= E[steps], G[steps])
    if run.setting.past_start == "empty":
        require_law("nothing was sent before", -steps, all(x == E[steps] for x in [S[steps], G[steps], *E[steps:]]), E[steps])


def _check_steps(run: Run) -> None:
    """Check the network's moves in the steps of the past."""
    E, G, S = [run.E[0], *run.past], [run.G[0], *run.G_past], [run.S[0], *run.S_past]
    steps, step_bytes = run.setting.past_steps, run.setting.step
    for k in range(steps):
        gained = G[k] - G[k + 1]
        require_law("tokens arrive at most at rate C", -k, 0 <= gained <= step_bytes, gained)
        if run.setting.model == "ccac":
            require_law("no token is wasted while bytes queue", -k, gained == step_bytes or E[k] <= G[k], gained)
        else:
            require_law("tokens are wasted exactly when the queue is empty", -k, G[k] == min(G[k + 1] + step_bytes, E[k]), G[k])
        require_law("delivered bytes stay delivered", -k, S[k] >= S[k + 1], S[k])
        # Before the known past, tokens may have been admitted at full rate.
        admitted = G[k + run.d] if k + run.d <= steps else G[steps] - run.setting.jitter
        require_law("S(t) >= G(t - D)", -k, S[k] >= admitted, S[k])


def _check_sending(run: Run) -> None:
    """Check that the bytes sent respect the setting's limit, and that lossy steps filled the buffer."""
    limit, steps = run.setting.sent_before_at_most, run.setting.past_steps
    curve = [run.E[0], *run.past]
    lossy = [run.lost_in_past(k) for k in run.setting.losses_before]
    for k in range(len(run.past)):
        entered = curve[k] - curve[k + 1]
        require_law("sending before the trace", -k, entered >= 0, entered)
        if limit is not None and (k < steps or steps == 0):
            most = (limit[0] + limit[1] * run.alpha) * run.setting.step
            require_law("largest rate before the trace", -k, entered <= most, entered)
            if k < min(steps, len(lossy)):
                require_law("what was lost was sent too", -k, entered < most or not lossy[k], entered)
    beta = run.beta
    if steps and beta is not None:
        for k in range(1, len(lossy)):
            full = run.past[k - 1] == run.G_past[k - 1] + beta
            require_law(f"loss at sample {-k} needs a full buffer", -k, full or not lossy[k], run.past[k - 1])


def _check_delays(run: Run) -> None:
    """Check the sender's observations of the delay up to sample 0, forward from the first known sample."""
    steps = run.setting.past_steps
    E, S = [run.E[0], *run.past], [run.S[0], *run.S_past]
    newest, first = [run.late[0], *run.late_past], [run.first_late[0], *run.first_late_past]
    for m, flag in newest[steps].items():
        possible = S[steps] <= E[steps + m] and run.setting.past_start == "any"
        require_law(f"delay of {m} steps at the first sample", -steps, not flag or possible, S[steps])
        if run.setting.sent_before_at_most is not None and not steps:
            waited = S[0] < E[1] and S[0] <= E[1 + m]
            require_law(f"delay of {m} steps at sample 0 on a known past", 0, flag or not waited, S[0])
    for k in range(steps - 1, -1, -1):
        served = S[k] > S[k + 1]
        for m, flag in newest[k].items():
            seen = S[k] <= E[k + m] if served else newest[k + 1][m]
            require_law(f"delay of {m} steps, newest byte", -k, flag == seen, Fraction(S[k]))
        for m, flag in first[k].items():
            seen = S[k + 1] < E[k + m] if served else first[k + 1][m]
            require_law(f"delay of {m} steps, first byte", -k, flag == seen, Fraction(S[k]))


def replay(
    setting: Setting, values: Values, bounds: frozenset[str], probe_window: int, decide_step: DecideStep, flows: int = 1
) -> View:
    """Run a model forward, check it against the laws, and return the trace in exact numbers.

    Raises ReplayError with the law or variable that disagrees, the sample and the value.
    """
    run = Run(setting, values, bounds, flows)
    check_start(run)
    _check_order(run, 0)
    mark(run, 0)
    states: list[dict[str, Any]] = [{} for _ in run.each]
    for t in range(1, setting.samples):
        states = [advance(flow, t, decide_step, state) for flow, state in zip(run.each, states, strict=True)]
        arrive(run, t)
        _check_moves(run, t)
        _check_order(run, t)
        mark(run, t)
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
    """Append the bytes that enter the queue in step t, and those lost."""
    if run.flows:
        run.sent.append(sum((flow.sent[t] for flow in run.flows), start=Fraction(0)))
    arrivals = run.E[t - 1] + run.sent[t]
    room = arrivals if run.beta is None else run.G[t] + run.beta
    entered = min(arrivals, room)
    run.lost.append(arrivals - entered)
    run.E.append(entered)
    for flow in run.flows:
        # The network chooses which flow a full buffer hits.
        offered = flow.E[t - 1] + flow.sent[t]
        flow.E.append(offered if run.beta is None else number(flow.values, f"E_{t}"))
        flow.lost.append(offered - flow.E[t])
        require_law("no flow loses more than it sent", t, 0 <= flow.lost[t] <= flow.sent[t], flow.lost[t])
    if run.flows:
        require_law("the flows lose what the buffer has no room for", t, sum(flow.E[t] for flow in run.flows) == entered, entered)


def mark(run: Run, t: int) -> None:
    """Append the mark of step t, and whether each flow saw a mark by sample t."""
    if run.mark_above is None:
        return
    run.marked.append(run.E[t] - run.G[t] > run.mark_above)
    for flow in run.each if t else ():
        known = len(flow.marked_past)
        flow.echoes.append(False)
        for x in range(-known, t + 1):
            entered = (flow.enqueued(x - 1) if x > -known else min(flow.S[t - 1], flow.enqueued(x)), flow.enqueued(x))
            overlap = min(entered[1], flow.S[t]) - max(entered[0], flow.S[t - 1])
            flow.echoes[t] |= overlap > 0 and (flow.marked[x] if x >= 0 else flow.marked_past[-x - 1])


def _check_moves(run: Run, t: int) -> None:
    gained = run.G[t] - run.G[t - 1]
    step_bytes = run.setting.step
    require_law("tokens arrive at most at rate C", t, gained <= step_bytes, gained)
    require_law("tokens are not taken back", t, gained >= 0, gained)
    if run.setting.model == "ccac":
        require_law("no token is wasted while bytes queue", t, gained == step_bytes or run.E[t] <= run.G[t], gained)
    else:
        arrivals = run.E[t - 1] + run.sent[t]
        require_law(
            "tokens are wasted exactly when the queue is empty", t, run.G[t] == min(run.G[t - 1] + step_bytes, arrivals), run.G[t]
        )
    require_law("delivered bytes stay delivered", t, run.S[t] >= run.S[t - 1], run.S[t])
    require_law("S <= G", t, run.S[t] <= run.G[t], run.S[t])
    require_law("S <= A - L", t, run.S[t] <= run.E[t], run.S[t])
    admitted = run.G[t - run.d] if t >= run.d else run.G_past[run.d - t - 1]
    require_law("S(t) >= G(t - D)", t, run.S[t] >= admitted, run.S[t])


def _check_order(run: Run, t: int) -> None:
    """Check that each flow receives its own bytes, in FIFO order of samples.

    Where each flow has a delay element, this is the order in which bytes leave the queue; each flow's then wait at most D.
    """
    apart = run.setting.delays_flows_apart
    if apart and run.flows:
        departed = sum((flow.departed[t] for flow in run.flows), start=Fraction(0))
        require_law("what left the queue is the flows'", t, departed == run.G[t], departed)
    for flow in run.flows:
        require_law("delivered bytes stay delivered, per flow", t, t == 0 or flow.S[t] >= flow.S[t - 1], flow.S[t])
        require_law("S <= A - L, per flow", t, flow.S[t] <= flow.E[t], flow.S[t])
        total, flow_total = (run.G[t], flow.departed[t]) if apart else (run.S[t], flow.S[t])
        for x in range(-len(flow.past) if apart else 0, t + 1):
            in_order = flow_total >= flow.enqueued(x) if total > run.enqueued(x) else flow_total <= flow.enqueued(x)
            require_law("first in, first out", t, in_order, flow_total)
        if apart:
            require_law("what left the queue stays out, per flow", t, t == 0 or flow_total >= flow.departed[t - 1], flow_total)
            overdue = t >= run.d and flow.S[t] < flow.departed[t - run.d]
            require_law("a flow's bytes wait at most D after the queue", t, flow.S[t] <= flow_total and not overdue, flow.S[t])


def observe(run: Run, t: int) -> None:
    """Append the senders' observations at sample t: losses and delays, from S, E and the losses so far."""
    for flow in [run, *run.flows]:
        reported_step = t - run.setting.steps_per_rtt
        lost = flow.lost[reported_step] > 0 if reported_step > 0 else flow.lost_in_past(-reported_step)
        flow.loss_seen.append(run.setting.has_loss and lost)
    for part in [run, *(run.flows if run.setting.delays_flows_apart else [])]:
        served = part.S[t] > part.S[t - 1]
        newest, first = {}, {}
        for m in part.late[0]:
            exact = m <= t or run.setting.delay_rule == "sound"
            if not served:
                newest[m] = part.late[t - 1][m]
            else:
                newest[m] = part.S[t] <= part.enqueued(t - m) if exact else flags(run.values, "late", t)[m]
        for m in part.first_late[0]:
            first[m] = part.S[t - 1] < part.enqueued(t - m) if served else part.first_late[t - 1][m]
        part.late.append(newest)
        part.first_late.append(first)


def update_beliefs(run: Run, t: int, probe_window: int) -> None:
    beliefs = run.beliefs
    if run.setting.beliefs.tighter and t > run.d:
        run.extra[f"sent_windows_{t}"] = _compute_sent_windows(run, t)
    if "C_L" in beliefs:
        beliefs["C_L"].append(max([beliefs["C_L"][t - 1], *_list_delivery_rates(run, t)]))
    if "C_U" in beliefs:
        beliefs["C_U"].append(min([beliefs["C_U"][t - 1], *_list_utilised_rates(run, t)]))
    if "C_L_lambda" in beliefs:
        beliefs["C_L_lambda"].append(max([beliefs["C_L_lambda"][t - 1], *_list_sending_rates(run, t, probe_window)]))
    if "q_U" in beliefs:
        unknown = run.lost[t]
        inflight = run.E[t] + unknown - run.S[t]
        drained = max(Fraction(0), beliefs["q_U"][t - 1] + run.sent[t] - beliefs["C_L_lambda"][t] * run.setting.step)
        beliefs["q_U"].append(min(inflight, drained))
    rule = run.setting.beliefs.timeout
    if rule is not None and t == run.setting.samples - 1 and "C_L" in beliefs and "C_U" in beliefs:
        _time_out(run, rule)


def _list_delivery_rates(run: Run, t: int) -> list[Fraction]:
    rates = [(run.S[t] - run.S[s]) / ((t - s + run.d) * run.setting.step) for s in range(t)]
    if run.setting.beliefs.tighter:
        end = t - run.setting.steps_per_rtt
        rates += [(run.E[end] - run.E[a]) / ((end - a) * run.setting.step) for a in range(end) if _step_lost(run, a)]
    return rates


def _list_utilised_rates(run: Run, t: int) -> list[Fraction]:
    rates = []
    for s in range(t - run.d):
        if run.setting.beliefs.upper == "paper":
            used = all(run.late[x][run.d + 1] or (run.loss_seen[x] if run.d else run.lost[x] > 0) for x in range(s + 1, t + 1))
        else:
            used = all(run.step_utilised(x) for x in range(s + 1, t - run.d + 1))
        if used:
            rates.append((run.S[t] - run.S[s]) / ((t - s - run.d) * run.setting.step))
    return rates + _list_sent_rates(run, t) if run.setting.beliefs.tighter else rates


def _compute_sent_windows(run: Run, t: int) -> list[Fraction]:
    """Return V(x) of docs/engine.md: the least over first samples of the largest of its window and of the sent ones after it."""
    end = t - run.d
    of_sent = [(run.S[t] - run.E[y]) / ((end - y) * run.setting.step) for y in range(end)]
    delivered = [(run.S[t] - run.S[y]) / ((end - y) * run.setting.step) for y in range(end)]
    return [min(max([delivered[first], *of_sent[first + 1 : x + 1]]) for first in range(x + 1)) for x in range(end)]


def _list_sent_rates(run: Run, t: int) -> list[Fraction]:
    """Return the upper bounds on C from bytes sent, in windows whose steps were all used."""
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


def _list_sending_rates(run: Run, t: int, window: int) -> list[Fraction]:
    slack = run.d + run.setting.beliefs.lambda_extra_steps
    rates = []
    for end in range(window, t + 1):
        calm = not any(_is_first_late(run, x, slack + 1) or run.loss_seen[x] for x in range(end - window + 1, t + 1))
        if calm and run.E[end] <= run.S[t]:
            rates.append(sum(run.sent[end - window + 1 : end + 1], start=Fraction(0)) / ((window + slack) * run.setting.step))
    return rates


def _is_first_late(run: Run, t: int, steps: int) -> bool:
    stale = run.S[t] == run.S[t - 1]
    return run.first_late[t][steps] and not (stale and run.setting.beliefs.lambda_delay == "seen")


def _time_out(run: Run, rule: TimeoutRule) -> None:
    lower, upper = run.beliefs["C_L"], run.beliefs["C_U"]
    old_lower, old_upper = lower[-1], upper[-1]
    run.extra |= {"C_L_kept": [old_lower], "C_U_kept": [old_upper]}
    tight, empty = old_upper <= rule.close_factor * old_lower, old_upper < old_lower
    lower_moved, upper_moved = old_lower > lower[0], old_upper < upper[0]
    lower_far, upper_far = old_lower > rule.moved_factor * lower[0], old_upper * rule.moved_factor < upper[0]
    if tight and not lower_moved and ((upper_moved and empty) or not upper_far):
        lower[-1] = max(rate for t in range(1, run.setting.samples) for rate in _list_delivery_rates(run, t))
    if tight and not upper_moved and ((lower_moved and empty) or not lower_far):
        upper[-1] = max(lower[-1], rule.rise_factor * upper[-2])


def _compare(run: Run) -> None:
    """Compare the computed series with the solver's values."""
    computed: dict[str, list[Any]] = {"E": run.E, "rate": run.rate, "cwnd": run.cwnd or []}
    for name, series in (computed | run.beliefs).items():
        for t, value in enumerate(series):
            solver_value = run.values.get(f"{name}_{t}", run.values.get(f"{name}_0") if name in run.beliefs else None)
            if solver_value is not None and solver_value != value:
                raise ReplayError(f"replay: {name}({t}) is {value}, the solver said {solver_value}")
    for t, marked in enumerate(run.marked):
        if run.values.get(f"marked_{t}", marked) != marked:
            raise ReplayError(f"replay: marked({t}) is {marked}, the solver said {not marked}")
    for name, series in (("late", run.late), ("first_late", run.first_late)):
        for t, truths in enumerate(series):
            for m, flag in truths.items():
                solver_value = run.values.get(f"{name}_{t}_{m}")
                if solver_value is not None and solver_value != flag:
                    raise ReplayError(f"replay: {name}({t}, {m}) is {flag}, the solver said {solver_value}")
