"""Elements of an observation that a user computes: functions of the table's signals beside them, in plain Python.

Rewards that a user computes: a function of the table's terms, in plain Python, called for each flow and step.
"""

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

MAX_ELEMENTS = 64
"""Elements that functions may add to one observation."""
_FUNCTION, _RANGES = "signals", "RANGES"
_PROBES, _WIDEST = 8, 16.0  # random observations of the rehearsal, and the largest number in them


class OwnSignals(StrictModel):
    """A function that adds elements to an observation.

    Attributes:
        spec: the Python file, ``FILE.py`` or ``FILE.py:NAME``, or the name of a plugin; empty for a given function.
    """

    spec: str = Field(default="")
    _function: Callable[[Any], Any] = PrivateAttr()
    _source: str = PrivateAttr()
    _ranges: Mapping[str, Sequence[float]] = PrivateAttr()
    _bound: dict[Any, BoundSignals] = PrivateAttr(default_factory=dict)

    @model_serializer
    def _as_written(self) -> str:
        return self.spec or f"{FilePath(self._source).name}, function {self.label}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by reading the file again, or by the function's name."""
        return load_signals, (self.spec or self._function,)

    def __deepcopy__(self, memo: Any = None) -> OwnSignals:
        """Return itself: it keeps nothing that changes."""
        return self

    @property
    def label(self) -> str:
        """Name of the function."""
        return str(getattr(self._function, "__name__", _FUNCTION))

    def bound(self, names: tuple[str, ...], history: int) -> BoundSignals:
        """Return the elements over an observation, rehearsed once. Raises InputError with file and line."""
        key = (names, history)
        if key not in self._bound:
            self._bound[key] = BoundSignals(self, names, history)
        return self._bound[key]


