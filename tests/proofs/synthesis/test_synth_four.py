"""Templates of four rates: boxes against listing, functions against evaluation, counts, resume, limits."""

import json
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccenv.agents.programs import decide as decided_by
from ccenv.agents.programs import load_program
from ccenv.cli.main import main
from ccenv.proofs.synthesis.prove import Task, decide
from ccenv.proofs.synthesis.query import query as query_module
from ccenv.proofs.synthesis.query.classes import GOAL
from ccenv.proofs.synthesis.query.query import Query, load_query
from ccenv.proofs.synthesis.query.template import Candidate
from ccenv.proofs.synthesis.result import result, why
from ccenv.proofs.synthesis.run import solve_query, start
from ccenv.proofs.synthesis.search.boxes import HOLES
from ccenv.proofs.synthesis.search.factored import Cover, Family, cells, group_equal, raw_rows, volume
from ccenv.proofs.synthesis.search.kernel import ILLEGAL, SURVIVES, score
from ccenv.proofs.synthesis.search.search import Simulator, repertoire

SYNTHESIZED = Path(query_module.__file__).parents[2] / "agents" / "synthesized"
QUICK = load_query("quick_four")
LARGE = load_query("g7_arbitrary")
SPACE = LARGE.space()


@cache
def large_cells() -> Any:
    return cells(SPACE, LARGE.T)


def _all_rows(query: Query) -> np.ndarray:
    space = query.space()
    sizes = [len(space.condition_of)] * 3 + [len(space.rate_of)] * 4
    return np.array(list(product(*map(range, sizes))), dtype=np.int16)


def _random_rows(rng: np.random.Generator, count: int) -> np.ndarray:
    sizes = [len(SPACE.condition_of)] * 3 + [len(SPACE.rate_of)] * 4
    return np.stack([rng.integers(0, size, count) for size in sizes], axis=1).astype(np.int16)


def test_the_template_has_the_papers_size() -> None:
    assert SPACE.template.size() == 260**3 * 12**4  # [CCmatic] Table 2: 3 x 10^11
    assert volume(Cover(LARGE, SPACE).boxes) == 64**3 * 10**4


@pytest.mark.parametrize("seed", range(3))
def test_boxes_leave_what_a_listing_leaves(seed: int) -> None:
    """Random traces against a template of 4 conditions and 3 rates: by boxes, and each of its 5,184 rows by itself."""
    data = QUICK.model_dump()
    data["template"] |= {"rate": {"C_L": ["1/2", "1", "2"], "MSS/Rm": ["-1"]}}
    data["template"]["conditions"] = [{"qdel_L": [0, 1], "Rm": [-1, 0]}, {"C_L": [-2, "-3/2"], "C_U": [0, 1], "MSS/Rm": [1]}]
    data |= {"network": {"model": "ccac", "buffer": "arbitrary", "delay_rule": ["artefact", "sound"][seed % 2]}, "T": 6 + seed}
    data["objectives"] = LARGE.objectives
    query = Query.model_validate(data)
    rows, space = _all_rows(query), query.space()
    simulator = Simulator(query.setting(), query.objectives, space, raw_rows(space, rows))
    traces = repertoire(simulator.setting, 120, np.random.default_rng(seed), 0.5, probes=False)
    goals = np.array([simulator.goal(trace) for trace in traces], dtype=GOAL)
    out = np.zeros((len(traces), len(rows)), np.int8)
    score(traces, goals, 4, simulator.rows, simulator.conditions, simulator.rates, out)
    broken = (out != SURVIVES) & (out != ILLEGAL)
    # The strongest traces would leave nothing: weak ones make boxes small.
    weak = np.flatnonzero(broken.any(axis=1))[np.argsort(broken.sum(axis=1)[broken.any(axis=1)], kind="stable")][:20]
    left = rows[~broken[weak].any(axis=0)]
    assert 0 < len(left) < len(rows)
    found = Cover(query, space, list(traces[weak])).survivors(len(rows))
    assert found is not None
    np.testing.assert_array_equal(found, left)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_one_function_sends_the_same_everywhere(seed: int) -> None:
    """Rows that differ in one hole and are one function: no input tells the two programs apart."""
    rng = np.random.default_rng(seed)
    one = _random_rows(rng, 1)[0]
    other = one.copy()
    hole = rng.integers(HOLES)
    other[hole] = _random_rows(rng, 1)[0, hole]
    pair = np.array([one, other])
    if len(group_equal(large_cells(), pair)) == 2:
        return
    programs = [SPACE.program(Candidate(tuple(map(int, r[:3])), tuple(map(int, r[3:]))), "p") for r in raw_rows(SPACE, pair)]
    for _ in range(40):
        x = 1 + Fraction(int(rng.integers(0, 40)), int(rng.integers(1, 7)))
        y = max(x, x * int(rng.integers(2, 6)) / 2 + Fraction(int(rng.integers(-4, 5)), 2))
        delay = Fraction(int(rng.integers(0, 5)))
        inputs = {"C_L": x, "C_U": y, "MSS/Rm": Fraction(1), "qdel_L": delay, "Rm": Fraction(1)}
        assert decided_by(programs[0], inputs).rate == decided_by(programs[1], inputs).rate


