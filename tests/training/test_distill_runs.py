"""Distillation: its parts against plain evaluation, whole runs, and the shipped programs."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import distillation as record

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.learned import save_policy
from ccenv.agents.programs import Branch, Expression, Leaf, Program, load_program, to_data
from ccenv.agents.sender import PolicySender, ProgramSender
from ccenv.attacks.run import attack
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.envs.curve.settings import EnvSettings, RewardWeights
from ccenv.envs.curve.task import SenderTask
from ccenv.proofs.claims.verifier import Verifier
from ccenv.training.distill import claims, traces
from ccenv.training.distill import objective as scores
from ccenv.training.distill import prove as prove_module
from ccenv.training.distill.claims import ClaimNumbers, numbers_for
from ccenv.training.distill.imitation import policy_actions
from ccenv.training.distill.objective import USUAL_WORLD, Objective, ProgramScorer, Teacher, load_teacher
from ccenv.training.distill.prove import _Loop, prove
from ccenv.training.distill.run import Stages
from ccenv.training.distill.tree import (
    DELAY,
    GUARDS,
    LOSS,
    RATIO,
    UTILISED,
    Samples,
    Slot,
    Split,
    build,
    depth,
    fit_leaves,
    grow,
    ladder,
    parts,
    predict,
    safety_shell,
    size,
)
from ccenv.training.evaluation import evaluate_in_world
from ccenv.training.path_sets import PathSet, path_seed


def constant_policy(action: float) -> PolicySender:
    return PolicySender("still", (np.zeros((N_OBSERVATION, 1)),), (np.array([action]),), "tanh")


def shell_program(theta: str, hold: str, drain: str = "1/2", probe: str = "2") -> Program:
    def rate(a: str, b: int = 0) -> Leaf:
        return Leaf(Expression((("C_L", Fraction(a)), *([("MSS/Rm", Fraction(b))] if b else []))))

    wide = Branch("utilised", rate("1"), rate(probe, 1))
    ratio = Expression((("C_U", Fraction(1)), ("C_L", -Fraction(theta))))
    return Program("shell", Branch(Expression((("qdel_L", Fraction(1)),)), rate(drain), Branch(ratio, wide, rate(hold))))


@pytest.mark.parametrize("world", [{}, {"senders": ("cubic", "external"), "models": ("cbr_delay",)}], ids=["alone", "shared"])
def test_scores_equal_the_evaluation_of_one_sender(world: dict[str, object]) -> None:
    names = ("cc_probe_drain", "cc_probe_qdel")
    programs = [make_sender(name).program for name in names]  # type: ignore[union-attr]
    weights = RewardWeights(queue=-0.6, delay=-0.3, jain=0.5)
    alone = {"models": ("cbr_delay", "ccac"), "adversary": "uniform", "beliefs": "paper"}
    world = EnvSettings(reward=weights, steps_per_rtt=4, **(alone | world))
    scorer = ProgramScorer(world, 24, PathSet.SELECT, 3, warmup_rtts=20, measure_rtts=10)
    found = scorer.scores(programs)
    for i, name in enumerate(names):
        one = evaluate_in_world(world, make_sender(name), 24, 3, path_set=PathSet.SELECT, warmup_rtts=20, measure_rtts=10)
        assert found.delay_rtts[i] == pytest.approx(one.delay_rtts, abs=1e-12)
        assert found.score[i] == pytest.approx(one.score, abs=1e-12) and found.loss[i] == pytest.approx(one.loss, abs=1e-12)


def test_cart_finds_a_tree_that_is_there() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    ratio, delay, mss = rng.uniform(1, 6, n), rng.uniform(0, 2, n), rng.uniform(0, 0.5, n)
    used, lost = rng.integers(0, 2, n), rng.integers(0, 2, n)
    features = np.stack([ratio, delay, mss, used, lost], axis=1).astype(float)
    rate = np.where(ratio > 3.0, 2.0 + 1.5 * mss, np.where(used > 0, 0.5, 1.0 + 0.25 * mss))
    template, numbers = grow(Samples(features, rate), 2)
    assert isinstance(template, Split) and template.guard is RATIO and isinstance(template.otherwise, Split)
    assert template.otherwise.guard is UTILISED and predict(template, numbers, features) == pytest.approx(rate, abs=0.01)
    program = build(template, numbers, "found")
    expected = Expression((("C_U", Fraction(1)), ("C_L", Fraction(-3))))
    assert isinstance(program.rule, Branch) and program.rule.condition == expected


def test_cart_grows_no_split_that_gains_nothing_and_leaves_are_fitted_with_guards_kept() -> None:
    features = np.random.default_rng(1).uniform(1, 5, (500, len(GUARDS)))
    template, numbers = grow(Samples(features, np.full(500, 1.5)), 3)
    assert isinstance(template, Slot) and numbers == pytest.approx([1.5, 0.0], abs=1e-6)
    shell, start = safety_shell(1)
    rng = np.random.default_rng(2)
    features = np.stack([rng.uniform(1, 5, 2000), np.zeros(2000), np.full(2000, 0.1), np.ones(2000), np.zeros(2000)], axis=1)
    fitted = fit_leaves(shell, start, Samples(features, np.full(2000, 0.7)))
    assert fitted[3] == start[3] == 1.75  # the guard on C_U / C_L
    assert predict(shell, fitted, features) == pytest.approx(0.7, rel=1e-6)
    assert fitted[1:3].tolist() == start[1:3].tolist()  # nothing reaches the drain leaf


def test_templates_round_to_their_grids() -> None:
    template = Split(LOSS, Slot(), Split(DELAY, Slot(), Slot()))
    assert (size(template), depth(template), len(list(parts(template)))) == (7, 2, 5)
    program = build(template, np.array([0.512, 0.1, 1.333, 2.26, -0.1, 0.0, 0.0]), "x")
    assert isinstance(program.rule, Branch) and program.rule.condition == "loss"
    assert program.rule.then == Leaf(Expression((("C_L", Fraction(1, 2)),)))
    inner = program.rule.otherwise
    assert isinstance(inner, Branch) and isinstance(inner.otherwise, Leaf)
    assert inner.condition == Expression((("qdel_L", Fraction(1)), ("Rm", Fraction(-27, 20))))
    assert inner.then == Leaf(Expression((("C_L", Fraction(9, 4)),)))
    assert inner.otherwise == Leaf(Expression((("MSS/Rm", Fraction(1)),)))  # no rate at all: line 7


@pytest.mark.parametrize("levels", [3, 4, 6])
def test_shapes_have_their_depth_and_all_their_numbers(levels: int) -> None:
    for template, numbers in (ladder(levels), safety_shell(levels - 2)):
        assert (depth(template), size(template)) == (levels, len(numbers))
    ratios = [float(-c.condition.coefficient("C_L")) for c in build(*ladder(levels), "x").rules() if is_ratio(c)]
    assert ratios[0] < min(ratios[1:]) and ratios[1:] == sorted(ratios[1:])  # every rung can be reached


def is_ratio(rule: object) -> bool:
    return isinstance(rule, Branch) and isinstance(rule.condition, Expression) and rule.condition.unit == "bytes/s"


def test_policy_actions_equal_the_plain_reference() -> None:
    from oracles.policies import mlp_action_reference

    rng = np.random.default_rng(3)
    weights = (rng.normal(size=(N_OBSERVATION, 8)), rng.normal(size=(8, 1)))
    policy = PolicySender("p", weights, (rng.normal(size=8), rng.normal(size=1)), "relu")
    seen = rng.normal(size=(20, N_OBSERVATION))
    assert policy_actions(policy, seen).tolist() == pytest.approx([mlp_action_reference(policy, row) for row in seen])


@pytest.mark.parametrize(
    ("program", "lemma"), [(shell_program("4", "1/2"), "utilisation"), (shell_program("2", "3", "3"), "no loss")]
)
def test_what_the_simulation_breaks_the_solver_breaks(program: Program, lemma: str) -> None:
    """Simulated violations are satisfiable in the encoding, and the solver's counterexamples break the simulated lemma."""
    numbers = claims.ClaimNumbers()
    pool = traces.random_traces(4000, 0)
    column = traces.LEMMAS.index(lemma)
    assert traces.violations(program, pool, numbers)[:, column].max() > 0.01
    name = {"utilisation": "F.7 utilisation", "no loss": "F.7 loss"}[lemma]
    (query,) = dict(claims.claim_queries(program, numbers))[name]
    result = Verifier(60).decide(query)
    assert result.verdict == "refuted" and result.view is not None
    again = traces.from_view(result.view, program)
    # A tie that rounding decides otherwise may save the trace itself, not all that lie near it.
    assert traces.violations(program, traces.neighbours(again, 2000, 0), numbers)[:, column].max() > 0


