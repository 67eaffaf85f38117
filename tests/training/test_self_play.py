"""The record of self-play: curves of all seeds, senders against the networks of other seeds, the page and its picture."""

import csv
import shutil
from pathlib import Path

import pytest
import yaml
from tables.self_play import FORMAT, draw_self_play, record_self_play, runs

from ccenv.adversaries import make_adversary
from ccenv.adversaries.learned import save_adversary
from ccenv.agents import make_sender
from ccenv.agents.learned import save_policy
from ccenv.agents.sender import PolicySender
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.network.adversary import MlpAdversary
from ccenv.training.config import load_data
from ccenv.training.evaluation import evaluate_in_world
from ccenv.training.rllib.run import CONFIG, NETWORK, PROGRESS, RllibConfig

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "data" / "self-play.json"
PLAYERS = (("learned_nominal", "network_nominal"), ("learned_low_delay", "network_drain"))


def finished(folder: Path, seed: int, **changes: object) -> Path:
    """Write what a finished run of self-play leaves, with policies of the zoo."""
    data, where = load_data("rllib_duel", [f"seed={seed}", "iterations=6", "n_paths=16"])
    config = validate(RllibConfig, data | changes, where)
    sender, network = PLAYERS[seed]
    (folder / NETWORK).mkdir(parents=True)
    player, opponent = make_sender(sender), make_adversary(network)
    assert isinstance(player, PolicySender) and isinstance(opponent, MlpAdversary)
    save_policy(folder, player, {})
    save_adversary(folder / NETWORK, opponent, {})
    (folder / CONFIG).write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with (folder / PROGRESS).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["iteration", "steps", "sender_return", "network_return"])
        rows.writerows([i, 100 * i, seed + i / 4, -seed - i / 4] for i in range(1, 7))
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [finished(tmp_path / f"duel-{seed}", seed) for seed in (0, 1)]


def test_each_sender_plays_each_seeds_network(folders: list[Path], tmp_path: Path) -> None:
    data = record_self_play(folders, tmp_path / "record.json")
    assert FORMAT.read(tmp_path / "record.json")["utilisation"] == data["utilisation"]
    assert data["runs"][1]["sender_return"] == [1.25, 1.5, 1.75, 2.0, 2.25, 2.5]
    config = validate(RllibConfig, *load_data("rllib_duel", ["n_paths=16"]))
    for i, (sender, _) in enumerate(PLAYERS):
        for j, (_, network) in enumerate(PLAYERS):
            alone = evaluate_in_world(config.settings(), make_sender(sender), 16, adversary=make_adversary(network))
            assert data["utilisation"][i][j] == alone.utilisation
    assert [list(row.values())[:5] for row in runs(data)][1:] == [["1", "600", "1.2", "2.0", "2.0"]]
    draw_self_play(data, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_no_record_of_seeds_is_refused(folders: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    other = finished(tmp_path / "other", 1, learning_rate=0.5)
    twice = shutil.copytree(folders[0], tmp_path / "twice")
    half = shutil.copytree(folders[1], tmp_path / "half")
    (half / PROGRESS).write_text("".join((half / PROGRESS).read_text().splitlines(keepends=True)[:4]))
    odd = shutil.copytree(folders[1], tmp_path / "odd")
    (odd / PROGRESS).write_text((odd / PROGRESS).read_text().replace("1.5", "fast"))
    for given, said in (
        ([], "runs of one config"),
        ([folders[0], other], "differ in their seeds alone"),
        ([folders[0], twice], "the same seed"),
        ([folders[0], half], "3 of 6 iterations"),
        ([folders[0], odd], "not the progress of self-play"),
    ):
        with pytest.raises(InputError, match=said):
            record_self_play(given, file)
    assert not file.exists()


def test_the_record_has_three_seeds_and_its_picture() -> None:
    assert sorted(run["seed"] for run in FORMAT.read(RECORD)["runs"]) == [0, 1, 2]
    assert (DOCS / "images" / "self-play.png").is_file()