def test_programs_that_no_cell_tells_apart_are_found() -> None:
    """A dead branch, equal sides and a swap of two conditions are one function each; cells do tell strict conditions apart."""
    conditions = [tuple(sorted((n, str(v)) for n, v in SPACE.conditions[i])) for i in SPACE.condition_of]
    wide, narrow = conditions.index((("C_L", "-2"), ("C_U", "1"))), conditions.index((("C_L", "-3/2"), ("C_U", "1")))
    late = conditions.index((("Rm", "-2"), ("qdel_L", "1")))
    flip = conditions.index((("C_L", "2"), ("C_U", "-1")))
    rows = [
        [wide, narrow, late, 1, 2, 3, 4], [wide, narrow, late, 1, 5, 3, 4],  # C_U > 2 C_L implies C_U > 3/2 C_L
        [late, wide, wide, 1, 2, 3, 4], [wide, late, late, 1, 3, 2, 4], [wide, late, narrow, 1, 1, 3, 3],
        [wide, narrow, late, 1, 1, 3, 3], [flip, late, narrow, 3, 3, 1, 1],  # differs where C_U = 2 C_L
    ]  # fmt: skip
    groups = [group.tolist() for group in group_equal(large_cells(), np.array(rows, dtype=np.int16))]
    assert groups == [[0, 1], [2, 3], [4, 5], [6]]


def test_a_kept_trace_breaks_something() -> None:
    """What traces are tried for is what they are replayed for, where the objective depends on the buffer, too."""
    rows = raw_rows(SPACE, _random_rows(np.random.default_rng(3), 200))
    found: list[int] = []
    simulator = Simulator(LARGE.setting(), LARGE.objectives, SPACE, rows)
    traces = repertoire(simulator.setting, 400, np.random.default_rng(4), 0.5, probes=False)
    hits = simulator._try_traces(traces, np.random.default_rng(5))
    for trace, hit in zip(traces, hits, strict=True):
        simulator.alive = np.arange(len(rows))
        assert list(simulator.apply(trace)) == np.flatnonzero(hit).tolist()
        found.append(int(hit.sum()))
    assert sum(found) > 100


WRONG = QUICK.model_validate(
    QUICK.model_dump()
    | {"beliefs": {"timeouts": "paper", "start": "any"}, "objectives": QUICK.objectives}
    | {"template": QUICK.template.model_dump() | {"conditions": [QUICK.template.conditions[0], {"C_L": [1], "C_U": [0, -1]}]}}
)
"""Beliefs that may be wrong: C_L > C_U is a condition then."""


def _by_hand(query: Query) -> dict[tuple, list[Candidate]]:
    """Group every raw candidate by what it sends at every point where coefficients of +-2 can tell programs apart."""
    space = query.space()
    grid = [Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(9, 2), Fraction(7)]
    inputs = [
        {"C_L": x, "C_U": y, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delay), "Rm": Fraction(1)}
        for x in grid
        for y in [x * k for k in (Fraction(1, 3), Fraction(2, 3), 1, Fraction(5, 4), 2, 3)]
        if y >= (1 if query.beliefs.start == "any" else x)
        for delay in range(4)
    ]
    truths = [[sum((c * v[n] for n, c in terms), start=Fraction(0)) > 0 for v in inputs] for terms in space.conditions]
    sent = [[max(sum((c * v[n] for n, c in terms), start=Fraction(0)), Fraction(1)) for v in inputs] for terms in space.rates]
    out: dict[tuple, list[Candidate]] = {}
    for conditions in product(range(len(truths)), repeat=3):
        places = []
        for k in range(len(inputs)):
            inner = 0 if truths[conditions[0]][k] else 2
            places.append(inner if truths[conditions[1 if inner == 0 else 2]][k] else inner + 1)
        for rates in product(range(len(sent)), repeat=4):
            found = tuple(sent[rates[place]][k] for k, place in enumerate(places))
            out.setdefault(found, []).append(Candidate(conditions, rates))
    return out


