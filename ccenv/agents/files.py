"""Senders from a user's own Python file. Only what a user names is loaded so: no submission, suite or record of others is."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.classic.common import classic_sender
from ccenv.engine.compiled.signals import state_record
from ccenv.errors import InputError, did_you_mean, shown
from ccenv.foreign import read_bounded
from ccenv.network.python_sender import STATE_FIELD, Bridge, PythonSender
from ccenv.network.sender import ClassicSender, Sender
from ccenv.registry import parse_parameters

MAX_BYTES = 4 << 20
FUNCTIONS = ("init", "on_ack", "on_loss", "on_tick")
_FORMS = (
    "a function sender() that returns a sender, one class of ccenv.PythonSender, or STATE, init, on_ack, on_loss and on_tick "
    "(docs/contributing.md)"
)


def is_python_file(spec: str) -> bool:
    """Tell whether a spec names a Python file: ``FILE.py``, ``FILE.py:ATTRIBUTE``, ``FILE.py:ATTRIBUTE:key=value,...``."""
    return spec.partition(":")[0].endswith(".py")


def load_sender(spec: str, **parameters: Any) -> Sender:
    """Build a sender as :func:`ccenv.agents.make_sender` does, or from a Python file, whose code runs.

    Args:
        spec: what ``make_sender`` takes, or a Python file (:func:`load_python_file`).
        parameters: further parameters, as Python values.
    """
    return load_python_file(spec, **parameters) if is_python_file(spec) else make_sender(spec, **parameters)


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
    name, _, rest = spec.partition(":")
    attribute, _, parameters = rest.partition(":")
    file = FilePath(name)
    if file.stem in AGENTS:
        raise InputError(f"{name}: {file.stem!r} is the name of a registered agent; give the file another name")
    content = read_bounded(file, MAX_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    module = _run(file.resolve(), sha256)
    given = {**parse_parameters(parameters), **more}
    found = _attribute(module, attribute, name)
    label = file.stem if attribute in ("", "sender") else f"{file.stem}.{attribute}"
    return _build(found, given, label, f"{name}:{attribute}" if attribute else name, sha256)


def _run(file: FilePath, sha256: str) -> ModuleType:
    """Return the module of a file; the same content is run once."""
    name = f"ccenv_user_{file.stem}_{hashlib.sha256(f'{file}:{sha256}'.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file.name}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{_where(file, error)}: {type(error).__name__}: {error}") from error
    return module


def _where(file: FilePath, error: BaseException) -> str:
    """Return the file's name with the line in it at which an error came up."""
    if isinstance(error, SyntaxError):
        return f"{file.name}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file.name}:{lines[-1]}" if lines else file.name


def _attribute(module: ModuleType, attribute: str, name: str) -> Any:
    if attribute:
        if not hasattr(module, attribute):
            names = [n for n in vars(module) if not n.startswith("_")]
            raise InputError(f"{name} has no {shown(attribute)}.{did_you_mean(attribute, names)}")
        return getattr(module, attribute)
    if callable(getattr(module, "sender", None)):
        return module.sender
    classes = [
        c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, PythonSender) and c.__module__ == module.__name__
    ]
    if len(classes) == 1:
        return classes[0]
    if len(classes) > 1:
        raise InputError(f"{name} has several senders: name one, as in {name}:{classes[0].__name__}")
    if hasattr(module, "STATE") and hasattr(module, "on_ack"):
        return lambda: classic_sender("", module, module.STATE)
    raise InputError(f"{name} defines no sender; what it can define: {_FORMS}")


def _build(found: Any, given: dict[str, Any], label: str, where: str, sha256: str) -> Sender:
    if isinstance(found, ClassicSender):
        found = _constant(found)
    if not callable(found):
        raise InputError(f"{where} is {shown(type(found).__name__)}; what it can be: {_FORMS}")
    known = list(inspect.signature(found).parameters)
    for key in given:
        if key not in known:
            raise InputError(f"{where}: unknown parameter {shown(key)}.{did_you_mean(key, known) if known else ''}")
    if inspect.isclass(found) and issubclass(found, PythonSender):
        return python_sender(found, given, label=label, source_sha256=sha256)
    try:
        sender = found(**given)
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{where}: {type(error).__name__}: {error}") from error
    if not isinstance(sender, Sender):
        raise InputError(f"{where} returned {shown(type(sender).__name__)}, not a sender")
    if not isinstance(sender, ClassicSender):
        return sender
    return ClassicSender(
        label, sender.state, sender.init, sender.on_ack, sender.on_loss, sender.on_tick, sender.parameters, sha256
    )


def _constant(sender: ClassicSender) -> Callable[[], ClassicSender]:
    return lambda: sender


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
        InputError: if an object cannot be built.
    """
    source, given = inspect.getsourcefile(kind) or "", dict(parameters or {})
    bridge = Bridge(lambda: kind(**given), source)
    try:
        kind(**given)
    except Exception as error:
        raise InputError(f"{_where(FilePath(source), error)}: {type(error).__name__}: {error}") from error
    settings = ",".join(f"{key}={value}" for key, value in sorted(given.items()))
    state = state_record(STATE_FIELD)
    name = (label or kind.__name__) + (f":{settings}" if settings else "")
    return ClassicSender(name, state, bridge.init, bridge.on_ack, bridge.on_loss, bridge.on_tick, {}, source_sha256)
