"""Flows that share a policy and decide at their own times: samples, mixtures, critics that see more, and training by config."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.agents.interface.signals import SIGNAL_NUMBERS
from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.envs.packet.mixture import FlowMixture
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import PacketTask, SharedPacketTask
from ccenv.training.config import load_config
from ccenv.training.evaluation import evaluate_mixture, evaluate_packet

pytest.importorskip("stable_baselines3")

from gymnasium import spaces

from ccenv.training.ppo.flows import DecisionBuffer

FLOW = {"sender": "external", "rtt_ms": [12, 40]}
TWO = {"duration_s": 20, "links": [{"rate_mbps": [4, 8], "buffer_bdp": 2}], "flows": [FLOW, {**FLOW, "start_s": [0, 0.1]}]}
BESIDE = {**TWO, "flows": [FLOW, {"sender": {"choice": ["cubic", "bbr1"]}, "rtt_ms": 20}]}
CRITIC = ["true_others", "true_share_log2"]
SETTINGS = {"signals": "fair", "critic_signals": CRITIC, "action": "cwnd_exp2", "reward": "fair", "clock": {"every": "min_rtt"}}
MIXTURE = [{"scenario": TWO, "num_envs": 3, "episode_decisions": 12}, {"scenario": BESIDE, "num_envs": 2, "episode_decisions": 8}]


def task(scenario: dict, n: int, **more: object) -> SharedPacketTask:
    return SharedPacketTask(n, PacketSettings.model_validate({**SETTINGS, "scenario": scenario, "episode_decisions": 8, **more}))


def by_loop(buffer: DecisionBuffer, last: np.ndarray) -> dict[tuple[int, int], float]:
    """Return the advantage of every decision whose interval has ended: one flow after the other, in plain steps."""
    found: dict[tuple[int, int], float] = {}
    for row in range(buffer.n_envs):
        episodes: list[tuple[list[int], int, float]] = []
        steps: list[int] = []
        for t in range(buffer.buffer_size):
            steps.append(t)
            if buffer.dones[t, row]:
                episodes.append((steps, t, float(buffer.final_values[t, row])))
                steps = []
        if steps:
            episodes.append((steps, steps[-1], float(last[row])))
        for inside, end, after in episodes:
            at = [t for t in inside if buffer.decides[t, row]]
            samples = []
            for place, t in enumerate(at):
                until = at[place + 1] - 1 if place + 1 < len(at) else end
                span = range(t, until + 1)
                if any(buffer.closes[u, row] for u in span):
                    samples.append((t, sum(float(buffer.rewards[u, row]) for u in span), at[place + 1 : place + 2]))
            gae = 0.0
            for t, reward, behind in reversed(samples):
                value = float(buffer.values[behind[0], row]) if behind else after
                delta = reward + buffer.gamma * value - float(buffer.values[t, row])
                gae = delta + buffer.gamma * buffer.gae_lambda * (gae if behind else 0.0)
                found[t, row] = gae
    return found


def test_advantages_are_those_of_each_flow_by_itself() -> None:
    rng = np.random.default_rng(3)
    T, rows = 40, 6
    box = spaces.Box(-1, 1, (2,), np.float32)
    buffer = DecisionBuffer(T, box, spaces.Box(-1, 1, (1,), np.float32), "cpu", gae_lambda=0.9, gamma=0.95, n_envs=rows)
    buffer.reset()
    buffer.decides[:] = rng.random((T, rows)) < 0.5
    buffer.dones[:] = rng.random((T, rows)) < 0.1
    # an interval ends where the next decision is due: at the flow's next decision of the episode, and by chance at its end
    for row in range(rows):
        for t in range(T):
            buffer.closes[t, row] = t + 1 < T and buffer.decides[t + 1, row] and not buffer.dones[t, row]
            if buffer.dones[t, row] or t == T - 1:
                buffer.closes[t, row] = rng.random() < 0.5
    buffer.rewards[:] = np.where(buffer.closes, rng.normal(size=(T, rows)), 0.0)
    buffer.values[:], buffer.final_values[:] = rng.normal(size=(2, T, rows))
    last = rng.normal(size=rows)
    wanted = by_loop(buffer, last)
    dropped = int(buffer.decides.sum()) - len(wanted)
    values = buffer.values.copy()
    buffer.finish(last)
    assert {(int(t), int(row)) for t, row in zip(*np.nonzero(buffer.decides), strict=True)} == set(wanted)
    assert dropped > 0 and len(wanted) > 80
    for (t, row), advantage in wanted.items():
        assert buffer.advantages[t, row] == pytest.approx(advantage, rel=1e-5, abs=1e-5)
        assert buffer.returns[t, row] == pytest.approx(advantage + values[t, row], rel=1e-5, abs=1e-5)
    buffer.full = True
    sizes = [len(batch.advantages) for batch in buffer.get(32)]
    assert sum(sizes) == len(wanted) and max(sizes) == 32


def test_a_mixture_is_its_parts_side_by_side() -> None:
    parts = [task(TWO, 3), task(BESIDE, 2)]
    mixed = FlowMixture([task(TWO, 3), task(BESIDE, 2)])
    assert mixed.core.num_envs == 8 and mixed.core.networks == 5
    mixed.core.reset(seed=4)
    for part in parts:
        part.core.reset(seed=4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        np.testing.assert_array_equal(mixed.observe(), np.concatenate([part.observe() for part in parts]))
        np.testing.assert_array_equal(mixed.core.decides, np.concatenate([part.core.decides.reshape(-1) for part in parts]))
        actions = rng.uniform(-1, 1, (8, 1))
        rewards = mixed.step(actions)
        np.testing.assert_array_equal(rewards, np.concatenate([parts[0].step(actions[:6]), parts[1].step(actions[6:])]))
        over = mixed.core.truncated()
        ended = [part.core.truncated() for part in parts]
        np.testing.assert_array_equal(over, np.concatenate([np.repeat(ended[0], 2), ended[1]]))
        if over.any():
            mixed.core.reset(over)
            for part, mask in zip(parts, ended, strict=True):
                if mask.any():
                    part.core.reset(mask)
    state = mixed.core.state()
    first = mixed.step(np.zeros((8, 1)))
    mixed.core.set_state(state)
    np.testing.assert_array_equal(mixed.step(np.zeros((8, 1))), first)


def test_only_the_critic_sees_what_no_sender_can() -> None:
    seen = task(BESIDE, 4)
    seen.core.reset(seed=1)
    for _ in range(5):
        seen.step(np.zeros((4, 1)))
    observation = seen.observe()
    assert observation.shape == (4, seen.interface.width + 2) == (4, *seen.single_observation_space.shape)
    np.testing.assert_array_equal(observation[:, :-2], seen.core.observations()[:, 0])
    np.testing.assert_array_equal(observation[:, -2:], seen.core.signals(np.array([SIGNAL_NUMBERS[n] for n in CRITIC]))[:, 0])
    assert (observation[:, -2] == 1).all()
    with pytest.raises(InputError, match="critic_signals are for the critic of flows that share a policy"):
        PacketTask(1, PacketSettings.model_validate({**SETTINGS, "scenario": BESIDE}))


def test_training_goes_on_to_the_same_weights(tmp_path, capsys) -> None:
    file = tmp_path / "flows.yaml"
    config = {"total_steps": 320, "num_envs": 5, "mixture": MIXTURE, "packet": SETTINGS, "checkpoint_every_steps": 160}
    config |= {"ppo": {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "hidden": [8]}, "evaluation": {"n_paths": 5}}
    file.write_text(json.dumps(config), encoding="utf-8")

    def train(folder: str, steps: int) -> dict:
        assert main(["train", str(file), "--set", f"total_steps={steps}", "--out", str(tmp_path / folder), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    train("a", 320)
    train("b", 160)
    assert train("b", 320)["resumed_from_steps"] == 160
    whole, resumed = (make_sender(str(tmp_path / name)) for name in "ab")
    for one, other in zip(whole.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.weights[0].shape[0] == 15 and whole.interface.clock.every == "min_rtt"
    loaded = load_config(str(file))
    parts = [(loaded.part_settings(part), part.num_envs) for part in loaded.mixture]
    mixed = evaluate_mixture(parts, whole, 5)
    alone = [evaluate_packet(settings, whole, n).score for settings, n in parts]
    assert mixed.n_paths == 5 and mixed.score == pytest.approx((3 * alone[0] + 2 * alone[1]) / 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_envs": 6}, "num_envs is 6; the parts of the mixture have 5"),
        ({"algorithm": "sac"}, "are for PPO"),
        ({"packet": None}, "mixture is for packet environments"),
        ({"packet": {**SETTINGS, "critic_signals": ["true_othrs"]}}, "Did you mean 'true_others'"),
        ({"packet": {**SETTINGS, "signals": ["app_left"]}}, "needs an application that ends; flow 0 is bulk"),
        ({"mixture": [{"scenario": {**TWO, "flows": [{"sender": "cubic", "rtt_ms": 20}]}, "num_envs": 5}]}, "nothing to train"),
        ({"mixture": [{"scenario": {**BESIDE, "flows": [FLOW, {"sender": "cubik", "rtt_ms": 9}]}, "num_envs": 5}]}, "'cubic'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(change: dict, words: str, tmp_path, capsys) -> None:
    config = {"total_steps": 320, "num_envs": 5, "mixture": MIXTURE, "packet": SETTINGS, "ppo": {"n_steps": 32}}
    file = tmp_path / "flows.yaml"
    file.write_text(json.dumps({**config, **change}), encoding="utf-8")
    assert main(["train", str(file), "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()
