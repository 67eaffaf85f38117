"""PPO's update without an autograd graph: the losses of ``stable_baselines3.PPO.train`` and their gradients, written out.

Matrix products are torch's; everything between them is compiled, because torch's tanh costs four times as much as the matrix
products of a layer of 64, and the nodes of a graph cost more than they compute. A test compares parameters and logs with those of
the library over several updates.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim.adam import Adam, adam

from ccenv.base.kernels.decorator import kernel
from ccenv.envs.rollouts.actor_critic import fast_tanh

_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_SMALLEST = 1e-8  # added to the deviation of advantages, as in Stable-Baselines3
POLICY_LOSS, VALUE_LOSS, ENTROPY_LOSS, KL, CLIPPED = range(5)


class Losses(NamedTuple):
    """Parameters of the loss of a minibatch."""

    clip: float  # range of the probability ratio
    clip_value: float  # range of the change of a value; infinite: none
    entropy_weight: float
    value_weight: float
    normalise: bool  # scale the advantages of a minibatch to mean 0 and deviation 1
    levels: int  # number of values of each discrete action; 0: continuous ones


class Samples(NamedTuple):
    """Samples of a rollout, float32: observations (n, width), actions (n, k), the others (n,)."""

    observations: np.ndarray
    actions: np.ndarray
    values: np.ndarray
    log_probs: np.ndarray
    advantages: np.ndarray
    returns: np.ndarray


@kernel(fastmath={"contract"})
def _tanh_forward(x):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] = fast_tanh(x[i])


@kernel(fastmath={"contract"})
def _tanh_backward(gradient, tanh):  # type: ignore[no-untyped-def]
    for i in range(len(gradient)):
        gradient[i] *= _ONE - tanh[i] * tanh[i]


@kernel
def _relu_backward(gradient, relu):  # type: ignore[no-untyped-def]
    for i in range(len(gradient)):
        gradient[i] = gradient[i] if relu[i] > _ZERO else _ZERO


@kernel
def _scale_advantages(advantages, normalise, out):  # type: ignore[no-untyped-def]
    n = len(advantages)
    mean, scale = 0.0, 1.0
    if normalise and n > 1:
        for i in range(n):
            mean += advantages[i]
        mean /= n
        squares = 0.0
        for i in range(n):
            squares += (advantages[i] - mean) ** 2
        scale = 1.0 / (math.sqrt(squares / (n - 1)) + _SMALLEST)
    for i in range(n):
        out[i] = (advantages[i] - mean) * scale


@kernel
def gaussian_log_probs(actions, means, log_std, out):  # type: ignore[no-untyped-def]
    """Write the logarithms of the densities (n,) of actions (n, k)."""
    n, k = means.shape
    constant = 0.0
    for j in range(k):
        constant += log_std[j] + _LOG_SQRT_2_PI
    for i in range(n):
        out[i] = -constant
    for j in range(k):
        inverse = np.float32(math.exp(-log_std[j]))
        for i in range(n):
            off = (actions[i, j] - means[i, j]) * inverse
            out[i] -= np.float32(0.5) * off * off


@kernel
def gaussian_gradients(actions, means, log_std, of_log_prob, of_log_std):  # type: ignore[no-untyped-def]
    """Replace the means by their gradients, and write those of log_std into of_log_std, (k,)."""
    n, k = means.shape
    for j in range(k):
        inverse = np.float32(math.exp(-log_std[j]))
        total = 0.0
        for i in range(n):
            off = (actions[i, j] - means[i, j]) * inverse
            total += of_log_prob[i] * (off * off - np.float32(1.0))
            means[i, j] = of_log_prob[i] * off * inverse
        of_log_std[j] = total


@kernel
def categorical_log_probs(actions, logits, levels, out):  # type: ignore[no-untyped-def]
    """Write the log-probabilities (n,) of actions (n, k); return the sum of the entropies.

    Logits (n, k * levels) become the log-probabilities of each choice.
    """
    n, k = actions.shape
    entropy = 0.0
    for i in range(n):
        total = 0.0
        for j in range(k):
            first = j * levels
            highest = logits[i, first]
            for level in range(1, levels):
                highest = max(highest, logits[i, first + level])
            mass = 0.0
            for level in range(levels):
                mass += math.exp(logits[i, first + level] - highest)
            shift = highest + math.log(mass)
            for level in range(levels):
                logits[i, first + level] -= shift
                entropy -= math.exp(logits[i, first + level]) * logits[i, first + level]
            total += logits[i, first + int(actions[i, j])]
        out[i] = total
    return entropy


@kernel
def categorical_gradients(actions, logs, levels, of_log_prob, of_entropy):  # type: ignore[no-untyped-def]
    """Replace the log-probabilities of choices (n, k * levels) by the gradients of their logits."""
    n, k = actions.shape
    for i in range(n):
        for j in range(k):
            first = j * levels
            entropy = 0.0
            for level in range(levels):
                entropy -= math.exp(logs[i, first + level]) * logs[i, first + level]
            for level in range(levels):
                share = math.exp(logs[i, first + level])
                chosen = 1.0 if level == int(actions[i, j]) else 0.0
                slope = -share * (logs[i, first + level] + entropy)
                logs[i, first + level] = of_log_prob[i] * (chosen - share) + of_entropy * slope


@kernel
def weigh_losses(losses, samples, first, last, advantages, log_probs, values, of_log_prob, measured):  # type: ignore[no-untyped-def]
    """Compute the losses of the minibatch ``first`` .. ``last`` - 1 and their gradients.

    ``advantages`` (n,) are scaled; ``log_probs`` (n,) and ``values`` (n, 1) are those of the current networks. Written are: the
    gradient by the values into ``values``, the gradient by the log-probabilities into ``of_log_prob`` (n,), and the losses but
    ENTROPY_LOSS into ``measured`` (5,).
    """
    n = last - first
    low, high = np.float32(1.0 - losses.clip), np.float32(1.0 + losses.clip)
    gain, error, divergence, clipped = 0.0, 0.0, 0.0, 0
    for i in range(n):
        at = first + i
        log_ratio = log_probs[i] - samples.log_probs[at]
        ratio = np.float32(math.exp(log_ratio))
        plain = advantages[i] * ratio
        bounded = advantages[i] * min(high, max(low, ratio))
        gain += min(plain, bounded)
        of_log_prob[i] = -plain / n if plain <= bounded else 0.0
        clipped += 1 if abs(ratio - np.float32(1.0)) > losses.clip else 0
        divergence += (ratio - np.float32(1.0)) - log_ratio
        change = values[i, 0] - samples.values[at]
        inside = abs(change) <= losses.clip_value
        off = values[i, 0] - samples.returns[at]
        if not inside:
            off = samples.values[at] + math.copysign(losses.clip_value, change) - samples.returns[at]
        error += off * off
        values[i, 0] = 2.0 * losses.value_weight * off / n if inside else 0.0
    measured[POLICY_LOSS] = -gain / n
    measured[VALUE_LOSS] = error / n
    measured[KL] = divergence / n
    measured[CLIPPED] = clipped / n


class _Workspace(NamedTuple):
    """Activations and gradients (of all layers but the last) of n samples: views, (n, width), (width, n) or (n * width,)."""

    outputs: list[torch.Tensor]
    turned_outputs: list[torch.Tensor]
    flat_outputs: list[np.ndarray]
    backs: list[torch.Tensor]
    flat_backs: list[np.ndarray]


def _flat(tensors: list[torch.Tensor]) -> list[np.ndarray]:
    return [tensor.numpy().reshape(-1) for tensor in tensors]


class Network:
    """Actor or critic: the parameters of its layers, and the workspace between them."""

    def __init__(self, layers: list[nn.Linear], tanh: bool, n: int) -> None:
        self.layers, self._tanh = layers, tanh
        self._weights = [layer.weight.detach() for layer in layers]
        self._turned_weights = [weight.t() for weight in self._weights]
        self._biases = [layer.bias.detach() for layer in layers]
        self._outputs = [torch.empty(n, layer.out_features) for layer in layers]
        self._backs = [torch.empty(n, layer.out_features) for layer in layers[:-1]]
        self._turned = [torch.empty(layer.in_features, layer.out_features) for layer in layers]
        self._of_n: dict[int, _Workspace] = {}

    def _workspace(self, n: int) -> _Workspace:
        """Return the workspace of the first n samples; views are cached, because most minibatches have the same size."""
        if n not in self._of_n:
            outputs, backs = [out[:n] for out in self._outputs], [back[:n] for back in self._backs]
            self._of_n[n] = _Workspace(outputs, [out.t() for out in outputs], _flat(outputs), backs, _flat(backs))
        return self._of_n[n]

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the outputs for some samples; they are valid until the next call."""
        room, x = self._workspace(len(seen)), seen
        for depth, (weight, bias, out) in enumerate(zip(self._turned_weights, self._biases, room.outputs, strict=True)):
            torch.addmm(bias, x, weight, out=out)
            if depth < len(self.layers) - 1:
                _tanh_forward(room.flat_outputs[depth]) if self._tanh else out.relu_()
            x = out
        return x

    def backward(self, seen: torch.Tensor, back: torch.Tensor) -> None:
        """Fill in the parameters' gradients from that of the outputs."""
        room = self._workspace(len(seen))
        for depth in range(len(self.layers) - 1, -1, -1):
            layer, turned = self.layers[depth], self._turned[depth]
            torch.mm(room.turned_outputs[depth - 1] if depth else seen.t(), back, out=turned)  # back.t() @ x is slow for narrow x
            layer.weight.grad.copy_(turned.t())  # type: ignore[union-attr]
            torch.sum(back, 0, out=layer.bias.grad)
            if depth:
                before = room.backs[depth - 1]
                torch.mm(back, self._weights[depth], out=before)
                backward = _tanh_backward if self._tanh else _relu_backward
                backward(room.flat_backs[depth - 1], room.flat_outputs[depth - 1])
                back = before