def test_neighbours_of_a_violation_are_mostly_violations() -> None:
    program, numbers = shell_program("4", "1/2"), claims.ClaimNumbers()
    pool = traces.random_traces(4000, 0)
    broken = traces.violations(program, pool, numbers)[:, 0] > 0
    near = traces.violations(program, traces.neighbours(pool.part(np.flatnonzero(broken)), 1000, 1), numbers)[:, 0] > 0
    assert near.mean() > 3 * broken.mean()


def test_constant_policy_is_imitated_exactly() -> None:
    from ccenv.training.distill.imitation import imitate

    result = imitate(constant_policy(0.25), 2, 0, USUAL_WORLD)
    assert isinstance(result.template, Slot) and result.error < 0.02
    assert result.numbers[0] == pytest.approx(2 ** (3 * 0.25), rel=0.01)
    assert ProgramSender("x", build(result.template, result.numbers, "x")).program.inputs() >= {"C_L"}


SMALL = ("-s", "n_paths=8", "-s", "generations=1")


def nominal(n_paths: int) -> Objective:
    return Objective(Teacher(constant_policy(0.0), USUAL_WORLD, None), n_paths, seed=0)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> _Loop:
    monkeypatch.setattr(prove_module, "POOL", 2000)
    monkeypatch.setattr(prove_module, "FRESH", 4000)
    monkeypatch.setattr(prove_module, "NEAR", 2000)
    return _Loop(ClaimNumbers(), nominal(8), Verifier(60), seed=0)


