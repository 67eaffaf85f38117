"""Encoding, replayer and engine describe the same network: engine runs are models, models replay, traces are legal."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from ccenv.agents.sender import ExternalSender
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.adversary import ExternalAdversary
from ccenv.network.laws import check_trace
from ccenv.network.path import Path
from ccenv.proofs.claims.claims import Thresholds, build_claim
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, Verifier, complete_values
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules, Setting, named_setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.replay.closed_loop import run_in_engine
from ccenv.proofs.replay.exact import replay
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import Answer

z3 = pytest.importorskip("z3")

ROWS, FIRST_ROW, N_ENVS = 7, 4, 500
MSS = 0.125  # in C*Rm; powers of two keep every curve exact in float64


def engine_runs(model: str, buffer: float, seed: int) -> CurveEngine:
    """Run 500 environments with C = Rm = D = 1 and random dyadic rates and moves: every number stays exact."""
    rng = np.random.default_rng(seed)
    jitter = 0.0 if model == "ideal" else 1.0
    path = Path.from_dict(
        {"link_rate_Bps": 1.0, "buffer_bytes": buffer, "mss_bytes": MSS, "flows": [{"rtt_s": 1.0, "jitter_s": jitter}]}
    )
    engine = CurveEngine(
        [path] * N_ENVS, model=model, senders=[ExternalSender()], adversary=ExternalAdversary(), steps_per_rtt=1,
        timing="smt", loss_detection="oracle", beliefs=None, record=True, history_rtts=64,
    )  # fmt: skip
    for _ in range(FIRST_ROW + ROWS - 1):
        rates = rng.choice([0.125, 0.5, 1.0, 1.5, 2.0, 3.0], size=(N_ENVS, 1))
        engine.advance(1, actions=rates, moves=rng.choice([0.0, 0.25, 0.5, 1.0], size=(N_ENVS, 4)))
    return engine


@pytest.mark.parametrize(
    ("model", "buffer"), [("ccac", float("inf")), ("ccac", 0.5), ("cbr_delay", float("inf")), ("cbr_delay", 1.5), ("ideal", 0.5)]
)
def test_random_engine_runs_are_models_of_the_encoding(model: str, buffer: float) -> None:
    engine = engine_runs(model, buffer, seed=1)
    size = "infinite" if buffer == float("inf") else Fraction(buffer)
    encoding = encode(Setting(model, size, ROWS), AnySender(), Needs(delays=frozenset({2})))
    v = encoding.view
    solver = z3.Solver()
    solver.add(*encoding.formulas())
    solver.add(v.alpha == z3.RealVal("1/8"))
    for env in range(0, N_ENVS, 5 if model != "ccac" else 1):
        trace = engine.trace(env)
        rows = slice(FIRST_ROW, FIRST_ROW + ROWS)
        origin = Fraction(trace.S[FIRST_ROW, 0])
        curves = {"G": trace.G[rows], "S": trace.S[rows, 0], "E": trace.E[rows, 0]}
        solver.push()
        for name, curve in curves.items():
            solver.add(*(getattr(v, name)[t] == z3.RealVal(str(Fraction(x) - origin)) for t, x in enumerate(curve)))
        sent = np.diff(trace.A[rows, 0])
        solver.add(*(v.rate[t + 1] == z3.RealVal(str(Fraction(x))) for t, x in enumerate(sent)))
        assert solver.check() == z3.sat, f"environment {env}"
        solver.pop()


SENDERS = ("cc_qdel", "cc_probe_drain", "cc_probe_fast", "cc_probe_qdel", "cc_probe_slow", "copa", "aimd", "bbr", "rate_delay")
WINDOW_BASED = {"copa", "aimd", "bbr"}


def random_query(rng: random.Random, lambda_delay: Literal["kept", "seen"]) -> Query:
    sender = smt_sender(rng.choice(SENDERS))
    timeout = rng.choice([None, *TIMEOUT_PRESETS.values()])
    rules = BeliefRules(
        upper=rng.choice(["paper", "exact"]),
        lambda_extra_steps=rng.choice([0, 1]),
        lambda_delay=lambda_delay,
        timeout=timeout,
    )
    setting = Setting(
        rng.choice(["ideal", "cbr_delay", "ccac"]),
        rng.choice(["infinite", "small", "large", "arbitrary", Fraction(3, 2)]),
        rng.randint(3, 7),
        loss_detection=rng.choice(["oracle", "dupacks"]) if sender.name in WINDOW_BASED else "oracle",
        beliefs=rules,
    )
    known = ["sound", "artefact"] + (["history"] if sender.largest_rate() is not None else [])
    setting = named_setting(rng.choice(known), setting, sender.largest_rate())
    bounds = frozenset({"C_L", "C_U"}) if rng.random() < 0.7 else frozenset()
    return Query("random", setting, sender, Property("none", "nothing", lambda v: False, Needs(bounds)))


@pytest.mark.parametrize("count", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_random_models_replay_exactly_and_run_in_the_engine(count: int) -> None:
    rng = random.Random(7)
    replayed = 0
    for number in range(count):
        query = random_query(rng, "seen" if number % 2 else "kept")
        encoding = encode(query.setting, query.sender, query.claim.needs)
        solver = z3.Solver()
        solver.set("random_seed", rng.randrange(1000))
        solver.add(*encoding.formulas())
        _steer(solver, encoding.view, rng)
        assert solver.check() == z3.sat
        model = solver.model()
        values = {d.name(): _exact(model[d]) for d in model.decls()}
        bounds = frozenset(name for name in ("C_L", "C_U", "C_L_lambda", "q_U") if getattr(encoding.view, name) is not None)
        window = query.sender.needs(query.setting).probe_window
        complete = complete_values(encoding, Answer("sat", 0.0, "z3", "", values))
        view = replay(query.setting, complete, bounds, window, query.sender.decider())
        trace = as_trace(view, query.sender.name)
        assert check_trace(trace) == []
        run = run_in_engine(trace, view, complete, query.sender, window)
        assert run["engine"] == "reproduced", run
        assert "decided each step" in run["engine_sender"], run
        replayed += 1
    assert replayed == count


def test_another_sender_in_the_loop_does_not_reproduce_the_trace() -> None:
    """The sender really decides in the engine: another program cannot stand in for the one that the trace was found for."""
    sender = smt_sender("cc_probe_drain")
    query = build_claim("invariant", Setting(samples=6), sender, Thresholds())[-1]
    result = Verifier(60).decide(query)
    trace = as_trace(result.view, sender.name)
    assert run_in_engine(trace, result.view, result.values, sender, 1)["engine"] == "reproduced"
    assert run_in_engine(trace, result.view, result.values, smt_sender("cc_probe_fast"), 1)["engine"] == "differs"
    assert engine_replay(trace)[1] <= REPLAY_TOLERANCE


def _steer(solver, v, rng: random.Random) -> None:
    """Push the solver towards different corners; what contradicts the encoding is dropped."""
    t = rng.randrange(1, v.setting.samples)
    wishes = [v.queue(t) > rng.randint(0, 3), v.S[t] == v.S[t - 1], v.G[t] < v.G[t - 1] + 1, v.E[t] > rng.randint(1, 6)]
    if v.setting.has_loss:
        wishes.append(v.lost[t] > 0)
    rng.shuffle(wishes)
    solver.add(v.E[v.last] + v.lost_until(v.last) <= 1000)  # the engine's rings hold a few thousand Rm of queue
    for wish in wishes[:3]:
        solver.push()
        solver.add(wish)
        if solver.check() != z3.sat:
            solver.pop()


def _exact(value):
    return bool(z3.is_true(value)) if z3.is_bool(value) else Fraction(value.numerator_as_long(), value.denominator_as_long())
