"""The algorithms of Stable-Baselines3 that a config may name: construction, and the memory that decides their future."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.sender import PolicySender
from ccenv.base.errors import require_extra
from ccenv.training.config import TrainConfig
from ccenv.training.settings import OffPolicySettings, PpoSettings

require_extra("stable_baselines3", "train")
require_extra("torch", "train")

import torch  # noqa: E402  (only after the checks that name the extra)
from stable_baselines3 import PPO, SAC, TD3  # noqa: E402
from stable_baselines3.common.noise import NormalActionNoise  # noqa: E402
from stable_baselines3.common.utils import LinearSchedule  # noqa: E402

from ccenv.training.ppo.flows import FlowsPPO  # noqa: E402
from ccenv.training.ppo.ppo import KernelPPO  # noqa: E402
from ccenv.training.recipes.certificate import CertifiedPPO  # noqa: E402
from ccenv.training.recipes.imitation import ImitationPPO  # noqa: E402

ADAM_EPS = 1e-5  # as Stable-Baselines3 sets it for PPO
_ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}
_BUFFER_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
Layers = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Algorithm:
    """An algorithm as the learner uses it."""

    make: Callable[[TrainConfig, Any], Any]  # builds the model for a config and a VecEnv
    optimizers: Callable[[Any], dict[str, Any]]  # the model's optimisers by name
    stems: tuple[str, str]  # prefixes of the action network's hidden layers and of its last layer among the policy's tensors
    squashed: bool  # the action is tanh of the last layer (SAC, TD3), not the layer itself clipped to [-1, 1]
    metrics: tuple[str, str]  # Stable-Baselines3's names of policy loss and value loss


def _ppo(config: TrainConfig, env: Any) -> PPO:
    ppo: PpoSettings = config.ppo
    policy = {"net_arch": list(ppo.hidden), "activation_fn": _ACTIVATIONS[ppo.activation], "log_std_init": ppo.log_std}
    same = {"n_steps", "batch_size", "n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range"}
    renamed = {"ent_coef": ppo.entropy_weight, "vf_coef": ppo.value_weight, "max_grad_norm": ppo.max_gradient_norm}
    settings: dict[str, Any] = ppo.model_dump(include=same) | renamed
    if ppo.last_learning_rate is not None:
        settings["learning_rate"] = LinearSchedule(ppo.learning_rate, ppo.last_learning_rate, 1.0)
    recipe = config.recipe
    if recipe.imitation is not None:
        step = config.packet_settings().interface().action_row[1]
        return ImitationPPO(env, imitation=recipe.imitation, step=step, policy_kwargs=policy, **settings)
    if config.own_times:
        settings |= {"reward_scale": ppo.reward_scale, "max_critic_grad_norm": ppo.max_critic_gradient_norm}
        return FlowsPPO(env, n_seen=config.packet_settings().interface().width, policy_kwargs=policy, **settings)
    if ppo.rollouts == "python":
        return PPO("MlpPolicy", env, policy_kwargs=policy, device="cpu", **settings)
    policy |= {"optimizer_kwargs": {"eps": ADAM_EPS, "fused": True}}
    if recipe.certificate is not None:
        sees = config.packet_settings().interface()
        return CertifiedPPO(env, certificate=recipe.certificate, sees=sees, policy_kwargs=policy, **settings)
    return KernelPPO(env, policy_kwargs=policy, **settings)


def _off_policy(settings: OffPolicySettings) -> dict[str, Any]:
    same = {"learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "gradient_steps"}
    policy = {"net_arch": list(settings.hidden), "activation_fn": torch.nn.Tanh}
    return settings.model_dump(include=same) | {
        "train_freq": (settings.n_steps, "step"),
        "policy_kwargs": policy,
        "device": "cpu",
    }


def _sac(config: TrainConfig, env: Any) -> SAC:
    return SAC("MlpPolicy", env, ent_coef=f"auto_{config.sac.initial_entropy_weight}", **_off_policy(config.sac))


def _td3(config: TrainConfig, env: Any) -> TD3:
    if config.offline is not None:
        from ccenv.training.offline.dataset import read_data
        from ccenv.training.offline.learner import OfflineTD3

        noise = NormalActionNoise(np.zeros(1), np.full(1, config.td3.noise_std))
        settings = _off_policy(config.td3) | {"learning_starts": 0}
        data = read_data(config.offline.data)
        return OfflineTD3(env, offline=config.offline, data=data, action_noise=noise, **settings)
    size = int(np.prod(env.action_space.shape))
    noise = NormalActionNoise(np.zeros(size), np.full(size, config.td3.noise_std))
    return TD3("MlpPolicy", env, action_noise=noise, policy_delay=config.td3.policy_delay, **_off_policy(config.td3))


def _actor_and_critic(model: Any) -> dict[str, Any]:
    more = {"value": model.value_optimizer} if hasattr(model, "value_optimizer") else {}
    return {"actor": model.policy.actor.optimizer, "critic": model.policy.critic.optimizer} | more


def _policy_and_certificate(model: Any) -> dict[str, Any]:
    more = {"certificate": model.certificate_optimizer} if isinstance(model, CertifiedPPO) else {}
    return {"policy": model.policy.optimizer} | more


ALGORITHMS: dict[str, Algorithm] = {
    "ppo": Algorithm(
        _ppo,
        _policy_and_certificate,
        ("policy.mlp_extractor.policy_net.", "policy.action_net"),
        False,
        ("train/policy_gradient_loss", "train/value_loss"),
    ),
    "sac": Algorithm(
        _sac,
        lambda model: _actor_and_critic(model) | {"entropy": model.ent_coef_optimizer},
        ("policy.actor.latent_pi.", "policy.actor.mu"),
        True,
        ("train/actor_loss", "train/critic_loss"),
    ),
    "td3": Algorithm(_td3, _actor_and_critic, ("policy.actor.mu.", ""), True, ("train/actor_loss", "train/critic_loss")),
}


class GradientNorm:
    """Norms of the gradients of an iteration, before anything clips them: of PPO's optimiser, of the actor's of SAC and TD3."""

    def __init__(self, model: Any, optimizers: dict[str, Any]) -> None:
        self._square = 0.0
        self._norms: list[float] = []
        self._model = model if isinstance(model, KernelPPO) else None
        if self._model is not None:
            return
        optimizer = next(iter(optimizers.values()))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.register_post_accumulate_grad_hook(self._add)
        optimizer.register_step_pre_hook(self._end)

    def _add(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._square += float(parameter.grad.pow(2).sum())

    def _end(self, *_: object) -> None:
        self._norms.append(self._square**0.5)
        self._square = 0.0

    def take(self) -> float:
        """Return the mean norm since the last call; NaN if there was no gradient step."""
        norms, self._norms = (self._norms if self._model is None else self._model.gradient_norms), []
        return float(np.mean(norms)) if norms else float("nan")


def action_layers(algorithm: Algorithm, tensors: dict[str, np.ndarray]) -> Layers:
    """Return the action network's weights (n_in, n_out) and biases, float64, from packed tensors.

    A squashed action becomes one more layer: the identity after tanh of the last one.
    """
    stem, last = algorithm.stems
    numbers = {int(name.removeprefix(stem).partition(".")[0]) for name in tensors if name.startswith(stem)}
    names = [f"{stem}{number}" for number in sorted(numbers)] + ([last] if last else [])
    weights = [tensors[f"{name}.weight"].T.astype(np.float64) for name in names]
    biases = [tensors[f"{name}.bias"].astype(np.float64) for name in names]
    if algorithm.squashed:
        size = weights[-1].shape[1]
        weights.append(np.eye(size))
        biases.append(np.zeros(size))
    return tuple(weights), tuple(biases)


def put_action_layers(algorithm: Algorithm, model: Any, sender: PolicySender) -> None:
    """Give the action network of a model the weights of a policy of the same shape."""
    stem, last = algorithm.stems
    network = model.policy.get_submodule(stem.removeprefix("policy.").removesuffix("."))
    layers = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    layers.append(model.policy.get_submodule(last.removeprefix("policy.")))
    with torch.no_grad():
        for layer, weight, bias in zip(layers, sender.weights, sender.biases, strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T.astype(np.float32)))
            layer.bias.copy_(torch.from_numpy(bias.astype(np.float32)))


def pack_memory(model: Any) -> dict[str, np.ndarray]:
    """Return an algorithm's memory besides its weights: examples, or replay buffer, entropy weight and number of updates."""
    if isinstance(model, ImitationPPO):
        return {f"memory.{name}": array.copy() for name, array in model.examples.arrays.items()}
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return {}
    out = {f"memory.{name}": getattr(buffer, name).copy() for name in _BUFFER_ARRAYS}
    out["memory.place"] = np.array([buffer.pos, int(buffer.full), model._n_updates], np.int64)
    if getattr(model, "log_ent_coef", None) is not None:
        out["memory.log_ent_coef"] = model.log_ent_coef.detach().numpy().copy()
    return out


def unpack_memory(model: Any, tensors: dict[str, np.ndarray]) -> None:
    if isinstance(model, ImitationPPO):
        for name, array in model.examples.arrays.items():
            array[...] = tensors[f"memory.{name}"]
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return
    for name in _BUFFER_ARRAYS:
        getattr(buffer, name)[...] = tensors[f"memory.{name}"]
    place = tensors["memory.place"].tolist()
    buffer.pos, buffer.full, model._n_updates = place[0], bool(place[1]), place[2]
    if "memory.log_ent_coef" in tensors:
        with torch.no_grad():
            model.log_ent_coef.copy_(torch.from_numpy(tensors["memory.log_ent_coef"].copy()))
