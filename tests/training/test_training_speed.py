"""``ccenv bench speed --train``: its keys; no machine's time is asserted."""

import pytest

pytest.importorskip("stable_baselines3")

from ccenv.benchmarks.speed import timing
from ccenv.benchmarks.speed import training as speed


def test_training_speed_has_its_keys(monkeypatch):
    monkeypatch.setattr(timing, "MIN_SECONDS", 0.001)
    monkeypatch.setattr(speed, "ITERATIONS", 2)
    monkeypatch.setattr(speed, "N_ENVS", 4)
    monkeypatch.setattr(speed, "CALL_STEPS", 4)
    found = speed.measure()
    ppo = ("train_ppo", "train_ppo_kernel_rollouts", "train_ppo_same_recipe_kernel_rollouts")
    names = {*(f"{p}_steps_per_s{b}" for p in ppo for b in ("", "_best")), *(f"curve_mlp_{w}_flow_steps_per_s{b}" for w in (16, 64) for b in ("", "_best"))}
    assert set(found) == names and all(value > 0 for value in found.values())
