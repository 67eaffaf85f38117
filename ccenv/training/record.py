"""Record what shipped configs come to, for ``ccenv train CONFIG --seeds 0,1,2 --record docs/data/learning.json``.

Senders are attacked too (corners and CEM on the deep and the shallow path), so that nominal score and worst case stand together.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from ccenv.adversaries.search import attack
from ccenv.benchmarks.provenance import machine, versions
from ccenv.errors import InputError
from ccenv.files import parse_json, write_atomic
from ccenv.training.config import TrainConfig
from ccenv.training.run import Result

FORMAT, VERSION = "ccenv-learning-record", 1
ATTACK = ("corners", "cem")
ATTACK_PATHS = ("deep", "shallow")
ATTACK_FLOW_STEPS = 4_000_000


def record(file: FilePath, config: TrainConfig, result: Result) -> None:
    """Add a finished run to a record; other entries stay.

    Raises:
        InputError: if the file is no record.
    """
    data = read_data(file)
    entry = asdict(result) | {"folder": str(result.folder), "seed": config.seed, "algorithm": config.algorithm}
    del entry["resumed_from_steps"]
    if config.trains == "sender" and len(config.environment.senders) == 1:
        entry["worst_utilisation"] = attacked(str(result.folder))
    data["runs"][f"{config.name}:{config.seed}"] = entry
    data |= {"versions": versions(), "machine": machine()}
    write_atomic(file, (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def attacked(sender: str) -> dict[str, float]:
    """Return the lowest utilisation found on each attack path."""
    found = {}
    for path in ATTACK_PATHS:
        result = attack(sender, path=path, adversaries=ATTACK, budget_flow_steps=ATTACK_FLOW_STEPS)
        found[path] = result.worst_utilisation
    return found


def read_data(file: FilePath) -> dict[str, Any]:
    """Read a record; an empty one if there is no file."""
    if not file.is_file():
        return {"format": FORMAT, "version": VERSION, "runs": {}}
    data = parse_json(file.read_bytes(), str(file))
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise InputError(f"{file}: not a record of format {FORMAT!r} version {VERSION}")
    return data
