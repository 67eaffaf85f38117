"""The network moves of solver traces, and their replay in the curve engine at K = 1 in proof timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ccenv.base.errors import InputError
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import Curves
from ccenv.network.trace import Trace

if TYPE_CHECKING:
    from ccenv.engine.curve.engine import CurveEngine

Decide = Callable[["CurveEngine", int, float], float]
"""(engine, t, origin of the trace in bytes) -> bytes offered in the trace's step t."""

PREFIX_STEPS = 2
"""Steps that build the trace's initial state from an empty path."""

SMALLEST_RATE_Bps = 1e-300  # an external rate must be positive; this one sends nothing

LONGEST_HISTORY_RTTS = 8000.0  # capacity of the engine's rings; a trace with more in flight cannot be replayed

REPLAY_TOLERANCE = 1e-9
"""Largest difference between engine and solver curves, relative to the largest number of bytes at stake."""


@dataclass(frozen=True)
class Moves:
    """The moves of network and sender, step by step, that run a solver trace from an empty path."""

    # (prefix + rows - 1, 2 + 2 N): u_w, rate (unused), u_s (of flow 0), and free loss per flow, each in [0, 1]
    network: np.ndarray
    rates_Bps: np.ndarray  # (prefix + rows - 1, N) sending rates
    offset_bytes: np.ndarray  # (N,) by which the engine's curves exceed the trace's (whose S is 0 at row 0)
    prefix_steps: int  # steps that build the state of row 0; none for a trace that starts empty


def moves_of(trace: Trace) -> Moves:
    """Return the moves that reproduce a trace of ``ideal``, ``cbr_delay`` or ``ccac`` with K = 1.

    Two steps of prefix reach the initial state: one full step delivered at once, then a step that leaves the trace's queue (or
    tokens in stock) and its undelivered bytes; several flows send them in the proportion of their backlogs at row 0. From there
    u_w is the share of the spare tokens wasted, u_s the position of S in its legal band, and a free loss its share of what may be
    lost. A trace that starts empty needs no prefix. Raises InputError for a trace on another grid or of another model.
    """
    header, n = trace.header, trace.n_flows
    models = ("ideal", "cbr_delay", "ccac")
    if header.steps_per_rtt != 1 or header.model not in models:
        raise InputError(f"moves need a trace with one step per Rm on {' or '.join(models)}")
    step_bytes = header.path.link_rate_Bps * header.dt_s
    E, S, G = trace.E.sum(axis=1), trace.S.sum(axis=1), trace.G
    mix = trace.E[0] / E[0] if E[0] > 0 else np.full(n, 1 / n)
    sent, free = np.diff(trace.A, axis=0), np.diff(trace.L_free, axis=0)
    jitter = trace.grid.jitter_steps[0]
    # Of each delay element (CCAC has one): bytes delivered, bytes due D later, bytes received.
    curves = [(S, G, np.minimum(G, E))]
    if header.model != "ccac" and n > 1:
        departed = np.where(G[:, None] <= E[0], np.outer(G, mix), Curves(trace, 0.0).departed[1])
        curves = list(zip(trace.S.T, departed.T, departed.T, strict=True))
    # A backlog that was never served needs more than one full step; the second prefix step may send any amount.
    prefix = 0 if header.history == "empty" else PREFIX_STEPS
    offset = 2 * step_bytes - G[0] if prefix else 0.0
    prefix_sent = [step_bytes, E[0] + offset - step_bytes]
    if prefix and prefix_sent[1] < 0:
        raise InputError("the trace starts with more than one step of tokens in stock")
    network = np.zeros((prefix + len(G) - 1, 2 + 2 * n))
    if prefix:
        network[0, 2 : 2 + n] = 1.0
        network[1, 2 : 2 + n] = _find_share(S[0] + offset, step_bytes, min(G[0], E[0]) + offset)
    for t in range(1, len(G)):
        row = network[prefix + t - 1]
        spare = max(0.0, G[t - 1] + step_bytes - (E[t - 1] + sent[t - 1].sum() - free[t - 1].sum()))
        row[0] = _find_share(G[t - 1] + step_bytes - G[t], 0.0, spare)
        for i, (mine, due, left) in enumerate(curves):
            low = max(mine[t - 1], due[t - jitter]) if 0 < jitter <= t else mine[t - 1]
            row[2 + i] = _find_share(mine[t], low, left[t])
        for i in np.flatnonzero(free[t - 1] > 0).tolist():
            budget = header.path.flows[i].loss_budget * (trace.A[t, i] + offset * mix[i]) - trace.L_free[t - 1, i]
            row[2 + n + i] = _find_share(free[t - 1, i], 0.0, min(sent[t - 1, i], budget))
    rates = np.vstack([np.outer(prefix_sent[:prefix], mix), sent]) / header.dt_s
    return Moves(network, np.maximum(rates, SMALLEST_RATE_Bps), offset * mix, prefix)


