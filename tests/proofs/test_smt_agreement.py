"""The solver's model against engine and checker: traces agree, mutations are caught, a second encoding says the same."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from engine_runs import engine_runs, exact, size_of

from ccenv.proofs.claims.claims import Thresholds, build_claim
from ccenv.proofs.claims.cycles import list_departures
from ccenv.proofs.claims.fairness import algorithm1_query
from ccenv.proofs.claims.lemmas import constants_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, Verifier
from ccenv.proofs.formulas import laws
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.senders.window import Dctcp, echo
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import Formula, all_of, implies
from tests.oracles.pays import Question

pytest.importorskip("z3")

import random
from typing import Literal

import numpy as np

from ccenv.network.laws import check_trace
from ccenv.proofs.claims.verifier import complete_values
from ccenv.proofs.formulas.encode import encode
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.replay.closed_loop import run_in_engine
from ccenv.proofs.replay.exact import replay
from ccenv.proofs.solver.solvers import Answer

z3 = pytest.importorskip("z3")

ROWS, FIRST_ROW, N_ENVS = 7, 4, 500


@pytest.mark.parametrize(
    ("model", "buffer"), [("ccac", float("inf")), ("ccac", 0.5), ("cbr_delay", float("inf")), ("cbr_delay", 1.5), ("ideal", 0.5)]
)
def test_random_engine_runs_are_models_of_the_encoding(model: str, buffer: float) -> None:
    engine = engine_runs(model, buffer, N_ENVS, FIRST_ROW + ROWS - 1, seed=1)
    encoding = encode(Setting(model, size_of(buffer), ROWS), AnySender(), Needs(delays=frozenset({2})))
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
        upper=rng.choice(["paper", "exact"]), lambda_extra_steps=rng.choice([0, 1]), lambda_delay=lambda_delay, timeout=timeout
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


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow)])
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
        values = {d.name(): exact(model[d]) for d in model.decls()}
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


BELIEF_RULES = ("initial_bounds", "constant_bounds", "lower_bound", "upper_bound", "timeout", "queue_bound", "sent_lower_bound")


def claim(name: str, holds, needs: Needs | None = None) -> Property:
    return Property(name, name, holds, needs or Needs())


@cache
def planted() -> tuple[Query, ...]:
    """Queries that are proved with all laws; cheap ones first."""
    any_sender = AnySender()
    free = Setting(samples=5, buffer="large")
    late = Needs(delays=frozenset({2}))
    queries = [
        Query("small segments", free, any_sender, claim("MSS < C Rm / 4", lambda v: v.alpha < Fraction(1, 4))),
        Query("origin", free, any_sender, claim("S <= T", lambda v: v.S[v.last] <= v.setting.samples)),
        Query("buffer", free, any_sender, claim("queue <= beta", lambda v: v.queue(v.last) <= v.beta)),
        Query("large", free, any_sender, claim("beta >= 6", lambda v: v.beta >= 6)),
        Query("delivered", free, any_sender, claim("S rises", lambda v: v.S[v.last] >= v.S[1])),
        Query("tokens", free, any_sender, claim("G rises", lambda v: v.G[v.last] >= v.G[1])),
        Query("C_L >= MSS", free, any_sender, claim("C_L", lambda v: v.C_L[v.last] >= v.alpha, Needs(frozenset({"C_L"})))),
        Query("marks mean a queue", Setting("cbr_delay", "infinite", 4), Dctcp(), claim("marks", _marks_need_a_queue)),
        Query("echoes come with bytes", Setting("cbr_delay", "infinite", 4), Dctcp(), claim("echoes", _echoes_come_with_bytes)),
        Query("late means queued", free, any_sender, claim("late", _late_is_late, late)),
    ]
    empty = replace(free, sent_before_at_most=(Fraction(2), Fraction(0)), past_steps=3, past_start="empty")
    queries.append(Query("empty start", empty, any_sender, claim("inflight(0) <= 6", lambda v: v.inflight(0) <= 6)))
    queries += _invariants()
    queries += _lemmas("cc_probe_slow", "sound", 7, ("S.1", "S.2", "S.4", "S.5", "S.6 queue"))
    queries += _lemmas("cc_qdel", "history", 7, ("F.1", "F.5"))
    return tuple(queries)


def _marks_need_a_queue(v):
    return all_of(implies(v.marked[t], v.E[t] - v.G[t] > Dctcp.threshold) for t in range(1, v.setting.samples))


def _echoes_come_with_bytes(v):
    return all_of(implies(echo(v, t), v.S[t] > v.S[t - 1]) for t in range(1, v.setting.samples))


def _late_is_late(v):
    return all_of(implies(all_of([v.late[t][2], v.S[t] > v.S[t - 1]]), v.E[t - 2] >= v.S[t]) for t in range(2, v.setting.samples))


def _invariants() -> Iterator[Query]:
    for name, samples, buffer, setting in (("cc_qdel", 5, "infinite", "history"), ("cc_probe_fast", 7, "small", "history")):
        sender = smt_sender(name)
        chosen = named_setting(setting, Setting(samples=samples, buffer=buffer), sender.largest_rate())
        yield from build_claim("invariant", chosen, sender, Thresholds())
        yield from build_claim("full_invariant", chosen, sender, Thresholds())


def _lemmas(suite: str, setting: str, samples: int, names: tuple[str, ...]) -> Iterator[Query]:
    loaded = load_suite(suite)
    network = suite_setting(loaded, setting, samples)
    numbers = constants_of(loaded.suite, setting)
    for lemma in loaded.suite.lemmas:
        if lemma.name in names:
            yield from lemma_queries(loaded, lemma, network, numbers)


def status(query: Query, broken: frozenset[str] = frozenset()) -> str:
    """Decide a query's violation without the replay."""
    setting = replace(query.setting, broken=broken)
    encoding = replace(query, setting=setting).encoding()
    formulas = [f for f in [*encoding.formulas(), query.claim.violation(encoding.view)] if f is not True]
    if any(f is False for f in formulas):
        return "unsat"
    return solve(to_smtlib(formulas), time_limit_s=60).status


