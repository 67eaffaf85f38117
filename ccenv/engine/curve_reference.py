"""The curve engine's step in plain Python: whole history in lists, no rings, no offsets. Slow; the kernel is tested against it.

Numbers may be floats or ``fractions.Fraction``: with fractions, recorded moves and programs a run is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.adversary import Adversary, RecordedAdversary, ScriptedAdversary
from ccenv.beliefs import TIE, BeliefSettings, ReferenceBeliefs
from ccenv.engine.signals import ACK, LOSS, MOVE, TICK, VIEW
from ccenv.model import get_model
from ccenv.path import FlowPath, Path, grid_of
from ccenv.programs import decide
from ccenv.sender import ClassicSender, ProgramSender, Sender

LOSS_DETECTION_SEGMENTS = 3
DEFAULT_BELIEFS = BeliefSettings()


def _record(dtype: np.dtype) -> Any:
    return np.zeros(1, dtype).view(np.recarray)[0]


class ReferenceFlow:
    """One flow's history and its sender's state. Lists are indexed by step; entry 0 is the start."""

    def __init__(self, index: int, flow: FlowPath, sender: Sender, engine: ReferenceCurveEngine) -> None:
        self.index, self.path, self.sender, self.engine = index, flow, sender, engine
        self.rtt = round(flow.rtt_s / engine.dt_s)
        self.jitter = round(flow.jitter_s / engine.dt_s) if engine.model.has_jitter else 0
        self.start = math.ceil(flow.start_s / engine.dt_s - 1e-9)
        self.stop = math.inf if math.isinf(flow.stop_s) else math.floor(flow.stop_s / engine.dt_s + 1e-9)
        self.A, self.E, self.L, self.S, self.P, self.free = [0], [0], [0], [0], [0], [0]
        self.cwnd: Any = math.inf
        self.receive_window: Any = math.inf
        self.acked: Any = 0
        self.found_lost: Any = 0
        self.loss_step = self.ack_sent_step = 0
        self.recovery_step = -1
        self.last_ack_step = self.start
        self.round_end: Any = 0
        self.rtt_steps: Any = self.rtt
        self.min_rtt_steps: Any = math.inf
        self.srtt = self.rttvar = 0.0
        self.delay_floor = 0
        self.q_U: Any = 0
        self.lost_since_decision: Any = 0
        self.utilised = False
        self.next_decision = self.start
        program = sender.program if isinstance(sender, ProgramSender) else None
        self.beliefs = ReferenceBeliefs(
            rtt_steps=self.rtt,
            jitter_steps=self.jitter,
            dt_s=engine.dt_s,
            mss_bytes=engine.path.mss_bytes,
            settings=engine.settings,
            probe_window_steps=(program.probe_window_rtts if program else 1) * self.rtt,
            window_steps=engine.settings.window_rtts * self.rtt,
            initial_C_L_Bps=engine.initial_C_L_Bps,
            loss_proves=engine.path.red is None and all(f.loss_budget == 0 for f in engine.path.flows),
            start_step=self.start,
        )
        self.rate = self.beliefs.C_L
        self.state: Any = None

    @property
    def floor_Bps(self) -> Any:
        """One segment per propagation RTT."""
        return self.engine.path.mss_bytes / (self.rtt * self.engine.dt_s)

    @property
    def inflight(self) -> Any:
        """Bytes sent and neither acknowledged nor found lost."""
        return max(0, self.A[-1] - self.acked - self.found_lost)

    def offered(self, k: int) -> Any:
        """Bytes that the application has ready for step k."""
        work, dt = self.path.workload, self.engine.dt_s
        if not self.start < k <= self.stop:
            return 0
        if work.kind == "rate":
            return max(0, work.rate_Bps * (k - self.start) * dt + self.found_lost - self.A[-1])
        if work.kind == "on_off":
            return math.inf if ((k - 1 - self.start + 1e-9) * dt) % (work.on_s + work.off_s) < work.on_s else 0
        if work.kind == "finite":
            return max(0, work.size_bytes + self.found_lost - self.A[-1])
        return math.inf

    def begin(self) -> None:
        """Start the sender."""
        engine = self.engine
        if isinstance(self.sender, ClassicSender):
            self.state = _record(self.sender.state)
            for name, value in self.sender.parameters.items():
                self.state[name] = value
            self.state.mss_bytes, self.state.seed = engine.path.mss_bytes, engine.seed
            self.state.env, self.state.flow = engine.env, self.index
            self.sender.init(self.state)
            self.cwnd, self.rate = float(self.state.cwnd_bytes), float(self.state.pacing_rate_Bps)
            self.next_decision = self.start + self.rtt
        else:
            self.decide(self.start)

    def decide(self, k: int) -> None:
        """Choose the rate for the next interval."""
        hold = 1
        if isinstance(self.sender, ProgramSender):
            b, rtt_s = self.beliefs, self.rtt * self.engine.dt_s
            delay = max(0, self.rtt_steps - self.rtt)
            inputs = {
                "C_L": b.C_L,
                "C_U": b.C_U,
                "C_L_lambda": b.C_L_lambda,
                "MSS/Rm": self.floor_Bps,
                "rate": self.rate,
                "q_U/Rm": self.q_U / rtt_s,
                "qdel_L": max(0, self.delay_floor - self.jitter) * self.engine.dt_s,
                "qdel_U": delay * self.engine.dt_s,
                "Rm": rtt_s,
                "q_U": self.q_U,
                "MSS": self.engine.path.mss_bytes,
                "utilised": self.utilised,
                "loss": self.lost_since_decision > 0,
            }
            self.rate, hold = decide(self.sender.program, inputs)
        self.lost_since_decision = 0
        self.next_decision = k + hold * self.rtt

    def find_losses(self, n: int, k: int) -> tuple[Any, int, bool]:
        """Return newly found lost bytes, the newest step with one, and whether a time-out found them."""
        engine, reach, timeout = self.engine, self.loss_step, False
        if engine.oracle:
            reach = n
        else:
            three = LOSS_DETECTION_SEGMENTS * engine.path.mss_bytes
            while reach < n and (self.ack_sent_step - reach > self.rtt or self.E[reach + 1] + three <= self.acked):
                reach += 1
            outstanding = self.A[-1] - self.acked - self.found_lost
            rto = max(engine.rto_min_s / engine.dt_s, self.srtt + 4 * self.rttvar)
            if outstanding > TIE * self.A[-1] and k - self.last_ack_step > rto and n > reach:
                timeout, reach, self.last_ack_step = True, n, k
        lost, newest = 0, -1
        if reach > self.loss_step:
            lost = self.L[reach] - self.found_lost
            if lost > 0:
                newest = max(x for x in range(self.loss_step, reach + 1) if x == self.loss_step or self.L[x] > self.L[x - 1])
                self.found_lost += lost
            self.loss_step = reach
        return max(lost, 0), newest, timeout

    def feedback(self, k: int) -> None:
        """Take in what is known at step k: acknowledgements, losses, beliefs; then let the sender react."""
        engine = self.engine
        n = k - self.rtt + engine.early_feedback
        newly = lost = 0
        newest_loss, timeout = -1, False
        if n >= 1:
            newly = self.S[n] - self.acked
            if newly <= self.beliefs.tie_bytes:
                newly = 0
            if newly > 0:
                self._acknowledge(n, k)
            lost, newest_loss, timeout = self.find_losses(n, k)
            self.lost_since_decision += lost
            if n > self.start:
                self.beliefs.update(self.E[: n + 1], self.L[: n + 1], self.S[: n + 1])
                x = n - self.jitter
                self.utilised = x > self.start and self.beliefs.is_utilised(self.E, self.L, self.S, x)
        sent = self.A[k] - self.A[k - 1]
        self.q_U = min(max(0, self.q_U + sent - self.beliefs.C_L_lambda * engine.dt_s), self.inflight)
        if isinstance(self.sender, ClassicSender):
            self._react(self.sender, k, n, newly, lost, newest_loss, timeout)
        if k >= self.next_decision:
            self.decide(k)

    def _acknowledge(self, n: int, k: int) -> None:
        served = self.S[n]
        p = next((x for x in range(1, n + 1) if self.E[x] >= served - self.beliefs.tie_bytes), n)
        sent_at: Any = p
        if self.E[p] > served and self.E[p] > self.E[p - 1]:
            sent_at = p - 1 + max(0, (served - self.E[p - 1]) / (self.E[p] - self.E[p - 1]))
        rtt = n - sent_at + self.rtt
        if self.srtt == 0:
            self.srtt, self.rttvar = rtt, rtt / 2
        else:
            self.rttvar += (abs(self.srtt - rtt) - self.rttvar) / 4
            self.srtt += (rtt - self.srtt) / 8
        self.acked, self.last_ack_step, self.ack_sent_step = served, k, p
        self.rtt_steps, self.min_rtt_steps, self.delay_floor = rtt, min(self.min_rtt_steps, rtt), n - p

    def _react(self, sender: ClassicSender, k: int, n: int, newly: Any, lost: Any, newest_loss: int, timeout: bool) -> None:
        engine, mss = self.engine, self.engine.path.mss_bytes
        if newly > 0:
            ack = _record(ACK)
            ack.now_s, ack.acked_bytes, ack.delivered_bytes = k * engine.dt_s, newly, self.acked
            ack.rtt_s, ack.min_rtt_s = self.rtt_steps * engine.dt_s, self.min_rtt_steps * engine.dt_s
            earlier = max(self.ack_sent_step - self.rtt + engine.early_feedback, self.start)
            known = self.S[earlier] if earlier > 0 else 0
            ack.delivery_rate_Bps = (self.acked - known) / (max(1, n - earlier) * engine.dt_s)
            ack.inflight_bytes, ack.mss_bytes = self.inflight, mss
            if self.acked >= self.round_end:
                ack.round_start, self.round_end = 1.0, self.E[k]
            sent = self.A[k] - self.A[k - 1]
            limited = sent < min(self.rate * engine.dt_s, self.cwnd - self.inflight)
            ack.app_limited = float(self.path.workload.kind != "bulk" and limited)
            sender.on_ack(self.state, ack)
        if lost > 0:
            loss = _record(LOSS)
            loss.now_s, loss.lost_bytes, loss.inflight_bytes = k * engine.dt_s, lost, self.inflight
            loss.delivered_bytes, loss.timeout, loss.mss_bytes = self.acked, float(timeout), mss
            loss.new_episode = float(newest_loss > self.recovery_step)
            if newest_loss > self.recovery_step:
                self.recovery_step = k
            sender.on_loss(self.state, loss)
        tick = _record(TICK)
        tick.now_s, tick.dt_s, tick.inflight_bytes = k * engine.dt_s, engine.dt_s, self.inflight
        tick.delivered_bytes, tick.min_rtt_s, tick.mss_bytes = self.acked, self.min_rtt_steps * engine.dt_s, mss
        sender.on_tick(self.state, tick)
        self.cwnd, self.rate = float(self.state.cwnd_bytes), float(self.state.pacing_rate_Bps)


class ReferenceCurveEngine:
    """One environment of the curve engine, step by step as in docs/architecture.md.

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
        self.dt_s = grid_of(path, steps_per_rtt).dt_s if dt_s is None else dt_s
        self.steps_per_rtt, self.seed, self.env = steps_per_rtt, seed, env
        self.early_feedback = 1 if timing == "smt" else 0
        self.oracle = loss_detection == "oracle"
        self.settings, self.initial_C_L_Bps, self.rto_min_s = settings, initial_C_L_Bps, rto_min_s
        self.k = 0
        self.G: list[Any] = [0]
        self.C: list[Any] = []
        self.red_average: Any = 0
        self.flows = [ReferenceFlow(i, f, s, self) for i, (f, s) in enumerate(zip(path.flows, senders, strict=True))]
        for flow in self.flows:
            flow.receive_window = receive_window_bytes
        self.D = self.flows[0].jitter
        self.adversary_states: list[Any] = []

    # --- moves ------------------------------------------------------------------------------------------------------

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
        view = _record(VIEW)
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
                state = _record(player.state)
                for name, value in player.parameters.items():
                    state[name] = value
                player.init(state, view)
                self.adversary_states.append(state)
            move = _record(MOVE)
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
            if math.ceil(change.time_s / self.dt_s - 1e-9) < k:
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

    # --- the step -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Advance by one dt."""
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
        self._serve(k, G, service)
        self.k = k
        exact = isinstance(self.dt_s, Fraction)
        for f in self.flows:
            if k > f.start:
                f.beliefs.tie_bytes = 0 if exact else TIE * self._enqueued(k)
                f.feedback(k)

    def run(self, steps: int) -> None:
        """Advance by several steps."""
        for _ in range(steps):
            self.step()

    def _send(self, k: int, loss_moves: list[Any], early_drop: Any) -> list[Any]:
        kept = []
        for i, f in enumerate(self.flows):
            if k == f.start + 1:
                f.begin()
            room = max(0, min(f.cwnd, f.receive_window) - (f.A[-1] - f.acked - f.found_lost))
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
                for j in range(k - D, k):
                    self.G[j] -= late
        G = self.G[k - 1] + C * self.dt_s
        if G > X:
            G = G - waste * (G - X) if self._hoards and waste < 1 else X
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
        totals = [self._enqueued(x) for x in range(k + 1)]
        t = next((x for x in range(k + 1) if totals[x] >= departed), k)
        if t == 0 or totals[t] <= departed:
            return [max(f.E[t], f.P[-1]) for f in self.flows]
        fraction = (departed - totals[t - 1]) / (totals[t] - totals[t - 1])
        return [max(f.E[t - 1] + fraction * (f.E[t] - f.E[t - 1]), f.P[-1]) for f in self.flows]
