"""N flows of ever_delay on one FIFO link as a fluid, C = Rm = 1: from docs/fairness.md, without engines and without the prover.

Many runs at once, in plain numpy. Time is a grid; the queue of each run is kept at every instant, and what a flow sees at t is
the byte that left the queue at t - 1 - eta. The adversary moves eta in [0, D],
upwards with slope 1 at most, so that order is kept. Where a certificate leaves rates free within a factor, the adversary chooses
them too; where Rm may be unlike, it is the shortest or the longest for each flow; where delays may look shorter by e, flows take
Rm for longer, or the link serves bytes so early.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

STEPS = 32  # per Rm
MODES = ("static", "square", "hold", "feedback")


@dataclass(frozen=True)
class Rule:
    """A sender's numbers and its certificate's tables, as floats."""

    slope: float
    gain: float
    jitter: float
    w: np.ndarray
    low: np.ndarray
    high: np.ndarray
    offset: float
    shares: float
    entropy: float
    curvature: float
    freedom: float
    early: float
    unlike: float

    @staticmethod
    def of(certificate) -> Rule:
        """Return the rule of a certificate."""
        rule, design, constants = certificate.rule, certificate.design, certificate.constants
        tables = (
            np.array([float(Fraction(text)) for text in getattr(certificate.tables, name)]) for name in ("w", "low", "high")
        )
        return Rule(
            float(rule.slope), float(rule.gain), float(design.jitter_rtts), *tables, float(rule.offset), float(design.shares),
            float(constants.entropy), float(constants.curvature), float(design.freedom),
            float(design.early), float(design.unlike),
        )  # fmt: skip


@dataclass(frozen=True)
class Worst:
    """The worst of a batch of runs: ratio of two rates, load, RTT, how far X was beyond its tables, spread of v."""

    ratio: float
    load: float
    rtt: float
    beyond: float
    spread: float


def edges(rule: Rule, runs: int, flows: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw starts on the invariant's edges: v of each flow, X that was constant before, A.

    w lies anywhere in the band, often at its ends; X on L or H, or between; the v of two flows differ by B D; theta is the
    smallest or the largest that V_lo and Z_max let this start have.
    """
    place = random.choice([0.0, 1.0, -1.0], size=runs)
    place = np.where(place < 0, random.uniform(size=runs), place)
    w = np.exp(np.log(rule.w[0]) + place * 0.999 * np.log(rule.w[-1] / rule.w[0]))
    low, high = np.interp(w, rule.w, rule.low), np.interp(w, rule.w, rule.high)
    height = random.choice([0.0, 1.0, 0.5], size=runs, p=[0.4, 0.4, 0.2])
    x = low + height * 0.999 * (high - low)
    signs = random.choice([-0.5, 0.5], size=(runs, flows))
    signs[:, 0], signs[:, 1] = 0.5, -0.5
    v = signs * rule.slope * (rule.jitter + rule.early)
    v += np.log(w)[:, None] - np.log(np.exp(v).sum(axis=1))[:, None]
    top = np.log(w) + rule.slope * (high + rule.jitter - 1) + rule.entropy
    lag = 2 * rule.gain * rule.slope * w**2 * (x - 1)
    bottom = np.log(w) - lag + rule.slope * ((1 - rule.curvature) * w**2 * np.exp(-2 * lag) - 1)
    least = np.maximum(bottom, rule.offset)
    most = np.maximum(np.minimum(top, rule.offset + math.log(rule.shares)), least)
    theta = np.where(random.uniform(size=runs) < 0.5, least, most)
    return v, x, theta - math.log(flows)


def play(rule, v, x, target, rtts, modes, random):
    """Play a batch of runs, under each kind of jitter in turn, and return the worst of them."""
    runs, flows = v.shape
    kind = np.array(modes)[np.arange(runs) % len(modes)][:, None]
    static, square, hold = (kind == mode for mode in MODES[:-1])
    step, D, v = 1.0 / STEPS, rule.jitter, v.copy()
    before = math.ceil((rule.high[-1] + D + 2) * STEPS)
    steps = rtts * STEPS
    queue = np.zeros((runs, before + steps + 2))
    leaves = np.zeros_like(queue)
    queue[:, : before + 1] = (x - 1)[:, None]
    leaves[:, : before + 1] = (np.arange(-before, 1) * step)[None, :] + queue[:, : before + 1]
    rows = np.arange(runs)[:, None]
    seen = np.zeros((runs, flows), dtype=int)
    tokens = np.where(random.uniform(size=(runs, 1)) < 0.5, rule.early, 0.0)
    taken = (rule.early - tokens) * random.choice([0.0, 1.0], size=(runs, flows))
    back = 1 - rule.unlike * random.choice([0.0, 1.0], size=(runs, flows))
    eta = random.choice([0.0, D], size=(runs, flows))
    held = random.choice([0.0, D], size=(runs, flows))
    period, phase = random.uniform(0.5, 25.0, size=(runs, flows)), random.uniform(size=(runs, flows))
    weights = random.normal(size=(runs, flows, 3))
    worst = [1.0, math.inf, 1.0, -math.inf, 0.0]
    load = np.ones(runs)
    fixed = random.choice([-1.0, 1.0], size=(runs, flows))
    fixed[: runs // 2] = fixed[: runs // 2, :1]
    for k in range(steps):
        t, now = k * step, before + k
        part = np.mod(t / period + phase, 1.0)
        w = np.exp(v).sum(axis=1)
        signals = ((1 + queue[:, now]) / w**2 - 1, load - 1)
        score = weights[:, :, 0] * signals[0][:, None] + weights[:, :, 1] * signals[1][:, None]
        fed_back = np.where(score + weights[:, :, 2] * (v - v.mean(axis=1, keepdims=True)) > 0, D, 0.0)
        wants = [held, np.where(part < 0.5, D, 0.0), np.minimum(D, part * period)]
        want = np.select([static, square, hold], wants, fed_back)
        want = np.where(want < 0.5 * D, -tokens, want)
        eta = np.clip(np.minimum(want, eta + step), -tokens, D)
        left = t - back - eta
        while True:
            further = (seen + 1 <= np.floor(now - back * STEPS)) & (leaves[rows, np.minimum(seen + 1, now)] <= left)
            if not further.any():
                break
            seen += further
        here, there = leaves[rows, seen], leaves[rows, np.minimum(seen + 1, now)]
        share = np.clip(np.where(there > here, (left - here) / np.maximum(there - here, 1e-12), 0.0), 0.0, 1.0)
        sent = np.minimum((seen - before + share) * step, t - back)
        age = 1 + np.maximum(0.0, t - sent - back - taken)
        side = np.where(static | (want > 0.5 * D), fixed, -fixed)
        rate = np.exp(v) / np.sqrt(age) * rule.freedom**side
        load = rate.sum(axis=1)
        above = 1 + queue[:, now] - np.interp(w, rule.w, rule.high)
        below = np.interp(w, rule.w, rule.low) - 1 - queue[:, now]
        worst = [
            max(worst[0], float((rate.max(axis=1) / rate.min(axis=1)).max())),
            min(worst[1], float(load.min())),
            max(worst[2], float((t - sent).max())),
            max(worst[3], float(above.max()), float(below.max())),
            max(worst[4], float((v.max(axis=1) - v.min(axis=1)).max())),
        ]
        v += rule.gain * step * (target[:, None] - rule.slope * (age - 1) - v)
        queue[:, now + 1] = np.maximum(0.0, queue[:, now] + step * (load - 1))
        leaves[:, now + 1] = t + step + queue[:, now + 1]
    return Worst(*worst)
