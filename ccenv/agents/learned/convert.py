"""Policies of Stable-Baselines3, torch and ONNX as senders that are pure data, and the NumPy reference of policies.

The engines evaluate dense layers with tanh or ReLU and GRU and LSTM cells, over the history of named signals
(``ccenv.agents.interface``). Networks that are exactly of this form are converted; others are refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.interface.interface import SENDER_V0, Interface, read_interface
from ccenv.agents.learned import MAX_WIDTH, Head, check_playable, inner_cca
from ccenv.agents.learned.observation import Observation
from ccenv.agents.learned.onnx_file import read_onnx
from ccenv.agents.learned.steps import Linear, Step, build_stages, is_recurrent, make_torch_play, output_width, torch_steps
from ccenv.agents.learned.weights import MAX_LAYERS
from ccenv.agents.sender import GATES, PolicySender
from ccenv.base.errors import InputError, require_extra, shown
from ccenv.base.foreign import as_path
from ccenv.base.registry import load_target


class PolicyReference:
    """NumPy reference of a flow's policy, which the kernels are tested against.

    Attributes:
        states: of its recurrent cells, one array each; an LSTM's holds output and cell.
        history: observed intervals, each a list of signals; empty before the first decision.
    """

    def __init__(self, sender: PolicySender) -> None:
        sizes = {"gru": 1, "lstm": 2}
        cells = [stage for stage in sender.stage_kinds if stage in GATES]
        self.sender = sender
        self.states = [np.zeros(sizes[stage] * len(u)) for stage, u in zip(cells, sender.hidden_weights, strict=True)]
        self.history: list[np.ndarray] = []
        self.action = 0.0

    def outputs(self, x: np.ndarray) -> np.ndarray:
        """Return the outputs of the network and advance its states."""
        sender, cell, value = self.sender, 0, np.asarray(x, dtype=np.float64)
        for i, stage in enumerate(sender.stage_kinds):
            value = value @ sender.weights[i] + sender.biases[i]
            if stage in GATES:
                value, self.states[cell] = _cell_reference(stage, value, self.states[cell], sender, cell)
                cell += 1
            elif i < len(sender.weights) - 1:
                value = np.tanh(value) if sender.activation == "tanh" else np.maximum(0.0, value)
        return value

    def decide(self, signals: np.ndarray) -> float:
        """Return the action for the signals of an interval, all N_SIGNALS of them."""
        seen = np.asarray(signals)[self.sender.interface.numbers]
        length = self.sender.interface.history
        self.history = [*self.history, seen][-length:] if self.history else [seen] * length
        return self.act(self.sender.interface.with_extra(np.concatenate(self.history)))

    def act(self, x: np.ndarray) -> float:
        """Return the action for an observation with its whole history."""
        outputs = self.outputs(x)
        if self.sender.head == "categorical":
            self.action = 2.0 * int(np.argmax(outputs)) / (len(outputs) - 1) - 1.0
        else:
            value = np.tanh(outputs[0]) if self.sender.head == "squashed" else outputs[0]
            self.action = float(np.clip(value, -1.0, 1.0))
        return self.action


def _cell_reference(
    cell_type: str, gates: np.ndarray, state: np.ndarray, sender: PolicySender, cell: int
) -> tuple[np.ndarray, np.ndarray]:
    n = len(sender.hidden_weights[cell])
    h = state[:n]
    hidden = h @ sender.hidden_weights[cell] + sender.hidden_biases[cell]
    if cell_type == "gru":
        r, z = (1 / (1 + np.exp(-(gates[i * n : (i + 1) * n] + hidden[i * n : (i + 1) * n]))) for i in (0, 1))
        new = np.tanh(gates[2 * n :] + r * hidden[2 * n :])
        h = (1 - z) * new + z * h
        return h, h
    i, f, g, o = ((gates + hidden)[k * n : (k + 1) * n] for k in range(4))
    c = state[n:] / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    h = np.tanh(c) / (1 + np.exp(-o))
    return h, np.concatenate([h, c])


_AGENTS = "ccenv.agents:AGENTS"  # looked up at run time: the registry lists the policies of this room

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_PROBES, _DECISIONS = 64, 8  # decisions of a recurrent network; others take a single one
_WIDEST = 16.0  # largest probed signal: in the other library's float32, large values hide small changes
_TOLERANCE = 1e-3  # of an action in [-1, 1]; the other library computes in float32

InterfaceLike = Interface | Mapping[str, Any] | str
"""An Interface, its fields as in a card or config, or the name of a set of signals.