def test_a_counterexample_of_the_solver_is_remembered(loop: _Loop) -> None:
    program = shell_program("7/4", "1")  # freezes just below 54 %: too rare for few random traces, not for the solver
    loop.searched = loop.numbers
    before = len(loop.pool)
    assert loop.examine(program, 0) == "solver: F.7 utilisation" and len(loop.pool) > before
    assert loop.judge([program])[0] == -1.0  # refused by name
    assert loop._penalty(program, loop.pool) > 0  # and its relatives by the pool


def test_a_simulated_violation_does_not_reach_the_solver(loop: _Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_ask_solver", lambda *a: pytest.fail("the solver was asked"))
    assert "utilisation" in loop.examine(shell_program("4", "1/2"), 0)


def test_a_loop_goes_on_where_it_was_killed(loop: _Loop, tmp_path: Path) -> None:
    loop._learn(shell_program("4", "1/2"), loop.pool)
    loop.refused.add("something")
    loop.save(tmp_path / "pool.npz", np.arange(3.0), [{"round": 0}])
    other = _Loop(loop.numbers, loop.objective, loop.verifier, seed=0)
    mean, records = other.load(tmp_path / "pool.npz") or pytest.fail("nothing loaded")
    assert (mean.tolist(), records, other.refused) == ([0.0, 1.0, 2.0], [{"round": 0}], {"something"})
    assert np.array_equal(other.pool.starts, loop.pool.starts) and np.array_equal(other.pool.moves, loop.pool.moves)
    assert _Loop(numbers_for(0.7), loop.objective, loop.verifier, seed=0).load(tmp_path / "pool.npz") is None
    assert _Loop(loop.numbers, loop.objective, loop.verifier, 0, "other code").load(tmp_path / "pool.npz") is None


@pytest.mark.slow
def test_an_easy_claim_is_proved_without_hand_work() -> None:
    shell, start = safety_shell(1)
    found = prove(shell, start, numbers_for(0.3), nominal(32), name="easy", budget_s=900)
    assert found.verdict == "verified"


def test_distill_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer) -> None:
    monkeypatch.chdir(tmp_path)
    save_policy(tmp_path / "still", constant_policy(0.0))
    shorter = lambda *of, budget_flow_steps, **more: attack(*of, budget_flow_steps=min(budget_flow_steps, 200_000), **more)  # noqa: E731
    monkeypatch.setattr(scores, "attack", shorter)
    command = ["distill", "still.safetensors", "--depth", "1", "--json", *SMALL]
    first = answer(command)
    assert first["score"] > first["teacher_score"] - 0.01
    assert first["program"]["format"] == "ccenv-program" and 0 <= first["worst_utilisation"] <= 1
    assert make_sender(first["file"]).name == "still_d1"
    folder = tmp_path / "runs" / "distill-still-d1-0"
    assert "# still_d1" in (folder / "report.md").read_text()
    key = json.loads((folder / "stages" / "tree.json").read_text())["key"]
    assert key["attack_flow_steps"] == 2_000_000  # the worst case is part of what the stage comes to
    assert main(command) == 0  # nothing is done twice
    assert json.loads(capsys.readouterr().out)["seconds"] == first["seconds"]
    assert {name: (case["set"], case["seen"]) for name, case in first["worst"].items()} == {
        "deep": ("training", False), "shallow": ("training", False), "long_jitter": ("report", False),
        "narrow": ("report", False),
    }  # fmt: skip
    report = ("long_jitter", "narrow")
    assert first["worst_utilisation"] == min(first["worst"][name]["utilisation"] for name in report)
    assert first["evaluation"]["path_set"] == "report"
    record_it(tmp_path, folder, first)


