"""User-defined observation elements and rewards: plain Python functions of the table's signals and reward terms."""

from __future__ import annotations

import math
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field, PrivateAttr, model_serializer

from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.agents.interface.signals import SIGNAL_NUMBERS, SIGNAL_SETS, SIGNALS_HIGH, SIGNALS_LOW
from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvWarning, InputError, did_you_mean, shown
from ccenv.base.user.loader import Guard, Loaded, UserKind
from ccenv.base.user.python_file import find_line, find_source, is_python_file, read_spec, require_arguments

MAX_ELEMENTS = 64
"""Elements that functions may add to one observation."""
_RANGES = "RANGES"
_PROBES, _WIDEST = 8, 16.0  # random observations of the smoke test, and the largest number in them


class UserFunction(StrictModel):
    """A function of a user.

    Attributes:
        spec: the Python file, ``FILE.py`` or ``FILE.py:NAME``, or the name of a plugin; empty for a function object.
        usual: name of the function in a file.
        argument: that it takes.
        slow: for the warning that plain Python is slower, with the file's name.
    """

    usual: ClassVar[str]
    argument: ClassVar[str]
    slow: ClassVar[str]
    spec: str = Field(default="")
    _function: Callable[[Any], Any] = PrivateAttr()
    _source: str = PrivateAttr()

    @model_serializer
    def _serialize(self) -> str:
        return self.spec or f"{FilePath(self._source).name}, function {self.label}"

    @property
    def label(self) -> str:
        return str(getattr(self._function, "__name__", self.usual))


_Function = TypeVar("_Function", bound=UserFunction)


def _load_function(kind: UserKind[Any], form: type[_Function], value: Any) -> tuple[_Function, Loaded[Any] | None]:
    """Return a user's function of a file, a plugin (with what was loaded) or an object; warn that it is slow."""
    loaded, spec = None, ""
    if isinstance(value, str):
        loaded = kind.load(value)
        function, source = loaded.value, str(loaded.file)
        spec = f"{source}{value[len(read_spec(value).file) :]}" if is_python_file(value) else value
    else:
        function, source = value, find_source(value)
    require_arguments(function, (form.argument,), source, getattr(function, "__name__", form.usual))
    made = form(spec=spec)
    made._function, made._source = function, source
    warnings.warn(form.slow.format(FilePath(source).name), CcenvWarning, stacklevel=3)
    return made, loaded


def _accept(code: Loaded[Any]) -> Any:
    """Return a function; with parameters it returns one."""
    return None if code.parameters else code.value


class OwnSignals(UserFunction):
    """A user function that adds elements to an observation."""

    usual, argument = "signals", "seen"
    slow = "the signals of {} are plain Python: slower than those of the table"
    _ranges: Mapping[str, Sequence[float]] = PrivateAttr()
    _bound: dict[Any, BoundSignals] = PrivateAttr(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by spec, or by the function's name."""
        return load_signals, (self.spec or self._function,)

    def __deepcopy__(self, memo: Any = None) -> OwnSignals:
        """Return itself: it is immutable."""
        return self

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
        return Guard(self._own._source, self._own.label, self._location, InputError).call(self._own.label, act)

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

        Raises InputError with file and line, if the function raises, overruns its limit, or gives no finite number.
        """
        rows = np.asarray(seen, np.float64)
        numbers = self._call(lambda: [self._compute_row(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()])
        shaped: np.ndarray = np.array(numbers, np.float64).reshape(*rows.shape[:-1], len(self.elements))
        np.clip(shaped, self.low, self.high, out=shaped)
        return shaped


class ExtraSignals:
    """All elements that functions add to one observation."""

    def __init__(self, functions: Sequence[OwnSignals], names: tuple[str, ...], history: int) -> None:
        """Smoke-test the functions over an observation of the table's signals. Raises InputError with file and line."""
        self._made_with = (tuple(functions), names, history)
        self.parts = tuple(function.bound(names, history) for function in functions)
        self.n_seen = len(names) * history  # length of the table part of the observation
        self.failure: BaseException | None = None  # exception of a function within a call of an engine, until `raise_failure`
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
    return not of_table and USER_SIGNALS.is_user(value)


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
    signals, loaded = _load_function(USER_SIGNALS, OwnSignals, value)
    usual = loaded is not None and loaded.attribute in ("", OwnSignals.usual)
    signals._ranges = getattr(signals._function, _RANGES, getattr(loaded and loaded.module, _RANGES, {}) if usual else {})
    return signals


USER_SIGNALS: UserKind[Callable[[Any], Any]] = UserKind(
    "signals", lambda: SIGNAL_NUMBERS, OwnSignals.usual, _accept, "a function signals(seen)", registered="signal"
)


StepTerms = namedtuple("StepTerms", [term.name for term in TERMS])  # type: ignore[misc]  # the names of a table
"""The terms of one flow and step, by name: ``terms.throughput``, ``terms.queue``, ..."""


class OwnReward(UserFunction):
    """A user-defined reward."""

    usual, argument = "reward", "terms"
    slow = "the reward of {} is plain Python: slower than weights of the table's terms"

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by spec, or by the function's name."""
        return own_reward, (self.spec or self._function,)

    def vector(self) -> np.ndarray:
        """Raise InputError: a user-defined reward has no weights."""
        raise InputError(f"the reward is {self._serialize()}, plain Python; weights of terms by name are needed here")

    def values(self, terms: np.ndarray) -> np.ndarray:
        """Return the rewards of terms (..., N_TERMS) of the table: (...), float64.

        Raises InputError with file and line, if the function raises, overruns its limit, or gives no finite number.
        """
        rows = terms.reshape(-1, len(TERMS)).tolist()
        rewards = Guard(self._source).call(self.usual, lambda: [float(self._function(StepTerms._make(row))) for row in rows])
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
    return _load_function(USER_REWARDS, OwnReward, value)[0]


USER_REWARDS: UserKind[Callable[[Any], Any]] = UserKind(
    "reward", lambda: REWARDS, OwnReward.usual, _accept, "a function reward(terms)", plugins=False
)
