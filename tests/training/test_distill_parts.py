"""The parts of distillation: scores, CART, DAgger, templates, the fast simulation of lemmas."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.programs import Branch, Expression, Leaf, Program
from ccenv.agents.sender import PolicySender, ProgramSender
from ccenv.envs.curve.settings import EnvSettings, RewardWeights
from ccenv.training.distill import claims, traces
from ccenv.training.distill.imitation import policy_actions
from ccenv.training.distill.objective import USUAL_WORLD, ProgramScorer
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
from ccenv.training.path_sets import PathSet


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
        assert found.score[i] == pytest.approx(one.score, abs=1e-12)
        assert found.loss[i] == pytest.approx(one.loss, abs=1e-12)


def test_cart_finds_a_tree_that_is_there() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    ratio, delay, mss = rng.uniform(1, 6, n), rng.uniform(0, 2, n), rng.uniform(0, 0.5, n)
    used, lost = rng.integers(0, 2, n), rng.integers(0, 2, n)
    features = np.stack([ratio, delay, mss, used, lost], axis=1).astype(float)
    rate = np.where(ratio > 3.0, 2.0 + 1.5 * mss, np.where(used > 0, 0.5, 1.0 + 0.25 * mss))
    template, numbers = grow(Samples(features, rate), 2)
    assert isinstance(template, Split) and template.guard is RATIO and isinstance(template.otherwise, Split)
    assert template.otherwise.guard is UTILISED
    assert predict(template, numbers, features) == pytest.approx(rate, abs=0.01)
    program = build(template, numbers, "found")
    expected = Expression((("C_U", Fraction(1)), ("C_L", Fraction(-3))))
    assert isinstance(program.rule, Branch) and program.rule.condition == expected


def test_cart_grows_no_split_that_gains_nothing() -> None:
    features = np.random.default_rng(1).uniform(1, 5, (500, len(GUARDS)))
    template, numbers = grow(Samples(features, np.full(500, 1.5)), 3)
    assert isinstance(template, Slot) and numbers == pytest.approx([1.5, 0.0], abs=1e-6)


def test_leaves_are_fitted_and_guards_kept() -> None:
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
    from ccenv.engine.compiled.policies import mlp_action_reference

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
    from ccenv.proofs.claims.verifier import Verifier

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
