"""What trained configs come to, as a record: ``ccenv train CONFIG --seeds 0,1,2 --record FILE``; all shipped ones: ``--shipped``.

Every number says where it is from: scores their world and set of paths, worst cases their scene, its set and how training met it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from ccenv.attacks import attack, scene_set
from ccenv.base.document import Format
from ccenv.envs.curve.settings import EnvSettings
from ccenv.base.errors import InputError
from ccenv.base.provenance import code_hash, machine, versions
from ccenv.training.config import TrainConfig
from ccenv.training.scenes import seen
from ccenv.training.rllib.config import RllibConfig
from ccenv.training.rllib.run import RllibResult, train_rllib
from ccenv.training.run import TrainingResult, read_code, train

FORMAT = Format("ccenv-learning-record", 2, "a record of training", older="record into a new file", sort_keys=True)
ATTACK = ("corners", "cem")
ATTACK_SCENES = ("deep", "shallow", "long_jitter", "narrow")
ATTACK_FLOW_STEPS = 4_000_000
_SKIPPED = ("resumed_from_steps", "returns", "folder")


def training_code(by_rllib: bool) -> str:
    """Return the hash of the code that trains."""
    return code_hash(train_rllib if by_rllib else train)


def entry_of(config: TrainConfig | RllibConfig, result: TrainingResult | RllibResult) -> dict[str, Any]:
    """Return what is recorded of a finished run; a sender that is trained alone is attacked for it.

    Raises:
        InputError: if the run was trained, or begun, by other code than today's.
    """
    code = training_code(isinstance(config, RllibConfig))
    if read_code(result.folder) != [code]:
        raise InputError(f"{result.folder}: trained by other code than this, so nothing is recorded; --fresh trains it again")
    entry = {name: value for name, value in asdict(result).items() if name not in _SKIPPED}
    entry |= {"seed": config.seed, "code": code}
    if isinstance(config, TrainConfig):
        entry["learns"] = f"{config.trains}, {config.algorithm.upper()}"
        packet, world = config.packet, config.environment
        attacked = config.trains == "sender" and len(world.senders) == 1
    else:
        entry["learns"] = f"{config.plays}, RLlib PPO"
        packet = config.environment if config.is_packet else None
        world = EnvSettings() if config.is_packet else config.settings()
        attacked = len(world.senders) == 1
    if packet is not None:
        attacked = result.evaluation.n_flows == 1
    entry["world"] = _world(world) if packet is None else {"packet": packet}
    if isinstance(config, TrainConfig) and config.mixture:
        entry["world"]["mixture"] = [part.model_dump(mode="json") for part in config.mixture]
    entry["worst"] = worst_cases(str(result.folder), config) if attacked else {}
    return entry


def worst_cases(sender: str, config: TrainConfig | RllibConfig) -> dict[str, dict[str, Any]]:
    """Attack a sender on each scene; return what was found, and what the scene is to its training."""
    cases = {}
    for scene in ATTACK_SCENES:
        found = attack(sender, path=scene, adversaries=ATTACK, budget_flow_steps=ATTACK_FLOW_STEPS)
        cases[scene] = {
            "utilisation": found.worst_utilisation,
            "adversary": found.worst_adversary,
            "legal": found.legal,
            "set": scene_set(scene),
            "seen": seen(config, scene),
        }
    return cases


def _world(world: EnvSettings) -> dict[str, Any]:
    return world.model_dump(mode="json", include={"senders", "models", "steps_per_rtt", "paths"})


def record(file: FilePath, config: TrainConfig | RllibConfig, result: TrainingResult | RllibResult) -> None:
    """Add a finished run to a record; other entries stay.

    Raises:
        InputError: if the file is no record, or the run was made by other code.
    """
    read_data(file)
    add_entry(file, f"{config.name}:{config.seed}", entry_of(config, result))


def add_entry(file: FilePath, key: str, entry: dict[str, Any]) -> None:
    """Write an entry into a record; other entries stay."""
    data = read_data(file)
    data["runs"][key] = entry
    data |= {"versions": versions(), "machine": machine()}
    FORMAT.write(file, data)


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
    return FORMAT.read(file) if file.is_file() else {**FORMAT.head, "runs": {}}


def by_config(data: dict[str, Any]) -> list[tuple[str, Sequence[dict[str, Any]]]]:
    """Return the runs of each config, by seed; senders first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key in sorted(data["runs"]):
        found.setdefault(key.rpartition(":")[0], []).append(data["runs"][key])
    for runs in found.values():
        runs.sort(key=lambda run: int(run["seed"]))
    return sorted(found.items(), key=lambda item: (item[1][0]["learns"].partition(",")[0] == "network", item[0]))
