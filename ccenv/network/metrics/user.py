"""Metrics of users: a Python file or an installed plugin. Code named by suites or records of others is never loaded."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any, get_args

from ccenv.base.errors import CcenvError, CcenvWarning, InputError, did_you_mean, shown
from ccenv.base.user.loader import Guard, Loaded, UserKind
from ccenv.base.user.python_file import find_line, find_source, require_arguments
from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.metrics.table import METRICS, Direction, Metric, add_metric, own_metric

_FORMS = (
    "DIRECTION ('higher', 'lower' or 'neither'), UNIT, and of_trace(window) or of_run(window) or both, "
    "or an object of ccenv.network.metrics.table.Metric"
)


@dataclass(frozen=True)
class OwnMetric:
    """A user's metric as workers load it again: its name, its file or plugin, and the hash of the file."""

    name: str
    spec: str
    sha256: str


def load_metric(spec: str) -> OwnMetric:
    """Load a user's metric, ``FILE.py``, ``FILE.py:ATTRIBUTE`` or the name of a plugin, and register it in this process.

    Raises:
        UnknownNameError: if there is no such plugin.
        InputError: one line with file and line, if the code cannot be run or does not define a metric.
    """
    loaded = USER_METRICS.load(spec)
    metric = loaded.value
    of_trace, of_run = (_guard(function, metric.name, loaded.file) for function in (metric.of_trace, metric.of_run))
    add_metric(replace(metric, of_trace=of_trace, of_run=of_run), loaded.sha256)
    return OwnMetric(metric.name, spec, loaded.sha256)


def require_metric(metric: OwnMetric) -> None:
    """Register a metric in this worker process. Raises InputError if its file has changed since the start of the run."""
    if own_metric(metric.name) != metric.sha256 and load_metric(metric.spec).sha256 != metric.sha256:
        raise InputError(f"metric {metric.spec} changed while the run went on: run it again")


def _accept(code: Loaded[Any]) -> Metric:
    definition, name, path = code.value, code.attribute or code.label, code.file
    if name in METRICS:
        location = find_line(getattr(definition, "of_run", None) or getattr(definition, "of_trace", None), str(path))
        raise InputError(f"{location}: {name!r} is the name of a registered metric; give yours another name")
    if not name.isidentifier():
        raise InputError(f"{path.name}: {name!r} is no name of a metric; letters, digits and _ are allowed")
    if isinstance(definition, Metric):
        metric = replace(definition, name=name)
    elif isinstance(definition, ModuleType):
        metric = _read_module(definition, name, path)
    else:
        raise InputError(f"{path.name}: {shown(type(definition).__name__)} is no metric; what it can be: {_FORMS}")
    if metric.of_trace is None and metric.of_run is None:
        raise InputError(f"{path.name} defines no metric; what it can define: {_FORMS}")
    for label, function in (("of_trace", metric.of_trace), ("of_run", metric.of_run)):
        if function is not None:
            require_arguments(function, ("window",), str(path), label)
    if metric.direction not in get_args(Direction):
        hint = did_you_mean(str(metric.direction), get_args(Direction))
        raise InputError(f"{path.name}: DIRECTION is {shown(metric.direction)}.{hint}")
    return metric


def _read_module(module: ModuleType, name: str, path: FilePath) -> Metric:
    functions = {label: getattr(module, label, None) for label in ("of_trace", "of_run")}
    if any(functions.values()) and not hasattr(module, "DIRECTION"):
        raise InputError(f"{path.name}: DIRECTION missing; 'higher', 'lower' or 'neither' is better")
    meaning = (inspect.getdoc(module) or name).partition("\n")[0]
    label = str(getattr(module, "LABEL", name.replace("_", " ")))
    return Metric(name, label, str(getattr(module, "UNIT", "")), getattr(module, "DIRECTION", "neither"), meaning, **functions)


USER_METRICS: UserKind[Metric] = UserKind(
    "metric", lambda: METRICS, "metric", _accept, _FORMS, fallback=lambda module, file: module
)


def _guard(function: Callable[[Any], Any] | None, name: str, path: FilePath) -> Callable[[Any], float] | None:
    """Wrap a function so that it warns and returns UNDEFINED if it raises or returns no finite number."""
    if function is None:
        return None

    def value(window: Any) -> float:
        try:
            result = Guard(path, passes=CcenvError).call(name, function, window)
        except CcenvError as error:
            problem = str(error)
        else:
            if isinstance(result, Real) and math.isfinite(result):
                return float(result)
            label = getattr(function, "__name__", name)
            problem = f"{find_line(function, find_source(function))}: {label} returned {shown(result)}; a finite number is needed"
        warnings.warn(f"metric {name!r} is left out: {problem}", CcenvWarning, stacklevel=2)
        return UNDEFINED

    return value
