"""One command trains every shipped config, writes the record and its tables, and goes on where it was interrupted."""

import functools
import json
import runpy
import shutil
from pathlib import Path

import pytest
from tables import training_records as record
from tables.training_records import shipped_runs, train_shipped

from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.training.config import CONFIGS, load_config

pytest.importorskip("stable_baselines3")

SMALL = ("num_envs=8", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=64", "evaluation.n_paths=4")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "ATTACK_FLOW_STEPS", 100_000)
    monkeypatch.setattr(record, "SEEDS", {"network_drain": 1, "quick_sender": 2})


def test_every_shipped_config_is_trained_with_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    runs = shipped_runs()
    assert {name for name, _ in runs} == set(shipped_names(CONFIGS, ".yaml"))
    assert [seed for name, seed in runs if name == "ppo_sender"] == [0, 1, 2, 3, 4]
    assert [name for name, _ in runs][2:6] == ["rllib_company", "rllib_duel", "rllib_duel", "rllib_duel"]


def test_what_is_done_is_not_done_again_and_other_code_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccenv.training import run

    trained: list[str] = []
    real = run.train

    @functools.wraps(real)
    def counted(config, folder, **more):  # type: ignore[no-untyped-def]
        trained.append(f"{folder.name}{' again' if more['restart'] else ''}")
        return real(config, folder, **more)

    monkeypatch.setattr(run, "train", counted)
    file, folder = tmp_path / "record.json", tmp_path / "runs"

    def go(*names: str) -> list[str]:
        del trained[:]
        assert train_shipped(file, folder, names=names, overrides=SMALL) == len(shipped_runs(names))
        return trained

    assert go("quick_sender") == ["quick_sender-0", "quick_sender-1"]
    first = json.loads(file.read_text())["runs"]
    assert go("quick_sender", "network_drain") == ["network_drain-0"]  # the others are on disk
    runs = json.loads(file.read_text())["runs"]
    assert sorted(runs) == ["network_drain:0", "quick_sender:0", "quick_sender:1"]
    assert {key: runs[key] for key in first} == first and runs["network_drain:0"]["worst"] == {}
    (folder / "quick_sender-1" / "entry.json").unlink()  # as after Ctrl-C in the attack: trained, not recorded
    assert go("quick_sender") == ["quick_sender-1"]
    with monkeypatch.context() as patch:
        patch.setattr(record, "ATTACK_FLOW_STEPS", 50_000)
        assert go("quick_sender") == ["quick_sender-0", "quick_sender-1"]  # attacked again, not trained
    with monkeypatch.context() as patch:
        patch.setattr(record, "sender_hash", lambda sender: "another policy of the zoo")
        assert go("network_drain") == ["network_drain-0 again"]
    for module in ("tables.training_records", "ccenv.training.run"):
        monkeypatch.setattr(f"{module}.code_hash", lambda *entries: "of tomorrow")
    assert go("quick_sender") == ["quick_sender-0 again", "quick_sender-1 again"]


def test_a_run_of_other_code_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccenv.training.run import train

    config = load_config("quick_sender", SMALL)
    with monkeypatch.context() as patch:
        patch.setattr("ccenv.training.run.code_hash", lambda *entries: "of yesterday")
        train(config, tmp_path / "run")
    longer = load_config("quick_sender", [*(one for one in SMALL if "total" not in one), "total_steps=128"])
    result = train(longer, tmp_path / "run")  # goes on
    with pytest.raises(InputError, match="trained by other code than this"):
        record.make_entry(longer, result)
    assert record.make_entry(longer, train(longer, tmp_path / "run", restart=True))["learns"]


def test_the_script_writes_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["record_training.py", "r.json", "quick_sender", *SMALL])
    runpy.run_path(str(Path(__file__).parents[2] / "docs" / "tables" / "record_training.py"))
    assert capsys.readouterr().out == "wrote r.json: 2 runs\n"
    assert set(json.loads((tmp_path / "r.json").read_text())["runs"]) == {"quick_sender:0", "quick_sender:1"}
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match="it must be 1 to"):
        train_shipped(tmp_path / "r.json", jobs=0)
    with pytest.raises(InputError, match="unknown config"):
        train_shipped(tmp_path / "r.json", names=["quick_sendr"])
