"""Metrics that a user brings: a Python file or an installed plugin. No suite or record of others is loaded so."""

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

from ccenv.base.errors import CcenvError, CcenvWarning, InputError, did_you_mean, shown, unknown_name
from ccenv.base.user import installed, limits
from ccenv.base.user.python_file import (
    find_line,
    find_source,
    get_attribute,
    is_python_file,
    load_file,
    place,
    read_spec,
    require_arguments,
    said,
)
from ccenv.network.metrics.measures import UNDEFINED
from ccenv.network.metrics.table import METRICS, Direction, Metric, add_metric, own_metric

_FORMS = (
    "DIRECTION ('higher', 'lower' or 'neither'), UNIT, and of_trace(window) or of_run(window) or both, "
    "or an object of ccenv.network.metrics.table.Metric"
)


@dataclass(frozen=True)
class OwnMetric:
    """A user's metric as workers load it again.

    Attributes:
        name: what tables and records call it.
        spec: the file or plugin.
        sha256: of the file that defines it.
    """

    name: str
    spec: str
    sha256: str


def load_metric(spec: str) -> OwnMetric:
    """Load a metric of a user, whose code runs, and make its name known in this process.

    Args:
        spec: ``FILE.py`` or ``FILE.py:ATTRIBUTE``, or the name of a plugin.

    Returns:
        OwnMetric: its name is that of the file, or of the attribute.

    Raises:
        UnknownNameError: if there is no such plugin.
        InputError: one line with file and line, if the code cannot be run or does not define a metric.
    """
    if is_python_file(spec):
        asked = read_spec(spec)
        user = load_file(asked.file, "metric", METRICS)
        found = get_attribute(user.module, asked.attribute, asked.file) if asked.attribute else _found(user.module)
        name = asked.attribute or FilePath(asked.file).stem
        path, sha256 = user.path, user.sha256
    else:
        plugin = installed.find("metric", spec, METRICS)
        if plugin is None:
            others = [plugin.name for plugin in installed.plugins("metric", METRICS) if not plugin.problem]
            raise unknown_name("metric", spec, [*METRICS, *others])
        found, path, sha256 = installed.load(plugin)
        name = plugin.name
    metric = _metric(found, name, path)
    add_metric(
        replace(metric, of_trace=_guarded(metric.of_trace, name, path), of_run=_guarded(metric.of_run, name, path)), sha256
    )
    return OwnMetric(name, spec, sha256)


def require_metric(own: OwnMetric) -> None:
    """Make a metric known in this process, a worker. Raises InputError if its file is another than at the start of the run."""
    if own_metric(own.name) != own.sha256 and load_metric(own.spec).sha256 != own.sha256:
        raise InputError(f"metric {own.spec} changed while the run went on: run it again")


def _found(module: ModuleType) -> Any:
    return getattr(module, "metric", module)


def _metric(found: Any, name: str, path: FilePath) -> Metric:
    if name in METRICS:
        where = find_line(getattr(found, "of_run", None) or getattr(found, "of_trace", None), str(path))
        raise InputError(f"{where}: {name!r} is the name of a registered metric; give yours another name")
    if not name.isidentifier():
        raise InputError(f"{path.name}: {name!r} is no name of a metric; letters, digits and _ are allowed")
    if isinstance(found, Metric):
        metric = replace(found, name=name)
    elif isinstance(found, ModuleType):
        metric = _of_module(found, name, path)
    else:
        raise InputError(f"{path.name}: {shown(type(found).__name__)} is no metric; what it can be: {_FORMS}")
    if metric.of_trace is None and metric.of_run is None:
        raise InputError(f"{path.name} defines no metric; what it can define: {_FORMS}")
    for label, function in (("of_trace", metric.of_trace), ("of_run", metric.of_run)):
        if function is not None:
            require_arguments(function, ("window",), str(path), label)
    if metric.direction not in get_args(Direction):
        hint = did_you_mean(str(metric.direction), get_args(Direction))
        raise InputError(f"{path.name}: DIRECTION is {shown(metric.direction)}.{hint}")
    return metric


def _of_module(module: ModuleType, name: str, path: FilePath) -> Metric:
    functions = {label: getattr(module, label, None) for label in ("of_trace", "of_run")}
    if any(functions.values()) and not hasattr(module, "DIRECTION"):
        raise InputError(f"{path.name}: DIRECTION missing; 'higher', 'lower' or 'neither' is better")
    meaning = (inspect.getdoc(module) or name).partition("\n")[0]
    label = str(getattr(module, "LABEL", name.replace("_", " ")))
    return Metric(name, label, str(getattr(module, "UNIT", "")), getattr(module, "DIRECTION", "neither"), meaning, **functions)


def _guarded(function: Callable[[Any], Any] | None, name: str, path: FilePath) -> Callable[[Any], float] | None:
    """Return a function that is undefined, with a warning, where the user's raises or gives no number."""
    if function is None:
        return None

    def value(window: Any) -> float:
        try:
            with limits.limited(name, limits.CALL_LIMIT_S):
                found = function(window)
        except CcenvError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{place(path, error)}: {said(error)}"
        else:
            if isinstance(found, Real) and math.isfinite(found):
                return float(found)
            label = getattr(function, "__name__", name)
            problem = f"{find_line(function, find_source(function))}: {label} returned {shown(found)}; a finite number is needed"
        warnings.warn(f"metric {name!r} is left out: {problem}", CcenvWarning, stacklevel=2)
        return UNDEFINED

    return value
