"""Scripts as users write them run as they are, and their types fit: for pyright here, for mypy in ``make lint``."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "users").glob("*.py"))


def test_there_are_ten() -> None:
    assert len(SCRIPTS) == 10


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_pyright_finds_no_error(tmp_path: Path) -> None:
    """The scripts, and one with a wrong type, which shows that the checker sees ccenv's types."""
    root = SCRIPTS[0].parents[2]
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import ccenv\n\nccenv.compare(["cubic"], rate="50mbps", seed="one")\n')
    venv = Path(sys.prefix)
    settings = {
        **{"include": [str(root / "tests" / "users"), str(wrong)], "extraPaths": [str(root)], "pythonVersion": "3.11"},
        **{"typeCheckingMode": "standard", "venvPath": str(venv.parent), "venv": venv.name},
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(tmp_path), "--outputjson"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout)
    assert found["summary"]["filesAnalyzed"] == len(SCRIPTS) + 1
    errors = [problem for problem in found["generalDiagnostics"] if problem["severity"] == "error"]
    assert [(Path(e["file"]).name, e["rule"]) for e in errors] == [("wrong.py", "reportArgumentType")], errors
