"""``ccenv demo`` with a small plan: every stage runs for real, finished stages are kept, errors are one line."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml
from small_suite import small

from ccenv.base.errors import CcenvError, InputError, MissingExtraError
from ccenv.cli import demo
from ccenv.cli.demo import STAGES, Plan, run_demo
from ccenv.cli.main import main

REAL = demo._run

SMALL_TRAINING = {
    "seed": 0,
    "total_steps": 512,
    "num_envs": 16,
    "environment": {"steps_per_rtt": 4, "episode_rtts": 10},
    "ppo": {"n_steps": 16, "batch_size": 64, "hidden": [16]},
    "evaluation": {"n_paths": 32, "n_paths_during": 16, "every_steps": 512},
}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("plan")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(SMALL_TRAINING))
    (folder / "suite.yaml").write_text(yaml.safe_dump(small(seeds=[1])))
    (folder / "hard.yaml").write_text(yaml.safe_dump(small(name="hard", seeds=[1], agents=[], adversaries=["kind", "slowest"])))
    return Plan(str(folder / "tiny.yaml"), str(folder / "hard.yaml"), str(folder / "suite.yaml"), samples=3)


def run_here(stage: demo.DemoStep) -> dict:
    """Run a stage in this process, which imported what it needs, without workers; the verification in its own, as users do."""
    if stage.save_as is not None:
        return REAL(stage)
    out = io.StringIO()
    with redirect_stdout(out):
        assert main([*(word.replace("=processes", "=local") for word in stage.arguments), "--json"]) == 0
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def done(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict, list[str]]]:
    out, lines = tmp_path_factory.mktemp("demo") / "out", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_run", run_here)
        yield out, run_demo(out, plan, say=lines.append), lines


def test_every_stage_left_its_result_which_a_second_call_keeps(done: tuple[Path, dict, list[str]], plan: Plan) -> None:
    out, result, lines = done
    assert [stage["name"] for stage in result["stages"]] == ["train", "attack", "bench", "verify", "record", "board"]
    assert not any(stage["kept"] for stage in result["stages"]) and result["page"] == str(out / "board" / "index.html")
    board = json.loads((out / "board" / "board.json").read_text())
    assert {sender["kind"] for sender in board["senders"]} == {"classic", "program", "policy"}
    proved = {sender["sender"]: [v["verdict"] for v in sender["verifications"]] for sender in board["senders"]}
    assert proved["cc_qdel"] == [json.loads((out / "verification-report.json").read_text())["verdict"]]
    assert {table["suite"] for table in board["tables"]} == {"small", "hard"}
    text = "\n".join(lines)
    for stage in result["stages"]:
        assert stage["command"] in text  # what the reader sees is what ran
        assert stage["result"] in text
    policy = (out / "train" / "policy.safetensors").read_bytes()
    again = run_demo(out, plan, say=lambda line: None)
    assert [stage["kept"] for stage in again["stages"]] == [True] * 5 + [False] and again["page"] == result["page"]
    assert (out / "train" / "policy.safetensors").read_bytes() == policy


def test_an_interrupted_demo_goes_on(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(stage: demo.DemoStep) -> dict:
        calls.append(stage.name)
        if stage.name == "attack" and calls.count("attack") == 1:
            raise KeyboardInterrupt
        return {"steps": 1, "seconds": 1.0, "evaluation": {"score": 0.5}} if stage.name == "train" else REAL(stage)

    monkeypatch.setattr(demo, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path / "out", plan, say=lambda line: None)
    assert list(json.loads((tmp_path / "out" / STAGES).read_text())["stages"]) == ["train"]
    with pytest.raises(CcenvError, match="stage 'attack' failed with exit code 2"):  # there is no policy to attack
        run_demo(tmp_path / "out", plan, say=lambda line: None)
    assert calls == ["train", "attack", "attack"]


def test_fresh_starts_anew(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "make_stages", lambda plan, out: [])
    run_demo(tmp_path / "out", plan, say=lambda line: None)
    (tmp_path / "out" / "old").write_text("x")
    run_demo(tmp_path / "out", plan, say=lambda line: None)
    assert (tmp_path / "out" / "old").exists()
    run_demo(tmp_path / "out", plan, fresh=True, say=lambda line: None)
    assert not (tmp_path / "out" / "old").exists()


def test_a_damaged_stage_file_and_missing_extras_are_refused(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / STAGES).write_text('{"format": "other"}')
    with pytest.raises(InputError, match="not a stage file"):
        run_demo(tmp_path, plan, say=lambda line: None)
    monkeypatch.setattr(demo, "_EXTRAS", (("no_such_module", "verify"),))
    with pytest.raises(MissingExtraError, match=r"ccenv\[verify\]"):
        run_demo(tmp_path / "out", plan, say=lambda line: None)
    assert not (tmp_path / "out").exists()
