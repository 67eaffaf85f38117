"""Scenario distributions: scenarios in which numbers may be ranges. Without ranges there is a single scenario.

In links and flows, every number may be

    rate_mbps: [1, 128]                          # uniform
    rate_mbps: {range: [1, 128], log: true}      # log-uniform
    loss_rate: {choice: [0, 0, 0.01]}            # entries with equal probability
    rtt_ms: {like: 0}                            # that of flow 0; with times: [0.5, 2], so many times it, log-uniform

and ``sender`` may be a choice of senders, ``trace`` of a link a choice of traces, ``kind`` of a jitter box and ``aggregation`` of
a receiver choices of kinds. A flow that starts after ``duration_s`` is absent. All ranges are independent.

``half: train`` (or ``report``) with a range draws from one half of it only: the range falls into N_BANDS bands of equal width (in
the logarithm with log), of which every second one is for training, the others for reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_NAMES = ("sender", "trace", "kind", "aggregation")  # keys whose choices are names
DRAWN_JITTERS = ("none", "constant", "batch", "interval")  # kinds whose numbers mean the same
_KEYS = ("range", "log", "choice", "half", "like", "times")
HALVES = ("train", "report")
N_BANDS = 16


def in_half(u: np.ndarray, half: str) -> np.ndarray:
    """Return uniform numbers in [0, 1) moved into the bands of a half of N_BANDS."""
    number = np.asarray(u) * (N_BANDS // 2)
    first = np.floor(number) * 2.0 + HALVES.index(half)  # the band's number
    moved: np.ndarray = np.minimum((first + number % 1.0) / N_BANDS, np.nextafter((first + 1.0) / N_BANDS, 0.0))
    return moved


@dataclass(frozen=True)
class Leaf:
    """A random number of a scenario: from low to high, log-uniform with ``log``, integers with ``whole``; or of ``choices``.

    ``place`` are the keys and indices that lead to it, in the units of the file. With ``like`` the number is what is drawn times
    that of this place, drawn before. ``half``: of the range that is drawn from; empty: all of it.
    """

    place: Place
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    whole: bool = False
    half: str = ""
    like: Place | None = None

    @property
    def name(self) -> str:
        return ".".join(map(str, self.place))

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Values that must be valid: the smallest and the largest, or all choices of names."""
        if not self.choices:
            return self.low, self.high
        return self.choices if isinstance(self.choices[0], str) else (min(self.choices), max(self.choices))

    def draw(self, u: np.ndarray) -> np.ndarray:
        """Return values for uniform numbers (n,) in [0, 1); for choices their indices."""
        if self.choices:
            indices: np.ndarray = np.minimum(np.floor(u * len(self.choices)), len(self.choices) - 1).astype(np.int64)
            return indices
        if self.half:
            u = in_half(u, self.half)
        if self.log:
            return np.clip(self.low * (self.high / self.low) ** u, self.low, self.high)
        if self.whole:
            return np.minimum(np.floor(self.low + u * (self.high - self.low + 1.0)), self.high)
        return np.clip(self.low + u * (self.high - self.low), self.low, self.high)


@dataclass(frozen=True)
class ScenarioDistribution:
    """A checked scenario with ranges: every draw is a valid scenario.

    ``leaves`` are its random numbers, in the order of the file; ``corners`` are scenarios at the extremes, among them those with
    the largest and smallest values of everything.
    """

    where: str
    leaves: tuple[Leaf, ...]
    corners: tuple[Scenario, ...]
    _data: Any = field(repr=False)

    @property
    def largest(self) -> Scenario:
        return self.corners[0]

    def given_buffers(self) -> list[tuple[str, float]]:
        """Return the unit of each link's buffer and its value; 0 for a range, infinite by default."""
        buffers = []
        for link in self._data["links"]:
            unit = next((key for key in ("buffer_bytes", "buffer_packets", "buffer_bdp") if key in link), "")
            value = link.get(unit, np.inf)
            buffers.append((unit, float(value) if isinstance(value, int | float) else 0.0))
        return buffers

    def least_buffers(self) -> list[float]:
        """Return how many packets each link's buffer holds at least where it is given in BDP."""
        return [float(link.get("buffer_least_packets", 0.0)) for link in self._data["links"]]

    def at(self, values: Mapping[Place, Any]) -> Scenario:
        """Return the scenario with these values, in the units of the file."""
        return read_scenario(_fill(self._data, (), values), self.where)

    def drawn(self, generator: np.random.Generator) -> Scenario:
        values: dict[Place, Any] = {}
        for leaf in self.leaves:
            value = leaf.draw(generator.random(1))[0]
            values[leaf.place] = leaf.choices[int(value)] if leaf.choices else float(value)
        return self.at(resolved(self.leaves, self._data, values))

    def number_at(self, place: Place) -> float:
        """Return the fixed number at a place, in the units of the file."""
        return float(_item(self._data, place))