Signals in a mapping may include user functions, as in environments (``ccenv.agents.interface.user``).
"""
Play = Callable[[np.ndarray], np.ndarray]
"""(n, T, width) observations of T decisions to (n, T) actions of the other library, or indices of discrete actions."""


def from_sb3(
    model: Any, *, observation: Observation | None = None, interface: InterfaceLike | None = None, name: str = "own_policy"
) -> PolicySender:
    """Return the sender that plays the mean action, or the likeliest of discrete ones, of a model of Stable-Baselines3.

    Raises InputError for a model of another form, or whose output differs from that of its layers; MissingExtraError without
    Stable-Baselines3.

    Args:
        model: a trained PPO, A2C, SAC, TD3, DDPG or DQN with ``MlpPolicy``, or RecurrentPPO with ``MlpLstmPolicy``; its action in
            [-1, 1], or one of n. Its VecNormalize is built in.
        observation: its features, if not the ten elements of ``ccenv/Sender-v0``.
        interface: or the interface that it was trained on; ``env.interface`` of the environments.
        name: of the sender.
    """
    require_extra("stable_baselines3", "train")
    policy = getattr(model, "policy", None)
    if policy is None:
        hint = ": load it first, as with PPO.load(path)" if isinstance(model, (str, FilePath)) else ""
        raise InputError(f"from_sb3: {shown(model)} is no model of Stable-Baselines3{hint}")
    algorithm, space = type(model).__name__, model.action_space
    discrete = int(getattr(space, "n", 0))
    if discrete < 2 and (getattr(space, "shape", None) != (1,) or not (np.all(space.low == -1) and np.all(space.high == 1))):
        raise InputError(f"from_sb3: {algorithm} acts in {space}; Box(-1, 1, (1,)) or Discrete(n) of one flow is needed")
    sees = _read_interface("from_sb3", interface, observation)
    steps = _sb3_steps(policy, algorithm)
    normalise = model.get_vec_normalize_env()
    if normalise is not None and normalise.norm_obs:
        steps = [_make_normaliser(normalise, *_describe_features(sees, observation)), *steps]

    def play(seen: np.ndarray) -> np.ndarray:
        out, state, begins = np.empty(seen.shape[:2]), None, np.ones(len(seen), bool)
        for decision in range(seen.shape[1]):
            observations = seen[:, decision]
            observations = normalise.normalize_obs(observations) if normalise is not None else observations
            actions, state = model.predict(observations.astype(np.float32), state=state, episode_start=begins, deterministic=True)
            out[:, decision], begins = np.asarray(actions, np.float64).reshape(len(seen)), np.zeros(len(seen), bool)
        return out

    head: Head = "categorical" if discrete else "mean"
    return _build_sender("from_sb3", steps, sees, observation, name, head, play, discrete)


def _sb3_steps(policy: Any, algorithm: str) -> list[Step]:
    if hasattr(policy, "action_net"):
        memory = torch_steps("from_sb3", policy.lstm_actor) if hasattr(policy, "lstm_actor") else []
        steps = [*memory, *torch_steps("from_sb3", policy.mlp_extractor.policy_net, policy.action_net)]
        return [*steps, "tanh"] if getattr(policy, "squash_output", False) else steps
    if hasattr(getattr(policy, "actor", None), "latent_pi"):
        return [*torch_steps("from_sb3", policy.actor.latent_pi, policy.actor.mu), "tanh"]
    if hasattr(getattr(policy, "actor", None), "mu"):
        return torch_steps("from_sb3", policy.actor.mu)
    if hasattr(getattr(policy, "q_net", None), "q_net"):
        return torch_steps("from_sb3", policy.q_net.q_net)
    raise InputError(f"from_sb3: {algorithm} has no actor; PPO, A2C, SAC, TD3, DDPG, DQN and RecurrentPPO are known")


def from_torch(
    module: Any,
    *,
    observation: Observation | None = None,
    interface: InterfaceLike | None = None,
    head: Head = "mean",
    name: str = "own_policy",
) -> PolicySender:
    """Return the sender that plays a torch module of Linear, Tanh, ReLU, GRU, LSTM, GRUCell and LSTMCell layers.

    Raises InputError for other layers, or a module whose output differs from that of its layers; MissingExtraError without torch.

    Args:
        module: from observations to actions. Without memory: (n, width) to (n, outputs). With GRU or LSTM: (n, T, width), or
            (T, n, width) where they are not ``batch_first``, to as many actions, or a tuple that begins with them. With GRUCell
            or LSTMCell: called with an observation (n, width) and a state, None at first; it returns actions and the next state.
        observation: its features, if not the ten elements of ``ccenv/Sender-v0``.
        interface: or its interface.
        head: ``"mean"``: one output, clipped to [-1, 1]; ``"squashed"``: its tanh is the action; ``"categorical"``: scores of
            evenly spaced actions from -1 to 1.
        name: of the sender.
    """
    require_extra("torch", "train")
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InputError(f"from_torch: {shown(module)} is no torch.nn.Module")
    sees = _read_interface("from_torch", interface, observation)
    return _build_sender(
        "from_torch", torch_steps("from_torch", module), sees, observation, name, head, make_torch_play(module, head)
    )


def from_onnx(
    file: FilePath | str,
    *,
    observation: Observation | None = None,
    interface: InterfaceLike | None = None,
    head: Head = "mean",
    output: str = "",
    name: str = "",
) -> PolicySender:
    """Return the sender that plays the network of an ONNX file.

    The file is read as data by ``onnx_file``: it needs no other package, and nothing in it runs. Raises InputError for a file
    that is damaged or holds anything but Gemm, MatMul, Add, Sub, Mul, Div, Tanh, Relu, GRU, LSTM in a chain.

    Args:
        file: with one input, the observations (n, width), or with GRU or LSTM (T, n, width); further inputs may be initial states
            of cells, which begin at 0.
        observation: its features, if not the ten elements of ``ccenv/Sender-v0``.
        interface: or its interface.
        head: as of :func:`from_torch`.
        output: output of the graph that is the action; by default the first.
        name: of the sender; by default that of the file.
    """
    path = as_path("file", file)
    sees = _read_interface("from_onnx", interface, observation)
    return _build_sender("from_onnx", read_onnx(path, output), sees, observation, name or path.stem, head, None)


def reference_actions(sender: PolicySender, observations: np.ndarray) -> np.ndarray:
    """Return the actions (n,) or (n, T) in [-1, 1] of a policy in plain NumPy, starting with zero states.

    Observations are (n, width) of n flows, or (n, T, width) of T decisions of each.
    """
    seen = np.asarray(observations, np.float64)
    if seen.ndim == 2:
        return reference_actions(sender, seen[:, None])[:, 0]
    flows = [PolicyReference(sender) for _ in seen]
    return np.array([[flow.act(x) for x in decisions] for flow, decisions in zip(flows, seen, strict=True)])


def _read_interface(what: str, spec: InterfaceLike | None, observation: Observation | None) -> Interface:
    if observation is not None and not isinstance(observation, Observation):
        raise InputError(f"{what}: observation is {shown(observation)}; make it with ccenv.Observation(...)")
    if spec is None:
        return SENDER_V0
    if observation is not None:
        raise InputError(
            f"{what}: observation is about the elements of ccenv/Sender-v0, interface names others; give one of them"
        )
    if isinstance(spec, Interface):
        return spec
    if not isinstance(spec, (str, Mapping)):
        raise InputError(f"{what}: interface is {shown(spec)}; a set of signals, or a table with signals and action is needed")
    return read_interface({"signals": spec} if isinstance(spec, str) else dict(spec), f"{what}: interface")


def _describe_features(sees: Interface, view: Observation | None) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Return names, smallest and largest values of the network's inputs."""
    if view is not None:
        return view.names, view.low, view.high
    extra = sees.extra.elements if sees.extra else ()
    low, high = (ends.astype(np.float64) for ends in sees.limits())
    return (*(row.name for row in sees.rows * sees.history), *extra), low, high


