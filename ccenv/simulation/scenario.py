"""Scenarios: a network with a duration, as strict YAML in Mbit/s, ms and packets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import CcenvError, InputError, did_you_mean
from ccenv.base.foreign import is_finite, parse_number, read_text, read_yaml, resolve_inside, shown
from ccenv.engine.packet.generators import with_mean_rate
from ccenv.engine.packet.spec import NetworkSpec, NotNegative, Positive
from ccenv.network.path import DEFAULT_MSS_BYTES, MBPS_IN_BPS
from ccenv.simulation.applications import Application, Page

CONFIGS = "ccenv.configs.sim"
MAX_DELAYS_BYTES = 16 << 20
PHASE_JITTER = 0.5  # service times: of runs in which several flows meet
# Ending of a key in files -> ending inside, factor.
UNITS = {"_ms": ("_s", 1e-3), "_mbps": ("_Bps", MBPS_IN_BPS)}


class Reference(StrictModel):
    """Measurements of a paper in this setting.

    Attributes:
        source: paper and section.
        throughput_mbps: per flow, if published.
        ratio: largest throughput over smallest, if published.
    """

    source: str
    throughput_mbps: tuple[Positive, ...] = ()
    ratio: float | None = Field(default=None, ge=1)


class Scenario(NetworkSpec):
    """A network with a duration.

    Attributes:
        name: of the scenario.
        notes: differences from its source.
        duration_s: length of the run.
        warmup_s: left out of the summary.
        log_s: interval of the time series.
        seed: of all random numbers.
        phase_jitter: where there are several flows and none says its jitter, each packet reaches its receiver late by up to so
            many times the service of a packet at its slowest link, drawn anew per packet (``uniform``): without it packets meet
            on a lattice of service times, and who loses depends on phase (S. Floyd, V. Jacobson: On traffic phase effects in
            packet-switched gateways, 1992).
        profile: behaviour of hosts beyond their CCA (``ccenv.simulation.result``): ``plain``, none; ``linux``, a Linux host.
        applications: they decide what their flows send (``ccenv.simulation.applications``).
        reference: published measurements.
    """

    name: str = "scenario"
    notes: str = ""
    duration_s: Positive = 60.0
    warmup_s: NotNegative = 0.0
    log_s: Positive = 0.01
    seed: int = Field(default=0, ge=0, lt=2**53)
    phase_jitter: float = Field(default=PHASE_JITTER, ge=0, le=100, allow_inf_nan=False)
    profile: Literal["plain", "linux"] = "plain"
    applications: tuple[Application, ...] = Field(default=(), max_length=64)
    reference: Reference | None = None

    @model_validator(mode="after")
    def _with_flows(self) -> Scenario:
        named = [flow.name or flow.sender for flow in self.flows]
        used: set[str] = set()
        for index, application in enumerate(self.applications):
            name = carrier(application)
            if name not in named:
                raise ValueError(f"applications.{index}: no flow is called {name!r}.{did_you_mean(name, named)}")
            if name in used or (application.kind != "page" and named.count(name) > 1):
                raise ValueError(f"applications.{index}: flow {name!r} carries something else, or there are several of this name")
            used.add(name)
            if any(flow.workload.kind not in ("bulk", "asked") for flow in self.flows if (flow.name or flow.sender) == name):
                raise ValueError(f"applications.{index}: flow {name!r} has a workload already")
        for flow, name in zip(self.flows, named, strict=True):
            if flow.workload.kind == "asked" and name not in used:
                raise ValueError(f"flow {name!r}: the workload 'asked' is for flows of an application")
        return self


def carrier(application: Application) -> str:
    return application.flows if isinstance(application, Page) else application.flow


ScenarioT = TypeVar("ScenarioT", bound=Scenario)


def read_scenario(data: Any, where: str = "scenario") -> Scenario:
    """Validate a scenario: :func:`read_scenario_as` for :class:`Scenario`."""
    return read_scenario_as(Scenario, data, where)


def read_scenario_as(kind: type[ScenarioT], data: Any, where: str) -> ScenarioT:
    """Validate a mapping against Scenario or a subclass; ``where`` is its name in messages.

    Times may end in ``_ms`` instead of ``_s``, rates in ``_mbps`` instead of ``_Bps``; a link's buffer may be ``buffer_packets``
    or ``buffer_bdp`` (of its rate and the smallest rtt; with ``buffer_least_packets`` at least so many); replayed delays may be
    ``delays_file``, a text file with one number of milliseconds per line, in or below the working folder.

    Raises:
        InputError: one line with the key, the value seen and what is allowed.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: a mapping is needed, not {type(data).__name__}")
    converted = _to_si(data, where, "")
    _set_mean_rates(converted, where)
    _set_buffers(converted, where)
    _read_delays(converted, where)
    scenario = validate(kind, converted, where)
    if scenario.warmup_s >= scenario.duration_s:
        raise InputError(f"{where}: warmup_s {scenario.warmup_s:g} is not below duration_s {scenario.duration_s:g}")
    throughputs_mbps = scenario.reference.throughput_mbps if scenario.reference else ()
    if throughputs_mbps and len(throughputs_mbps) != len(scenario.flows):
        raise InputError(f"{where}: reference.throughput_mbps has {len(throughputs_mbps)} values for {len(scenario.flows)} flows")
    return scenario


