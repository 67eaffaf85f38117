"""``ccenv bench speed train``: its keys; no machine's time is asserted."""

import pytest

pytest.importorskip("stable_baselines3")

from ccenv.benchmarks import speed


def test_training_speed_has_its_keys(monkeypatch):
    monkeypatch.setattr(speed, "MIN_SECONDS", 0.001)
    monkeypatch.setattr(speed, "ITERATIONS", 2)
    monkeypatch.setattr(speed, "N_ENVS", 4)
    monkeypatch.setattr(speed, "CALL_STEPS", 4)
    found = speed.measure_training()
    ppo = ("train_ppo", "train_ppo_kernel_rollouts", "train_ppo_same_recipe_kernel_rollouts")
    curves = (f"curve_mlp_{width}_flow" for width in (16, 64))
    names = {f"{stem}_steps_per_s{best}" for stem in (*ppo, *curves) for best in ("", "_best")}
    assert set(found) == names and all(value > 0 for value in found.values())
