"""Data sets in Minari's layout: made in chunks on any number of workers, resumed, read back against their hashes.

The files are those that Minari 0.5 writes for its format ``arrow``, one folder an episode. Its own writer adds up the size of the
whole data set after each episode, which takes quadratic time; its reader reads them.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.base.errors import CcenvError, InputError, one_line
from ccenv.base.files import Format, hash_value, json_bytes, make_folder, plain, write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.provenance import VERSION, code_hash
from ccenv.base.store import ResultFolder
from ccenv.base.workers import Workers
from ccenv.envs.packet.settings import PacketSettings
from ccenv.envs.packet.task import controlled_flows, flow_actions, limits
from ccenv.training.offline.config import CHUNKS_PER_SEED, DataConfig, DataPart, load_data_config, require_data
from ccenv.training.offline.play import Episode, broken_laws, play
from ccenv.training.path_sets import PathSet, path_seed

CHUNKS = "chunks.jsonl"
FORMAT = Format("ccenv-data", 1, "a data set", older="--fresh makes it anew", indent=None)
METADATA, EPISODE = "metadata.json", "part-0.arrow"
_KEYS = {"part", "episodes", "transitions", "reward_sum", "sha256", "broken", "line_sha256"}
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Data:
    """The transitions of a data set, n in all, episode after episode.

    Attributes:
        id: for ``minari.load_dataset``.
        sha256: of all files of its episodes.
        observations, next_observations: (n, width) float32.
        actions: (n, 1) float32 in [-1, 1].
        rewards: (n,) float32.
        parts: (n,) part of the mixture.
        config: that made it.
    """

    id: str
    sha256: str
    observations: np.ndarray
    next_observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    parts: np.ndarray
    config: DataConfig


def data_folder(config: DataConfig, root: FilePath | None = None) -> FilePath:
    """Return the folder of a data set below a folder of data sets: by default Minari's, which MINARI_DATASETS_PATH may name."""
    if root is None:
        root = FilePath(os.environ.get("MINARI_DATASETS_PATH") or FilePath.home() / ".minari" / "datasets")
    return root / data_id(config)


def data_id(config: DataConfig) -> str:
    """Return the name of a data set for Minari."""
    return f"ccenv/{config.name}-v0"


