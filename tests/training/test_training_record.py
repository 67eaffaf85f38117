"""The record of trained configs: its table, and the page that shows it."""

import json
from pathlib import Path

import pytest
from tables import training
from tables.training_records import ATTACK_SCENES, check_record, read_data

from ccenv.agents.learned.zoo import trained_on_scenes
from ccenv.attacks.scenes import scene_of, scene_set
from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.network.path import Path as NetworkPath
from ccenv.training.config import CONFIGS

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "data" / "learning.json"


def run(seed, score, worst=None, **more):
    evaluation = {
        "score": score, "utilisation": 1.0, "queue_bdp": 0.2, "loss": 0.98 - score, "n_flows": 1, "share": 1.0, "jain": 1.0,
    }  # fmt: skip
    base = {"seed": seed, "learns": "sender, PPO", "steps": 4096, "seconds": 30.0, "evaluation": evaluation, "common": evaluation}
    return base | {"worst": worst or {}} | more


def test_a_config_is_one_row_with_mean_and_range():
    def worst(deep, seen, long_seen=None):
        return {
            "deep": {"utilisation": deep, "set": "training", "seen": seen},
            "long_jitter": {"utilisation": 0.75, "set": "report", "seen": long_seen},
        }

    shared = {"evaluation": run(0, 0.9)["evaluation"] | {"n_flows": 2, "share": 0.4, "jain": 0.8}, "common": None}
    runs = {
        "a:0": run(0, 0.9, worst(0.5, "attacked"), cpu_seconds=10.0),
        "a:10": run(10, 0.94, worst(0.6, "attacked")),
        "a:2": run(2, 0.95, worst(0.5, "attacked")),
        "b:0": run(0, 0.9, learns="network, PPO", evaluation=run(0, 0.9)["evaluation"] | {"score": -0.3}, common=None),
        "c:0": run(0, 0.9, worst(0.5, "in range", "in range"), **shared),
    }
    a, c, b = training.scores({"runs": runs})
    assert a["seeds"] == "0, 2, 10" and a["score"] == "0.930 (0.900 to 0.950)" and a["loss"] == "0.050"
    assert a["wall s"] == "30 (30 to 30)" and a["CPU s"] == "10"
    assert (a["flows"], a["share"], a["Jain"], a["score, common world"]) == ("1", "", "", "0.930 (0.900 to 0.950)")
    assert (c["flows"], c["share"], c["Jain"], c["score, common world"]) == ("2", "0.400", "0.800", "")
    assert b["config"] == "`b`" and b["score"] == "-0.300 (own)" and b["CPU s"] == ""
    a, c = training.worst({"runs": runs})
    assert a["deep (training)"] == "0.533 (0.500 to 0.600)†" and a["long_jitter (report)"] == "0.750 (0.750 to 0.750)"
    assert c["deep (training)"] == "0.500" and c["long_jitter (report)"] == "0.750*"


def test_recorded_numbers_say_where_they_are_from_and_attacks_their_scene():
    for key, entry in read_data(RECORD)["runs"].items():
        world = entry["world"]
        scenarios = world.get("mixture") or world.get("packet", {}).get("scenario")
        assert entry["evaluation"]["path_set"] == "report" and (world.get("senders") or scenarios), key
        for scene, case in entry["worst"].items():
            assert scene in ATTACK_SCENES and case["set"] == scene_set(scene), key
            assert (case["seen"] == "attacked") == (key.startswith("learned_robust:") and scene in ("deep", "shallow")), key
    recorded = json.loads((DOCS / "data" / "attacks.json").read_text())
    for row in recorded:
        assert row["scene"] == scene_of(NetworkPath.from_dict(row["path"])) and row["scene_set"] == scene_set(row["scene"])
        assert row["trained_on_scenes"] == trained_on_scenes(row["sender"])


def test_every_shipped_config_has_a_result():
    runs = read_data(RECORD)["runs"]
    assert {key.rpartition(":")[0] for key in runs} == set(shipped_names(CONFIGS, ".yaml"))
    assert {run["seed"] for key, run in runs.items() if key.startswith("ppo_sender:")} >= set(range(5))


def test_ones_own_loop_stays_within_sixty_lines():
    page = (DOCS / "training.md").read_text().partition("## Your own training loop")[2]
    block = page.partition("```python\n")[2].partition("```")[0]
    n = len(block.splitlines())
    assert n <= 60 and f"in {n} lines of" in page and max(map(len, block.splitlines())) <= 130


@pytest.mark.parametrize(
    ("record", "said"),
    [("page.md", "not valid JSON"), ("none/rec.json", "in an existing folder"), (".", "in an existing folder")],
)
def test_a_record_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch, record, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text("# A page")
    with pytest.raises(InputError, match=said):
        check_record(Path(record))
    assert not (tmp_path / "runs").exists()
