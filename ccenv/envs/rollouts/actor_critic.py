"""Actor and critic of one policy, evaluated in single precision inside a kernel: actions, log-probabilities and values.

Weights are in one padded, cache-aligned array. A layer computes many outputs at a time, whose sums stay in registers: plain loops
over outputs would load and store every sum once per four inputs, which takes longer than the products. Random numbers come from
:mod:`ccenv.base.random`: a draw depends only on its key, row, element and step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.engine.compiled.policies import ACTIVATIONS, MAX_LAYERS, MAX_WIDTH

WIDE, NARROW = 32, 16  # outputs of a block
_FLOAT, _BYTES = ir.FloatType(), 4
_FLAGS = ("contract",)


def _block(lanes: int) -> Callable[..., Any]:
    """Return the numba intrinsic that computes ``lanes`` outputs of a layer."""
    vector = ir.VectorType(_FLOAT, lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights_at, biases_at, inputs_at, outputs_at, n_in, stride = arguments

        def pointer(base: Any, index: Any, element_type: Any) -> Any:
            address = builder.add(base, builder.mul(index, ir.Constant(index.type, _BYTES)))
            return builder.inttoptr(address, element_type.as_pointer())

        def read(base: Any, index: Any, element_type: Any) -> Any:
            loaded = builder.load(pointer(base, index, element_type))
            loaded.align = _BYTES
            return loaded

        def product(j: Any) -> Any:
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), read(inputs_at, j, _FLOAT), ir.IntType(32)(0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            every = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)
            return builder.fmul(every, read(weights_at, builder.mul(j, stride), vector), flags=_FLAGS)

        zero, four = ir.Constant(n_in.type, 0), ir.Constant(n_in.type, 4)
        total = cgutils.alloca_once(builder, vector)
        builder.store(read(biases_at, zero, vector), total)
        fours = builder.sub(n_in, builder.srem(n_in, four))
        with cgutils.for_range_slice(builder, zero, fours, four, n_in.type) as (j, _):
            part = product(j)
            for more in (1, 2, 3):
                part = builder.fadd(part, product(builder.add(j, ir.Constant(n_in.type, more))), flags=_FLAGS)
            builder.store(builder.fadd(builder.load(total), part, flags=_FLAGS), total)
        with cgutils.for_range_slice(builder, fours, n_in, ir.Constant(n_in.type, 1), n_in.type) as (j, _):
            builder.store(builder.fadd(builder.load(total), product(j), flags=_FLAGS), total)
        stored = builder.store(builder.load(total), pointer(outputs_at, zero, vector))
        stored.align = _BYTES
        return context.get_dummy_value()

    @intrinsic
    def block(typing_context, weights_at, biases_at, inputs_at, outputs_at, n_in, stride):  # type: ignore[no-untyped-def]
        return types.none(*[types.int64] * 6), generate

    made: Callable[..., Any] = block
    return made


_wide, _narrow = _block(WIDE), _block(NARROW)


@kernel
def fill_layer(weights_at, biases_at, inputs_at, outputs_at, n_in, n_out, stride):  # type: ignore[no-untyped-def]
    """Compute x W + b in float32, the sum of four products at a time.

    Args:
        weights_at: address of W, (n_in, stride), where stride is a multiple of WIDE.
        biases_at: of b, (stride,).
        inputs_at: of x, (n_in,).
        outputs_at: of the outputs; all WIDE of the last block are written.
        n_in: inputs.
        n_out: required outputs.
        stride: numbers from one row of W to the next.
    """
    first = 0
    while first < n_out:
        skip = _BYTES * first
        if n_out - first > NARROW:
            _wide(weights_at + skip, biases_at + skip, inputs_at, outputs_at + skip, n_in, stride)
            first += WIDE
        else:
            _narrow(weights_at + skip, biases_at + skip, inputs_at, outputs_at + skip, n_in, stride)
            first += NARROW


ACTOR, CRITIC = range(2)
LAYERS, ACTIVATION, LEVELS, FIRST_WIDTH = range(4)
_LINE = 16  # numbers in a cache line
_LOG_SQRT_2_PI = np.float32(0.5 * math.log(2.0 * math.pi))
# tanh(x) = x P(x^2) / Q(x^2) on [-9, 9], beyond which tanh rounds to 1: least squares at Chebyshev points with weights that
# even out the relative error, which is 2.1e-8 before rounding.
_LIMIT, _ONE, _ZERO = np.float32(9.0), np.float32(1.0), np.float32(0.0)
_P0, _P1, _P2, _P3, _P4 = (
    np.float32(c) for c in (0.99999998, 0.13381065, 0.0034956329, 2.0609763e-05, 1.3355502e-08)
)  # fmt: skip
_Q1, _Q2, _Q3, _Q4 = (np.float32(c) for c in (0.4671438, 0.025877157, 0.00032857057, 7.776924e-07))


class ActorCritic(NamedTuple):
    """A policy as the kernels take it.

    Attributes:
        weights: (2, layers, longest, width) float32; of actor and critic, (n_in, n_out) of each layer in the corner, the rest
            0; no layer and no input is longer than longest, and both lengths are multiples of WIDE.
        biases: (2, layers, width) float32.
        shapes: (2, 4 + MAX_LAYERS) int64; number of layers, activation, number of values of each discrete action (0: continuous
            ones), then the width of each layer, input first.
        log_std: (n_actions,) float32; logarithms of the deviations; empty for discrete actions.
    """

    weights: np.ndarray
    biases: np.ndarray
    shapes: np.ndarray
    log_std: np.ndarray


Layers = Sequence[tuple[np.ndarray, np.ndarray]]


def pack_actor_critic(actor: Layers, critic: Layers, activation: str, log_std: np.ndarray, levels: int = 0) -> ActorCritic:
    """Pack the two networks of a policy. Raises InputError for networks that a kernel cannot evaluate.

    Args:
        actor: weights (n_in, n_out) and biases (n_out,) of each layer.
        critic: the same of the network with one output.
        activation: between the layers, ``"tanh"`` or ``"relu"``.
        log_std: (n_actions,) logarithms of the deviations; empty for discrete actions.
        levels: number of values of each discrete action; 0: continuous ones.
    """
    both = (actor, critic)
    widths = [[layers[0][0].shape[0], *(weight.shape[1] for weight, _ in layers)] for layers in both]
    most = max(max(row[1:]) for row in widths)
    if max(map(len, both)) > MAX_LAYERS or most > MAX_WIDTH or activation not in ACTIVATIONS:
        raise InputError(
            f"policy with layers {widths[ACTOR]} and {widths[CRITIC]} and {activation!r}; at most {MAX_LAYERS} layers of "
            f"{MAX_WIDTH} with one of {', '.join(ACTIVATIONS)}"
        )
    longest, width = (-(-n // WIDE) * WIDE for n in (max(max(row) for row in widths), most))
    weights = _allocate_aligned((2, max(map(len, both)), longest, width))
    biases = _allocate_aligned((*weights.shape[:2], width))
    shapes = np.zeros((2, FIRST_WIDTH + MAX_LAYERS + 1), np.int64)
    for side, layers in enumerate(both):
        shapes[side, LAYERS], shapes[side, ACTIVATION], shapes[side, LEVELS] = len(layers), ACTIVATIONS[activation], levels
        shapes[side, FIRST_WIDTH : FIRST_WIDTH + len(widths[side])] = widths[side]
        for place, (weight, bias) in enumerate(layers):
            weights[side, place, : weight.shape[0], : weight.shape[1]] = weight
            biases[side, place, : len(bias)] = bias
    return ActorCritic(weights, biases, shapes, np.ascontiguousarray(log_std, np.float32))


def _allocate_aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 zeros that start at a cache line."""
    room = np.zeros(int(np.prod(shape)) + _LINE, np.float32)
    first = -room.ctypes.data % (4 * _LINE) // 4
    return room[first : first + int(np.prod(shape))].reshape(shape)