def _make_normaliser(normalise: Any, names: tuple[str, ...], low: np.ndarray, high: np.ndarray) -> Linear:
    """Return VecNormalize as a layer; its clipping must not affect any value that the features can have."""
    mean, scale = np.asarray(normalise.obs_rms.mean), np.sqrt(np.asarray(normalise.obs_rms.var) + normalise.epsilon)
    if mean.shape != low.shape:
        raise InputError(f"from_sb3: it saw {mean.size} numbers, the interface has {low.size}; name what it saw")
    reach = np.maximum(np.abs((low - mean) / scale), np.abs((high - mean) / scale))
    worst = int(np.argmax(reach))
    if reach[worst] > normalise.clip_obs:
        raise InputError(
            f"from_sb3: VecNormalize clips at {normalise.clip_obs:g}, and {names[worst]!r} can reach {reach[worst]:.4g}; "
            "no layer of the engines does that: train with a larger clip_obs, or scale in ccenv.Observation instead"
        )
    return Linear(np.diag(1.0 / scale), -mean / scale)


def _build_sender(
    what: str,
    steps: Sequence[Step],
    sees: Interface,
    view: Observation | None,
    name: str,
    head: Head,
    play: Play | None,
    n_actions: int = 0,
) -> PolicySender:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{what}: name is {shown(name)}; letters, digits, '_', '.' and '-' are allowed, a letter first")
    if name in load_target(_AGENTS):
        raise InputError(f"{what}: {name!r} is the name of a registered agent; give another name")
    if head not in ("mean", "squashed", "categorical"):
        raise InputError(f"{what}: head is {shown(head)}; mean, squashed and categorical are allowed")
    steps = [*([] if view is None else [Linear(view.matrix.T, view.offset)]), *steps]
    stages = build_stages(what, sees.width, steps)
    outputs = output_width(steps, sees.width)
    if head == "categorical" and outputs < 2:
        raise InputError(f"{what}: the network gives {outputs} number; a score for each of two or more actions is needed")
    if head != "categorical" and outputs != 1:
        hint = ", or head='categorical' for scores of actions" if what != "from_sb3" else ""
        raise InputError(f"{what}: the network gives {outputs} numbers; one is needed, the action{hint}")
    if stages.squashed and head != "mean":
        raise InputError(f"{what}: the network ends with tanh after ReLU; its head is 'mean', not {head!r}")
    widths = [weight.shape[0] for weight in stages.weights] + [outputs]
    if len(stages.weights) > MAX_LAYERS or max(widths[1:]) > MAX_WIDTH:
        raise InputError(f"{what}: layers {widths[1:]}; at most {MAX_LAYERS} of at most {MAX_WIDTH} units are allowed")
    arrays = (*stages.weights, *stages.biases, *stages.hidden_weights, *stages.hidden_biases)
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputError(f"{what}: a weight is not finite")
    sender = PolicySender(
        name,
        stages.weights,
        stages.biases,
        stages.activation,
        sees,
        "squashed" if stages.squashed else head,
        stages.kinds,
        stages.hidden_weights,
        stages.hidden_biases,
        inner_cca(sees, what),
    )
    try:
        check_playable(tuple(widths), sender.stage_kinds, sender.head, sees)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from None
    if play is not None:
        _require_same_actions(what, sender, view, play, n_actions)
    return sender


