"""Learned CCAs of the literature: the shipped weights are those of the shipped configs, and what is recorded of them is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.learned.zoo import FOLDER
from ccenv.agents.sender import PolicySender
from ccenv.attacks.boxes.game import BoxGame
from ccenv.attacks.boxes.players import Pattern
from ccenv.attacks.boxes.run import senders_of
from ccenv.base.errors import InputError
from ccenv.benchmarks.suite.curve import load_suite
from ccenv.cli.main import main
from ccenv.engine.packet.layout import TICK_S
from ccenv.simulation.ranges import load_distribution
from ccenv.training.config import load_config
from ccenv.training.recipes.settings import Recipe

PAPERS = ("aurora", "genet", "orca", "canopy", "indigo", "mocc", "astraea")
DOCS = Path(__file__).parents[2] / "docs"
ATTACKS = json.loads((DOCS / "data" / "company-attacks.json").read_text())["attacks"]


@pytest.mark.parametrize("name", PAPERS)
def test_the_shipped_weights_are_those_of_the_config(name: str) -> None:
    notes = json.loads((FOLDER / f"{name}.json").read_text())["notes"]
    config = load_config(name)
    recorded: dict[str, Any] = notes["config"]
    assert notes["status"] == "finished" and notes["steps"] >= config.total_steps
    assert recorded["packet"] == config.packet and recorded["seed"] == config.seed
    now = json.loads(config.model_dump_json())
    assert recorded[config.algorithm] == now[config.algorithm] and recorded.get("recipe", Recipe().model_dump()) == now["recipe"]
    sender = make_sender(name)
    assert isinstance(sender, PolicySender) and sender.name == name
    assert sender.interface == config.packet_settings().interface()


def test_they_are_told_nothing() -> None:
    for name in (*PAPERS, "learned_fair"):
        sender = make_sender(name)
        assert isinstance(sender, PolicySender)
        assert {row.needs for row in sender.interface.rows} == {""} and sender.interface.clock.every != "rtt"


def test_the_suite_holds_every_paper_to_its_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = load_suite("learned-papers")
    assert {reference.agent.partition(":")[0] for reference in suite.references} == set(PAPERS)
    assert all(reference.source.startswith("[") for reference in suite.references)
    cells = ["alone[[]buffer_bdp=4]/orca/*/1", "alone[[]buffer_bdp=4]/cubic/*/1", "unseen[[]loss_rate=0.05]/aurora/*/1"]
    only = [word for cell in (*cells, "three/astraea/*/1") for word in ("--only", cell)]
    assert main(["bench", "run", "learned-papers", *only, "--out", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
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
    for attack in ATTACKS:
        assert f"{attack['worst_utilisation']:.2f}" in page, attack["sender"]