@kernel(fastmath={"contract"}, inline="always")
def fast_tanh(x):  # type: ignore[no-untyped-def]
    """Return tanh of a float32 with an error below 5e-7, without a call, so that loops vectorise."""
    x = min(_LIMIT, max(-_LIMIT, x))
    z = x * x
    return x * (_P0 + z * (_P1 + z * (_P2 + z * (_P3 + z * _P4)))) / (_ONE + z * (_Q1 + z * (_Q2 + z * (_Q3 + z * _Q4))))


@kernel(fastmath={"contract"})
def evaluate(networks, network, scratch):  # type: ignore[no-untyped-def]
    """Evaluate ACTOR or CRITIC on the input in scratch[0]; return the row of scratch, (3, longest) float32, with the outputs."""
    n_layers = networks.shapes[network, LAYERS]
    depth, longest, width = networks.weights.shape[1:]
    weights_at, biases_at = np.int64(networks.weights.ctypes.data), np.int64(networks.biases.ctypes.data)
    scratch_at, row = np.int64(scratch.ctypes.data), 4 * scratch.shape[1]
    source = 0
    for layer in range(n_layers):
        n_in = networks.shapes[network, FIRST_WIDTH + layer]
        n_out = networks.shapes[network, FIRST_WIDTH + layer + 1]
        target = 2 if source == 1 else 1
        place = 4 * width * (network * depth + layer)
        fill_layer(
            weights_at + place * longest,
            biases_at + place,
            scratch_at + source * row,
            scratch_at + target * row,
            n_in,
            n_out,
            width,
        )
        if layer < n_layers - 1:
            if networks.shapes[network, ACTIVATION] == 0:
                for o in range(n_out):
                    scratch[target, o] = fast_tanh(scratch[target, o])
            else:
                for o in range(n_out):
                    scratch[target, o] = max(_ZERO, scratch[target, o])
        source = target
    return source


