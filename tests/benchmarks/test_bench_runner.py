"""Runs of suites and their command."""

import json
import os
from dataclasses import replace
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from small_suite import small, small_suite, write_suite

from ccenv.base.config import validate
from ccenv.base.errors import CcenvError, CcenvWarning, EngineError, InputError, UnknownNameError
from ccenv.base.foreign import parse_json
from ccenv.benchmarks.cells import curve as cells
from ccenv.benchmarks.cells.cell import agent_player
from ccenv.benchmarks.cells.curve import CurveCell, make_curve_cells
from ccenv.benchmarks.run import runner
from ccenv.benchmarks.run.runner import run_cell, run_suite
from ccenv.benchmarks.store import CELLS, MANIFEST, load_cells
from ccenv.benchmarks.suite.curve import Suite
from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.metrics.table import measure
from ccenv.network.metrics.trace import Window
from ccenv.network.trace import load_trace


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / CELLS).read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "run"
    run_suite(small_suite(), folder)
    return folder


def test_every_cell_once_in_the_order_of_the_suite_and_the_manifest_says_how(finished: Path) -> None:
    expected = make_curve_cells(small_suite(), [agent_player("cc_qdel"), agent_player("reno")])
    assert [record["key"] for record in records_of(finished)] == [cell.key for cell in expected] and len(expected) == 16
    manifest = parse_json((finished / MANIFEST).read_bytes(), "manifest")
    assert (manifest["complete"], manifest["n_cells"], manifest["n_missing"]) == (True, 16, 0)
    assert validate(Suite, manifest["suite"], "manifest") == small_suite()
    assert manifest["suite_sha256"] == small_suite().sha256 and manifest["machine"]["processor"]
    assert manifest["versions"]["numpy"] and manifest["statistics"]["generator"] == "numpy Philox"
    assert {agent["label"]: agent["kind"] for agent in manifest["agents"]} == {"cc_qdel": "program", "reno": "classic"}


def test_a_record_is_what_its_path_and_seed_give(finished: Path) -> None:
    """Recompute one cell by hand: engine, trace, window, metrics."""
    from ccenv.adversaries import make_adversary
    from ccenv.agents import make_sender
    from ccenv.engine.curve.engine import CurveEngine
    from ccenv.network.path import Path as NetworkPath

    record = next(r for r in records_of(finished) if (r["scenario"], r["agent"], r["adversary"]) == ("two", "reno", "uniform"))
    engine = CurveEngine(
        [NetworkPath.from_dict(record["path"])], model="cbr_delay", senders=[make_sender("reno")] * 2,
        adversary=make_adversary("uniform"), steps_per_rtt=8, seed=record["engine_seed"], record=True,
    )  # fmt: skip
    engine.advance(20 * 8)
    assert measure(Window(engine.trace(0), 5 * 8, 20 * 8), small()["metrics"]) == record["metrics"]


def test_the_worst_traces_are_legal_and_have_the_metrics_that_the_manifest_says(finished: Path) -> None:
    manifest = parse_json((finished / MANIFEST).read_bytes(), "manifest")
    for entry in manifest["summary"]:
        worst = entry["worst_case"]
        own = [record for record in records_of(finished) if record["agent"] == entry["agent"]]
        assert worst["value"] == min(record["metrics"]["utilisation"] for record in own)
        trace = load_trace(finished / worst["trace"])
        assert check_trace(trace) == []
        assert measure(Window(trace, 40, 160), ["utilisation"])["utilisation"] == worst["value"]
        assert (finished / worst["plot"]).stat().st_size > 10_000
    assert (finished / "summary.png").stat().st_size > 10_000


def test_processes_give_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    run_suite(small_suite(), tmp_path / "other", backend="processes", workers=2, pictures=False)
    assert (tmp_path / "other" / CELLS).read_bytes() == (finished / CELLS).read_bytes()


def test_a_run_in_pieces_gives_the_same_bytes_and_plays_nothing_twice(finished, tmp_path, monkeypatch):
    played = []
    monkeypatch.setattr(runner, "run_cell", lambda cell, broken: played.append(cell.name) or run_cell(cell, broken))
    folder = tmp_path / "pieces"
    first = run_suite(small_suite(), folder, only=["two/*"], limit=3, pictures=False)
    assert (first["complete"], first["n_cells"], first["n_missing"]) == (False, 3, 13)
    assert all(record["scenario"] == "two" for record in records_of(folder))
    run_suite(small_suite(), folder, only=["*/reno/*/1", "*/cc_qdel/kind/*"], pictures=False)
    last = run_suite(small_suite(), folder, pictures=False)
    assert last["complete"] and len(played) == len(set(played)) == 16
    assert (folder / CELLS).read_bytes() == (finished / CELLS).read_bytes()


