"""Parameters of agents and adversaries: range checks, and building from a spec such as ``"copa:default_delta=0.1"``."""

from __future__ import annotations

import inspect
import math
from typing import Any

from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.foreign import is_finite, shown
from ccenv.base.registry import Registry, parse_parameters


def number(
    owner: str,
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    low: float = -math.inf,
    high: float = math.inf,
    whole: bool = False,
) -> float:
    """Return a parameter as a float, or refuse it.

    Args:
        owner: the agent or adversary, for the message.
        name: the parameter.
        value: what was given.
        above: the value must be greater than this.
        low: the value must be at least this.
        high: the value must be at most this.
        whole: the value must be a whole number.

    Raises:
        InputError: one line with the value seen and what is allowed.
    """
    allowed = _allowed(above, low, high, whole)
    if not is_finite(value):
        raise InputError(f"{owner}: {name} is {shown(value)}; it must be {allowed}")
    if not (value > above and low <= value <= high) or (whole and value != math.floor(value)):
        raise InputError(f"{owner}: {name} is {value:g}; it must be {allowed}")
    return float(value)


def build(registry: Registry, spec: str, **more: Any) -> Any:
    """Build what a spec names: ``"name"`` or ``"name:key=value,key=value"``.

    Args:
        registry: where the names are looked up; their targets are callables with keyword parameters.
        spec: the text.
        more: further parameters.

    Raises:
        UnknownNameError: if the name is unknown.
        InputError: if a parameter is unknown, malformed or out of range.
    """
    name, _, rest = spec.partition(":")
    factory = registry.load(name)
    given = {**parse_parameters(rest), **more}
    known = list(inspect.signature(factory).parameters)
    for key in given:
        if key not in known:
            hint = did_you_mean(key[:40], known) if known else " It has no parameters."
            raise InputError(f"{registry.kind} {name!r}: unknown parameter {shown(key)}.{hint}")
    return factory(**given)


def _allowed(above: float, low: float, high: float, whole: bool) -> str:
    kind = "a whole number" if whole else "a finite number"
    parts = [f"above {above:g}"] if above > -math.inf else []
    if low > -math.inf:
        parts.append(f"at least {low:g}")
    if high < math.inf:
        parts.append(f"at most {high:g}")
    return kind + (" " + " and ".join(parts) if parts else "")
