"""Senders that a user brings: a Python file, a plugin, an object. No submission, suite or record of others is loaded so.

A rehearsal of a user's compiled sender in plain Python: compiled code cannot say in which line it failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, get_args

import numpy as np

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.callbacks import ACK, LOSS, STATE_HEADER, STATE_SLOTS, TICK, state_record
from ccenv.agents.python_sender import STATE_FIELD, Bridge, PythonSender
from ccenv.agents.sender import ClassicSender, Sender
from ccenv.base.errors import InputError, did_you_mean, shown, unknown_name
from ccenv.base.foreign.reading import is_file, is_folder
from ccenv.base.registry import parse_parameters
from ccenv.base.user import installed, limits
from ccenv.base.user.python_file import (
    call,
    find_line,
    get_attribute,
    is_python_file,
    load_file,
    place,
    read_spec,
    require_arguments,
    require_parameters,
    said,
)

MSS_BYTES = 1500.0
RTT_S = 0.04
ROUNDS = 40
LOSS_EVERY = 8  # rounds
TIMEOUT_AT = 25  # round
SILENCE_AT = 30  # round, of one second


def rehearse_sender(sender: ClassicSender, path: FilePath) -> None:
    """Play some round trips with ACKs, losses, a time-out and a silence to functions over records.

    Args:
        sender: whose functions are Python functions, not compiled yet.
        path: their file, for messages.

    Raises:
        InputError: with file and line, if a function has the wrong arguments, raises, does not come back, or sets a window or
            rate that is not above 0.
    """
    names = sender.state.names if isinstance(sender.state, np.dtype) else None
    if names is None or names[: len(STATE_HEADER)] != STATE_HEADER or len(names) > STATE_SLOTS:
        raise InputError(f"{path.name}: STATE is {shown(sender.state)}; make it with state_record(...) of ccenv")
    functions = {
        "init": (sender.init, 1),
        "on_ack": (sender.on_ack, 2),
        "on_loss": (sender.on_loss, 2),
        "on_tick": (sender.on_tick, 2),
    }
    for name, (function, count) in functions.items():
        require_arguments(function, ("state", name.removeprefix("on_"))[:count], str(path), name)
    with np.errstate(all="ignore"):
        _play(sender, path)


def _play(sender: ClassicSender, path: FilePath) -> None:
    state = _record(sender.state)
    for name, value in sender.parameters.items():
        state[name] = value
    state.mss_bytes, state.seed = MSS_BYTES, 1.0

    def turn(name: str, function: Callable[..., None], *signal: Any) -> None:
        try:
            with limits.limited(name, limits.CALL_LIMIT_S):
                function(state, *signal)
        except Exception as error:
            raise InputError(f"{place(path, error)}: {said(error)}") from error
        for field in ("cwnd_bytes", "pacing_rate_Bps"):
            if not state[field] > 0:
                after = f"after {name}, {field} is {state[field]:g}; it must be above 0"
                raise InputError(f"{find_line(function, str(path))}: {after}")

    turn("init", sender.init)
    now_s, delivered = 0.0, 0.0
    for k in range(ROUNDS):
        now_s += RTT_S if k != SILENCE_AT else 1.0
        window = float(min(max(state.cwnd_bytes, MSS_BYTES), 100 * MSS_BYTES))
        parts = min(4, int(window // MSS_BYTES))
        for part in range(parts):
            acked = window / parts
            delivered += acked
            rtt_s = RTT_S * (1.0 + 0.1 * (k % 5))
            values = (
                now_s,
                acked,
                delivered,
                rtt_s,
                RTT_S,
                window / rtt_s,
                window - acked,
                float(part == 0),
                0.0,
                0.0,
                MSS_BYTES,
            )
            turn("on_ack", sender.on_ack, _record(ACK, *values))
        if k % LOSS_EVERY == LOSS_EVERY - 1 or k == TIMEOUT_AT:
            lost = (now_s, MSS_BYTES, window / 2, delivered, float(k == TIMEOUT_AT), 1.0, MSS_BYTES)
            turn("on_loss", sender.on_loss, _record(LOSS, *lost))
        turn("on_tick", sender.on_tick, _record(TICK, now_s, 0.01, window / 2, delivered, RTT_S, MSS_BYTES))


def _record(dtype: np.dtype, *values: float) -> Any:
    made = np.zeros(1, dtype).view(np.recarray)[0]
    for name, value in zip(dtype.names or (), values, strict=False):
        made[name] = value
    return made


FUNCTIONS = {"init": ("state",), "on_ack": ("state", "ack"), "on_loss": ("state", "loss"), "on_tick": ("state", "tick")}
METHODS = {"on_start": (), "on_ack": ("ack",), "on_loss": ("loss",), "on_tick": ("tick",)}
_FORMS = (
    "a function sender() that returns a sender, one class of ccenv.PythonSender, or STATE, init, on_ack, on_loss and on_tick "
    "(docs/bring-your-own.md)"
)

SenderLike = Sender | type[PythonSender] | str
"""What Python functions take for a sender: the spec of one, a sender, or a class of PythonSender."""


def load_sender(spec: str, **parameters: Any) -> Sender:
    """Build a sender as :func:`ccenv.agents.make_sender` does, or from a Python file or an installed plugin, whose code runs.

    Args:
        spec: what ``make_sender`` takes, a Python file (:func:`load_python_file`), or a plugin's name with optional parameters.
        parameters: further parameters, as Python values.

    Raises:
        UnknownNameError: if nothing has this name.
        InputError: one line, for a sender that cannot be built.
    """
    if is_python_file(spec):
        return load_python_file(spec, **parameters)
    if not isinstance(spec, str):
        raise InputError(f"{shown(spec)} is no sender: give a name (ccenv list agents), a file, or a sender object")
    name, _, rest = spec.partition(":")
    plugin = installed.find("sender", name, AGENTS.names())
    if plugin is not None:
        found, file, sha256 = installed.load(plugin)
        return _build(found, {**parse_parameters(rest), **parameters}, name, f"{name} of {plugin.package}", file, sha256)
    try:
        return make_sender(spec, **parameters)
    except InputError:
        if name in AGENTS or is_file(spec) or is_folder(spec) or not installed.entry_points("sender"):
            raise
        known = [plugin.name for plugin in installed.plugins("sender", AGENTS.names()) if not plugin.problem]
        raise unknown_name("agent", name, [*AGENTS.names(), *known]) from None


def as_sender(given: SenderLike) -> Sender:
    """Return a sender for what a user gave. Raises InputError as :func:`load_sender` does, and for anything else."""
    if isinstance(given, get_args(Sender)):
        sender: Sender = given
        return sender
    if inspect.isclass(given) and issubclass(given, PythonSender):
        return python_sender(given)
    if isinstance(given, PythonSender):
        raise InputError(f"{type(given).__name__}() is one flow: give the class {type(given).__name__} itself")
    return load_sender(given)  # type: ignore[arg-type]


def is_user_sender(spec: str) -> bool:
    """Tell whether a spec names code of a user: a Python file or a plugin."""
    return is_python_file(spec) or installed.find("sender", spec.partition(":")[0], AGENTS.names()) is not None


def load_python_file(spec: str, **more: Any) -> Sender:
    """Build the sender of a Python file, whose code runs.

    Args:
        spec: ``FILE.py``, ``FILE.py:ATTRIBUTE`` or ``FILE.py:ATTRIBUTE:key=value,key=value``. The attribute is a function that
            returns a sender, a class of PythonSender, or a sender. Without it: ``sender``, else the only class of
            PythonSender, else the functions init, on_ack, on_loss and on_tick with STATE.
        more: further parameters, as Python values.

    Raises:
        InputError: one line with file and line, if the file cannot be read or run, or does not define a sender.
    """
    asked = read_spec(spec)
    user = load_file(asked.file, "agent", AGENTS.names())
    found = _found(user.module, asked.attribute, asked.file)
    stem = FilePath(asked.file).stem
    label = stem if asked.attribute in ("", "sender") else f"{stem}.{asked.attribute}"
    return _build(found, {**asked.parameters, **more}, label, asked.where, user.path, user.sha256)


def _found(module: ModuleType, attribute: str, name: str) -> Any:
    """Return what defines the sender of a module: a function, a class, a sender, or the module itself."""
    classes = [
        c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, PythonSender) and c.__module__ == module.__name__
    ]
    if attribute and not (attribute == "sender" and not hasattr(module, "sender")):
        return get_attribute(module, attribute, name)
    if callable(getattr(module, "sender", None)) or isinstance(getattr(module, "sender", None), get_args(Sender)):
        return module.sender
    if len(classes) == 1:
        return classes[0]
    if len(classes) > 1:
        raise InputError(f"{name} has several senders: name one, as in {name}:{classes[0].__name__}")
    if any(hasattr(module, function) for function in FUNCTIONS):
        return module
    raise InputError(f"{name} defines no sender; what it can define: {_FORMS}")


def _build(found: Any, given: dict[str, Any], label: str, where: str, path: FilePath, sha256: str) -> Sender:
    if isinstance(found, ModuleType):
        require_parameters(lambda: None, given, where)
        found = _of_functions(found, label, path)
    elif inspect.isclass(found) and issubclass(found, PythonSender):
        return python_sender(found, given, label=label, source_sha256=sha256)
    elif not isinstance(found, get_args(Sender)):
        if not callable(found):
            raise InputError(f"{where} is {shown(type(found).__name__)}; what it can be: {_FORMS}")
        found = call(found, given, where, path)
    if not isinstance(found, get_args(Sender)):
        raise InputError(f"{where} returned {shown(type(found).__name__)}, not a sender")
    if not isinstance(found, ClassicSender):
        return found  # type: ignore[no-any-return]
    rehearse_sender(found, path)
    return replace(found, name=label, source_sha256=sha256)


def _of_functions(module: ModuleType, label: str, path: FilePath) -> ClassicSender:
    missing = [name for name in ("STATE", *FUNCTIONS) if not hasattr(module, name)]
    if missing:
        raise InputError(f"{path.name}: {' and '.join(missing)} missing; a compiled sender has STATE, {', '.join(FUNCTIONS)}")
    for name, arguments in FUNCTIONS.items():
        require_arguments(getattr(module, name), arguments, str(path), name)
    per_packet = bool(getattr(module, "PER_PACKET", False))
    return ClassicSender(label, module.STATE, module.init, module.on_ack, module.on_loss, module.on_tick, per_packet=per_packet)


def python_sender(
    kind: type[PythonSender], parameters: Mapping[str, Any] | None = None, *, label: str = "", source_sha256: str = ""
) -> ClassicSender:
    """Return the sender that runs a class of PythonSender in both engines.

    Args:
        kind: the class.
        parameters: keyword arguments of ``kind``.
        label: for tables; the name of the class by default.
        source_sha256: hash of its file, where it came from one.

    Raises:
        InputError: if an object cannot be built, or a method does not take what it is given.
    """
    source, given = _source_of(kind), dict(parameters or {})
    _require_methods(kind, source)
    bridge = Bridge(lambda: kind(**given), source)
    try:
        call(kind, given, label or kind.__name__, FilePath(source))
    except InputError as error:
        raise (
            error if error.__cause__ is None else InputError(f"{place(source, error.__cause__)}: {said(error.__cause__)}")
        ) from error
    settings = ",".join(f"{key}={value}" for key, value in sorted(given.items()))
    state = state_record(STATE_FIELD)
    name = (label or kind.__name__) + (f":{settings}" if settings else "")
    functions = (bridge.init, bridge.on_ack, bridge.on_loss, bridge.on_tick)
    return ClassicSender(name, state, *functions, {}, source_sha256, kind.per_packet)


def _source_of(kind: type) -> str:
    """Return the file of a class; a name without a file for one that was typed into a console."""
    try:
        return inspect.getsourcefile(kind) or ""
    except TypeError:
        return f"{kind.__name__} in {kind.__module__}"


def _require_methods(kind: type[PythonSender], source: str) -> None:
    for name, method in vars(kind).items():
        if name.startswith("on_") and name not in METHODS and callable(method):
            raise InputError(f"{find_line(method, source)}: {unknown_name('method of a sender', name, METHODS)}")
    for name, arguments in METHODS.items():
        method = inspect.getattr_static(kind, name)
        own = ("self", *arguments) if inspect.isfunction(method) else arguments
        require_arguments(getattr(kind, name), own, source, name)


def list_agents(tag: str = "") -> list[str]:
    """Return the names of all senders that ccenv and installed plugins bring.

    Args:
        tag: only those with it: ``classic``, ``synthesized``, ``learned``, ``distilled``, ``proxy``, ``plugin``; empty: all.

    Raises:
        InputError: for a tag that there is not.
    """
    plugins = [plugin.name for plugin in installed.plugins("sender", AGENTS.names()) if not plugin.problem]
    tags = {tag for entry in AGENTS for tag in entry.tags} | {"plugin"}
    if tag and tag not in tags:
        raise InputError(f"list_agents: unknown tag {shown(tag)}.{did_you_mean(str(tag), tags)}")
    return [*AGENTS.names(tag or None), *(plugins if tag in ("", "plugin") else [])]
