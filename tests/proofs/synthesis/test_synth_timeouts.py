"""Synthesis with beliefs that time out and with windows of what was sent."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents.programs import Program, load_program, parse_program
from ccenv.proofs.claims.properties import beliefs_shrink, consistent
from ccenv.proofs.formulas import beliefs
from ccenv.proofs.formulas.beliefs import timeouts
from ccenv.proofs.formulas.encode import Needs, Variables, encode
from ccenv.proofs.formulas.setting import BeliefRules, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import all_of, any_of, choose, larger, negate
from ccenv.proofs.synthesis import prove as prove_module
from ccenv.proofs.synthesis import run as run_module
from ccenv.proofs.synthesis.prove import BOUNDS, TIMEOUT_CASES, Decision, Task, broken_parts, claims, collect_values, decide
from ccenv.proofs.synthesis.query.classes import MOST_SAMPLES, class_rows
from ccenv.proofs.synthesis.query.objectives import mislead
from ccenv.proofs.synthesis.query.query import BeliefSpec, Query, load_query
from ccenv.proofs.synthesis.query.template import ALWAYS, NEVER
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start, trace_of_view, view_of_trace
from ccenv.proofs.synthesis.search import groups
from ccenv.proofs.synthesis.search.cegis import cegis, make_candidate
from ccenv.proofs.synthesis.search.groups import GroupTask
from ccenv.proofs.synthesis.search.kernel import CURVES, ILLEGAL, SURVIVES, simulate
from ccenv.proofs.synthesis.search.search import Simulator, repertoire

QDEL = Path(run_module.__file__).parents[2] / "agents" / "synthesized" / "cc_qdel.json"


def _timed(name: str, preset: str, begin: str) -> Query:
    return load_query(name).model_copy(update={"beliefs": BeliefSpec.model_validate({"timeouts": preset, "start": begin})})


def _runs(query: Query, count: int, seed: int) -> Iterator[tuple[Simulator, int, Program, int, View]]:
    """Yield (simulator, class, program, what the simulator said, exact view) for random traces and classes."""
    space = query.space()
    simulator = Simulator(query.setting(), query.objectives, space, class_rows(space), query.beliefs.start == "any")
    rng = np.random.default_rng(seed)
    traces = repertoire(simulator.setting, count, rng, 0.5, simulator.probes)
    if simulator.any_start:
        mislead(traces, rng)
    for trace in traces:
        number = int(rng.integers(len(simulator.rows)))
        curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
        row, goal = simulator.rows[number], simulator.goal(trace)
        said = simulate(trace, goal, query.template.rates, row, simulator.conditions, simulator.rates, curves)
        if said != ILLEGAL:
            program = space.program(make_candidate(row, query.template.rates), "p")
            yield simulator, number, program, said, view_of_trace(trace, simulator.setting, program, curves)


@pytest.mark.parametrize(("name", "preset", "begin"), [
    ("g1_t5", "artefact", "any"), ("g1_t11", "paper", "any"), ("g7_large_no_loss", "artefact", "any"),
    ("g2", "artefact", "consistent"),
])  # fmt: skip
def test_the_simulator_agrees_with_the_exact_replayer(name: str, preset: str, begin: str) -> None:
    query = _timed(name, preset, begin)
    seen: Counter[str] = Counter()
    for _, _, _, said, view in _runs(query, 250, 5):
        # view_of_trace compared every belief, those that timed out included, with the rational replayer.
        broken = broken_parts(query.objectives, view)
        assert bool(broken) == (said != SURVIVES)
        seen.update(broken or ["fine"])
        seen["violated"] += bool(broken)
        seen["repaired or not"] += view.C_L[0] > 1 or view.C_U[0] < 1  # type: ignore[index]
        seen["timed out"] += view.C_L[-1] < view.C_L[-2] or view.C_U[-1] > view.C_U[-2]  # type: ignore[index]
    assert seen["timed out"] > 5 and seen["fine"] > 20 and seen["violated"] > 8
    assert (seen["repaired or not"] > 40) == (begin == "any")
    assert name != "g1_t5" or seen["repair or utilisation"]


def _satisfiable(query: Query, program: Program, view: View) -> str:
    """Ask the solver whether the full encoding has this very trace as a violation."""
    encoding = encode(query.setting(), ProgramSmtSender(program), Needs(BOUNDS))
    v, parts = encoding.view, prove_module._parts_from_right if consistent(view, 0) else prove_module._parts_from_wrong
    variables = encoding.variables.all
    values = {name: x for name, x in collect_values(view).items() if name in variables}
    fixed = [variables[name] == (bool(x) if isinstance(x, bool) else str(x)) for name, x in values.items()]
    violated = any_of(negate(holds(v)) for _, holds in parts(query.objectives))
    return solve(to_smtlib([*encoding.formulas(), *fixed, violated]), "z3", 60).status


def test_simulated_violations_are_satisfiable_and_survive_the_exchange() -> None:
    query = load_query("quick_timeouts")
    done = 0
    for simulator, number, program, said, view in _runs(query, 300, 7):
        if said == SURVIVES or done == 10:
            continue
        assert _satisfiable(query, program, view) == "sat"
        again = trace_of_view(view)
        assert again is not None
        simulator.alive = np.array([number])
        assert list(simulator.apply(again)) == [number]
        done += 1
    assert done == 10


@pytest.mark.parametrize(("name", "keys", "raw"), [("quick_timeouts_consistent", 2, 4), ("quick_timeouts", 0, 0)])
def test_the_pipeline_answers_with_time_outs(name: str, keys: int, raw: int, tmp_path: Path) -> None:
    """(5.3) in full: with right beliefs cc_qdel's form solves the query, with any it does not within 7 samples."""
    run = start(load_query(name), tmp_path)
    solve_query(run)
    answer = result(run)
    assert answer["complete"] and (answer["keys"], answer["raw"]) == (keys, raw)


