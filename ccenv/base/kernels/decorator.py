"""The decorator of compiled functions. Numba is imported when one of them is first used, not when it is defined."""

from __future__ import annotations

from functools import cached_property, update_wrapper
from typing import Any


class Lazy:
    """A compiled function before its first use; numba takes it for the dispatcher that it becomes."""

    def __init__(self, py_func: Any, options: dict[str, Any]) -> None:
        update_wrapper(self, py_func)
        self.py_func = py_func
        self.targetoptions = {"nopython": True, "boundscheck": None, "error_model": "numpy", **options}

    @cached_property
    def made(self) -> Any:
        from ccenv.base.kernels.dispatcher import Kernel

        return Kernel(self.py_func, targetoptions=self.targetoptions)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; for these types it is compiled, or read from the disk, when they first come."""
        return self.made(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made, name)


def kernel(function: Any = None, /, **options: Any) -> Any:
    """Compile a function when it is first called: ``@kernel`` or ``@kernel(inline="always")``, with options of ``numba.njit``.

    The error model is NumPy's, and the machine code is always cached on disk.
    """
    return (lambda py_func: Lazy(py_func, options)) if function is None else Lazy(function, options)
