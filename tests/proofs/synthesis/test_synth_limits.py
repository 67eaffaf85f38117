"""Templates, the simulator of candidates, and their limits."""

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ccenv.agents.programs import decide as decide_program
from ccenv.base.errors import InputError, ProgramError
from ccenv.proofs.claims.properties import beliefs_shrink
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.synthesis.prove import BOUNDS, Task, broken_parts, collect_values, decide
from ccenv.proofs.synthesis.query import template as template_module
from ccenv.proofs.synthesis.query.classes import ANY_LOSS, GOAL, LARGEST, MOST_SAMPLES, class_rows, count_classes, members
from ccenv.proofs.synthesis.query.query import Query, load_query
from ccenv.proofs.synthesis.query.template import ALWAYS, NEVER, Candidate, Template
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start, trace_of_view, view_of_trace
from ccenv.proofs.synthesis.search.cegis import cegis, make_candidate
from ccenv.proofs.synthesis.search.factored import Cover, raw_rows
from ccenv.proofs.synthesis.search.kernel import CURVES, ILLEGAL, LARGE_LOSS, MISLED, MISSED, SURVIVES, score, simulate
from ccenv.proofs.synthesis.search.search import Simulator, repertoire

BASE: dict[str, Any] = {
    "name": "mine", "title": "small", "network": {"model": "ccac"}, "T": 5,
    "template": {"rates": 2, "rate": {"C_L": [0, 1, 2]}, "conditions": [{"qdel_L": [-1, 0, 1], "Rm": [-1, 0, 1]}]},
}  # fmt: skip


def _with(part: str, **changes: Any) -> dict[str, Any]:
    return BASE | {part: BASE.get(part, {}) | changes}


def _template(**changes: Any) -> dict[str, Any]:
    return _with("template", **changes)


@pytest.mark.parametrize(("data", "said"), [
    (_with("objectives", inflight="1/0 MSS"), "a number such as 1"), (_with("network", buffer="1e30"), "at most 1000"),
    (_with("network", buffer="1/100000007"), "a multiple of 1/"),
    (_with("network", sent_before="3 MSS", delay_rule="artefact"), "needs network.delay_rule sound"),
    (_with("beliefs", upper="exact"), "unknown key 'beliefs.upper'"),
    (_template(rate={"C_L": [0, 10**30]}), "sum up to at most 16"), (_template(rate={"C_U": [1]}), "C_U is not searched over"),
    (_template(conditions=[{"q_U": [1], "MSS": [-1]}]), "MSS is not searched over"),
    (_template(conditions=[{"qdel_U": [1], "Rm": [-1]}]), "qdel_U is not searched over"),
    (_template(conditions=[{"qdel_L": [1], "Rm": [-3]}]) | {"network": {"delay_rule": "artefact"}, "T": 4}, "up to 2 Rm"),
    (_with("limits", call_s=float("inf")), "less than or equal to 1000000"),
    (_template(conditions=[{"qdel_L": ["1/2"], "Rm": [-3]}]), "up to 4 Rm, got qdel_L 1/2 with Rm -3"),
])  # fmt: skip
def test_what_the_integers_do_not_hold_is_refused_in_one_line(data, said, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(data))
    refused(["synth", "mine.yaml"], said)


def test_more_expressions_than_rows_can_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MOST_TERMS", 8)
    with pytest.raises(InputError, match="9 conditions; rows hold at most 8"):
        Query.model_validate(BASE).space()


def test_thresholds_that_no_trace_can_miss_are_as_good_as_none() -> None:
    """An amount beyond 63 bits is never reached; it must not wrap around to one that is."""
    data = _with("objectives", inflight="99999999999999999999 MSS", lossy_steps=10**30, large_loss="9999999999999999999 MSS")
    query = Query.model_validate(data | {"network": {"model": "ccac", "buffer": "small"}})
    goal = query.objectives.goal(query.setting(), LARGEST, LARGEST // 100, LARGEST // 2)
    assert (goal["inflight"], goal["step_loss"], goal["lossy_steps"]) == (ANY_LOSS, ANY_LOSS, query.T)


def test_delays_longer_than_the_trace_are_told_apart() -> None:
    """In 3 samples a byte of the past may be 5 Rm late by the sound rule; by the published one no trace shows that."""
    late = Query.model_validate(_template(conditions=[{"qdel_L": [1], "Rm": [-4]}]) | {"T": 3})
    assert late.space().condition_class.tolist() == [0]
    program = late.space().program(Candidate((0,), (1, 2)), "late")
    with pytest.raises(ProgramError, match="6 steps apart"):
        decide(Task(load_query("quick").setting(), late.objectives, program, 1.0))


def test_a_program_that_sends_too_much_for_the_integers_is_not_judged() -> None:
    query = load_query("quick")
    simulator = Simulator(query.setting(), query.objectives, query.space(), np.zeros((1, 3), np.int16))
    traces = repertoire(simulator.setting, 40, np.random.default_rng(0), 0.0, probes=False)
    fastest = int(np.argmax(simulator.rates["C_L"]))
    row = np.array([0, fastest, fastest], np.int16)
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)

    def found(trace: np.ndarray) -> int:
        return simulate(trace, simulator.goal(trace), 2, row, simulator.conditions, simulator.rates, curves)

    assert SURVIVES in map(found, traces)
    traces["C_L"] = traces["C_U"] = 4 * LARGEST
    assert {found(trace) for trace in traces} == {ILLEGAL}


