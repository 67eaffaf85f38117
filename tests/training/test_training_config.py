"""Training configs: shipped ones, overrides, sweeps, worlds and scenes."""

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from tables.training_records import ATTACKED, IN_RANGE, TRAINED, how_seen

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.agents.learned import save_policy
from ccenv.agents.learned.zoo import trained_on_scenes
from ccenv.agents.sender import PolicySender
from ccenv.attacks.run import attack
from ccenv.attacks.scenes import PATHS, SCENE_SETS, attack_path, scene_of, scene_set
from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.envs.common.episodes import HELD_OUT_SEED
from ccenv.envs.curve.distribution import PathDistribution, PathSource
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.curve.task import SenderTask
from ccenv.network.adversary import ScriptedAdversary
from ccenv.network.path import make_path
from ccenv.training import run as run_module
from ccenv.training.config import CONFIGS, TrainConfig, load_config, load_data
from ccenv.training.distill.objective import load_teacher
from ccenv.training.evaluation import evaluate_in_world, evaluate_sender
from ccenv.training.logs import Progress
from ccenv.training.path_sets import FIXED, SEEDS_PER_SET, PathSet, path_seed
from ccenv.training.rllib.run import RllibConfig


@pytest.mark.parametrize("name", shipped_names(CONFIGS, ".yaml"))
def test_shipped_configs_are_valid_and_survive_resolution(name):
    data, where = load_data(f"configs/train/{name}.yaml")
    if data.get("trainer") == "rllib":
        assert validate(RllibConfig, data, where).name == name
        return
    config = load_config(f"configs/train/{name}.yaml")
    assert config.name == name
    again = validate(TrainConfig, yaml.safe_load(config.to_yaml()), "again")
    assert again == config and again.same_run(config)


def test_the_full_recipe_is_the_published_default_and_overrides_change_it():
    recipe = load_config("ppo_sender")
    assert recipe.ppo == type(recipe.ppo)() and recipe.environment.paths == type(recipe.environment.paths)()
    assert recipe.environment.reward == type(recipe.environment.reward)()
    changes = ["seed=3", "ppo.hidden=[16, 16]", "environment.paths.buffer_bdp=[1, 2]", "log.wandb.mode=online"]
    config = load_config("quick_sender", changes)
    assert config.seed == 3 and config.ppo.hidden == (16, 16) and config.log.wandb.mode == "online"
    assert config.environment.paths.buffer_bdp == (1.0, 2.0) and not config.same_run(load_config("quick_sender"))
    assert load_config("quick_sender", ["total_steps=1", "log.tensorboard=true"]).same_run(load_config("quick_sender"))


def test_extends_merges_groups_and_keeps_its_own_name(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: quick_sender\nseed: 5\nppo: {gamma: 0.9}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\nppo: {hidden: [8]}\n")
    config = load_config(str(tmp_path / "mine.yaml"), ["ppo.clip_range=0.1"])
    assert config.name == "mine" and config.seed == 5 and config.total_steps == load_config("quick_sender").total_steps
    assert (config.ppo.gamma, config.ppo.hidden, config.ppo.clip_range) == (0.9, (8,), 0.1)
    assert config.environment == load_config("quick_sender").environment


SWEEP = Path(__file__).parents[2] / "ccenv" / "configs" / "sweep" / "wandb_ppo_sender.yaml"


def test_every_point_of_the_sweep_is_a_valid_config_with_a_folder_of_its_own(tmp_path):
    """Run the command as W&B's agent does, with a ``ccenv`` that only tells its arguments."""
    stub = tmp_path / "ccenv"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    sweep = yaml.safe_load(SWEEP.read_text())
    names, values = zip(*((name, given["values"]) for name, given in sweep["parameters"].items()), strict=True)

    def told(point, run_id):
        given = [f"{name}={value}" for name, value in zip(names, point, strict=True)]
        command = [word for part in sweep["command"] for word in (given if part == "${args_no_hyphens}" else [part])]
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "WANDB_RUN_ID": run_id}
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.splitlines()

    train, name, out, folder, *overrides = told([given[0] for given in values], "abc")
    assert (train, name, out, folder) == ("train", "quick_sender", "--out", "runs/sweep-abc")
    fixed = overrides[: -len(names)]
    for point in itertools.product(*values):
        config = load_config(name, [*fixed, *(f"{n}={v}" for n, v in zip(names, point, strict=True))])
        assert config.log.wandb.enabled
    assert sweep["metric"]["name"] in Progress.__annotations__


