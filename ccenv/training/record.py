"""Record what shipped configs come to, for ``ccenv train CONFIG --seeds 0,1,2 --record docs/data/learning.json``.

Senders are attacked too (corners and CEM on the deep and the shallow path), so that nominal score and worst case stand together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ccenv.adversaries.search import attack
from ccenv.benchmarks.provenance import machine, versions
from ccenv.errors import InputError
from ccenv.files import write_atomic
from ccenv.foreign import is_version, read_json
from ccenv.training.config import TrainConfig

if TYPE_CHECKING:
    from ccenv.training.rllib import RllibConfig, RllibResult
    from ccenv.training.run import Result

FORMAT, VERSION = "ccenv-learning-record", 1
ATTACK = ("corners", "cem")
ATTACK_PATHS = ("deep", "shallow")
ATTACK_FLOW_STEPS = 4_000_000
TABLE_START, TABLE_END = "<!-- table of the record: ccenv.training.record.write_table -->", "<!-- end of the table -->"
_HEAD = ("config", "learns", "seeds", "steps", "score", "utilisation", "queue (BDP)", "loss", "worst, deep", "worst, shallow")
_TIMES = ("wall s", "CPU s")
_SKIPPED = ("resumed_from_steps", "returns")


def record(file: FilePath, config: TrainConfig | RllibConfig, result: Result | RllibResult) -> None:
    """Add a finished run to a record; other entries stay.

    Raises:
        InputError: if the file is no record.
    """
    data = read_data(file)
    entry = {name: value for name, value in asdict(result).items() if name not in _SKIPPED}
    entry |= {"folder": str(result.folder), "seed": config.seed}
    if isinstance(config, TrainConfig):
        entry["learns"] = f"{config.trains}, {config.algorithm.upper()}"
        alone = config.trains == "sender" and len(config.environment.senders) == 1
    else:
        entry["learns"] = f"{config.plays}, RLlib PPO"
        alone = True
    if alone:
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


def check_record(file: FilePath) -> None:
    """Check that runs can be added to a record, before they are trained.

    Raises:
        InputError: if the file is no record, or has no folder to be in.
    """
    read_data(file)
    if file.is_dir() or not file.parent.is_dir():
        raise InputError(f"{file}: a file in an existing folder is needed")


def read_data(file: FilePath) -> dict[str, Any]:
    """Read a record; an empty one if there is no file."""
    if not file.is_file():
        return {"format": FORMAT, "version": VERSION, "runs": {}}
    data = read_json(file)
    if not isinstance(data, dict) or data.get("format") != FORMAT or not is_version(data.get("version"), VERSION):
        raise InputError(f"{file}: not a record of format {FORMAT!r} version {VERSION}")
    return data


def table(data: dict[str, Any]) -> str:
    """Return a record as a table in Markdown: one row per config, means over its seeds and, of several, lowest and highest."""
    names = [*_HEAD, *_TIMES]
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    by_config: dict[str, list[dict[str, Any]]] = {}
    for key in sorted(data["runs"]):
        by_config.setdefault(key.rpartition(":")[0], []).append(data["runs"][key])
    for name, runs in sorted(by_config.items(), key=lambda item: (item[1][0]["learns"].partition(",")[0] == "network", item[0])):
        runs.sort(key=lambda run: int(run["seed"]))
        seeds = ", ".join(str(run["seed"]) for run in runs)
        scores = [run["evaluation"] for run in runs]
        own = "" if _is_usual(scores[0]) else " (own)"
        attacks = [[run["worst_utilisation"][path] for run in runs if "worst_utilisation" in run] for path in ATTACK_PATHS]
        cells = [f"`{name}`", runs[0]["learns"], seeds, f"{max(run['steps'] for run in runs):,}"]
        cells += [_spread([s["score"] for s in scores]) + own]
        cells += [
            f"{_mean([s[key] for s in scores]):.{digits}f}" for key, digits in (("utilisation", 3), ("queue_bdp", 2), ("loss", 3))
        ]
        cells += [_spread(values) for values in attacks]
        cells += [_spread([run[key] for run in runs if key in run], 0) for key in ("seconds", "cpu_seconds")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_table(file: FilePath | str, page: FilePath | str) -> None:
    """Put the table of a record in its place on a page, between the two comments that mark it.

    Raises:
        InputError: if the page does not mark the place.
    """
    text = FilePath(page).read_text(encoding="utf-8")
    before, start, rest = text.partition(TABLE_START)
    _, end, after = rest.partition(TABLE_END)
    if not start or not end:
        raise InputError(f"{page}: has no place for the table, between {TABLE_START!r} and {TABLE_END!r}")
    made = f"{before}{start}\n\n{table(read_data(FilePath(file)))}\n\n{end}{after}"
    write_atomic(FilePath(page), made.encode())


def _is_usual(evaluation: dict[str, float]) -> bool:
    """Tell whether a score is that of the default reward."""
    usual = evaluation["utilisation"] - 0.1 * evaluation["queue_bdp"] - evaluation["loss"]
    return abs(evaluation["score"] - usual) < 1e-9


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float], digits: int = 3) -> str:
    if not values:
        return ""
    mean = f"{_mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"
