"""The past of a solver's trace: no legal past is excluded, no other is admitted, and a counterexample says whether one exists."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from engine_runs import MSS, engine_runs, exact, size_of

from ccenv.base.errors import TraceError
from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace, load_trace
from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemma
from ccenv.proofs.claims.lemmas import constants_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.report import find_past, with_past
from ccenv.proofs.claims.verifier import Query, Verifier, complete_values
from ccenv.proofs.formulas.encode import Encoding, Needs, encode
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import HISTORY_STEPS, Setting, named_setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.replay.exact import ReplayError, replay
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import Answer

z3 = pytest.importorskip("z3")


LARGEST = (Fraction(2), Fraction(0))
DELAYS = Needs(delays=frozenset({1, 2, 3}))
T = 5


pytestmark = pytest.mark.usefixtures("own_cache")


def legal_runs(model: str, buffer: float, envs: int, rows: int, seed: int) -> list[Trace]:
    slow = (0.125, 0.5, 1.0, 1.5, 2.0, 2.0)
    engine = engine_runs(model, buffer, envs, rows - 1, seed, rates=slow, moves=(0.0, 0.0, 0.5, 1.0))
    return [engine.trace(env) for env in range(envs)]


def delays_seen(trace: Trace) -> list[int]:
    """Return per row how many whole steps the newest byte delivered by then had waited; 0 before the first one."""
    E, S = trace.E[:, 0], trace.S[:, 0]
    seen = [0]
    for k in range(1, len(S)):
        waited = max([m for m in range(k + 1) if S[k] <= E[k - m]], default=0)
        seen.append(waited if S[k] > S[k - 1] else seen[-1])
    return seen


def window(v, trace: Trace, first: int, samples: int):
    """Return what an encoding says if rows first, first + 1, ... of a trace are its samples, delays and losses included."""
    rows = slice(first, first + samples)
    origin = Fraction(trace.S[first, 0])
    curves = {"G": trace.G[rows], "S": trace.S[rows, 0], "E": trace.E[rows, 0]}
    for name, curve in curves.items():
        yield from (getattr(v, name)[t] == z3.RealVal(str(Fraction(x) - origin)) for t, x in enumerate(curve))
    yield from (v.rate[t + 1] == z3.RealVal(str(Fraction(x))) for t, x in enumerate(np.diff(trace.A[rows, 0])))
    delays = delays_seen(trace)
    yield from (flag == z3.BoolVal(delays[first + t] >= m) for t, flags in enumerate(v.late) for m, flag in flags.items())
    if v.setting.has_loss:
        for flag, row in ((v.lost_at_0, first), (v.loss_seen[0], first - 1)):
            yield flag == z3.BoolVal(bool(row > 0 and trace.L[row, 0] > trace.L[row - 1, 0]))


@pytest.mark.parametrize("setting_name", ["history", "sound"])
@pytest.mark.parametrize(
    ("model", "buffer"), [("ccac", np.inf), ("ccac", 0.5), ("ccac", 2.0), ("cbr_delay", 1.5), ("ideal", 0.5)]
)
def test_every_window_of_a_legal_run_is_a_model(model: str, buffer: float, setting_name: str) -> None:
    """No legal past is excluded, that of a window that starts with the flow or soon after it included."""
    setting = named_setting(setting_name, Setting(model, size_of(buffer), T), LARGEST)
    assert setting.past_steps == HISTORY_STEPS
    encoding = encode(setting, AnySender(), DELAYS)
    solver = z3.Solver()
    solver.add(*encoding.formulas(), encoding.view.alpha == z3.RealVal(str(Fraction(MSS))))
    lossy = 0
    for number, trace in enumerate(legal_runs(model, buffer, envs=25, rows=16, seed=3)):
        lossy += bool(trace.L[-1, 0] > 0)
        for first in range(16 - T + 1):
            solver.push()
            solver.add(*window(encoding.view, trace, first, T))
            assert solver.check() == z3.sat, f"run {number}, row {first}"
            solver.pop()
    assert lossy == 0 if buffer == float("inf") else lossy > 5


def blind_start(v, late: bool):
    """Yield a queue of 5.5 C*Rm that grew by 2 a step, of which the newest delivered byte saw two steps or did not."""
    yield from (v.E[0] == 5.5, v.G[0] == 0, v.S[0] == 0)
    yield from (v.enqueued(-1) == 3.5, v.enqueued(-2) == 1.5, v.enqueued(-3) == -0.5)
    yield v.late[0][2] == z3.BoolVal(late)


def status(encoding: Encoding, extra) -> str:
    solver = z3.Solver()
    solver.add(*encoding.formulas(), *extra)
    return str(solver.check())


def test_a_start_that_no_legal_past_reaches_is_refused() -> None:
    """The queue was not empty, so S(0) = G(0) > G(-1) >= S(-1): the newest byte came in this step, and E(-2) made it late."""
    known = encode(named_setting("history", Setting(samples=T), LARGEST), AnySender(), DELAYS)
    assert status(known, blind_start(known.view, late=False)) == "unsat"
    assert status(known, blind_start(known.view, late=True)) == "sat"
    # One sample alone does not tell: the bytes before the trace, without the tokens and deliveries, admit it.
    alone = encode(Setting(samples=T, sent_before_at_most=LARGEST), AnySender(), DELAYS)
    assert status(alone, blind_start(alone.view, late=False)) == "sat"


def _queue_is_seen(v):
    """A queue of 5 C*Rm that grew by at most 2 a step has made the newest byte wait: true of every start with a past."""
    from ccenv.proofs.solver.terms import implies

    return implies(v.queue(0) >= 5, v.late[0][2])


def seen_query(**changes) -> Query:
    claim = Property("a long queue was seen", "queue(0) >= 5 => two steps of delay", _queue_is_seen, Needs(delays=frozenset({2})))
    setting = Setting(samples=T, sent_before_at_most=LARGEST)
    return Query(claim.name, replace(setting, **changes), AnySender(), claim)


def test_a_counterexample_without_a_legal_past_says_so_and_without_an_answer_it_is_unknown(monkeypatch) -> None:
    assert Verifier(60).decide(seen_query(past_steps=HISTORY_STEPS)).verdict == "verified"
    query = seen_query()
    result = Verifier(60).decide(query)
    assert result.verdict == "refuted"
    reach = find_past(query, result)
    assert reach.reachable is False and reach.result is result and reach.query is query
    assert "no counterexample has a legal past of" in reach.text
    monkeypatch.setattr("ccenv.proofs.claims.report.solve", lambda *_: Answer("unknown", 1.0, "z3", "time limit of 1 s"))
    query = seen_query()
    reach = find_past(query, Verifier(60).decide(query))
    assert reach.reachable == "unknown" and "time limit of 1 s" in reach.text


def test_the_headline_is_refuted_with_a_past_in_the_file() -> None:
    """[CCmatic]'s 89 %: the trace file begins on an empty path, is legal from there, and the engine needs no prefix to run it."""
    outcome = run_lemma(LemmaRun("cc_qdel", "history", 10), "F.7 with the paper's 89 %")
    assert (outcome.verdict, outcome.details["reachable"]) == ("refuted", True)
    replayed = outcome.details["replay"]
    assert replayed["engine"] == "reproduced" and "decided each step" in replayed["engine_sender"]
    trace = load_trace(outcome.trace)
    assert check_trace(trace) == [] and engine_replay(trace)[1] <= REPLAY_TOLERANCE
    assert trace.header.history == "empty" and trace.start_row == replayed["past_steps"] == trace.n_steps - 9
    used = (trace.S[-1, 0] - trace.S[trace.start_row, 0]) / (trace.header.path.bdp_bytes * 8)
    assert used < 0.89
    rate = trace.link_rate_Bps[0]
    assert np.all(trace.rate_Bps[: trace.start_row + 1, 0] <= 2 * rate * (1 + 1e-9))  # what cc_qdel may have sent


