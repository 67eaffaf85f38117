"""The record of trained configs: its table, and the page that shows it."""

from pathlib import Path

import pytest

from ccenv.cli.main import main
from ccenv.config import shipped_names
from ccenv.errors import InputError
from ccenv.training.config import CONFIGS
from ccenv.training.record import TABLE_END, TABLE_START, read_data, table, write_table

DOCS = Path(__file__).parents[2] / "docs"
RECORD = DOCS / "data" / "learning.json"


def run(seed, score, **more):
    evaluation = {"score": score, "utilisation": 1.0, "queue_bdp": 0.2, "loss": 0.98 - score}
    return {"seed": seed, "learns": "sender, PPO", "steps": 4096, "seconds": 30.0, "evaluation": evaluation, **more}


def test_a_config_is_one_row_with_mean_and_range(tmp_path):
    worst = {"deep": 0.5, "shallow": 0.75}
    runs = {
        "a:0": run(0, 0.9, worst_utilisation=worst, cpu_seconds=10.0),
        "a:10": run(10, 0.94, worst_utilisation={**worst, "deep": 0.6}),
        "a:2": run(2, 0.95, worst_utilisation=worst),
        "b:0": {**run(0, 0.9), "learns": "network, PPO", "evaluation": {**run(0, 0.9)["evaluation"], "score": -0.3}},
    }
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table({"runs": runs}).splitlines()]
    assert len(rows) == 4 and len({len(row) for row in rows}) == 1
    a, b = (dict(zip(rows[0], row, strict=True)) for row in rows[2:])
    assert a["seeds"] == "0, 2, 10" and a["score"] == "0.930 (0.900 to 0.950)" and a["loss"] == "0.050"
    assert a["worst, deep"] == "0.533 (0.500 to 0.600)" and a["worst, shallow"] == "0.750 (0.750 to 0.750)"
    assert a["wall s"] == "30 (30 to 30)" and a["CPU s"] == "10"
    assert b["config"] == "`b`" and b["score"] == "-0.300 (own)" and b["worst, deep"] == "" and b["CPU s"] == ""


def test_the_page_shows_the_record(tmp_path):
    page = DOCS / "learning.md"
    copy = tmp_path / "page.md"
    copy.write_bytes(page.read_bytes())
    write_table(RECORD, copy)
    assert copy.read_text() == page.read_text(), "stale: ccenv.training.record.write_table makes the table"
    copy.write_text(TABLE_START)
    with pytest.raises(InputError, match="no place for the table"):
        write_table(RECORD, copy)
    assert TABLE_END in page.read_text()


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
