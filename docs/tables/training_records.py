"""Records of trained configs: all shipped ones by ``docs/tables/record_training.py``.

Every number names its origin: scores their world and set of paths, worst cases their attack scenario, its set and whether
training has seen it. The shipped policies are measured with today's code, but their weights are older than the recorded runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.attacks.run import attack
from ccenv.attacks.scenes import PATHS, scene_set
from ccenv.base.config import shipped_names, validate
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import Format, hash_value, locked, make_folder, plain
from ccenv.base.provenance import code_hash, machine, versions
from ccenv.base.store import find_once
from ccenv.base.workers import Workers
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings
from ccenv.network.path import Path
from ccenv.training.config import CONFIGS, TrainConfig, load_config, load_data, read_config
from ccenv.training.distill.objective import ATTACK, ATTACK_SCENES
from ccenv.training.evaluation import evaluate_sender
from ccenv.training.rllib.run import RllibConfig, RllibResult, train_rllib
from ccenv.training.run import TrainingResult, read_code, train
from ccenv.training.settings import fixed_paths

ATTACKED, TRAINED, IN_RANGE = "attacked", "trained", "in range"
"""How training has seen an attack scenario: attacked in rounds; as a fixed path; in the range of the distribution of paths."""


def attacked_scenes(config: TrainConfig | RllibConfig) -> tuple[str, ...]:
    """Return the attack scenarios that were attacked during training."""
    robust = config.robust if isinstance(config, TrainConfig) else None
    return robust.paths if robust is not None and robust.share > 0 else ()


def how_seen(config: TrainConfig | RllibConfig, scene: str) -> str | None:
    """Return how a config's training has seen an attack scenario; None: it has not."""
    path = PATHS[scene]
    if scene in attacked_scenes(config):
        return ATTACKED
    if isinstance(config, TrainConfig):
        worlds = [config.environment.paths, *(stage.paths for stage in config.curriculum if stage.paths is not None)]
        if config.robust is not None and config.robust.drawn is not None:
            worlds.append(config.robust.drawn.paths)
    else:
        worlds = [config.settings().paths]
    if any(path in fixed_paths(world) for world in worlds):
        return TRAINED
    if any(isinstance(world, PathDistribution) and covers(world, path) for world in worlds):
        return IN_RANGE
    return None


def covers(distribution: PathDistribution, path: Path) -> bool:
    """Tell whether a path of one flow lies in the ranges of a distribution."""
    flow = path.flows[0]
    numbers = (
        (path.bdp_bytes / path.mss_bytes, distribution.link_rate_mss_per_rtt),
        (flow.rtt_s, distribution.rtt_s),
        (flow.jitter_s / flow.rtt_s, distribution.jitter_rtts),
        (path.buffer_bytes / path.bdp_bytes, distribution.buffer_bdp),
    )
    return path.mss_bytes == distribution.mss_bytes and all(
        math.isfinite(value) and low * (1 - 1e-9) <= value <= high * (1 + 1e-9) for value, (low, high) in numbers
    )


FORMAT = Format("ccenv-learning-record", 2, "a record of training", older="record into a new file", sort_keys=True)
ATTACK_FLOW_STEPS = 4_000_000
_SKIPPED = ("resumed_from_steps", "returns", "folder")


def training_code(by_rllib: bool) -> str:
    """Return the hash of the code that trains."""
    return code_hash(train_rllib if by_rllib else train)


