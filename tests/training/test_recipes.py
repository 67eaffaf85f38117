"""Recipes of the literature: bounds hold, the oracle is right, preferences weigh, curricula draw where they say."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_zoo import interface, random_policy
from stopped import assert_goes_on

pytest.importorskip("stable_baselines3")
pytest.importorskip("torch")

import torch

from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.interface.signals import MEASURES
from ccenv.agents.learned import load_family, load_policy, save_policy
from ccenv.agents.learned.preferences import with_preference
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.envs.packet.task import SharedPacketTask
from ccenv.training.config import TrainConfig, load_config
from ccenv.training.learner import Learner
from ccenv.training.recipes.certificate import certified_share, output_bounds, pieces, torch_bounds
from ccenv.training.recipes.gap import PreferenceTask, assign_boxes, baseline_core, draw_boxes, find_gap
from ccenv.training.recipes.imitation import Examples, oracle_actions
from ccenv.training.recipes.settings import Property

SMALL = ["num_envs=8", "ppo.n_steps=16", "ppo.batch_size=64", "total_steps=384", "evaluation.n_paths=4", "evaluation.worlds={}"]
SMALL += ["packet.episode_decisions=20"]
MORE = {
    "canopy": ["recipe.certificate.pieces=8"],
    "genet": ["recipe.gap.start_step=128", "recipe.gap.round_steps=128", "recipe.gap.boxes=3", "recipe.gap.networks=2"],
    "indigo": ["recipe.imitation.keep=256", "recipe.imitation.gradient_steps=5"],
    "mocc": [],
}


def small(name: str, *more: str) -> TrainConfig:
    return load_config(name, [*SMALL, *MORE[name], *more])


def outputs(policy: PolicySender, seen: np.ndarray) -> np.ndarray:
    """Return a network's outputs, layer by layer in plain numpy."""
    x = seen
    for place, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        if place:
            x = np.tanh(x) if policy.activation == "tanh" else np.maximum(x, 0.0)
        x = x @ weight + bias
    return x[:, 0]


@given(seed=st.integers(0, 2**31), scale=st.floats(0.0, 4.0), activation=st.sampled_from(["tanh", "relu"]))
@settings(max_examples=60, deadline=None)
def test_no_state_of_a_box_is_beyond_its_bounds(seed: int, scale: float, activation: str) -> None:
    """Corners, where a network without hidden layers has its extremes, and random states."""
    rng = np.random.default_rng(seed)
    policy = dataclasses.replace(random_policy(interface(signals="aurora", history=2), (7, 5), seed=seed), activation=activation)
    centre = rng.normal(size=6)
    low, high = centre - scale * rng.random(6), centre + scale * rng.random(6)
    lowest, highest = output_bounds(policy, low[None], high[None])
    corners = np.where(rng.random((200, 6)) < 0.5, low, high)
    found = outputs(policy, np.vstack([corners, low + rng.random((200, 6)) * (high - low), low, high]))
    assert lowest[0] <= found.min() and found.max() <= highest[0]


def test_bounds_of_a_point_are_its_output_and_of_one_layer_exact() -> None:
    policy = random_policy(interface(signals="aurora", history=1), (4,))
    point = np.array([[0.3, 1.2, 1.0]])
    lowest, highest = output_bounds(policy, point, point)
    assert highest[0] - lowest[0] < 1e-9 and lowest[0] == pytest.approx(outputs(policy, point)[0])
    squashed = dataclasses.replace(policy, head="squashed")
    with pytest.raises(InputError, match="head 'mean'"):
        output_bounds(squashed, np.zeros((1, 3)), np.ones((1, 3)))
    line = dataclasses.replace(policy, weights=(np.array([[1.0], [-2.0], [0.5]]),), biases=(np.array([0.25]),))
    lowest, highest = output_bounds(line, np.zeros((1, 3)), np.ones((1, 3)))
    assert (lowest[0], highest[0]) == (pytest.approx(-1.75), pytest.approx(1.75))


def test_the_bounds_that_are_trained_are_those_that_are_reported() -> None:
    policy = random_policy(interface(signals="aurora", history=2), (7, 5), seed=3)
    layers = []
    for weight, bias in zip(policy.weights, policy.biases, strict=True):
        layer = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        layer.weight.data, layer.bias.data = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias.copy())
        layers.append(layer)
    low, high = -np.ones((5, 6)), np.linspace(0.0, 2.0, 30).reshape(5, 6)
    trained = torch_bounds(layers, policy.activation == "tanh", torch.from_numpy(low), torch.from_numpy(high))
    for ours, theirs in zip(output_bounds(policy, low, high), trained, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=1e-9)


def test_pieces_lie_in_their_box() -> None:
    low, high = np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 4.0])
    first, last = pieces((low, high), 0.25, np.random.default_rng(0).random((50, 3)))
    assert (first >= low).all() and (last <= high).all()
    np.testing.assert_allclose(last - first, np.tile(0.25 * (high - low), (50, 1)))