def record_it(tmp_path: Path, folder: Path, result: dict[str, Any]) -> None:
    file = tmp_path / "record.json"
    file.write_text(json.dumps({**record.FORMAT.head, "runs": [], "suites": {}}))
    for _ in range(2):  # in place of the earlier one
        record.add(file, folder, "ccenv distill still.safetensors --depth 1")
    (first,) = json.loads(file.read_text())["runs"]
    assert first["score"] == result["score"] and first["worst"] == result["worst"]
    record.measure_again(file, attack_flow_steps=20_000)
    (again,) = json.loads(file.read_text())["runs"]
    assert again["evaluation"] == first["evaluation"] and again["teacher_score"] == first["teacher_score"]
    assert again["program"] == first["program"] and again["worst"] != first["worst"]  # a smaller budget
    rows = record.results(json.loads(file.read_text()))
    assert [row["sender"] for row in rows[:2]] == ["still (teacher)", "still_d1"] and rows[1]["score"] == f"{result['score']:.3f}"
    with pytest.raises(InputError, match=r"distill\.json: cannot be read"):
        record.add(file, tmp_path, "")
    (tmp_path / "distill.json").write_text("{}")
    with pytest.raises(InputError, match="not the result of ccenv distill"):
        record.add(file, tmp_path, "")
    with pytest.raises(InputError, match="not a record"):
        record.measure_again(tmp_path / "distill.json")


