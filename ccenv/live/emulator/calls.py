"""Functions of the C library, called by address from compiled code: a function of ctypes as a global cannot be cached."""

from __future__ import annotations

import ctypes
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ccenv.base.kernels.decorator import kernel

NAMES = ("read", "write", "send", "recv", "ppoll", "clock_gettime", "getsockopt", "close", "pread")
READ, WRITE, SEND, RECV, PPOLL, CLOCK, GETSOCKOPT, CLOSE, PREAD = range(len(NAMES))
CLOCK_MONOTONIC = 1
POLLIN, POLLOUT = 1, 4


def addresses() -> list[int]:
    """Return the addresses of NAMES in this process. Raises OSError where the C library lacks one."""
    library = ctypes.CDLL(None)
    found = []
    for name in NAMES:
        function = getattr(library, name, None)
        address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
        if address is None:
            raise OSError(f"the C library has no function {name}")
        found.append(address)
    return found


@intrinsic
def call_c(typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any):
    """Call a C function of up to five whole numbers or addresses; those that it does not take are ignored."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(whole, [whole] * 5).as_pointer())
        return builder.call(function, list(arguments[1:]))

    return types.int64(*[types.int64] * 6), generate


@kernel
def as_int(value):
    """Return what a C function of type int gave, out of a register of 64 bits whose upper half is not defined."""
    low = value & 0xFFFFFFFF
    return low - 0x100000000 if low >= 0x80000000 else low
