"""A policy of Stable-Baselines3 whose networks the kernel can evaluate too."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from ccenv.engine.compiled.mlp import MAX_LAYERS, MAX_WIDTH
from ccenv.envs.rollouts.actor_critic import ActorCritic, pack_actor_critic
from ccenv.base.errors import InputError
from ccenv.training.ppo.update import Update

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


class KernelPolicy(ActorCriticPolicy):
    """``MlpPolicy`` with the same parameters under the same names; arguments as there.

    Raises:
        InputError: for networks or noise that the kernel does not have: more than MAX_LAYERS layers, layers wider than MAX_WIDTH,
            another activation than tanh and ReLU, extractors of features, state-dependent noise.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._update: Update | None = None
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

    def update(self, batch_size: int) -> Update:
        """Return what takes gradient steps with minibatches of at most so many samples."""
        if self._update is None or self._update.batch_size < batch_size:
            self._update = Update(self, self._layers(), self.activation_fn is nn.Tanh, batch_size)
        return self._update


def _linear(*parts: nn.Module) -> list[nn.Linear]:
    return [module for part in parts for module in part.modules() if isinstance(module, nn.Linear)]