@pytest.mark.parametrize("index", range(len(planted())), ids=lambda i: planted()[i].name)
def test_planted_proofs_hold(index: int) -> None:
    assert status(planted()[index]) == "unsat"


IMPLIED = {"tokens_monotone", "service_monotone"}
"""With D = Rm these follow from S(t-1) <= G(t-1) <= S(t) <= G(t); they are stated because the paper states them."""

ALL_LAWS = sorted({law.__name__ for group in laws.LAWS_OF.values() for law in group} | set(BELIEF_RULES))


@pytest.mark.parametrize("law", sorted(set(ALL_LAWS) - IMPLIED))
def test_breaking_a_law_flips_a_verdict(law: str) -> None:
    assert any(status(query, frozenset({law})) == "sat" for query in planted())


@pytest.mark.parametrize("model", ["ideal", "cbr_delay", "ccac"])
@pytest.mark.parametrize("law", sorted(IMPLIED))
def test_implied_laws_follow_from_the_others(law: str, model: str) -> None:
    from ccenv.proofs.solver.terms import all_of

    formulas = getattr(laws, law)
    query = Query(law, Setting(model, samples=6), AnySender(), claim(law, lambda v: all_of(formulas(v))))
    assert status(query, frozenset({law})) == "unsat"


@pytest.mark.parametrize(
    "law", ["token_rate", "service_within_tokens", "service_within_arrivals", "jitter_bound", "no_waste_while_queued"]
)
def test_replayer_rejects_traces_of_a_broken_encoding(law: str) -> None:
    """The replayer does not share the encoder's laws: what a broken encoding lets through, it refuses."""
    refused = 0
    for query in planted():
        broken = replace(query, setting=replace(query.setting, broken=frozenset({law})))
        if status(query, frozenset({law})) != "sat":
            continue
        with pytest.raises(ReplayError):
            Verifier(60).decide(broken)
        refused += 1
        break
    assert refused == 1


def _leave_in_order(v: View) -> Formula:
    total, own = list_departures(v, 3)
    return all_of(implies(total > v.E[1], mine >= flow.E[1]) for mine, flow in zip(own, v.flows, strict=True))


@pytest.mark.parametrize(
    ("model", "law"),
    [(model, law.__name__) for model, apart in (("ccac", False), ("cbr_delay", True)) for law in laws.BETWEEN_FLOWS[apart]],
)
def test_breaking_a_law_between_flows_flips_a_verdict(model: str, law: str) -> None:
    proofs = [
        algorithm1_query(Fraction(1), 5, model=model),
        Query("in order", Setting(model, samples=5), AnySender(), claim("in order", _leave_in_order), flows=2),
    ]
    assert {status(query) for query in proofs} == {"unsat"}
    assert "sat" in {status(query, frozenset({law})) for query in proofs}


HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (Question(share=HALF, rtts=7), "unsat"),
        (Question(share=HALF, rtts=7, violated=False), "sat"),  # such traces exist
        (Question(rtts=4), "sat"),  # too short to use three quarters
        (Question(share=HALF, rtts=4, K=2, D=HALF), "unsat"),
    ],
)
def test_the_second_encoding_decides_short_traces(question: Question, status: str) -> None:
    assert solve(question.text(), "yices", 60).status == status


@pytest.mark.slow
@pytest.mark.parametrize(("question", "solver", "status"), [
    (Question(), "z3", "unsat"), (Question(), "yices", "unsat"), (Question(share=Fraction(4, 5)), "z3", "sat"),
    (Question(K=2, share=Fraction(9, 16)), "z3", "unsat"), (Question(K=2), "z3", "sat"),
])  # fmt: skip
def test_pays_has_no_counterexample_in_the_second_encoding(question: Question, solver: str, status: str) -> None:
    assert solve(question.text(), solver, 3600).status == status