@pytest.mark.parametrize(("x", "verdict"), [("3.5", "verified"), ("3.45", "refuted")])
def test_inflight_of_cc_qdel_in_steady_state(x: str, verdict: str) -> None:
    loaded = load_suite("cc_qdel")
    lemma = next(lemma for lemma in loaded.suite.lemmas if lemma.name == "F.7 inflight")
    numbers = constants_of(loaded.suite, "history", 10) | {"inflight": Fraction(x)}
    (query,) = lemma_queries(loaded, lemma, suite_setting(loaded, "history", 10), numbers)
    result = Verifier(300).decide(query)
    assert result.verdict == verdict
    if verdict == "refuted":
        assert find_past(query, result).reachable is True


@pytest.mark.slow
def test_no_large_loss_when_probing_holds_for_a_longer_probe() -> None:
    assert run_lemma(LemmaRun("cc_qdel", "history", 11), "F.8").verdict == "verified"


@pytest.mark.parametrize("start", ["any", "empty"])
@pytest.mark.parametrize("model", ["ccac", "cbr_delay", "ideal"])
def test_pasts_replay_exactly_are_legal_and_run_in_the_engine(model: str, start: str) -> None:
    """With losses in the last two steps before the trace, whose size the solver leaves open."""
    setting = named_setting("history", Setting(model, Fraction(1, 2), T), (Fraction(2), Fraction(1)))
    if start == "empty":
        setting = with_past(setting, 6)
    encoding = encode(setting, AnySender(), DELAYS)
    v = encoding.view
    for lost, seen in ((True, True), (True, False), (False, True)):
        solver = z3.Solver()
        solver.add(*encoding.formulas(), v.lost_at_0 == lost, v.loss_seen[0] == seen, v.E[v.last] <= 20)
        assert solver.check() == z3.sat
        view = replay(setting, _values(encoding, solver.model()), frozenset(), 1, AnySender().decider())
        trace = as_trace(view, "any")
        assert trace.header.history == ("empty" if start == "empty" else "free") and check_trace(trace) == []
        assert engine_replay(trace)[1] <= REPLAY_TOLERANCE
        row = trace.start_row
        assert [bool(np.diff(trace.L[:, 0])[k - 1] > 0) for k in (row, row - 1)] == [lost, seen]