def test_a_certificate_in_the_loss_proves_what_is_not_proved_without(tmp_path: Path) -> None:
    """Long enough for the certificate, not for PPO; the control takes the same steps of PPO."""
    shares = []
    for steps in (0, 200):
        config = small("canopy", f"recipe.certificate.steps={steps}", "recipe.certificate.learning_rate=0.003", "ppo.hidden=[8]")
        learner = Learner(config)
        learner.run(lambda state, progress: False)
        asked = config.recipe.certificate
        assert asked is not None
        player = learner.player()
        assert isinstance(player, PolicySender)
        shares.append([certified_share(player, what, asked.piece, 256) for what in asked.properties])
    without, trained = np.array(shares)
    assert (trained > 0.9).all() and without.min() < 0.1


def test_properties_name_signals_and_one_bound() -> None:
    what = Property(name="long", box={"latency_ratio": (2.0, 4.0)}, at_most=0.0)
    low, high = what.limits(interface(signals="aurora", history=2))
    assert low.tolist() == [-2.0, 2.0, 0.0] * 2 and high.tolist() == [2.0, 4.0, 8.0] * 2


def test_the_oracle_knows_the_path() -> None:
    measures = np.zeros(4, MEASURES)
    measures["true_link_Bps"], measures["true_rtt_s"], measures["true_flows"] = 1e6, 0.1, 1
    measures["cwnd_bytes"] = [1e5, 5e4, 1e7, 1e5]
    measures["true_flows"][3] = 2
    np.testing.assert_allclose(oracle_actions(measures, 2.0, 1.0), [0.0, 0.5, -1.0, -0.5])
    assert np.isnan(oracle_actions(np.zeros(1, MEASURES), 1.0, 1.0)).all()


def test_the_oracle_fills_the_link_and_no_queue() -> None:
    """What is imitated is worth it: the oracle's own actions, without any network."""
    config = load_config("indigo")
    task = SharedPacketTask(16, config.packet_settings().model_copy(update={"episode_decisions": 100, "staggered": False}))
    task.core.reset(seed=5)
    for _ in range(90):
        task.step(np.nan_to_num(oracle_actions(task.core.measures, 1.0, 1.1)))
    terms = dict(zip(task.core.term_names, task.core.terms[:, 0].T, strict=True))
    assert terms["utilisation"].mean() > 0.97 and terms["delay"].mean() < 0.15


def test_examples_are_the_newest_ones() -> None:
    examples = Examples(4, 1)
    for first in (0, 3):
        examples.add(np.arange(first, first + 3)[:, None], np.arange(first, first + 3))
    assert len(examples) == 4 and sorted(examples.actions.tolist()) == [2, 3, 4, 5]
    assert sorted(examples.seen[:, 0].tolist()) == [2, 3, 4, 5]


def make_family() -> tuple[PolicySender, PolicySender]:
    """Return a policy whose last two inputs are a preference, and the same with one built in."""
    sees = interface(signals="aurora", history=1)
    whole = random_policy(interface(signals=[*sees.signals, "loss_rate", "ecn_share"], history=1), (4,))
    return whole, with_preference(dataclasses.replace(whole, interface=sees), {"a": 0.25, "b": 0.75})


def test_a_preference_is_a_constant_input() -> None:
    whole, family = make_family()
    seen = np.random.default_rng(0).normal(size=(9, 3))
    asked = with_preference(family, {"a": 1.0})
    for one, weights in ((family, [0.25, 0.75]), (asked, [1.0, 0.0])):
        np.testing.assert_allclose(outputs(one, seen), outputs(whole, np.hstack([seen, np.tile(weights, (9, 1))])), atol=1e-12)
    assert sender_hash(asked) != sender_hash(family) and with_preference(asked, {"a": 0.25, "b": 0.75}).biases[0].tolist() == (
        family.biases[0].tolist()
    )


@pytest.mark.parametrize("weights", [{"a": 0.5}, {"a": 2.0, "b": -1.0}, {"a": float("nan"), "b": 1.0}, {"a": 0.5, "c": 0.5}])
def test_what_is_no_preference_is_refused(weights: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"add up to 1|unknown objective"):
        with_preference(make_family()[1], weights)


def test_a_family_is_one_card(tmp_path: Path) -> None:
    _, family = make_family()
    save_policy(tmp_path, family)
    plain, read = load_policy(tmp_path), load_family(tmp_path)
    assert type(plain) is PolicySender and sender_hash(plain) == sender_hash(read) == sender_hash(family)
    assert read.preference == (0.25, 0.75)
    assert sender_hash(with_preference(read, {"b": 1.0})) == sender_hash(with_preference(family, {"b": 1.0}))
    card = tmp_path / "policy.json"
    data = json.loads(card.read_text())
    both = ["a", "b"]
    for wrong in ({"objectives": ["a"], "default": [1.0]}, {"objectives": both, "default": [1, 1]}, {"objectives": ["a", "a"]}):
        card.write_text(json.dumps({**data, "preference": wrong}))
        with pytest.raises(InputError, match="preference"):
            load_policy(tmp_path)