class BoundSignals:
    """What a function adds to an observation of some signals.

    Attributes:
        elements: names of what it adds.
        low, high: (n,) ranges; infinite where the file names none.
    """

    def __init__(self, own: OwnSignals, names: tuple[str, ...], history: int) -> None:
        """Rehearse the function on an idle flow and on random observations.

        Args:
            own: the function.
            names: of the table's signals in the observation.
            history: intervals that it holds.
        """
        self._own, self._history, self._width = own, history, len(names)
        kind: Any = namedtuple("Seen", names)  # type: ignore[misc]  # the names of a table
        self._make = kind._make
        numbers = [SIGNAL_NUMBERS[name] for name in names]
        low, high = np.tile(SIGNALS_LOW[numbers], history), np.tile(SIGNALS_HIGH[numbers], history)
        low, high = np.maximum(low, -_WIDEST), np.minimum(high, _WIDEST)
        shares = np.random.Generator(np.random.Philox(0)).random((_PROBES, len(low)))
        seen = np.vstack([np.clip(0.0, low, high), low, high, low + shares * (high - low)])
        first = self._guarded(lambda: own._function(self._intervals(seen[0].tolist())))
        self.elements = self._names(first)
        self.low, self.high = self._range()
        if not np.array_equal(self.values(seen), self.values(seen)):
            raise InputError(f"{self._where}: {own.label} gives other numbers for the same signals; it must keep nothing")

    @property
    def _where(self) -> str:
        return find_line(self._own._function, self._own._source)

    def _guarded(self, act: Callable[[], Any]) -> Any:
        """Act under the time limit. Raises InputError with file and line for whatever the function raises."""
        own = self._own
        try:
            with limits.limited(own.label, limits.CALL_LIMIT_S):
                return act()
        except InputError:
            raise
        except Exception as error:
            where = place(own._source, error)
            raise InputError(f"{where if ':' in where else self._where}: {own.label}: {said(error)}") from error

    def _intervals(self, row: list[float]) -> list[Any]:
        n = self._width
        return [self._make(row[at : at + n]) for at in range(0, n * self._history, n)]

    def _names(self, found: Any) -> tuple[str, ...]:
        if isinstance(found, Mapping):
            names = tuple(map(str, found))
        else:
            many = len(found) if isinstance(found, (Sequence, np.ndarray)) and not isinstance(found, str) else 0
            names = tuple(f"{self._own.label}_{i}" for i in range(many)) or (self._own.label,)
        if not 1 <= len(names) <= MAX_ELEMENTS:
            raise InputError(f"{self._where}: {self._own.label} gives {len(names)} elements; 1 to {MAX_ELEMENTS} are allowed")
        for name in names:
            if name in SIGNAL_NUMBERS:
                raise InputError(f"{self._where}: {name!r} is the name of a signal of the table; give it another name")
        return names

    def _range(self) -> tuple[np.ndarray, np.ndarray]:
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
        given = [ranges.get(name, (-math.inf, math.inf)) for name in self.elements]
        return np.array([float(ends[0]) for ends in given]), np.array([float(ends[1]) for ends in given])

    def _row(self, row: list[float]) -> list[float]:
        found = self._own._function(self._intervals(row))
        if isinstance(found, Mapping):
            if tuple(found) != self.elements:
                raise ValueError(f"gave {', '.join(map(str, found))}; at first it gave {', '.join(self.elements)}")
            numbers = [float(value) for value in found.values()]
        elif isinstance(found, (Sequence, np.ndarray)):
            numbers = [float(value) for value in found]
        else:
            numbers = [float(found)]
        if len(numbers) != len(self.elements):
            raise ValueError(f"gave {len(numbers)} elements; at first it gave {len(self.elements)}")
        for name, number in zip(self.elements, numbers, strict=True):
            if not math.isfinite(number):
                newest = self._intervals(row)[-1]
                raise ValueError(f"{name} is {number} for {newest}")
        return numbers

    def values(self, seen: np.ndarray) -> np.ndarray:
        """Return the elements, clipped to their ranges.

        Args:
            seen: (..., history * signals) of the table, the oldest interval first.

        Returns:
            np.ndarray: (..., n) float64.

        Raises:
            InputError: with file and line, where the function raises, does not come back, or gives no finite number.
        """
        rows = np.asarray(seen, np.float64)
        found = self._guarded(lambda: [self._row(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()])
        shaped: np.ndarray = np.array(found, np.float64).reshape(*rows.shape[:-1], len(self.elements))
        np.clip(shaped, self.low, self.high, out=shaped)
        return shaped


class ExtraSignals:
    """All that functions add to one observation.

    Attributes:
        parts: one for each function.
        n_seen: numbers of the table that they compute from.
        failure: what a function raised within a call of an engine, until ``raise_failure``.
    """

    def __init__(self, owns: Sequence[OwnSignals], names: tuple[str, ...], history: int) -> None:
        """Rehearse the functions over an observation of the table's signals. Raises InputError with file and line."""
        self._made_with = (tuple(owns), names, history)
        self.parts = tuple(own.bound(names, history) for own in owns)
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
        """Names of what is added."""
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
        """Return what all functions add, (..., n) float64; arguments and errors as of ``BoundSignals.values``."""
        return np.concatenate([part.values(seen) for part in self.parts], axis=-1)

    def raise_failure(self) -> None:
        """Raise what a function raised within a call of an engine."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure


def is_own_signals(value: object) -> bool:
    """Tell whether an entry of ``signals`` is a function of one's own: itself, a Python file, or the name of a plugin."""
    if isinstance(value, OwnSignals) or is_python_file(value) or (callable(value) and not isinstance(value, type)):
        return True
    known = isinstance(value, str) and (value in SIGNAL_NUMBERS or value in SIGNAL_SETS)
    return isinstance(value, str) and not known and installed.find("signals", value, SIGNAL_NUMBERS) is not None


def as_signals(value: Any) -> Any:
    """Return the setting ``signals`` with functions of one's own loaded; everything else is left as it is.

    Raises:
        InputError: one line with file and line, for a file that does not run or has no such function.
    """
    if is_own_signals(value):
        raise InputError(f"signals: {shown(value)} computes from signals of the table: name them beside it, in a list")
    if not isinstance(value, (list, tuple)) or not any(is_own_signals(one) for one in value):
        return value
    return tuple(load_signals(one) if is_own_signals(one) else one for one in value)


def split(signals: Any) -> tuple[Any, tuple[OwnSignals, ...]]:
    """Return the table's part of a setting ``signals`` that ``as_signals`` has returned, and the functions in it.

    The table's part is the name of a set where that is all there is.
    """
    if not isinstance(signals, (list, tuple)):
        return signals, ()
    owns = tuple(one for one in signals if isinstance(one, OwnSignals))
    if not owns:
        return signals, ()
    of_table = [one for one in signals if not isinstance(one, OwnSignals)]
    if not of_table:
        raise InputError("signals: a function of one's own computes from signals of the table: name them beside it")
    is_set = len(of_table) == 1 and of_table[0] not in SIGNAL_NUMBERS
    return (of_table[0] if is_set else tuple(of_table)), owns


def load_signals(value: Any) -> OwnSignals:
    """Return a function of one's own, and warn once that it is slow.

    Args:
        value: a function of the intervals seen, the newest last; ``FILE.py`` with a function ``signals`` and perhaps ``RANGES``,
            element: (low, high), for it; ``FILE.py:NAME``, or ``FILE.py:NAME:key=value,...`` for a function that returns one;
            the name of a plugin. Other functions may have their ``RANGES`` as an attribute.

    Raises:
        InputError: one line with file and line, for a file that does not run or has no such function.
    """
    if isinstance(value, OwnSignals):
        return value
    spec, ranges = "", getattr(value, _RANGES, {})
    if is_python_file(value):
        asked = read_spec(value)
        user = load_file(asked.file, "signal", [signal.name for signal in SIGNALS])
        name = asked.attribute or _FUNCTION
        if not asked.attribute and not hasattr(user.module, name):
            hint = did_you_mean(name, [n for n, one in vars(user.module).items() if inspect.isfunction(one)])
            raise InputError(f"{asked.file}: a function signals(seen) is needed.{hint}")
        function = get_attribute(user.module, name, asked.file)
        function = call(function, asked.parameters, asked.where, user.path) if asked.parameters else function
        source, spec = str(user.path), f"{user.path}{value[len(asked.file) :]}"
        own = getattr(user.module, _RANGES, {}) if name == _FUNCTION else {}
        ranges = getattr(function, _RANGES, own)
    elif isinstance(value, str):
        plugin = installed.find("signals", value, SIGNAL_NUMBERS)
        if plugin is None:
            raise unknown_name("signal", value, SIGNAL_NUMBERS)
        function, file, _ = installed.load(plugin)
        source, spec, ranges = str(file), value, getattr(function, _RANGES, {})
    else:
        function, source = value, find_source(value)
    require_arguments(function, ("seen",), source, getattr(function, "__name__", _FUNCTION))
    found = OwnSignals(spec=spec)
    found._function, found._source, found._ranges = function, source, ranges
    name = FilePath(source).name
    warnings.warn(f"the signals of {name} are plain Python: slower than those of the table", CcenvWarning, stacklevel=2)
    return found


StepTerms = namedtuple("StepTerms", [term.name for term in TERMS])  # type: ignore[misc]  # the names of a table
"""The terms of one flow and step, by name: ``terms.throughput``, ``terms.queue``, ..."""
_REWARD_FUNCTION = "reward"


class OwnReward(StrictModel):
    """A reward of one's own.

    Attributes:
        spec: the Python file, ``FILE.py`` or ``FILE.py:NAME``; empty for a function that was given as it is.
    """

    spec: str = Field(default="")
    _function: Callable[[Any], Any] = PrivateAttr()
    _source: str = PrivateAttr()

    @model_serializer
    def _as_written(self) -> str:
        name = getattr(self._function, "__name__", _REWARD_FUNCTION)
        return self.spec or f"{FilePath(self._source).name}, function {name}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by reading the file again, or by the function's name."""
        return own_reward, (self.spec or self._function,)

    def vector(self) -> np.ndarray:
        """Refuse to be weights. Raises InputError."""
        raise InputError(f"the reward is {self._as_written()}, plain Python; weights of terms by name are needed here")

    def values(self, terms: np.ndarray) -> np.ndarray:
        """Return the rewards of terms (..., N_TERMS) of the table: (...), float64.

        Raises:
            InputError: with file and line, where the function raises, does not come back, or gives no finite number.
        """
        rows = terms.reshape(-1, len(TERMS)).tolist()
        try:
            with limits.limited(_REWARD_FUNCTION, limits.CALL_LIMIT_S):
                found = [float(self._function(StepTerms._make(row))) for row in rows]
        except Exception as error:
            raise InputError(f"{place(self._source, error)}: {said(error)}") from error
        for row, value in zip(rows, found, strict=True):
            if not math.isfinite(value):
                raise InputError(f"{FilePath(self._source).name}: the reward is {value} for {StepTerms._make(row)}")
        return np.array(found).reshape(terms.shape[:-1])


def is_own_reward(value: object) -> bool:
    """Tell whether a setting is a reward of one's own: a function, or a Python file."""
    return isinstance(value, OwnReward) or is_python_file(value) or (callable(value) and not isinstance(value, type))


def own_reward(value: Any) -> OwnReward:
    """Return a reward of one's own, and warn once that it is slow.

    Args:
        value: a function of ``StepTerms``; or ``FILE.py`` with a function ``reward``, ``FILE.py:NAME``, or
            ``FILE.py:NAME:key=value,...`` for a function that returns one.

    Raises:
        InputError: one line with file and line, for a file that does not run or has no such function.
    """
    if isinstance(value, OwnReward):
        return value
    if isinstance(value, str):
        asked = read_spec(value)
        user = load_file(asked.file, "reward", REWARDS)
        name = asked.attribute or _REWARD_FUNCTION
        if not asked.attribute and not hasattr(user.module, name):
            hint = did_you_mean(name, [n for n, one in vars(user.module).items() if inspect.isfunction(one)])
            raise InputError(f"{asked.file}: a function reward(terms) is needed.{hint}")
        function = get_attribute(user.module, name, asked.file)
        function = call(function, asked.parameters, asked.where, user.path) if asked.parameters else function
        source, spec = str(user.path), f"{user.path}{value[len(asked.file) :]}"
    else:
        function, source, spec = value, find_source(value), ""
    require_arguments(function, ("terms",), source, getattr(function, "__name__", _REWARD_FUNCTION))
    found = OwnReward(spec=spec)
    found._function, found._source = function, source
    name = FilePath(source).name
    warnings.warn(f"the reward of {name} is plain Python: slower than weights of the table's terms", CcenvWarning, stacklevel=2)
    return found
