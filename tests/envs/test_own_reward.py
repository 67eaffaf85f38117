"""Rewards of one's own: they are what the function says of the table's terms, and what fails is one line with file and line."""

import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ccenv.envs  # noqa: F401  # registers the environments
from ccenv.agents.interface.rewards import TERM_NUMBERS
from ccenv.agents.sender import PolicySender
from ccenv.base.config import validate
from ccenv.base.errors import CcenvWarning, InputError
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.packet.settings import read_packet_settings
from ccenv.envs.packet.task import PacketTask
from ccenv.training.evaluation import evaluate_packet

pytestmark = pytest.mark.filterwarnings("ignore::ccenv.base.errors.CcenvWarning")
CODE = """
def reward(terms):
    return terms.throughput - 0.5 * terms.queue


def steep(weight=1.0):
    return lambda terms: weight * terms.throughput


def raises(terms):
    return terms.througput


def silent(terms):
    while True:
        pass


def nothing():
    return 0.0
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return str(path)


def rewards(num_envs: int = 3, **settings: Any) -> np.ndarray:
    return played("ccenv/Sender-v0", num_envs, adversary="uniform", **settings)


def played(name: str, num_envs: int, **settings: Any) -> np.ndarray:
    env = gym.make_vec(name, num_envs=num_envs, **settings)
    env.reset(seed=4)
    rng = np.random.default_rng(0)
    return np.array([env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))[1] for _ in range(20)])


def test_it_is_what_the_function_says(file: str) -> None:
    weighed = rewards(reward={"throughput": 1.0, "queue": -0.5})
    assert weighed.any()
    for own in (file, f"{file}:reward", lambda terms: terms.throughput - 0.5 * terms.queue):
        np.testing.assert_allclose(rewards(reward=own), weighed, rtol=1e-12)
    np.testing.assert_allclose(rewards(reward=f"{file}:steep:weight=3"), 3 * rewards(reward={"throughput": 1.0}), rtol=1e-12)


def test_sb3_and_the_belief_observation_stay(file: str) -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.envs.clients.sb3 import make_sb3

    env = make_sb3(num_envs=1, adversary="uniform", reward=file)
    assert env.observation_space == make_sb3(num_envs=1).observation_space
    env.seed(4)
    env.reset()
    rng = np.random.default_rng(0)
    found = [env.step(rng.uniform(-1, 1, (1, 1)).astype(np.float32))[1] for _ in range(20)]
    np.testing.assert_allclose(found, rewards(1, reward=file), rtol=1e-6)


def test_a_slow_path_says_so_and_is_stored_by_its_file(file: str) -> None:
    with pytest.warns(CcenvWarning, match=r"mine\.py is plain Python"):
        settings = validate(EnvSettings, {"reward": file}, "env")
    assert settings.model_dump(mode="json")["reward"] == file
    unnamed = validate(EnvSettings, {"reward": lambda terms: 0.0}, "env").model_dump(mode="json")
    assert unnamed["reward"] == "test_own_reward.py, function <lambda>"
    with pytest.raises(InputError, match="unknown reward"):
        validate(EnvSettings, unnamed, "stored")


@pytest.mark.parametrize(
    ("name", "message"),
    [("raises", r"mine\.py:11: AttributeError: .*througput"), ("silent", r"mine\.py:1[56]: reward has not come back"),
     ("nothing", r"mine\.py:19: nothing\(\) must take \(terms\)"), ("rewrad", "reward")],
)  # fmt: skip
def test_what_fails_is_named(file: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccenv.base.user.limits.CALL_LIMIT_S", 0.5)
    with pytest.raises(InputError, match=message) as caught:
        rewards(reward=f"{file}:{name}")
    assert "\n" not in str(caught.value)


def test_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="the reward is nan"):
        rewards(reward=lambda _: float("nan"))


@pytest.mark.parametrize("more", [{}, {"scenario": "four"}])
def test_per_packet_it_is_called_once_for_each_decision(file: str, more: dict[str, Any]) -> None:
    env = "ccenv/Packet-v0"
    weighed = played(env, 3, reward={"throughput": 1.0, "queue": -0.5}, **more)
    assert weighed.any()
    np.testing.assert_allclose(played(env, 3, reward=file, **more), weighed, rtol=1e-12)
    seen: list[Any] = []
    single = gym.make(env, reward=lambda terms: float(len(seen)) if seen.append(terms) is None else 0.0, **more).unwrapped
    single.reset(seed=4)
    asked = 0
    for _ in range(20):
        _, reward, _, _, info = single.step(single.action_space.sample())
        measured = info["decides"] & (info["rewards"] > 0.0)
        asked += int(measured.sum())
        assert len(seen) == asked and reward == pytest.approx(info["rewards"].mean())
    np.testing.assert_allclose([seen[-1].jain], single.task.core.terms[0, np.flatnonzero(measured)[-1:], TERM_NUMBERS["jain"]])


def test_per_packet_copies_and_evaluations_have_it(file: str) -> None:
    settings = read_packet_settings({"reward": f"{file}:steep:weight=2", "episode_decisions": 40}, "here")
    core = PacketTask(2, settings).core
    core.reset(seed=1)
    copied = pickle.loads(pickle.dumps(core))
    np.testing.assert_array_equal(copied.advance(np.zeros((2, 1))), core.advance(np.zeros((2, 1))))
    policy = PolicySender("steady", (np.zeros((30, 1)),), (np.zeros(1),), "tanh", settings.policy_interface())
    own = evaluate_packet(settings, policy, 4).score
    assert own == pytest.approx(evaluate_packet(settings.model_copy(update={"reward": {"throughput": 2.0}}), policy, 4).score)


def test_elsewhere_it_is_refused_in_one_line(file: str) -> None:
    with pytest.raises(InputError, match="reward") as caught:
        gym.make("ccenv/Network-v0", reward=file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ccenv/Sender-v0", "ccenv/Packet-v0"])
def test_rollouts_in_the_kernel_refuse_it(name: str) -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.envs.clients.sb3 import make_sb3

    env = make_sb3(name, 2, signals="aurora", action="rate_delta", reward=lambda terms: terms.throughput)
    with pytest.raises(InputError, match="evaluate no Python"):
        env.rollouts()
