"""Ctrl-C and SIGTERM: every command ends within a second, and its processes end with it.

The first signal raises KeyboardInterrupt in the main thread, so that the command can store its finished work. If a kernel, a
solver or a library keeps the main thread too long, a second thread ends the process. Files are written atomically, so no stored
result is lost. Long kernels release the interpreter lock (``nogil``), so the second thread can run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

GRACE_S = 0.5  # from the signal to the end of a process whose main thread is busy; the rest of the second is for its end
NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_PR_SET_PDEATHSIG = 1

_stops: list[Callable[[], None]] = []
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Watch:
    """End this process on SIGINT and SIGTERM; the command line holds one for its whole life.

    A signal that was ignored when the process began (nohup, a shell's background job) stays ignored. ``signal`` is the one that
    was received, or None.
    """

    def __init__(self) -> None:
        """Take over the signals. Must be called in the main thread."""
        self.signal: int | None = None
        self._said = False
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        # The C handler writes the number of the signal into the pipe at once, also while Python code runs.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self.claim()
        threading.Thread(target=self._watch, name="ccenv-interrupts", daemon=True).start()

    def claim(self) -> None:
        """Set the handlers, also after a library has set its own."""
        for number in NAMES:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._raise)

    def say(self) -> None:
        """Print the one line about the end, once."""
        if not self._said:
            self._said = True
            word = NAMES[signal.Signals(self.signal or signal.SIGINT)]
            line = f"ccenv: {word}; run the same command again: what can be resumed, resumes\n"
            with suppress(OSError):
                os.write(2, line.encode())

    def end(self) -> NoReturn:
        """End the process, with 130 or 143 as shells report it; libraries that tidy up at exit can take seconds."""
        self.say()
        os._exit(128 + (self.signal or signal.SIGINT))

    def _raise(self, number: int, _: Any) -> None:
        if self.signal is None:  # the end is on its way; a second signal must not cut off what the first one lets finish
            self.signal = number
            # Raised in a callback of a library it is printed there, and goes no further; one line is all that is to be said.
            sys.unraisablehook = _say_nothing
            threading.excepthook = _say_nothing
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while (received := os.read(self._read, 1)) and received[0] not in NAMES:
            pass
        if not received:
            return
        for stop in list(_stops):
            stop()
        time.sleep(GRACE_S)
        self.signal = self.signal or received[0]
        self.end()


def _say_nothing(_: Any) -> None:
    """Stand in for Python's hooks that print a traceback."""


_watches: list[Watch] = []  # of this process: none, or one


def watch() -> Watch:
    """Return the watch of this process; the first call starts it."""
    if not _watches:
        _watches.append(Watch())
    return _watches[0]


def interrupted() -> bool:
    """Tell whether a signal has come: later failures are its consequence."""
    return any(each.signal is not None for each in _watches)


def claim_signals() -> None:
    """Take the signals back from a library that set its own handlers; does nothing without the command line."""
    if threading.current_thread() is threading.main_thread():
        for each in _watches:
            each.claim()


def python_handles_ctrl_c() -> bool:
    """Tell whether Python's default handler of Ctrl-C is active, as in programs that use ccenv as a library."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call a function from another thread when a signal comes, to end the call in this block early."""
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)


def end_with_parent() -> None:
    """Ask the system to end this process with the thread that started it (Linux; elsewhere only the pipe does that)."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def become_worker(parent: Any, environment: Mapping[str, str], *, group: bool = False) -> None:
    """Make this process a worker: it ends with its parent, even a killed one, and leaves Ctrl-C to the parent.

    Args:
        parent: reading end of a pipe (a multiprocessing connection); only the parent holds the other end.
        environment: of the parent; this process has that of the time when the first worker of all began.
        group: its whole group of processes ends with the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    if not group:
        end_with_parent()

    def wait() -> None:
        with suppress(EOFError, OSError):
            parent.recv_bytes()
        if group:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, name="ccenv-parent", daemon=True).start()
