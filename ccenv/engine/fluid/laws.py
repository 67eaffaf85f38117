"""Scalar laws that all parts of the fluid model share: the sigmoid, the smooth ReLU, and loss at a link."""

from __future__ import annotations

import math

from ccenv.base.kernels.decorator import kernel

# Beyond this argument exp(-z) is below half an ulp of 1, so that 1/(1 + exp(-z)) is 1 to the last digit.
_SATURATED = 37.5


@kernel(forceinline=True)
def sigmoid(z: float) -> float:
    """Return 1/(1 + exp(-z)).

    Reference: [BBR-fluid] eq. 5 with z = K v.
    Deviation: 0 below z = -37.5, where the printed form is under 6e-17.
    """
    if z > _SATURATED:
        return 1.0
    if z < -_SATURATED:
        return 0.0
    return 1.0 / (1.0 + math.exp(-z))


@kernel(forceinline=True)
def smooth_relu(v: float, sharpness: float) -> float:
    """Return v sigmoid(sharpness v), a differentiable max(0, v).

    Reference: [BBR-fluid] eq. 10.
    """
    return v * sigmoid(sharpness * v)


@kernel(forceinline=True)
def drop_tail_loss(arrival: float, capacity: float, queue: float, buffer: float, exponent: float, sharpness: float) -> float:
    """Return the loss probability of a drop-tail queue, before overflow.

    Args:
        arrival: arrival rate y, bytes/s.
        capacity: C, bytes/s.
        queue: q, bytes.
        buffer: B, bytes.
        exponent: L of the paper.
        sharpness: K of the sigmoid, in s/byte.

    Reference: [BBR-fluid] eq. 4.
    Deviation: zero unless y > C. As printed the factor 1 - C/y is negative below C, a probability below 0.
    """
    if arrival <= capacity:
        return 0.0
    return sigmoid(sharpness * (arrival - capacity)) * (1.0 - capacity / arrival) * (queue / buffer) ** exponent


@kernel(forceinline=True)
def red_loss(queue: float, q0: float, q1: float, p1: float) -> float:
    """Return the RED drop probability: 0 up to q0, linear to p1 at q1, 1 above.

    Reference: [BBR-fluid] section 2 (text before eq. 6); eq. 6 is q0 = 0, q1 = B, p1 = 1.
    """
    if queue <= q0:
        return 0.0
    if queue > q1:
        return 1.0
    return p1 * (queue - q0) / (q1 - q0)