def _values(encoding: Encoding, model) -> dict:
    found = {d.name(): exact(model[d]) for d in model.decls()}
    return complete_values(encoding, Answer("sat", 0.0, "z3", "", found))


@pytest.mark.parametrize(("name", "change", "broken"), [
    ("G_before_0", 2, "tokens arrive at most at rate C"), ("S_before_0", 9, "S <= G"),
    ("S_before_1", -9, "delivered bytes stay delivered"), ("S_before_2", -9, "S >= G - C\\*D at the first sample"),
    ("E_before_0", 9, "sending before the trace|drop-tail"), ("E_before_2", -9, "largest rate before the trace|S <= A - L"),
    ("late_0_2", None, "delay of 2 steps"), ("late_before_1_2", None, "delay of 2 steps"),
    ("lost_at_0", None, "loss at sample 0 needs a full buffer"),
    ("loss_seen_at_0", None, "loss at sample -1 needs a full buffer"),
])  # fmt: skip
def test_the_replayer_refuses_a_past_that_is_not_legal(name: str, change: int | None, broken: str) -> None:
    """It does not share the encoder's laws: what a wrong encoding would let through, it names."""
    setting = named_setting("history", Setting("ccac", Fraction(4), T), LARGEST)
    encoding = encode(setting, AnySender(), DELAYS)
    v = encoding.view
    solver = z3.Solver()
    solver.add(*encoding.formulas(), v.queue(0) >= 2, v.queue(0) < 4, v.late[0][2], z3.Not(v.late[0][3]))
    solver.add(z3.Not(v.lost_at_0), z3.Not(v.loss_seen[0]), v.S[0] > v.delivered(-1))
    solver.add(v.enqueued(-1) < v.admitted(-1) + v.beta, v.S[0] < v.enqueued(-2))
    assert solver.check() == z3.sat
    values = _values(encoding, solver.model())
    replay(setting, values, frozenset(), 1, AnySender().decider())
    values[name] = (not values[name]) if change is None else values[name] + change
    with pytest.raises(ReplayError, match=broken):
        replay(setting, values, frozenset(), 1, AnySender().decider())


def test_a_wrong_belief_bounds_no_rate_before_the_trace() -> None:
    """The largest rate rests on C_L <= C: a lemma about a wrong C_L must not assume it of the past."""
    loaded = load_suite("cc_qdel")
    setting = suite_setting(loaded, "history", 5)
    numbers = constants_of(loaded.suite, "history", 5)
    assumed = {
        query.name: query.setting.sent_before_at_most
        for lemma in loaded.suite.lemmas
        for query in lemma_queries(loaded, lemma, setting, numbers)
    }
    assert {name for name, limit in assumed.items() if limit is None} == {
        "F.2 (a)", "F.2 (b)", "F.2 with the paper's time-out constants (a)", "F.2 with the paper's time-out constants (b)"
    }  # fmt: skip
    assert assumed["F.7 inflight"] == LARGEST


def test_a_header_with_more_past_than_rows_is_refused() -> None:
    trace = legal_runs("ccac", 2.0, envs=1, rows=4, seed=0)[0]
    with pytest.raises(TraceError, match="past_rows is 3; a trace of 4 rows has at most 2"):
        replace(trace, header=trace.header.model_copy(update={"past_rows": 3}))
