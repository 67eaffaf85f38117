"""The machine code that the engines call, called from Python: compiled once for both."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ccenv.engine.compiled.calls import address_of


def machine_code(function: Callable[..., None], *dtypes: np.dtype) -> Callable[..., None]:
    """Return a function that calls the machine code of one over records of these types, by its address."""
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (2 + len(dtypes)))(address_of(function, *dtypes))
    results = (ctypes.c_void_p * 2)()

    def play(*records: Any) -> None:
        places = [np.frombuffer(record, np.uint8).__array_interface__["data"][0] for record in records]
        assert call(ctypes.addressof(results), ctypes.addressof(results) + ctypes.sizeof(ctypes.c_void_p), *places) == 0

    return play
