"""Certificates of policies: bounds of the action over a box of states, and PPO that trains a policy to keep them.

Interval bound propagation: a linear layer maps the centre of a box like a point and its radii by the absolute weights; tanh and
ReLU are monotone and map ends to ends. The bounds hold for every state of the box but need not be tight.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ccenv.agents.interface.interface import Interface
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.training.ppo.ppo import KernelPPO
from ccenv.training.recipes.settings import CertificateSettings, Property

_ROUNDING = 1e-12  # of the sum of a layer's absolute terms: above the rounding error of 256 terms in float64
REPORT_SEED = 2**20  # of the pieces for reports; none is trained on


def output_bounds(policy: PolicySender, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds, (n,) each, of a policy's output over boxes of states with the ends ``low`` and ``high``, (n, width) each.

    The output is that before it is clipped to [-1, 1]. Rounding is accounted for. Raises InputError for a policy with other than
    dense stages (such as a memory) or a head other than ``mean``.
    """
    if policy.head != "mean" or set(policy.stage_kinds) != {"dense"}:
        raise InputError(f"{policy.name!r}: bounds are for dense stages and the head 'mean'")
    squash = np.tanh if policy.activation == "tanh" else lambda x: np.maximum(x, 0.0)
    for place, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        if place:
            low, high = squash(low), squash(high)
        centre, radius = 0.5 * (low + high), 0.5 * (high - low)
        slack = _ROUNDING * (1.0 + (np.abs(centre) + radius) @ np.abs(weight) + np.abs(bias))
        middle, spread = centre @ weight + bias, radius @ np.abs(weight) + slack
        low, high = middle - spread, middle + spread
    return low[:, 0], high[:, 0]


def pieces(box: tuple[np.ndarray, np.ndarray], share: float, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pieces of a box ((width,) lowest and highest state) whose sides are a share, in (0, 1], of the box's.

    ``u``, (n, width) in [0, 1], is the position of each piece in the box.
    """
    low, high = box
    length = share * (high - low)
    first = low + u * (high - low - length)
    return first, np.minimum(first + length, high)


def certified_share(policy: PolicySender, what: Property, share: float, n: int = 4096, seed: int = REPORT_SEED) -> float:
    """Return the share of n random pieces of a property's box (see :func:`pieces`) in which the bounds prove it."""
    u = np.random.Generator(np.random.Philox(seed)).random((n, policy.interface.width))
    low, high = output_bounds(policy, *pieces(what.limits(policy.interface), share, u))
    proved = high <= what.at_most if what.at_most is not None else low >= what.at_least
    return float(np.mean(proved))


def torch_bounds(layers: list[nn.Linear], tanh: bool, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bounds of ``output_bounds`` as differentiable tensors, without slack for rounding."""
    for place, layer in enumerate(layers):
        if place:
            low, high = (low.tanh(), high.tanh()) if tanh else (low.relu(), high.relu())
        centre, radius = 0.5 * (low + high), 0.5 * (high - low)
        middle, spread = layer(centre), radius @ layer.weight.abs().t()
        low, high = middle - spread, middle + spread
    return low[:, 0], high[:, 0]


class CertifiedPPO(KernelPPO):
    """``KernelPPO`` with gradient steps on a certificate's loss after those of each iteration; ``sees`` is its interface."""

    def __init__(self, env: Any, *, certificate: CertificateSettings, sees: Interface, **settings: Any) -> None:
        self._certificate = certificate
        self._boxes = [tuple(torch.as_tensor(e, dtype=torch.float32) for e in p.limits(sees)) for p in certificate.properties]
        super().__init__(env, **settings)
        policy: Any = self.policy
        self._layers = [m for m in policy.mlp_extractor.policy_net if isinstance(m, nn.Linear)] + [policy.action_net]
        self._parameters = [parameter for layer in self._layers for parameter in (layer.weight, layer.bias)]
        self.certificate_optimizer = torch.optim.Adam(self._parameters, lr=certificate.learning_rate)

    def train(self) -> None:
        """Take the gradient steps of a rollout, then those of the certificate."""
        super().train()
        settings, loss = self._certificate, torch.zeros(())
        ppo_gradients = [parameter.grad for parameter in self._parameters]  # views that the steps of PPO write into
        for _ in range(settings.steps):
            loss = torch.stack([self._mean_violation(number) for number in range(len(settings.properties))]).mean()
            for parameter, gradient in zip(self._parameters, torch.autograd.grad(loss, self._parameters), strict=True):
                parameter.grad = gradient
            self.certificate_optimizer.step()
        for parameter, ppo_gradient in zip(self._parameters, ppo_gradients, strict=True):
            parameter.grad = ppo_gradient
        self.logger.record("train/certificate_loss", float(loss.detach()))

    def _mean_violation(self, number: int) -> torch.Tensor:
        """Return the mean distance by which the bounds of random pieces violate a property with its margin."""
        settings, (low, high) = self._certificate, self._boxes[number]
        property_ = settings.properties[number]
        length = settings.piece * (high - low)
        first = low + torch.rand(settings.pieces, len(low)) * (high - low - length)
        lowest, highest = torch_bounds(self._layers, self.policy.activation_fn is nn.Tanh, first, first + length)
        if property_.at_most is not None:
            return (highest - property_.at_most + settings.margin).relu().mean()
        least = property_.at_least or 0.0
        return (least + settings.margin - lowest).relu().mean()
