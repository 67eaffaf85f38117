"""What a run's logs hold: the same curves in files, TensorBoard and Weights & Biases; a run opened with one call."""

import csv
import json
from importlib.util import find_spec

import numpy as np
import pytest

from ccenv.base.errors import InputError
from ccenv.training import monitoring
from ccenv.training.analysis import open_run
from ccenv.training.config import load_config
from ccenv.training.logs import EvaluationLog, Progress, read_evaluations
from ccenv.training.monitoring import Look

pytest.importorskip("stable_baselines3")

from ccenv.training.run import train

pytestmark = pytest.mark.skipif(not all(map(find_spec, ("tensorboard", "wandb"))), reason="the extra wandb is not installed")

SMALL = (
    "num_envs=8 total_steps=512 ppo.n_steps=16 ppo.batch_size=64 ppo.hidden=[4] evaluation.n_paths=4 evaluation.n_paths_during=4"
)
EVALUATED = "evaluation.every_steps=256 log.networks=[kind,slowest] log.exploitability_flow_steps=20000 log.video=true"
GROUPS = ("evaluation", "network/kind", "network/slowest")
TERMS = ("score", "score_p5", "utilisation", "queue_bdp", "loss", "delay_rtts")
SHOWN = {f"{group}/{term}" for group in GROUPS for term in TERMS}
SHOWN |= {"exploitability/worst_utilisation", "exploitability/gap"}


def small(*more: str):
    return load_config("quick_sender", [*SMALL.split(), *" ".join(more).split()])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setattr(monitoring, "FRAMES", 2)
        folder = tmp_path_factory.mktemp("logs") / "run"
        train(small(EVALUATED, "log.tensorboard=true log.wandb.enabled=true"), folder)
    return folder


def test_progress_holds_terms_and_gradients_evaluations_each_network_and_what_attacks_find(run):
    rows = list(csv.DictReader((run / "progress.csv").open()))
    assert len(rows) == 4
    last = {name: float(value) for name, value in rows[-1].items() if value}
    assert {"reward", "utilisation", "queue", "loss", "delay", "gradient_norm", "entropy_loss", "clip_fraction"} <= set(last)
    assert last["gradient_norm"] > 0
    lines = read_evaluations(run)
    assert [line["steps"] for line in lines] == [256, 512] and all(set(line) == SHOWN | {"steps"} for line in lines)
    score = [float(row["evaluation_score"]) for row in csv.DictReader((run / "progress.csv").open()) if row["evaluation_score"]]
    assert [line["evaluation/score"] for line in lines] == pytest.approx(score, rel=1e-5)
    for line in lines:
        assert line["exploitability/gap"] >= 0 and line["network/kind/delay_rtts"] < line["network/slowest/delay_rtts"]


def test_tensorboard_and_wandb_hold_the_same(run):
    from matplotlib.image import imread
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    tags = events.Tags()
    assert {"reward", "gradient_norm", "evaluation_score"} | SHOWN <= set(tags["scalars"])
    values = [event.value for event in events.Scalars("network/slowest/score")]
    assert values == pytest.approx([line["network/slowest/score"] for line in read_evaluations(run)], rel=1e-5)
    assert tags["images"] == ["episode"]
    (video, _) = events.Images("episode")  # which moves: GIF, with something drawn
    assert sorted(file.name for file in (run / "videos").iterdir()) == ["256.gif", "512.gif"]
    assert video.encoded_image_string[:6] == b"GIF89a" and imread(run / "videos" / "512.gif").std() > 1
    assert video.encoded_image_string == (run / "videos" / "256.gif").read_bytes()
    (folder,) = run.glob("wandb/offline-run-*")
    assert len(list(folder.rglob("episode_*.gif"))) == 2
    stored = next(folder.glob("*.wandb")).read_bytes()
    assert all(name.encode() in stored for name in ("gradient_norm", "exploitability/gap", "network/slowest/score"))


def test_a_run_opens_with_one_call(run):
    opened = open_run(run)
    assert repr(opened) == "TrainingRun(quick_sender, seed 0, 512 steps, finished)"
    frame = opened.to_frame()
    assert list(frame.index) == [128, 256, 384, 512] and np.isnan(frame["evaluation_score"].iloc[0])
    assert list(opened.evaluations_frame().index) == [256, 512]
    titles = [ax.get_title() for ax in opened.figure().axes]
    assert {"score per network", "found by attacks", "norm of the gradients"} <= set(titles)
    assert opened._repr_html_().count("<svg") == 1 and opened.player.name == "quick_sender"
    assert opened.config.log.networks == ("kind", "slowest")


def test_what_a_resumed_run_writes_again_is_dropped(tmp_path):
    log = EvaluationLog(tmp_path, 0)
    blank = Progress(*(float("nan") for _ in Progress.__annotations__))
    for steps in (100, 200, 300):
        log.write(Progress(**{**blank.__dict__, "steps": steps}), Look({"evaluation/score": steps / 1000}, b"GIF"))
    log.write(Progress(**{**blank.__dict__, "steps": 350}), Look())
    EvaluationLog(tmp_path, 200)
    assert [line["steps"] for line in read_evaluations(tmp_path)] == [100, 200]
    assert sorted(file.stem for file in (tmp_path / "videos").iterdir()) == ["100", "200"]
    EvaluationLog(tmp_path, 0)  # from the start
    assert read_evaluations(tmp_path) == []


def test_a_network_that_cannot_play_is_said_before_anything_is_written(tmp_path):
    two = small("evaluation.every_steps=256", "environment.senders=[external,cubic]", "log.networks=[network_nominal]")
    with pytest.raises(InputError, match=r"log\.networks: 'network_nominal' cannot play in this world"):
        train(two, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("line", ["[1]", '{"steps": "a"}', '{"steps": 1, "x": "y"}', '{"x": 1}', "{", '{"steps": true}'])
def test_damaged_evaluations_are_named(run, tmp_path, line):
    good = (run / "evaluations.jsonl").read_text()
    (tmp_path / "evaluations.jsonl").write_text(good + line + "\n")
    with pytest.raises(InputError, match=r"evaluations\.jsonl:3"):
        read_evaluations(tmp_path)


def test_what_is_no_run_is_refused(run, tmp_path):
    with pytest.raises(InputError, match="no training run"):
        open_run(tmp_path)
    for name in ("config.yaml", "run.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with pytest.raises(InputError, match=r"progress\.csv: not there"):
        open_run(tmp_path)
    for damaged in ("steps,reward\n1,x\n", "steps,reward\n1\n"):
        (tmp_path / "progress.csv").write_text(damaged)
        with pytest.raises(InputError, match="not a table of progress"):
            open_run(tmp_path)
    (tmp_path / "progress.csv").write_text("steps,reward\n")
    assert open_run(tmp_path).progress == {"steps": []}
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"
