"""Random programs, and ACK histories that no network would make: counters that wrap, clocks that go back, gaps, RTTs of 0."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ccenv.agents.programs import BOOLEANS, UNIT_OF, Branch, Expression, Leaf, Program, Rule
from ccenv.live.export.twin import ACK_DTYPE


def random_program(seed: int, contract: bool = False) -> Program:
    rng = np.random.default_rng(seed)
    rule = _rule(rng, int(rng.integers(0, 5)), contract)
    program = Program(f"random_{seed}", rule, "random", int(rng.integers(1, 4)))
    return random_program(seed + 10**7, contract) if contract and not program.is_contract else program


def _rule(rng: np.random.Generator, depth: int, contract: bool) -> Rule:
    if depth == 0:
        most = _expression(rng, "bytes/s") if contract and rng.random() < 0.8 else None
        return Leaf(_expression(rng, "bytes/s"), int(rng.integers(1, 4)), most)
    kind = str(rng.choice(["bytes/s", "bytes", "s", *BOOLEANS], p=[0.5, 0.1, 0.2, 0.1, 0.1]))
    condition = kind if kind in BOOLEANS else _expression(rng, kind)
    return Branch(condition, _rule(rng, depth - 1, contract), _rule(rng, depth - 1, contract))


def _expression(rng: np.random.Generator, unit: str) -> Expression:
    names = [name for name, of in UNIT_OF.items() if of == unit]
    chosen = rng.choice(names, int(rng.integers(1, 1 + min(3, len(names)))), replace=False)
    return Expression(tuple((str(n), Fraction(int(rng.choice([-1, 1]) * rng.integers(1, 60)), 20)) for n in chosen))


def random_acks(seed: int, count: int = 150) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rtt_us = int(10 ** rng.uniform(0, 5.5))
    gap_us = max(1.0, rtt_us * 10 ** rng.uniform(-2.5, 0.3))
    queue_us = rtt_us * 10 ** rng.uniform(-2, 1)
    acks = np.zeros(count, ACK_DTYPE)
    step_us = np.floor(rng.exponential(gap_us, count))
    step_us[rng.random(count) < 0.01] *= rng.choice([0, 100, 1000])
    time_us = np.cumsum(step_us.astype(np.int64)) + int(rng.choice([0, 10**6, 2**40]))
    back = rng.random(count) < 0.01
    acks["now_us"] = np.maximum(0, time_us - np.where(back, rng.integers(0, 3 * rtt_us + 1, count), 0))
    rtt = rtt_us + np.cumsum(rng.normal(0, queue_us / 20, count))
    rtt[rng.random(count) < 0.05] = -1
    rtt[rng.random(count) < rng.choice([0, 0.01])] = 0
    acks["rtt_us"] = np.clip(rtt, -1, 2**31 - 1)
    growth = rng.integers(0, int(rng.choice([2, 4, 50])), count)
    for name, near in (("delivered", growth), ("lost", (rng.random(count) < 0.1) * rng.integers(0, 4, count))):
        acks[name] = (np.cumsum(near) + int(rng.integers(0, 2**32)) * int(rng.integers(0, 2)) - 200) % 2**32
    acks["data_segs_out"] = (np.cumsum(rng.integers(0, 4, count)) + int(rng.choice([0, 2**32 - 300]))) % 2**32
    acks["in_flight"] = rng.integers(0, int(10 ** rng.uniform(0.5, 9)), count)
    acks["app_limited"] = rng.random(count) < 0.1
    acks["reord_seen"] = rng.random(count) < rng.choice([0, 0.3])
    acks["mss"] = int(rng.integers(1, 65_536))
    answers = np.cumsum(rng.random(count) < 0.2) + rng.integers(-1, 2, count)
    acks["answer"] = (np.maximum(0, answers) << 32) + rng.integers(0, 2**32, count) // rng.choice([1, 2**15], count)
    return acks
