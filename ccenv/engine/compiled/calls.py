"""Calls of CCAs and adversaries by address, and access to raw memory, for compiled code.

The engine kernel is compiled once; a new CCA only compiles its own functions. A function over records
(``ccenv.agents.callbacks``) is compiled for ``void(Record, ...)`` with numba's own calling convention,
``int32 f(void** ret, void** excinfo, record* ...)``, and called by address from the kernel. Methods of a Bridge, which are plain
Python, get addresses of the same kind.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ccenv.agents.callbacks import STATE_HEADER
from ccenv.agents.interface.user import ExtraSignals
from ccenv.agents.python_sender import Bridge, find_bridge
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import EngineError
from ccenv.base.kernels.decorator import kernel

_INSTANCE = len(STATE_HEADER)  # place of STATE_FIELD in a state, also in one with other names


def callback_address(function: Callable[..., None], *records: np.dtype) -> int:
    """Return an address that calls a method of a Bridge, with numba's own calling convention (``calls.address_of``).

    The bridge keeps the callback, so the address is valid as long as the sender is.
    """
    bridge: Bridge = function.__self__  # type: ignore[attr-defined]
    kept: dict[str, Any] = bridge.__dict__.setdefault("_callbacks", {})
    if function.__name__ not in kept:

        def views_of(record: np.dtype) -> Callable[[int], Any]:
            @cache
            def view(address: int) -> Any:
                buffer = memoryview((ctypes.c_char * record.itemsize).from_address(address))
                return np.frombuffer(buffer, record).view(np.recarray)[0]

            return view

        views = [views_of(record) for record in records]

        def call(_value: int, _error: int, *addresses: int) -> int:
            function(*[view(address) for view, address in zip(views, addresses, strict=True)])
            return 0

        kept[function.__name__] = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (2 + len(records)))(call)
    address = ctypes.cast(kept[function.__name__], ctypes.c_void_p).value
    return int(address or 0)


def extra_address(extra: ExtraSignals) -> int:
    """Return an address that computes what functions of a user add to an observation, with numba's own calling convention.

    Called with the addresses of history * signals and of the n elements, float64 both. What fails is kept for
    ``extra.raise_failure``; until then the elements are 0 and nothing is called any more. ``extra`` keeps the callback.
    """
    kept: dict[str, Any] = extra.__dict__.setdefault("_callbacks", {})
    if "call" not in kept:
        n_in, n_out = extra.n_seen, len(extra.elements)

        def call(_value: int, _error: int, seen_at: int, out_at: int) -> int:
            out = np.ctypeslib.as_array((ctypes.c_double * n_out).from_address(out_at))
            out[:] = 0.0
            if extra.failure is None:
                try:
                    out[:] = extra.values(np.ctypeslib.as_array((ctypes.c_double * n_in).from_address(seen_at)))
                except BaseException as failure:  # an exception cannot pass through compiled code; the engine raises it again
                    extra.failure = failure
            return 0

        kept["call"] = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(call)
    return int(ctypes.cast(kept["call"], ctypes.c_void_p).value or 0)


def extras_of(senders: Iterable[object]) -> tuple[ExtraSignals, ...]:
    """Return what functions of users add to the observations of senders, one entry for each policy with some."""
    policies = [getattr(sender, "policy", None) or sender for sender in senders]
    extras = [policy.interface.extra for policy in policies if isinstance(policy, PolicySender)]
    return tuple({id(extra): extra for extra in extras if extra is not None}.values())


def copy_python_flows(states: np.ndarray, bridges: Sequence[Bridge | None], rows: Iterable[int]) -> None:
    """Give flows in plain Python objects of their own: copies of those that some rows of states, (n,), name."""
    for row in rows if bridges else ():
        bridge = bridges[row]
        if bridge is not None:
            states[row][_INSTANCE] = bridge.copy(int(states[row][_INSTANCE]))


def raise_failure(sender: object, flow: int, time_s: float) -> None:
    """Raise what a sender in plain Python raised, if it did; Ctrl-C as itself.

    Raises EngineError naming the file and the line.
    """
    bridge = find_bridge(sender)
    if bridge is None or bridge.failure is None:
        return
    failure, said = bridge.failure, bridge.what_failed()
    bridge.failure = None
    if not isinstance(failure, Exception):
        raise failure
    raise EngineError(f"flow {flow}: {said} (at {time_s:.6g} s)") from failure


_COMPILED: dict[tuple[Any, ...], tuple[int, Any]] = {}


def address_of(function: Callable[..., None], *records: np.dtype) -> int:
    """Compile a function over records and return the address of its machine code, valid for the life of the process.

    The function is a module-level Python function (or one already compiled), or a method of a Bridge, which stays plain Python.
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
def call_1(typing_context, address, record_0):
    def generate(context, builder, signature, arguments):
        return _emit_call(context, builder, arguments)

    return types.int32(types.int64, types.int64), generate


@intrinsic
def call_2(typing_context, address, record_0, record_1):
    def generate(context, builder, signature, arguments):
        return _emit_call(context, builder, arguments)

    return types.int32(types.int64, types.int64, types.int64), generate


@intrinsic
def call_3(typing_context, address, record_0, record_1, record_2):
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


@intrinsic
def prefetch(typing_context, address, index):
    """Bring element ``index`` of a float64 array near, before it is needed; it may lie outside of the array."""

    def generate(context, builder, signature, arguments):
        pointer, word = cgutils.voidptr_t, ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer, word, word, word]), "llvm.prefetch.p0"
        )
        element = builder.bitcast(_emit_element(builder, *arguments), pointer)
        builder.call(function, [element, word(0), word(3), word(1)])  # for reading, into all caches, data
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def smallest_of(count: int) -> Any:
    """Return an intrinsic ``(address, index, left_out)`` that finds the smallest of ``count``, a power of two, float64.

    Value and place of the first one that is smallest from an element on, by vector comparisons; none may be NaN. The one at
    ``left_out`` counts as infinite; -1 leaves out none.
    """
    word = ir.IntType(64)
    vector, lanes = ir.VectorType(ir.DoubleType(), count), ir.VectorType(word, count)

    @intrinsic
    def smallest(typing_context, address, index, left_out):
        def generate(context, builder, signature, arguments):
            element = _emit_element(builder, *arguments[:2])
            values = builder.load(builder.bitcast(element, vector.as_pointer()), align=8)
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[2], ir.IntType(32)(0))
            out = builder.icmp_signed("==", _emit_shuffle(builder, one, [0] * count), ir.Constant(lanes, list(range(count))))
            values = least = builder.select(out, ir.Constant(vector, [float("inf")] * count), values)
            half = count // 2
            while half:
                upper = _emit_shuffle(builder, least, [half + lane for lane in range(half)])
                lower = _emit_shuffle(builder, least, list(range(half)))
                least = builder.select(builder.fcmp_ordered("<", upper, lower), upper, lower)
                half //= 2
            every = _emit_shuffle(builder, least, [0] * count)
            equal = builder.bitcast(builder.fcmp_ordered("==", values, every), ir.IntType(count))
            place = builder.cttz(equal, ir.IntType(1)(1))
            value = builder.extract_element(least, ir.IntType(32)(0))
            return context.make_tuple(builder, signature.return_type, [value, builder.zext(place, word)])

        return types.Tuple((types.float64, types.int64))(types.int64, types.int64, types.int64), generate

    return smallest


def _emit_shuffle(builder: Any, values: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(values, ir.Constant(values.type, ir.Undefined), mask)
