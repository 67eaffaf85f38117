"""PPO's rollouts from the kernel and its gradient steps without a graph against Stable-Baselines3's own."""

from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from gymnasium import spaces
from shields_data import shield
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecMonitor

from ccenv.base.errors import InputError
from ccenv.base.random import uniform
from ccenv.envs.clients.sb3 import make_sb3
from ccenv.envs.rollouts.actor_critic import ACTOR, CRITIC, evaluate, fast_tanh, pack_actor_critic, standard_normal
from ccenv.training.ppo.ppo import KEYS, KernelPPO

N_STEPS, SEED = 12, 3
SHORT = {"steps_per_rtt": 4, "episode_rtts": 5, "staggered": True}
PACKET_SHORT = {"episode_decisions": 5, "staggered": True}
LINK = {"rate_mbps": [6, 20], "buffer_bdp": [0.5, 3]}
BOX = {"kind": "adversary", "adversary": "external", "max_ms": 20}
ONE = {"duration_s": 60, "links": [LINK], "flows": [{"sender": "external", "rtt_ms": [10, 30]}]}
THREE = {**ONE, "flows": [{"sender": s, "rtt_ms": [15, 30], "start_s": [0, 0.2]} for s in ("external", "cubic", "external")]}
BOXED = {**ONE, "flows": [{"sender": "cubic", "rtt_ms": [15, 30], "jitter": BOX}]}
SENDER, NETWORK, PACKETS, BOXES = (f"ccenv/{name}-v0" for name in ("Sender", "Network", "Packet", "PacketNetwork"))
COMPANY = {"signals": "company", "action": "cwnd_exp2"}
ORCA = {"signals": "orca", "action": "cwnd_exp2_over", "inner": "cubic"}
GAMES = {
    "sender": (SENDER, {"models": ["cbr_delay", "ccac"]}),
    "sender_discrete": (SENDER, {"action": "discrete", "n_actions": 7}),
    "beside_reno": (SENDER, {"senders": ["reno", "external"], "reward": {"jain": 0.5, "delay": -0.2}}),
    "two_flows": (SENDER, {"senders": ["external", "cc_qdel", "external"], "models": ["cbr_delay"]}),
    "two_flows_discrete": (SENDER, {"senders": ["external", "external"], "action": "discrete", "n_actions": 5}),
    "shared": (SENDER, {"senders": ["external", "cc_qdel", "external"], "shared_policy": True}),
    "network": (NETWORK, {"decision_steps": 2}),
    "network_discrete": (NETWORK, {"models": ["ccac"], "action": "discrete", "n_actions": 3}),
    "shield": (SENDER, {"shield": shield(), "models": ["cbr_delay", "ccac"]}),
    "shield_discrete": (SENDER, {"shield": shield(), "action": "discrete", "n_actions": 4}),
    "watched": (SENDER, {"signals": "aurora", "action": "rate_delta", "reward": "aurora", "models": ["cbr_delay", "ccac"]}),
    "watched_window": (SENDER, {**COMPANY, "discrete": True, "n_actions": 5}),
    "watched_flows": (SENDER, {"senders": ["external", "reno", "external"], **ORCA, "reward": "company"}),
    "watched_shared": (SENDER, {"senders": ["external", "external"], "shared_policy": True, **COMPANY, "reward": "company"}),
    "packet": (PACKETS, {"scenario": ONE, "start_rate_share": [0.3, 1.5]}),
    "packet_discrete": (PACKETS, {"scenario": ONE, "signals": "beliefs", "action": "rate_log2", "n_actions": 5}),
    "packet_shield": (PACKETS, {"scenario": ONE, "shield": shield()}),
    "packet_flows": (PACKETS, {"scenario": THREE, **COMPANY, "reward": "company"}),
    "packet_shared": (PACKETS, {"scenario": THREE, "shared_policy": True, **COMPANY, "clock": {"every": "rtt", "common": True}}),
    "packet_network": (BOXES, {"scenario": BOXED}),
    "packet_network_strong": (BOXES, {"scenario": BOXED, "link_rate_min_share": 0.4}),
}
HIDDEN = {"tanh": [16, 16], "relu": [9, 8, 7]}


def build(game: str, activation: str = "tanh", threads: int = 1) -> KernelPPO:
    env_id, settings = GAMES[game]
    short = PACKET_SHORT if env_id.startswith("ccenv/Packet") else SHORT
    env = make_sb3(env_id, 6, threads=threads, **short, **settings)
    kind = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[activation]
    policy = {"net_arch": HIDDEN[activation], "activation_fn": kind, "log_std_init": -0.7}
    model = KernelPPO(env, n_steps=N_STEPS, batch_size=N_STEPS * env.num_envs, policy_kwargs=policy, seed=SEED, gamma=0.9)
    with torch.no_grad():  # away from the small initial head, so that actions depend on what is seen
        model.policy.action_net.weight.mul_(30.0)
    env.seed(SEED)
    model._setup_learn(1)
    return model


