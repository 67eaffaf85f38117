"""The curve engine's step in plain Python: whole history in lists, no rings, no offsets. Slow; the kernel is tested against it.

Numbers may be floats or ``fractions.Fraction``: with fractions, recorded moves and programs a run is exact.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ccenv.agents.callbacks import MOVE, VIEW
from ccenv.agents.sender import Sender
from ccenv.engine.compiled.beliefs import TIE, BeliefSettings
from ccenv.network.adversary import Adversary, RecordedAdversary, ScriptedAdversary
from ccenv.network.path import Path, get_model, make_grid
from oracles.curve_flow import CRUMB_TIES, ReferenceFlow, new_record

DEFAULT_BELIEFS = BeliefSettings()


class ReferenceCurveEngine:
    """One environment of the curve engine, step by step as in docs/engine.md.

    Args are those of ``CurveEngine`` for a single path.
    """

    def __init__(
        self,
        path: Path,
        *,
        model: str,
        senders: Sequence[Sender],
        adversary: Adversary,
        steps_per_rtt: int = 8,
        seed: int = 0,
        env: int = 0,
        timing: str = "engine",
        loss_detection: str = "acks",
        settings: BeliefSettings = DEFAULT_BELIEFS,
        initial_C_L_Bps: Any = 0.0,
        receive_window_bytes: Any = math.inf,
        rto_min_s: float = 0.2,
        dt_s: Any = None,
    ) -> None:
        self.path, self.model, self.adversary = path, get_model(model), adversary
        self.dt_s = make_grid(path, steps_per_rtt).dt_s if dt_s is None else dt_s
        self.steps_per_rtt, self.seed, self.env = steps_per_rtt, seed, env
        self.early_feedback = 1 if timing == "smt" else 0
        self.oracle = loss_detection == "oracle"
        self.settings, self.initial_C_L_Bps, self.rto_min_s = settings, initial_C_L_Bps, rto_min_s
        self.k = 0
        self.G: list[Any] = [0]
        self.totals: list[Any] = [0]  # E of all flows together
        self.C: list[Any] = []
        self.red_average: Any = 0
        self.flows = [ReferenceFlow(i, f, s, self) for i, (f, s) in enumerate(zip(path.flows, senders, strict=True))]
        for flow in self.flows:
            flow.receive_window = receive_window_bytes
        self.D = self.flows[0].jitter
        self.adversary_states: list[Any] = []

    def moves(self, k: int) -> tuple[Any, Any, list[Any], list[Any]]:
        """Return waste, rate, service per flow and loss per flow for step k, each in [0, 1]."""
        N = len(self.flows)
        player = self.adversary
        if isinstance(player, RecordedAdversary):
            row = player.moves[(k - 1) % len(player.moves) if player.periodic else min(k - 1, len(player.moves) - 1)]
            values = [min(1, max(0, v)) for v in row]
            return values[0], values[1], values[2 : 2 + N], values[2 + N :]
        if not isinstance(player, ScriptedAdversary):
            return 1, 1, [1] * N, [1] * N
        view = new_record(VIEW)
        E, G = self._enqueued(k - 1), self.G[k - 1]
        served = sum(f.S[k - 1] for f in self.flows)
        view.now_s, view.step, view.dt_s, view.steps_per_rtt = (k - 1) * self.dt_s, k - 1, self.dt_s, self.steps_per_rtt
        view.n_flows, view.buffer_bytes, view.mss_bytes = N, self.path.buffer_bytes, self.path.mss_bytes
        view.seed, view.env, view.link_rate_Bps = self.seed, self.env, self.C[-1] if self.C else self.path.link_rate_Bps
        view.queue_bytes, view.spare_token_bytes = max(0.0, E - G), max(0.0, G - E)
        moves = []
        for i, f in enumerate(self.flows):
            view.flow, view.rtt_s, view.jitter_s = i, f.rtt * self.dt_s, f.jitter * self.dt_s
            view.held_bytes = min(G, E) - served if self._hoards else f.P[k - 1] - f.S[k - 1]
            if k == 1:
                state = new_record(player.state)
                for name, value in player.parameters.items():
                    state[name] = value
                player.init(state, view)
                self.adversary_states.append(state)
            move = new_record(MOVE)
            player.play(self.adversary_states[i], view, move)
            moves.append([min(1.0, max(0.0, float(x))) for x in (move.waste, move.rate, move.service, move.loss)])
        return moves[0][0], moves[0][1], [m[2] for m in moves], [m[3] for m in moves]

    @property
    def _hoards(self) -> bool:
        return self.model.hoards_tokens and self.D > 0

    def _enqueued(self, k: int) -> Any:
        return sum(f.E[k] for f in self.flows)

    def _link_rate(self, k: int, rate_move: Any) -> Any:
        path = self.path
        if self.model.varies_rate:
            low, high = path.link_rate_min_Bps or path.link_rate_Bps, path.link_rate_max_Bps or path.link_rate_Bps
            return low + rate_move * (high - low)
        rate = path.link_rate_Bps
        for change in path.rate_changes:
            if max(1, math.ceil(change.time_s / self.dt_s - 1e-9)) < k:
                rate = change.link_rate_Bps
        return rate

    def _early_drop(self) -> Any:
        red = self.path.red
        if red is None:
            return 0
        queue = max(0, self._enqueued(self.k) - self.G[self.k])
        self.red_average += red.weight * (queue - self.red_average)
        if self.red_average > red.max_bytes:
            return 1
        if self.red_average > red.min_bytes:
            return red.max_probability * ((self.red_average - red.min_bytes) / (red.max_bytes - red.min_bytes))
        return 0

    def step(self) -> None:
        k = self.k + 1
        waste, rate_move, service, loss_moves = self.moves(k)
        C = self._link_rate(k, rate_move)
        self.C.append(C)
        kept = self._send(k, loss_moves, self._early_drop())
        X = self._enqueued(k - 1) + sum(kept)
        G = self._tokens(k, X, C, waste)
        overflow = min(X - G - self.path.buffer_bytes, sum(kept))
        if overflow <= (0 if isinstance(self.dt_s, Fraction) else TIE * X):
            overflow = 0
        for f, b in zip(self.flows, kept, strict=True):
            share = overflow * (b / sum(kept)) if overflow > 0 else 0
            f.E.append(f.E[-1] + b - share)
            f.L[-1] = f.L[-1] + share
        self.totals.append(self._enqueued(k))
        self._serve(k, G, service)
        self.k = k
        exact = isinstance(self.dt_s, Fraction)
        for f in self.flows:
            if k > f.start:
                f.beliefs.tie_bytes = 0 if exact else TIE * self._enqueued(k)
                f.feedback(k)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def _send(self, k: int, loss_moves: list[Any], early_drop: Any) -> list[Any]:
        kept = []
        for i, f in enumerate(self.flows):
            if k == f.start + 1:
                f.begin()
            room = min(f.cwnd, f.receive_window) - (f.A[-1] - f.acked - f.found_lost)
            if room <= (0 if isinstance(self.dt_s, Fraction) else CRUMB_TIES * TIE * self.totals[k - 1]):
                room = 0
            sent = min(f.rate * self.dt_s, room, f.offered(k))
            f.A.append(f.A[-1] + sent)
            free = 0
            if f.path.loss_budget > 0:
                free = loss_moves[i] * min(sent, max(0, f.path.loss_budget * f.A[-1] - f.free[-1]))
                free = free if free > (0 if isinstance(self.dt_s, Fraction) else TIE * f.A[-1]) else 0
            f.free.append(f.free[-1] + free)
            dropped = early_drop * (sent - free)
            f.L.append(f.L[-1] + free + dropped)
            kept.append(sent - free - dropped)
        return kept

    def _tokens(self, k: int, X: Any, C: Any, waste: Any) -> Any:
        D = self.D
        if self._hoards and k > D:
            late = self.G[k - D] - X
            if late > 0:  # not used within D: wasted at k - D
                self.G[k - D] = X
                for j in range(k - D + 1, k):
                    self.G[j] = max(X, self.G[j] - late)
        G = self.G[k - 1] + C * self.dt_s
        if G > X:
            G = max(X, G - waste * (G - X)) if self._hoards and waste < 1 else X
            for j in range(max(k - D, 0), k):
                self.G[j] = min(self.G[j], G)
        self.G.append(G)
        return G

    def _serve(self, k: int, G: Any, service: list[Any]) -> None:
        E = self._enqueued(k)
        if self._hoards:
            total = sum(f.S[k - 1] for f in self.flows)
            low = max(total, self.G[k - self.D]) if k > self.D else total
            high = min(G, E)
            total = high if service[0] >= 1 else max(low, min(high, low + service[0] * (high - low)))
            for f, left in zip(self.flows, self._fifo(k, total), strict=True):
                f.P.append(left)
                f.S.append(left)
            return
        for f, left, u in zip(self.flows, self._fifo(k, min(G, E)), service, strict=True):
            f.P.append(left)
            low = max(f.S[k - 1], f.P[k - f.jitter]) if k > f.jitter else f.S[k - 1]
            f.S.append(left if u >= 1 else max(low, min(left, low + u * (left - low))))

    def _fifo(self, k: int, departed: Any) -> list[Any]:
        """Return E_i(tau) per flow, where the total E reached ``departed`` at tau."""
        if len(self.flows) == 1:
            return [departed]
        totals = self.totals
        t = min(k, bisect_left(totals, departed))
        if t == 0 or totals[t] <= departed:
            return [max(f.E[t], f.P[-1]) for f in self.flows]
        fraction = (departed - totals[t - 1]) / (totals[t] - totals[t - 1])
        return [max(f.E[t - 1] + fraction * (f.E[t] - f.E[t - 1]), f.P[-1]) for f in self.flows]