def test_boxes_split_where_a_rate_is_no_whole_number() -> None:
    """Half of an odd C_L cannot be run; the programs beside it can, and what a trace does to them is not the same."""
    query = load_query("quick_four")
    query = query.model_copy(update={"network": query.network.model_copy(update={"delay_rule": "sound"})})
    space = query.space()
    sizes = [len(space.condition_of)] * 3 + [len(space.rate_of)] * 4
    rows = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, 7).astype(np.int16)
    simulator = Simulator(query.setting(), query.objectives, space, raw_rows(space, rows))
    traces = repertoire(simulator.setting, 400, np.random.default_rng(1), 0.0, probes=False)
    traces["C_L"] -= 1 - traces["C_L"] % 2
    goals = np.array([simulator.goal(trace) for trace in traces], dtype=GOAL)
    out = np.zeros((len(traces), len(rows)), np.int8)
    score(traces, goals, 4, simulator.rows, simulator.conditions, simulator.rates, out)
    broken = (out != SURVIVES) & (out != ILLEGAL)
    uneven = np.flatnonzero(broken.any(axis=1) & (out == ILLEGAL).any(axis=1))
    weak = uneven[np.argsort(broken[uneven].sum(axis=1), kind="stable")][:12]
    left = rows[~broken[weak].any(axis=0)]
    found = Cover(query, space, list(traces[weak])).survivors(len(rows))
    assert len(weak) == 12 and 0 < len(left) < len(rows)
    np.testing.assert_array_equal(found, left)


def test_open_classes_that_fall_later_are_not_unknown_and_proved_ones_must_not_fall(tmp_path: Path) -> None:
    run = start(load_query("quick"), tmp_path)
    run.unknown = {0: "timeout", 1: "timeout"}
    run.simulator.alive = run.simulator.alive[1:]
    for proved, unknown in ({}, {1: "timeout"}), ({1: {}}, {}):
        run.proved = proved
        run.settle()
        assert run.unknown == unknown
    run.proved = {0: {}}
    with pytest.raises(ReplayError, match="class 0 is proved, and broken"):
        run.settle()


def test_a_limit_on_what_was_sent_before_the_trace(tmp_path: Path) -> None:
    """Simulated pasts obey it, and the answer is that of plain CEGIS."""
    query = Query.model_validate(_with("network", sent_before="1/2 C*Rm"))
    run = start(query, tmp_path)
    solve_query(run)
    answer, plain = result(run), cegis(query, 100.0)
    assert answer["complete"] and plain["complete"] and answer["raw"] == plain["raw"] == 3
    assert run.counterexamples > 0


SPACE = load_query("g1_t5").space()
ROWS = class_rows(SPACE)


def _truth(terms: tuple[tuple[str, Fraction], ...], values: dict[str, Fraction]) -> bool:
    return sum((c * values[name] for name, c in terms), start=Fraction(0)) > 0


def test_templates_have_the_papers_sizes_and_each_raw_candidate_is_in_exactly_one_class() -> None:
    template = SPACE.template
    assert template.size() == 37_440  # [CCmatic] Table 2: 3 x 10^4
    assert load_query("g4_arbitrary").space().template.size() == 260**2 * 12**3  # 10^8
    assert Template(4, template.rate_domains, template.condition_domains).size() == 260**3 * 12**4  # 3 x 10^11
    assert (len(SPACE.condition_of), len(SPACE.rate_of)) == (64, 10) and len(ROWS) == count_classes(SPACE) == 5770
    found = [candidate for row in ROWS for candidate in members(SPACE, row)]
    assert len(set(found)) == len(found) == 37_440


