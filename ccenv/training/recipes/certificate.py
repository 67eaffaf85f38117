"""Certificates of policies: bounds of the action over a box of states, and PPO that is trained to keep them.

Interval bound propagation: through a linear layer the centre of a box goes as a point does and its radii go through the absolute
weights; tanh and ReLU rise, so they map ends to ends. The bounds hold for every state of the box; they need not be tight.
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

_ROUNDING = 1e-12  # of the sum of the absolute numbers of a layer: above what float64 loses in 256 of them
REPORT_SEED = 2**20  # of the pieces that results are reported on: none is trained on


def output_bounds(policy: PolicySender, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of a policy's output over boxes of states.

    Args:
        policy: of dense stages, with the head ``mean``.
        low: (n, width) lower ends of the boxes.
        high: (n, width) upper ends.

    Returns:
        tuple: (n,) lowest and (n,) highest output, before it is clipped to [-1, 1]. Rounding is accounted for.

    Raises:
        InputError: for a policy with a memory or another head.
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
    """Return parts of a box, each a share of it long in every direction.

    Args:
        box: (width,) lowest and highest state.
        share: in (0, 1].
        u: (n, width) in [0, 1], where each part lies.
    """
    low, high = box
    length = share * (high - low)
    first = low + u * (high - low - length)
    return first, np.minimum(first + length, high)


def certified_share(policy: PolicySender, what: Property, share: float, n: int = 4096, seed: int = REPORT_SEED) -> float:
    """Return the share of random pieces of a property's box in which the bounds prove it.

    Args:
        policy: see ``output_bounds``.
        what: the property.
        share: length of a piece, as a share of the box.
        n: pieces.
        seed: of the pieces.
    """
    u = np.random.Generator(np.random.Philox(seed)).random((n, policy.interface.width))
    low, high = output_bounds(policy, *pieces(what.limits(policy.interface), share, u))
    proved = high <= what.at_most if what.at_most is not None else low >= what.at_least
    return float(np.mean(proved))


def torch_bounds(layers: list[nn.Linear], tanh: bool, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bounds of ``output_bounds`` with a graph, without room for rounding."""
    for place, layer in enumerate(layers):
        if place:
            low, high = (low.tanh(), high.tanh()) if tanh else (low.relu(), high.relu())
        centre, radius = 0.5 * (low + high), 0.5 * (high - low)
        middle, spread = layer(centre), radius @ layer.weight.abs().t()
        low, high = middle - spread, middle + spread
    return low[:, 0], high[:, 0]


class CertifiedPPO(KernelPPO):
    """PPO with rollouts from the kernel, and steps down a certificate's loss after those of each iteration.

    Args:
        env: as of ``KernelPPO``.
        certificate: properties and steps.
        sees: interface of the policy.
        **settings: of ``KernelPPO``.
    """

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
        asked, loss = self._certificate, torch.zeros(())
        kept = [parameter.grad for parameter in self._parameters]  # views that the steps of PPO write into
        for _ in range(asked.steps):
            loss = torch.stack([self._miss(which) for which in range(len(asked.properties))]).mean()
            for parameter, gradient in zip(self._parameters, torch.autograd.grad(loss, self._parameters), strict=True):
                parameter.grad = gradient
            self.certificate_optimizer.step()
        for parameter, own in zip(self._parameters, kept, strict=True):
            parameter.grad = own
        self.logger.record("train/certificate_loss", float(loss.detach()))

    def _miss(self, which: int) -> torch.Tensor:
        """Return by how much the bounds of random pieces miss a property and its margin, on average."""
        asked, (low, high) = self._certificate, self._boxes[which]
        what = asked.properties[which]
        length = asked.piece * (high - low)
        first = low + torch.rand(asked.pieces, len(low)) * (high - low - length)
        lowest, highest = torch_bounds(self._layers, self.policy.activation_fn is nn.Tanh, first, first + length)
        if what.at_most is not None:
            return (highest - what.at_most + asked.margin).relu().mean()
        least = what.at_least or 0.0
        return (least + asked.margin - lowest).relu().mean()
