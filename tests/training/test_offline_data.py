"""Data sets: the same bytes however they are made; Minari reads them; what a behaviour did is what its flow's window says."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ccenv.agents import make_sender
from ccenv.agents.learned import save_policy
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import make_path
from ccenv.training.offline import play as playing
from ccenv.training.offline.config import DataConfig, load_data_config
from ccenv.training.offline.dataset import data_folder, load_data, make_data

minari = pytest.importorskip("minari")

SMALL = {
    "name": "small",
    "transitions": 40,
    "networks": 2,
    "episode_decisions": 6,
    "signals": ["queue_log2", "send_excess", "loss_log2"],
    "history": 2,
    "parts": [
        {"behaviour": "cubic", "weight": 2, "packet": {"scenario": "offline"}},
        {"behaviour": "copa", "packet": {"scenario": "offline_attacked"}},
        {"behaviour": "reno", "environment": {"models": ["ccac"], "steps_per_rtt": 4, "adversary": "hoard"}},
    ],
}


def small(**changes: Any) -> DataConfig:
    return DataConfig.model_validate({**SMALL, **changes})


def bytes_of(root: Path) -> str:
    """Return a hash of all files below a folder but its lock, with their names."""
    files = sorted(file for file in root.rglob("*") if file.is_file() and file.name != ".lock")
    content = b"".join(str(file.relative_to(root)).encode() + file.read_bytes() for file in files)
    return hashlib.sha256(content).hexdigest()


def test_the_same_bytes_by_one_worker_by_two_and_after_an_interrupt(tmp_path: Path) -> None:
    made = make_data(small(), tmp_path / "one")
    assert made["legal"] and [part["checked"] for part in made["parts"]] == [1, 1, 1]
    assert [part["transitions"] for part in made["parts"]] == [24, 12, 12]
    make_data(small(), tmp_path / "two", jobs=2)

    def stop(finished: int, chunks: int) -> None:
        if finished == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_data(small(), tmp_path / "again", report=stop)
    folder = data_folder(small(), tmp_path / "again")
    (folder / "data" / "4").mkdir()
    (folder / "data" / "4" / "part-0.arrow").write_bytes(b"half of a chunk that was being written")
    with pytest.raises(InputError, match="no finished data set"):
        load_data(folder)
    again = make_data(small(), tmp_path / "again")
    assert again["made_transitions"] == 24 and again["sha256"] == made["sha256"]
    assert len({bytes_of(tmp_path / name) for name in ("one", "two", "again")}) == 1
    with pytest.raises(InputError, match=r"of other settings \(config.seed is 0, not 1\)"):
        make_data(small(seed=1), tmp_path / "one")
    assert make_data(small(seed=1), tmp_path / "one", fresh=True)["sha256"] != made["sha256"]


def test_minari_reads_what_was_played_and_metadata_tell_who_behaved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    assert main(["data", "make", str(tmp_path / "small.yaml"), "--json"]) == 0
    stored = minari.load_dataset("ccenv/small-v0")
    assert (stored.total_episodes, stored.total_steps) == (8, 48)
    about = stored.storage.metadata["ccenv"]
    assert [part["behaviour"] for part in about["parts"]] == ["cubic", "copa", "reno"] and about["legal"]
    assert about["parts"][2]["scenario"] == SMALL["parts"][2]["environment"]
    metas = list(stored.storage.get_episode_metadata(range(8)))
    assert [meta["behaviour"] for meta in metas] == ["cubic"] * 4 + ["copa"] * 2 + ["reno"] * 2
    for number, part, seed in ((2, 0, metas[2]["seed"]), (7, 2, metas[7]["seed"])):
        played, _ = playing.play(small(), small().parts[part], seed, 2)
        episode, one = stored[number], played[metas[number]["network"]]
        assert np.array_equal(episode.observations, one.observations) and episode.observations.shape == (7, 6)
        assert np.array_equal(episode.actions, one.actions) and np.array_equal(episode.rewards, one.rewards)
        assert episode.truncations.tolist() == [False] * 5 + [True] and not episode.terminations.any()
        assert stored.observation_space.contains(episode.observations[3]) and stored.action_space.contains(episode.actions[3])
    data = load_data(tmp_path / "ccenv" / "small-v0")
    assert len(data.rewards) == 48 and np.array_equal(data.observations[1:6], data.next_observations[:5])
    assert np.bincount(data.parts).tolist() == [24, 12, 12]


def test_actions_told_by_the_window_are_those_that_a_policy_took(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    interface = small().packet_settings().policy_interface()
    weights = (generator.normal(size=(6, 4)), generator.normal(size=(4, 1)))
    policy = PolicySender("mine", weights, (np.zeros(4), np.array([0.3])), "tanh", interface)
    save_policy(tmp_path / "mine.safetensors", policy, {})
    part = {"behaviour": str(tmp_path / "mine.safetensors"), "packet": {"scenario": "offline"}}
    config = small(parts=[part], episode_decisions=30)
    taken: list[dict[str, Any]] = []
    real = playing._episodes
    for own in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(playing, "_episodes", lambda config, steps, own_actions, own=own: real(config, steps, own_actions=own))
            taken.append({"episodes": playing.play(config, config.parts[0], 3, 4)[0]})
    compared = 0
    for asked, told in zip(taken[0]["episodes"], taken[1]["episodes"], strict=True):
        assert np.abs(asked.actions).max() > 0.05
        above = np.abs(asked.actions - told.actions)[:, 0] < 1e-5  # at two segments the window falls no further
        falls_below = asked.actions[~above, 0] < told.actions[~above, 0]
        assert falls_below.all()
        compared += int(above.sum())
    assert compared > 60


def test_watching_a_sender_changes_nothing_that_it_does() -> None:
    config = small(parts=[{"behaviour": "cubic", "environment": {"paths": PATH.model_dump(mode="json"), "adversary": "benign"}}])
    _, core = playing.play(config, config.parts[0], 0, 1)
    engine = CurveEngine([PATH], model="ccac", senders=[make_sender("cubic")], adversary=None)
    engine.advance(6 * engine.steps_per_rtt)
    assert core.delivered_bytes[0, 0] == engine.totals()["S"][0, 0] > 0


PATH = make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=20, buffer_bdp=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"parts": [{"behaviour": "cubic"}]}, "give packet or environment, one of them"),
     ({"parts": [{"behaviour": "cubik", "packet": {}}]}, "cubic"),
     ({"parts": [{"behaviour": "aurora", "packet": {"scenario": "offline"}}]}, "decides over another interface"),
     ({"parts": [{"behaviour": "aurora", "environment": {}}]}, "sees more than beliefs"),
     ({"parts": [{"behaviour": "cubic", "packet": {"reward": "orca"}}]}, "give reward beside parts"),
     ({"parts": [{"behaviour": "cubic", "packet": {"scenario": "jittered"}}]}, "no flow has the sender 'external'"),
     ({"parts": [{"behaviour": "lambda_proxy", "packet": {}}]}, "behind a proxy"), ({"name": "../up"}, "must be a letter"),
     ({"transitions": 10**12}, "raise networks or episode_decisions"), ({"signals": ["queue_log3"]}, "queue_log2")],
)  # fmt: skip
def test_a_config_that_makes_no_sense_is_one_line(tmp_path, changes, said, refused):
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**SMALL, **changes}))
    refused(["data", "make", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "sets")], said)
    assert not (tmp_path / "sets").exists()


def test_a_damaged_or_forged_data_set_is_one_line(tmp_path: Path) -> None:
    config = small(parts=SMALL["parts"][:1], checked=0, transitions=12)
    make_data(config, tmp_path)
    folder = data_folder(config, tmp_path)
    arrow, meta, root = (folder / "data" / name for name in ("1/part-0.arrow", "1/metadata.json", "metadata.json"))
    other = (folder / "data" / "0" / "part-0.arrow").read_bytes()
    about = json.loads(root.read_text())
    forged = {**about, "ccenv": {**about["ccenv"], "config": {**about["ccenv"]["config"], "history": 1}}}
    for file, content, said in (
        (arrow, arrow.read_bytes()[:200], "not a readable data set"),
        (arrow, b"", "not a readable data set"),
        (arrow, other, "sha256 differs"),
        (arrow, None, "not a readable data set"),
        (meta, b"[1, 2", "not a readable data set"),
        (meta, meta.read_bytes().replace(b"cubic", b"cubik"), "sha256 differs"),
        (root, b"{}", "not a readable data set"),
        (root, json.dumps({**about, "total_episodes": 10**9}).encode(), "it has 2 episodes"),
        (root, json.dumps({**about, "total_episodes": 1}).encode(), "it has 2 episodes"),
        (root, json.dumps({**about, "minari_version": "99"}).encode(), "not a readable data set"),
        (root, json.dumps(forged).encode(), "observations are not of the config's interface"),
    ):
        kept = file.read_bytes()
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(InputError, match=said) as raised:
            load_data(folder)
        assert "\n" not in str(raised.value) and str(folder) in str(raised.value)
        if file != root:  # which is written anew
            with pytest.raises(InputError, match=r"the files of chunk 0 are not those that were made: --fresh makes them anew$"):
                make_data(config, tmp_path)
        file.write_bytes(kept)
    assert len(load_data(folder).rewards) == 12
    for name, said in (("data/99999", r"data/99999 is no file of this data set"), ("data/0/part-1.arrow", "files of chunk 0")):
        (folder / name).write_bytes(b"")
        with pytest.raises(InputError, match=said):
            make_data(config, tmp_path)
        (folder / name).unlink()
    journal = folder / "chunks.jsonl"
    kept = journal.read_text()
    journal.write_text(kept.replace('"reward_sum":', '"reward_sum":1'))
    with pytest.raises(InputError, match=r"chunks.jsonl.*--fresh"):
        make_data(config, tmp_path)
    journal.write_text(kept)
    assert make_data(config, tmp_path)["made_transitions"] == 0


def test_the_shipped_configs_are_read() -> None:
    assert load_data_config("quick", {"transitions": 1000}).transitions == 1000
    assert sum(load_data_config("billion").chunks_of_parts()) * 256 * 2000 >= 10**9