_POSITIVE = st.fractions(min_value=0, max_value=4, max_denominator=6)


@given(_POSITIVE, _POSITIVE, st.sampled_from(["inside", "left", "diagonal", "corner"]), st.integers(0, 5))
def test_conditions_of_a_class_agree_everywhere(above: Fraction, gap: Fraction, where: str, delay: int) -> None:
    x = Fraction(1) + (0 if where in ("left", "corner") else above)
    y = x + (0 if where in ("diagonal", "corner") else gap)
    values = {"C_L": x, "C_U": y, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delay), "Rm": Fraction(1)}
    for index, terms in enumerate(SPACE.conditions):
        kind = SPACE.condition_class[index]
        expected = kind == ALWAYS
        if kind not in (ALWAYS, NEVER):
            expected = _truth(SPACE.conditions[SPACE.condition_of[kind]], values) != SPACE.condition_flipped[index]
        assert _truth(terms, values) == expected


@given(st.integers(0, 37_439), _POSITIVE, _POSITIVE, st.integers(0, 4))
def test_members_decide_like_their_class(number: int, above: Fraction, gap: Fraction, delay: int) -> None:
    conditions, rates = len(SPACE.conditions), len(SPACE.rates)
    raw = Candidate((number // rates**2 % conditions,), (number // rates % rates, number % rates))
    x = 1 + above
    inputs = {"C_L": x, "C_U": x + gap, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delay), "Rm": Fraction(1)}
    rate = decide_program(SPACE.program(raw, "raw"), inputs).rate
    # The reference reads the coefficients themselves: nothing of the classes.
    taken = raw.rates[0] if _truth(SPACE.conditions[raw.conditions[0]], inputs) else raw.rates[1]
    assert rate == max(sum((c * inputs[n] for n, c in SPACE.rates[taken]), start=Fraction(0)), 1)


def test_chain_rows_are_distinct_and_unfold_to_programs() -> None:
    space = load_query("g4_small").space()
    rows = class_rows(space)
    assert len(np.unique(rows, axis=0)) == len(rows) <= count_classes(space)
    program = space.program(Candidate(tuple(map(int, rows[-1][:2])), tuple(map(int, rows[-1][2:]))), "last")
    assert len(list(program.rules())) == 5


QUERIES = [
    "g1_t5", "g1_t5_sound", "g2", "g3_sound", "g5_arbitrary", "g5_small", "g7_large_no_loss", "g6", "g6_kept", "g7_arbitrary",
    "g3_sound exact", "g5_arbitrary tighter", "g7_large_sound tighter", "g7_arbitrary tighter",
]  # fmt: skip
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
    return Simulator(query.setting(), query.objectives, space, rows)


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
    query, seen = _query(name), dict.fromkeys((SURVIVES, MISSED, LARGE_LOSS, MISLED), 0)
    for _, _, _, said, view in _runs(query, 400, 5):
        seen[said] += 1
        assert view is None or bool(broken_parts(query.objectives, view)) == (said != SURVIVES)
    assert seen[MISSED] > 3


def _satisfiable(query: Query, program, view) -> str:  # type: ignore[no-untyped-def]
    """Ask the solver whether the encoding has this very trace as a violation."""
    import z3

    setting, goals = query.setting(), query.objectives
    encoding = encode(setting, ProgramSmtSender(program), Needs(BOUNDS))
    v = encoding.view
    names = {name for name in encoding.variables.all if not (name.startswith("late_") and setting.delay_rule == "sound")}
    known = {name: bool(x) if isinstance(x, bool) else str(x) for name, x in collect_values(view).items() if name in names}
    fixed = [encoding.variables.all[name] == value for name, value in known.items()]
    steady = goals.steady(v) if goals.transient == "none" else z3.Or(beliefs_shrink(v), goals.steady(v))
    return solve(to_smtlib([*encoding.formulas(), *fixed, z3.Not(z3.And(goals.probing(v), steady))]), "z3", 60).status


def _violations(name: str, wanted: int) -> int:
    query = _query(name)
    runs = (run for seed in range(50) for run in _runs(query, 300, 100 + seed))
    found = list(itertools.islice((run for run in runs if run[3] != SURVIVES), wanted))
    for simulator, _, number, _, view in found:
        program = simulator.space.program(make_candidate(simulator.rows[number], query.template.rates), "p")
        assert _satisfiable(query, program, view) == "sat"
    return len(found)


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
        simulator.alive = np.array([number])
        assert list(simulator.apply(again)) == [number]
        done += 1
    assert done > 5