def read_distribution(data: Any, where: str = "scenario") -> ScenarioDistribution:
    """Validate the data of a scenario (``ccenv.simulation.scenario.read_scenario``) with ranges in place of numbers.

    Raises:
        InputError: one line with the key; for a range with an invalid value, the range and the value.
    """
    if isinstance(data, Scenario):
        data = data.model_dump()
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: a mapping is needed, not {type(data).__name__}")
    leaves: list[Leaf] = []
    _collect_leaves(data, (), where, leaves)
    if len(leaves) > MAX_RANGES:
        raise InputError(f"{where}: {len(leaves)} ranges; at most {MAX_RANGES} are allowed")
    for leaf in leaves:
        _check_like(leaf, leaves, data, where)
    low = {leaf.place: leaf.extremes[0] for leaf in leaves}
    high = {leaf.place: leaf.extremes[-1] for leaf in leaves}
    corners = []
    for values, extreme in ((high, "highest"), (low, "lowest")):
        corners.append(_read_corner(data, where, resolved(leaves, data, values), leaves, extreme))
    for leaf in leaves:
        for value in leaf.extremes:
            for values in (high, low):
                try:
                    drawn = resolved(leaves, data, {**values, leaf.place: value})
                    corners.append(read_scenario(_fill(data, (), drawn), where))
                except InputError as error:
                    raise InputError(
                        f"{where}: {leaf.name}: {shown(value)} cannot be drawn: {_strip_location(error, where)}"
                    ) from None
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


def _read_corner(data: Any, where: str, values: dict[Place, Any], leaves: list[Leaf], extreme: str) -> Scenario:
    try:
        return read_scenario(_fill(data, (), values), where)
    except InputError as error:
        reason = _strip_location(error, where)
        if not leaves:
            raise
        named = next((leaf.name for leaf in leaves if str(leaf.place[-1]).split("_")[0] in reason), "")
        among = f"range {named}" if named else "its ranges"
        raise InputError(f"{where}: with the {extreme} values of {among} it cannot be drawn: {reason}") from None


def resolved(leaves: Sequence[Leaf], data: Any, values: Mapping[Place, Any]) -> dict[Place, Any]:
    """Return values in which those that are so many times another one are numbers of their own."""
    out = dict(values)
    for leaf in leaves:
        if leaf.like is not None:
            out[leaf.place] *= out[leaf.like] if leaf.like in out else float(_item(data, leaf.like))
    return out


def _item(data: Any, place: Place) -> Any:
    for key in place:
        data = data[key]
    return data


def _strip_location(error: InputError, where: str) -> str:
    return str(error).removeprefix(f"{where}: ")


def _collect_leaves(value: Any, place: Place, where: str, leaves: list[Leaf]) -> None:
    inside = place[:1] in (("links",), ("flows",)) and len(place) > 2
    if isinstance(value, Mapping):
        if value and inside and any(key in value for key in _KEYS):
            leaves.append(_read_leaf(value, place, where))
            return
        if any(key in ("range", "choice") for key in value):
            raise InputError(f"{where}: {'.'.join(map(str, place))}: ranges are allowed for numbers of links and flows only")
        for key, item in value.items():
            _collect_leaves(item, (*place, str(key)), where, leaves)
    elif isinstance(value, list | tuple):
        if inside and place[-1] not in _LISTS and len(value) == 2 and all(map(is_finite, value)):
            leaves.append(_read_leaf({"range": value}, place, where))
            return
        for index, item in enumerate(value):
            _collect_leaves(item, (*place, index), where, leaves)


