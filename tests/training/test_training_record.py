"""The record of trained configs: its table, and the page that shows it."""

import json
from pathlib import Path

import pytest

from ccenv.agents.learned.zoo import trained_on_scenes
from ccenv.attacks import page as attacks_page
from ccenv.attacks.catalog import PANEL
from ccenv.attacks.scenes import scene_of, scene_set
from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.base.pages import END
from ccenv.cli.main import main
from ccenv.network.path import Path as NetworkPath
from ccenv.training.config import CONFIGS
from ccenv.training.records import ATTACK_SCENES, PLACE, read_data, table, write_table

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "data" / "learning.json"


def run(seed, score, worst=None, **more):
    evaluation = {
        "score": score,
        "utilisation": 1.0,
        "queue_bdp": 0.2,
        "loss": 0.98 - score,
        "n_flows": 1,
        "share": 1.0,
        "jain": 1.0,
    }
    base = {"seed": seed, "learns": "sender, PPO", "steps": 4096, "seconds": 30.0, "evaluation": evaluation, "common": evaluation}
    return base | {"worst": worst or {}} | more


def rows_of(text):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert len({len(row) for row in rows}) == 1
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


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
    scores, worst_cases = (rows_of(part) for part in table({"runs": runs}).split("\n\n"))
    a, c, b = scores
    assert a["seeds"] == "0, 2, 10" and a["score"] == "0.930 (0.900 to 0.950)" and a["loss"] == "0.050"
    assert a["wall s"] == "30 (30 to 30)" and a["CPU s"] == "10"
    assert (a["flows"], a["share"], a["Jain"], a["score, common world"]) == ("1", "", "", "0.930 (0.900 to 0.950)")
    assert (c["flows"], c["share"], c["Jain"], c["score, common world"]) == ("2", "0.400", "0.800", "")
    assert b["config"] == "`b`" and b["score"] == "-0.300 (own)" and b["CPU s"] == ""
    a, c = worst_cases
    assert a["deep (training)"] == "0.533 (0.500 to 0.600)†" and a["long_jitter (report)"] == "0.750 (0.750 to 0.750)"
    assert c["deep (training)"] == "0.500" and c["long_jitter (report)"] == "0.750*"


def test_recorded_numbers_say_where_they_are_from():
    for key, entry in read_data(RECORD)["runs"].items():
        world = entry["world"]
        scenarios = world.get("mixture") or world.get("packet", {}).get("scenario")
        assert entry["evaluation"]["path_set"] == "report" and (world.get("senders") or scenarios), key
        for scene, case in entry["worst"].items():
            assert scene in ATTACK_SCENES and case["set"] == scene_set(scene), key
            assert (case["seen"] == "attacked") == (key.startswith("learned_robust:") and scene in ("deep", "shallow")), key


def test_recorded_attacks_name_their_scene():
    recorded = json.loads((DOCS / "data" / "attacks.json").read_text())
    for row in recorded:
        assert row["scene"] == scene_of(NetworkPath.from_dict(row["path"])) and row["scene_set"] == scene_set(row["scene"])
        assert row["trained_on_scenes"] == trained_on_scenes(row["sender"])


def test_the_page_shows_the_record(tmp_path):
    page = DOCS / "learning.md"
    copy = tmp_path / "page.md"
    copy.write_bytes(page.read_bytes())
    write_table(RECORD, copy)
    assert copy.read_text() == page.read_text(), "stale: ccenv.training.records.write_table makes the tables"
    copy.write_text(PLACE.start)
    with pytest.raises(InputError, match="no place for the table"):
        write_table(RECORD, copy)
    assert END in page.read_text()


def test_the_page_of_adversaries_shows_its_record(tmp_path):
    page = DOCS / "adversaries.md"
    copy = tmp_path / "page.md"
    copy.write_bytes(page.read_bytes())
    attacks_page.write_table(DOCS / "data" / "attacks.json", copy)
    assert copy.read_text() == page.read_text(), "stale: ccenv.attacks.page.write_table makes the table"
    for place in (RECORD, copy):
        with pytest.raises(InputError):
            attacks_page.write_table(RECORD, place)
    name, panel = "learned_robust", {key: {"worst_utilisation": 0.5, "flow_steps": 1} for key in PANEL}
    row = {"sender": name, "scene": "deep", "scene_set": "training", "worst_utilisation": 0.5, "by_adversary": panel}
    told = attacks_page.table([row | {"trained_on_scenes": ["deep"]}, row | {"trained_on_scenes": None}])
    assert [line.split(" | ")[1] for line in told.splitlines()[2:4]] == ["deep†", "deep"]