@kernel
def critic_value(networks, scratch):  # type: ignore[no-untyped-def]
    """Return the critic's value of the observation in scratch[0], float32."""
    return scratch[evaluate(networks, CRITIC, scratch), 0]


@kernel
def standard_normal(key, row, element, step):  # type: ignore[no-untyped-def]
    """Return a normally distributed number as a function of four keys (Box, Muller 1958, eq. 1)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(key, row, element, 2.0 * step)))
    return radius * math.cos(2.0 * math.pi * uniform(key, row, element, 2.0 * step + 1.0))


@kernel
def sample(networks, scratch, key, row, step, actions):  # type: ignore[no-untyped-def]
    """Sample the actions of a row for the observation in scratch[0]; return their log-probability, float32.

    Args:
        networks: ActorCritic.
        scratch: as for :func:`evaluate`.
        key: of the random numbers, a whole number below 2**53.
        row: number of the row.
        step: number of the step.
        actions: (n,) output: numbers, not clipped, or indices of values.
    """
    out = evaluate(networks, ACTOR, scratch)
    total = _ZERO
    levels = networks.shapes[ACTOR, LEVELS]
    if levels == 0:
        for i in range(len(actions)):
            noise = np.float32(standard_normal(key, row, i, step))
            log_std = networks.log_std[i]
            deviation = np.float32(math.exp(log_std))
            actions[i] = scratch[out, i] + deviation * noise
            off = (actions[i] - scratch[out, i]) / deviation
            total -= np.float32(0.5) * off * off + log_std + _LOG_SQRT_2_PI
        return total
    for i in range(len(actions)):
        first = i * levels
        highest = scratch[out, first]
        for level in range(1, levels):
            highest = max(highest, scratch[out, first + level])
        mass = 0.0
        for level in range(levels):
            mass += math.exp(scratch[out, first + level] - highest)
        left = uniform(key, row, i, step) * mass
        chosen = 0
        for level in range(levels - 1):
            left -= math.exp(scratch[out, first + level] - highest)
            if left < 0.0:
                break
            chosen = level + 1
        actions[i] = chosen
        total += np.float32(scratch[out, first + chosen] - highest - math.log(mass))
    return total
