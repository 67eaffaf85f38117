"""Policies of other libraries as senders: Stable-Baselines3, torch, ONNX. What comes out is data, ready for the board.

The engines play fully connected networks with tanh or ReLU over the observation of ``ccenv/Sender-v0``. What is exactly such a
network is taken; anything else is refused with what is in the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.learned import MAX_WIDTH
from ccenv.agents.learned.onnx_file import read_onnx
from ccenv.agents.learned.steps import Activation, Linear, Step
from ccenv.agents.learned.view import ELEMENTS, Observation
from ccenv.engine.compiled.observation import N_OBSERVATION, OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.errors import InputError, require_extra, shown
from ccenv.foreign import path_of
from ccenv.network.learned import MAX_LAYERS
from ccenv.network.sender import PolicySender
from ccenv.registry import load_target

_AGENTS = "ccenv.agents:AGENTS"  # looked up at run time: the registry lists the policies of this room

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_PROBES = 256
_TOLERANCE = 1e-3  # of an action in [-1, 1]; the other library computes in float32


def from_sb3(model: Any, *, observation: Observation | None = None, name: str = "own_policy") -> PolicySender:
    """Return the sender that plays the mean action of a model of Stable-Baselines3.

    Args:
        model: a trained PPO, A2C, SAC, TD3 or DDPG with ``MlpPolicy`` and an action in [-1, 1]; its VecNormalize is built in.
        observation: what it saw instead of the ten elements of ``ccenv/Sender-v0``.
        name: of the sender.

    Returns:
        PolicySender: for ``ccenv.compare``, ``ccenv.attack`` and ``ccenv.save_policy``.

    Raises:
        InputError: for a model that is no fully connected network of this kind, or does something else than its layers say.
        MissingExtraError: without Stable-Baselines3.
    """
    require_extra("stable_baselines3", "train")
    policy = getattr(model, "policy", None)
    if policy is None:
        hint = ": load it first, as with PPO.load(path)" if isinstance(model, (str, FilePath)) else ""
        raise InputError(f"from_sb3: {shown(model)} is no model of Stable-Baselines3{hint}")
    kind, space = type(model).__name__, model.action_space
    if getattr(space, "shape", None) != (1,) or not (np.all(space.low == -1) and np.all(space.high == 1)):
        raise InputError(f"from_sb3: {kind} acts in {space}; Box(-1, 1, (1,)) is needed, log2(rate / C_L) = 3 a")
    if hasattr(policy, "lstm_actor"):
        raise InputError(f"from_sb3: {kind} is recurrent; the engines play networks without memory")
    if hasattr(policy, "action_net"):
        steps = [*_torch_steps(policy.mlp_extractor.policy_net), *_torch_steps(policy.action_net)]
        if getattr(policy, "squash_output", False):
            steps.append("tanh")
    elif hasattr(getattr(policy, "actor", None), "latent_pi"):
        steps = [*_torch_steps(policy.actor.latent_pi), *_torch_steps(policy.actor.mu), "tanh"]
    elif hasattr(getattr(policy, "actor", None), "mu"):
        steps = _torch_steps(policy.actor.mu)
    else:
        raise InputError(f"from_sb3: {kind} has no actor; PPO, A2C, SAC, TD3 and DDPG are known")
    normalise = model.get_vec_normalize_env()
    view = observation or Observation(*ELEMENTS)
    if normalise is not None and normalise.norm_obs:
        steps = [_normaliser(normalise, view), *steps]

    def action(features: np.ndarray) -> np.ndarray:
        seen = normalise.normalize_obs(features) if normalise is not None else features
        return np.asarray(model.predict(seen.astype(np.float32), deterministic=True)[0])

    return _sender("from_sb3", steps, view, name, action)


def from_torch(module: Any, *, observation: Observation | None = None, name: str = "own_policy") -> PolicySender:
    """Return the sender that plays a torch module of Linear, Tanh and ReLU layers.

    Args:
        module: from the observation to one number a, clipped to [-1, 1]: log2(rate / C_L) = 3 a.
        observation: what it sees instead of the ten elements of ``ccenv/Sender-v0``.
        name: of the sender.

    Raises:
        InputError: for other layers, or a module that does something else than its layers say.
        MissingExtraError: without torch.
    """
    require_extra("torch", "train")
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InputError(f"from_torch: {shown(module)} is no torch.nn.Module")

    def action(features: np.ndarray) -> np.ndarray:
        was_training = module.training
        module.eval()
        kind = next((p.dtype for p in module.parameters()), torch.float32)
        try:
            with torch.no_grad():
                out = module(torch.as_tensor(features, dtype=kind))
        finally:
            module.train(was_training)
        return np.asarray(out.detach().cpu(), np.float64)

    return _sender("from_torch", _torch_steps(module), observation or Observation(*ELEMENTS), name, action)


def from_onnx(file: FilePath | str, *, observation: Observation | None = None, output: str = "", name: str = "") -> PolicySender:
    """Return the sender that plays the fully connected network of an ONNX file.

    The file is read as data with a reader of its own (``onnx_file``): no further package, and nothing in it runs.

    Args:
        file: with one input, the observation (batch, n).
        observation: what it sees instead of the ten elements of ``ccenv/Sender-v0``.
        output: which output of the graph is the action; by default the first.
        name: of the sender; by default that of the file.

    Raises:
        InputError: for a file that is damaged or holds anything but Gemm, MatMul, Add, Sub, Mul, Div, Tanh, Relu in a chain.
    """
    path = path_of("file", file)
    return _sender("from_onnx", read_onnx(path, output), observation or Observation(*ELEMENTS), name or path.stem, None)


def action_of(sender: PolicySender, observations: np.ndarray) -> np.ndarray:
    """Return the actions of a policy in plain numpy: (n, N_OBSERVATION) to (n,), in [-1, 1]."""
    x = np.asarray(observations, np.float64)
    for index, (weight, bias) in enumerate(zip(sender.weights, sender.biases, strict=True)):
        x = x @ weight + bias
        if index < len(sender.weights) - 1:
            x = np.tanh(x) if sender.activation == "tanh" else np.maximum(x, 0.0)
    return np.clip(x[:, 0], -1.0, 1.0)


def _torch_steps(module: Any) -> list[Step]:
    """Return the steps of a module, layer after layer in the order in which they were added."""
    from torch import nn

    if isinstance(module, nn.Linear):
        bias = np.zeros(module.out_features) if module.bias is None else _numbers(module.bias)
        return [Linear(_numbers(module.weight).T, bias)]
    if isinstance(module, nn.Tanh):
        return ["tanh"]
    if isinstance(module, nn.ReLU):
        return ["relu"]
    if isinstance(module, (nn.Identity, nn.Dropout, nn.Flatten)):
        return []
    children = list(module.children())
    if not children:
        raise InputError(f"a layer is {type(module).__name__}; Linear, Tanh and ReLU are allowed")
    return [step for child in children for step in _torch_steps(child)]


def _numbers(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy(), np.float64)


def _normaliser(normalise: Any, view: Observation) -> Linear:
    """Return what VecNormalize does; its clipping must not cut off anything that the features can be."""
    mean, scale = np.asarray(normalise.obs_rms.mean), np.sqrt(np.asarray(normalise.obs_rms.var) + normalise.epsilon)
    reach = np.maximum(np.abs((view.low - mean) / scale), np.abs((view.high - mean) / scale))
    worst = int(np.argmax(reach))
    if reach[worst] > normalise.clip_obs:
        raise InputError(
            f"from_sb3: VecNormalize clips at {normalise.clip_obs:g}, and {view.names[worst]!r} can reach {reach[worst]:.4g}; "
            "no layer of the engines does that: train with a larger clip_obs, or scale in ccenv.Observation instead"
        )
    return Linear(np.diag(1.0 / scale), -mean / scale)


def _sender(
    what: str, steps: Sequence[Step], view: Observation, name: str, action: Callable[[np.ndarray], np.ndarray] | None
) -> PolicySender:
    if not isinstance(view, Observation):
        raise InputError(f"{what}: observation is {shown(view)}; make it with ccenv.Observation(...)")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{what}: name is {shown(name)}; letters, digits, '_', '.' and '-' are allowed, a letter first")
    if name in load_target(_AGENTS):
        raise InputError(f"{what}: {name!r} is the name of a registered agent; give another name")
    steps = [Linear(view.matrix.T, view.offset), *steps]
    linear = [step for step in steps if isinstance(step, Linear)]
    for before, after in pairwise(linear):
        if before.weight.shape[1] != after.weight.shape[0]:
            raise InputError(
                f"{what}: a layer gives {before.weight.shape[1]} numbers, the next one takes {after.weight.shape[0]}"
            )
    if linear[-1].weight.shape[1] != 1:
        raise InputError(f"{what}: the network gives {linear[-1].weight.shape[1]} numbers; one is needed, the action")
    weights, biases, activation = _merged(what, steps)
    if len(weights) > MAX_LAYERS or max(weight.shape[1] for weight in weights) > MAX_WIDTH:
        widths = [weight.shape[1] for weight in weights]
        raise InputError(f"{what}: layers {widths}; at most {MAX_LAYERS} of at most {MAX_WIDTH} units are allowed")
    if not all(np.isfinite(array).all() for array in (*weights, *biases)):
        raise InputError(f"{what}: a weight is not finite")
    sender = PolicySender(name, weights, biases, activation)
    if action is not None:
        _compare(what, sender, view, action)
    return sender


def _merged(what: str, steps: Sequence[Step]) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], Activation]:
    """Put layers without an activation between them together; a last activation goes through the identity."""
    kinds = sorted({step for step in steps if not isinstance(step, Linear)})
    if len(kinds) > 1:
        raise InputError(f"{what}: layers with {' and '.join(kinds)}; one kind is needed: give the policy activation_fn=nn.Tanh")
    weights, biases = [np.eye(N_OBSERVATION)], [np.zeros(N_OBSERVATION)]
    for step in steps:
        if isinstance(step, Linear):
            weights[-1], biases[-1] = weights[-1] @ step.weight, biases[-1] @ step.weight + step.bias
        else:
            size = weights[-1].shape[1]
            weights.append(np.eye(size))
            biases.append(np.zeros(size))
    return tuple(weights), tuple(biases), kinds[0] if kinds else "tanh"


def _compare(what: str, sender: PolicySender, view: Observation, action: Callable[[np.ndarray], np.ndarray]) -> None:
    """Refuse a network that acts otherwise than its layers say, as a forward() of its own may."""
    shares = np.random.Generator(np.random.Philox(0)).random((_PROBES, N_OBSERVATION))
    seen = (OBSERVATION_LOW + shares * (OBSERVATION_HIGH - OBSERVATION_LOW)).astype(np.float32)
    try:
        theirs = np.clip(np.asarray(action(view.of(seen)), np.float64).reshape(_PROBES, -1), -1.0, 1.0)
    except Exception as error:
        raise InputError(
            f"{what}: the network does not take {len(view.names)} numbers ({type(error).__name__}: {error})"
        ) from error
    apart = float(np.abs(theirs[:, 0] - action_of(sender, seen)).max()) if theirs.shape[1] == 1 else np.inf
    if not apart <= _TOLERANCE:
        raise InputError(f"{what}: the network acts otherwise than its layers one after the other, by up to {apart:.3g}")
