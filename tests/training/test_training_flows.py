"""Training of several flows, with one policy for all, and inside a shield."""

import json
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shields_data import document, shield
from stopped import assert_goes_on

import ccenv  # noqa: F401  (registers the environments)
from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.interface.signals import SIGNAL_NUMBERS
from ccenv.agents.learned import load_policy, policy_notes, save_policy
from ccenv.agents.programs import interval, to_data, to_json
from ccenv.agents.sender import ShieldSender
from ccenv.agents.wrapped import load_shield
from ccenv.base.errors import InputError, ProgramError
from ccenv.cli.main import main
from ccenv.envs.curve.duel import DuelTask
from ccenv.envs.curve.interface import SharedSenderTask
from ccenv.envs.curve.settings import EnvSettings, read_settings
from ccenv.envs.packet.mixture import FlowMixture
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import PacketTask, SharedPacketTask
from ccenv.training.config import TrainConfig, load_config
from ccenv.training.evaluation import evaluate_in_world, evaluate_mixture, evaluate_packet, evaluate_sender
from ccenv.training.rllib.run import RllibConfig
from ccenv.training.run import train

pytest.importorskip("stable_baselines3")

import torch
from gymnasium import spaces

from ccenv.envs.clients.sb3 import CcenvVecEnv, make_sb3
from ccenv.training.ppo.flows import DecisionBuffer, FlowsPPO

FLOW = {"sender": "external", "rtt_ms": [12, 40]}
TWO = {"duration_s": 20, "links": [{"rate_mbps": [4, 8], "buffer_bdp": 2}], "flows": [FLOW, {**FLOW, "start_s": [0, 0.1]}]}
BESIDE = {**TWO, "flows": [FLOW, {"sender": {"choice": ["cubic", "bbr1"]}, "rtt_ms": 20}]}
CRITIC = ["true_others", "true_share_log2"]
SETTINGS = {"signals": "fair", "critic_signals": CRITIC, "action": "cwnd_exp2", "reward": "fair", "clock": {"every": "min_rtt"}}
FAIR = {**SETTINGS, "signals": list(make_sender("learned_fair").interface.signals), "history": 3}
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


def test_training_goes_on_to_the_same_weights(tmp_path) -> None:
    file = tmp_path / "flows.yaml"
    config = {"total_steps": 320, "num_envs": 5, "mixture": MIXTURE, "packet": SETTINGS, "checkpoint_every_steps": 160}
    config |= {"ppo": {"n_steps": 32, "batch_size": 64, "n_epochs": 2, "hidden": [8]}, "evaluation": {"n_paths": 5}}
    file.write_text(json.dumps(config), encoding="utf-8")
    loaded = load_config(str(file))
    assert_goes_on(tmp_path, loaded, [160])
    whole = make_sender(str(tmp_path / "whole"))
    assert whole.weights[0].shape[0] == 15 and whole.interface.clock.every == "min_rtt"
    parts = [(loaded.part_settings(part), part.num_envs) for part in loaded.mixture]
    mixed = evaluate_mixture(parts, whole, 5)
    alone = [evaluate_packet(settings, whole, n).score for settings, n in parts]
    assert mixed.n_paths == 5 and mixed.score == pytest.approx((3 * alone[0] + 2 * alone[1]) / 5)


