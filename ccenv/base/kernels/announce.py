"""A progress message while kernels are compiled: what is compiled and about how long it takes, on stderr."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AFTER_S = 0.5  # a compilation that ends sooner is not announced

# The slowest kernels: what they are, and the seconds that one core took to compile them.
_ENTRIES = {
    "engine.curve.kernel.advance_range": ("the curve engine", 20),
    "engine.packet.kernel.advance": ("the packet engine", 45),
    "engine.packet.batch.place.begin_networks": ("the packet engine's networks", 8),
    "engine.fluid.kernel.run_range": ("the fluid engine", 6),
    "engine.fluid.kernel.run_one": ("the fluid engine", 6),
    "envs.rollouts.curve.play_range": ("rollouts on the curve engine", 15),
    "envs.rollouts.packet.play_networks": ("rollouts on the packet engine", 10),
    "live.emulator.loop.run_until": ("the emulator", 25),
    "proofs.synthesis.search.boxes.cover": ("the synthesis search", 10),
}
_spent: dict[str, float] = {"s": 0.0}


def spent_s() -> float:
    """Return the seconds that this process has compiled, or waited for another one to. Throughputs leave them out."""
    return _spent["s"]


@contextlib.contextmanager
def announced(function: Any, times: Path) -> Iterator[None]:
    """Announce a compilation that takes longer than AFTER_S; the folder ``times`` keeps each kernel's time on this machine."""
    name = f"{function.__module__.removeprefix('ccenv.')}.{function.__qualname__}"
    begin = time.monotonic()
    timer = threading.Timer(AFTER_S, _announce, (name, times))
    timer.daemon = True
    timer.start()
    collecting = gc.isenabled()
    gc.disable()  # a fifth of the time: numba makes millions of objects, which all stay until the end
    try:
        yield
    finally:
        if collecting:
            gc.enable()
        timer.cancel()
        took_s = time.monotonic() - begin
        _spent["s"] += took_s
        if took_s > AFTER_S:
            with contextlib.suppress(OSError):
                (times / f"{name}.seconds").write_text(f"{took_s:.1f}", encoding="utf-8")


def _announce(name: str, times: Path) -> None:
    what, about_s = _ENTRIES.get(name, (name, 0))
    with contextlib.suppress(OSError, ValueError):
        about_s = max(1, round(float((times / f"{name}.seconds").read_text(encoding="utf-8"))))
    time_text = f", about {about_s} s" if about_s else ""
    say(f"compiling {what} (once for this version{time_text})")


def say(text: str) -> None:
    """Write a line on stderr, also outside the command line: a slow compilation must not look like a hang."""
    sys.stderr.write(f"ccenv: {text}\n")
    sys.stderr.flush()
