"""Every script of examples/clients runs a few steps, where its package is installed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "clients"
NEEDS = {
    "cleanrl_style_ppo": "torch", "rl_zoo3_ppo": "rl_zoo3", "rllib_ppo": "ray", "sb3_contrib_clients": "sb3_contrib",
    "sb3_dqn": "stable_baselines3", "sb3_kernel_ppo": "stable_baselines3", "skrl_ppo": "skrl", "supersuit_ppo": "supersuit",
    "tianshou_ppo": "tianshou", "torchrl_ppo": "torchrl",
}  # fmt: skip


def test_every_script_is_known_and_in_the_table() -> None:
    scripts = {file.stem for file in FOLDER.glob("*.py")} - {"common"}
    assert scripts == set(NEEDS)
    page = (FOLDER.parents[1] / "docs" / "environments.md").read_text(encoding="utf-8")
    assert all(f"| `{script}.py` |" in page for script in scripts)


@pytest.mark.slow
@pytest.mark.parametrize("script", NEEDS)
def test_scripts_train_and_tell_their_speed(script: str, tmp_path: Path) -> None:
    if find_spec(NEEDS[script]) is None:
        pytest.skip(f"{NEEDS[script]} is not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(FOLDER / f"{script}.py"), "--steps", "2048"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    told = json.loads(lines[-1])
    assert told["steps"] >= 2048 and told["steps_per_s"] > 0
