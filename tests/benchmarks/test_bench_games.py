"""Suites of solved games, and exact rows beside measured ones."""

from __future__ import annotations

import json

import pytest

from ccenv.base.errors import InputError
from ccenv.benchmarks.cells.game import game_player
from ccenv.benchmarks.run.runner import evaluate, run_suite
from ccenv.benchmarks.suite.curve import load_suite, suite_of


def small(**changes):
    data = load_suite("solved-v1").model_dump()
    data |= {
        "scenarios": [{"name": "ideal"}, {"name": "mine", "game": "ccac_small"}],
        "table": {},
        "references": [],
        "figures": [],
    }
    return suite_of({**data, "name": "small", **changes}, "small")


def test_solved_v1_has_the_numbers_of_the_page(tmp_path):
    """Best play has the value as its regret; cc_qdel 51 and C_L + 1 36 on cbr_small, whose value is 34."""
    only = [f"cbr_small/{agent}/*" for agent in ("optimal", "cc_qdel", "C_L+1")]
    table = run_suite("solved-v1", tmp_path / "run", only=only, pictures=False)["table"]
    assert {agent: row["cbr_small"] for agent, row in table.items()} == {"optimal": 34, "C_L+1": 36, "cc_qdel": 51}
    assert table["optimal"]["exploitability"] == 0
    assert table["optimal"]["optimal_share"] == 1


def test_records_hold_the_line_up_to_the_first_error():
    records = evaluate(small(), "cc_probe_fast")
    lines = [record["first_error"] for record in records if record["scenario"] == "ideal"]
    assert lines[0][-1]["error"] > 0
    assert not any(row["error"] for row in lines[0][:-1])
    assert {record["metrics"]["value"] for record in records if record["scenario"] == "mine"} == {21}
    assert not evaluate(small(), "optimal")[0]["first_error"]


def test_runs_are_resumed_and_a_changed_game_is_another_cell(tmp_path):
    first = run_suite(small(agents=["C_L"]), tmp_path / "run", pictures=False)
    again = run_suite(small(agents=["C_L"]), tmp_path / "run", pictures=False, limit=1)
    assert again["n_cells"] == first["n_cells"] == 6
    suite = small(agents=["C_L"])
    from ccenv.benchmarks.run.runner import make_cells

    keys = {cell.key for cell in make_cells(suite, [game_player("C_L")])}
    assert len(keys) == 6


def test_senders_that_no_board_can_drive_are_refused(tmp_path):
    with pytest.raises(InputError, match="is no belief program"):
        evaluate(small(), "cubic")
    program = {
        "format": "ccenv-program",
        "version": 1,
        "name": "again",
        "source": "",
        "rule": {"if": "loss", "then": {"rate": {"C_L": 1}}, "else": {"rate": {"C_L": 2}}},
    }
    (tmp_path / "again.json").write_text(json.dumps(program))
    with pytest.raises(InputError, match="reads loss, which a board does not say"):
        evaluate(small(), str(tmp_path / "again.json"))
    with pytest.raises(InputError, match="unknown agent 'tortoise'"):
        evaluate(small(), "tortoise")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"networks": ["kind"]}, "unknown network 'kind'"),
        ({"scenarios": [{"name": "go"}]}, "scenario go: unknown game 'go'"),
        ({"metrics": ["power"]}, "unknown metric of a game 'power'"),
    ],
)
def test_wrong_suites_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)


def test_loss_convergence_has_exact_rows():
    suite = load_suite("loss-convergence")
    rows = {(game.game, *map(str, game.changes.values())): [row["steps"] for row in game.rows()] for game in suite.solved}
    assert rows["ccac_small",] == [2, 5, 9, 14]
    assert rows["ccac_small", "[0, 'C']"] == [3, 7, 12, 18]
    assert rows["cbr_small", "['C']"] == [1, 2, 3, 4, 5]
    assert rows["ideal",] == [row["ramp_steps"] for row in suite.solved[0].rows()]
    assert "solved" not in load_suite("fct-v1").model_dump()
    assert suite.sha256 == suite.model_copy(update={"solved": ()}).sha256
