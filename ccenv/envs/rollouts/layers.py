"""A layer of a network for one input: many outputs at a time, whose sums stay in the processor's registers. Compiled.

Plain loops over outputs write and read every sum once for each four inputs, which takes longer than the products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ccenv.base.kernels.decorator import kernel

WIDE, NARROW = 32, 16  # outputs of a block
_FLOAT, _BYTES = ir.FloatType(), 4
_FLAGS = ("contract",)


def _block(lanes: int) -> Callable[..., Any]:
    """Return the function of numba that computes so many outputs of a layer."""
    vector = ir.VectorType(_FLOAT, lanes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights_at, biases_at, inputs_at, outputs_at, n_in, stride = arguments

        def at(base: Any, index: Any, kind: Any) -> Any:
            address = builder.add(base, builder.mul(index, ir.Constant(index.type, _BYTES)))
            return builder.inttoptr(address, kind.as_pointer())

        def read(base: Any, index: Any, kind: Any) -> Any:
            loaded = builder.load(at(base, index, kind))
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
        stored = builder.store(builder.load(total), at(outputs_at, zero, vector))
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
        outputs_at: where the outputs go; all WIDE of the last block are written.
        n_in: inputs.
        n_out: outputs that are needed.
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
