"""Speed of ccenv on this machine: kernels, environments, start, memory (docs/benchmarks.md, Speed)."""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any

from ccenv.benchmarks import engine, environments, start
from ccenv.base.document import json_bytes
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import write_atomic
from ccenv.base.provenance import machine, now, versions

RECORDS = FilePath("benchmarks") / "speed"


def measure(*, ode: bool = False, packet: bool = False) -> dict[str, Any]:
    """Measure everything; takes about two minutes, most of it the cold start.

    Returns:
        dict: flat; rates in units per second (medians, best runs under ``..._best``), seconds, bytes, machine and versions.

    Raises:
        MissingExtraError: if Stable-Baselines3 is not installed.
    """
    require_extra("stable_baselines3", "train")
    result: dict[str, Any] = {**engine.measure(), **environments.measure(), **start.measure()}
    if ode:
        from ccenv.benchmarks.speed_fluid import measure as measure_ode

        result |= measure_ode()
    if packet:
        from ccenv.agents import make_sender
        from ccenv.benchmarks.packet import measure as measure_packet

        result |= measure_packet(make_sender)
    about = machine()
    result["machine"] = f"{about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}"
    result["measured_at"] = now()
    return result | {f"version_{name.replace('-', '_')}": version for name, version in versions().items()}


def save_record(result: dict[str, Any]) -> FilePath:
    """Write a measurement into the checkout's benchmarks/speed and return the file.

    Raises:
        InputError: outside a checkout.
    """
    if not RECORDS.is_dir():
        raise InputError(f"no folder {RECORDS} here: records are saved from the root of a checkout")
    slug = re.sub(r"[^a-z0-9]+", "-", str(result["machine"]).partition(",")[0].lower()).strip("-")
    file = RECORDS / f"{str(result['measured_at'])[:10]}-{slug}.json"
    write_atomic(file, json_bytes(result))
    return file
