"""The record of self-play with several seeds: learning curves, and each sender against each seed's network.

``python docs/tables/self_play.py FOLDER...`` records finished runs of ``ccenv train rllib_duel`` and draws their curves.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.errors import InputError
from ccenv.base.figure import finish, panels, save
from ccenv.base.files import Format
from ccenv.base.foreign import read_yaml
from ccenv.base.foreign.reading import read_text
from ccenv.base.provenance import code_hash, machine, versions

FORMAT = Format("ccenv-self-play", 1, "a record of self-play", older="record into a new file")
LAST = 5  # iterations at the end of a curve whose mean the table gives
_MOST_BYTES = 1 << 20


def record_self_play(folders: Sequence[FilePath], file: FilePath) -> dict[str, Any]:
    """Play each sender of finished RLlib duels, one per seed, against the network of each; write and return the record.

    The record has the seed, steps and mean return of the sender by iteration of each run (the network's return is its negative),
    and ``utilisation``, (runs, runs): of each sender against each network, on ``PathSet.REPORT``.

    Raises:
        InputError: if a folder holds no such run, or two differ in more than their seed.
    """
    from ccenv.adversaries.learned import load_adversary
    from ccenv.agents.learned import load_policy
    from ccenv.base.config import validate
    from ccenv.training.evaluation import evaluate_in_world
    from ccenv.training.rllib.run import CONFIG, NETWORK, PROGRESS, RllibConfig, train_rllib

    configs = [validate(RllibConfig, read_yaml(folder / CONFIG), str(folder / CONFIG)) for folder in folders]
    free = {"seed", "num_cpus", "address"}
    compared = [config.model_dump(exclude=free) for config in configs]
    if not configs or any(one != compared[0] for one in compared) or configs[0].plays != "duel":
        raise InputError("runs of one config that plays the duel are needed, which differ in their seeds alone")
    if len({config.seed for config in configs}) != len(configs):
        raise InputError("two of the runs have the same seed")
    curves = [_curve(folder / PROGRESS, config.iterations) for folder, config in zip(folders, configs, strict=True)]
    senders = [load_policy(folder) for folder in folders]
    networks = [load_adversary(folder / NETWORK) for folder in folders]
    world, n_paths = configs[0].settings(), configs[0].n_paths
    played = [[evaluate_in_world(world, one, n_paths, adversary=other) for other in networks] for one in senders]
    data = {
        "config": configs[0].name,
        "runs": [{"seed": config.seed, **curve} for config, curve in zip(configs, curves, strict=True)],
        "utilisation": [[one.utilisation for one in row] for row in played],
        "own": [asdict(played[number][number]) for number in range(len(configs))],
        "code": code_hash(train_rllib),
        "versions": versions(),
        "machine": machine(),
    }
    FORMAT.write(file, data)
    return data


def _curve(file: FilePath, iterations: int) -> dict[str, Any]:
    rows = list(csv.DictReader(io.StringIO(read_text(file, _MOST_BYTES))))
    try:
        curve = {"steps": [int(row["steps"]) for row in rows], "sender_return": [float(row["sender_return"]) for row in rows]}
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{file}: not the progress of self-play") from None
    if len(rows) != iterations:
        raise InputError(f"{file}: {len(rows)} of {iterations} iterations; train it to its end first")
    return curve


def draw_self_play(data: dict[str, Any], file: FilePath) -> None:
    """Draw the sender's mean return over the environment steps, one line per seed, from a record."""
    figure, (ax,) = panels(1, 1, (6.0, 3.2))
    for run in data["runs"]:
        ax.plot(run["steps"], run["sender_return"], label=f"seed {run['seed']}")
    finish(ax, "environment steps", "return of the sender", loc="best")
    save(figure, file)


def runs(data: dict[str, Any]) -> list[dict[str, str]]:
    """Return a row per seed."""
    seeds = [run["seed"] for run in data["runs"]]
    rows = []
    for run, evaluation, row in zip(data["runs"], data["own"], data["utilisation"], strict=True):
        returns = run["sender_return"]
        rows.append(
            {
                "seed": str(run["seed"]),
                "steps": f"{run['steps'][-1]:,}",
                "return, first": f"{returns[0]:.1f}",
                "half way": f"{np.mean(returns[len(returns) // 2 - LAST // 2 :][:LAST]):.1f}",
                f"last {LAST}": f"{np.mean(returns[-LAST:]):.1f}",
                **{f"utilisation, network {seed}": f"{value:.3f}" for seed, value in zip(seeds, row, strict=True)},
                "queue (BDP)": f"{evaluation['queue_bdp']:.2f}",
                "loss": f"{evaluation['loss']:.3f}",
            }
        )
    return rows


if __name__ == "__main__":
    docs = FilePath(__file__).parents[1]
    draw_self_play(
        record_self_play([FilePath(name) for name in sys.argv[1:]], docs / "data" / "self-play.json"),
        docs / "images" / "self-play.png",
    )
