"""The speed benchmark: its arithmetic and its keys. No machine's time is asserted."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ccenv.base.errors import CcenvError, InputError
from ccenv.benchmarks import speed
from ccenv.cli.main import main

PROMISED = {
    "curve_64x2_k8_flow_steps_per_s", "curve_4096x1_k8_flow_steps_per_s", "curve_64x8_k8_2cores_flow_steps_per_s",
    "vector_env_1024_steps_per_s", "sb3_env_1024_steps_per_s", "warm_start_s", "cold_start_s", "bytes_per_env", "machine",
}  # fmt: skip


def test_rates_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a call of work moves by a known time: the median and the best of seven repetitions follow."""
    now = [0.0]
    cost = iter([1.0, 0.1, *[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7] * 1])

    def work() -> None:
        now[0] += next(cost)

    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(speed, "MIN_SECONDS", 0.1)  # one call per repetition
    assert speed.rates("calls_per_s", work, 10) == {"calls_per_s": 10 / 0.4, "calls_per_s_best": 10 / 0.1}


def test_the_timed_engine_is_what_the_page_says() -> None:
    built = speed.build(3, 2, 2, None)
    assert (built.n_envs, built.n_flows, built.model.name, built.steps_per_rtt, built.threads) == (3, 2, "ccac", 8, 2)
    assert built.belief_settings is not None and {sender.name for row in built.senders for sender in row} == {"cc_qdel"}
    path = built.path(0)
    assert all(flow.jitter_s == flow.rtt_s for flow in path.flows)
    assert (built.flow("C_L_Bps") > 0.2 * path.link_rate_Bps).any()  # past its warm-up: the bounds know the link


def test_one_flat_object_with_all_keys(monkeypatch: pytest.MonkeyPatch, answer, tmp_path: Path) -> None:
    monkeypatch.setattr(speed, "MIN_SECONDS", 1e-4)
    monkeypatch.setattr(speed, "REPETITIONS", 1)
    monkeypatch.setattr(speed, "N_ENVS", 4)
    monkeypatch.setattr(speed, "CASES", {name: (4, n, t, a) for name, (_, n, t, a) in speed.CASES.items()})
    monkeypatch.setattr(speed, "_start_seconds", lambda code, environment: speed.Seconds(1.5, 1.0))
    tests = tmp_path / "tests"
    tests.write_text('{"tests": 6900, "cpu_s": 900, "wall_s": 480}', encoding="utf-8")
    monkeypatch.setattr(speed, "TESTS", tests)
    result = answer(["bench", "speed", "--json"])
    assert set(result) >= PROMISED | {f"cold_{name}_engine_cpu_s" for name in ("curve", "packet", "fluid")}
    assert (result["tests_cpu_s"], result["help_s"], result["warm_packet_engine_s"]) == (900, 1.5, 1.5)
    assert all(isinstance(value, (int, float, str)) for value in result.values())
    assert all(value > 0 for value in result.values() if not isinstance(value, str))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="root of a checkout"):
        speed.save_record(result)
    (tmp_path / "benchmarks" / "speed").mkdir(parents=True)
    file = speed.save_record({**result, "machine": "Some CPU(R) @ 3 GHz, 2 cores", "measured_at": "2030-01-02T03:04:05Z"})
    assert file.name == "2030-01-02-some-cpu-r-3-ghz.json"
    assert json.loads(file.read_text())["bytes_per_env"] == result["bytes_per_env"]


def test_a_fresh_process_takes_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    took = speed._start_seconds(speed.FIRST_STEP, dict(os.environ))
    assert took.wall > 0 and took.cpu > 0
    with pytest.raises(CcenvError, match="fresh process failed: no env"):
        speed._start_seconds("raise SystemExit('no env')", dict(os.environ))


@pytest.mark.parametrize("name", speed.COMMANDS)
def test_commands_that_are_timed_end_well(name: str) -> None:
    words = re.search(r"main\((\[.*\])\)", speed.COMMANDS[name])
    assert words is None or main(ast.literal_eval(words[1])) == 0


def test_clients_have_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MIN_SECONDS", 1e-4)
    monkeypatch.setattr(speed, "REPETITIONS", 1)
    monkeypatch.setattr(speed, "DUELS", 3)
    found = speed.duel() | speed.shared()
    names = ("duel_64_steps_per_s", "shared_64x2_steps_per_s")
    assert set(found) == {f"{name}{best}" for name in names for best in ("", "_best")}
    assert all(value > 0 for value in found.values())


def test_training_speed_has_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    for name, value in (("MIN_SECONDS", 0.001), ("ITERATIONS", 2), ("N_ENVS", 4), ("CALL_STEPS", 4)):
        monkeypatch.setattr(speed, name, value)
    found = speed.measure_training()
    ppo = ("train_ppo", "train_ppo_kernel_rollouts", "train_ppo_same_recipe_kernel_rollouts")
    curves = (f"curve_mlp_{width}_flow" for width in (16, 64))
    names = {f"{stem}_steps_per_s{best}" for stem in (*ppo, *curves) for best in ("", "_best")}
    assert set(found) == names and all(value > 0 for value in found.values())


def records() -> list[Any]:
    return sorted((Path(speed.__file__).parent / "speed").glob("*.json"))


@pytest.mark.parametrize("file", records(), ids=lambda file: file.name)
def test_committed_records_hold_all_keys(file: Path) -> None:
    assert set(json.loads(file.read_text())) >= PROMISED
