"""Fluid scenarios and sweeps by name or file; sweeps over mixes, queue disciplines and buffers ([BBR-fluid] section 4.3)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from ccenv.base.config import find_data, shipped_names, validate
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.foreign import read_yaml
from ccenv.engine.fluid.parameters import CCA_CODES, DISCIPLINE_CODES
from ccenv.engine.fluid.scenario import MOST_FLOWS, Experiment, Red, Scenario, require_name
from ccenv.engine.fluid.simulate import Metrics, simulate_batch
from ccenv.network.metrics.measures import percent
from ccenv.network.metrics.table import FLUID_METRICS

MOST_RUNS = 100_000


class Sweep(Experiment):
    """One bottleneck, many configurations: every mix under every discipline with every buffer.

    Attributes:
        kind: always `sweep`.
        mixes: names such as `bbr1` (all flows) or `bbr1/reno` (first half of the flows, second half).
        disciplines: `drop-tail`, `red`.
        buffers_bdp: buffers in units of rate x bottleneck delay.
        rate_mbps: bottleneck rate.
        delay_ms: one-way bottleneck delay.
        access_delays_ms: one-way access delay of each flow; its length is the number of flows.
        red: RED's thresholds.
    """

    kind: Literal["sweep"] = "sweep"
    mixes: tuple[str, ...] = Field(min_length=1)
    disciplines: tuple[str, ...] = Field(min_length=1)
    buffers_bdp: tuple[float, ...] = Field(min_length=1)
    rate_mbps: float = Field(gt=0)
    delay_ms: float = Field(gt=0)
    access_delays_ms: tuple[float, ...] = Field(min_length=1, max_length=MOST_FLOWS)
    red: Red = Red()

    @field_validator("mixes")
    @classmethod
    def _mixes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for mix in value:
            parts = mix.split("/")
            if not set(parts) <= set(CCA_CODES) or len(parts) > 2:
                mixes = [*CCA_CODES, *(f"{a}/{b}" for a in CCA_CODES for b in CCA_CODES if a != b)]
                raise ValueError(f"unknown mix {mix!r}.{did_you_mean(mix, mixes)}")
        return value

    @field_validator("disciplines")
    @classmethod
    def _disciplines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(require_name("discipline", name, DISCIPLINE_CODES) for name in value)

    @model_validator(mode="after")
    def _halves(self) -> Sweep:
        if any("/" in mix for mix in self.mixes) and len(self.access_delays_ms) % 2:
            raise ValueError(f"a mix of two needs an even number of flows (got {len(self.access_delays_ms)} access delays)")
        count = len(self.mixes) * len(self.disciplines) * len(self.buffers_bdp)
        if count * len(self.access_delays_ms) > MOST_RUNS:
            raise ValueError(
                f"{count} cells of {len(self.access_delays_ms)} flows; at most {MOST_RUNS} flows in all cells together"
            )
        return self

    def cells(self) -> list[tuple[str, str, float]]:
        """Return (mix, discipline, buffer_bdp) of every cell, in order."""
        return [(m, d, b) for d in self.disciplines for m in self.mixes for b in self.buffers_bdp]

    def scenario(self, mix: str, discipline: str, buffer_bdp: float) -> Scenario:
        """Return the scenario of one cell. Raises InputError for values that a scenario does not allow."""
        first, _, second = mix.partition("/")
        half = len(self.access_delays_ms) // 2
        ccas = [first if i < half or not second else second for i in range(len(self.access_delays_ms))]
        link = {name: getattr(self, name) for name in ("rate_mbps", "delay_ms", "red")}
        title = f"{mix}, {discipline}, {buffer_bdp:g} BDP"
        data = {
            **{name: getattr(self, name) for name in Experiment.model_fields},
            "title": title,
            "links": [link | {"buffer_bdp": buffer_bdp, "discipline": discipline}],
            "flows": [{"cca": c, "access_delay_ms": d} for c, d in zip(ccas, self.access_delays_ms, strict=True)],
        }
        return validate(Scenario, data, title)

    def run(self, threads: int | None = None) -> list[dict[str, Any]]:
        """Run all cells in parallel and return them as plain data.

        Raises InputError for values that a scenario does not allow; EngineError if a run diverges.
        """
        keys = self.cells()
        metrics = simulate_batch([self.scenario(*key) for key in keys], threads)
        return [cell(*key, m) for key, m in zip(keys, metrics, strict=True)]


def cell(mix: str, discipline: str, buffer_bdp: float, metrics: Metrics) -> dict[str, Any]:
    """Return one cell: the key, the five metrics of section 4.3 and the sending-rate share of the first half of the flows."""
    rates = metrics.rate_Bps
    return {
        "mix": mix,
        "discipline": discipline,
        "buffer_bdp": buffer_bdp,
        **{name: getattr(metrics, name) for name in FLUID_METRICS},
        "first_share_pct": percent(sum(rates[: len(rates) // 2]), sum(rates)),
        "rate_Bps": list(rates),
        "conservation_error": metrics.conservation_error,
    }


PACKAGE = "ccenv.configs.ode"


def _read(name: str, kind: str) -> tuple[Any, str]:
    path = find_data(PACKAGE, name, ".yaml", kind)
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path.name}: expected a mapping of keys (got {type(data).__name__})")
    file_kind = data.get("kind")
    if file_kind != kind:
        command = {"scenario": "run", "sweep": "sweep"}.get(str(file_kind))
        hint = f"; use `ccenv ode {command}`" if command else ""
        raise InputError(f"{path.name}: kind must be {kind!r} (got {file_kind!r}){hint}")
    return data, path.name


def _apply_changes(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the data with the changes that are not None; overrides are merged, not replaced."""
    changed = {key: value for key, value in changes.items() if value is not None}
    old = data.get("overrides")
    if "overrides" in changed and isinstance(old, dict):
        changed["overrides"] = old | changed["overrides"]
    return data | changed


def load_scenario(name: str, **changes: Any) -> Scenario:
    """Return the scenario of a shipped name or a YAML file, with changed values where not None.

    Raises InputError for a file that is no scenario; names file, key and value; UnknownNameError if there is no such name or
    file.
    """
    data, where = _read(name, "scenario")
    scenario = validate(Scenario, _apply_changes(data, changes), where)
    scenario.constants  # noqa: B018 -- an unknown override is an error of the file
    return scenario


def load_sweep(name: str, **changes: Any) -> Sweep:
    """Return the sweep of a shipped name or a YAML file, with changed values where not None. Raises as load_scenario."""
    data, where = _read(name, "sweep")
    sweep = validate(Sweep, _apply_changes(data, changes), where)
    for key in sweep.cells():
        sweep.scenario(*key).constants  # noqa: B018 -- what no cell allows is an error of the file
    return sweep


def shipped() -> list[str]:
    """Return the names of the scenarios and sweeps that ccenv ships."""
    return shipped_names(PACKAGE, ".yaml")