def test_cells_of_older_code_are_told_and_played_again(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    copytree(finished, folder)
    code = records_of(folder)[0]["code_sha256"]
    lines = [record | {"key": "0" * 32, "code_sha256": "0" * 64} for record in records_of(folder)[:2]]
    (folder / CELLS).write_text("".join(json.dumps(record) + "\n" for record in [*lines, *records_of(folder)[2:]]))
    with pytest.warns(CcenvWarning, match="older: 2 finished cells are of older code"):
        assert run_suite(small_suite(), folder, pictures=False)["complete"]
    assert {record["code_sha256"] for record in records_of(folder)} == {code}
    assert (folder / CELLS).read_bytes() == (finished / CELLS).read_bytes()


def test_half_a_line_is_dropped_and_its_cell_played_again(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    run_suite(small_suite(), folder, limit=5, pictures=False)
    content = (folder / CELLS).read_bytes()
    (folder / CELLS).write_bytes(content[:-7])
    run_suite(small_suite(), folder, pictures=False)
    assert (folder / CELLS).read_bytes() == (finished / CELLS).read_bytes()


def test_a_cell_does_not_depend_on_its_neighbours() -> None:
    suite = small_suite()
    alone = make_curve_cells(small_suite(scenarios=[small()["scenarios"][1]]), [agent_player("reno")])
    together = {cell.name: cell for cell in make_curve_cells(suite, [agent_player("cc_qdel"), agent_player("reno")])}
    for cell in alone:
        assert run_cell(cell, {})["metrics"] == run_cell(together[cell.name], {})["metrics"]


def test_the_key_is_of_what_decides_the_numbers() -> None:
    cell = make_curve_cells(small_suite(), [agent_player("reno")])[0]
    assert replace(cell, agent=replace(cell.agent, spec="elsewhere/reno")).key == cell.key
    changed = [replace(cell, seed=9), replace(cell, agent=replace(cell.agent, sha256="0" * 64)), replace(cell, suite_sha256="x")]
    changed += [replace(cell, steps=161), replace(cell, model="cbr_delay")]
    assert len({each.key for each in [cell, *changed]}) == 6


def test_a_changed_program_is_played_anew_under_its_name(tmp_path: Path) -> None:
    program = json.loads((Path(cells.__file__).parents[2] / "agents" / "synthesized" / "cc_qdel.json").read_text())
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({**program, "name": "mine"}))
    first = run_suite(small_suite(), tmp_path / "run", extra_agents=[str(file)], pictures=False)
    file.write_text(json.dumps({**program, "name": "mine", "rule": {"rate": {"C_L": "1/2"}}}))
    second = run_suite(small_suite(), tmp_path / "run", extra_agents=[str(file)], pictures=False)
    assert first["n_cells"] == second["n_cells"] == 24
    scores = [next(e["score"]["iqm"] for e in m["summary"] if e["agent"] == "mine") for m in (first, second)]
    assert scores[0] != scores[1]
    third = run_suite(small_suite(), tmp_path / "run", pictures=False)  # without it: what was finished is kept
    assert third["n_cells"] == 24 and {agent["label"] for agent in third["agents"]} == {"cc_qdel", "reno", "mine"}


def test_an_illegal_trace_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_curve_cells(small_suite(), [agent_player("reno")])[0]
    trace = cell.trace()
    broken = replace(trace, S=trace.S + 1e6)
    monkeypatch.setattr(cells.CurveEngine, "trace", lambda self, env: broken)
    with pytest.raises(EngineError, match=r"cell one/reno/kind/1: the trace is not legal"):
        cell.trace()


def test_a_worst_case_that_cannot_be_repeated_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, times = CurveCell.values, count()
    monkeypatch.setattr(CurveCell, "values", lambda self, trace: {**values(self, trace), "power": float(next(times))})
    with pytest.raises(EngineError, match="played again"):
        run_suite(small_suite(), tmp_path / "run", limit=1)


def test_another_suite_in_the_folder(tmp_path: Path) -> None:
    run_suite(small_suite(), tmp_path, limit=1, pictures=False)
    other = small_suite(version=2)
    with pytest.raises(InputError, match=r"suite\.version is 1, not 2\); .*--fresh"):
        run_suite(other, tmp_path, pictures=False)
    assert run_suite(other, tmp_path, limit=1, fresh=True, pictures=False)["n_cells"] == 1


def test_a_full_disk_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail_later(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_later)
    with pytest.raises(CcenvError, match="No space left"):
        run_suite(small_suite(), tmp_path, pictures=False)
    monkeypatch.undo()
    kept = len(load_cells(tmp_path))
    assert kept >= CurveCell.per_task and run_suite(small_suite(), tmp_path, pictures=False)["complete"]


def test_damaged_folders(tmp_path: Path) -> None:
    run_suite(small_suite(), tmp_path, limit=2, pictures=False)
    lines = (tmp_path / CELLS).read_text()
    (tmp_path / CELLS).write_text("{}\n" + lines)
    with pytest.raises(InputError, match=r"cells\.jsonl, line 1: not a benchmark cell"):
        run_suite(small_suite(), tmp_path)
    (tmp_path / CELLS).write_text(lines)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(InputError, match="something else than a benchmark run"):
        run_suite(small_suite(), tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(InputError, match="not a manifest"):
        run_suite(small_suite(), tmp_path)


REFUSED: list[tuple[dict[str, Any], type[CcenvError], str]] = [
    ({"backend": "locl"}, UnknownNameError, "Did you mean 'local'"),
    ({"only": ["nowhere/*"]}, InputError, "matches no cell; cells are called like 'one/cc_qdel/kind/1'"),
    ({"limit": 0}, InputError, "limit is 0"),
    ({"workers": 0}, InputError, "workers is 0"),
    ({"extra_agents": ["ren"]}, UnknownNameError, "Did you mean 'reno'"),
    ({"extra_agents": ["copa:default_delt=1"]}, InputError, "default_delta"),
]


@pytest.mark.parametrize(("options", "kind", "message"), REFUSED)
def test_refusals(tmp_path: Path, options: dict[str, Any], kind: type[CcenvError], message: str) -> None:
    with pytest.raises(kind, match=message):
        run_suite(small_suite(), tmp_path / "run", **options)
    assert not (tmp_path / "run" / CELLS).exists()


def test_two_agents_of_one_name_are_refused_and_one_given_twice_is_one(tmp_path: Path) -> None:
    manifest = run_suite(small_suite(), tmp_path / "twice", extra_agents=["reno"], limit=1, pictures=False)
    assert [agent["label"] for agent in manifest["agents"]] == ["cc_qdel", "reno"]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"format": "ccenv-program", "version": 1, "name": "reno", "rule": {"rate": {"C_L": 1}}}))
    with pytest.raises(InputError, match="two agents are called 'reno'"):
        run_suite(small_suite(), tmp_path / "run", extra_agents=[str(file)])


