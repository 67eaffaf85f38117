"""Worst cases are published on scenes that no training has used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.learned import save_policy
from ccenv.agents.learned.zoo import trained_on_scenes
from ccenv.agents.sender import PolicySender
from ccenv.attacks.run import attack
from ccenv.attacks.scenes import PATHS, SCENE_SETS, attack_path, scene_of, scene_set
from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.network.path import make_path
from ccenv.training.config import CONFIGS, TrainConfig, load_config, load_data
from ccenv.training.distill.objective import load_teacher
from ccenv.training.records import ATTACKED, IN_RANGE, TRAINED, how_seen

QUICK = ["--adversary", "corners", "--warmup-rtts", "4", "--window-rtts", "4", "--steps-per-rtt", "2", "--budget", "10000"]


def test_every_scene_is_in_one_set() -> None:
    named = [name for names in SCENE_SETS.values() for name in names]
    assert sorted(named) == sorted(PATHS) and len(set(named)) == len(named)
    assert [scene_set(name) for name in ("deep", "shallow", "long_jitter", "narrow")] == ["training"] * 2 + ["report"] * 2
    assert all(scene_of(path) == name for name, path in PATHS.items())
    assert scene_of(make_path(link_rate_mbps=7, rtt_ms=40)) is None and scene_set(None) is None


@pytest.mark.parametrize("scene", SCENE_SETS["report"])
def test_rounds_of_attacks_on_a_report_scene_are_refused(scene: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "learned_robust", "--set", f"robust.paths=[deep, {scene}]"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and repr(scene) in told and "deep, shallow, infinite" in told


def test_a_fixed_path_that_is_a_report_scene_is_refused() -> None:
    data, where = load_data("quick_sender")
    data["environment"] = data["environment"] | {"paths": [PATHS["deep"].to_dict(), PATHS["narrow"].to_dict()]}
    with pytest.raises(InputError, match=r"environment.paths: worst cases are published on the scene 'narrow'"):
        validate(TrainConfig, data, where)
    data["environment"]["paths"] = PATHS["deep"].to_dict()
    assert how_seen(validate(TrainConfig, data, where), "deep") == TRAINED


def test_what_training_has_met_of_a_scene() -> None:
    def of(name: str) -> dict[str, str | None]:
        return {scene: how_seen(load_config(name), scene) for scene in ("deep", "shallow", "long_jitter", "narrow")}

    nothing = {"long_jitter": None, "narrow": None}
    assert of("learned_robust") == {"deep": ATTACKED, "shallow": ATTACKED} | nothing
    assert of("robust_control") == of("learned_nominal") == {"deep": IN_RANGE, "shallow": IN_RANGE} | nothing
    assert set(of("randomised_sender").values()) == {IN_RANGE}  # up to D = 2 Rm, from two segments per Rm on
    staged = load_config("quick_sender", ["curriculum=[{until_step: 9, paths: {jitter_rtts: [2.0, 2.0]}}]"])
    assert how_seen(staged, "long_jitter") == IN_RANGE


def test_no_shipped_config_was_attacked_on_a_report_scene() -> None:
    robust = [name for name in shipped_names(CONFIGS, ".yaml") if load_data(name)[0].get("robust")]
    assert robust
    for name in robust:
        config = load_config(name)
        drawn = config.robust is not None and config.robust.drawn is not None  # no scene, but paths from ranges around them
        assert {how_seen(config, scene) for scene in SCENE_SETS["report"]} <= ({None, IN_RANGE} if drawn else {None}), name


def test_an_attack_names_its_scene_and_what_the_sender_has_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = {"adversaries": ["kind"], "warmup_rtts": 4, "window_rtts": 4, "steps_per_rtt": 2, "budget_flow_steps": 1000}
    for path, told in (("narrow", ("narrow", "report")), (make_path(link_rate_mbps=9, rtt_ms=40, jitter_ms=40), (None, None))):
        data = attack("reno", path=path, **quick).to_dict()  # type: ignore[arg-type]
        assert (data["scene"], data["scene_set"]) == told
    assert main(["attack", "learned_robust", "--json", "--out", str(tmp_path / "a"), *QUICK]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["scene"], data["scene_set"], data["trained_on_scenes"]) == ("deep", "training", ["deep", "shallow"])
    assert main(["attack", "learned_robust", "--out", str(tmp_path / "b"), *QUICK]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "training scene deep, which it was trained against" in shown
    assert attack_path("narrow").bdp_bytes == pytest.approx(4 * 1500)


def test_a_card_tells_on_which_scenes_its_policy_was_attacked(tmp_path: Path) -> None:
    import numpy as np

    policy = PolicySender("still", (np.zeros((N_OBSERVATION, 1)),), (np.zeros(1),), "tanh")
    file = tmp_path / "still"
    save_policy(file, policy, {"config": {"robust": {"share": 0.5, "paths": ["deep"]}}})
    assert trained_on_scenes(str(file) + ".safetensors") == ["deep"]
    save_policy(file, policy, {"config": {"robust": {"share": 0, "paths": ["deep"]}}})
    assert trained_on_scenes(str(file) + ".safetensors") == []
    save_policy(file, policy)
    assert trained_on_scenes(str(file) + ".safetensors") is None
    assert (trained_on_scenes("reno"), trained_on_scenes("learned_robust_d4")) == ([], ["deep", "shallow"])
    save_policy(file, policy, {"config": {"robust": {"start_step": 1, "round_steps": 1, "paths": ["long_jitter"]}}})
    with pytest.raises(InputError, match="long_jitter"):
        load_teacher(str(file) + ".safetensors")