@pytest.mark.parametrize("query", [QUICK, WRONG])
def test_families_count_every_raw_candidate_once(query: Query) -> None:
    """Raw counts and keys of all functions of the small template against grouping its 3,456 candidates by what they send."""
    space, rows = query.space(), _all_rows(query)
    found = cells(space, query.T, ordered=query.beliefs.start == "consistent")
    families = [Family(space, rows[group]) for group in group_equal(found, rows)]
    expected = _by_hand(query)
    assert len(families) == len(expected)
    by_member = {candidate: members for members in expected.values() for candidate in members}
    for family in families:
        members = by_member[next(family.candidates())]
        assert family.raw() == len(members) and family.keys() == {space.key(candidate) for candidate in members}
        assert all(by_member[candidate] is members for candidate in family.candidates())
    assert sum(family.raw() for family in families) == space.template.size() == 3456


def _answer(folder: Path, jobs: int = 1, query: Query = QUICK) -> dict:
    run = start(query, folder)
    solve_query(run, jobs)
    return result(run)


@pytest.mark.slow
def test_a_small_template_of_four_rates_equals_verification_one_by_one(tmp_path: Path) -> None:
    run = start(QUICK, tmp_path)
    solve_query(run)
    assert run.families is not None
    space, solved = QUICK.space(), {}
    for members in _by_hand(QUICK).values():
        task = Task(QUICK.setting(), QUICK.objectives, space.program(members[0], "p"), 60, full=True)
        solved[frozenset(members)] = decide(task).status
    solutions = {key for key, status in solved.items() if status == "proved"}
    assert set(solved.values()) == {"proved", "refuted"}
    found = {next(key for key in solved if next(run.families.family(number).candidates()) in key) for number in run.proved}
    assert found == solutions
    answer = result(run)
    assert (answer["canonical"], answer["raw"]) == (len(solutions), sum(map(len, solutions)))
    assert answer["keys"] == len({space.key(candidate) for members in solutions for candidate in members})


def _same(one: dict, two: dict) -> None:
    for key in ("keys", "raw", "canonical", "counterexamples", "z3_calls", "funnel", "complete"):
        assert one[key] == two[key]
    assert [s["program"] for s in one["solutions"]] == [s["program"] for s in two["solutions"]]


def test_an_answer_is_kept_whatever_the_limits_are_later(tmp_path: Path) -> None:
    first = _answer(tmp_path)
    assert first["complete"]
    limits = QUICK.limits.model_copy(update={"budget_s": 1e-6, "classes": 1})
    _same(_answer(tmp_path, query=QUICK.model_copy(update={"limits": limits})), first)


@pytest.mark.slow
def test_workers_change_nothing_with_four_rates(tmp_path: Path) -> None:
    _same(_answer(tmp_path / "two", jobs=2), _answer(tmp_path / "one"))


def test_exit_code_and_page_of_an_answer_that_stays_open(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "quick_four", "--budget", "0.000001", "-s", "report=page.html", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["complete"] is False and "boxed" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "keys", "raw"), [("g7_arbitrary", 6, 210), ("g7_arbitrary_paper", 0, 0), ("g7_arbitrary_sound", 4, 180)]
)
def test_the_last_row_of_table_2(name: str, keys: int, raw: int, tmp_path: Path) -> None:
    answer = _answer(tmp_path, query=load_query(name))
    assert answer["complete"] and (answer["keys"], answer["raw"]) == (keys, raw)
    key = "3/2 C_L -1 C_U ; 1 qdel_L ; -2 C_L 1 C_U ; - ; 1 C_L ; 2 C_L ; 1 C_L"  # cc_probe_qdel
    assert any(key in solution["keys"] for solution in answer["solutions"]) == (keys == 6)


@pytest.mark.slow
def test_cc_probe_qdel_solves_its_query(tmp_path: Path) -> None:
    """Listing 2's program with the published code's buffer; the paper's smaller one has a counterexample."""
    program = load_program(SYNTHESIZED / "cc_probe_qdel.json")
    assert why(LARGE, program, tmp_path)["status"] == "proved"
    told = why(load_query("g7_arbitrary_paper"), program, tmp_path)
    assert (told["status"], told["missed"], told["engine"]) == ("refuted", "no large loss while probing", "reproduced")