@pytest.mark.parametrize("preset", ["artefact", "paper"])
def test_the_cases_of_time_outs_cover_all_traces_that_do_not_shrink(preset: str) -> None:
    """Any bounds that start right and end at a sample without showing wrong ones: no trace outside the cases fails to shrink."""
    import z3

    setting = _timed("g1_t5", preset, "consistent").setting()
    make = Variables()
    n, rule = setting.samples, setting.beliefs.timeout
    view = encode(setting, ProgramSmtSender(load_program(QDEL)), Needs(BOUNDS)).view
    view.C_L, view.C_U = make.series("lower", n), make.series("upper", n)
    kept_lower, kept_upper, recomputed = (make.real(name) for name in ("kept_lower", "kept_upper", "recomputed"))
    view.extra = {"C_L_kept": [kept_lower], "C_U_kept": [kept_upper]}
    lower, upper = [*view.C_L[:-1], kept_lower], [*view.C_U[:-1], kept_upper]
    bounds = [z3.And(a <= b, b <= 1) for a, b in pairwise(lower)] + [z3.And(a >= b, b >= 1) for a, b in pairwise(upper)]
    assert rule is not None
    times_out = timeouts(rule, lower[0], upper[0], kept_lower, kept_upper)
    ends = [
        view.C_L[-1] == choose(times_out[0], recomputed, kept_lower),
        view.C_U[-1] == choose(times_out[1], larger(view.C_L[-1], rule.rise_factor * upper[-2]), kept_upper),
    ]
    still = z3.And(lower[0] == kept_lower, upper[0] == kept_upper)
    outside = [z3.Not(still), *(z3.Not(case(view)) for case in TIMEOUT_CASES.values())]
    left = [*bounds, recomputed <= kept_lower, *ends, z3.Not(beliefs_shrink(view))]
    assert solve(to_smtlib([*left, *outside]), "z3", 60).status == "unsat"
    for case in TIMEOUT_CASES.values():
        assert solve(to_smtlib([*left, case(view)]), "z3", 60).status == "sat"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quick_timeouts_consistent", "quick_timeouts"])
def test_plain_cegis_finds_the_same(name: str, tmp_path: Path) -> None:
    run = start(load_query(name), tmp_path)
    solve_query(run)
    slow, quick = cegis(load_query(name), 300.0), result(run)
    assert [slow[key] for key in ("complete", "keys", "raw")] == [quick[key] for key in ("complete", "keys", "raw")]


@settings(max_examples=60, deadline=None)
@given(lower=st.integers(4, 40), upper=st.integers(4, 40))
def test_conditions_of_a_class_agree_on_beliefs_in_any_order(lower: int, upper: int) -> None:
    """Bounds in quarters of MSS/Rm, at least one; with ordered bounds these classes are coarser."""
    space = _SPACE
    for index, terms in enumerate(space.conditions):
        given_ = {"C_L": lower, "C_U": upper, "MSS/Rm": 4}
        kind = space.condition_class[index]
        if any(name not in given_ for name, _ in terms):
            continue
        holds = sum(c * given_[name] for name, c in terms) > 0
        if kind in (ALWAYS, NEVER):
            assert holds == (kind == ALWAYS)
            continue
        first = sum(c * given_[name] for name, c in space.conditions[space.condition_of[kind]]) > 0
        assert holds == (first != space.condition_flipped[index])


_SPACE = _timed("g1_t5", "artefact", "any").space()


def test_undecided_classes_are_asked_again_with_a_larger_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(group: GroupTask) -> list[tuple[int, Decision]]:
        return [(number, Decision("unknown", 1, group.seconds, "inflight", "timeout")) for number in group.numbers]

    def limited(call_s: float) -> Query:
        query = load_query("quick")
        return query.model_copy(update={"limits": query.limits.model_copy(update={"call_s": call_s})})

    monkeypatch.setattr(groups, "decide_group", gives_up)
    run = start(limited(1.0), tmp_path)
    solve_query(run)
    assert not result(run)["complete"]
    monkeypatch.undo()
    assert not len(start(limited(1.0), tmp_path).undecided)
    run = start(limited(30.0), tmp_path)
    solve_query(run)
    assert result(run)["complete"] and result(run)["canonical"] == 1