def test_cells_that_failed_are_not_called_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("import ccenv\nclass Bad(ccenv.PythonSender):\n    def on_ack(self, ack):\n        1 / 0\n")
    assert main(["bench", "run", str(write_suite(tmp_path)), "--agent", "bad.py"]) == 1
    told = capsys.readouterr()
    assert "8 cells failed" in told.out and "missing" not in told.out and "bad.py:4: ZeroDivisionError" in told.err


def test_table_and_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = write_suite(tmp_path)
    assert main(["bench", "run", str(suite), "--limit", "3"]) == 0
    text = capsys.readouterr().out
    assert "13 cells are missing" in text and main(["bench", "run", str(suite), "--agent", "constant:rate_mbps=5"]) == 0
    text = capsys.readouterr().out
    assert "suite small version 1, means against kind; 24 cells" in text
    for word in ("cc_qdel", "reno", "constant:rate_mbps=5", "power (IQM, 95 %)", "worst utilisation"):
        assert word in text
    assert "missing" not in text and (tmp_path / "runs" / "bench" / "small" / "summary.png").is_file()


def test_json(tmp_path: Path, answer) -> None:
    suite = write_suite(tmp_path)
    arguments = ["bench", "run", str(suite), "--out", str(tmp_path / "run"), "--only", "one/*", "--json"]
    result = answer(arguments)
    assert result["out"] == str(tmp_path / "run") and (result["complete"], result["n_cells"]) == (False, 8)
    assert {entry["agent"] for entry in result["summary"]} == {"cc_qdel", "reno"}
