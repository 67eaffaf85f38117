"""A policy of Stable-Baselines3 whose networks the kernel can evaluate too, and whose update costs less."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from ccenv.engine.compiled.mlp import MAX_LAYERS, MAX_WIDTH
from ccenv.envs.batches.actor_critic import ActorCritic, pack_actor_critic
from ccenv.errors import InputError
from ccenv.training.rollouts.gradients import GaussianLogProb, Networks

_NETWORKS: Any = Networks  # torch gives ``apply`` no types
_GAUSSIAN: Any = GaussianLogProb
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


class KernelPolicy(ActorCriticPolicy):
    """``MlpPolicy`` with the same parameters under the same names; arguments as there.

    Raises:
        InputError: for networks or noise that the kernel does not have: more than MAX_LAYERS layers, layers wider than MAX_WIDTH,
            another activation than tanh and ReLU, extractors of features, state-dependent noise.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if type(self.features_extractor) is not FlattenExtractor or self.use_sde or self.squash_output:
            raise InputError("rollouts in the kernel need plain observations and plain noise: no features extractor, no use_sde")
        if self.activation_fn not in _ACTIVATIONS:
            raise InputError(f"activation {self.activation_fn.__name__}: the kernel has {', '.join(_ACTIVATIONS.values())}")
        for layers in self._layers():
            widths = [layer.out_features for layer in layers]
            if len(layers) > MAX_LAYERS or max(widths) > MAX_WIDTH:
                raise InputError(f"layers {widths}: the kernel evaluates at most {MAX_LAYERS} layers of at most {MAX_WIDTH}")

    def _layers(self) -> tuple[list[nn.Linear], list[nn.Linear]]:
        """Return the linear layers of actor and critic."""
        extractor = self.mlp_extractor
        return _linear(extractor.policy_net, self.action_net), _linear(extractor.value_net, self.value_net)

    def packed(self, levels: int) -> ActorCritic:
        """Return the weights of this moment for the kernel.

        Args:
            levels: number of values of each discrete action; 0: continuous ones.

        Raises:
            ValueError: if they left the finite numbers, as torch's distributions do.
        """
        both = [[(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in layers] for layers in self._layers()]
        log_std = np.zeros(0) if levels else self.log_std.detach().numpy()
        numbers = [log_std, *(array for layers in both for layer in layers for array in layer)]
        if not all(np.isfinite(array).all() for array in numbers):
            raise ValueError("Expected parameters of the policy to be finite")
        return pack_actor_critic(both[0], both[1], _ACTIVATIONS[self.activation_fn], log_std, levels)

    def evaluate_actions(self, obs: Any, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return values (n, 1), log-probabilities (n,) and entropies (n,) as the library does, at a lower cost."""
        actor, critic = ([tensor for layer in layers for tensor in (layer.weight, layer.bias)] for layers in self._layers())
        seen = obs.float().flatten(1)
        outputs, values = _NETWORKS.apply(seen, self.activation_fn is nn.Tanh, len(actor), *actor, *critic)
        if isinstance(self.action_dist, DiagGaussianDistribution):
            log_prob = _GAUSSIAN.apply(outputs, self.log_std, actions.reshape(outputs.shape))
            entropy = (self.log_std + (0.5 + 0.5 * math.log(2 * math.pi))).sum().expand(len(values))
            return values, log_prob, entropy
        distribution: Any = self.action_dist
        distribution = distribution.proba_distribution(action_logits=outputs)
        return values, distribution.log_prob(actions), distribution.entropy()


def _linear(*parts: nn.Module) -> list[nn.Linear]:
    return [module for part in parts for module in part.modules() if isinstance(module, nn.Linear)]
