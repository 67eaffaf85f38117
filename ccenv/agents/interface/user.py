"""User-defined observation elements and rewards: plain Python functions of the table's signals and reward terms."""

from __future__ import annotations

import inspect
import math
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from pydantic import Field, PrivateAttr, model_serializer

from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.agents.interface.signals import SIGNAL_NUMBERS, SIGNAL_SETS, SIGNALS, SIGNALS_HIGH, SIGNALS_LOW
from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvWarning, InputError, did_you_mean, shown, unknown_name
from ccenv.base.user import installed, limits
from ccenv.base.user.python_file import (
    call,
    describe_error,
    find_line,
    find_source,
    get_attribute,
    is_python_file,
    load_file,
    place,
    read_spec,
    require_arguments,
)

MAX_ELEMENTS = 64
"""Elements that functions may add to one observation."""
_FUNCTION, _RANGES = "signals", "RANGES"
_PROBES, _WIDEST = 8, 16.0  # random observations of the smoke test, and the largest number in them


class OwnSignals(StrictModel):
    """A user function that adds elements to an observation.

    Attributes:
        spec: the Python file, ``FILE.py`` or ``FILE.py:NAME``, or the name of a plugin; empty for a function object.
    """

    spec: str = Field(default="")
    _function: Callable[[Any], Any] = PrivateAttr()
    _source: str = PrivateAttr()
    _ranges: Mapping[str, Sequence[float]] = PrivateAttr()
    _bound: dict[Any, BoundSignals] = PrivateAttr(default_factory=dict)

    @model_serializer
    def _serialize(self) -> str:
        return self.spec or f"{FilePath(self._source).name}, function {self.label}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by spec, or by the function's name."""
        return load_signals, (self.spec or self._function,)

    def __deepcopy__(self, memo: Any = None) -> OwnSignals:
        """Return itself: it is immutable."""
        return self

    @property
    def label(self) -> str:
        """Name of the function."""
        return str(getattr(self._function, "__name__", _FUNCTION))

    def bound(self, names: tuple[str, ...], history: int) -> BoundSignals:
        """Return the elements over an observation, smoke-tested once. Raises InputError with file and line."""
        key = (names, history)
        if key not in self._bound:
            self._bound[key] = BoundSignals(self, names, history)
        return self._bound[key]