def test_the_page_of_adversaries_shows_what_longer_searches_gain(tmp_path):
    page, files = DOCS / "adversaries.md", [DOCS / "data" / name for name in ("attacks.json", "hidden-attacks.json")]
    copy = tmp_path / "page.md"
    copy.write_bytes(page.read_bytes())
    attacks_page.write_hidden(*files, copy)
    assert copy.read_text() == page.read_text(), "stale: ccenv.attacks.page.write_hidden makes the table"
    panel, hidden = (json.loads(file.read_text()) for file in files)
    assert all(row["legal"] and row["seed"] != 0 and row["budget_flow_steps"] == 200_000_000 for row in hidden)
    told = attacks_page.hidden_table(panel, [hidden[0] | {"worst_utilisation": hidden[0]["worst_utilisation"] - 0.5}])
    assert told.splitlines()[-1].startswith("| 1 | 0 (0%) | .")
    with pytest.raises(InputError, match="the panel has not attacked it"):
        attacks_page.hidden_table(panel, [hidden[0] | {"sender": "nobody"}])


def test_the_page_shows_the_attacks_on_paths_that_nobody_trained_on(tmp_path):
    page, file = DOCS / "learning.md", DOCS / "data" / "unseen-paths.json"
    copy = tmp_path / "page.md"
    copy.write_bytes(page.read_bytes())
    attacks_page.write_paths(file, copy)
    assert copy.read_text() == page.read_text(), "stale: ccenv.attacks.page.write_paths makes the table"
    rows = json.loads(file.read_text())
    assert all(row["legal"] and set(row["by_adversary"]) == set(PANEL) for row in rows)
    for row in rows:
        flow = row["path"]["flows"][0]
        assert row["worst_utilisation"] <= 1 - flow["jitter_s"] / (row["window_rtts"] * flow["rtt_s"]) + 1e-3, row["sender"]
    with pytest.raises(InputError, match="no place for the table"):
        attacks_page.write_paths(file, DOCS / "adversaries.md")


def test_the_gap_on_the_page_is_that_of_the_record():
    record = json.loads((DOCS / "data" / "adversary-gap.json").read_text())
    recorded = record["rows"]
    assert record["adversaries"] == list(PANEL)
    lines = (DOCS / "adversaries.md").read_text().partition("| sender | model | windows |")[2].splitlines()[2:]
    shown = [line.strip("| ").split(" | ") for line in lines[: len(recorded)]]
    for row, cells in zip(recorded, shown, strict=True):
        assert cells[0] == row["sender"]
        assert float(cells[4]) == pytest.approx(row["found"], rel=0.06, abs=6e-4), row["sender"]
        for column, name in ((5, "ratio"), (9, "cold_ratio"), (10, "cold_bound"), (11, "cold_bound_ratio")):
            assert cells[column] == ("" if row[name] is None else f"{row[name]:.3f}"), row["sender"]


def test_every_shipped_config_has_a_result():
    runs = read_data(RECORD)["runs"]
    assert {key.rpartition(":")[0] for key in runs} == set(shipped_names(CONFIGS, ".yaml"))
    assert {run["seed"] for key, run in runs.items() if key.startswith("ppo_sender:")} >= set(range(5))


def test_ones_own_loop_stays_within_sixty_lines():
    page = (DOCS / "own-loop.md").read_text()
    block = page.partition("```python\n")[2].partition("```")[0]
    n = len(block.splitlines())
    assert n <= 60 and f"in {n} lines of" in page and max(map(len, block.splitlines())) <= 130


@pytest.mark.parametrize(
    ("record", "said"),
    [("page.md", "not valid JSON"), ("none/rec.json", "in an existing folder"), (".", "in an existing folder")],
)
def test_a_record_that_cannot_be_written_is_refused_before_training(tmp_path, monkeypatch, capsys, record, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text("# A page")
    assert main(["train", "quick_sender", "--record", record]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
