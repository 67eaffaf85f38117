"""Adversaries of users: a Python file or an installed plugin. Code named by submissions, suites or records is never loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, get_args

import numpy as np

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents.callbacks import ADVERSARY_SLOTS, ADVERSARY_STATE, MOVE, VIEW
from ccenv.base.errors import InputError, shown
from ccenv.base.user.loader import Guard, Loaded, UserKind
from ccenv.base.user.python_file import find_line, require_arguments
from ccenv.network.adversary import Adversary, ScriptedAdversary

_FORMS = "a function adversary() that returns an adversary, or init(state, view) and play(state, view, move) with STATE"
_STEPS = 400
_VIEW = {
    "dt_s": 0.005,
    "steps_per_rtt": 8.0,
    "n_flows": 1.0,
    "rtt_s": 0.04,
    "jitter_s": 0.04,
    "link_rate_Bps": 6e6,
    "buffer_bytes": 4.8e5,
    "mss_bytes": 1500.0,
    "seed": 1.0,
}


def load_adversary(spec: str) -> Adversary:
    """Build an adversary as :func:`ccenv.adversaries.make_adversary` does, or from a user's file or plugin, whose code runs.

    Args:
        spec: of ``make_adversary``; ``FILE.py``, ``FILE.py:ATTRIBUTE`` or ``FILE.py:ATTRIBUTE:key=value,...``; or a plugin's
            name with optional parameters. Without an attribute: ``adversary``, else ``init`` and ``play`` with STATE.

    Raises:
        UnknownNameError: if nothing has this name.
        InputError: one line with file and line, if the code cannot be run or does not define an adversary.
    """
    if not isinstance(spec, str):
        raise InputError(f"{shown(spec)} is no adversary: give a name (ccenv list adversaries) or a file")
    return USER_ADVERSARIES.load(spec).value if USER_ADVERSARIES.is_user(spec) else make_adversary(spec)


def _accept(code: Loaded[Any]) -> Adversary | None:
    value = code.value
    if isinstance(value, ModuleType):
        missing = [name for name in ("init", "play") if not hasattr(value, name)]
        if missing:
            raise InputError(f"{code.file.name}: {' and '.join(missing)} missing; what it can define: {_FORMS}")
        value = ScriptedAdversary(code.label, getattr(value, "STATE", ADVERSARY_STATE), value.init, value.play)
    if not isinstance(value, ScriptedAdversary):
        return value if isinstance(value, get_args(Adversary)) else None
    _smoke_test(value, code.file)
    return replace(value, name=code.label, source_sha256=code.sha256)


USER_ADVERSARIES: UserKind[Adversary] = UserKind(
    "adversary",
    lambda: ADVERSARIES.names(aliases=True),
    "adversary",
    _accept,
    _FORMS,
    fallback=lambda module, file: module if hasattr(module, "play") or hasattr(module, "init") else None,
)


def _smoke_test(adversary: ScriptedAdversary, path: FilePath) -> None:
    """Run some round trips in plain Python: compiled code cannot say in which line it failed."""
    if not isinstance(adversary.state, np.dtype) or not 1 <= len(adversary.state.names or ()) <= ADVERSARY_SLOTS:
        raise InputError(
            f"{path.name}: STATE is {shown(adversary.state)}; make it with record(...), {ADVERSARY_SLOTS} fields at most"
        )
    require_arguments(adversary.init, ("state", "view"), str(path), "init")
    require_arguments(adversary.play, ("state", "view", "move"), str(path), "play")
    state, view, move = (np.zeros(1, dtype).view(np.recarray)[0] for dtype in (adversary.state, VIEW, MOVE))
    for name, value in adversary.parameters.items():
        state[name] = value
    for name, value in _VIEW.items():
        view[name] = value

    guard = Guard(path)
    with np.errstate(all="ignore"):
        guard.call("init", adversary.init, state, view)
        for step in range(_STEPS):
            view.now_s, view.step, view.queue_bytes = step * view.dt_s, float(step), float(1500 * (step % 80))
            guard.call("play", adversary.play, state, view, move)
            for name in MOVE.names or ():
                if not 0 <= move[name] <= 1:
                    at = find_line(adversary.play, str(path))
                    raise InputError(f"{at}: play set {name} to {move[name]:g} at {view.now_s:g} s; it must be in [0, 1]")