class BoundSignals:
    """The elements that a function adds to an observation of some signals; their ranges are infinite by default."""

    def __init__(self, function: OwnSignals, names: tuple[str, ...], history: int) -> None:
        """Smoke-test the function on an idle flow and on random observations of signals by name over ``history`` intervals."""
        self._own, self._history, self._width = function, history, len(names)
        row_type: Any = namedtuple("Seen", names)  # type: ignore[misc]  # the names of a table
        self._make = row_type._make
        numbers = [SIGNAL_NUMBERS[name] for name in names]
        low, high = np.tile(SIGNALS_LOW[numbers], history), np.tile(SIGNALS_HIGH[numbers], history)
        low, high = np.maximum(low, -_WIDEST), np.minimum(high, _WIDEST)
        shares = np.random.Generator(np.random.Philox(0)).random((_PROBES, len(low)))
        seen = np.vstack([np.clip(0.0, low, high), low, high, low + shares * (high - low)])
        first = self._call(lambda: function._function(self._split_intervals(seen[0].tolist())))
        self.elements = self._read_names(first)
        self.low, self.high = self._read_ranges()
        if not np.array_equal(self.values(seen), self.values(seen)):
            raise InputError(f"{self._location}: {function.label} gives other numbers for the same signals; it must keep nothing")

    @property
    def _location(self) -> str:
        return find_line(self._own._function, self._own._source)

    def _call(self, act: Callable[[], Any]) -> Any:
        """Call under the time limit. Raises InputError with file and line for whatever the function raises."""
        function = self._own
        try:
            with limits.limited(function.label, limits.CALL_LIMIT_S):
                return act()
        except InputError:
            raise
        except Exception as error:
            location = place(function._source, error)
            raise InputError(
                f"{location if ':' in location else self._location}: {function.label}: {describe_error(error)}"
            ) from error

    def _split_intervals(self, row: list[float]) -> list[Any]:
        n = self._width
        return [self._make(row[at : at + n]) for at in range(0, n * self._history, n)]

    def _read_names(self, result: Any) -> tuple[str, ...]:
        if isinstance(result, Mapping):
            names = tuple(map(str, result))
        else:
            count = len(result) if isinstance(result, (Sequence, np.ndarray)) and not isinstance(result, str) else 0
            names = tuple(f"{self._own.label}_{i}" for i in range(count)) or (self._own.label,)
        if not 1 <= len(names) <= MAX_ELEMENTS:
            raise InputError(f"{self._location}: {self._own.label} gives {len(names)} elements; 1 to {MAX_ELEMENTS} are allowed")
        for name in names:
            if name in SIGNAL_NUMBERS:
                raise InputError(f"{self._location}: {name!r} is the name of a signal of the table; give it another name")
        return names

    def _read_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        ranges, file = self._own._ranges, FilePath(self._own._source).name
        if not isinstance(ranges, Mapping):
            raise InputError(f"{file}: {_RANGES} is {shown(ranges)}; a table of element: (low, high) is needed")
        for name, ends in ranges.items():
            if name not in self.elements:
                hint = did_you_mean(str(name), self.elements)
                raise InputError(f"{file}: {_RANGES} names {shown(name)}, which {self._own.label} does not give.{hint}")
            if not (isinstance(ends, Sequence) and len(ends) == 2 and all(isinstance(x, (int, float)) for x in ends)):
                raise InputError(f"{file}: the range of {name!r} is {shown(ends)}; (low, high) is needed")
            if not ends[0] < ends[1]:
                raise InputError(f"{file}: the range of {name!r} is {shown(ends)}; low must be below high")
        limits = [ranges.get(name, (-math.inf, math.inf)) for name in self.elements]
        return np.array([float(ends[0]) for ends in limits]), np.array([float(ends[1]) for ends in limits])

    def _compute_row(self, row: list[float]) -> list[float]:
        result = self._own._function(self._split_intervals(row))
        if isinstance(result, Mapping):
            if tuple(result) != self.elements:
                raise ValueError(f"gave {', '.join(map(str, result))}; at first it gave {', '.join(self.elements)}")
            numbers = [float(value) for value in result.values()]
        elif isinstance(result, (Sequence, np.ndarray)):
            numbers = [float(value) for value in result]
        else:
            numbers = [float(result)]
        if len(numbers) != len(self.elements):
            raise ValueError(f"gave {len(numbers)} elements; at first it gave {len(self.elements)}")
        for name, number in zip(self.elements, numbers, strict=True):
            if not math.isfinite(number):
                newest = self._split_intervals(row)[-1]
                raise ValueError(f"{name} is {number} for {newest}")
        return numbers

    def values(self, seen: np.ndarray) -> np.ndarray:
        """Return the elements (..., n) float64, clipped to their ranges, of table signals (..., history * signals), oldest first.

        Raises:
            InputError: with file and line, if the function raises, overruns its limit, or gives no finite number.
        """
        rows = np.asarray(seen, np.float64)
        numbers = self._call(lambda: [self._compute_row(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()])
        shaped: np.ndarray = np.array(numbers, np.float64).reshape(*rows.shape[:-1], len(self.elements))
        np.clip(shaped, self.low, self.high, out=shaped)
        return shaped


class ExtraSignals:
    """All elements that functions add to one observation.

    Attributes:
        parts: one for each function.
        n_seen: length of the table part of the observation.
        failure: exception of a function within a call of an engine, until ``raise_failure``.
    """

    def __init__(self, functions: Sequence[OwnSignals], names: tuple[str, ...], history: int) -> None:
        """Smoke-test the functions over an observation of the table's signals. Raises InputError with file and line."""
        self._made_with = (tuple(functions), names, history)
        self.parts = tuple(function.bound(names, history) for function in functions)
        self.n_seen = len(names) * history
        self.failure: BaseException | None = None
        elements = self.elements
        if len(set(elements)) < len(elements) or len(elements) > MAX_ELEMENTS:
            raise InputError(f"signals: own elements {', '.join(elements)}; {MAX_ELEMENTS} distinct ones are allowed at most")

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by rebuilding: callbacks of engines cannot be copied."""
        return ExtraSignals, self._made_with

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExtraSignals) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    @property
    def elements(self) -> tuple[str, ...]:
        """Names of the elements."""
        return tuple(name for part in self.parts for name in part.elements)

    @property
    def low(self) -> np.ndarray:
        """Smallest values, (n,)."""
        return np.concatenate([part.low for part in self.parts])

    @property
    def high(self) -> np.ndarray:
        """Largest values, (n,)."""
        return np.concatenate([part.high for part in self.parts])

    def values(self, seen: np.ndarray) -> np.ndarray:
        """Return all elements, (..., n) float64; arguments and errors as of ``BoundSignals.values``."""
        return np.concatenate([part.values(seen) for part in self.parts], axis=-1)

    def raise_failure(self) -> None:
        """Re-raise the exception of a function within a call of an engine."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def is_user_signals(value: object) -> bool:
    """Tell whether an entry of ``signals`` is user code: a function, a Python file, or the name of a plugin."""
    if isinstance(value, OwnSignals) or is_python_file(value) or (callable(value) and not isinstance(value, type)):
        return True
    of_table = isinstance(value, str) and (value in SIGNAL_NUMBERS or value in SIGNAL_SETS)
    return isinstance(value, str) and not of_table and installed.find("signals", value, SIGNAL_NUMBERS) is not None


def as_signals(value: Any) -> Any:
    """Return the setting ``signals`` with user functions loaded; everything else is left as it is.

    Raises:
        InputError: one line with file and line, for a file that does not run or has no such function.
    """
    if is_user_signals(value):
        raise InputError(f"signals: {shown(value)} computes from signals of the table: name them beside it, in a list")
    if not isinstance(value, (list, tuple)) or not any(is_user_signals(one) for one in value):
        return value
    return tuple(load_signals(one) if is_user_signals(one) else one for one in value)


def split(signals: Any) -> tuple[Any, tuple[OwnSignals, ...]]:
    """Split a result of ``as_signals`` into table signals (or the name of a set, if that is all) and user functions."""
    if not isinstance(signals, (list, tuple)):
        return signals, ()
    functions = tuple(one for one in signals if isinstance(one, OwnSignals))
    if not functions:
        return signals, ()
    table_signals = [one for one in signals if not isinstance(one, OwnSignals)]
    if not table_signals:
        raise InputError("signals: a function of one's own computes from signals of the table: name them beside it")
    is_set = len(table_signals) == 1 and table_signals[0] not in SIGNAL_NUMBERS
    return (table_signals[0] if is_set else tuple(table_signals)), functions


def load_signals(value: Any) -> OwnSignals:
    """Load a user's signals function, and warn once that it is slow.

    Args:
        value: a function of the observed intervals, the newest last; ``FILE.py`` with a function ``signals`` and optionally
            its ``RANGES``, element: (low, high); ``FILE.py:NAME``, or ``FILE.py:NAME:key=value,...`` for a function that returns
            one; the name of a plugin. Other functions may have ``RANGES`` as an attribute.

    Raises:
        InputError: one line with file and line, for a file that does not run or has no such function.
    """
    if isinstance(value, OwnSignals):
        return value
    spec, ranges = "", getattr(value, _RANGES, {})
    if is_python_file(value):
        parsed = read_spec(value)
        user = load_file(parsed.file, "signal", [signal.name for signal in SIGNALS])
        name = parsed.attribute or _FUNCTION
        if not parsed.attribute and not hasattr(user.module, name):
            hint = did_you_mean(name, [n for n, one in vars(user.module).items() if inspect.isfunction(one)])
            raise InputError(f"{parsed.file}: a function signals(seen) is needed.{hint}")
        function = get_attribute(user.module, name, parsed.file)
        function = call(function, parsed.parameters, parsed.where, user.path) if parsed.parameters else function
        source, spec = str(user.path), f"{user.path}{value[len(parsed.file) :]}"
        file_ranges = getattr(user.module, _RANGES, {}) if name == _FUNCTION else {}
        ranges = getattr(function, _RANGES, file_ranges)
    elif isinstance(value, str):
        plugin = installed.find("signals", value, SIGNAL_NUMBERS)
        if plugin is None:
            raise unknown_name("signal", value, SIGNAL_NUMBERS)
        function, file, _ = installed.load(plugin)
        source, spec, ranges = str(file), value, getattr(function, _RANGES, {})
    else:
        function, source = value, find_source(value)
    require_arguments(function, ("seen",), source, getattr(function, "__name__", _FUNCTION))
    signals = OwnSignals(spec=spec)
    signals._function, signals._source, signals._ranges = function, source, ranges
    name = FilePath(source).name
    warnings.warn(f"the signals of {name} are plain Python: slower than those of the table", CcenvWarning, stacklevel=2)
    return signals


StepTerms = namedtuple("StepTerms", [term.name for term in TERMS])  # type: ignore[misc]  # the names of a table
"""The terms of one flow and step, by name: ``terms.throughput``, ``terms.queue``, ..."""
_REWARD_FUNCTION = "reward"


class OwnReward(StrictModel):
    """A user-defined reward.

    Attributes:
        spec: the Python file, ``FILE.py`` or ``FILE.py:NAME``; empty for a function object.
    """

    spec: str = Field(default="")
    _function: Callable[[Any], Any] = PrivateAttr()
    _source: str = PrivateAttr()

    @model_serializer
    def _serialize(self) -> str:
        name = getattr(self._function, "__name__", _REWARD_FUNCTION)
        return self.spec or f"{FilePath(self._source).name}, function {name}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by spec, or by the function's name."""
        return own_reward, (self.spec or self._function,)

    def vector(self) -> np.ndarray:
        """Raise InputError: a user-defined reward has no weights."""
        raise InputError(f"the reward is {self._serialize()}, plain Python; weights of terms by name are needed here")

    def values(self, terms: np.ndarray) -> np.ndarray:
        """Return the rewards of terms (..., N_TERMS) of the table: (...), float64.

        Raises:
            InputError: with file and line, if the function raises, overruns its limit, or gives no finite number.
        """
        rows = terms.reshape(-1, len(TERMS)).tolist()
        try:
            with limits.limited(_REWARD_FUNCTION, limits.CALL_LIMIT_S):
                rewards = [float(self._function(StepTerms._make(row))) for row in rows]
        except Exception as error:
            raise InputError(f"{place(self._source, error)}: {describe_error(error)}") from error
        for row, value in zip(rows, rewards, strict=True):
            if not math.isfinite(value):
                raise InputError(f"{FilePath(self._source).name}: the reward is {value} for {StepTerms._make(row)}")
        return np.array(rewards).reshape(terms.shape[:-1])


def is_own_reward(value: object) -> bool:
    """Tell whether a setting is a user-defined reward: a function or a Python file."""
    return isinstance(value, OwnReward) or is_python_file(value) or (callable(value) and not isinstance(value, type))


def own_reward(value: Any) -> OwnReward:
    """Load a user-defined reward, and warn once that it is slow.

    Args:
        value: a function of ``StepTerms``; or ``FILE.py`` with a function ``reward``, ``FILE.py:NAME``, or
            ``FILE.py:NAME:key=value,...`` for a function that returns one.

    Raises:
        InputError: one line with file and line, for a file that does not run or has no such function.
    """
    if isinstance(value, OwnReward):
        return value
    if isinstance(value, str):
        parsed = read_spec(value)
        user = load_file(parsed.file, "reward", REWARDS)
        name = parsed.attribute or _REWARD_FUNCTION
        if not parsed.attribute and not hasattr(user.module, name):
            hint = did_you_mean(name, [n for n, one in vars(user.module).items() if inspect.isfunction(one)])
            raise InputError(f"{parsed.file}: a function reward(terms) is needed.{hint}")
        function = get_attribute(user.module, name, parsed.file)
        function = call(function, parsed.parameters, parsed.where, user.path) if parsed.parameters else function
        source, spec = str(user.path), f"{user.path}{value[len(parsed.file) :]}"
    else:
        function, source, spec = value, find_source(value), ""
    require_arguments(function, ("terms",), source, getattr(function, "__name__", _REWARD_FUNCTION))
    reward = OwnReward(spec=spec)
    reward._function, reward._source = function, source
    name = FilePath(source).name
    warnings.warn(f"the reward of {name} is plain Python: slower than weights of the table's terms", CcenvWarning, stacklevel=2)
    return reward
