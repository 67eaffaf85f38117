"""``ccenv bench``: what it prints, where it writes, how it fails."""

import json
from pathlib import Path

import pytest
from small_suite import write_suite

from ccenv.cli.main import main


def test_cells_that_failed_are_not_called_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("import ccenv\nclass Bad(ccenv.PythonSender):\n    def on_ack(self, ack):\n        1 / 0\n")
    assert main(["bench", "run", str(write_suite(tmp_path)), "--agent", "bad.py"]) == 1
    told = capsys.readouterr()
    assert "8 cells failed" in told.out
    assert "missing" not in told.out
    assert "bad.py:4: ZeroDivisionError" in told.err


def test_table_and_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = write_suite(tmp_path)
    assert main(["bench", "run", str(suite), "--limit", "3"]) == 0
    text = capsys.readouterr().out
    assert "13 cells are missing" in text
    assert main(["bench", "run", str(suite), "--agent", "constant:rate_mbps=5"]) == 0
    text = capsys.readouterr().out
    assert "suite small version 1, means against kind; 24 cells" in text
    for word in ("cc_qdel", "reno", "constant:rate_mbps=5", "power (IQM, 95 %)", "worst utilisation"):
        assert word in text
    assert "missing" not in text
    assert (tmp_path / "runs" / "bench" / "small" / "summary.png").is_file()


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = write_suite(tmp_path)
    arguments = ["bench", "run", str(suite), "--out", str(tmp_path / "run"), "--only", "one/*", "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["out"] == str(tmp_path / "run")
    assert (result["complete"], result["n_cells"]) == (False, 8)
    assert {entry["agent"] for entry in result["summary"]} == {"cc_qdel", "reno"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quik"], "Did you mean 'quick'"),
        (["quick", "--backend", "procesess"], "Did you mean 'processes'"),
        (["quick", "--agent", "cubik"], "Did you mean 'cubic'"),
        (["quick", "--only", "dep/*"], "matches no cell"),
        (["quick", "--limit", "0"], "limit is 0"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("ccenv: error: ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
