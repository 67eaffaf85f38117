"""Refute candidates by simulation, with random and structured traces that break many candidates at once.

Each trace is a starting state and per step a share of spare tokens to waste, a share of the legal band of service, and a
preferred delay where the published rule leaves it open. Half of them keep the beliefs constant, many with C_L = C or C_U = C,
because a violation of invariant (5.3) needs beliefs that do not shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.synthesis.query.classes import (
    CONDITION,
    GOAL,
    GRAIN,
    LINK,
    MOST_SAMPLES,
    PAST,
    RATE,
    SHARES,
    TRACE,
    records,
    windows_code,
)
from ccenv.proofs.synthesis.query.objectives import Objectives, mislead
from ccenv.proofs.synthesis.query.template import Space

_ALPHAS = (11, 12, 14, 16, 20, 40, 80, 200, 800, 4000)
"""2*C*Rm/MSS."""

_LOWER = (1, 1, 1, 1, 2, 3, 4, 8)
_UPPER = (1, 1, 1, 2, 3, 4, 10, 100)
_RATIOS = (8, 9, 12, 16, 18, 24, 36, 48)
"""C_U / C_L in twelfths."""

_BACKLOG = (0, 0, 1, 2, 4, 8, 12, 20, 40, 80, 200)


def repertoire(setting: Setting, count: int, rng: np.random.Generator, moving: float, probes: bool) -> np.ndarray:
    """Return (count,) random TRACE records for a setting."""
    out = np.zeros(count, dtype=TRACE)
    n, D = setting.samples, setting.jitter_steps
    out["samples"], out["jitter"], out["link"] = n, D, LINK
    out["exact_waste"] = setting.model != "ccac"
    out["past_known"] = setting.delay_rule == "sound"
    out["hold"] = rng.random(count) >= moving
    out["alpha"] = 2 * LINK // rng.choice(_ALPHAS, count) // 1296 * 1296
    beta = _choose_buffers(setting, out["alpha"], rng)
    out["beta"] = beta
    lower = LINK // rng.choice(_LOWER, count) // 4 * 4
    out["C_L"] = np.where(rng.random(count) < 0.2, out["alpha"] * rng.integers(1, 4, count), lower)
    out["C_L"] = np.minimum(np.maximum(out["C_L"], out["alpha"]), LINK)
    out["C_U"] = LINK // 2 * 2 * rng.choice(_UPPER, count)
    tight = rng.random(count) < 0.25
    out["C_U"] = np.where(tight, LINK + (out["alpha"] * rng.integers(0, 4, count)), out["C_U"])
    _move_to_lines(out, rng)
    stock = LINK // SHARES * rng.choice([0, 0, 0, 8, 16], count) // GRAIN * GRAIN
    out["G"] = stock if D else 0
    queue = LINK // 4 * rng.choice(_BACKLOG, count)
    short = rng.random(count) < 0.4
    queue = np.where(short, out["alpha"] * rng.integers(0, 6, count), queue)
    empty = (rng.random(count) < 0.2) & (setting.model == "ccac")
    out["E"] = np.where(empty, out["G"] * rng.integers(0, 2, count), out["G"] + queue)
    full = (beta >= 0) & (rng.random(count) < 0.4)
    out["E"] = np.where(beta >= 0, np.minimum(out["E"], out["G"] + np.maximum(beta, 0)), out["E"])
    out["E"] = np.where(full, out["G"] + beta, out["E"])
    at_brim = (beta >= 0) & (out["E"] == out["G"] + beta)
    out["lost"] = at_brim & (rng.random(count) < 0.6)
    out["seen"] = (beta >= 0) & (rng.random(count) < 0.3)
    out["windows"] = windows_code(setting.beliefs)
    out["late_kept"] = setting.beliefs.lambda_delay == "kept"
    if probes:
        _choose_probes(out, rng)
    _choose_delays(out, setting, rng)
    _choose_moves(out, n, rng)
    return out


def _move_to_lines(out: np.ndarray, rng: np.random.Generator) -> None:
    """Put half of the starting beliefs near the lines C_U = ratio * C_L + k * MSS/Rm, where conditions change."""
    count = len(out)
    twelfths = rng.choice(_RATIOS, count)
    k = rng.integers(-4, 5, count)
    # The tightest C_L for which this C_U is at or above C; or any below C.
    least = (12 * (LINK - k * out["alpha"])) // twelfths
    lower = np.where(rng.random(count) < 0.5, least + out["alpha"] // 8 * rng.integers(0, 9, count), out["C_L"])
    lower = np.clip(lower, out["alpha"], LINK) // 48 * 48
    upper = lower // 12 * twelfths + k * out["alpha"]
    use = (rng.random(count) < 0.6) & (upper >= LINK) & (upper >= lower) & (lower >= out["alpha"])
    out["C_L"] = np.where(use, lower, out["C_L"])
    out["C_U"] = np.where(use, upper, out["C_U"])


def _choose_probes(out: np.ndarray, rng: np.random.Generator) -> None:
    """Choose C_L_lambda and q_U: at most C, on or below the buffer line (6.3), and at least the queue."""
    count = len(out)
    most = np.where(out["beta"] >= 0, np.minimum(LINK, (LINK + np.maximum(out["beta"], 0)) // 3), LINK)
    share = rng.choice([1, 1, 1, 2, 3, 4, 8, 20], count)
    probed = np.where(rng.random(count) < 0.3, out["alpha"] * rng.integers(1, 4, count), most // share)
    out["probes"] = 1
    out["C_L_lambda"] = np.minimum(np.maximum(probed // 1296 * 1296, out["alpha"]), most)
    queue = np.maximum(out["E"] - out["G"], 0)
    more = np.where(rng.random(count) < 0.5, 0, out["alpha"] * rng.integers(0, 4, count))
    out["q_U"] = queue + np.where(rng.random(count) < 0.2, out["C_L_lambda"] * rng.integers(0, 3, count), more)
    out["first_late"] = rng.random(count) < 0.2


def _choose_buffers(setting: Setting, alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    count = len(alpha)
    if setting.buffer == "infinite":
        return np.full(count, -1)
    if setting.buffer == "small":
        return np.full(count, LINK // 2)
    if setting.buffer == "large":
        return 3 * (1 + setting.jitter_steps) * LINK * rng.choice([1, 1, 1, 2, 10], count)
    if setting.buffer == "arbitrary":
        some = LINK // 4 * rng.choice([1, 2, 3, 4, 6, 8, 12, 24, 100], count)
        return np.where(rng.random(count) < 0.4, alpha * rng.integers(2, 6, count), some)
    return np.full(count, int(setting.buffer * LINK))


def _choose_delays(out: np.ndarray, setting: Setting, rng: np.random.Generator) -> None:
    count, n = len(out), setting.samples
    most = np.full(count, n)
    finite = out["beta"] >= 0
    limit = out["beta"] // LINK + setting.jitter_steps
    most = np.where(finite & (limit < n), limit, most)
    drawn = np.where(rng.random(count) < 0.5, rng.integers(0, 3, count), rng.integers(0, n + 1, count))
    out["delay"] = np.minimum(drawn, most)
    out["delay_at"] = rng.integers(0, n + 1, (count, MOST_SAMPLES)) * rng.integers(0, 2, (count, 1))
    # The past of the sound rule: E at -1, -2, ... never above E(0); S(0) = 0 bytes lie behind at least down to -delay.
    share = np.sort(rng.random((count, PAST)), axis=1)[:, ::-1]
    share = np.where(rng.random((count, 1)) < 0.5, np.ones_like(share), share)
    past = (out["E"][:, None] * share).astype(np.int64)
    drop = rng.integers(0, PAST + 1, count)
    empty_before = np.arange(PAST)[None, :] >= drop[:, None]
    past = np.where(empty_before & (rng.random((count, 1)) < 0.5), -LINK * 100, past)
    past = np.minimum.accumulate(past, axis=1)
    fastest = setting.sent_before_at_most
    if fastest is not None:
        most = int(fastest[0] * LINK) + (out["alpha"] * fastest[1].numerator) // fastest[1].denominator
        for k, newer in enumerate([out["E"], *past.T[:-1]]):
            past[:, k] = np.maximum(past[:, k], newer - most)
    out["E_before"] = past
    if setting.delay_rule == "sound":
        behind = (past >= 0).sum(axis=1)
        out["delay"] = np.minimum(out["delay"], behind)
    if fastest is not None:
        # With a known past, bytes that waited are also in the last delivery.
        waited = np.where(past[:, 0] > 0, (past[:, 1:] >= 0).sum(axis=1), 0)
        out["delay"] = np.maximum(out["delay"], waited)


def _choose_moves(out: np.ndarray, n: int, rng: np.random.Generator) -> None:
    count = len(out)
    shape = (count, MOST_SAMPLES)
    pattern_numbers = rng.integers(0, 7, count)
    serve = rng.integers(0, SHARES + 1, shape)
    turn = rng.integers(1, n + 1, (count, 1))
    steps = np.arange(MOST_SAMPLES)[None, :]
    patterns = [
        np.zeros(shape, np.int64),
        np.full(shape, SHARES),
        np.where(steps < turn, 0, SHARES),
        np.where(steps < turn, SHARES, 0),
        np.where(steps % 2 == turn % 2, 0, SHARES),
        SHARES * rng.integers(0, 2, shape),
        serve,
    ]
    out["serve"] = np.choose(pattern_numbers[:, None], patterns)
    waste = np.where(rng.random((count, 1)) < 0.5, SHARES, SHARES * rng.integers(0, 2, shape))
    out["waste"] = np.where(rng.random((count, 1)) < 0.3, 0, waste)


SAMPLE = 256
"""Candidates on which a new batch of traces is tried."""

BATCH = 3000
"""Traces per batch."""

QUIET_BATCHES = 2
"""Batches without a hit that end the search."""

MOST_BATCHES = 40


@dataclass
class Simulator:
    """Candidates of one query in the simulator."""

    setting: Setting
    objectives: Objectives
    space: Space  # conditions and rates that rows index
    rows: np.ndarray  # (n, 2*rates - 1) int16, all classes
    any_start: bool = False  # beliefs may be wrong at the start
    alive: np.ndarray = field(init=False)  # numbers of the classes that no trace has broken

    def __post_init__(self) -> None:
        self.alive = np.arange(len(self.rows))

    @cached_property
    def conditions(self) -> np.ndarray:
        return records(self.space.conditions, CONDITION)

    @cached_property
    def rates(self) -> np.ndarray:
        return records(self.space.rates, RATE)

    @property
    def probes(self) -> bool:
        """Whether the template reads C_L_lambda or q_U."""
        return bool(self.space.template.inputs() & {"C_L_lambda", "q_U/Rm"})

    def goal(self, trace: np.ndarray) -> np.ndarray:
        """Return the objectives in a trace's units."""
        return self.objectives.goal(self.setting, int(trace["link"]), int(trace["alpha"]), int(trace["beta"]))

    def apply(self, trace: np.ndarray) -> np.ndarray:
        """Replay a trace against all remaining classes, drop those that it breaks, and return their numbers."""
        from ccenv.proofs.synthesis.search.kernel import ILLEGAL, SURVIVES, replay

        out = np.zeros(len(self.alive), dtype=np.int8)
        replay(trace, self.goal(trace), self.space.template.rates, self.rows[self.alive], self.conditions, self.rates, out)
        broken = (out != SURVIVES) & (out != ILLEGAL)
        dropped: np.ndarray = self.alive[broken]
        self.alive = self.alive[~broken]
        return dropped

    def attack(self, seed: int, found: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Search the repertoire until it breaks no more; ``found`` receives each useful trace and the classes that it broke."""
        quiet = batch = 0
        moving = (
            0.5
            if self.probes or self.setting.beliefs.timeout or (self.objectives.transient != "none" and self.setting.has_loss)
            else 0.0
        )
        while len(self.alive) and quiet < QUIET_BATCHES and batch < MOST_BATCHES:
            rng = np.random.default_rng((seed, batch))
            batch += 1
            traces = repertoire(self.setting, BATCH, rng, moving, self.probes)
            if self.any_start:
                mislead(traces, rng)
            hits = self._try_traces(traces, rng)
            quiet = 0 if hits.any() else quiet + 1
            while hits.any():
                best = int(hits.sum(axis=1).argmax())
                found(traces[best], self.apply(traces[best]))
                hits &= ~hits[best]

    def _try_traces(self, traces: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        from ccenv.proofs.synthesis.search.kernel import ILLEGAL, SURVIVES, score

        sample = self.alive if len(self.alive) <= SAMPLE else np.sort(rng.choice(self.alive, SAMPLE, replace=False))
        reads = ["link", "alpha"] + (["beta"] if self.objectives.transient_buffer else [])
        _, first, goal_index = np.unique(traces[reads], return_index=True, return_inverse=True)
        goals = np.array([self.goal(traces[i]) for i in first], dtype=GOAL)[goal_index]
        out = np.zeros((len(traces), len(sample)), dtype=np.int8)
        score(traces, goals, self.space.template.rates, self.rows[sample], self.conditions, self.rates, out)
        broken: np.ndarray = (out != SURVIVES) & (out != ILLEGAL)
        return broken