def _require_same_actions(what: str, sender: PolicySender, view: Observation | None, play: Play, n_actions: int) -> None:
    """Refuse a network whose output differs from that of its layers, as with a custom forward()."""
    _, low, high = _describe_features(sender.interface, None)
    low, high = np.maximum(low, -_WIDEST), np.minimum(high, _WIDEST)
    n_decisions = _DECISIONS if is_recurrent(sender) else 1
    shares = np.random.Generator(np.random.Philox(0)).random((_PROBES, n_decisions, len(low)))
    seen = (low + shares * (high - low)).astype(np.float32)
    features = seen if view is None else view.of(seen)
    try:
        theirs = np.asarray(play(features), np.float64).reshape(seen.shape[:2])
    except Exception as error:
        message = str(error).partition("\n")[0]
        raise InputError(
            f"{what}: the network does not take {features.shape[-1]} numbers ({type(error).__name__}: {message})"
        ) from error
    n_actions = sender.weights[-1].shape[1] if sender.head == "categorical" else n_actions
    ours = reference_actions(sender, seen)
    if sender.head == "categorical":
        apart = np.abs(2.0 * theirs / (n_actions - 1) - 1.0 - ours) * _is_clear(sender, seen)
    else:
        apart = np.abs(np.clip(theirs, -1.0, 1.0) - ours)
    if not apart.max() <= _TOLERANCE:
        raise InputError(f"{what}: the network acts otherwise than its layers one after the other, by up to {apart.max():.3g}")


def _is_clear(sender: PolicySender, seen: np.ndarray) -> np.ndarray:
    """Tell for each decision whether the highest score is clearly the highest, (n, T)."""
    flows = [PolicyReference(sender) for _ in seen]
    scores = np.array([[flow.outputs(x) for x in decisions] for flow, decisions in zip(flows, seen, strict=True)])
    best = np.sort(scores, axis=-1)
    clear: np.ndarray = best[..., -1] - best[..., -2] > _TOLERANCE
    return clear