def test_seeds_and_their_record(tmp_path, monkeypatch, answer, refused):
    pytest.importorskip("stable_baselines3")
    import json

    from tables import training_records as record

    from ccenv.training.run import default_folder, train

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "ATTACK_FLOW_STEPS", 100_000)
    small = ["num_envs=8", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=64", "evaluation.n_paths=4"]
    runs = answer(["train", "quick_sender", *small, "--seeds", "0,1", "--json"])
    assert [run["settings"]["seed"] for run in runs] == [0, 1] and runs[0]["settings"]["ppo"]["hidden"] == [4]
    config = load_config("quick_sender", [*small, "seed=1"])
    entry = record.make_entry(config, train(config, default_folder(config)))
    assert {scene: (case["set"], case["seen"]) for scene, case in entry["worst"].items()} == {
        "deep": ("training", "in range"), "shallow": ("training", "in range"), "long_jitter": ("report", None),
        "narrow": ("report", None),
    }  # fmt: skip
    assert all(0 <= case["utilisation"] <= 1 and case["legal"] for case in entry["worst"].values())
    assert entry["world"]["senders"] == ["external"] and entry["world"]["steps_per_rtt"] == 4
    assert entry["evaluation"]["path_set"] == entry["common"]["path_set"] == "report"
    assert "/" not in json.dumps(entry)  # no path of this machine
    assert main(["train", "quick_sender", "--seeds", "0,x"]) == 2


SMALL = [
    *("num_envs=8", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=192"),
    *("evaluation.n_paths=8", "evaluation.n_paths_during=4", "evaluation.every_steps=64", "environment.episode_rtts=8"),
]


def drawn(path_set: PathSet, number: int, episode: int = 0) -> set[tuple[float, ...]]:
    n = 1024
    source = PathSource(PathDistribution(), 8, 1)
    seeds = np.full(n, path_seed(path_set, number))
    episodes = source.draw(seeds, np.arange(n), np.full(n, episode))
    numbers = (episodes.paths.link_rate_Bps, episodes.paths.rtt_steps[:, 0], episodes.paths.buffer_bytes, episodes.keys)
    return set(zip(*(row.tolist() for row in numbers), strict=True))


def test_no_path_and_no_seed_lies_in_two_sets() -> None:
    sets = {which: set().union(*(drawn(which, s, e) for s in (0, 1, 7) for e in (0, 1))) for which in PathSet}
    assert all(len(paths) == 6 * 1024 for paths in sets.values())
    for one, other in itertools.combinations(PathSet, 2):
        assert not sets[one] & sets[other], (one, other)
    ends = sorted((path_seed(which, 0), path_seed(which, SEEDS_PER_SET - 1)) for which in PathSet)
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends)) and ends[-1][1] < 2**53
    assert path_seed(PathSet.TRAIN, SEEDS_PER_SET - 1) < HELD_OUT_SEED == path_seed(PathSet.REPORT)
    for number in (-1, SEEDS_PER_SET):
        with pytest.raises(InputError, match=f"seed is {number}; it must be a whole number from 0"):
            path_seed(PathSet.REPORT, number)


def test_stopping_selection_and_report_ask_different_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    asked: list[PathSet] = []
    real = run_module.evaluate_policy

    def counted(config, player, n_paths, path_set):  # type: ignore[no-untyped-def]
        asked.append(path_set)
        return real(config, player, n_paths, path_set)

    monkeypatch.setattr(run_module, "evaluate_policy", counted)
    config = load_config("quick_sender", [*SMALL, "early_stop.patience=5"])
    result = run_module.train(config, tmp_path)
    assert asked == [PathSet.STOP, PathSet.SELECT] * 3 + [PathSet.REPORT] * 2
    assert result.evaluation.path_set == "report" and result.best_evaluation is not None
    assert result.best_evaluation.path_set == "report"


def test_training_starts_on_the_training_set() -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.training.learner import Learner

    config = load_config("quick_sender", [*SMALL, "seed=5"])
    learner = Learner(config)
    rates = learner.env.task.core.env("link_rate_Bps")
    assert set(rates) <= {path[0] for path in drawn(PathSet.TRAIN, 5)}
    assert not set(rates) & {path[0] for path in drawn(PathSet.REPORT, 5)}


