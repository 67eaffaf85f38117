"""Senders of users: a Python file, a plugin, an object. Code named by submissions, suites or records is never loaded.

A user's compiled sender is first smoke-tested in plain Python, since compiled code cannot say in which line it failed.
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
from ccenv.base.user import installed
from ccenv.base.user.loader import Guard, Loaded, UserKind, call
from ccenv.base.user.python_file import find_line, require_arguments

MSS_BYTES = 1500.0
RTT_S = 0.04
ROUNDS = 40
LOSS_EVERY = 8  # rounds
TIMEOUT_AT = 25  # round
SILENCE_AT = 30  # round, of one second


def smoke_test(sender: ClassicSender, path: FilePath) -> None:
    """Smoke-test the uncompiled functions of a sender in file ``path``: round trips with ACKs, losses, a time-out and a silence.

    Raises InputError with file and line, if a function has the wrong arguments, raises, overruns its limit, or sets a window or
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
    guard = Guard(path)

    def turn(name: str, function: Callable[..., None], *signal: Any) -> None:
        guard.call(name, function, state, *signal)
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
    "(docs/own-code.md)"
)

SenderLike = Sender | type[PythonSender] | str
"""What Python functions accept as a sender: a spec, a sender object, or a class of PythonSender."""


def load_sender(spec: str, **parameters: Any) -> Sender:
    """Build a sender as :func:`ccenv.agents.make_sender` does, or from a Python file or an installed plugin, whose code runs.

    Args:
        spec: of ``make_sender``; ``FILE.py``, ``FILE.py:ATTRIBUTE`` or ``FILE.py:ATTRIBUTE:key=value,...``; or a plugin with
            optional parameters. The attribute is a function that returns a sender, a class of PythonSender, or a sender. Without
            it: ``sender``, else the only class of PythonSender, else the functions init, on_ack, on_loss and on_tick with STATE.
        parameters: further parameters, as Python values.

    Raises:
        UnknownNameError: if nothing has this name.
        InputError: one line, for a sender that cannot be built.
    """
    if not isinstance(spec, str):
        raise InputError(f"{shown(spec)} is no sender: give a name (ccenv list agents), a file, or a sender object")
    if USER_SENDERS.is_user(spec):
        return USER_SENDERS.load(spec, **parameters).value
    try:
        return make_sender(spec, **parameters)
    except InputError:
        name = spec.partition(":")[0]
        if name in AGENTS or is_file(spec) or is_folder(spec) or not installed.entry_points("sender"):
            raise
        raise USER_SENDERS.unknown(name) from None


def as_sender(value: SenderLike) -> Sender:
    """Return the sender for a :data:`SenderLike`. Raises InputError as :func:`load_sender` does, and for anything else."""
    if isinstance(value, get_args(Sender)):
        sender: Sender = value
        return sender
    if inspect.isclass(value) and issubclass(value, PythonSender):
        return python_sender(value)
    if isinstance(value, PythonSender):
        raise InputError(f"{type(value).__name__}() is one flow: give the class {type(value).__name__} itself")
    return load_sender(value)  # type: ignore[arg-type]


def _find_definition(module: ModuleType, file: str) -> Any:
    """Return the definition of a module without ``sender``: its only class, or the module of functions itself."""
    classes = [
        c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, PythonSender) and c.__module__ == module.__name__
    ]
    if len(classes) > 1:
        raise InputError(f"{file} has several senders: name one, as in {file}:{classes[0].__name__}")
    return classes[0] if classes else module if any(hasattr(module, name) for name in FUNCTIONS) else None


def _accept(code: Loaded[Any]) -> Sender | None:
    value = code.value
    if inspect.isclass(value) and issubclass(value, PythonSender):
        return python_sender(value, code.parameters, label=code.label, source_sha256=code.sha256)
    if isinstance(value, ModuleType):
        value = _build_from_functions(value, code.label, code.file)
    if not isinstance(value, get_args(Sender)):
        return None
    if not isinstance(value, ClassicSender):
        return value  # type: ignore[no-any-return]
    smoke_test(value, code.file)
    return replace(value, name=code.label, source_sha256=code.sha256)


USER_SENDERS: UserKind[Sender] = UserKind(
    "sender", AGENTS.names, "sender", _accept, _FORMS, fallback=_find_definition, registered="agent"
)


def _build_from_functions(module: ModuleType, label: str, path: FilePath) -> ClassicSender:
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

    ``parameters`` are its keyword arguments, ``label`` is its name in tables, ``source_sha256`` the hash of its file.

    Raises:
        InputError: if an object cannot be built, or a method has the wrong arguments.
    """
    source, arguments = _find_class_file(kind), dict(parameters or {})
    _require_methods(kind, source)
    bridge = Bridge(lambda: kind(**arguments), source)
    call(kind, arguments, label or kind.__name__, FilePath(source))
    settings = ",".join(f"{key}={value}" for key, value in sorted(arguments.items()))
    state = state_record(STATE_FIELD)
    name = (label or kind.__name__) + (f":{settings}" if settings else "")
    functions = (bridge.init, bridge.on_ack, bridge.on_loss, bridge.on_tick)
    return ClassicSender(name, state, *functions, {}, source_sha256, kind.per_packet)


def _find_class_file(sender_class: type) -> str:
    """Return the file of a class, or its name if it was typed into a console."""
    try:
        return inspect.getsourcefile(sender_class) or ""
    except TypeError:
        return f"{sender_class.__name__} in {sender_class.__module__}"


def _require_methods(sender_class: type[PythonSender], source: str) -> None:
    for name, method in vars(sender_class).items():
        if name.startswith("on_") and name not in METHODS and callable(method):
            raise InputError(f"{find_line(method, source)}: {unknown_name('method of a sender', name, METHODS)}")
    for name, arguments in METHODS.items():
        method = inspect.getattr_static(sender_class, name)
        arguments_taken = ("self", *arguments) if inspect.isfunction(method) else arguments
        require_arguments(getattr(sender_class, name), arguments_taken, source, name)


def list_agents(tag: str = "") -> list[str]:
    """Return the names of all senders of ccenv and of installed plugins, or only those with a tag.

    Raises InputError for an unknown tag.

    Args:
        tag: ``classic``, ``synthesized``, ``learned``, ``distilled``, ``proxy``, ``plugin``, ...; empty: all.
    """
    plugins = [plugin.name for plugin in installed.plugins("sender", AGENTS.names()) if not plugin.problem]
    tags = {tag for entry in AGENTS for tag in entry.tags} | {"plugin"}
    if tag and tag not in tags:
        raise InputError(f"list_agents: unknown tag {shown(tag)}.{did_you_mean(str(tag), tags)}")
    return [*AGENTS.names(tag or None), *(plugins if tag in ("", "plugin") else [])]
