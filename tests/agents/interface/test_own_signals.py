"""Signals of one's own: they are what the function says, also in the engines, and what fails is one line with file and line."""

import copy
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ccenv
from ccenv.agents.interface.interface import Interface, read_interface
from ccenv.agents.learned.convert import PolicyReference
from ccenv.agents.sender import PolicySender
from ccenv.base.config import validate
from ccenv.base.errors import CcenvWarning, InputError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.settings import EnvSettings

pytestmark = pytest.mark.filterwarnings("ignore::ccenv.base.errors.CcenvWarning")
CODE = """
RANGES = {"trend": (-0.5, 0.5)}


def signals(seen):
    return {"trend": seen[-1].queue_ratio - seen[0].queue_ratio, "twice": 2 * seen[-1].loss_rate}


def scaled(by=2.0):
    def signals(seen):
        return by * seen[-1].queue_ratio

    return signals


def same(seen):
    return [seen[-1].queue_ratio]


def raises(seen):
    return seen[-1].queue_ration


def silent(seen):
    while True:
        pass


def nothing():
    return 0.0


def no_number(seen):
    return float("nan")


drawn = []


def remembers(seen):
    drawn.append(0)
    return float(len(drawn))


def taken(seen):
    return {"loss_rate": 0.0}


def late(seen):
    return 1.0 / (seen[-1].loss_rate > 0 or not 0.0 < seen[-1].queue_ratio < 3.0)
"""
BESIDE = ["queue_ratio", "loss_rate"]
ENVS = ("ccenv/Sender-v0", "ccenv/Packet-v0")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return str(path)


def policy(own: Any, at: int, name: str = "own") -> PolicySender:
    """Return a policy that reads one element of its observation, and nothing else."""
    sees = read_interface({"signals": [*BESIDE, *own], "action": "rate_delta", "clock": {"every": "rtt"}}, "test")
    weights = (np.zeros((sees.width, 3)), np.array([[0.6], [-0.4], [-0.9]]))
    weights[0][at] = [1.0, -2.0, 0.7]
    return PolicySender(name, weights, (np.array([0.1, 0.2, -0.3]), np.array([0.05])), "tanh", sees)


@pytest.mark.parametrize("env_id", ENVS)
def test_environments_show_what_the_function_says(env_id: str, file: str) -> None:
    env = gym.make_vec(env_id, num_envs=2, signals=[*BESIDE, file, lambda seen: seen[0].loss_rate], history=3)
    assert env.single_observation_space.shape == (9,)
    assert (env.single_observation_space.low[6], env.single_observation_space.high[6]) == (-0.5, 0.5)  # type: ignore[attr-defined]
    seen = [env.reset(seed=3)[0]]
    rng = np.random.default_rng(0)
    for _ in range(60):
        seen.append(env.step(rng.uniform(0, 1, (2, 1)).astype(np.float32))[0])
        assert env.observation_space.contains(seen[-1])
    rows = np.concatenate(seen)
    assert np.ptp(rows[:, 6]) > 0
    np.testing.assert_allclose(rows[:, 6], np.clip(rows[:, 4] - rows[:, 0], -0.5, 0.5), atol=1e-6)
    np.testing.assert_allclose(rows[:, 7], 2 * rows[:, 5], atol=1e-6)
    np.testing.assert_allclose(rows[:, 8], rows[:, 1], atol=1e-6)
    plain = gym.make_vec(env_id, num_envs=2, signals=BESIDE, history=3)
    np.testing.assert_array_equal(plain.reset(seed=3)[0], seen[0][:, :6])


def test_a_set_and_parameters(file: str) -> None:
    env = gym.make("ccenv/Sender-v0", signals=["aurora", lambda seen: seen[-1].send_ratio - seen[0].send_ratio])
    assert env.observation_space.shape == (31,)
    found = gym.make("ccenv/Sender-v0", signals=[*BESIDE, f"{file}:scaled:by=3"]).unwrapped.interface
    assert found.with_extra(np.array([0.5, 0.0])).tolist() == [0.5, 0.0, 1.5]
    again = copy.deepcopy(env)
    np.testing.assert_array_equal(env.reset(seed=1)[0], again.reset(seed=1)[0])


def test_a_policy_plays_it_exactly_in_both_engines(file: str) -> None:
    own, table = policy([f"{file}:same"], 2), policy([], 0, "table")
    path = ccenv.make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=10, buffer_bdp=2)
    engines = [CurveEngine([path], senders=[sender], steps_per_rtt=4) for sender in (own, table)]
    for engine in engines:
        engine.advance(400)
    assert engines[0].flow("S") == engines[1].flow("S") > 0
    for again in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        engine = CurveEngine([path], senders=[again], steps_per_rtt=4)
        engine.advance(400)
        assert engine.flow("S") == engines[0].flow("S")
    runs = ccenv.compare([own, table], rate="12mbps", rtt="40ms", duration="3s").to_frame()
    assert runs.iloc[0, 1:].tolist() == runs.iloc[1, 1:].tolist()
    seen = np.zeros(60)
    seen[[5, 8]] = [0.3, 0.02]
    assert PolicyReference(own).decide(seen) == PolicyReference(table).decide(seen)


