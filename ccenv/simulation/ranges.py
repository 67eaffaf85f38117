"""Scenario distributions: a scenario in which numbers may be ranges. A scenario without ranges is a distribution of one.

In links and flows, every number may be

    rate_mbps: [1, 128]                          # uniform
    rate_mbps: {range: [1, 128], log: true}      # uniform in the logarithm
    loss_rate: {choice: [0, 0, 0.01]}            # each entry as often as the others

and ``sender`` may be a choice of senders, ``trace`` of a link a choice of traces. A flow that starts after ``duration_s`` is
absent. All ranges are independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.config import find_data
from ccenv.base.errors import InputError, UnknownNameError, did_you_mean
from ccenv.base.foreign import is_finite, read_yaml, shown
from ccenv.simulation.scenario import CONFIGS, UNITS, Scenario, read_scenario

DISTRIBUTIONS = "ccenv.configs.env"
Place = tuple[str | int, ...]
MAX_RANGES, MAX_CHOICES = 256, 256
_LISTS = ("delays_s", "delays_ms", "route", "throughput_mbps")  # keys whose value is a list, not a range
_WHOLE = ("ack_every",)  # keys of whole numbers
_NAMES = ("sender", "trace")  # keys whose choices are names
_KEYS = ("range", "log", "choice")


@dataclass(frozen=True)
class Leaf:
    """A number of a scenario that is drawn.

    Attributes:
        place: keys and indices that lead to it, in the units of the file.
        low: smallest value.
        high: largest value.
        log: uniform in the logarithm.
        choices: instead of a range.
        whole: only whole numbers.
    """

    place: Place
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    whole: bool = False

    @property
    def name(self) -> str:
        """The place as messages write it."""
        return ".".join(map(str, self.place))

    @property
    def extremes(self) -> tuple[Any, ...]:
        """What must be possible: the smallest and the largest value, or all choices of names."""
        if not self.choices:
            return self.low, self.high
        return self.choices if isinstance(self.choices[0], str) else (min(self.choices), max(self.choices))

    def draw(self, u: np.ndarray) -> np.ndarray:
        """Return values for uniform numbers in [0, 1); for choices their indices.

        Args:
            u: (n,).
        """
        if self.choices:
            places: np.ndarray = np.minimum(np.floor(u * len(self.choices)), len(self.choices) - 1).astype(np.int64)
            return places
        if self.log:
            return np.clip(self.low * (self.high / self.low) ** u, self.low, self.high)
        if self.whole:
            return np.minimum(np.floor(self.low + u * (self.high - self.low + 1.0)), self.high)
        return np.clip(self.low + u * (self.high - self.low), self.low, self.high)


@dataclass(frozen=True)
class ScenarioDistribution:
    """A scenario with ranges, checked: whatever is drawn is a scenario.

    Attributes:
        where: for messages.
        leaves: what is drawn, in the order of the file.
        corners: scenarios at the extremes: among them are those with the largest and smallest of everything.
    """

    where: str
    leaves: tuple[Leaf, ...]
    corners: tuple[Scenario, ...]
    _data: Any = field(repr=False)

    @property
    def largest(self) -> Scenario:
        """The scenario with the highest value of every range."""
        return self.corners[0]

    def given_buffers(self) -> list[tuple[str, float]]:
        """Return for each link the unit that its buffer is given in, and the number where it is none of the ranges."""
        found = []
        for link in self._data["links"]:
            unit = next((key for key in ("buffer_bytes", "buffer_packets", "buffer_bdp") if key in link), "")
            value = link.get(unit, np.inf)
            found.append((unit, float(value) if isinstance(value, int | float) else 0.0))
        return found

    def at(self, values: Mapping[Place, Any]) -> Scenario:
        """Return the scenario with these values, in the units of the file."""
        return read_scenario(_with(self._data, (), values), self.where)

    def drawn(self, generator: np.random.Generator) -> Scenario:
        """Return a scenario that some random numbers draw."""
        found: dict[Place, Any] = {}
        for leaf in self.leaves:
            value = leaf.draw(generator.random(1))[0]
            found[leaf.place] = leaf.choices[int(value)] if leaf.choices else float(value)
        return self.at(found)


def read_distribution(data: Any, where: str = "scenario") -> ScenarioDistribution:
    """Validate a scenario that may hold ranges.

    Args:
        data: as for ``ccenv.simulation.scenario.read_scenario``, with ranges in place of numbers.
        where: for messages.

    Raises:
        InputError: one line with the key; for ranges that hold something that no scenario can have, which one and what.
    """
    if isinstance(data, Scenario):
        data = data.model_dump()
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: a mapping is needed, not {type(data).__name__}")
    leaves: list[Leaf] = []
    _find(data, (), where, leaves)
    if len(leaves) > MAX_RANGES:
        raise InputError(f"{where}: {len(leaves)} ranges; at most {MAX_RANGES} are allowed")
    low = {leaf.place: leaf.extremes[0] for leaf in leaves}
    high = {leaf.place: leaf.extremes[-1] for leaf in leaves}
    corners = []
    for values, others in ((high, "highest"), (low, "lowest")):
        corners.append(_drawn(data, where, values, leaves, others))
    for leaf in leaves:
        for value in leaf.extremes:
            for values in (high, low):
                try:
                    corners.append(read_scenario(_with(data, (), {**values, leaf.place: value}), where))
                except InputError as error:
                    raise InputError(f"{where}: {leaf.name}: {shown(value)} cannot be drawn: {_reason(error, where)}") from None
    return ScenarioDistribution(where, tuple(leaves), tuple(corners), data)


def load_distribution(name: str) -> ScenarioDistribution:
    """Load a shipped distribution or scenario, or a YAML file. Raises InputError or UnknownNameError."""
    try:
        file: FilePath = find_data(DISTRIBUTIONS, name, ".yaml", "scenario distribution")
    except UnknownNameError as unknown:
        try:
            file = find_data(CONFIGS, name, ".yaml", "scenario")
        except UnknownNameError:
            raise unknown from None
    return read_distribution(read_yaml(file), file.name)


def _drawn(data: Any, where: str, values: dict[Place, Any], leaves: list[Leaf], which: str) -> Scenario:
    try:
        return read_scenario(_with(data, (), values), where)
    except InputError as error:
        reason = _reason(error, where)
        if not leaves:
            raise
        named = next((leaf.name for leaf in leaves if str(leaf.place[-1]).split("_")[0] in reason), "")
        among = f"range {named}" if named else "its ranges"
        raise InputError(f"{where}: with the {which} values of {among} it cannot be drawn: {reason}") from None


def _reason(error: InputError, where: str) -> str:
    return str(error).removeprefix(f"{where}: ")


def _find(value: Any, place: Place, where: str, leaves: list[Leaf]) -> None:
    """Collect the ranges of a part of a scenario."""
    inside = place[:1] in (("links",), ("flows",)) and len(place) > 2
    if isinstance(value, Mapping):
        if value and inside and any(key in value for key in _KEYS):
            leaves.append(_leaf(value, place, where))
            return
        if any(key in ("range", "choice") for key in value):
            raise InputError(f"{where}: {'.'.join(map(str, place))}: ranges are allowed for numbers of links and flows only")
        for key, item in value.items():
            _find(item, (*place, str(key)), where, leaves)
    elif isinstance(value, list | tuple):
        if inside and place[-1] not in _LISTS and len(value) == 2 and all(map(is_finite, value)):
            leaves.append(_leaf({"range": value}, place, where))
            return
        for index, item in enumerate(value):
            _find(item, (*place, index), where, leaves)


def _leaf(value: Mapping[str, Any], place: Place, where: str) -> Leaf:
    at = f"{where}: {'.'.join(map(str, place))}"
    for key in value:
        if key not in _KEYS:
            raise InputError(f"{at}: unknown key {shown(key)}.{did_you_mean(str(key), _KEYS)}")
    if ("choice" in value) == ("range" in value) or ("choice" in value and "log" in value):
        raise InputError(f"{at}: a range has 'range' and perhaps 'log', a choice has 'choice'")
    if "choice" in value:
        choices = value["choice"]
        if not isinstance(choices, list | tuple) or not 1 <= len(choices) <= MAX_CHOICES:
            raise InputError(f"{at}: choice must be a list of 1 to {MAX_CHOICES} values (got {shown(choices)})")
        names = place[-1] in _NAMES
        if not all(isinstance(choice, str) if names else is_finite(choice) for choice in choices):
            raise InputError(f"{at}: choice must hold {f'names of {place[-1]}s' if names else 'numbers'} (got {shown(choices)})")
        return Leaf(place, choices=tuple(choices) if names else tuple(map(float, choices)))
    limits = value["range"]
    if place[-1] in _NAMES or not isinstance(limits, list | tuple) or len(limits) != 2 or not all(map(is_finite, limits)):
        raise InputError(f"{at}: range must be two finite numbers, the lower one first (got {shown(limits)})")
    low, high, log = float(limits[0]), float(limits[1]), value.get("log", False)
    if low > high or not isinstance(log, bool) or (log and low <= 0):
        raise InputError(
            f"{at}: range must be two finite numbers, the lower one first, above 0 with log: true (got {shown(dict(value))})"
        )
    whole = place[-1] in _WHOLE
    if whole and (low != int(low) or high != int(high) or log):
        raise InputError(f"{at}: range must be two whole numbers, without log (got {shown(dict(value))})")
    return Leaf(place, low, high, log, (), whole)


def _with(value: Any, place: Place, values: Mapping[Place, Any]) -> Any:
    """Return a part of a scenario with values in place of its ranges."""
    if place in values:
        found = values[place]
        return int(found) if place[-1] in _WHOLE else found
    if isinstance(value, Mapping):
        return {key: _with(item, (*place, str(key)), values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with(item, (*place, index), values) for index, item in enumerate(value)]
    return value


def inside_units(key: str) -> tuple[str, float]:
    """Return the name of a quantity in SI units, and what a number of the file is multiplied with."""
    for ending, (inside, factor) in UNITS.items():
        if key.endswith(ending):
            return key.removesuffix(ending) + inside, factor
    return key, 1.0
