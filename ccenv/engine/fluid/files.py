"""Scenarios and sweeps by name or file."""

from __future__ import annotations

from typing import Any

from ccenv.base.config import find_data, shipped_names, validate
from ccenv.engine.fluid.scenario import Scenario
from ccenv.engine.fluid.sweep import Sweep
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_yaml

PACKAGE = "ccenv.configs.ode"


def _read(name: str, kind: str) -> tuple[Any, str]:
    path = find_data(PACKAGE, name, ".yaml", kind)
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path.name}: expected a mapping of keys (got {type(data).__name__})")
    found = data.get("kind")
    if found != kind:
        command = {"scenario": "run", "sweep": "sweep"}.get(str(found))
        hint = f"; use `ccenv ode {command}`" if command else ""
        raise InputError(f"{path.name}: kind must be {kind!r} (got {found!r}){hint}")
    return data, path.name


def _changed(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the data with the changes that are not None; overrides are merged, not replaced."""
    given = {key: value for key, value in changes.items() if value is not None}
    old = data.get("overrides")
    if "overrides" in given and isinstance(old, dict):
        given["overrides"] = old | given["overrides"]
    return data | given


def load_scenario(name: str, **changes: Any) -> Scenario:
    """Return the scenario of a shipped name or a YAML file, with changed values where not None.

    Raises:
        InputError: for a file that is no scenario; names file, key and value.
        UnknownNameError: if there is no such name or file.
    """
    data, where = _read(name, "scenario")
    scenario = validate(Scenario, _changed(data, changes), where)
    scenario.constants  # noqa: B018 -- an unknown override is an error of the file
    return scenario


def load_sweep(name: str, **changes: Any) -> Sweep:
    """Return the sweep of a shipped name or a YAML file, with changed values where not None. Raises as load_scenario."""
    data, where = _read(name, "sweep")
    sweep = validate(Sweep, _changed(data, changes), where)
    for key in sweep.cells():
        sweep.scenario(*key).constants  # noqa: B018 -- what no cell allows is an error of the file
    return sweep


def shipped() -> list[str]:
    """Return the names of the scenarios and sweeps that ccenv ships."""
    return shipped_names(PACKAGE, ".yaml")