def test_a_failure_in_an_engine_is_named_and_others_run_on(file: str) -> None:
    sender = policy([f"{file}:late"], 0, "late")
    path = ccenv.make_path(link_rate_mbps=12, rtt_ms=40, buffer_bdp=0.5)
    with pytest.raises(InputError, match=r"mine\.py:\d+: late: ZeroDivisionError") as caught:
        CurveEngine([path], senders=[sender], steps_per_rtt=4).advance(4000)
    assert "\n" not in str(caught.value)
    found = ccenv.compare([sender, "copa"], rate="12mbps", rtt="40ms", buffer="0.3bdp", duration="5s")
    assert [row.error.partition(":")[0] for row in found.rows] == ["mine.py", ""]


def test_what_is_stored_names_no_code(file: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hold no code") as caught:
        ccenv.save_policy(tmp_path / "own", policy([file], 2))
    assert "\n" not in str(caught.value) and not list(tmp_path.glob("own*"))
    with pytest.raises(InputError, match="unknown signal"):
        validate(Interface, {"signals": [*BESIDE, file]}, "card")
    with pytest.warns(CcenvWarning, match=r"mine\.py are plain Python"):
        settings = validate(EnvSettings, {"signals": [*BESIDE, file]}, "env")
    assert settings.model_dump(mode="json")["signals"] == [*BESIDE, file]


@pytest.mark.parametrize("env_id", ENVS)
@pytest.mark.parametrize(
    ("name", "message"),
    [("raises", r"mine\.py:21: raises: AttributeError: .*queue_ration"),
     ("silent", r"mine\.py:2[56]: silent: silent has not come back"),
     ("nothing", r"mine\.py:29: nothing\(\) must take \(seen\)"),
     ("no_number", r"mine\.py:33: no_number: ValueError: no_number is nan for Seen"),
     ("remembers", r"mine\.py:40: remembers gives other numbers for the same signals"),
     ("taken", r"mine\.py:45: 'loss_rate' is the name of a signal of the table"), ("signale", "signals")],
)  # fmt: skip
def test_what_fails_is_named(env_id: str, file: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccenv.base.user.limits.CALL_LIMIT_S", 0.5)
    with pytest.raises(InputError, match=message) as caught:
        gym.make(env_id, signals=[*BESIDE, f"{file}:{name}"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("signals", ["mine.py", ["mine.py"]])
def test_it_needs_signals_of_the_table(signals: Any, file: str) -> None:
    given = file if isinstance(signals, str) else [file]
    with pytest.raises(InputError, match="name them beside it"):
        gym.make("ccenv/Sender-v0", signals=given)


def test_ranges_are_checked(tmp_path: Path) -> None:
    for ranges, message in (("{'a': (1, 0)}", "low must be below high"), ("{'b': (0, 1)}", "does not give"), ("3", "a table")):
        path = tmp_path / f"ranges{len(message)}.py"
        path.write_text(f"RANGES = {ranges}\n\n\ndef signals(seen):\n    return {{'a': 1.0}}\n")
        with pytest.raises(InputError, match=message):
            gym.make("ccenv/Sender-v0", signals=[*BESIDE, str(path)])


def test_rollouts_in_the_kernel_and_configs_refuse_it(file: str) -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.envs.clients.sb3 import make_sb3
    from ccenv.training.config import TrainConfig

    env = make_sb3("ccenv/Sender-v0", 2, signals=[*BESIDE, file], action="rate_delta")
    with pytest.raises(InputError, match="evaluate no Python"):
        env.rollouts()
    for room in ("environment", "packet"):
        with pytest.raises(InputError, match="and no signals of a config"):
            validate(TrainConfig, {"name": "x", "total_steps": 1000, room: {"signals": [*BESIDE, file]}}, "config")


def test_sb3_models_become_senders(file: str) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    from ccenv.envs.clients.sb3 import make_sb3

    env = make_sb3("ccenv/Sender-v0", 2, signals=[*BESIDE, file], history=2, action="rate_delta")
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=8, batch_size=16, device="cpu", seed=1)
    model.learn(16)
    sender = ccenv.from_sb3(model, interface=env.interface, name="own_ppo")
    assert sender.interface.width == 6
    assert "own_ppo" in str(ccenv.compare([sender], rate="12mbps", duration="2s").to_frame())
