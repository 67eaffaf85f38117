"""A classic CCA as plain Python, helpers too: what is compiled for engines is not compiled once more to be called from Python."""

from dataclasses import replace
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ccenv.agents.sender import ClassicSender


class PlainRecord:
    """A record whose fields are float64 throughout. Those of an array do the same, and take 20 times as long."""

    def __init__(self, dtype: np.dtype, **values: float) -> None:
        vars(self).update(dict.fromkeys(dtype.names or (), np.float64(0.0)))
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: float) -> None:
        if name not in vars(self):
            raise AttributeError(name)
        vars(self)[name] = np.float64(value)


_COPIES: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}  # by the identity of a module's names: these, and theirs in Python


def _plain_names(names: dict[str, Any]) -> dict[str, Any]:
    if id(names) not in _COPIES:
        copy = dict(names)
        _COPIES[id(names)] = names, copy
        for name, value in names.items():
            if isinstance(value, ModuleType) and value.__name__.startswith("ccenv.agents.classic"):
                copy[name] = SimpleNamespace(**_plain_names(vars(value)))
            elif hasattr(value, "py_func") and value.py_func.__module__ != "ccenv.base.random":
                copy[name] = plain(value.py_func)
    return _COPIES[id(names)][1]


def plain(function: Any) -> Any:
    """Return a function that sees the compiled ones of its module as plain Python; random numbers stay compiled."""
    if not isinstance(function, FunctionType):
        return function
    names = _plain_names(function.__globals__)
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def plain_sender(sender: ClassicSender) -> ClassicSender:
    functions = ("init", "on_ack", "on_loss", "on_tick")
    return replace(sender, **{name: plain(getattr(sender, name)) for name in functions})
