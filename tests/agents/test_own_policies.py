"""Policies of other libraries as senders: what they do is what the engines do, and what cannot be played is refused in one line.

``data/*.onnx`` were written by torch.onnx.export (torch 2.13: the older exporter with ``dynamo=False``, the newer one with a
normalising layer before the network); ``onnx_actions.json`` holds what torch itself computed. So were the networks with memory,
``legacy_gru`` to ``state_gru``, and ``onnx_memory_actions.json``: (flow, decision, signal) and (flow, decision).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ccenv
from ccenv.agents.interface.interface import N_OBSERVATION, OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.agents.learned.convert import from_onnx, from_sb3, from_torch, reference_actions
from ccenv.agents.learned.observation import ELEMENTS, Observation
from ccenv.base.errors import InputError
from ccenv.engine.curve.engine import CurveEngine
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import read_submission

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
import torch
from stable_baselines3.common.vec_env import VecNormalize

from ccenv.envs.clients.sb3 import make_sb3

DATA = Path(__file__).parent / "data"
VIEW = Observation("rate_ratio", "lost_share", gap={"qdel_U": 1, "qdel_L": -1}, flying={"inflight": 0.5, "1": -1})


def network(n_in: int = 4, activation: Any = None) -> Any:
    torch.manual_seed(3)
    kind = activation or torch.nn.Tanh
    return torch.nn.Sequential(torch.nn.Linear(n_in, 8), kind(), torch.nn.Linear(8, 8), kind(), torch.nn.Linear(8, 1))


def observations(n: int = 50) -> np.ndarray:
    shares = np.random.default_rng(5).random((n, N_OBSERVATION))
    return (OBSERVATION_LOW + shares * (OBSERVATION_HIGH - OBSERVATION_LOW)).astype(np.float32)


def test_features_are_sums_of_elements_within_their_bounds() -> None:
    seen = observations()
    features = VIEW.of(seen)
    expected = np.stack([seen[:, 4], seen[:, 3], seen[:, 2] - seen[:, 1], 0.5 * seen[:, 9] - 1], axis=1)
    np.testing.assert_allclose(features, expected, atol=1e-5)
    assert (features >= VIEW.low - 1e-5).all() and (features <= VIEW.high + 1e-5).all() and VIEW.space().shape == (4,)
    assert len(ELEMENTS) == N_OBSERVATION


@pytest.mark.parametrize("activation", [torch.nn.Tanh, torch.nn.ReLU])
def test_a_torch_module_acts_as_in_torch(activation: Any) -> None:
    module, seen = network(activation=activation), observations()
    expected = module(torch.tensor(VIEW.of(seen))).detach().numpy()[:, 0].clip(-1, 1)
    np.testing.assert_allclose(reference_actions(from_torch(module, observation=VIEW), seen), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["legacy", "new"])
def test_an_onnx_file_acts_as_in_torch(name: str) -> None:
    known = json.loads((DATA / "onnx_actions.json").read_text())
    actions = reference_actions(from_onnx(DATA / f"{name}_export.onnx"), np.array(known["observations"]))
    np.testing.assert_allclose(actions, np.clip(known[name], -1, 1), atol=1e-6)


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "SAC", "TD3"])
@pytest.mark.parametrize("normalised", [False, True])
def test_a_model_of_sb3_acts_as_in_sb3(algorithm: str, normalised: bool) -> None:
    env = VIEW.wrap(make_sb3(num_envs=4))
    if normalised:
        env = VecNormalize(env, clip_obs=1e9)
        env.reset()
        for _ in range(20):
            env.step(np.zeros((4, 1), np.float32))
    kind = {"activation_fn": torch.nn.Tanh, "net_arch": [16, 16]}
    model = getattr(sb3, algorithm)("MlpPolicy", env, policy_kwargs=kind, device="cpu", seed=1)
    seen = observations()
    features = VIEW.of(seen)
    expected = model.predict(env.normalize_obs(features) if normalised else features, deterministic=True)[0][:, 0]
    np.testing.assert_allclose(reference_actions(from_sb3(model, observation=VIEW), seen), expected, atol=1e-4)


def test_the_kernel_plays_the_policy() -> None:
    shipped: Any = ccenv.make_sender("learned_nominal")
    layers: list[Any] = []
    for weight, bias in zip(shipped.weights, shipped.biases, strict=True):
        layer = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        layer.weight.data, layer.bias.data = torch.tensor(weight.T.copy()), torch.tensor(bias)
        layers += [layer, torch.nn.Tanh() if shipped.activation == "tanh" else torch.nn.ReLU()]
    path = ccenv.make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)
    runs = []
    for sender in (shipped, from_torch(torch.nn.Sequential(*layers[:-1]))):
        engine = CurveEngine([path], model="ccac", senders=[sender], adversary=ccenv.make_adversary("uniform"), seed=1)
        engine.advance(800)
        runs.append([engine.totals()[name] for name in ("A", "S")])
    np.testing.assert_array_equal(runs[0], runs[1])


def test_it_passes_the_rules_of_the_board(tmp_path: Path) -> None:
    sender = from_torch(network(), observation=VIEW, name="own")
    ccenv.save_policy(tmp_path / "own", sender, {"algorithm": "by hand"})
    submission, change = pack(str(tmp_path / "own.safetensors"), Authorship("Ada", "MIT", "standard-v1/1"), tmp_path / "sub")
    assert change < 1e-3 and read_submission(tmp_path / "sub").sha256 == submission.sha256


class Wrapped(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Does more than its layers say."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, seen: Any) -> Any:
        return self.inner(seen) + 0.3


def test_normalisation_that_cuts_off_is_refused() -> None:
    env = VecNormalize(VIEW.wrap(make_sb3(num_envs=4)), clip_obs=2)
    with pytest.raises(InputError, match="VecNormalize clips at 2"):
        from_sb3(sb3.PPO("MlpPolicy", env, device="cpu"), observation=VIEW)


@pytest.mark.parametrize("name", ["new_export", "legacy_lstm"])
def test_damaged_onnx_files_are_one_line(tmp_path: Path, name: str) -> None:
    whole = (DATA / f"{name}.onnx").read_bytes()
    generator = np.random.default_rng(1)
    file = tmp_path / "damaged.onnx"
    for trial in range(300):
        content = bytearray(whole)
        if trial % 2:
            content = content[: generator.integers(len(content))]
        for _ in range(3):
            if content:
                content[generator.integers(len(content))] = generator.integers(256)
        file.write_bytes(bytes(content))
        try:
            from_onnx(file)
        except InputError as error:
            assert "\n" not in str(error)
    with pytest.raises(InputError, match="no output 'policy'"):
        from_onnx(DATA / "new_export.onnx", output="policy")


def broken() -> Any:
    module = network()
    with torch.no_grad():
        module[0].weight[0, 0] = float("nan")
    return module


LOOKS = {"observation": VIEW}
SEES = {"signals": ["queue_log2", "loss_rate", "send_excess"], "action": "rate_exp2", "history": 4, "clock": {"every": "rtt"}}
WIDTH = 12
FIVE = {"signals": ["queue_log2", "loss_rate", "send_excess", "rtt_change", "last_action"], "action": "rate_exp2"}


class Sequences(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Dense, cells over whole sequences, dense."""

    def __init__(self, kind: str, **given: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.before = torch.nn.Sequential(torch.nn.Linear(WIDTH, 6), torch.nn.Tanh())
        self.cell = getattr(torch.nn, kind)(6, 5, **given)
        self.after = torch.nn.Linear(5, 1)

    def forward(self, seen: Any) -> Any:
        out, state = self.cell(self.before(seen))
        return self.after(out), state


class Steps(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, kind: str, n_actions: int = 1) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.cell, self.after = getattr(torch.nn, kind)(WIDTH, 5), torch.nn.Linear(5, n_actions)

    def forward(self, seen: Any, state: Any) -> Any:
        state = self.cell(seen, state)
        return self.after(state[0] if isinstance(state, tuple) else state), state


class Forgets(Steps):
    """Says that it has a memory and uses none."""

    def forward(self, seen: Any, state: Any) -> Any:
        return super().forward(seen, None)


@pytest.mark.parametrize(
    ("module", "kinds"),
    [(Sequences("GRU", batch_first=True), ("dense", "gru", "dense")),
     (Sequences("LSTM", num_layers=2), ("dense", "lstm", "lstm", "dense")),
     (Sequences("GRU", bias=False), ("dense", "gru", "dense")), (Steps("GRUCell"), ("gru", "dense")),
     (Steps("LSTMCell"), ("lstm", "dense"))],
)  # fmt: skip
def test_a_memory_in_torch_is_the_kernels(module: Any, kinds: tuple[str, ...], tmp_path: Path) -> None:
    """from_torch compares it with torch over eight decisions; what is saved is the same policy, and the engine plays it."""
    sender = from_torch(module, interface=SEES, name="own")
    assert sender.stage_kinds == kinds and sender.interface.width == WIDTH
    ccenv.save_policy(tmp_path / "own", sender)
    ends = []
    for player in (sender, ccenv.make_sender(str(tmp_path / "own.safetensors"))):
        path = ccenv.make_path(link_rate_mbps=12, rtt_ms=40, jitter_ms=40, buffer_bdp=2)
        engine = CurveEngine([path], model="ccac", senders=[player], adversary=ccenv.make_adversary("uniform"), seed=1)
        engine.advance(400)
        ends.append(engine.totals()["S"])
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("name", ["legacy_gru", "legacy_lstm", "new_gru", "new_lstm", "state_gru"])
def test_a_memory_in_onnx_acts_as_in_torch(name: str) -> None:
    known = json.loads((DATA / "onnx_memory_actions.json").read_text())
    sender = from_onnx(DATA / f"{name}.onnx", interface=FIVE)
    assert {"gru", "lstm"} & set(sender.stage_kinds)
    actions = reference_actions(sender, np.array(known["observations"]))
    np.testing.assert_allclose(actions, np.clip(known[name], -1, 1), atol=1e-6)


def test_discrete_actions_and_other_signals_of_sb3() -> None:
    settings = {"signals": ["queue_log2", "loss_rate"], "history": 3, "action": "rate_exp2"}
    env = make_sb3(num_envs=2, **settings, discrete=True, n_actions=5)
    for algorithm in ("PPO", "DQN"):
        model = getattr(sb3, algorithm)("MlpPolicy", env, device="cpu", seed=2)
        sender = from_sb3(model, interface=env.interface)
        assert sender.interface.clock.every == "rtt"
        assert (sender.head, sender.interface.width, sender.weights[-1].shape[1]) == ("categorical", 6, 5)
    squashed = sb3.SAC("MlpPolicy", make_sb3(num_envs=2, **settings), device="cpu", seed=2)
    assert from_sb3(squashed, interface=settings).head == "squashed"


def test_scores_of_torch_are_actions() -> None:
    sender = from_torch(Steps("GRUCell", 3), interface=SEES, head="categorical")
    seen = np.random.default_rng(2).uniform(-1, 2, (4, 6, WIDTH))
    assert set(np.unique(reference_actions(sender, seen))) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(
    ("module", "given", "message"),
    [
        (Wrapped(), LOOKS, "acts otherwise than its layers"),
        (network(activation=torch.nn.GELU), LOOKS, "GELU; Linear, Tanh, ReLU, GRU, LSTM, GRUCell and LSTMCell are allowed"),
        (network(3), LOOKS, "a layer gives 4 numbers, the next one takes 3"),
        (torch.nn.Linear(4, 2), LOOKS, "gives 2 numbers; one is needed"),
        (torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1)), LOOKS, "at most 256 units"),
        (torch.nn.Sequential(network(), torch.nn.ReLU()), LOOKS, "relu and tanh; one kind is needed"),
        (broken(), LOOKS, "not finite"),
        ("policy.pt", LOOKS, "is no torch.nn.Module"),
        (network(), {**LOOKS, "name": "cubic"}, "name of a registered agent"),
        (network(), {**LOOKS, "name": "../up"}, "letters, digits"),
        (Forgets("GRUCell"), {"interface": SEES}, "acts otherwise than its layers"),
        (Sequences("GRU", bidirectional=True), {"interface": SEES}, "no cells that look ahead"),
        (Steps("GRUCell"), {}, "the observation has 10 numbers, the first layer takes 12"),
        (Steps("GRUCell"), {"interface": SEES, "observation": VIEW}, "give one of them"),
        (Steps("GRUCell"), {"interface": {"signals": ["queue_lgo2"]}}, "queue_log2"),
        (Steps("GRUCell"), {"interface": {"signals": ["true_flows_log2"], "history": 12}}, "for critics"),
        (Steps("GRUCell"), {"interface": 3}, "interface is 3"),
        (Steps("GRUCell"), {"interface": {**SEES, "action": "cwnd_exp2_over"}}, "needs inner CCA"),
        (Steps("GRUCell", 3), {"interface": SEES}, "head='categorical'"),
        (Steps("GRUCell"), {"interface": SEES, "head": "categorical"}, "a score for each of two"),
        (Steps("GRUCell"), {"interface": SEES, "head": "best"}, "head is 'best'"),
    ],
)
def test_what_cannot_be_played_is_refused(module: Any, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        from_torch(module, **given)
    assert "\n" not in str(caught.value)


def test_a_cell_that_begins_elsewhere_is_refused(tmp_path: Path) -> None:
    content, zeros = (DATA / "legacy_gru.onnx").read_bytes(), b"\x10\x01J0" + bytes(48)  # float, raw, 12 of them
    assert content.count(zeros) == 2
    file = tmp_path / "begins.onnx"
    file.write_bytes(content.replace(zeros, zeros[:-4] + b"\x00\x00\x80\x3f", 1))
    with pytest.raises(InputError, match="begins with a state other than 0"):
        from_onnx(file, interface=FIVE)


def test_environments_say_what_a_policy_sees() -> None:
    import gymnasium

    from ccenv.agents.interface.interface import SENDER_V0

    assert make_sb3(num_envs=1).interface == SENDER_V0
    together = gymnasium.make("ccenv/Packet-v0", signals="aurora", clock={"every": "rtt", "common": True})
    assert (together.unwrapped.interface.width, together.unwrapped.interface.clock.common) == (30, False)
    assert (
        gymnasium.make_vec("ccenv/Sender-v0", num_envs=2, signals="orca", decision_steps=4).unwrapped.interface.clock.count == 0.5
    )
    assert gymnasium.make("ccenv/Network-v0").unwrapped.interface is None