def load_scenario(name: str) -> Scenario:
    """Load a shipped scenario or a YAML file. Raises InputError or UnknownNameError."""
    file: FilePath = find_data(CONFIGS, name, ".yaml", "scenario")
    return read_scenario(read_yaml(file), file.name)


def _to_si(value: Any, where: str, at: str) -> Any:
    if isinstance(value, Mapping):
        out: dict[str, Any] = {}
        for key, item in value.items():
            path = f"{at}.{key}" if at else str(key)
            name, converted = str(key), _to_si(item, where, path)
            for ending, (inside, factor) in UNITS.items():
                if at != "reference" and name.endswith(ending):
                    name = name.removesuffix(ending) + inside
                    is_list = isinstance(item, list | tuple)
                    converted = (
                        [_quantity(x, where, path) * factor for x in item] if is_list else _quantity(item, where, path) * factor
                    )
            if name in out or (name != key and name in value):
                raise InputError(f"{where}: {path} is given twice, in two units")
            out[name] = converted
        return out
    if isinstance(value, (list, tuple)):
        return [_to_si(item, where, f"{at}.{index}") for index, item in enumerate(value)]
    return value


def _set_mean_rates(data: dict[str, Any], where: str) -> None:
    """Give links with a trace or generator their mean rate, from which buffers are computed."""
    links = data.get("links")
    if not isinstance(links, list):
        return
    for index, link in enumerate(links):
        if isinstance(link, dict) and isinstance(link.get("trace", ""), str):
            try:
                links[index] = with_mean_rate(link)
            except CcenvError as error:
                raise InputError(f"{where}: links.{index}: {error}") from None


def _set_buffers(data: dict[str, Any], where: str) -> None:
    links, flows = data.get("links"), data.get("flows")
    for index, link in enumerate(links if isinstance(links, list) else []):
        if not isinstance(link, dict):
            continue
        buffer_keys = [key for key in ("buffer_bytes", "buffer_packets", "buffer_bdp") if key in link]
        if len(buffer_keys) > 1:
            raise InputError(f"{where}: links.{index} has {' and '.join(buffer_keys)}; one of them is allowed")
        if "buffer_packets" in link:
            mss_bytes = _finite(data.get("mss_bytes", DEFAULT_MSS_BYTES), where, "mss_bytes")
            link["buffer_bytes"] = _finite(link.pop("buffer_packets"), where, f"links.{index}.buffer_packets") * mss_bytes
        if "buffer_bdp" in link:
            rates_Bps = _positive(link.get("rate_Bps"), where, f"links.{index}.rate_mbps")
            rtts_s = [
                _positive(flow.get("rtt_s"), where, f"flows.{place}.rtt_ms")
                for place, flow in enumerate(flows if isinstance(flows, list) else [])
                if isinstance(flow, dict)
            ]
            bdp = _positive(link.pop("buffer_bdp"), where, f"links.{index}.buffer_bdp")
            mss_bytes = _finite(data.get("mss_bytes", DEFAULT_MSS_BYTES), where, "mss_bytes")
            least = _quantity(link.pop("buffer_least_packets", 0.0), where, f"links.{index}.buffer_least_packets")
            if not rtts_s:
                raise InputError(f"{where}: flows: at least one is needed, by whose rtt_ms buffer_bdp is a size")
            link["buffer_bytes"] = max(bdp * rates_Bps * min(rtts_s), least * mss_bytes)


def _read_delays(data: dict[str, Any], where: str) -> None:
    flows = data.get("flows")
    for index, flow in enumerate(flows if isinstance(flows, list) else []):
        jitter = flow.get("jitter") if isinstance(flow, dict) else None
        if not isinstance(jitter, dict) or "delays_file" not in jitter:
            continue
        file, at = jitter.pop("delays_file"), f"{where}: flows.{index}.jitter.delays_file"
        if "delays_s" in jitter:
            raise InputError(f"{at}: delays are given twice, in the scenario and in a file")
        try:
            words = read_text(resolve_inside(FilePath(), file), MAX_DELAYS_BYTES).split()
            jitter["delays_s"] = [parse_number(word, f"{file}") * 1e-3 for word in words]
        except InputError as error:
            raise InputError(f"{at}: one number of milliseconds per line is needed: {error}") from None


def _finite(value: Any, where: str, at: str) -> float:
    if not is_finite(value):
        raise InputError(f"{where}: {at}: a finite number is needed (got {shown(value)})")
    return float(value)


def _quantity(value: Any, where: str, at: str) -> float:
    if (number := _finite(value, where, at)) < 0:
        raise InputError(f"{where}: {at} is {shown(value)}; it must not be negative")
    return number


def _positive(value: Any, where: str, at: str) -> float:
    if (number := _quantity(value, where, at)) == 0:
        raise InputError(f"{where}: {at} is 0; it must be above 0")
    return number