def test_rewards_are_weighed_by_the_preference_of_the_episode() -> None:
    config = small("mocc")
    asked = config.recipe.preferences
    assert asked is not None
    task = PreferenceTask(6, config.packet_settings(), asked)
    task.core.reset(seed=3)
    drawn = task.preferences()
    assert (drawn >= 0).all() and drawn.sum(axis=1) == pytest.approx(1.0) and len({tuple(row) for row in drawn}) == 6
    assert task.observe().shape == (6, 18) and np.array_equal(task.observe()[:, -3:], drawn.astype(np.float32))
    for _ in range(8):
        rewards = task.step(np.zeros((6, 1)))
    terms = dict(zip(task.core.term_names, task.core.terms[:, 0].T, strict=True))
    objectives = np.stack([terms["throughput"], -terms["delay"], -5 * terms["loss"]], axis=1)
    np.testing.assert_allclose(rewards, (objectives * drawn).sum(axis=1))
    assert rewards.any()


def test_boxes_are_parts_of_ranges_and_promotions_take_their_share_of_what_is_left() -> None:
    config = small("genet")
    gap, ranges = config.recipe.gap, len(config.packet_settings().distribution.leaves)
    assert gap is not None
    boxes = draw_boxes(gap, 0, 1, ranges)
    assert boxes.shape == (3, ranges, 2) and (boxes >= 0).all() and (boxes <= 1).all()
    np.testing.assert_allclose(boxes[:, :, 1] - boxes[:, :, 0], gap.width)
    assert not np.array_equal(boxes, draw_boxes(gap, 0, 2, ranges))
    old, new = np.full((1, 2, 2), 0.25), np.full((1, 2, 2), 0.5)
    within = assign_boxes(100, 0.3, np.concatenate([old, new]), 2)
    assert [int((within[:, 0, 0] == value).sum()) for value in (0.5, 0.25, 0.0)] == [30, 21, 49]
    assert np.array_equal(assign_boxes(5, 0.3, old[:0], 2), np.tile([0.0, 1.0], (5, 2, 1)))


def test_environments_draw_inside_their_boxes() -> None:
    settings_ = small("genet").packet_settings()
    leaves = settings_.distribution.leaves
    within = np.tile([0.5, 0.625], (8, len(leaves), 1))
    within[:4] = [0.0, 1.0]
    task = SharedPacketTask(8, settings_, within=within)
    task.core.reset(seed=2)
    rate_Bps = task.core.link("rate_Bps")[:, 0]
    place = np.log(rate_Bps * 8e-6) / np.log(100.0)  # 1 to 100 Mbit/s
    assert ((place[4:] >= 0.5) & (place[4:] <= 0.625)).all() and not ((place[:4] >= 0.5) & (place[:4] <= 0.625)).all()


def test_the_gap_is_where_the_policy_is_worst() -> None:
    """A policy that keeps its first rate, ten segments per RTT, is worst against BBR where a path holds most segments."""
    config = small("genet", "recipe.gap.boxes=12", "recipe.gap.networks=3", "recipe.gap.decisions=40")
    settings_, gap = config.packet_settings(), config.recipe.gap
    assert gap is not None
    idle = random_policy(settings_.policy_interface(), (2,))
    idle = dataclasses.replace(idle, weights=tuple(np.zeros_like(w) for w in idle.weights), biases=(np.zeros(2), np.zeros(1)))
    box = find_gap(settings_, idle, gap, 0, 1)
    names = [leaf.place[-1] for leaf in settings_.distribution.leaves]
    size = draw_boxes(gap, 0, 1, len(names))[:, [names.index("rate_mbps"), names.index("rtt_ms")], 0].sum(axis=1)
    own = box[[names.index("rate_mbps"), names.index("rtt_ms")], 0].sum()
    assert own >= np.median(size)
    with pytest.raises(InputError, match=r"recipe\.gap\.baseline: 'learned_fair' is no classic CCA"):
        baseline_core(settings_, "learned_fair", box)


@pytest.mark.parametrize("name", sorted(MORE))
def test_a_run_goes_on_as_if_it_had_not_stopped(name: str, tmp_path: Path) -> None:
    assert_goes_on(tmp_path, small(name), [256])
    assert sender_hash(make_sender(str(tmp_path / "whole"))) == sender_hash(make_sender(str(tmp_path / "parts")))


@pytest.mark.parametrize(
    "changed",
    [
        {"box": {"latency_ratio": [3, 2]}}, {"box": {"latency_ratoi": [1, 2]}}, {"box": {"latency_ratio": [0, 2]}},
        {"at_least": 0.0}, {"at_most": None},
    ],
)  # fmt: skip
def test_properties_that_say_nothing_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises((ValueError, InputError), match=r"latency_ratio|at_most or at_least"):
        Property.model_validate({"name": "x", "box": {"latency_ratio": [1, 2]}, "at_most": 0.0, **changed})