class Seen(BaseCallback):
    """Keeps what the steps showed."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.rewards: list[np.ndarray] = []
        self.infos: list[list[dict]] = []
        self.dones: list[np.ndarray] = []
        self._stop_at = stop_at

    def _on_step(self) -> bool:
        self.rewards.append(self.locals["rewards"].copy())
        self.infos.append(self.locals["infos"])
        self.dones.append(self.locals["dones"].copy())
        return len(self.rewards) != self._stop_at


def collect(model: KernelPPO, how, key_seed: int = 11, stop_at: int | None = None) -> tuple[dict[str, np.ndarray], Seen, bool]:
    callback = Seen(stop_at)
    callback.init_callback(model)
    torch.manual_seed(key_seed)
    went_on = how(model, model.env, callback, model.rollout_buffer, N_STEPS)
    buffer = model.rollout_buffer
    names = ("observations", "actions", "rewards", "values", "log_probs", "episode_starts", "advantages", "returns")
    return {name: getattr(buffer, name).copy() for name in names}, callback, went_on


def library_forward(model: KernelPPO, key_seed: int = 11):
    """Return a forward pass of the library's modules whose noise is the kernel's."""
    torch.manual_seed(key_seed)
    key, step = int(torch.randint(KEYS, ())), iter(range(N_STEPS))
    policy = model.policy
    levels = model.env.rollouts().levels

    def forward(obs, deterministic=False):
        t = next(step)
        distribution = policy.get_distribution(obs)
        if levels:
            heads = getattr(distribution, "distribution", None)
            heads = heads if isinstance(heads, list) else [heads]
            chosen = []
            for i, head in enumerate(heads):
                u = torch.tensor([uniform(key, row, i, t) for row in range(len(obs))])
                chosen.append((torch.cumsum(head.probs.double(), 1) <= u[:, None]).sum(1).clamp(max=levels - 1))
            actions = torch.stack(chosen, 1) if isinstance(model.action_space, spaces.MultiDiscrete) else chosen[0]
        else:
            shape = (len(obs), model.action_space.shape[0])
            noise = np.array([[standard_normal(key, row, i, t) for i in range(shape[1])] for row in range(shape[0])])
            actions = distribution.distribution.mean + torch.exp(policy.log_std) * torch.tensor(noise, dtype=torch.float32)
        values = policy.predict_values(obs)
        return actions.reshape((-1, *model.action_space.shape)), values, distribution.log_prob(actions)

    return forward


@pytest.mark.parametrize(("game", "activation"), [*((name, "tanh") for name in GAMES), ("sender", "relu")])
def test_rollouts_are_those_of_the_library(game, activation):
    kernel, plain = build(game, activation), build(game, activation)
    found, seen, _ = collect(kernel, KernelPPO.collect_rollouts)
    plain.policy.load_state_dict(kernel.policy.state_dict())
    plain.policy.forward = library_forward(plain)
    expected, told, _ = collect(plain, OnPolicyAlgorithm.collect_rollouts)
    assert expected["episode_starts"].sum() > kernel.env.num_envs  # episodes ended on the way
    assert (np.abs(np.diff(expected["actions"], axis=0)) > 0).any()
    for name, array in expected.items():
        assert array.dtype == found[name].dtype, name
        np.testing.assert_allclose(found[name], array, rtol=2e-3, atol=2e-4, err_msg=name)
    np.testing.assert_allclose(seen.rewards, told.rewards, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(seen.dones, told.dones)
    for own, other in zip(chain(*seen.infos), chain(*told.infos), strict=True):
        assert own.keys() == other.keys()
        for name in own:
            np.testing.assert_allclose(own[name], other[name], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(kernel._last_obs, plain._last_obs, atol=1e-3)
    np.testing.assert_array_equal(kernel._last_episode_starts, plain._last_episode_starts)
    assert kernel.num_timesteps == plain.num_timesteps


@pytest.mark.parametrize("game", ["sender", "shared", "network", "watched_flows", "packet_shared"])
def test_rollouts_do_not_depend_on_threads(game):
    one, _, _ = collect(build(game), KernelPPO.collect_rollouts)
    two, _, _ = collect(build(game, threads=2), KernelPPO.collect_rollouts)
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


def test_noise_is_keyed_by_the_seed_alone():
    first, _, _ = collect(build("sender"), KernelPPO.collect_rollouts)
    again, _, _ = collect(build("sender"), KernelPPO.collect_rollouts)
    other, _, _ = collect(build("sender"), KernelPPO.collect_rollouts, key_seed=12)
    np.testing.assert_array_equal(first["actions"], again["actions"])
    assert (first["actions"] != other["actions"]).all()
    numbers = np.array([standard_normal(5, row, 0, step) for row in range(200) for step in range(200)])
    assert abs(numbers.mean()) < 0.02 and abs(numbers.std() - 1.0) < 0.02 and len(np.unique(numbers)) == len(numbers)


def test_learning_goes_on_over_several_rollouts_unless_a_callback_ends_it():
    model = build("sender_discrete")
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(3 * N_STEPS * model.env.num_envs)
    assert model.num_timesteps == 3 * N_STEPS * model.env.num_envs
    assert any((value != before[name]).any() for name, value in model.policy.state_dict().items())
    _, seen, went_on = collect(build("sender"), KernelPPO.collect_rollouts, stop_at=4)
    assert not went_on and len(seen.rewards) == 4


UPDATES = {
    "sender": {"batch_size": 24, "learning_rate": 0.02},
    "sender_discrete": {"batch_size": 30, "learning_rate": 0.02, "ent_coef": 0.05, "normalize_advantage": False},
    "two_flows": {"batch_size": 25, "learning_rate": 0.02, "ent_coef": 0.05, "clip_range_vf": 0.05},
    "two_flows_discrete": {"batch_size": 36, "learning_rate": 0.01, "target_kl": 0.005},
}


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("game", UPDATES)
def test_gradient_steps_are_those_of_the_library(game, activation):
    env_id, settings = GAMES[game]
    models = []
    for step in (PPO.train, KernelPPO.train):
        env = make_sb3(env_id, 6, **SHORT, **settings)
        kind = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[activation]
        policy = {"net_arch": HIDDEN[activation], "activation_fn": kind, "optimizer_kwargs": {"eps": 1e-5, "fused": True}}
        model = KernelPPO(env, n_steps=N_STEPS, n_epochs=4, policy_kwargs=policy, seed=SEED, **UPDATES[game])
        env.seed(SEED)
        model._setup_learn(1)
        for rollout in range(2):
            collect(model, KernelPPO.collect_rollouts, key_seed=rollout)
            np.random.seed(rollout)
            step(model)
        models.append(model)
    plain, lean = models
    for name, value in plain.policy.state_dict().items():
        torch.testing.assert_close(lean.policy.state_dict()[name], value, rtol=1e-3, atol=3e-4, msg=name)
    told, found = (model.logger.name_to_value for model in models)
    assert told.keys() == found.keys()
    for name, value in told.items():
        assert found[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert found["train/clip_fraction"] > 0 and found["train/approx_kl"] > 0
    assert len(lean.gradient_norms) > 0 and min(lean.gradient_norms) > 0


def test_fast_tanh():
    x = np.linspace(-12, 12, 100_001).astype(np.float32)
    found = np.array([fast_tanh(v) for v in x])
    assert np.abs(found - np.tanh(x.astype(np.float64))).max() < 5e-7
    assert np.abs(found).max() <= np.nextafter(np.float32(1.0), np.float32(2.0))  # one unit in the last place


@pytest.mark.parametrize("widths", [(5, 64, 64, 1), (1, 1), (33, 100, 7, 50, 3), (256, 31, 17), (6, 256, 48)])
def test_layers_of_any_width_are_those_of_numpy(widths):
    """Blocks of outputs end where they should: widths that are no multiple of a block, and outputs wider than one."""
    generator = np.random.default_rng(len(widths))
    both = []
    for last in (widths[-1], 1):
        sizes = (*widths[:-1], last)
        both.append([(generator.normal(0, 0.3, pair), generator.normal(0, 0.3, pair[1])) for pair in pairwise(sizes)])
    networks = pack_actor_critic(*both, "relu", np.zeros(widths[-1]))
    scratch = np.full((3, networks.weights.shape[2]), np.nan, np.float32)
    x = scratch[0, : widths[0]] = generator.normal(size=widths[0])
    for which, layers in zip((ACTOR, CRITIC), both, strict=True):
        expected = x
        for place, (weight, bias) in enumerate(layers):
            expected = expected @ weight + bias
            expected = expected if place == len(layers) - 1 else np.maximum(expected, 0.0)
        row = evaluate(networks, which, scratch)
        np.testing.assert_allclose(scratch[row, : len(expected)], expected, rtol=2e-5, atol=2e-5)


def test_what_the_kernel_does_not_have():
    env = make_sb3("ccenv/Sender-v0", 2)
    with pytest.raises(InputError, match="in no wrapper, not VecMonitor"):
        KernelPPO(VecMonitor(env))
    for settings, said in (
        ({"net_arch": [8] * 6}, "at most 6 layers"),
        ({"net_arch": [512]}, "of at most 256"),
        ({"activation_fn": torch.nn.SiLU}, "the kernel has tanh, relu"),
    ):
        with pytest.raises(InputError, match=said):
            KernelPPO(env, policy_kwargs=settings)
    with pytest.raises(InputError, match="no use_sde"):
        KernelPPO(env, use_sde=True)
    model = KernelPPO(env, n_steps=4, batch_size=8)
    with torch.no_grad():
        model.policy.log_std.fill_(torch.nan)
    with pytest.raises(ValueError, match="finite"):
        model.learn(8)
    assert issubclass(KernelPPO, PPO)
