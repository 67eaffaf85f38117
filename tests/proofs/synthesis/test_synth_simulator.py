"""The integer simulator against the exact replayer and against the encoding."""

from __future__ import annotations

import numpy as np
import pytest

from ccenv.proofs.claims.properties import beliefs_shrink
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import all_of
from ccenv.proofs.synthesis.exchange import trace_of_view, view_of_trace
from ccenv.proofs.synthesis.prove import BOUNDS, broken_parts, collect_values
from ccenv.proofs.synthesis.query.classes import MOST_SAMPLES, class_rows
from ccenv.proofs.synthesis.query.query import Query, load_query
from ccenv.proofs.synthesis.search.cegis import make_candidate
from ccenv.proofs.synthesis.search.kernel import CURVES, ILLEGAL, LARGE_LOSS, MISLED, MISSED, SURVIVES, simulate
from ccenv.proofs.synthesis.search.search import Simulator, repertoire

QUERIES = [
    "g1_t5",
    "g1_t5_sound",
    "g2",
    "g3_sound",
    "g5_arbitrary",
    "g5_small",
    "g7_large_no_loss",
    "g6",
    "g6_kept",
    "g7_arbitrary",
    "g3_sound exact",
    "g5_arbitrary tighter",
    "g7_large_sound tighter",
    "g7_arbitrary tighter",
]
"""Names, and the windows of C_L and C_U where they are not the paper's."""


def _query(name: str) -> Query:
    name, _, windows = name.partition(" ")
    query = load_query(name)
    return query.model_copy(update={"beliefs": query.beliefs.model_copy(update={"windows": windows or "paper"})})


def _simulator(query: Query) -> Simulator:
    space = query.space()
    if query.template.rates == 4:
        rng = np.random.default_rng(0)
        sizes = [len(space.conditions)] * 3 + [len(space.rates)] * 4
        rows = np.stack([rng.integers(0, size, 5000) for size in sizes], axis=1).astype(np.int16)
    else:
        rows = class_rows(space)
    return Simulator(query.setting(), query.goals(), space, rows)


def _runs(query: Query, count: int, seed: int):  # type: ignore[no-untyped-def]
    """Yield (simulator, trace, class, what the simulator said, exact view) for random traces and classes."""
    simulator = _simulator(query)
    rng = np.random.default_rng(seed)
    for trace in repertoire(simulator.setting, count, rng, 0.5, simulator.probes):
        number = int(rng.integers(len(simulator.rows)))
        curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
        row, goal = simulator.rows[number], simulator.goal(trace)
        said = simulate(trace, goal, query.template.rates, row, simulator.conditions, simulator.rates, curves)
        if said == ILLEGAL or (said == SURVIVES and goal["transient"] == 0 and curves[5, query.T - 1] == 0):
            continue
        program = simulator.space.program(make_candidate(row, query.template.rates), "p")
        view = None
        if said != SURVIVES or goal["transient"] != 0:
            view = view_of_trace(trace, simulator.setting, program, curves)
        yield simulator, trace, number, said, view


@pytest.mark.parametrize("name", QUERIES)
def test_the_simulator_agrees_with_the_exact_replayer(name: str) -> None:
    query = _query(name)
    goals = query.goals()
    seen = dict.fromkeys((SURVIVES, MISSED, LARGE_LOSS, MISLED), 0)
    for _, _, _, said, view in _runs(query, 400, 5):
        seen[said] += 1
        if view is None:
            continue
        assert bool(broken_parts(goals, view)) == (said != SURVIVES)
    assert seen[MISSED] > 3


def _satisfiable(query: Query, program, view) -> str:  # type: ignore[no-untyped-def]
    """Ask the solver whether the encoding has this very trace as a violation."""
    setting, goals = query.setting(), query.goals()
    sender = ProgramSmtSender(program)
    encoding = encode(setting, sender, Needs(BOUNDS))
    v = encoding.view
    holds = all_of([goals.probing(v), goals.steady(v)])
    values = collect_values(view)
    fixed = [encoding.variables.all[name] == (bool(x) if isinstance(x, bool) else str(x)) for name, x in values.items()
             if name in encoding.variables.all and not (name.startswith("late_") and setting.delay_rule == "sound")]  # fmt: skip
    import z3

    violated = (
        z3.Not(holds)
        if goals.transient == "none"
        else z3.Not(z3.And(goals.probing(v), z3.Or(beliefs_shrink(v), goals.steady(v))))
    )
    return solve(to_smtlib([*encoding.formulas(), *fixed, violated]), "z3", 60).status


def _violations(name: str, wanted: int) -> int:
    query = _query(name)
    done = 0
    for seed in range(50):
        for simulator, _, number, said, view in _runs(query, 300, 100 + seed):
            if said == SURVIVES:
                continue
            program = simulator.space.program(make_candidate(simulator.rows[number], query.template.rates), "p")
            assert _satisfiable(query, program, view) == "sat"
            done += 1
            if done == wanted:
                return done
    return done


@pytest.mark.parametrize("name", ["g1_t5", "g5_small", "g6", "g5_arbitrary tighter", "g7_large_sound tighter"])
def test_simulated_violations_are_satisfiable(name: str) -> None:
    assert _violations(name, 12) == 12


@pytest.mark.slow
def test_500_simulated_violations_are_satisfiable() -> None:
    assert sum(_violations(name, 63) for name in [*QUERIES, "g7_large"]) >= 500


def test_a_counterexample_survives_the_exchange() -> None:
    """Simulator -> exact view -> simulator gives the same verdict for the same candidate."""
    query = load_query("g3_sound")
    done = 0
    for simulator, _, number, said, view in _runs(query, 600, 9):
        if said != MISSED:
            continue
        again = trace_of_view(view)
        assert again is not None
        simulator.alive = np.array([number])
        assert list(simulator.apply(again)) == [number]
        done += 1
    assert done > 5
