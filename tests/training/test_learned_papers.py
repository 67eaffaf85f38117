"""Shipped policies: cards, papers, and what the records say of them."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.learned.zoo import FOLDER, TEACHERS, learned_robust_v2, learned_robust_v3, trained_on_scenes
from ccenv.agents.programs import to_data
from ccenv.agents.sender import PolicySender, Sender
from ccenv.attacks.boxes.game import BoxGame
from ccenv.attacks.boxes.players import Pattern
from ccenv.attacks.boxes.run import senders_of
from ccenv.attacks.run import attack
from ccenv.base.config import find_data
from ccenv.base.errors import InputError
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.packet.layout import TICK_S
from ccenv.envs.curve.settings import EnvSettings
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.network.path import make_path
from ccenv.network.trace import Trace
from ccenv.proofs.claims.lemmas import SUITES as LEMMA_SUITES
from ccenv.simulation import simulate
from ccenv.simulation.ranges import load_distribution
from ccenv.training.config import load_config
from ccenv.training.distill.claims import numbers_for, suite_data
from ccenv.training.evaluation import evaluate_sender
from ccenv.training.recipes.settings import Recipe

PAPERS = ("aurora", "genet", "orca", "canopy", "indigo", "mocc", "astraea")
IN_USE = {"learned_everywhere": {"flooded": 0.5, "step": 1.0}}  # parameters of the action that training had otherwise
DOCS = Path(__file__).parents[2] / "docs"
RUNS_OF = json.loads((DOCS / "data" / "learning.json").read_text())["runs"]
ATTACKS = json.loads((DOCS / "data" / "company-attacks.json").read_text())["attacks"]


@pytest.mark.parametrize("name", (*PAPERS, "learned_everywhere"))
def test_the_shipped_weights_are_those_of_the_config(name: str) -> None:
    notes = json.loads((FOLDER / f"{name}.json").read_text())["notes"]
    config = load_config(name)
    recorded: dict[str, Any] = notes["config"]
    assert notes["status"] == "finished" and notes["steps"] >= config.total_steps
    assert recorded["packet"] == config.packet and recorded["seed"] == config.seed
    settings = getattr(config, config.algorithm)
    assert type(settings).model_validate(recorded[config.algorithm]) == settings  # newer fields have their defaults
    assert recorded.get("recipe", Recipe().model_dump()) == json.loads(config.model_dump_json())["recipe"]
    sender = make_sender(name)
    assert isinstance(sender, PolicySender) and sender.name == name
    trained = config.packet_settings().interface()
    assert sender.interface == trained.model_copy(update={"parameters": trained.parameters | IN_USE.get(name, {})})


@pytest.mark.parametrize("seed", range(3))
def test_each_seed_of_learned_everywhere_is_what_the_record_says(seed: int) -> None:
    """Of the config, with its seed, and with the evaluation of the recorded run to the last digit."""
    card = json.loads((FOLDER / f"learned_everywhere{f'_{seed}' if seed else ''}.json").read_text())["notes"]
    run, config = RUNS_OF["learned_everywhere:" + str(seed)], load_config("learned_everywhere", [f"seed={seed}"])
    assert card["evaluation"] == run["evaluation"] and card["steps"] == run["steps"]
    assert card["config"] == json.loads(config.model_dump_json()) | {"name": card["config"]["name"]}


def test_flows_of_one_policy_do_not_flood_a_small_link() -> None:
    """Room for one or two packets of each: without the halving the link loses three of five, for ever."""
    flow = {"sender": "learned_everywhere", "rtt_ms": 5.5}
    scenario = {"links": [{"rate_mbps": 11, "buffer_bdp": 2.3}], "flows": [flow] * 8}
    flows = simulate({"name": "small", "duration_s": 30, "warmup_s": 10, **scenario}).summary()["flows"]
    assert sum(flow["loss"] for flow in flows) / 8 < 0.3 and sum(flow["throughput_mbps"] for flow in flows) > 10


def test_an_outage_costs_little_more_than_itself() -> None:
    """Of .7 s, behind 22 packets of buffer: what is sent again meanwhile is lost, and the smoothed RTT is as long as that."""
    generator = {"kind": "cellular", "mean_mbps": 6, "volatility": 0, "outages_per_min": 10, "outage_s": 0.7}
    network = {"links": [{"generator": generator, "buffer_bdp": 1.5}], "flows": [{"sender": "learned_everywhere", "rtt_ms": 32}]}
    result = simulate({"name": "dark", "duration_s": 40, "warmup_s": 5, "seed": 3, **network}).summary()
    assert result["links"][0]["utilisation"] > 0.85 and result["flows"][0]["loss"] < 0.03


def test_they_are_told_nothing() -> None:
    for name in (*PAPERS, "learned_fair", "learned_everywhere"):
        sender = make_sender(name)
        assert isinstance(sender, PolicySender)
        assert {row.needs for row in sender.interface.rows} == {""} and sender.interface.clock.every != "rtt"


def test_the_suite_holds_every_paper_to_its_claim(tmp_path: Path, answer) -> None:
    suite = load_suite("learned-papers")
    assert {reference.agent.partition(":")[0] for reference in suite.references} == set(PAPERS)
    assert all(reference.source.startswith("[") for reference in suite.references)
    cells = ["alone[[]buffer_bdp=4]/orca/*/1", "alone[[]buffer_bdp=4]/cubic/*/1", "unseen[[]loss_rate=0.05]/aurora/*/1"]
    only = [word for cell in (*cells, "three/astraea/*/1") for word in ("--only", cell)]
    found = answer(["bench", "run", "learned-papers", *only, "--out", str(tmp_path / "run"), "--json"])
    agents = found["agents"]
    assert agents["orca"]["queueing_delay_s"] < 0.5 * agents["cubic"]["queueing_delay_s"]
    assert agents["aurora"]["utilisation_loss_5"] > 0.9 and agents["astraea"]["jain_3"] > 0.8
    verdicts = {claim["name"]: claim["agreement"] for claim in found["references"]}
    assert verdicts["Orca: less delay than CUBIC"] == "reproduced"


def test_the_control_of_genet_has_no_curriculum_and_nothing_else_is_different() -> None:
    own, control = (json.loads((FOLDER / f"{name}.json").read_text())["notes"] for name in ("genet", "genet_uniform"))
    assert control["config"]["recipe"]["gap"].pop("share") == 0.0 and own["config"]["recipe"]["gap"].pop("share") > 0.0
    assert control["config"].pop("name") == "genet_uniform" and own["config"].pop("name") == "genet"
    assert control["config"] == own["config"] and control["steps"] == own["steps"]
    assert sender_hash(make_sender("genet:curriculum=0")) != sender_hash(make_sender("genet"))
    with pytest.raises(InputError, match=r"curriculum is 0\.5"):
        make_sender("genet:curriculum=0.5")


def test_preferences_make_other_senders() -> None:
    mocc = [make_sender(f"mocc:throughput={t},latency={lat},loss={loss}") for t, lat, loss in ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1))]
    assert sender_hash(mocc[0]) != sender_hash(mocc[1])
    with pytest.raises(InputError, match="add up to 1"):
        make_sender("mocc:throughput=1")


def test_canopy_is_certified_where_orca_is_not() -> None:
    pytest.importorskip("torch")
    from ccenv.training.recipes.certificate import certified_share

    certificate = load_config("canopy").recipe.certificate
    assert certificate is not None
    for what in certificate.properties:
        orca, canopy = make_sender("orca"), make_sender("canopy")
        assert isinstance(orca, PolicySender) and isinstance(canopy, PolicySender)
        assert certified_share(canopy, what, certificate.piece) > 0.95
        assert certified_share(orca, what, certificate.piece) < 0.05


@pytest.mark.parametrize("attack", [one for one in ATTACKS if one["scenario"] == "attacked"], ids=lambda one: str(one["sender"]))
def test_recorded_worst_cases_are_found_again(attack: dict[str, Any]) -> None:
    """The stored pattern of the boxes costs what the record says; without any attack the sender gets more."""
    scenario = load_distribution(attack["scenario"]).largest
    senders, attacked = senders_of(scenario, make_sender(attack["sender"]))
    game = BoxGame(scenario, senders, attacked, warmup_rtts=200, window_rtts=200)
    pattern = Pattern(tuple(attack["pattern"]["values"]), round(attack["pattern"]["hold_s"] / TICK_S))
    assert game.play([pattern])[0] == pytest.approx(attack["worst_utilisation"], abs=0.02)
    assert attack["worst_utilisation"] <= attack["kind_utilisation"] + 1e-9


def test_the_page_shows_the_recorded_worst_cases() -> None:
    page = (DOCS / "learning.md").read_text()
    for record in ATTACKS:
        assert f"{record['worst_utilisation']:.2f}" in page, record["sender"]


ZOO = json.loads((DOCS / "data" / "learning.json").read_text())["zoo"]
DISTILLATION = json.loads((DOCS / "data" / "distillation.json").read_text())
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
    stored = ZOO["learned_nominal"]["common"]["score"]
    assert evaluate_sender(make_sender("learned_nominal"), 64).score == pytest.approx(stored, abs=0.02)


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


K = 8


@pytest.fixture(scope="module")
def senders() -> tuple[Sender, Sender]:
    before, after = learned_robust_v2(), learned_robust_v3()
    EnvSettings(shield=after.program)  # no interval is empty
    assert canonical_hash(before.policy) == canonical_hash(after.policy)
    return before, after


def played(sender: Sender, jitter_rtts: float, adversary: str, buffer_bdp: float = 4) -> Trace:
    path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=40 * jitter_rtts, buffer_bdp=buffer_bdp)
    engine = CurveEngine(
        [path], model="ccac", senders=[sender], adversary=make_adversary(adversary), steps_per_rtt=K, record=True
    )
    engine.advance(100 * K)
    return engine.trace(0)


@pytest.mark.parametrize("adversary", ["kind", "slowest", "uniform", "square:period_rtts=4,duty=0.5", "hoard"])
@pytest.mark.parametrize("jitter_rtts", [0, 0.5, 1])
def test_nothing_changes_where_jitter_is_short(senders: tuple[Sender, Sender], jitter_rtts: float, adversary: str) -> None:
    before, after = (played(sender, jitter_rtts, adversary) for sender in senders)
    np.testing.assert_array_equal(before.rate_Bps, after.rate_Bps)
    np.testing.assert_array_equal(before.S, after.S)


@pytest.mark.parametrize("jitter_rtts", [1.5, 2])
def test_the_same_attack_takes_less_where_jitter_is_long(senders: tuple[Sender, Sender], jitter_rtts: float) -> None:
    path = make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=40 * jitter_rtts, buffer_bdp=4)
    before, after = (attack(one, path=path, adversaries=["policy_cem"], budget_flow_steps=300_000, seed=3) for one in senders)
    assert before.legal and after.legal
    assert after.worst_utilisation > before.worst_utilisation + 0.01


@pytest.mark.parametrize(("sender", "mbps"), [("learned_everywhere:seed=1", 6), ("learned_fair", 0.5), ("aurora", 0.2)])
def test_a_flow_that_pauses_does_not_grow_meanwhile(sender: str, mbps: float) -> None:
    """The link's loss is .61 if losses spare an idle flow (docs/interface.md, actions), and .24 and .66 without any rule."""
    flow = {"sender": sender, "rtt_ms": 50, "workload": {"kind": "on_off", "on_s": 0.5, "off_s": 1}}
    scenario = {"links": [{"rate_mbps": 20, "buffer_bdp": 1}], "flows": [flow]}
    summary = simulate({"name": "pauses", "duration_s": 20, "warmup_s": 5, **scenario}).summary()
    assert summary["links"][0]["loss"] < 0.02 and summary["flows"][0]["throughput_mbps"] > mbps
