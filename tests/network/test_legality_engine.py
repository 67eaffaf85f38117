"""The curve engine against the independent checker: random runs of every model pass, broken ones are named.

The 1,000 traces of each model: ``pytest -m slow tests/network/test_legality_engine.py`` (one to two minutes).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from broken_traces import NoPlaceError, breaks_for
from legal_traces import MODEL_NAMES, random_path

from ccenv.agents import AGENTS, make_sender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import RecordedAdversary
from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace

N_STEPS = 120
WORKLOADS = (
    {"kind": "bulk"},
    {"kind": "rate", "rate_Bps": 4e5},
    {"kind": "on_off", "on_s": 0.1013, "off_s": 0.0717},
    {"kind": "finite", "size_bytes": 2e5},
)


def engine_traces(model: str, count: int) -> Iterator[Trace]:
    """Yield traces of random runs of one model."""
    rng = random.Random(MODEL_NAMES.index(model))
    for seed in range(count):
        n_flows = rng.choice([1, 1, 2, 3])
        path = random_path(
            model,
            rng,
            n_flows=n_flows,
            red=rng.random() < 0.2,
            loss_budget=rng.choice([0, 0.05]),
            buffer_bdp=rng.choice([0.3, 1.0, np.inf]),
        )
        data = path.model_dump()
        for flow in data["flows"]:
            flow["workload"] = rng.choice(WORKLOADS) if rng.random() < 0.3 else WORKLOADS[0]
            flow["stop_s"] = rng.choice([np.inf, np.inf, 0.44])
        numbers = np.random.default_rng(seed)
        shape = (N_STEPS, 2 + 2 * n_flows)
        moves = np.where(numbers.random(shape) < 0.5, numbers.integers(0, 2, shape), numbers.random(shape))
        steps_per_rtt = rng.choice([1, 2, 4, 8])
        engine = CurveEngine(
            [type(path).model_validate(data)],
            model=model,
            senders=[make_sender(rng.choice(AGENTS.names())) for _ in range(n_flows)],
            adversary=RecordedAdversary("random", moves),
            steps_per_rtt=steps_per_rtt,
            seed=seed,
            timing="smt" if steps_per_rtt == 1 and rng.random() < 0.5 else "engine",
            loss_detection=rng.choice(["acks", "oracle"]),
            record=True,
        )
        engine.advance(N_STEPS)
        yield engine.trace(0)


def check(model: str, count: int) -> Counter[str]:
    """Check that runs are legal and that each break of them is named; return how often each law was broken."""
    named: Counter[str] = Counter()
    for seed, trace in enumerate(engine_traces(model, count)):
        violations = check_trace(trace)
        assert not violations, f"run {seed}: {violations[0].message}"
        for law, break_it in breaks_for(trace).items():
            try:
                broken = break_it(trace)
            except NoPlaceError:
                continue
            found = check_trace(broken)
            assert found, f"run {seed}: {law} not found"
            assert found[0].law == law, f"run {seed}: {law} taken for {found[0].message}"
            named[law] += 1
    return named


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_runs_are_legal_and_breaks_are_named(model: str) -> None:
    assert len(check(model, 30)) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("model", MODEL_NAMES)
def test_a_thousand_runs_are_legal_and_breaks_are_named(model: str) -> None:
    named = check(model, 1000)
    assert len(named) >= 22
    assert min(named.values()) >= 20
