"""Environments in spawned workers, which import Gymnasium but not ccenv."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

SPAWNED = """
from functools import partial
import gymnasium

if __name__ == "__main__":
    made = partial(gymnasium.make, "ccenv:ccenv/Sender-v0", adversary="hoard")
    envs = gymnasium.vector.AsyncVectorEnv([made] * 2, context="spawn")
    observations, _ = envs.reset(seed=0)
    print(observations.shape, envs.step(envs.action_space.sample())[1].shape)
    envs.close()
"""
LOADED = """
import sys
from importlib.metadata import entry_points
import gymnasium
from gymnasium.envs.registration import namespace

(point,) = entry_points(group="gymnasium.envs", name="ccenv")
with namespace(point.name):
    point.load()()
assert "numba" not in sys.modules
print(gymnasium.spec("ccenv/Sender-v0").id, gymnasium.spec("ccenv/Packet-v0").id)
"""


def run(script: str, folder: Path) -> str:
    file = folder / "main.py"
    file.write_text(script)
    done = subprocess.run([sys.executable, str(file)], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_entry_point_registers_the_ids_and_a_spawned_worker_makes_what_they_name(tmp_path: Path) -> None:
    assert [point.value for point in entry_points(group="gymnasium.envs", name="ccenv")] == ["ccenv.envs:register"]
    assert run(LOADED, tmp_path) == "ccenv/Sender-v0 ccenv/Packet-v0"
    assert run(SPAWNED, tmp_path) == "(2, 10) (2,)"


@pytest.mark.parametrize("imports", ["import ccenv, gymnasium", "import gymnasium, ccenv"])
def test_the_ids_are_known_in_either_order(tmp_path: Path, imports: str) -> None:
    code = "import sys, ccenv\nassert not {'numpy', 'numba', 'gymnasium'} & set(sys.modules)\n" if imports[7] == "c" else ""
    assert run(f"{code}{imports}\nprint(gymnasium.spec('ccenv/Sender-v0').id)", tmp_path) == "ccenv/Sender-v0"