def test_shapes_are_chosen_on_other_paths_than_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set of a search, of a choice and of the report: no path of one is in another."""
    seen: dict[str, set[float]] = {}
    real = scores.PathSource.draw

    def spied(self: Any, seeds: Any, lanes: Any, episodes: Any) -> Any:
        drawn = real(self, seeds, lanes, episodes)
        seen.setdefault(str(seeds[0]), set()).update(drawn.paths.link_rate_Bps.tolist())
        return drawn

    monkeypatch.setattr(scores.PathSource, "draw", spied)
    objective = nominal(64)
    program = make_sender("cc_probe_drain").program  # type: ignore[union-attr]
    assert objective.select_value(program) != objective.values([program])[0]
    evaluate_in_world(USUAL_WORLD, make_sender("cc_probe_drain"), 64, warmup_rtts=1, measure_rtts=1)
    SenderTask(64, USUAL_WORLD).core.reset(seed=path_seed(PathSet.TRAIN, 0))
    assert set(seen) >= {str(path_seed(which)) for which in PathSet if which is not PathSet.STOP}
    rates = [seen[str(path_seed(which))] for which in PathSet if which is not PathSet.STOP]
    assert sum(map(len, rates)) == len(set().union(*rates)) == 4 * 64


def test_other_limits_search_on_only_where_nothing_was_proved_and_other_code_does_all_again(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"seed": 0})

    def verdict_of(name: str, verdict: str, budget_s: float, recheck: str | None = None) -> str:
        done = stages.run(name, lambda: {"verdict": verdict}, limits={"budget_s": budget_s}, recheck=recheck)
        return str(done["verdict"])

    verdicts = [verdict_of("a", v, b) for v, b in (("unknown", 1), ("verified", 1), ("verified", 2))]
    assert verdicts == ["unknown", "unknown", "verified"]
    assert verdict_of("a", "refuted", 3) == "verified"  # from disk
    assert verdict_of("a", "unknown", 3, "yices") == "unknown"  # another question
    assert [stages.run("b", lambda x=x: {"x": x})["x"] for x in (1, 2)] == [1, 1]
    assert Stages(tmp_path, {"seed": 0, "code": "other"}).run("b", lambda: {"x": 3})["x"] == 3


def test_a_teacher_says_what_it_was_trained_for() -> None:
    low_delay, robust = load_teacher("learned_low_delay"), load_teacher("learned_robust")
    assert (low_delay.weights.queue, low_delay.weights.delay, low_delay.robust) == (-0.6, -0.1, None)
    assert robust.weights == RewardWeights() and robust.robust is not None and robust.robust.share == 0.7
    programs = [make_sender(name).program for name in ("cc_qdel", "learned_nominal_u54")]  # type: ignore[union-attr]
    small = Teacher(robust.policy, robust.world, robust.robust.model_copy(update={"budget_flow_steps": 20_000}))
    objective = Objective(small, 4, seed=0)
    before = objective.values(programs)
    plain = Objective(Teacher(small.policy, small.world, None), 4, seed=0)
    assert plain.learn(programs[0]) is None
    worst = 2 * before - plain.values(programs)
    found = objective.learn(programs[0])
    assert 0 < worst[0] < worst[1] < 1  # cc_qdel falls below a half on the attack path, the proved program does not
    assert found == pytest.approx(2 * objective.values(programs)[0] - plain.values(programs)[0])
    assert found <= worst[0] + 1e-9 and objective.values(programs)[1] <= before[1] + 1e-9  # the pool only grows


DATA = Path(__file__).parents[2] / "docs" / "data"
RECORD = json.loads((DATA / record.RECORD).read_text())


@pytest.mark.parametrize(("flows", "network"), [(1, "uniform"), (2, "batch"), (3, "kind")])
def test_samples_are_what_a_program_reads_and_does(flows: int, network: str) -> None:
    """A program that is played sends what its own tree says of the samples of the run."""
    template, numbers = ladder(3)
    sender = ProgramSender("x", build(template, numbers, "x"))
    path = record.draw_path(np.random.default_rng(flows), flows)
    samples = record.make_samples(record.run_flows(sender, path, network, 80, 0))
    expected = np.minimum(predict(template, numbers, samples.features), record.LARGEST_RATE)
    np.testing.assert_allclose(samples.rate, expected, rtol=1e-6)


@pytest.mark.parametrize("name", [record.IMITATION, record.LADDER])
def test_the_record_is_of_the_programs_beside_it(name: str) -> None:
    program = load_program(str(DATA / f"{name}.json"))
    assert to_data(program) == RECORD["programs"][name]["program"]
    assert set(RECORD["in_company"][name]) == set(RECORD["in_company"][record.TEACHER])


@pytest.mark.slow
def test_the_program_starves_as_recorded() -> None:
    name = record.LADDER
    assert record.decide_starvation(load_program(str(DATA / f"{name}.json")), 2) == RECORD["programs"][name]["fairness"]["2"]
    assert RECORD["programs"][name]["fairness"]["2"]["verdict"] == "refuted"