def _read_leaf(value: Mapping[str, Any], place: Place, where: str) -> Leaf:
    at = f"{where}: {'.'.join(map(str, place))}"
    for key in value:
        if key not in _KEYS:
            raise InputError(f"{at}: unknown key {shown(key)}.{did_you_mean(str(key), _KEYS)}")
    if "like" in value:
        return _read_like(value, place, at)
    if ("choice" in value) == ("range" in value) or ("choice" in value and len(value) > 1) or "times" in value:
        raise InputError(f"{at}: a range has 'range' and perhaps 'log' and 'half', a choice has 'choice'")
    half = value.get("half", "")
    if "half" in value and half not in HALVES:
        raise InputError(f"{at}.half: it must be {' or '.join(HALVES)} (got {shown(half)})")
    if "choice" in value:
        choices = value["choice"]
        if not isinstance(choices, list | tuple) or not 1 <= len(choices) <= MAX_CHOICES:
            raise InputError(f"{at}: choice must be a list of 1 to {MAX_CHOICES} values (got {shown(choices)})")
        names = place[-1] in _NAMES
        if not all(isinstance(choice, str) if names else is_finite(choice) for choice in choices):
            raise InputError(f"{at}: choice must hold {f'names of {place[-1]}s' if names else 'numbers'} (got {shown(choices)})")
        if place[-1] == "kind" and place[2:-1] != ("jitter",):
            raise InputError(f"{at}: only the kind of a jitter box may be a choice (got {shown(choices)})")
        if place[-1] == "kind" and not set(choices) <= set(DRAWN_JITTERS):
            raise InputError(f"{at}: choice must hold kinds of jitter out of {', '.join(DRAWN_JITTERS)} (got {shown(choices)})")
        return Leaf(place, choices=tuple(choices) if names else tuple(map(float, choices)))
    limits = value["range"]
    if place[-1] in _NAMES or not isinstance(limits, list | tuple) or len(limits) != 2 or not all(map(is_finite, limits)):
        raise InputError(f"{at}: range must be two finite numbers, the lower one first (got {shown(limits)})")
    low, high, log = float(limits[0]), float(limits[1]), value.get("log", False)
    if low > high or not isinstance(log, bool) or (log and low <= 0):
        raise InputError(
            f"{at}: range must be two finite numbers, the lower one first, above 0 with log: true (got {shown(dict(value))})"
        )
    is_integer = place[-1] in _WHOLE
    if is_integer and (low != int(low) or high != int(high) or log):
        raise InputError(f"{at}: range must be two whole numbers, without log (got {shown(dict(value))})")
    return Leaf(place, low, high, log, (), is_integer, half)


def _check_like(leaf: Leaf, leaves: Sequence[Leaf], data: Any, where: str) -> None:
    """Refuse a number that is so many times what is no number, or is not there."""
    if leaf.like is None or any(other.place == leaf.like and not isinstance(other.extremes[0], str) for other in leaves):
        return
    try:
        if is_finite(_item(data, leaf.like)):
            return
    except (KeyError, IndexError, TypeError):
        pass
    raise InputError(f"{where}: {leaf.name}: like needs a number at {'.'.join(map(str, leaf.like))}")


def _read_like(value: Mapping[str, Any], place: Place, at: str) -> Leaf:
    """Read a number that is so many times that of an earlier link or flow."""
    other, times = value["like"], value.get("times", [1, 1])
    if not isinstance(other, int) or isinstance(other, bool) or not 0 <= other < int(place[1]) or set(value) - {"like", "times"}:
        raise InputError(
            f"{at}: like is the index of an earlier one of {place[0]}, perhaps with times (got {shown(dict(value))})"
        )
    if not isinstance(times, list | tuple) or len(times) != 2 or not all(map(is_finite, times)) or not 0 < times[0] <= times[1]:
        raise InputError(f"{at}.times: two numbers above 0 are needed, the lower one first (got {shown(times)})")
    return Leaf(place, float(times[0]), float(times[1]), True, like=(place[0], other, *place[2:]))


def _fill(value: Any, place: Place, values: Mapping[Place, Any]) -> Any:
    if place in values:
        number = values[place]
        return int(number) if place[-1] in _WHOLE else number
    if isinstance(value, Mapping):
        return {key: _fill(item, (*place, str(key)), values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(item, (*place, index), values) for index, item in enumerate(value)]
    return value


def inside_units(key: str) -> tuple[str, float]:
    """Return the name of a quantity in SI units, and the factor for numbers of the file."""
    for ending, (inside, factor) in UNITS.items():
        if key.endswith(ending):
            return key.removesuffix(ending) + inside, factor
    return key, 1.0
