"""Options that several commands share: one name each, and values with units."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from ccenv.base.units import MBPS, MILLISECONDS, SECONDS, SHARE, STEPS, buffer_units, jitter_units, quantity
from ccenv.cli.main import GROUPS, build_app

OTHER_NAMES = {"--output", "--restart", "--force", "--workers", "--processes", "--duration-s", "--rate-mbps", "--link-rate-mbps"}


@pytest.mark.parametrize(
    ("given", "units", "value"),
    [
        ("10", SECONDS, 10.0), ("10s", SECONDS, 10.0), ("500ms", SECONDS, 0.5), ("1.5 min", SECONDS, 90.0),
        ("1e-6", SECONDS, 1e-6), (".5h", SECONDS, 1800.0), (120.0, SECONDS, 120.0), ("48", MBPS, 48.0),
        ("48Mbit/s", MBPS, 48.0), ("1.5Gbit/s", MBPS, 1500.0), ("250kbit/s", MBPS, 0.25), ("48 mbps", MBPS, 48.0),
        ("10S", SECONDS, 10.0), ("10msec", SECONDS, 0.01), ("2 secs", SECONDS, 2.0), ("40", MILLISECONDS, 40.0),
        ("0.04s", MILLISECONDS, 40.0), ("50mbit", MBPS, 50.0), ("500kbit", MBPS, 0.5), ("1G", MBPS, 1000.0),
        ("1%", SHARE, 0.01), ("0.01", SHARE, 0.01), ("64k", buffer_units(1000, 1500), 65_536.0),
        ("64kB", buffer_units(1000, 1500), 64_000.0), ("100p", buffer_units(1000, 1500), 150_000.0),
        ("2", jitter_units(0.04), 0.08), ("2rtts", jitter_units(0.04), 0.08), ("20ms", jitter_units(0.04), 0.02),
        ("20Msteps", STEPS, 20_000_000), ("4000000steps", STEPS, 4_000_000), (20_000_000, STEPS, 20_000_000),
    ],
)  # fmt: skip
def test_quantities(given: str | float, units: Any, value: float) -> None:
    found = quantity("--x", given, units)
    assert found == pytest.approx(value, rel=1e-12) and isinstance(found, int if units is STEPS else float)


def commands(group: typer.Typer | Any) -> Iterator[tuple[str, Any]]:
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command) if getattr(command, "commands", None) else [(name, command)]


def options_of(group: str) -> Iterator[tuple[str, Any]]:
    whole = typer.main.get_command(build_app(group))
    chosen = whole.commands[group]  # type: ignore[attr-defined]
    for name, command in [*commands(chosen)] or [(group, chosen)]:
        for parameter in command.params:
            yield name, parameter


@pytest.mark.parametrize("group", [group.name for group in GROUPS])
def test_one_name_for_one_thing(group: str) -> None:
    for name, parameter in options_of(group):
        assert not OTHER_NAMES & set(parameter.opts), f"{group} {name}"
        if "--out" in parameter.opts:
            assert "-o" in parameter.opts, f"{group} {name}"


def test_units_reach_the_command(answer) -> None:
    found = [answer(["ode", "equilibrium", "bbr1", "-s", f"rate_mbps={rate}", "--json"]) for rate in ("0.1Gbit/s", "100", "50")]
    assert found[0] == found[1] != found[2]
