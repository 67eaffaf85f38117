"""Time limits for user code: a call that overruns is ended by an exception in its own thread."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from types import TracebackType

CALL_LIMIT_S = 20.0
"""Longest time of one call of a user's function."""
LOAD_LIMIT_S = 120.0
"""Longest time that a user's file may take to load: it may import something large."""
_POLL_S = 0.25


class Overtime(BaseException):
    """Raised in user code that overruns its limit; no ``except Exception`` of that code stops it."""


class _Watch:
    """One thread that watches the calls of all others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends_at: dict[int, float] = {}
        self._process = 0

    def begin(self, limit_s: float) -> float | None:
        """Start the clock of this thread; return the end of the call around it, if there is one."""
        me = threading.get_ident()
        with self._lock:
            outer = self._ends_at.get(me)
            self._ends_at[me] = time.monotonic() + limit_s
            if self._process != os.getpid():  # a fork has no threads but its own
                self._process = os.getpid()
                threading.Thread(target=self._run, name="ccenv-plugin-limit", daemon=True).start()
        return outer

    def end(self, outer: float | None) -> None:
        """Stop the clock. If it has rung, wait for the exception that is on its way."""
        me = threading.get_ident()
        with self._lock:
            rang = self._ends_at.pop(me, None) is None
            if outer is not None:
                self._ends_at[me] = outer
        while rang:
            time.sleep(_POLL_S)

    def go_on(self, outer: float | None) -> None:
        """Resume the clock of the call around one that was ended."""
        if outer is not None:
            with self._lock:
                self._ends_at[threading.get_ident()] = outer

    def _run(self) -> None:
        while True:
            time.sleep(_POLL_S)
            now = time.monotonic()
            with self._lock:
                for thread in [ident for ident, end in self._ends_at.items() if end < now]:
                    del self._ends_at[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overtime))


_WATCH = _Watch()


class limited:
    """Run a block of a user's Python code, which messages call ``what``, for at most ``limit_s`` of wall time, > 0.

    Raises TimeoutError from the line at which the time ran out; a call into compiled code returns first.
    """

    __slots__ = ("_limit_s", "_outer", "_what")

    def __init__(self, what: str, limit_s: float) -> None:
        self._what, self._limit_s = what, limit_s

    def __enter__(self) -> None:
        self._outer = _WATCH.begin(self._limit_s)

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _lines: TracebackType | None) -> None:
        """Stop the clock. Raises TimeoutError if it has rung."""
        try:
            if not isinstance(error, Overtime):
                _WATCH.end(self._outer)
                return
        except Overtime as late:  # it rang while the block was left
            error = late
        _WATCH.go_on(self._outer)
        ended = TimeoutError(f"{self._what} has not come back within {self._limit_s:g} s")
        raise ended.with_traceback(error.__traceback__) from None
