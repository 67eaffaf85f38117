"""A small policy compiled into an exported shield: its C text, and the same computation in Python's integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from ccenv.agents.interface.interface import SENDER_V0
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError
from ccenv.engine.packet.beliefs import STEPS_PER_RTT

POINT_BITS = 16  # after the point: of signals, weights and outputs
WIDEST = 32  # layer
MOST_WEIGHTS = 4096
LARGEST_WEIGHT = 1 << 12
LARGEST = 1 << 28  # output of a layer, with POINT_BITS: sums of a layer stay below 2**62
_ONE = 1 << POINT_BITS
_TANH = tuple(round(_ONE * math.tanh(i / 128)) for i in range(1025))


class PolicyDoesNotFit(CcenvError):
    """A policy that cannot be compiled into an export."""


@dataclass(frozen=True)
class WholePolicy:
    """A policy in fixed-point integers."""

    # per layer (n_in, n_out) weights, and (n_out,) biases, int64 with POINT_BITS after the point
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    relu: bool  # between the layers; otherwise tanh

    @staticmethod
    def of(policy: PolicySender) -> WholePolicy:
        """Round a policy. Raises PolicyDoesNotFit if it has cells, another head or interface, or is too large."""
        widths = [*(len(weights) for weights in policy.weights), policy.weights[-1].shape[1]]
        size = sum(array.size for array in (*policy.weights, *policy.biases))
        largest = max(float(np.abs(array).max()) for array in (*policy.weights, *policy.biases))
        for wrong, why in (
            (set(policy.stage_kinds) != {"dense"}, "it has recurrent cells; dense layers fit"),
            (policy.head != "mean", f"its head is {policy.head}; mean fits"),
            (policy.interface != SENDER_V0, "it does not see the belief signals"),
            (max(widths) > WIDEST, f"a layer has {max(widths)} outputs; at most {WIDEST} fit"),
            (size > MOST_WEIGHTS, f"it has {size} weights; at most {MOST_WEIGHTS} fit"),
            (not largest < LARGEST_WEIGHT, f"a weight is {largest:g}; below {LARGEST_WEIGHT} fit"),
        ):
            if wrong:
                raise PolicyDoesNotFit(f"policy {policy.name} cannot be compiled in: {why}; a process can choose: chooser=user")
        layers = tuple(
            (np.rint(weights * _ONE).astype(np.int64), np.rint(bias * _ONE).astype(np.int64))
            for weights, bias in zip(policy.weights, policy.biases, strict=True)
        )
        return WholePolicy(layers, policy.activation == "relu")

    def text(self) -> str:
        flat = [int(n) for weights, bias in self.layers for n in (*bias, *weights.ravel())]
        lines = [
            f"#define WIDEST {WIDEST}",
            f"#define LARGEST {LARGEST}LL",
            f"#define N_WEIGHTS {len(flat)}",
            *(["#define RELU"] if self.relu else []),
            "/* Per layer the biases, then the weights of each input. */",
            _array("WEIGHTS", flat),
            *([] if self.relu else ["/* tanh from 0 to 8. */", _array("TANH", _TANH)]),
        ]
        calls = []
        for number, (weights, _) in enumerate(self.layers):
            n_in, n_out = weights.shape
            is_last = int(number == len(self.layers) - 1)
            calls += [
                f"\tf->n_in = {n_in};\n\tf->n_out = {n_out};\n\tf->is_last = {is_last};",
                f"\tbpf_loop({n_out}, neuron, &f, 0);\n\tf->layer++;\n\tf->weights_at += {(n_in + 1) * n_out};",
            ]
        template = resources.files(__package__).joinpath("policy.bpf.c.in").read_text(encoding="utf-8")
        return template.replace("@WEIGHTS@", "\n".join(lines)).replace("@LAYERS@", "\n".join(calls))

    def position(self, signals: list[int]) -> int:
        """Return the position in the interval, 0 to 1 << POINT_BITS, for signals with POINT_BITS after the point."""
        x = signals
        for number, (weights, bias) in enumerate(self.layers):
            sums = [
                (int(bias[o]) << POINT_BITS) + sum(int(weights[j, o]) * x[j] for j in range(len(x))) for o in range(len(bias))
            ]
            x = [_clip(total >> POINT_BITS, -LARGEST, LARGEST) for total in sums]
            if number < len(self.layers) - 1:
                x = [_clip(value, 0, LARGEST) if self.relu else _tanh(value) for value in x]
        return (_clip(x[0], -_ONE, _ONE) + _ONE) >> 1


def belief_signals(state: Any, fraction_bits: int, unbounded: int, sent: int, lost: int, in_flight: int) -> list[int]:
    """Return the ten belief signals with POINT_BITS after the point.

    Args:
        state: with C_L, C_U, C_L_lambda, q_U, qdel_L_steps, qdel_U, rate, rtt_us and utilised, as in the export.
        fraction_bits: of the export.
        unbounded: value of C_U without an upper bound.
        sent: packets since the last decision.
        lost: packets found lost since then.
        in_flight: packets.
    """
    bdp = STEPS_PER_RTT * state.C_L
    return [
        8 * _ONE if unbounded == state.C_U else max(0, _log2_ratio(state.C_U, state.C_L)),
        _share(state.qdel_L_steps, STEPS_PER_RTT, 16),
        _share(state.qdel_U, STEPS_PER_RTT * state.rtt_us, 16),
        _share(lost, max(sent, 1), 1),
        _log2_ratio(state.rate, state.C_L),
        _clip(_log2(bdp + (4 << fraction_bits)) - _log2(bdp), 0, 4 * _ONE),
        _log2_ratio(state.C_L_lambda, state.C_L),
        _share(state.q_U, bdp, 16),
        int(state.utilised) << POINT_BITS,
        _share(in_flight << fraction_bits, bdp, 32),
    ]


def _array(name: str, values: Any) -> str:
    rows = [", ".join(str(v) for v in values[first : first + 12]) for first in range(0, len(values), 12)]
    body = ",\n\t".join(rows)
    return f"static const s32 {name}[{len(values)}] = {{\n\t{body},\n}};"


def _clip(value: int, low: int, high: int) -> int:
    return min(high, max(low, value))


def _log2(value: int) -> int:
    exponent = value.bit_length() - 1
    mantissa = value >> (exponent - 31) if exponent > 31 else value << (31 - exponent)
    digits = exponent << POINT_BITS
    for i in range(POINT_BITS - 1, -1, -1):
        mantissa = mantissa * mantissa >> 31
        if mantissa >> 32:
            mantissa >>= 1
            digits += 1 << i
    return digits


def _log2_ratio(a: int, b: int) -> int:
    return _clip(_log2(a) - _log2(b), -8 * _ONE, 8 * _ONE) if a else -8 * _ONE


def _share(a: int, b: int, most: int) -> int:
    return min((min(a, 1 << 47) << POINT_BITS) // b, most << POINT_BITS)


def _tanh(x: int) -> int:
    size = abs(x)
    if size >= 8 * _ONE:
        y = _TANH[1024]
    else:
        y = _TANH[size >> 9]
        y += (_TANH[(size >> 9) + 1] - y) * (size & 511) >> 9
    return -y if x < 0 else y
