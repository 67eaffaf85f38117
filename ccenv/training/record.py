"""Train shipped configs and record what came out: ``python -m ccenv.training.record docs/data/learning.json quick_sender:0,1,2``.

Runs lie in ``runs/CONFIG-SEED`` and are resumed or reused; an older record keeps its other entries. Senders are also attacked
(corners and CEM on the deep and the shallow path), so that nominal score and worst case stand side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from ccenv.adversaries.search import attack
from ccenv.benchmarks.provenance import machine, versions
from ccenv.errors import CcenvError, InputError
from ccenv.files import parse_json, write_atomic
from ccenv.sender import MlpSender
from ccenv.training.config import TrainConfig, load_config
from ccenv.training.run import default_folder, train

FORMAT, VERSION = "ccenv-learning-record", 1
ATTACK = ("corners", "cem")
ATTACK_PATHS = ("deep", "shallow")
ATTACK_FLOW_STEPS = 4_000_000


def record_run(config: TrainConfig) -> dict[str, Any]:
    """Train (or take up) a run and return its entry."""
    result = train(config)
    entry = asdict(result) | {"folder": str(result.folder), "seed": config.seed, "algorithm": config.algorithm}
    del entry["resumed_from_steps"]
    if config.trains == "sender" and len(config.environment.senders) == 1:
        entry["worst_utilisation"] = attacked(str(result.folder))
    return entry


def attacked(sender: str | MlpSender) -> dict[str, float]:
    """Return the lowest utilisation found on each attack path."""
    found = {}
    for path in ATTACK_PATHS:
        found[path] = attack(sender, path=path, adversaries=ATTACK, budget_flow_steps=ATTACK_FLOW_STEPS).worst_utilisation
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ccenv.training.record", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=FilePath, help="the record, a JSON file")
    parser.add_argument("configs", nargs="+", metavar="CONFIG[:SEED,SEED]", help="shipped config and seeds (0 by default)")
    given = parser.parse_args(arguments)
    try:
        runs = _runs(given.configs)
        data = _known(given.file)
        for config in runs:
            print(f"{default_folder(config)}", file=sys.stderr)
            data["runs"][f"{config.name}:{config.seed}"] = record_run(config)
            data |= {"versions": versions(), "machine": machine()}
            write_atomic(given.file, (json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
    except CcenvError as error:
        print(f"ccenv: error: {error}", file=sys.stderr)
        return 2
    return 0


def _runs(texts: Sequence[str]) -> list[TrainConfig]:
    out = []
    for text in texts:
        name, _, seeds = text.partition(":")
        if not all(seed.isdigit() for seed in (seeds or "0").split(",")):
            raise InputError(f"{text!r}: seeds are whole numbers with commas between them, such as {name}:0,1,2")
        out += [load_config(name, [f"seed={seed}"]) for seed in (seeds or "0").split(",")]
    return out


def _known(file: FilePath) -> dict[str, Any]:
    if not file.is_file():
        return {"format": FORMAT, "version": VERSION, "runs": {}}
    data = parse_json(file.read_bytes(), str(file))
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise InputError(f"{file}: not a record of format {FORMAT!r} version {VERSION}")
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
