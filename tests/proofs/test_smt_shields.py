"""Shields as senders of the solver: every choice inside is the adversary's, and no other."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from shields_data import document, shield

from ccenv.agents.programs import Expression, Leaf, Program, interval, to_json
from ccenv.base.config import validate
from ccenv.base.errors import ProgramError
from ccenv.network.trace import load_trace
from ccenv.proofs.claims import properties
from ccenv.proofs.claims.lemmas import LoadedSuite, Suite, constants_of, lemma_queries, load_suite, suite_setting
from ccenv.proofs.claims.properties import Property, compile_formula
from ccenv.proofs.claims.report import decide_claim
from ccenv.proofs.claims.verifier import Query, Verifier
from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.program import ProgramSmtSender, program_decider
from ccenv.proofs.solver.terms import all_of, larger
from ccenv.training.distill.claims import ClaimNumbers, suite_data


def constant(lo: str, hi: str | None = None) -> Program:
    """Return a program, or a shield, that sends so much of C_L."""
    ends = [Expression((("C_L", Fraction(x)),)) for x in (lo, hi or lo)]
    return Program("constant", Leaf(ends[0], 1, ends[1] if hi else None))


def query(program: Program, holds: Callable[[View], object], samples: int = 5) -> Query:
    """Ask whether something holds of every trace that starts with true beliefs and at most C Rm in flight."""
    sender = ProgramSmtSender(program)
    setting = named_setting("history", Setting("ccac", "large", samples), sender.largest_rate()).without_timeout()
    claim = Property(
        "claim", "claim", holds, Needs(frozenset({"C_L", "C_U"})),
        lambda v: all_of([v.C_L[0] <= 1, v.C_U[0] >= 1, v.inflight(0) <= 1]),
    )  # fmt: skip
    return Query("claim", setting, sender, claim)


def little_inflight(v: View) -> object:
    return properties.inflight(v, Fraction(1))


def rates(v: View, least: str, most: str) -> object:
    """Every rate is at least and at most so much of C_L, line 7 aside."""
    steps = range(1, v.setting.samples)
    above = [v.rate[t] >= Fraction(least) * v.C_L[t - 1] for t in steps]
    return all_of([*above, *(v.rate[t] <= larger(Fraction(most) * v.C_L[t - 1], v.alpha) for t in steps)])


def test_a_counterexample_holds_the_choices_and_replays_exactly_and_in_the_engine(tmp_path: Path):
    asked = query(shield(), little_inflight)
    outcome = decide_claim("inflight", [asked], Verifier(60.0), tmp_path)
    assert outcome.verdict == "refuted" and outcome.details["replay"]["engine"] == "reproduced"
    result = Verifier(60.0).decide(asked)
    view = result.view
    assert view is not None and any(rate != view.rate[1] for rate in view.rate[1:])
    for t in range(1, view.setting.samples):
        inputs = {"C_L": view.C_L[t - 1], "C_U": view.C_U[t - 1], "MSS/Rm": view.alpha, "loss": view.loss_seen[t - 1]}
        delay = max([m for m, late in view.late[t - 1].items() if late], default=0)
        used = view.step_utilised(t - 2) if t > 1 else result.values["utilised_before"]
        lo, hi, _ = interval(shield(), {**inputs, "qdel_L": Fraction(max(0, delay - 1)), "utilised": used})
        assert lo <= view.rate[t] <= hi


def test_a_choice_outside_the_interval_is_refused_by_the_exact_replay():
    asked = query(shield(), little_inflight)
    result = Verifier(60.0).decide(asked)

    class Run:
        def __init__(self):
            self.values, self.setting = dict(result.values), result.view.setting
            self.rate, self.alpha, self.d, self.loss_seen = result.view.rate, result.view.alpha, 1, result.view.loss_seen
            self.beliefs = {name: getattr(result.view, name) for name in ("C_L", "C_U")}

        def delay(self, t):
            return max([m for m, late in result.view.late[t].items() if late], default=0)

        def step_utilised(self, x):
            return result.view.step_utilised(x) if x >= 0 else bool(self.values.get("utilised_before", False))

    run, step = Run(), program_decider(shield())
    for t in range(1, result.view.setting.samples):
        assert step(run, t, {"held": 0}).rate == result.view.rate[t]
        for wrong in (Fraction(0), 1000 * result.view.rate[t]):
            run.values = {**result.values, f"rate_{t}": wrong}
            with pytest.raises(ReplayError, match="rate within"):
                step(run, t, {"held": 0})
        run.values = dict(result.values)


@pytest.mark.parametrize(("lo", "hi", "least", "most", "verdict"), [
    ("1", "3/2", "1", "3/2", "verified"), ("1", "3/2", "1", "7/5", "refuted"), ("1", "3/2", "11/10", "3/2", "refuted"),
    ("1", None, "1", "1", "verified"),
])  # fmt: skip
def test_both_ends_are_the_adversarys_and_nothing_beyond_them(lo, hi, least, most, verdict):
    asked = query(constant(lo, hi), lambda v: rates(v, least, most), samples=4)
    assert Verifier(60.0).decide(asked).verdict == verdict


def test_names_and_files_lead_to_the_shield(tmp_path: Path):
    file = tmp_path / "c.json"
    file.write_text(to_json(shield()))
    assert smt_sender(str(file)).program == shield()
    empty = document(rule={"rate_between": [{"C_L": 2}, {"C_L": 1}]})
    file.write_text(json.dumps(empty))
    with pytest.raises(ProgramError, match="above its upper end"):
        smt_sender(str(file))
    assert smt_sender("learned_shield_u80").program.is_shield


def test_the_shipped_suite_is_about_the_shipped_shield():
    loaded = load_suite("learned_shield_u80")
    assert loaded.sender.program.is_shield and loaded.suite.settle == 2
    numbers = constants_of(loaded.suite, "history")
    assert numbers["utilisation"] == Fraction(4, 5)
    setting = suite_setting(loaded, "history", 11)
    assert (setting.samples, setting.settle_steps) == (13, 2)


@pytest.mark.parametrize(("samples", "names"), [(3, ("F.1 C_L", "F.7 loss")), pytest.param(11, None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suite", ["learned_shield_u80", "learned_shield_u77_timeouts"])
def test_lemmas_of_the_shipped_shields_hold(suite, samples, names):
    loaded = load_suite(suite)
    setting, numbers = suite_setting(loaded, "history", samples), constants_of(loaded.suite, "history")
    lemmas = [lemma for lemma in loaded.suite.lemmas if names is None or lemma.name in names]
    assert len(lemmas) >= 2
    for asked in (asked for lemma in lemmas for asked in lemma_queries(loaded, lemma, setting, numbers)):
        assert Verifier(3600.0).decide(asked).verdict == "verified", asked.name


def test_with_time_outs_a_chooser_lets_the_lower_belief_fall(tmp_path: Path):
    """What the page says of gamma_L = .48, by today's solver; the trace on the page is such a one."""
    loaded = load_suite("learned_shield_u50_timeouts")
    lemma = next(lemma for lemma in loaded.suite.lemmas if lemma.name == "F.3 C_L, more")
    setting, numbers = suite_setting(loaded, "history", 11), constants_of(loaded.suite, "history")
    outcome = decide_claim(lemma.name, lemma_queries(loaded, lemma, setting, numbers), Verifier(120.0), tmp_path)
    assert outcome.verdict == "refuted" == lemma.expect
    assert outcome.details["replay"]["engine"] == "reproduced" and outcome.details["reachable"] is True
    kept = Path(__file__).parents[2] / "docs" / "data" / "shield-timeouts.npz"
    replayed, difference = engine_replay(load_trace(kept))
    assert difference <= REPLAY_TOLERANCE and replayed.header.path.n_flows == 1


