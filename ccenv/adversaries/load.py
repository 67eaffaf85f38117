"""Adversaries of users: a Python file or an installed plugin. Code named by submissions, suites or records is never loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, get_args

import numpy as np

from ccenv.adversaries import ADVERSARIES, make_adversary
from ccenv.agents.callbacks import ADVERSARY_SLOTS, ADVERSARY_STATE, MOVE, VIEW
from ccenv.base.errors import InputError, shown
from ccenv.base.registry import parse_parameters
from ccenv.base.user import installed, limits
from ccenv.base.user.python_file import (
    call,
    describe_error,
    find_line,
    get_attribute,
    is_python_file,
    load_file,
    place,
    read_spec,
    require_arguments,
    require_parameters,
)
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
    if is_python_file(spec):
        parsed = read_spec(spec)
        user = load_file(parsed.file, "adversary", ADVERSARIES.names())
        definition = _find_definition(user.module, parsed.attribute, parsed.file)
        stem = FilePath(parsed.file).stem
        label = stem if parsed.attribute in ("", "adversary") else f"{stem}.{parsed.attribute}"
        return _build(definition, dict(parsed.parameters), label, parsed.where, user.path, user.sha256)
    name, _, suffix = spec.partition(":")
    plugin = installed.find("adversary", name, ADVERSARIES.names(aliases=True))
    if plugin is None:
        return make_adversary(spec)
    definition, file, sha256 = installed.load(plugin)
    return _build(definition, parse_parameters(suffix), name, f"{name} of {plugin.package}", file, sha256)


def is_user_adversary(spec: str) -> bool:
    """Tell whether a spec names user code: a Python file or a plugin."""
    return (
        is_python_file(spec) or installed.find("adversary", spec.partition(":")[0], ADVERSARIES.names(aliases=True)) is not None
    )


def _find_definition(module: ModuleType, attribute: str, name: str) -> Any:
    if attribute and not (attribute == "adversary" and not hasattr(module, "adversary")):
        return get_attribute(module, attribute, name)
    if hasattr(module, "adversary"):
        return module.adversary
    if hasattr(module, "play") or hasattr(module, "init"):
        return module
    raise InputError(f"{name} defines no adversary; what it can define: {_FORMS}")


def _build(definition: Any, parameters: dict[str, Any], label: str, location: str, path: FilePath, sha256: str) -> Adversary:
    if isinstance(definition, ModuleType):
        require_parameters(lambda: None, parameters, location)
        missing = [name for name in ("init", "play") if not hasattr(definition, name)]
        if missing:
            raise InputError(f"{path.name}: {' and '.join(missing)} missing; what it can define: {_FORMS}")
        definition = ScriptedAdversary(label, getattr(definition, "STATE", ADVERSARY_STATE), definition.init, definition.play)
    elif not isinstance(definition, get_args(Adversary)):
        if not callable(definition):
            raise InputError(f"{location} is {shown(type(definition).__name__)}; what it can be: {_FORMS}")
        definition = call(definition, parameters, location, path)
    if not isinstance(definition, get_args(Adversary)):
        raise InputError(f"{location} returned {shown(type(definition).__name__)}, not an adversary")
    if not isinstance(definition, ScriptedAdversary):
        return definition  # type: ignore[no-any-return]
    _smoke_test(definition, path)
    return replace(definition, name=label, source_sha256=sha256)


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

    def turn(name: str, function: Callable[..., None], *records: Any) -> None:
        try:
            with limits.limited(name, limits.CALL_LIMIT_S):
                function(*records)
        except Exception as error:
            raise InputError(f"{place(path, error)}: {describe_error(error)}") from error

    with np.errstate(all="ignore"):
        turn("init", adversary.init, state, view)
        for step in range(_STEPS):
            view.now_s, view.step, view.queue_bytes = step * view.dt_s, float(step), float(1500 * (step % 80))
            turn("play", adversary.play, state, view, move)
            for name in MOVE.names or ():
                if not 0 <= move[name] <= 1:
                    at = find_line(adversary.play, str(path))
                    raise InputError(f"{at}: play set {name} to {move[name]:g} at {view.now_s:g} s; it must be in [0, 1]")