def test_a_warm_start_is_the_policy_that_it_begins_with() -> None:
    from ccenv.training.learner import Learner

    shape = {"num_envs": 5, "mixture": MIXTURE, "packet": {**FAIR, "action": "cwnd_exp2_probe"}, "ppo": {"n_steps": 8}}
    config = TrainConfig.model_validate({**shape, "name": "warm", "total_steps": 1, "warm_start": "learned_fair"})
    begun, given = Learner(config).player(), make_sender("learned_fair")
    for one, other in zip(begun.weights, given.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_actor_and_critic_are_clipped_apart_and_rewards_scaled() -> None:
    mixed = FlowMixture([task(TWO, 3), task(BESIDE, 2)])
    settings = {"n_steps": 8, "batch_size": 64, "max_grad_norm": 0.5, "policy_kwargs": {"net_arch": [8]}}
    model = FlowsPPO(CcenvVecEnv(mixed), n_seen=15, reward_scale=0.25, max_critic_grad_norm=0.1, **settings)
    for parameter in model.policy.parameters():
        parameter.grad = torch.full_like(parameter, 100.0)
    seen = {}
    model.policy.optimizer.register_step_pre_hook(
        lambda *_: seen.update({name: float((p.grad**2).sum()) for name, p in model.policy.named_parameters()})
    )
    model.policy.optimizer.step()
    critic = sum(square for name, square in seen.items() if "value_net" in name)
    assert critic**0.5 == pytest.approx(0.1, rel=1e-4) and (sum(seen.values()) - critic) ** 0.5 == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_envs": 6}, "num_envs is 6; the parts of the mixture have 5"),
        ({"algorithm": "sac"}, "are for PPO"),
        ({"packet": None}, "mixture is for packet environments"),
        ({"packet": {**SETTINGS, "critic_signals": ["true_othrs"]}}, "Did you mean 'true_others'"),
        ({"packet": {**SETTINGS, "signals": ["app_left"]}}, "needs an application that ends; flow 0 is bulk"),
        ({"mixture": [{"scenario": {**TWO, "flows": [{"sender": "cubic", "rtt_ms": 20}]}, "num_envs": 5}]}, "nothing to train"),
        ({"warm_start": "reno"}, "warm_start: 'reno' is no policy for a PPO sender"),
        ({"warm_start": "learned_fair"}, "warm_start: 'learned_fair' sees rtt_change, queue_log2, send_excess"),
        ({"packet": FAIR, "warm_start": "learned_fair"}, "warm_start: 'learned_fair' has layers [64, 64] with 'tanh', not [8]"),
        ({"mixture": [{"scenario": {**BESIDE, "flows": [FLOW, {"sender": "cubik", "rtt_ms": 9}]}, "num_envs": 5}]}, "'cubic'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(change: dict, words: str, tmp_path, refused) -> None:
    ppo = {"n_steps": 32, "hidden": [8]}
    config = {"total_steps": 320, "num_envs": 5, "mixture": MIXTURE, "packet": SETTINGS, "ppo": ppo}
    file = tmp_path / "flows.yaml"
    file.write_text(json.dumps({**config, **change}), encoding="utf-8")
    refused(["train", str(file), "--out", str(tmp_path / "run")], words)
    assert not (tmp_path / "run").exists()


THREE = {"senders": ["external", "reno", "external"], "models": ["cbr_delay"], "episode_rtts": 6, "reward": {"jain": 0.3}}
SMALL = ["num_envs=4", "ppo.n_steps=8", "ppo.batch_size=64", "ppo.hidden=[4]", "total_steps=128", "evaluation.n_paths=4"]


@pytest.mark.parametrize("action", ["box", "discrete"])
def test_each_row_is_a_flow_with_its_own_reward(action):
    """Against the senders of a batch of flows that are agents."""
    settings = read_settings({**THREE, "action": action}, "test")
    rows, flows = SharedSenderTask(3, settings), DuelTask(3, settings)
    for task in (rows, flows):
        task.core.reset(seed=5)
    assert flows.agents == ("sender_0", "sender_2")
    rng = np.random.default_rng(0)
    for _ in range(6):
        seen = flows.observe()
        np.testing.assert_array_equal(rows.observe(), np.stack([seen[name] for name in flows.agents], 1).reshape(6, -1))
        chosen = rng.uniform(-1, 1, (3, 2)) if action == "box" else rng.integers(0, 13, (3, 2))
        own = rows.step(chosen.reshape((6, 1) if action == "box" else 6))
        theirs = flows.step({name: chosen[:, i] for i, name in enumerate(flows.agents)})
        np.testing.assert_array_equal(own.reshape(3, 2), np.stack([theirs[name] for name in flows.agents], 1))
    assert (own.reshape(3, 2)[:, 0] != own.reshape(3, 2)[:, 1]).any() and rows.core.truncated().all()


def test_rows_of_a_network_start_and_end_together():
    env = make_sb3("ccenv/Sender-v0", 3, shared_policy=True, staggered=True, **THREE)
    assert env.num_envs == 6
    env.seed(1)
    env.reset()
    ended = np.zeros(6, np.int64)
    for _ in range(14):
        observations, rewards, dones, infos = env.step(np.zeros((6, 1), np.float32))
        assert observations.shape == (6, 10) and rewards.shape == (6,)
        np.testing.assert_array_equal(dones[0::2], dones[1::2])
        ended += dones
        for row in np.flatnonzero(dones):
            assert infos[row]["terminal_observation"].shape == (10,) and infos[row]["jain"] == infos[row ^ 1]["jain"]
    assert ended.min() >= 2
    with pytest.raises(InputError, match="shared_policy is for the flows"):
        make_sb3("ccenv/Network-v0", 2, shared_policy=True)


def test_one_flow_of_a_shared_policy_is_the_plain_environment():
    alone = {"episode_rtts": 5, "models": ["ccac"]}
    shared, plain = make_sb3(num_envs=4, shared_policy=True, **alone), make_sb3(num_envs=4, **alone)
    for env in (shared, plain):
        env.seed(2)
    np.testing.assert_array_equal(shared.reset(), plain.reset())
    for step in range(8):
        actions = np.full((4, 1), 0.1 * step, np.float32)
        for own, other in zip(shared.step(actions)[:3], plain.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(own, other)


def test_shipped_config_trains_and_goes_on(tmp_path, capsys):
    def train(*more):
        overrides = [word for text in (*SMALL, *more) for word in ("--set", text)]
        assert main(["train", "shared_sender", "--out", str(tmp_path / "run"), *overrides, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    first = train()
    assert first["evaluation"]["n_flows"] == 2 and first["steps"] == 128
    assert train("total_steps=256")["resumed_from_steps"] == 128
    assert make_sender(str(tmp_path / "run")).name == "shared_sender"


def test_flows_that_share_are_evaluated_together():
    world = EnvSettings(senders=("external", "external"), models=("cbr_delay",), steps_per_rtt=4)
    both = evaluate_in_world(world, make_sender("cc_probe_drain"), 8, warmup_rtts=20, measure_rtts=20)
    beside = world.model_copy(update={"senders": ("external", "cc_probe_drain")})
    alone = evaluate_in_world(beside, make_sender("cc_probe_drain"), 8, warmup_rtts=20, measure_rtts=20)
    assert both.n_flows == 2 and both.share == pytest.approx(1.0)
    assert both.utilisation == pytest.approx(alone.link_utilisation) and 0 < alone.share < 1


def test_flows_of_rllib_need_two():
    with pytest.raises(ValueError, match="two or more 'external' senders"):
        RllibConfig(trainer="rllib", name="x", iterations=1, plays="flows")
    RllibConfig(trainer="rllib", name="x", iterations=1, plays="flows", environment={"senders": ["external", "external"]})


def test_flows_are_agents_of_pettingzoo():
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    from ccenv.envs.curve.duel import FlowsEnv

    parallel_api_test(FlowsEnv(**THREE), num_cycles=30)
    parallel_seed_test(lambda: FlowsEnv(**THREE), num_cycles=20)
    assert FlowsEnv(**THREE).possible_agents == ["sender_0", "sender_2"]
    with pytest.raises(InputError, match="ccenv/Duel-v0"):
        FlowsEnv(adversary="external")
    with pytest.raises(InputError, match="no sender to play"):
        FlowsEnv(senders=["reno"])


SMALL_SHIELD = [
    "num_envs=16", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[8]", "total_steps=1024", "environment.episode_rtts=10",
    "evaluation.n_paths=32", "evaluation.n_paths_during=16", "evaluation.every_steps=512",
]  # fmt: skip


@pytest.mark.parametrize(("action", "position"), [(-1.0, 0.0), (0.0, 0.5), (1.0, 1.0), (-9.0, 0.0), (9.0, 1.0)])
def test_an_action_is_the_position_in_the_interval(action, position):
    env = gym.make("ccenv/Sender-v0", shield=shield())
    env.reset(seed=1)
    core = env.unwrapped.task.core
    for _ in range(20):
        env.step(np.array([action], np.float32))
        lo, hi = core.flow("lo_Bps")[0, 0], core.flow("hi_Bps")[0, 0]
        assert core.flow("position")[0, 0] == position
        env.step(np.array([action], np.float32))
        assert core.flow("rate_Bps")[0, 0] == min(max(lo + position * (hi - lo), lo), hi)


def test_discrete_actions_are_evenly_spaced_positions_and_no_number_is_none():
    env = gym.make("ccenv/Sender-v0", shield=shield(), action="discrete", n_actions=5)
    env.reset(seed=1)
    for level in range(5):
        env.step(level)
        assert env.unwrapped.task.core.flow("position")[0, 0] == level / 4
    env = gym.make("ccenv/Sender-v0", shield=shield(), disable_env_checker=True)
    env.reset(seed=1)
    with pytest.raises(InputError, match="not a number"):
        env.step(np.array([np.nan]))


def test_a_run_inside_a_shield_leaves_a_policy_with_its_shield(tmp_path):
    (tmp_path / "c.json").write_text(to_json(shield()))
    config = load_config("quick_sender", [*SMALL_SHIELD, f"shield={tmp_path / 'c.json'}"])
    assert config.environment.shield == to_data(shield())
    result = train(config, tmp_path / "run")
    sender = make_sender(str(result.folder))
    assert isinstance(sender, ShieldSender) and sender.chooser == "policy" and sender.program == shield()
    assert evaluate_sender(sender, 32, steps_per_rtt=4).score == pytest.approx(result.common.score, abs=0.05)
    assert "lo + u (hi - lo)" in policy_notes(result.folder)["action"] and load_shield(str(result.folder)) == shield()
    again = train(config, tmp_path / "run")
    assert again.steps == result.steps and sender_hash(make_sender(str(again.folder))) == sender_hash(sender)


def test_rounds_against_attacks_stay_inside_the_shield(tmp_path):
    rounds = "robust={start_step: 512, round_steps: 256, budget_flow_steps: 5000, searches: [corners]}"
    config = load_config("quick_sender", [*SMALL_SHIELD, f"shield={json.dumps(document())}", rounds])
    sender = make_sender(str(train(config, tmp_path / "run").folder))
    assert isinstance(sender, ShieldSender)


def test_a_policy_inside_a_shield_is_read_back(tmp_path):
    sender = make_sender("learned_shield_u80")
    save_policy(tmp_path, sender)
    loaded = load_policy(tmp_path)
    assert sender_hash(loaded) == sender_hash(sender) and loaded.program == sender.program
    card = json.loads((tmp_path / "policy.json").read_text())
    card["contract"]["rule"] = {"rate": {"C_L": 1}}
    (tmp_path / "policy.json").write_text(json.dumps(card))
    with pytest.raises(ProgramError, match="is no shield"):
        load_policy(tmp_path)
    with pytest.raises(InputError, match="no weights to write"):
        save_policy(tmp_path, ShieldSender("c", shield(), "middle"))


def test_choosers_by_name(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(to_json(shield()))
    for chooser in ("lo", "hi", "middle", "random"):
        assert make_sender(f"shield:file={file},chooser={chooser}").chooser == chooser
    assert make_sender(f"shield:file={file}").chooser == "middle"
    save_policy(tmp_path, make_sender("learned_shield_u80"))
    assert make_sender(f"shield:file={file},policy={tmp_path}").policy is not None


@pytest.mark.parametrize(
    ("name", "config", "score"),
    [("learned_shield_u80", "learned_shield", 0.9745), ("learned_shield_u80_firm", "learned_shield_firm", 0.9745),
     ("learned_shield_u77_timeouts", "learned_shield_timeouts", 0.964)],
)  # fmt: skip
def test_the_shipped_policies_have_their_score_and_their_shield(name, config, score):
    sender = make_sender(name)
    assert sender.program == load_config(config).environment.shield_program()
    assert evaluate_sender(sender, 64).score == pytest.approx(score, abs=0.006)


@given(ratio=st.fractions(1, 8), C_L=st.fractions(1, 1000), delayed=st.booleans(), utilised=st.booleans())
def test_the_narrower_shield_lies_inside_the_proved_one(ratio, C_L, delayed, utilised):
    """Each lemma of the wider one, proved with every choice inside, is one of the narrower."""
    outer, inner = (make_sender(name).program for name in ("learned_shield_u80", "learned_shield_u80_firm"))
    beliefs = {"C_L": C_L, "C_U": ratio * C_L, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delayed), "utilised": utilised}
    (low, high, _), (least, most, _) = interval(outer, beliefs), interval(inner, beliefs)
    assert low <= least <= most <= high