@pytest.mark.parametrize(("rate", "verdict"), [("1", "refuted"), ("8/5", "verified")])
def test_the_ranking_excuses_no_trace_in_which_nothing_moves(rate, verdict):
    """A sender at C_L never learns more, however well a trace uses the link; one far enough above it does, or fills the path."""
    numbers = ClaimNumbers(Fraction(1, 5), C_L_low=Fraction(1, 2), shrink=Fraction(1001, 1000))
    suite = validate(Suite, suite_data("p.json", "p", numbers, grows=Fraction(1, 32)), "p")
    loaded = LoadedSuite(suite, ProgramSmtSender(constant(rate)), Path("lemmas.yaml"))
    lemma = next(lemma for lemma in suite.lemmas if lemma.name == "F.4 C_L")
    (asked,) = lemma_queries(loaded, lemma, suite_setting(loaded, "history", 5), constants_of(suite, "history"))
    result = Verifier(60.0).decide(asked)
    assert result.verdict == verdict
    if verdict == "refuted":
        v = result.view
        assert v.C_L[v.last] <= Fraction(1001, 1000) * v.C_L[0] < 1 and v.inflight(v.last) <= v.inflight(0) + v.C_L[0] / 32


@pytest.mark.parametrize(("x", "holds"), [("1/2", True), ("3/5", False)])
def test_bytes_in_flight_are_counted_in_C_L(x, holds):
    view = Verifier(60.0).decide(query(shield(), little_inflight)).view
    assert view is not None
    E = [Fraction(0)] * 5
    E[4] = 4 + Fraction(3, 10)
    moved = replace(view, E=E, S=[Fraction(t) for t in range(5)], C_L=[Fraction(1, 2)] * 5)
    rises = compile_formula({"inflight_rises_by": x}, "here", {}, {})
    assert rises(moved, moved.last) is holds  # by 3/10, so by 3/5 C_L and no more


def test_settled_utilisation_counts_from_the_settled_sample():
    asked = query(shield(), little_inflight)
    view = Verifier(60.0).decide(asked).view
    assert view is not None
    late = replace(view, setting=replace(view.setting, settle_steps=1))
    for f in (Fraction(n, 20) for n in range(40)):
        assert properties.utilisation(view, f) is (view.S[4] - view.S[0] >= 3 * f)
        assert properties.utilisation(late, f) is (view.S[4] - view.S[1] >= 2 * f)