def make_data(
    config: DataConfig | str,
    root: FilePath | str | None = None,
    *,
    jobs: int = 1,
    backend: str = "processes",
    fresh: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Make a data set, or go on with it; its files do not depend on the number of workers or on interruptions.

    Args:
        config: or the name of a shipped one, or a YAML file.
        root: folder of data sets; see :func:`data_folder`.
        jobs: parallel workers.
        backend: ``"processes"`` or ``"ray"``; Ray on several machines needs a folder that all of them see.
        fresh: discard what is stored.
        report: called with the number of finished chunks and of all of them.

    Returns:
        What the data set holds, by part, and what the call took.

    Raises:
        MissingExtraError: without the extra ``data``.
        InputError: for a folder that holds something else, or a data set of another config or code.
    """
    require_data()
    config = load_data_config(config) if isinstance(config, str) else config
    folder = data_folder(config, None if root is None else FilePath(root))
    key = {"config": plain(config), "code": code_hash(make_data)}
    begun, own_cpu_s = time.perf_counter(), time.process_time()
    with (
        Workers(jobs, backend) as workers,
        ResultFolder(folder, "a data set", CHUNKS, FORMAT, key, fresh=fresh, owns=("data",)) as store,
    ):
        if store.stored is None:
            store.write(key)
        make_folder(folder / "data")
        journal = store.journal(CHUNKS, _is_line, "a chunk of a data set")
        chunks = [(part, number) for part, count in enumerate(config.chunks_of_parts()) for number in range(count)]
        finished = len(journal.lines)
        if report is not None:
            report(finished, len(chunks))
        folder_data = str(folder / "data")
        stored = [(folder_data, config, chunk, line["sha256"]) for chunk, line in enumerate(journal.lines)]
        for chunk, same in enumerate(workers.map(_is_stored, stored)):
            if not same:
                raise InputError(f"{folder}: the files of chunk {chunk} are not those that were made: --fresh makes them anew")
        for name in sorted({*os.listdir(folder_data)} - {METADATA, *map(str, range(_first_episode(config, len(chunks))))}):
            raise InputError(f"{folder}: data/{name} is no file of this data set: remove it, or --fresh makes the set anew")
        worker_cpu_s, new = 0.0, 0
        tasks = [(folder_data, config, chunk, *chunks[chunk]) for chunk in range(finished, len(chunks))]
        for line, cpu_s in workers.map(_make_chunk, tasks):
            journal.append(line)
            worker_cpu_s, new = worker_cpu_s + cpu_s, new + line["transitions"]
            if report is not None:
                report(len(journal.lines), len(chunks))
        summary = _summary(config, journal.lines)
        (folder / "data" / METADATA).unlink(missing_ok=True)
        write_atomic(folder / "data" / METADATA, json_bytes(_metadata(config, folder, key["code"], summary)))
    cpu_s = worker_cpu_s if workers.parallel else time.process_time() - own_cpu_s
    made = {"made_transitions": new, "seconds": time.perf_counter() - begun, "cpu_seconds": cpu_s}
    made |= {"transitions_per_cpu_minute": 60.0 * new / cpu_s} if new else {}
    return {"id": data_id(config), "folder": str(folder), **summary, **made}


def _is_line(line: Any) -> bool:
    return isinstance(line, dict) and set(line) == _KEYS and line["line_sha256"] == _hash_line(line)


def _hash_line(line: dict[str, Any]) -> str:
    return hash_value({key: value for key, value in line.items() if key != "line_sha256"})


def _make_chunk(task: tuple[str, DataConfig, int, int, int]) -> tuple[dict[str, Any], float]:
    """Play and write a chunk; return its line of the journal and CPU seconds."""
    data, config, chunk, part_number, number_in_part = task
    cpu_s = time.process_time()
    part = config.parts[part_number]
    number = config.seed * CHUNKS_PER_SEED + chunk
    seed = path_seed(PathSet.TRAIN, number)
    episodes, _ = play(config, part, seed, config.networks)
    broken = broken_laws(config, part, seed, episodes) if number_in_part == 0 and config.checked else []
    if not all(len(episode.rewards) for episode in episodes):
        raise InputError(f"parts.{part_number}: a flow has decided only once in its episode; give the networks more time")
    first = _first_episode(config, chunk)
    digest = hashlib.sha256()
    for row, episode in enumerate(episodes):
        digest.update(_write_episode(FilePath(data, str(first + row)), first + row, episode, part_number, part, (number, row)))
    rewards = [float(episode.rewards.sum()) for episode in episodes]
    line = {
        "part": part_number,
        "episodes": len(episodes),
        "transitions": sum(len(episode.rewards) for episode in episodes),
        "reward_sum": sum(rewards),
        "sha256": digest.hexdigest(),
        "broken": broken,
    }
    return line | {"line_sha256": _hash_line(line)}, time.process_time() - cpu_s


def _first_episode(config: DataConfig, chunk: int) -> int:
    """Return the number of the first episode of a chunk: an episode for each controlled flow of each network before it."""
    first = 0
    for part, count in zip(config.parts, config.chunks_of_parts(), strict=True):
        flows = _flows(config, part)
        first += min(chunk, count) * config.networks * flows
        chunk -= min(chunk, count)
    return first


def _flows(config: DataConfig, part: DataPart) -> int:
    if part.packet is None:
        return len(config.curve_settings(part).external_flows())
    return len(controlled_flows(config.packet_settings(part).distribution))


def _write_episode(
    folder: FilePath, number: int, episode: Episode, part_number: int, part: DataPart, drawn: tuple[int, int]
) -> bytes:
    """Write an episode as Minari's ArrowStorage does: as many rows as observations, the last one's other columns zero.

    Returns the hash of its two files, which those of its chunk are hashed from.
    """
    import pyarrow as pa

    n = len(episode.rewards)
    over = np.zeros(n + 1, np.bool_)
    truncated = over.copy()
    truncated[n - 1] = True
    seen = pa.FixedSizeListArray.from_arrays(pa.array(episode.observations.reshape(-1)), episode.observations.shape[1])
    actions = pa.FixedSizeListArray.from_arrays(pa.array(np.append(episode.actions, np.float32(0.0))), 1)
    columns = {
        "observations": seen,
        "actions": actions,
        "rewards": np.append(episode.rewards, 0.0),
        "terminations": over,
        "truncations": truncated,
    }
    batch = pa.RecordBatch.from_pydict(columns)
    about = {"id": number, "total_steps": n, "behaviour": part.behaviour, "part": part_number, "engine": part.engine}
    about |= {"seed": drawn[0], "network": drawn[1]}
    out, told = pa.BufferOutputStream(), json_bytes(about, indent=None)
    with pa.ipc.new_file(out, batch.schema) as writer:
        writer.write_batch(batch)
    content = out.getvalue().to_pybytes()
    folder.mkdir(exist_ok=True)
    try:
        (folder / EPISODE).write_bytes(content)
        (folder / METADATA).write_bytes(told)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be written ({error.strerror or error})") from None
    return hashlib.sha256(content + told).digest()


def _hash_chunk(data: str, config: DataConfig, chunk: int) -> str:
    """Return the hash of the files of a chunk, as :func:`_make_chunk` wrote them; empty if there are others. Raises OSError."""
    digest = hashlib.sha256()
    for number in range(_first_episode(config, chunk), _first_episode(config, chunk + 1)):
        if {*os.listdir(FilePath(data, str(number)))} != {EPISODE, METADATA}:
            return ""
        files = (FilePath(data, str(number), name) for name in (EPISODE, METADATA))
        digest.update(hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest())
    return digest.hexdigest()


def _is_stored(task: tuple[str, DataConfig, int, str]) -> bool:
    data, config, chunk, sha256 = task
    try:
        return _hash_chunk(data, config, chunk) == sha256
    except OSError:
        return False


def _summary(config: DataConfig, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a data set holds, by part."""
    total = sum(line["transitions"] for line in lines)
    parts = []
    for number, part in enumerate(config.parts):
        of_part = [line for line in lines if line["part"] == number]
        n, broken = sum(line["transitions"] for line in of_part), [problem for line in of_part for problem in line["broken"]]
        parts.append(
            {
                "behaviour": part.behaviour,
                "engine": part.engine,
                "scenario": part.packet if part.environment is None else part.environment,
                "episodes": sum(line["episodes"] for line in of_part),
                "transitions": n,
                "share": n / total,
                "mean_reward": sum(line["reward_sum"] for line in of_part) / n,
                "checked": len(broken),
                "legal": sum(not problem for problem in broken),
                "broken": [problem for problem in broken if problem],
            }
        )
    content = hashlib.sha256("".join(line["sha256"] for line in lines).encode()).hexdigest()
    sizes = {key: sum(line[key] for line in lines) for key in ("episodes", "transitions")}
    return sizes | {"sha256": content, "legal": all(part["legal"] == part["checked"] for part in parts), "parts": parts}


def spaces(settings: PacketSettings) -> tuple[Any, Any]:
    """Return the observation and action space of a data set with this interface."""
    from gymnasium.spaces import Box

    return Box(*limits(settings.interface(), 1), dtype=np.float32), flow_actions(1, None).space


def _metadata(config: DataConfig, folder: FilePath, code: str, summary: dict[str, Any]) -> dict[str, Any]:
    """Return Minari's metadata, with those of ccenv under a key of their own."""
    from minari.serialization import serialize_space

    seen, actions = spaces(config.packet_settings())
    size = sum(file.stat().st_size for file in (folder / "data").glob(f"*/{EPISODE}"))
    return {
        "total_episodes": summary["episodes"],
        "total_steps": summary["transitions"],
        "data_format": "arrow",
        "jpeg_encoding": False,
        "observation_space": serialize_space(seen),
        "action_space": serialize_space(actions),
        "dataset_id": data_id(config),
        "minari_version": importlib.metadata.version("minari"),
        "dataset_size": round(size / 1e6, 1),
        "algorithm_name": ", ".join(dict.fromkeys(part.behaviour for part in config.parts)),
        "description": f"transitions of congestion control by {len(config.parts)} behaviours; the key ccenv tells them apart",
        "requirements": [f"ccenv=={VERSION}"],
        "ccenv": plain({"config": config, "code": code, **summary}),
    }


def load_data(folder: FilePath) -> Data:
    """Read a whole data set.

    Raises InputError, one line, if it is missing, unfinished, damaged, changed or none of ccenv.
    """
    require_data()
    from minari import MinariDataset

    file = folder / "data" / METADATA
    if not file.is_file():
        raise InputError(f"{folder}: no finished data set; ccenv data make makes one")
    metadata = read_json(file)
    n_episodes = sum(entry.is_dir() for entry in os.scandir(folder / "data"))
    if not isinstance(metadata, dict) or metadata.get("total_episodes") != n_episodes:
        raise InputError(f"{folder}: not a readable data set (it has {n_episodes} episodes; its metadata tell another number)")
    try:
        about = metadata["ccenv"]
        stored = MinariDataset(folder / "data")
        config = DataConfig.model_validate(about["config"])
        hashes = [_hash_chunk(str(folder / "data"), config, chunk) for chunk in range(sum(config.chunks_of_parts()))]
        same = hashlib.sha256("".join(hashes).encode()).hexdigest() == about["sha256"]
        episodes = [
            (
                Episode(
                    np.asarray(one.observations, np.float32), np.asarray(one.actions, np.float32), np.asarray(one.rewards, float)
                ),
                meta["part"],
            )
            for one, meta in zip(
                stored.iterate_episodes(), stored.storage.get_episode_metadata(stored.episode_indices), strict=True
            )
        ]
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # what a damaged file makes of Minari, Arrow or NumPy may be anything
        raise InputError(f"{folder}: not a readable data set ({one_line(f'{type(error).__name__}: {error}')[:200]})") from None
    if not same:
        raise InputError(f"{folder}: its files are not those that were made (sha256 differs): --fresh makes them anew")
    width = config.packet_settings().interface().width
    if any(one.observations.shape != (len(one.rewards) + 1, width) or not np.isfinite(one.rewards).all() for one, _ in episodes):
        raise InputError(f"{folder}: observations are not of the config's interface, {width} numbers")
    return Data(
        id=data_id(config),
        sha256=about["sha256"],
        observations=np.concatenate([one.observations[:-1] for one, _ in episodes]),
        next_observations=np.concatenate([one.observations[1:] for one, _ in episodes]),
        actions=np.concatenate([one.actions for one, _ in episodes]),
        rewards=np.concatenate([one.rewards for one, _ in episodes]).astype(np.float32),
        parts=np.repeat([part for _, part in episodes], [len(one.rewards) for one, _ in episodes]),
        config=config,
    )


def read_data(name: str) -> Data:
    """Return the data set of a config, by its shipped name or file; it is made if it is not there.

    Raises InputError for a damaged one, or one of another config.
    """
    config = load_data_config(name)
    folder = data_folder(config)
    if not (folder / "data" / METADATA).is_file():
        make_data(config)
    data = load_data(folder)
    if data.config != config:
        raise InputError(f"{folder}: made by another config than {name!r} is now: ccenv data make {name} --fresh")
    return data
