"""Train and record every shipped config with its seeds: ``ccenv train --shipped --record FILE``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import make_sender
from ccenv.base.config import shipped_names, validate
from ccenv.base.document import hash_of, json_bytes, plain
from ccenv.envs.curve.settings import EXTERNAL
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import locked, make_folder, write_atomic
from ccenv.base.foreign import read_json
from ccenv.agents.identity import sender_hash
from ccenv.training.config import CONFIGS, load_config, load_data, read_config
from ccenv.training import records as record
from ccenv.training.records import add_entry, check_record, entry_of
from ccenv.training.zoo import record_zoo
from ccenv.base.workers import Workers

SEEDS: dict[str, int] = {"ppo_sender": 5}
DEFAULT_SEEDS = 3
ENTRY = "entry.json"
DEFAULT_FOLDER = FilePath("runs") / "shipped"


def shipped_runs(names: Sequence[str] | None = None) -> list[tuple[str, int]]:
    """Return the runs of the record as (config, seed); those of RLlib, which take longest, come first."""
    chosen = list(names or shipped_names(CONFIGS, ".yaml"))
    chosen.sort(key=lambda name: not _by_rllib(name))
    return [(name, seed) for name in chosen for seed in range(SEEDS.get(name, DEFAULT_SEEDS))]


def train_shipped(
    file: FilePath,
    folder: FilePath = DEFAULT_FOLDER,
    *,
    names: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    report: Callable[[int, int], None] | None = None,
) -> int:
    """Train shipped configs and write their record; the same call goes on with an interrupted one.

    What is recorded was trained by today's code and today's config; runs of others are done again.

    Args:
        file: the record; entries of configs that are not trained stay.
        folder: of the runs, NAME-SEED each. It is this function's own: outdated runs in it are discarded.
        names: of the configs; None: all, and the policies of the zoo are measured (``records.zoo``).
        overrides: of every config, as with ``--set``.
        jobs: runs at a time, each on one core.
        report: called with the number of finished and of all runs.

    Returns:
        int: number of runs.

    Raises:
        InputError: if the file is no record.
        MissingExtraError: if what a run needs is not installed.
    """
    check_record(file)
    runs = shipped_runs(names)
    require_extra("stable_baselines3", "train")
    if any(_by_rllib(name) for name, _ in runs):
        require_extra("ray", "rllib")
        require_extra("pettingzoo", "duel")
    workers = Workers(jobs)
    make_folder(folder)
    with locked(folder, "recording of the shipped configs"), workers:
        results = [workers.submit(_entry, name, seed, tuple(overrides), folder) for name, seed in runs]
        for done, ((name, seed), result) in enumerate(zip(runs, results, strict=True), 1):
            add_entry(file, f"{name}:{seed}", result())
            if report is not None:
                report(done, len(runs))
    if names is None:
        record_zoo(file)
    return len(runs)


def _by_rllib(name: str) -> bool:
    return load_data(name)[0].get("trainer") == "rllib"


def _entry(name: str, seed: int, overrides: tuple[str, ...], folder: FilePath) -> dict[str, Any]:
    """Return a run's entry, from disk if the same code has made it of the same config."""
    given = [*overrides, f"seed={seed}"]
    own = folder / f"{name}-{seed}"
    file = own / ENTRY
    data = load_data(name, given)[0]
    key = {"code": record.training_code(_by_rllib(name)), "config": hash_of(data), "players": _players(data)}
    measured = {"adversaries": record.ATTACK, "scenes": record.ATTACK_SCENES, "flow_steps": record.ATTACK_FLOW_STEPS}
    asked = {"key": key, "measured": plain(measured)}
    known = read_json(file) if file.is_file() else {}
    if isinstance(known, dict) and isinstance(known.get("entry"), dict) and {k: known.get(k) for k in asked} == asked:
        return dict(known["entry"])
    outdated = file.is_file() and (not isinstance(known, dict) or known.get("key") != key)
    entry = _trained(name, given, own, outdated)
    write_atomic(file, json_bytes(asked | {"entry": entry}))
    return entry


def _players(data: dict[str, Any]) -> list[str]:
    """Return hashes of the senders that a config names: the weights of the zoo are no code."""
    names = data.get("environment", {}).get("senders", ())
    return [sender_hash(make_sender(name)) for name in names if name != EXTERNAL]


def _trained(name: str, overrides: Sequence[str], folder: FilePath, outdated: bool) -> dict[str, Any]:
    """Train, from the start if what is there is outdated, and measure."""
    if _by_rllib(name):
        from ccenv.training.rllib.config import RllibConfig
        from ccenv.training.rllib.run import train_rllib

        rllib = validate(RllibConfig, *load_data(name, overrides))
        return entry_of(rllib, train_rllib(rllib, folder, fresh=True))
    from ccenv.training.run import CONFIG, read_code, train

    config = load_config(name, overrides)
    if (folder / CONFIG).is_file() and not outdated:
        try:
            outdated = read_code(folder) != [record.training_code(by_rllib=False)] or read_config(folder / CONFIG) != config
        except InputError:  # a config of a version with other keys
            outdated = True
    return entry_of(config, train(config, folder, restart=outdated))
