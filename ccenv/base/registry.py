"""The generic registry: names of lazily imported objects, and specs with parameters such as ``"copa:default_delta=0.1"``."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ccenv.base.errors import InputError, did_you_mean, shown, unknown_name
from ccenv.base.foreign import is_finite
from ccenv.base.foreign.json_text import MAX_CHARS
from ccenv.base.renamed import today

MAX_SPEC_CHARS = 2_000
"""Longest list of parameters; paths of files may be among them."""


@dataclass(frozen=True)
class Entry:
    """A registered name: target ``"module:attribute"``, imported at first use; tags to filter by; aliases that are read."""

    name: str
    target: str
    tags: tuple[str, ...] = ()
    summary: str = ""
    aliases: tuple[str, ...] = ()


class Registry:
    """Names of one kind (agents, adversaries, ...), each resolved at first use."""

    def __init__(self, kind: str) -> None:
        """Create an empty registry; kind is the word used in error messages."""
        self.kind = kind
        self._entries: dict[str, Entry] = {}
        self._aliases: dict[str, str] = {}

    def add(
        self, name: str, target: str, *, tags: tuple[str, ...] = (), summary: str = "", aliases: tuple[str, ...] = ()
    ) -> None:
        """Register a name. Raises InputError if it or an alias is taken."""
        for taken in (name, *aliases):
            if taken in self:
                raise InputError(f"{self.kind} {taken!r} is registered twice ({self.entry(taken).target} and {target})")
        self._entries[name] = Entry(name, target, tags, summary, aliases)
        self._aliases |= dict.fromkeys(aliases, name)

    def names(self, tag: str | None = None, *, aliases: bool = False) -> list[str]:
        """Return the names in order of registration, all or those with a tag; with ``aliases`` also what they are read as."""
        entries = [entry for entry in self if tag is None or tag in entry.tags]
        return [name for entry in entries for name in (entry.name, *(entry.aliases if aliases else ()))]

    def entry(self, name: str) -> Entry:
        """Return the entry of a name. Raises UnknownNameError with suggestions."""
        if name not in self:
            raise unknown_name(self.kind, name, self._entries)
        return self._entries.get(name) or self._entries[self._aliases.get(name, today(name))]

    def load(self, name: str) -> Any:
        return load_target(self.entry(name).target)

    def make(self, spec: str) -> Any:
        """Build the object behind ``"name"`` or ``"name:key=value,key=value"``.

        The target must be callable with keyword parameters; values are parsed as int, float or text.
        """
        name, _, parameters = spec.partition(":")
        return self.load(name)(**parse_parameters(parameters))

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        """Tell whether a name is registered, as itself or as an alias."""
        return name in self._entries or name in self._aliases or (isinstance(name, str) and today(name) in self._entries)


def load_target(target: str) -> Any:
    """Import and return what ``"module:attribute"`` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def spec_text(name: str, parameters: Mapping[str, object]) -> str:
    """Return a name with its parameters as they are written: ``"copa:default_delta=0.1"``."""
    suffix = ",".join(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in parameters.items())
    return f"{name}:{suffix}" if suffix else name


def parse_parameters(text: str) -> dict[str, int | float | str]:
    """Parse ``"k=2,alpha=0.5"`` into a dictionary.

    A value that is itself a spec with parameters takes the rest of the text: ``"target_s=0.1,inner=copa:default_delta=0.1"``.
    Raises InputError on a malformed item, a parameter given twice, or a text or number that is too long.
    """
    if len(text) > MAX_SPEC_CHARS:
        raise InputError(f"parameters {shown(text, 40)}: {len(text)} characters; at most {MAX_SPEC_CHARS} are allowed")
    out: dict[str, int | float | str] = {}
    remaining = text
    while remaining:
        item, _, remaining = remaining.partition(",")
        if not item:
            continue
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier():
            raise InputError(f"parameter {shown(item)} is not of the form key=value")
        if key in out:
            raise InputError(f"parameter {shown(key)} is given twice")
        if ":" in value and remaining:
            value, remaining = f"{value},{remaining}", ""
        out[key] = _parse_value(item, value)
    return out


def _parse_value(item: str, value: str) -> int | float | str:
    for number_type in (int, float):
        try:
            number = number_type(value)
        except ValueError:  # no number; or more digits than Python reads, which the next kind tells
            continue
        if len(value) > MAX_CHARS:
            raise InputError(f"parameter {shown(item)}: a number of {len(value)} characters; at most {MAX_CHARS} are allowed")
        return number
    return value


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
    """Return a parameter of ``owner`` (an agent or adversary) as a float.

    Raises InputError unless the value is finite, > ``above``, in [``low``, ``high``], and an integer if ``whole``.
    """
    allowed = _describe_range(above, low, high, whole)
    if not is_finite(value):
        raise InputError(f"{owner}: {name} is {shown(value)}; it must be {allowed}")
    if not (value > above and low <= value <= high) or (whole and value != math.floor(value)):
        raise InputError(f"{owner}: {name} is {value:g}; it must be {allowed}")
    return float(value)


def build(registry: Registry, spec: str, **more: Any) -> Any:
    """Build what ``"name"`` or ``"name:key=value,key=value"`` names, with ``more`` parameters.

    Raises UnknownNameError if the name is unknown; InputError if a parameter is unknown, malformed or out of range.
    """
    name, _, parameters = spec.partition(":")
    factory = registry.load(name)
    arguments = {**parse_parameters(parameters), **more}
    accepted = list(inspect.signature(factory).parameters)
    for key in arguments:
        if key not in accepted:
            hint = did_you_mean(key[:40], accepted) if accepted else " It has no parameters."
            raise InputError(f"{registry.kind} {name!r}: unknown parameter {shown(key)}.{hint}")
    return factory(**arguments)


def _describe_range(above: float, low: float, high: float, whole: bool) -> str:
    noun = "a whole number" if whole else "a finite number"
    parts = [f"above {above:g}"] if above > -math.inf else []
    if low > -math.inf:
        parts.append(f"at least {low:g}")
    if high < math.inf:
        parts.append(f"at most {high:g}")
    return noun + (" " + " and ".join(parts) if parts else "")