def as_adversary(trace: Trace, name: str = "solver") -> RecordedAdversary:
    """Return a trace's network moves as an adversary for one flow, repeated period after period, without prefix and past."""
    if trace.n_flows != 1:
        raise InputError(f"moves of a trace with {trace.n_flows} flows cannot play against one sender")
    moves = moves_of(trace)
    return RecordedAdversary(name, moves.network[moves.prefix_steps + trace.start_row :], periodic=True)


def engine_replay(trace: Trace, decide: Decide | None = None) -> tuple[Trace, float]:
    """Run a solver trace in the curve engine: same network moves, K = 1, proof timing.

    ``decide`` chooses the bytes of each step from the engine's deliveries; None offers those of the trace again.

    Returns:
        tuple: the engine's trace cut to the solver's rows and shifted to its origin, and the largest difference of A, L, S and G
        relative to the largest number of bytes at stake.
    """
    from ccenv.agents.sender import ExternalSender
    from ccenv.engine.curve.engine import CurveEngine

    moves = moves_of(trace)
    engine = CurveEngine(
        [trace.header.path],
        model=trace.header.model,
        senders=[ExternalSender("solver")] * trace.n_flows,
        adversary=RecordedAdversary("solver", moves.network),
        steps_per_rtt=1,
        timing="smt",
        loss_detection="oracle",
        history_rtts=_choose_history_rtts(trace),
        record=True,
    )
    begins = moves.prefix_steps + trace.start_row
    for step, rates in enumerate(moves.rates_Bps):
        actions = rates[None]
        if decide is not None and step >= begins:
            offered = decide(engine, step - begins + 1, float(moves.offset_bytes[0] + trace.S[trace.start_row, 0]))
            actions = np.array([[max(offered / trace.header.dt_s, SMALLEST_RATE_Bps)]])
        engine.advance(1, actions=actions)
    run = engine.trace(0)
    cut = _cut_run(run, trace, moves)
    scale = max(1.0, float(np.abs(trace.A).max()), float(np.abs(trace.G).max()))
    difference = max(float(np.abs(getattr(cut, name) - getattr(trace, name)).max()) for name in ("A", "L", "S", "G"))
    return cut, difference / scale


def _choose_history_rtts(trace: Trace) -> float:
    """Return a history long enough that the engine's receive window does not limit the trace's bytes in flight."""
    most = float((trace.A - trace.S).sum(axis=1).max()) / trace.header.path.bdp_bytes
    return min(LONGEST_HISTORY_RTTS, 4 * (most + len(trace.G)) + 64)


def _cut_run(run: Trace, like: Trace, moves: Moves) -> Trace:
    rows, offset = slice(moves.prefix_steps, None), moves.offset_bytes
    header = like.header.model_copy(update={"notes": "replayed in the curve engine", "senders": run.header.senders})
    return Trace(
        header=header,
        A=run.A[rows] - offset,
        L=run.L[rows],
        L_free=run.L_free[rows],
        S=run.S[rows] - offset,
        G=run.G[rows] - offset.sum(),
        link_rate_Bps=run.link_rate_Bps[rows],
        rate_Bps=run.rate_Bps[rows],
        cwnd_bytes=run.cwnd_bytes[rows],
    )


def _find_share(value: float, low: float, high: float) -> float:
    """Return the position of a value between two others, in [0, 1]; 1 where they coincide."""
    if high <= low:
        return 1.0
    return float(min(1.0, max(0.0, (value - low) / (high - low))))
