"""Belief bounds recomputed from all of the history with plain loops; the kernel is ``ccenv.engine.compiled.beliefs``."""

import math
from dataclasses import dataclass, field
from typing import Any

from ccenv.engine.compiled.beliefs import MARGIN, BeliefSettings, timed_out


@dataclass
class ReferenceBeliefs:
    """The belief bounds of one flow.

    Attributes:
        rtt_steps: Rm in steps.
        jitter_steps: D in steps.
        dt_s: length of a step.
        mss_bytes: segment size; the smallest lower bound is one segment per Rm.
        settings: time-outs and windows.
        probe_window_steps: T*.
        window_steps: longest window.
        initial_C_L_Bps: seed of C_L.
        loss_proves: see ``update_beliefs``.
        tie_bytes: curves closer than this are equal; the engine sets it at each step.
    """

    rtt_steps: int
    jitter_steps: int
    dt_s: float
    mss_bytes: float
    settings: BeliefSettings
    probe_window_steps: int
    window_steps: int
    initial_C_L_Bps: float = 0.0
    loss_proves: bool = True
    start_step: int = 0
    tie_bytes: float = 0.0
    C_L: float = field(init=False)
    C_U: float = field(init=False, default=math.inf)
    C_L_lambda: float = field(init=False)
    timeout_step: int = field(init=False)
    period_bounds: tuple[float, float] = field(init=False)
    ends: list[int] = field(init=False, default_factory=list)  # last steps that the sender has learned

    def __post_init__(self) -> None:
        """Start from the seed."""
        self.C_L = self.C_L_lambda = max(self.initial_C_L_Bps, self._floor)
        self.timeout_step = self.start_step
        self.period_bounds = self.C_L, self.C_U

    def forget(self, n: int) -> None:
        """Go back to what is known before anything was seen; only what follows step n counts."""
        self.C_L = self.C_L_lambda = max(self.initial_C_L_Bps, self._floor)
        self.C_U = math.inf
        self.timeout_step = self.start_step = n
        self.period_bounds = self.C_L, self.C_U

    @property
    def _floor(self) -> float:
        return self.mss_bytes / (self.rtt_steps * self.dt_s)

    def update(self, E: list[Any], L: list[Any], S: list[Any]) -> tuple[float, float, float]:
        """Return (C_L, C_U, C_L_lambda) after the sender has learned S and L up to their last entry.

        Args:
            E: cumulative bytes that entered the queue, at least as long as S.
            L: cumulative bytes lost.
            S: cumulative bytes delivered; one entry longer at each call, behind a proxy any number of entries.
        """
        n = len(S) - 1
        self.ends.append(n)
        self.C_L = max(self.C_L, self._any_lower(E, L, S, n, self.timeout_step))
        self.C_U = min(self.C_U, self._upper(E, L, S, n, self.timeout_step))
        if self.settings.tighter:
            self.C_U = min(self.C_U, self._tighter_upper(E, L, S, n, self.timeout_step))
        first = self.ends[-2] + 1 if len(self.ends) > 1 else n
        for x in range(first - self.jitter_steps, n - self.jitter_steps + 1):
            self.C_L_lambda = max(self.C_L_lambda, self._lambda(E, L, S, x, self.timeout_step))
        empty = self.C_L > self.C_U * MARGIN
        due = n - self.timeout_step >= self.settings.period_rtts * self.rtt_steps
        if empty or due:
            self._time_out(E, L, S, n, due)
        return self.C_L, self.C_U, self.C_L_lambda

    def _time_out(self, E: list[Any], L: list[Any], S: list[Any], n: int, due: bool) -> None:
        since = self.timeout_step
        fresh = max([self._any_lower(E, L, S, t, since) for t in self.ends if t > since] + [self._floor])
        tight, expand = self.settings.tight_ratio, self.settings.expand_ratio
        lower, upper, changed = timed_out.py_func(self.C_L, self.C_U, *self.period_bounds, fresh, self._floor, tight, expand)
        self.C_L, self.C_U = lower, upper
        if changed:
            judged = range(since - self.jitter_steps + 1, n - self.jitter_steps + 1)
            self.C_L_lambda = max([self._lambda(E, L, S, x, since) for x in judged] + [self._floor])
        if changed or due:
            self.period_bounds = lower, upper
            self.timeout_step = n

    def _lags(self, n: int, since: int) -> range:
        return range(1, min(self.window_steps, n - since) + 1)

    def _lower(self, S: list[Any], n: int, since: int) -> float:
        inv_dt = 1 / self.dt_s
        one = inv_dt / inv_dt  # a fraction where the history is made of fractions
        return max(((S[n] - S[n - j]) * (one / (j + self.jitter_steps)) for j in self._lags(n, since)), default=0) * inv_dt

    def _any_lower(self, E: list[Any], L: list[Any], S: list[Any], n: int, since: int) -> float:
        bounds = [self._lower(S, n, since)]
        if self.settings.tighter and self.loss_proves:
            oldest = n - min(self.window_steps, n - since)
            inv_dt = 1 / self.dt_s
            one = inv_dt / inv_dt
            bounds += [(E[n] - E[a]) * (one / (n - a)) * inv_dt for a in range(oldest + 1, n) if self._lost(L, a)]
        return max(bounds)

    def _tighter_upper(self, E: list[Any], L: list[Any], S: list[Any], n: int, since: int) -> float:
        """Each window (x, end] begins at x, or at an earlier step if tokens were wasted in none between: the loosest counts."""
        inv_dt = 1 / self.dt_s
        one = inv_dt / inv_dt
        oldest, end = n - min(self.window_steps, n - since), n - self.jitter_steps
        found = [math.inf]
        for x in range(oldest, end):
            if not all(self.is_utilised(E, L, S, y) for y in range(x + 1, end + 1)):
                continue
            for first in range(oldest, x + 1):
                later = [(S[n] - E[y]) * (one / (end - y)) for y in range(first + 1, x + 1)]
                found.append(max([(S[n] - S[first]) * (one / (end - first)), *later]) * inv_dt)
            if self.loss_proves and self._lost(L, end):
                found.append((E[end] - E[x]) * (one / (end - x)) * inv_dt)
        return min(found)

    def _upper(self, E: list[Any], L: list[Any], S: list[Any], n: int, since: int) -> float:
        best: float = math.inf
        inv_dt = 1 / self.dt_s
        one = inv_dt / inv_dt
        for j in self._lags(n, since):
            if j > self.jitter_steps and all(self.is_utilised(E, L, S, x) for x in range(n - j + 1, n - self.jitter_steps + 1)):
                best = min(best, (S[n] - S[n - j]) * (one / (j - self.jitter_steps)))
        return best * inv_dt

    def _lambda(self, E: list[Any], L: list[Any], S: list[Any], x: int, since: int) -> float:
        first = x - self.probe_window_steps
        if first < since or first <= self.start_step:
            return 0.0
        if any(self._late(E, S, y) or self._lost(L, y) for y in range(first, x + 1)):
            return 0.0
        inv_dt = 1 / self.dt_s
        return (E[x] - E[first]) * inv_dt * ((inv_dt / inv_dt) / (self.probe_window_steps + self.jitter_steps))

    def is_utilised(self, E: list[Any], L: list[Any], S: list[Any], x: int) -> bool:
        """Tell whether step x is known to have been utilised; S must reach x + D."""
        return x > self.start_step and (self._late(E, S, x) or (self.loss_proves and self._lost(L, x)))

    def _late(self, E: list[Any], S: list[Any], x: int) -> bool:
        return E[x] > S[x + self.jitter_steps] + self.tie_bytes

    @staticmethod
    def _lost(L: list[Any], x: int) -> bool:
        return L[x] > L[x - 1]
