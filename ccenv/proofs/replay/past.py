"""Exact check of how a solver model begins: sample 0, the known past before it, and what the sender last saw.

Like the rest of the replay it states the laws of [CCmatic] Listing 3 in plain arithmetic and shares no formula with the encoder.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.setting import LARGE_BUFFER_RTTS, LARGEST_ALPHA, SMALL_BUFFER
from ccenv.proofs.replay.run import Run, law


def check_start(run: Run) -> None:
    """Check segment, buffer, sample 0, the past and the beliefs at sample 0.

    Raises:
        ReplayError: naming the law that the solver model breaks, and at which sample.
    """
    law("segment size", 0, 0 < run.alpha < LARGEST_ALPHA, run.alpha)
    if run.beta is not None:
        wanted: dict[Any, bool] = {
            "small": run.beta == SMALL_BUFFER,
            "large": run.beta >= LARGE_BUFFER_RTTS * (1 + run.setting.jitter),
            "arbitrary": run.beta > 0,
        }
        law("buffer size", 0, wanted.get(run.setting.buffer, run.beta == run.setting.buffer), run.beta)
        law("loss at sample 0 needs a full buffer", 0, not run.lost_at_0 or run.E[0] == run.G[0] + run.beta, run.E[0])
    _check_states(run)
    _check_steps(run)
    for one in [run, *(run.flows if run.setting.delays_flows_apart else [])]:
        _check_sending(one)
        if run.setting.delay_rule == "sound":
            _check_delays(one)
    for flow in run.each:
        _check_flow(flow)


def _check_flow(flow: Run) -> None:
    """Check bytes and beliefs of one flow at sample 0."""
    law("S(0) = 0", 0, flow.S[0] == 0, flow.S[0])
    law("S <= A - L", 0, flow.E[0] >= 0, flow.E[0])
    if "C_L" in flow.beliefs:
        lower = flow.beliefs["C_L"][0]
        law("C_L(0) >= MSS/Rm", 0, lower >= flow.alpha, lower)
        if "C_U" in flow.beliefs:
            law("C_L(0) <= C_U(0)", 0, lower <= flow.beliefs["C_U"][0], lower)


def _check_states(run: Run) -> None:
    """Check what one sample alone says, for sample 0 and those of the past."""
    steps = run.setting.past_steps
    E, G, S = [run.E[0], *run.past], [run.G[0], *run.G_past], [run.S[0], *run.S_past]
    for k in range(steps + 1):
        law("S <= G", -k, S[k] <= G[k], S[k])
        law("S <= A - L", -k, S[k] <= E[k], S[k])
        if run.beta is not None:
            law("drop-tail", -k, E[k] <= G[k] + run.beta, E[k])
    law("S >= G - C*D at the first sample", -steps, S[steps] >= G[steps] - run.setting.jitter, S[steps])
    if run.setting.model != "ccac":
        law("an empty queue keeps no tokens", -steps, G[steps] <= E[steps], G[steps])
    if run.setting.past_start == "empty":
        law("nothing was sent before", -steps, all(x == E[steps] for x in [S[steps], G[steps], *E[steps:]]), E[steps])


def _check_steps(run: Run) -> None:
    """Check the network's moves in the steps of the past."""
    E, G, S = [run.E[0], *run.past], [run.G[0], *run.G_past], [run.S[0], *run.S_past]
    steps, whole = run.setting.past_steps, run.setting.step
    for k in range(steps):
        gained = G[k] - G[k + 1]
        law("tokens arrive at most at rate C", -k, 0 <= gained <= whole, gained)
        if run.setting.model == "ccac":
            law("no token is wasted while bytes queue", -k, gained == whole or E[k] <= G[k], gained)
        else:
            law("tokens are wasted exactly when the queue is empty", -k, G[k] == min(G[k + 1] + whole, E[k]), G[k])
        law("delivered bytes stay delivered", -k, S[k] >= S[k + 1], S[k])
        # Further back tokens may have been admitted at full rate.
        admitted = G[k + run.d] if k + run.d <= steps else G[steps] - run.setting.jitter
        law("S(t) >= G(t - D)", -k, S[k] >= admitted, S[k])


def _check_sending(run: Run) -> None:
    """Check that bytes were sent, at most as many as the setting says, and that a step with loss filled the buffer."""
    limit, steps = run.setting.sent_before_at_most, run.setting.past_steps
    curve = [run.E[0], *run.past]
    lossy = [run.lost_in_past(k) for k in run.setting.losses_before]
    for k in range(len(run.past)):
        entered = curve[k] - curve[k + 1]
        law("sending before the trace", -k, entered >= 0, entered)
        if limit is not None and (k < steps or steps == 0):
            most = (limit[0] + limit[1] * run.alpha) * run.setting.step
            law("largest rate before the trace", -k, entered <= most, entered)
            if k < min(steps, len(lossy)):
                law("what was lost was sent too", -k, entered < most or not lossy[k], entered)
    beta = run.beta
    if steps and beta is not None:
        for k in range(1, len(lossy)):
            full = run.past[k - 1] == run.G_past[k - 1] + beta
            law(f"loss at sample {-k} needs a full buffer", -k, full or not lossy[k], run.past[k - 1])


def _check_delays(run: Run) -> None:
    """Check what the sender saw of the delay by sample 0: play it forward from the first known sample."""
    steps = run.setting.past_steps
    E, S = [run.E[0], *run.past], [run.S[0], *run.S_past]
    newest, first = [run.late[0], *run.late_past], [run.first_late[0], *run.first_late_past]
    for m, flag in newest[steps].items():
        known = S[steps] <= E[steps + m] and run.setting.past_start == "any"
        law(f"delay of {m} steps at the first sample", -steps, not flag or known, S[steps])
        if run.setting.sent_before_at_most is not None and not steps:
            waited = S[0] < E[1] and S[0] <= E[1 + m]
            law(f"delay of {m} steps at sample 0 on a known past", 0, flag or not waited, S[0])
    for k in range(steps - 1, -1, -1):
        served = S[k] > S[k + 1]
        for m, flag in newest[k].items():
            seen = S[k] <= E[k + m] if served else newest[k + 1][m]
            law(f"delay of {m} steps, newest byte", -k, flag == seen, Fraction(S[k]))
        for m, flag in first[k].items():
            seen = S[k + 1] < E[k + m] if served else first[k + 1][m]
            law(f"delay of {m} steps, first byte", -k, flag == seen, Fraction(S[k]))
