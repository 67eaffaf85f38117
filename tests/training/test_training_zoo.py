"""The shipped zoo: what is listed is what the records say, and what is proved is what is shipped."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.learned.zoo import FOLDER, TEACHERS, trained_on_scenes
from ccenv.agents.programs import to_data
from ccenv.attacks.run import attack
from ccenv.base.config import find_data
from ccenv.proofs.claims.lemmas import SUITES as LEMMA_SUITES
from ccenv.training.distill.claims import numbers_for, suite_data
from ccenv.training.evaluation import evaluate_sender

DATA = Path(__file__).parents[2] / "docs" / "data"
ZOO = json.loads((DATA / "learning.json").read_text())["zoo"]
DISTILLATION = json.loads((DATA / "distillation.json").read_text())
RUNS, SUITES = DISTILLATION["runs"], DISTILLATION["suites"]
PROOFS = [proof for run in RUNS for proof in run["proofs"] if proof["name"] in AGENTS]


def worst_on(name, scene="deep"):
    """Return the recorded worst utilisation of an agent on a scene."""
    if name in AGENTS.names("learned"):
        return ZOO[name]["worst"][scene]["utilisation"]
    return next(r for r in (*RUNS, *PROOFS) if r["name"] == name)["worst"][scene]["utilisation"]


@pytest.mark.parametrize("name", [*AGENTS.names("learned"), *AGENTS.names("distilled")])
def test_lists_repeat_no_figures_of_the_records(name):
    """A copy would be stale with the next record; what is proved is part of a program's name."""
    assert set(re.findall(r"\d\.\d+", AGENTS.entry(name).summary)) <= {"0.54", "0.70", "0.78"}


@pytest.mark.parametrize("name", AGENTS.names("distilled"))
def test_every_program_knows_its_teacher(name):
    found = {run["teacher_name"] for run in RUNS if name in (run["name"], *(proof["name"] for proof in run["proofs"]))}
    assert found == {TEACHERS[name]}
    assert trained_on_scenes(name) == (["deep", "shallow"] if TEACHERS[name] == "learned_robust" else [])


@pytest.mark.parametrize("name", AGENTS.names("learned"))
def test_the_record_is_of_the_shipped_weights(name):
    notes = json.loads((FOLDER / f"{name}.json").read_text())["notes"]
    assert notes["config"]["name"] == name and notes["status"] == "finished"
    assert ZOO[name]["sender_sha256"] == sender_hash(make_sender(name))


def test_a_policy_of_the_zoo_still_has_its_score():
    assert evaluate_sender(make_sender("learned_nominal"), 64).score == pytest.approx(
        ZOO["learned_nominal"]["common"]["score"], abs=0.02
    )


@pytest.mark.parametrize(
    ("name", "budget_flow_steps", "recorded"),
    [
        ("learned_nominal", 4_000_000, worst_on("learned_nominal")),
        ("learned_nominal_u54", 2_000_000, worst_on("learned_nominal_u54")),
    ],
)
def test_recorded_worst_cases_are_what_todays_attack_finds(name, budget_flow_steps, recorded):
    """Records of weaker searches are stale."""
    found = attack(name, adversaries=("corners", "cem"), budget_flow_steps=budget_flow_steps)
    assert found.worst_utilisation == pytest.approx(recorded, abs=0.02)


@pytest.mark.parametrize("name", ADVERSARIES.names("learned"))
def test_learned_adversaries_hurt_more_than_a_kind_network(name):
    policy = make_adversary(name)
    prey = make_sender("cc_probe_drain" if name == "network_drain" else "learned_nominal")
    setting = {"models": ("ccac",), "steps_per_rtt": 4, "warmup_rtts": 20, "measure_rtts": 30}
    assert (
        evaluate_sender(prey, 32, adversary=policy, **setting).utilisation
        < evaluate_sender(prey, 32, adversary=make_adversary("kind"), **setting).utilisation
    )
    assert all(np.isfinite(w).all() for w in policy.weights)


@pytest.mark.parametrize("name", AGENTS.names("distilled"))
def test_recorded_programs_are_the_ones_shipped(name):
    (found,) = [r for r in (*RUNS, *PROOFS) if r["name"] == name]
    assert to_data(make_sender(name).program) == found["program"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_distilled_programs_are_near_their_teachers(run):
    if run["teacher_name"] == "learned_robust":  # both halves of what it is polished for
        assert run["score"] > run["teacher_score"] - 0.015
        worst, teachers = run["worst"]["deep"]["utilisation"], run["teacher"]["worst"]["deep"]["utilisation"]
        assert run["score"] + worst > run["teacher_score"] + teachers
    else:
        assert run["score"] > run["teacher_score"] - 0.01


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof["name"])
def test_what_is_proved_is_confirmed_by_a_second_solver(proof):
    name = proof["name"]
    numbers = numbers_for(proof["utilisation"])
    plain, timed = SUITES[name], SUITES[f"{name}_timeouts"]
    assert len(plain["lemmas"]) == 8 and len(timed["lemmas"]) == 14
    for lemma in (*plain["lemmas"], *timed["lemmas"], proof["invariant"]):
        assert lemma["verdict"] == "verified" and lemma["recheck"]["confirmed"], lemma["name"]
    weaker = {lemma["constant"]: Fraction(str(lemma["bound"])) for lemma in timed["lemmas"] if "constant" in lemma}
    for preset, constants in ((None, numbers), ("artefact", replace(numbers, **weaker))):
        suite = name if preset is None else f"{name}_timeouts"
        shipped = find_data(LEMMA_SUITES, suite, ".yaml", "lemma suite").read_text()
        assert yaml.safe_load(shipped) == suite_data(name, suite, constants, preset)