def make_entry(config: TrainConfig | RllibConfig, result: TrainingResult | RllibResult) -> dict[str, Any]:
    """Return the entry of a finished run, in which a sender trained alone on its link is attacked.

    Raises InputError if the run was trained, or begun, by other code than today's.
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
    keys = {"senders", "models", "steps_per_rtt", "paths"}
    entry["world"] = world.model_dump(mode="json", include=keys) if packet is None else {"packet": packet}
    if isinstance(config, TrainConfig) and config.mixture:
        entry["world"]["mixture"] = [part.model_dump(mode="json") for part in config.mixture]
    entry["worst"] = worst_cases(str(result.folder), config) if attacked else {}
    return entry


def worst_cases(sender: str, config: TrainConfig | RllibConfig) -> dict[str, dict[str, Any]]:
    """Attack a sender in each attack scenario; return the worst cases, with how its training has seen the scenario."""
    cases = {}
    for scene in ATTACK_SCENES:
        result = attack(sender, path=scene, adversaries=ATTACK, budget_flow_steps=ATTACK_FLOW_STEPS)
        cases[scene] = {
            "utilisation": result.worst_utilisation,
            "adversary": result.worst_adversary,
            "legal": result.legal,
            "set": scene_set(scene),
            "seen": how_seen(config, scene),
        }
    return cases


def add_entry(file: FilePath, key: str, entry: dict[str, Any]) -> None:
    """Write an entry into a record; other entries stay."""
    data = read_data(file)
    data["runs"][key] = entry
    data |= {"versions": versions(), "machine": machine()}
    FORMAT.write(file, data)


def check_record(file: FilePath) -> None:
    """Raise InputError, before training, if a file is no record or its folder does not exist."""
    read_data(file)
    if file.is_dir() or not file.parent.is_dir():
        raise InputError(f"{file}: a file in an existing folder is needed")


def read_data(file: FilePath) -> dict[str, Any]:
    """Read a record; an empty one if there is no file."""
    return FORMAT.read(file) if file.is_file() else {**FORMAT.head, "runs": {}}


def group_by_config(data: dict[str, Any]) -> list[tuple[str, Sequence[dict[str, Any]]]]:
    """Return the runs of each config, by seed; senders first."""
    runs_of_config: dict[str, list[dict[str, Any]]] = {}
    for key in sorted(data["runs"]):
        runs_of_config.setdefault(key.rpartition(":")[0], []).append(data["runs"][key])
    for runs in runs_of_config.values():
        runs.sort(key=lambda run: int(run["seed"]))
    return sorted(runs_of_config.items(), key=lambda item: (item[1][0]["learns"].partition(",")[0] == "network", item[0]))


def record_zoo(file: FilePath | str) -> None:
    """Measure the policies of the zoo and write them into a record; its runs stay. Raises InputError if the file is no record."""
    data = read_data(FilePath(file))
    data["zoo"] = {name: zoo_entry(name) for name in AGENTS.names("learned")}
    FORMAT.write(FilePath(file), data | {"versions": versions(), "machine": machine()})


def zoo_entry(name: str) -> dict[str, Any]:
    """Return a shipped policy's hash, its score in the common world and its worst case in each attack scenario."""
    sender = make_sender(name)
    return {
        "sender_sha256": sender_hash(sender),
        "code": code_hash(evaluate_sender, attack),
        "common": asdict(evaluate_sender(sender)),
        "worst": worst_cases(name, load_config(name, [])),
    }


SEEDS: dict[str, int] = {"ppo_sender": 5}
DEFAULT_SEEDS = 3
ENTRY = "entry.json"
DEFAULT_FOLDER = FilePath("runs") / "shipped"


def shipped_runs(names: Sequence[str] | None = None) -> list[tuple[str, int]]:
    """Return the runs of the record as (config, seed); the longest ones, those of RLlib, come first."""
    chosen = list(names or shipped_names(CONFIGS, ".yaml"))
    chosen.sort(key=lambda name: not _uses_rllib(name))
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
    """Train shipped configs and write their record, or resume an interrupted call; return the number of runs.

    Runs, NAME-SEED in ``folder``, of other code or of another config are discarded and repeated; entries of other configs stay.
    ``names`` None: all configs, and the policies of the zoo are measured (``record_zoo``). ``overrides`` are of every config.

    Raises InputError if the file is no record; MissingExtraError if what a run needs is not installed.
    """
    check_record(file)
    runs = shipped_runs(names)
    require_extra("stable_baselines3", "train")
    if any(_uses_rllib(name) for name, _ in runs):
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


def _uses_rllib(name: str) -> bool:
    return load_data(name)[0].get("trainer") == "rllib"


def _entry(name: str, seed: int, overrides: tuple[str, ...], folder: FilePath) -> dict[str, Any]:
    """Return a run's entry, from disk if it was made by the same code from the same config."""
    all_overrides = [*overrides, f"seed={seed}"]
    run_folder = folder / f"{name}-{seed}"
    data = load_data(name, all_overrides)[0]
    key = {"code": training_code(_uses_rllib(name)), "config": hash_value(data), "players": _hash_senders(data)}
    measured = {"adversaries": ATTACK, "scenes": ATTACK_SCENES, "flow_steps": ATTACK_FLOW_STEPS}

    def train_and_measure(stored: dict[str, Any]) -> dict[str, Any]:
        return _train_entry(name, all_overrides, run_folder, bool(stored) and stored.get("key") != key)

    return find_once(run_folder / ENTRY, {"key": key, "measured": plain(measured)}, "entry", train_and_measure)


def _hash_senders(data: dict[str, Any]) -> list[str]:
    """Return the hashes of the senders that a config names, because code hashes do not cover the zoo's weights."""
    names = data.get("environment", {}).get("senders", ())
    return [sender_hash(make_sender(name)) for name in names if name != EXTERNAL]


def _train_entry(name: str, overrides: Sequence[str], folder: FilePath, outdated: bool) -> dict[str, Any]:
    """Train, from scratch if the folder's run is outdated, and measure."""
    if _uses_rllib(name):
        from ccenv.training.rllib.run import RllibConfig, train_rllib

        rllib = validate(RllibConfig, *load_data(name, overrides))
        return make_entry(rllib, train_rllib(rllib, folder, fresh=True))
    from ccenv.training.run import CONFIG, read_code, train

    config = load_config(name, overrides)
    if (folder / CONFIG).is_file() and not outdated:
        try:
            outdated = read_code(folder) != [training_code(by_rllib=False)] or read_config(folder / CONFIG) != config
        except InputError:  # a config of a version with other keys
            outdated = True
    return make_entry(config, train(config, folder, restart=outdated))
