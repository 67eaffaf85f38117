"""What a curve engine is built of, checked at its edge: each mistake is one line that says how it is written."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from ccenv.engine.curve.checks import require_choice, require_seed
from ccenv.engine.curve.paths import PathArrays
from ccenv.errors import InputError, shown
from ccenv.network.adversary import Adversary
from ccenv.network.path import Path
from ccenv.network.sender import Sender

_LIST = (list, tuple)
TIMINGS = ("engine", "smt")
LOSS_DETECTIONS = ("acks", "oracle")


def require_players(paths: Any, senders: Any, adversary: Any, threads: Any) -> None:
    """Refuse paths, senders and adversaries that are none, with what to write instead, and a number of threads below 1.

    Raises:
        InputError: one line.
    """
    require_count("threads", threads, 1)
    if isinstance(paths, Path):
        raise InputError("paths is one path; give a list, one path per environment: CurveEngine([path], senders=[...])")
    if not isinstance(paths, PathArrays):
        _require_list("paths", paths, "[make_path(link_rate_mbps=10, rtt_ms=40)]")
        for place, path in enumerate(paths):
            if not isinstance(path, Path):
                raise InputError(f"paths[{place}] is {shown(path)}, no path: build it with make_path(...)")
    if senders is None:
        raise InputError("senders is missing; give one per flow: senders=[make_sender('reno')]")
    _require_list("senders", senders, "[make_sender('reno')]")
    if not senders:
        raise InputError("senders is empty; give one per flow: senders=[make_sender('reno')]")
    for row in senders if isinstance(senders[0], _LIST) else [senders]:
        for place, sender in enumerate(row if isinstance(row, _LIST) else [row]):
            _require_player(f"senders[{place}]", sender, get_args(Sender), "make_sender")
    if adversary is not None:
        for one in adversary if isinstance(adversary, _LIST) else [adversary]:
            _require_player("adversary", one, get_args(Adversary), "make_adversary")


def require_modes(timing: str, loss_detection: str, steps_per_rtt: int, seed: int) -> None:
    """Refuse modes and seeds that there are not.

    Raises:
        InputError: one line, with suggestions.
    """
    require_choice("timing", timing, TIMINGS)
    require_choice("loss_detection", loss_detection, LOSS_DETECTIONS)
    if timing == "smt" and steps_per_rtt != 1:
        raise InputError(f"timing 'smt' needs steps_per_rtt 1, not {steps_per_rtt}")
    require_seed(seed)


def require_count(what: str, given: Any, low: int) -> None:
    """Raise InputError unless a value is a whole number of at least low."""
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < low:
        raise InputError(f"{what} is {shown(given)}; it must be a whole number of at least {low}")


def require_place(what: str, given: int, count: int) -> None:
    """Raise InputError unless a number is a place in a list of so many."""
    if not 0 <= given < count:
        raise InputError(f"{what} is {given}; it must be 0 to {count - 1}")


def _require_player(what: str, given: Any, kinds: tuple[type, ...], build: str) -> None:
    if isinstance(given, kinds):
        return
    if isinstance(given, str):
        raise InputError(f"{what} is {shown(given)}, a name: build it with ccenv.{build}({given[:40]!r})")
    if inspect.isclass(given):
        raise InputError(f"{what} is the class {given.__name__}: give it to ccenv.compare, or name its file with ccenv.{build}")
    raise InputError(f"{what} is {shown(given)}; build it with ccenv.{build}(...)")


def _require_list(what: str, given: Any, example: str) -> None:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise InputError(f"{what} is {shown(given)}; a list is needed: {what}={example}")