def test_a_sender_that_competes_is_scored_beside_its_competitor(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    config = load_config("competing_sender", SMALL)
    result = run_module.train(config, tmp_path)
    found = result.evaluation
    assert found.n_flows == 2 and 0 < found.share < 1 and 0.5 <= found.jain < 1
    assert found.utilisation < found.link_utilisation <= 1.0 and result.common is None
    policy = make_sender(str(tmp_path))
    assert found == evaluate_in_world(config.environment, policy, 8)
    assert found.share != pytest.approx(evaluate_sender(policy, 8, steps_per_rtt=4).share)


def test_share_and_jain_of_known_flows() -> None:
    """Two streams of 2 and 6 Mbit/s on 12: shares 1/4 and 3/4, Jain's index 64 / (2 * 40), by hand."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=4, n_flows=2)
    world = EnvSettings(paths=path, models=("ideal",), senders=("external", "constant:rate_mbps=6"), reward={"jain": 0.5})
    found = evaluate_in_world(world, make_sender("constant:rate_mbps=2"), 2, warmup_rtts=4, measure_rtts=8)
    assert (found.n_flows, found.path_set) == (2, FIXED)
    assert found.share == pytest.approx(0.25) and found.jain == pytest.approx(64 / 80)
    assert found.utilisation == pytest.approx(1 / 6) and found.link_utilisation == pytest.approx(2 / 3)
    assert found.score == pytest.approx(1 / 6 + 0.5 * 64 / 80)
    one = make_path(link_rate_mbps=12, rtt_ms=40)
    alone = evaluate_sender(make_sender("constant:rate_mbps=2"), 2, paths=one, models=["ideal"])
    assert (alone.n_flows, alone.share, alone.jain) == (1, 1.0, 1.0) and alone.utilisation == alone.link_utilisation


def test_fairness_is_part_of_the_reward_of_one_of_several_flows() -> None:
    """The term of a controlled flow compares it with the others: it is 1 for equal shares only."""
    path = make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=4, n_flows=2)
    settings = EnvSettings(paths=path, models=("ideal",), senders=("external", "constant:rate_mbps=6"), episode_rtts=20)
    task = SenderTask(1, settings)
    task.core.reset(seed=0)
    for _ in range(8):
        terms = task.core.advance(np.array([[12e6 / 8 / 6, np.nan]]))
    assert terms[0, 0, 4] == pytest.approx(64 / 80)


def test_a_world_has_its_own_paths_models_grid_and_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from ccenv.training import evaluation

    seen: list[tuple[EnvSettings, object]] = []
    real = evaluation.Core

    def spied(n, settings, **more):  # type: ignore[no-untyped-def]
        seen.append((settings, more["adversary"]))
        return real(n, settings, **more)

    monkeypatch.setattr(evaluation, "Core", spied)
    narrow = PathDistribution(link_rate_mss_per_rtt=(10.0, 20.0), buffer_bdp=(1.0, 2.0))
    world = EnvSettings(
        paths=narrow, models=("ccac",), adversary="slowest", steps_per_rtt=2, loss_detection="oracle", staggered=True
    )
    evaluate_in_world(world, make_sender("reno"), 4, warmup_rtts=2, measure_rtts=2)
    ((settings, adversary),) = seen
    assert settings.paths == narrow.model_copy(update={"seeded_share": 0.0})  # cold starts
    assert (settings.models, settings.steps_per_rtt, settings.loss_detection) == (("ccac",), 2, "oracle")
    assert not settings.staggered and isinstance(adversary, ScriptedAdversary) and adversary.name == "slowest"


@pytest.mark.parametrize("senders", [("reno",), ("reno", "cubic")])
def test_a_world_without_a_place_for_the_sender_is_refused(senders: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="needs an 'external' flow"):
        evaluate_in_world(EnvSettings(senders=senders), make_sender("reno"), 2)
    with pytest.raises(InputError, match="needs no 'external' flow"):
        evaluate_in_world(EnvSettings(), None, 2)


def test_what_the_oracle_is_worth() -> None:
    """A program that is told neither Rm nor D still scores, and no better; a preset that is none is named."""
    sender = make_sender("learned_nominal_d4")
    told, untold = evaluate_sender(sender, 64), evaluate_sender(sender, 64, beliefs="untold")
    assert 0.9 < untold.score < told.score
    with pytest.raises(InputError, match="untold"):
        evaluate_sender(sender, 64, beliefs="untolt")


QUICK = ["--adversary", "corners", "-s", "warmup_rtts=4", "-s", "window_rtts=4", "-s", "steps_per_rtt=2", "--budget", "10000"]


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


def test_an_attack_names_its_scene_and_what_the_sender_has_met(tmp_path, capsys, answer):
    quick = {"adversaries": ["kind"], "warmup_rtts": 4, "window_rtts": 4, "steps_per_rtt": 2, "budget_flow_steps": 1000}
    for path, told in (("narrow", ("narrow", "report")), (make_path(link_rate_mbps=9, rtt_ms=40, jitter_ms=40), (None, None))):
        data = attack("reno", path=path, **quick).to_dict()  # type: ignore[arg-type]
        assert (data["scene"], data["scene_set"]) == told
    data = answer(["attack", "learned_robust", "--json", "--out", str(tmp_path / "a"), *QUICK])
    assert (data["scene"], data["scene_set"], data["trained_on_scenes"]) == ("deep", "training", ["deep", "shallow"])
    assert main(["attack", "learned_robust", "--out", str(tmp_path / "b"), *QUICK]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "training scene deep, which it was trained against" in shown
    assert attack_path("narrow").bdp_bytes == pytest.approx(4 * 1500)


def test_a_card_tells_on_which_scenes_its_policy_was_attacked(tmp_path: Path) -> None:
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
