"""Calls of compiled CCA and adversary functions through a table of addresses.

The engine kernel is compiled once; a new CCA only compiles its own functions. A function over records
(``ccenv.agents.callbacks``) is compiled for ``void(Record, ...)`` with numba's own calling convention,
``int32 f(void** ret, void** excinfo, record* ...)``, and called by address from the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ccenv.engine.compiled.python_calls import callback_address
from ccenv.base.kernels.decorator import kernel
from ccenv.agents.python_sender import Bridge

_COMPILED: dict[tuple[Any, ...], tuple[int, Any]] = {}


def address_of(function: Callable[..., None], *records: np.dtype) -> int:
    """Compile a function over records and return the address of its machine code.

    Args:
        function: a module-level Python function (or one already compiled) whose arguments are records, or a method of a Bridge,
            which stays plain Python.
        records: the record type of each argument.

    Returns:
        The address, valid for the life of the process.
    """
    if isinstance(getattr(function, "__self__", None), Bridge):
        return callback_address(function, *records)
    key = (function, *[str(r.descr) for r in records])
    if key not in _COMPILED:
        python_function = getattr(function, "py_func", function)
        compiled = kernel(python_function)
        _COMPILED[key] = (compiled.address(*[numba.from_dtype(record) for record in records]), compiled)
    return _COMPILED[key][0]


def _emit_call(context: Any, builder: Any, arguments: Any) -> Any:
    address, *pointers = arguments
    pointer = ir.IntType(8).as_pointer()
    # In the function's entry block: a slot taken inside the step loop would grow the stack at every call.
    slots = [cgutils.alloca_once(builder, pointer) for _ in range(2)]
    for slot in slots:
        builder.store(ir.Constant(pointer, None), slot)
    signature = ir.FunctionType(ir.IntType(32), [pointer.as_pointer(), pointer.as_pointer()] + [pointer] * len(pointers))
    function = builder.inttoptr(address, signature.as_pointer())
    return builder.call(function, slots + [builder.inttoptr(p, pointer) for p in pointers])


@intrinsic
def call_1(typing_context, address, record_0):  # noqa: D103
    def generate(context, builder, signature, arguments):
        return _emit_call(context, builder, arguments)

    return types.int32(types.int64, types.int64), generate


@intrinsic
def call_2(typing_context, address, record_0, record_1):  # noqa: D103
    def generate(context, builder, signature, arguments):
        return _emit_call(context, builder, arguments)

    return types.int32(types.int64, types.int64, types.int64), generate


@intrinsic
def call_3(typing_context, address, record_0, record_1, record_2):  # noqa: D103
    def generate(context, builder, signature, arguments):
        return _emit_call(context, builder, arguments)

    return types.int32(types.int64, types.int64, types.int64, types.int64), generate


def call_far(signature: Any) -> Any:
    """Return an intrinsic that calls a kernel of this signature by its address, ``(address, (argument, ...))``.

    For what few batches need: a kernel that is called so is compiled on its own, and when a batch first needs it.
    """
    kinds, result = signature.args, signature.return_type

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        address, packed = arguments
        convention = context.call_conv
        function = convention.get_function_type(result, kinds)
        slots = [cgutils.alloca_once(builder, pointer.pointee) for pointer in function.args[:2]]
        for slot in slots:
            builder.store(cgutils.get_null_value(slot.type.pointee), slot)
        values = cgutils.unpack_tuple(builder, packed, len(kinds))
        flat = convention._get_arg_packer(kinds).as_arguments(builder, values)
        builder.call(builder.inttoptr(address, function.as_pointer()), [*slots, *flat])
        return context.get_returned_value(builder, result, builder.load(slots[0]))

    @intrinsic
    def call(typing_context, address, arguments):
        return result(types.int64, types.Tuple(kinds)), generate

    return call


def _emit_reduction(name: str, builder: Any, arguments: Any) -> Any:
    double = ir.DoubleType()
    function = builder.module.declare_intrinsic(name, [double], ir.FunctionType(double, [double, double]))
    return builder.call(function, arguments, fastmath=("nnan", "nsz"))


@intrinsic
def fast_max(typing_context, a, b):
    """Maximum that the vectoriser understands (``max()`` and ``a if a > b else b`` it does not)."""

    def generate(context, builder, signature, arguments):
        return _emit_reduction("llvm.maxnum", builder, arguments)

    return types.float64(types.float64, types.float64), generate


@intrinsic
def fast_min(typing_context, a, b):
    """Minimum that the vectoriser understands."""

    def generate(context, builder, signature, arguments):
        return _emit_reduction("llvm.minnum", builder, arguments)

    return types.float64(types.float64, types.float64), generate


def _emit_element(builder: Any, address: Any, index: Any) -> Any:
    double = ir.DoubleType()
    return builder.gep(builder.inttoptr(address, double.as_pointer()), [index])


@intrinsic
def load(typing_context, address, index):
    """Return element ``index`` of a float64 array that starts at ``address``.

    Rings are passed as addresses, not as arrays: numba counts references to array arguments with atomic operations at every
    call, which took a third of the engine's time.
    """

    def generate(context, builder, signature, arguments):
        return builder.load(_emit_element(builder, *arguments))

    return types.float64(types.int64, types.int64), generate


@intrinsic
def unowned(typing_context, arrays):
    """Return a named tuple of arrays over the same memory that own nothing; their owners must outlive them.

    Numba counts references to an array each time that it is passed on, with atomic operations. Of arrays without an owner it
    counts none, so the parts of a step may take them as arguments.
    """

    def generate(context, builder, signature, arguments):
        null = cgutils.get_null_value(cgutils.voidptr_t)
        views = []
        for index, array_type in enumerate(arrays):
            view = context.make_array(array_type)(context, builder, value=builder.extract_value(arguments[0], index))
            view.meminfo = view.parent = null
            views.append(view._getvalue())
        return context.make_tuple(builder, signature.return_type, views)

    return arrays(arrays), generate


@intrinsic
def pointer_at(typing_context, address):
    """Return an address as what ``numba.carray`` takes."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


@intrinsic
def store(typing_context, address, index, value):
    """Set element ``index`` of a float64 array that starts at ``address``."""

    def generate(context, builder, signature, arguments):
        builder.store(arguments[2], _emit_element(builder, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate
