"""The tutorials: outputs belong to the code, nothing of one machine is in them, and the code runs without Jupyter."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
sys.path.insert(0, str(ROOT / "docs" / "site"))

from pages import code_sha256, notebook_page  # noqa: E402 - the folder of the site's tools is no package

LIMIT_S = 300
FIRST_LIMIT_S = 120  # what the documentation promises of the first notebook


def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def script(notebook: dict[str, Any]) -> str:
    """The notebook as a script: lines that begin with an exclamation mark run in a shell, as in Jupyter."""
    lines = ["import subprocess", "def shell(command):", "    subprocess.run(command, shell=True, check=True)"]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            for line in "".join(cell["source"]).split("\n"):
                lines.append(f"shell({line[1:]!r})" if line.startswith("!") else line)
    return "\n".join(lines)


def run(code: str, folder: Path, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "MPLBACKEND": "agg", "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=limit_s)


def test_there_are_five() -> None:
    assert [file.stem[0] for file in TUTORIALS] == list("12345")


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_outputs_belong_to_the_code(file: Path) -> None:
    notebook = read(file)
    recorded = notebook["metadata"]["ccenv"]
    assert recorded["sha256"] == code_sha256(notebook), "run it again: python docs/site/execute.py"
    assert 0 < recorded["seconds"] < FIRST_LIMIT_S
    outputs = [output for cell in notebook["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert len(outputs) > 3 and not [output for output in outputs if output["output_type"] == "error"]


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_nothing_of_one_machine(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"/(?:tmp|home|root|work|usr)/", text)
    assert "\\u001b" not in text
    assert len(text) < 400_000


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_pages_hold_code_outputs_and_pictures(file: Path) -> None:
    text, pictures = notebook_page(file)
    assert text.startswith("# ")
    for name, content in pictures.items():
        assert f"]({name})" in text
        assert content.startswith((b"\x89PNG", b"<"))
    assert text.count("```python") + text.count("```console") == sum(cell["cell_type"] == "code" for cell in read(file)["cells"])


@pytest.mark.parametrize(
    "file", [pytest.param(f, marks=[] if f.stem.startswith("1") else pytest.mark.slow, id=f.stem) for f in TUTORIALS]
)
def test_a_notebook_runs(file: Path, tmp_path: Path) -> None:
    """The first one in the test command; a kernel that is compiled anew takes longer than the tutorial itself."""
    done = run(script(read(file)), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broken_notebook_fails(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["x = 1\n", "!exit 3"], "outputs": []}]
    assert run(script({"cells": cells}), tmp_path).returncode != 0


def test_the_optuna_example_runs(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("stable_baselines3")
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import pathlib.*?|from pathlib.*?)```", page.partition("### Optuna")[2], re.DOTALL)
    small = code.replace("200_000", "8192").replace("N_TRIALS = 20", "N_TRIALS = 2")
    assert small != code
    done = run(small, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learning_rate" in done.stdout
    assert shlex.split(done.stdout)  # it printed the best point