Reading = Literal["kept", "seen"]


def _misled(reading: Reading, *, whole: bool) -> str:
    """Ask for a window that counts and says more than C, or more than buffer line (6.3) allows, whatever is sent."""
    setting = Setting("cbr_delay", "arbitrary", 6, "sound", beliefs=BeliefRules(lambda_delay=reading))
    encoding = encode(setting, AnySender(), Needs(frozenset({"C_L_lambda"})))
    v = encoding.view
    wrong = []
    for t in range(1, setting.samples):
        for counts, rate in beliefs.sent_window_rates(v, t, 1):
            shown = counts if whole else any_of([counts, v.first_late[t][3]])
            wrong.append(all_of([shown, any_of([rate > 1, 1 + v.beta < 3 * rate])]))
    return solve(to_smtlib([*encoding.formulas(), any_of(wrong)]), "z3", 60).status


@pytest.mark.parametrize("reading", ["kept", "seen"])
def test_no_sending_window_misleads_any_sender(reading: Reading) -> None:
    assert _misled(reading, whole=True) == "unsat"
    assert _misled(reading, whole=False) == "sat"  # a window that ends late does mislead: the question is not empty


def _halving() -> Program:
    """Drain at C_L_lambda/2, one of the four keys that only ``seen`` proves."""
    probe = {"C_L_lambda": 3, "MSS/Rm": 1}
    rule = {"if": {"q_U/Rm": 1, "MSS/Rm": -1}, "then": {"rate": {"C_L_lambda": "1/2"}}, "else": {"rate": probe}}
    return parse_program({"format": "ccenv-program", "version": 1, "name": "halving", "rule": rule})


def test_a_delay_that_lasts_while_nothing_arrives_refutes_draining_at_half_the_bound() -> None:
    query = load_query("g6_kept")
    found = decide(Task(query.setting(), query.objectives, _halving(), 60))
    assert (found.status, found.claim) == ("refuted", "utilisation")
    v = found.view
    assert v is not None and v.C_L_lambda is not None
    seen = replace(v, setting=load_query("g6").setting())
    assert all(not counts or rate <= v.C_L_lambda[0] for t in range(1, 7) for counts, rate in beliefs.sent_window_rates(v, t, 1))
    # Read the other way, the same trace moves the bound.
    assert any(counts and rate > v.C_L_lambda[0] for t in range(1, 7) for counts, rate in beliefs.sent_window_rates(seen, t, 1))


@pytest.mark.slow
def test_a_delay_that_arriving_bytes_show_does_not() -> None:
    query = load_query("g6")
    assert query.beliefs.lambda_delay == "seen"
    task = Task(query.setting(), query.objectives, _halving(), 120)
    assert len(claims(task)) == 5 and decide(task).status == "proved"


def test_simulator_replayer_and_encoding_agree_where_the_readings_differ() -> None:
    """Random traces of G6 on which C_L_lambda moves under one reading only; the other one's numbers are refused."""
    queries = {reading: load_query(name) for reading, name in (("kept", "g6_kept"), ("seen", "g6"))}
    space = queries["seen"].space()
    rows = class_rows(space)[:60_000:1499]
    simulator = Simulator(queries["seen"].setting(), queries["seen"].objectives, space, rows)
    differ = 0
    for trace in repertoire(simulator.setting, 300, np.random.default_rng(2), 1.0, True):
        for row in rows:
            runs = {reading: _simulated(simulator, trace, row, reading == "kept") for reading in queries}
            if ILLEGAL in (said for said, _ in runs.values()) or (runs["kept"][1][10] == runs["seen"][1][10]).all():
                continue
            differ += 1
            program = space.program(make_candidate(row, 2), "p")
            for reading, query in queries.items():
                view = view_of_trace(trace, query.setting(), program, runs[reading][1])
                if differ % 8 == 0:
                    assert _is_in_the_encoding(query, program, view)
                with pytest.raises(ReplayError, match="the solver"):
                    view_of_trace(trace, query.setting(), program, runs["kept" if reading == "seen" else "seen"][1])
    assert differ >= 20


def _simulated(simulator: Simulator, trace: np.ndarray, row: np.ndarray, kept: bool) -> tuple[int, np.ndarray]:
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
    trace["late_kept"] = kept
    return simulate(trace, simulator.goal(trace), 2, row, simulator.conditions, simulator.rates, curves), curves


def _is_in_the_encoding(query: Query, program: Program, view: View) -> bool:
    """Fix every number of an exact trace, moving bounds included, and ask the solver."""
    encoding = encode(query.setting(), ProgramSmtSender(program), Needs(frozenset({"C_L_lambda", "q_U"})))
    values = collect_values(view)
    assert view.C_L_lambda is not None
    values |= {f"C_L_lambda_{t}": Fraction(x) for t, x in enumerate(view.C_L_lambda)}
    known = encoding.variables.all
    fixed = [known[name] == (x if isinstance(x, bool) else str(x)) for name, x in values.items() if name in known]
    return solve(to_smtlib([*encoding.formulas(), *fixed]), "z3", 60).status == "sat"
