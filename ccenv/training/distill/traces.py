"""Fast search for violated lemmas: many short traces on the solver's sample grid, in floating point.

Traces follow the encoding of ``ccenv.proofs`` (CCAC, D = Rm, one sample per Rm, proof timing, deep drop-tail buffer), with any
legal start and moves in [0, 1]. The search proves nothing; accepted programs go to the solver, whose counterexamples return to
the pool as starts and moves. Units: C = Rm = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccenv.agents.programs import INPUT_INDEX, INPUTS, Program
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.program import compile_program, evaluate
from ccenv.proofs.formulas.setting import HISTORY_STEPS, LARGE_BUFFER_RTTS
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.training.distill.claims import ClaimNumbers

SAMPLES = 11
LEMMAS = ("utilisation", "queue stays", "inflight", "no loss", "queue drains", "beliefs converge")
START = ("alpha", "G", "queue", "sent_1", "sent_2", "sent_3", "delay", "C_L", "C_U", "used", "beta")
CLAMP = -1.0  # a move: the largest delivery that leaves C_L unchanged
_ALPHA, _G, _QUEUE, _SENT, _DELAY, _C_L, _C_U, _USED, _BETA = 0, 1, 2, 3, 6, 7, 8, 9, 10
_IN_C_L, _IN_C_U, _IN_MSS, _IN_RM = (INPUT_INDEX[name] for name in ("C_L", "C_U", "MSS/Rm", "Rm"))
_IN_DELAY, _IN_USED, _IN_LOSS, _IN_RATE = (INPUT_INDEX[name] for name in ("qdel_L", "utilised", "loss", "rate"))
_LARGEST_ALPHA = 0.2
_BUFFER = 2.0 * float(LARGE_BUFFER_RTTS)  # 3 C (Rm + D)
_TINY = 1e-9
RATIOS = tuple(float(x) for x in np.arange(1.1, 4.0, 0.1))


@dataclass(frozen=True)
class Traces:
    """Starts and moves of n traces.

    Attributes:
        starts: (n, len(START)): MSS; tokens G(0) with S(0) = 0; E(0) - G(0); the bytes sent in the three steps before, as shares
            of the largest; the delay of the newest byte as a share of its legal range; C_L; C_U; utilised, of the newest judged
            step; the buffer.
        moves: (n, SAMPLES - 1, 2): waste and service as shares of their legal ranges; a negative service is CLAMP.
    """

    starts: np.ndarray
    moves: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, rows: np.ndarray) -> Traces:
        """Return some of the traces."""
        return Traces(self.starts[rows], self.moves[rows])


def join(parts: Sequence[Traces]) -> Traces:
    return Traces(np.concatenate([p.starts for p in parts]), np.concatenate([p.moves for p in parts]))


def random_traces(n: int, seed: int, ratios: Sequence[float] = RATIOS) -> Traces:
    """Draw n traces: plain and structured starts; constant, independent, alternating and C_L-clamping moves.

    A part of the starts has C_U / C_L just below one of ``ratios``, the values that programs test.
    """
    rng = np.random.default_rng(seed)
    starts = np.zeros((n, len(START)))
    starts[:, _ALPHA] = np.where(rng.random(n) < 0.5, 10.0 ** rng.uniform(-4, -2, n), rng.uniform(0.0, 0.999 * _LARGEST_ALPHA, n))
    starts[:, _G] = rng.choice([0.0, 1.0, 0.5], n) * rng.random(n) ** rng.choice([0.0, 1.0], n)
    queue = rng.choice([0.0, 1.0, 2.0], n)
    starts[:, _QUEUE] = np.select(
        [queue == 0, queue == 1], [-starts[:, _G] * rng.random(n), rng.uniform(0, 4, n)], rng.uniform(0, _BUFFER, n)
    )
    starts[:, _SENT : _SENT + HISTORY_STEPS] = rng.choice([0.0, 0.5, 1.0], (n, HISTORY_STEPS)) * rng.random((n, HISTORY_STEPS))
    starts[:, _DELAY] = rng.integers(0, 2, n)
    lower = np.where(rng.random(n) < 0.7, rng.uniform(0.3, 1.0, n), 10.0 ** rng.uniform(-2, 0, n))
    upper = np.where(rng.random(n) < 0.5, 1.0, np.where(rng.random(n) < 0.7, rng.uniform(1, 3, n), rng.uniform(3, 20, n)))
    near = rng.random(n) < 0.4
    ratio = rng.choice(np.asarray(ratios), n) * rng.uniform(0.9, 1.01, n)
    lower = np.where(near, np.minimum(1.0, upper / ratio), lower)
    starts[:, _C_L] = np.clip(lower, starts[:, _ALPHA], 1.0)
    starts[:, _C_U] = np.maximum(upper, 1.0)
    starts[:, _USED] = rng.integers(0, 2, n)
    starts[:, _BETA] = np.where(rng.random(n) < 0.8, _BUFFER, _BUFFER + rng.exponential(2.0, n))
    return Traces(starts, _random_moves(n, rng))


def _random_moves(n: int, rng: np.random.Generator) -> np.ndarray:
    steps = SAMPLES - 1
    moves = np.empty((n, steps, 2))
    for column in range(2):
        pattern = rng.random(n)[:, None]
        constant = np.repeat(rng.choice([0.0, 1.0, 0.5], n)[:, None], steps, axis=1)
        half = rng.integers(1, 4, n)[:, None]
        alternating = (((np.arange(steps)[None] + rng.integers(0, 6, n)[:, None]) // half) % 2).astype(float)
        coin = rng.integers(0, 2, (n, steps)).astype(float)
        moves[:, :, column] = np.select(
            [pattern < 0.35, pattern < 0.55, pattern < 0.8], [constant, alternating, coin], rng.random((n, steps))
        )
    clamped = rng.random(n) < 0.5
    moves[clamped, :, 1] = np.where(rng.random((int(clamped.sum()), steps)) < 0.85, CLAMP, moves[clamped, :, 1])
    return moves


def neighbours(traces: Traces, n: int, seed: int) -> Traces:
    """Draw n variants of given traces, with a few numbers of each changed."""
    rng = np.random.default_rng(seed)
    base = traces.part(rng.integers(0, len(traces), n))
    starts, moves = base.starts.copy(), base.moves.copy()
    fresh = random_traces(n, int(rng.integers(2**31)))
    swap = rng.random(starts.shape) < 0.1
    starts[swap] = fresh.starts[swap]
    scale = np.where(rng.random((n, 1)) < 0.5, 0.02, 0.0) * rng.standard_normal(starts.shape)
    columns = [_G, _QUEUE, _C_L, _C_U]
    starts[:, columns] *= 1 + scale[:, columns]
    swap = rng.random(moves.shape) < 0.1
    moves[swap] = fresh.moves[swap]
    starts[:, _G] = np.clip(starts[:, _G], 0.0, 1.0)
    starts[:, _QUEUE] = np.clip(starts[:, _QUEUE], -starts[:, _G], starts[:, _BETA])
    starts[:, _C_L] = np.clip(starts[:, _C_L], starts[:, _ALPHA], 1.0)
    starts[:, _C_U] = np.maximum(starts[:, _C_U], 1.0)
    return Traces(starts, moves)


def violations(program: Program, traces: Traces, numbers: ClaimNumbers) -> np.ndarray:
    """Return the violation of each lemma by each trace, (n, len(LEMMAS)); 0 where the lemma holds."""
    bound = ProgramSmtSender(program).largest_rate()
    largest = (1e3, 0.0) if bound is None else (float(bound[0]), float(bound[1]))
    compiled = compile_program(program)
    limits = np.array([float(x) for x in numbers.as_tuple()])
    broken: np.ndarray = _play(np.array(compiled.nodes), traces.starts, traces.moves, np.array(largest), limits)
    return broken


@kernel(nogil=True)
def _play(nodes, starts, moves, largest, limits):  # type: ignore[no-untyped-def]
    n = starts.shape[0]
    T = moves.shape[1] + 1
    past = 3
    out = np.zeros((n, 6))
    E = np.zeros(T + past)  # E[past + t] is E(t)
    S = np.zeros(T)
    G = np.zeros(T)
    delay = np.zeros(T, np.int64)
    loss_seen = np.zeros(T, np.bool_)
    lost = np.zeros(T)
    inputs = np.zeros(len(INPUTS))
    utilisation, inflight, queue_high, C_L_low, C_U_high, drain, shrink = limits
    for i in range(n):
        s = starts[i]
        alpha, beta, lower, upper = s[_ALPHA], s[_BETA], s[_C_L], s[_C_U]
        G[0], S[0], lost[0], loss_seen[0] = s[_G], 0.0, 0.0, False
        E[past] = max(0.0, min(s[_G] + s[_QUEUE], s[_G] + beta))
        for k in range(past):
            E[past - 1 - k] = E[past - k] - s[_SENT + k] * (largest[0] + largest[1] * alpha)
        low, high = 0, 0
        for m in range(1, past + 1):
            if E[past - m] >= 0.0:
                high = m
            if m < past and E[past - 1] > 0.0 and E[past - 1 - m] >= 0.0:
                low = m
        delay[0] = min(high, low + int(s[_DELAY] * (high - low) + 0.5)) if high > low else high
        used = s[_USED] > 0.5
        first_lower, first_upper, first_queue = lower, upper, E[past] - G[0]
        most_inflight, lost_sum = 0.0, 0.0
        for t in range(1, T):
            inputs[_IN_C_L], inputs[_IN_C_U], inputs[_IN_MSS], inputs[_IN_RM] = lower, upper, alpha, 1.0
            inputs[_IN_DELAY] = max(0.0, delay[t - 1] - 1.0)
            inputs[_IN_USED] = 1.0 if used else 0.0
            inputs[_IN_LOSS] = 1.0 if loss_seen[t - 1] else 0.0
            rate, _ = evaluate(nodes, 0, inputs)
            inputs[_IN_RATE] = rate
            arrived = E[past + t - 1] + rate
            # Tokens for which the sender had no bytes expire retroactively: S(t) >= G(t-1) must stay possible.
            G[t - 1] = max(min(G[t - 1], arrived), S[t - 1])
            spare = min(1.0, max(0.0, G[t - 1] + 1.0 - arrived))
            G[t] = G[t - 1] + 1.0 - min(1.0, max(0.0, moves[i, t - 1, 0])) * spare
            E[past + t] = min(arrived, G[t] + beta)
            lost[t] = arrived - E[past + t]
            lost_sum += lost[t]
            lo, hi = max(S[t - 1], G[t - 1]), min(G[t], E[past + t])
            move = moves[i, t - 1, 1]
            if move < 0.0:
                cap = hi
                for x in range(t):
                    cap = min(cap, S[x] + lower * (t - x + 1))
                S[t] = max(lo, cap)
            else:
                S[t] = lo + move * (hi - lo)
            if S[t] > S[t - 1] + _TINY:
                m = 0
                while m < t + past and S[t] <= E[past + t - m - 1] + _TINY:
                    m += 1
                delay[t] = m
            else:
                delay[t] = delay[t - 1]
            loss_seen[t] = lost[t - 1] > _TINY
            used = E[past + t - 1] > S[t] + _TINY or lost[t - 1] > _TINY
            best = lower
            for x in range(t):
                best = max(best, (S[t] - S[x]) / (t - x + 1))
            lower = best
            x = t
            while x > 0 and (delay[x] >= 2 or loss_seen[x]):
                x -= 1
                if t - x > 1:
                    upper = min(upper, (S[t] - S[x]) / (t - x - 1))
            most_inflight = max(most_inflight, E[past + t] - S[t])
        last_queue = E[past + T - 1] - G[T - 1]
        share = S[T - 1] / (T - 2)
        too_much = max(0.0, most_inflight - 2.0 * inflight)
        if first_lower >= C_L_low - _TINY and first_upper <= C_U_high + _TINY:
            if first_queue <= 2.0 * queue_high + _TINY:
                out[i, 0] = max(0.0, utilisation - share)
                out[i, 1] = max(0.0, last_queue - 2.0 * queue_high)
                out[i, 2] = too_much
                out[i, 3] = lost_sum
            else:
                out[i, 4] = max(0.0, min(last_queue - 2.0 * queue_high, last_queue - first_queue + drain))
        else:
            apart = max(C_L_low - lower, upper - C_U_high)
            still = min(shrink * first_lower - lower, upper * shrink - first_upper)
            out[i, 5] = max(0.0, min(apart, still, max(utilisation - share, too_much)))
        for k in range(6):
            if out[i, k] < 1e-7:
                out[i, k] = 0.0
    return out


def from_view(view: View, program: Program) -> Traces:
    """Return a solver's counterexample as a start and moves, which are shares of their legal ranges and so fit other programs."""
    bound = ProgramSmtSender(program).largest_rate()
    alpha = float(view.alpha)
    largest = 1.0 if bound is None else float(bound[0]) + float(bound[1]) * alpha
    E, S, G = ([float(x) for x in series] for series in (view.E, view.S, view.G))
    past = [E[0], *(float(x) for x in view.E_before)]
    sent = [past[k] - past[k + 1] if k + 1 < len(past) else 0.0 for k in range(HISTORY_STEPS)]
    start = np.zeros((1, len(START)))
    start[0, :_DELAY] = [alpha, G[0], E[0] - G[0], *(x / largest for x in sent)]
    start[0, _DELAY] = 1.0 if any(flag is True for m, flag in view.late[0].items() if m >= 2) else 0.0
    start[0, _C_L] = 1.0 if view.C_L is None else float(view.C_L[0])
    start[0, _C_U] = 1.0 if view.C_U is None else float(view.C_U[0])
    before = view.extra.get("utilised_before")
    start[0, _USED] = 1.0 if before is None or before[0] is True else 0.0
    start[0, _BETA] = _BUFFER if view.beta is None else float(view.beta)
    moves = np.ones((1, SAMPLES - 1, 2))
    for t in range(1, len(G)):
        spare = min(1.0, max(0.0, G[t - 1] + 1.0 - E[t] - float(view.lost[t])))
        moves[0, t - 1, 0] = _share(G[t - 1] + 1.0 - G[t], 0.0, spare)
        moves[0, t - 1, 1] = _share(S[t], max(S[t - 1], G[t - 1]), min(G[t], E[t]))
    return Traces(start, moves)


def _share(value: float, low: float, high: float) -> float:
    return 1.0 if high <= low else float(min(1.0, max(0.0, (value - low) / (high - low))))