class Update:
    """The gradient steps of a policy with minibatches of at most ``batch_size``; ``gradients`` holds those of all parameters."""

    def __init__(self, policy: Any, networks: tuple[list[nn.Linear], list[nn.Linear]], tanh: bool, n: int) -> None:
        self._parameters = list(policy.parameters())
        self.gradients = torch.zeros(sum(parameter.numel() for parameter in self._parameters))
        offset = 0
        for parameter in self._parameters:
            parameter.grad = self.gradients[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        self._of_parameters = [parameter.grad for parameter in self._parameters]
        self._actor, self._critic = (Network(layers, tanh, n) for layers in networks)
        self.batch_size = n
        log_std = getattr(policy, "log_std", None)
        none = np.zeros(0, np.float32)
        self._log_std: np.ndarray = none if log_std is None else log_std.detach().numpy()
        self._of_log_std: np.ndarray = none if log_std is None else log_std.grad.numpy()
        self._advantages, self._log_probs, self._of_log_prob = (np.empty(n, np.float32) for _ in range(3))

    @torch.no_grad()
    def measure(self, losses: Losses, samples: Samples, first: int, last: int) -> np.ndarray:
        """Fill in the gradients of a minibatch, samples first .. last - 1; return its losses, (5,)."""
        n = last - first
        seen = torch.from_numpy(samples.observations[first:last])
        actions, measured = samples.actions[first:last], np.zeros(5)
        log_probs, of_log_prob, advantages = self._log_probs[:n], self._of_log_prob[:n], self._advantages[:n]
        outputs = self._actor.forward(seen)
        values = self._critic.forward(seen)
        of_outputs = outputs.numpy()
        _scale_advantages(samples.advantages[first:last], losses.normalise, advantages)
        if losses.levels:
            measured[ENTROPY_LOSS] = -categorical_log_probs(actions, of_outputs, losses.levels, log_probs) / n
        else:
            gaussian_log_probs(actions, of_outputs, self._log_std, log_probs)
            measured[ENTROPY_LOSS] = -float(np.sum(self._log_std + np.float32(0.5 + _LOG_SQRT_2_PI)))
        weigh_losses(losses, samples, first, last, advantages, log_probs, values.numpy(), of_log_prob, measured)
        if losses.levels:
            categorical_gradients(actions, of_outputs, losses.levels, of_log_prob, -losses.entropy_weight / n)
        else:
            gaussian_gradients(actions, of_outputs, self._log_std, of_log_prob, self._of_log_std)
            self._of_log_std -= losses.entropy_weight
        self._actor.backward(seen, outputs)
        self._critic.backward(seen, values)
        return measured

    @torch.no_grad()
    def clip(self, most: float) -> float:
        """Scale the gradients down to a norm of at most ``most``; return the norm before."""
        norm = float(torch.linalg.vector_norm(self.gradients))
        self.gradients.mul_(min(1.0, most / (norm + 1e-6)))  # as torch.nn.utils.clip_grad_norm_
        return norm

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take a step of the optimiser: fused Adam with one group by torch's functional API, in two thirds of the time."""
        group = optimizer.param_groups[0]
        parameters = self._parameters
        if type(optimizer) is not Adam or not group["fused"] or group["amsgrad"] or len(optimizer.state) < len(parameters):
            optimizer.step()
            return
        states = [optimizer.state[parameter] for parameter in parameters]
        beta1, beta2 = group["betas"]
        adam(
            parameters, self._of_parameters, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states], [],
            [s["step"] for s in states], fused=True, amsgrad=False, beta1=beta1, beta2=beta2, lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"],
        )  # fmt: skip
