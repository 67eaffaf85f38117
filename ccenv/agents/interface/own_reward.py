"""Rewards that a user computes: a function of the table's terms, in plain Python, called for each flow and step."""

from __future__ import annotations

import inspect
import math
import warnings
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from pydantic import Field, PrivateAttr, model_serializer

from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvWarning, InputError, did_you_mean
from ccenv.agents.interface.rewards import REWARDS, TERMS
from ccenv.base.user import limits
from ccenv.base.user.python_file import (attribute_of, call, is_python_file, load_file, place, read_spec, require_arguments, said, source_of)

StepTerms = namedtuple("StepTerms", [term.name for term in TERMS])  # type: ignore[misc]  # the names of a table
"""The terms of one flow and step, by name: ``terms.throughput``, ``terms.queue``, ..."""
_FUNCTION = "reward"


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
        name = getattr(self._function, "__name__", _FUNCTION)
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
            with limits.limited(_FUNCTION, limits.CALL_LIMIT_S):
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
        name = asked.attribute or _FUNCTION
        if not asked.attribute and not hasattr(user.module, name):
            hint = did_you_mean(name, [n for n, one in vars(user.module).items() if inspect.isfunction(one)])
            raise InputError(f"{asked.file}: a function reward(terms) is needed.{hint}")
        function = attribute_of(user.module, name, asked.file)
        function = call(function, asked.parameters, asked.where, user.path) if asked.parameters else function
        source, spec = str(user.path), f"{user.path}{value[len(asked.file) :]}"
    else:
        function, source, spec = value, source_of(value), ""
    require_arguments(function, ("terms",), source, getattr(function, "__name__", _FUNCTION))
    found = OwnReward(spec=spec)
    found._function, found._source = function, source
    name = FilePath(source).name
    warnings.warn(f"the reward of {name} is plain Python: slower than weights of the table's terms", CcenvWarning, stacklevel=2)
    return found
