"""A training run in a folder: config, record, progress, checkpoint, policy."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ccenv.adversary import MlpAdversary
from ccenv.errors import InputError
from ccenv.files import make_folder, write_atomic
from ccenv.foreign import is_version, read_json
from ccenv.sender import MlpSender
from ccenv.training.checkpoint import TrainingState, read_checkpoint, write_checkpoint
from ccenv.training.config import TrainConfig, read_config
from ccenv.training.evaluation import Evaluation, evaluate_sender
from ccenv.training.logs import Log, Progress, check_logs, open_logs

CONFIG, RECORD, CHECKPOINT, BEST = "config.yaml", "run.json", "checkpoint", "best"
Player = MlpSender | MlpAdversary
FORMAT, VERSION = "ccenv-run", 1
RUNNING, INTERRUPTED, DIVERGED, FINISHED = "running", "interrupted", "diverged", "finished"


@dataclass(frozen=True)
class Result:
    """What a finished run came to.

    Attributes:
        folder: of the run; ``ccenv.agents.make_sender`` takes it.
        steps: environment steps.
        seconds: wall time of training, with evaluations and attacks on the way, without the final evaluation.
        cpu_seconds: processor time of the same.
        resumed_from_steps: step that this call went on from; 0: from the start.
        evaluation: on held-out paths; of a network, how its sender fares.
        best_score: of the evaluations during training and after; its policy is in the folder ``best``.
        best_steps: when.
        stopped_early: the held-out score no longer rose.
    """

    folder: FilePath
    steps: int
    seconds: float
    cpu_seconds: float
    resumed_from_steps: int
    evaluation: Evaluation
    best_score: float
    best_steps: int
    stopped_early: bool


def default_folder(config: TrainConfig) -> FilePath:
    """Return where a run goes if nobody says: runs/NAME-SEED."""
    return FilePath("runs") / f"{config.name}-{config.seed}"


def train(
    config: TrainConfig,
    folder: FilePath | None = None,
    *,
    restart: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> Result:
    """Train a sender or a network, or go on with an interrupted run of the same config in the same folder.

    A resumed run ends with the same weights as an uninterrupted one.

    Args:
        config: the run.
        folder: where everything is written; by default runs/NAME-SEED.
        restart: discard what the folder holds of an earlier run.
        report: called after each iteration.

    Returns:
        Result: of the finished run.

    Raises:
        MissingExtraError: if something that it needs is not installed.
        InputError: if the folder holds something else, or a run of another config.
        DivergedError: if training left the finite numbers; the last good checkpoint stays.
        KeyboardInterrupt: at Ctrl-C, after the last finished iteration has been saved.
    """
    folder = default_folder(config) if folder is None else FilePath(folder)
    from ccenv.training.learner import DivergedError, Learner

    check_logs(config.log)
    state = _prepare(config, folder, restart)
    learner = Learner(config, state)
    start = learner.state.iteration * config.iteration_steps
    record = _Record(folder, config)
    record.write(RUNNING)
    logs = open_logs(config.log, folder, config, keep_steps=start)
    try:
        if not _stopped(config, learner.marks):
            learner.run(_after_iteration(config, folder, learner, logs, report))
    except KeyboardInterrupt:
        _save(config, folder, learner.state, learner.player(), INTERRUPTED)
        record.write(INTERRUPTED)
        raise
    except DivergedError as error:
        _save(config, folder, learner.state, learner.player(), DIVERGED)
        record.write(DIVERGED, error=str(error))
        raise
    finally:
        for log in logs:
            log.close()
    seconds, cpu_seconds = learner.clock.read()
    player = learner.player()
    evaluation = _evaluate(config, player, config.evaluation.n_paths)
    steps = learner.state.iteration * config.iteration_steps
    best = learner.marks.get("best_score", evaluation.score), int(learner.marks.get("best_steps", steps))
    result = Result(folder, steps, seconds, cpu_seconds, start, evaluation, *best, _stopped(config, learner.marks))
    state = replace(learner.state, seconds=seconds, cpu_seconds=cpu_seconds)
    _save(config, folder, state, player, FINISHED, evaluation)
    shown = asdict(result)
    del shown["folder"], shown["resumed_from_steps"]
    record.write(FINISHED, **shown)
    return result


def _prepare(config: TrainConfig, folder: FilePath, restart: bool) -> TrainingState | None:
    """Make or check the folder; return the state to go on from."""
    config_file = folder / CONFIG
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is not a folder")
    if folder.is_dir() and any(folder.iterdir()) and not config_file.is_file():
        raise InputError(f"{folder}: holds something else than a training run; choose another --out")
    if restart:
        for part in (CHECKPOINT, BEST):
            shutil.rmtree(folder / part, ignore_errors=True)
    make_folder(folder)
    state = read_checkpoint(folder / CHECKPOINT)
    if state is not None and not read_config(config_file).same_run(config):
        raise InputError(f"{folder}: holds a run of another config; choose another --out, or --restart to discard it")
    if state is not None and state.iteration > config.iterations:
        done = state.iteration * config.iteration_steps
        raise InputError(f"{folder}: has already trained {done} steps, more than total_steps {config.total_steps}")
    write_atomic(config_file, config.to_yaml().encode())
    return state


def _after_iteration(
    config: TrainConfig, folder: FilePath, learner: Any, logs: list[Log], report: Callable[[Progress], None] | None
) -> Callable[[TrainingState, Progress], bool]:
    def due(every: int, steps: int) -> bool:
        return every > 0 and steps // every > (steps - config.iteration_steps) // every

    def after(state: TrainingState, progress: Progress) -> bool:
        if due(config.evaluation.every_steps, progress.steps):
            player = learner.player()
            score = _evaluate(config, player, config.evaluation.n_paths_during).score
            progress = replace(progress, evaluation_score=score)
            if _mark(config, learner.marks, score, progress.steps):
                (folder / BEST).mkdir(exist_ok=True)
                _save_player(folder / BEST, config, player, {"steps": progress.steps, "held_out_score": score})
        for log in logs:
            log.write(progress)
        if due(config.checkpoint_every_steps, progress.steps):
            _save(config, folder, state, learner.player(), RUNNING)
        if report is not None:
            report(progress)
        return _stopped(config, learner.marks)

    return after


def _mark(config: TrainConfig, marks: dict[str, float], score: float, steps: int) -> bool:
    """Note a held-out score for early stopping; return whether it is the best so far."""
    gained = score > marks.get("reference", -math.inf) + config.early_stop.min_gain
    marks["without_gain"] = 0 if gained else marks.get("without_gain", 0) + 1
    if gained:
        marks["reference"] = score
    if score <= marks.get("best_score", -math.inf):
        return False
    marks["best_score"], marks["best_steps"] = score, steps
    return True


def _stopped(config: TrainConfig, marks: dict[str, float]) -> bool:
    return 0 < config.early_stop.patience <= marks.get("without_gain", 0)


def _evaluate(config: TrainConfig, player: Player, n_paths: int) -> Evaluation:
    """Score a sender on the held-out paths, or a network by what its reward says of its sender on paths of its own kind."""
    environment = config.environment
    if isinstance(player, MlpSender):
        return evaluate_sender(player, n_paths, weights=environment.reward)
    return evaluate_sender(
        environment.build_senders()[0],
        n_paths,
        paths=environment.paths,
        models=environment.models,
        adversary=player,
        weights=environment.reward,
        steps_per_rtt=environment.steps_per_rtt,
    )


def _save(
    config: TrainConfig,
    folder: FilePath,
    state: TrainingState,
    player: Player,
    status: str,
    evaluation: Evaluation | None = None,
) -> None:
    write_checkpoint(folder / CHECKPOINT, state)
    notes: dict[str, Any] = {
        "status": status,
        "steps": state.iteration * config.iteration_steps,
    }
    if evaluation is not None:
        notes["evaluation"] = asdict(evaluation)
    _save_player(folder, config, player, notes)


def _save_player(folder: FilePath, config: TrainConfig, player: Player, notes: dict[str, Any]) -> None:
    notes = notes | {"config": config.model_dump(mode="json")}
    if isinstance(player, MlpSender):
        from ccenv.agents.learned import save_policy

        save_policy(folder, player, notes | {"action": "log2(rate / C_L) = 3 * output, output clipped to [-1, 1]"})
    else:
        from ccenv.adversaries.learned import save_adversary

        save_adversary(folder, player, notes)


class _Record:
    """run.json: what ran where, and how it ended."""

    def __init__(self, folder: FilePath, config: TrainConfig) -> None:
        from ccenv.benchmarks.provenance import machine, now, versions

        self._file = folder / RECORD
        self._now = now
        self._data: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "name": config.name,
            "seed": config.seed,
            "versions": versions(),
            "machine": machine(),
            "started": now(),
            "config": config.model_dump(mode="json"),
        }

    def write(self, status: str, **more: Any) -> None:
        """Write the record with a status."""
        data = {**self._data, "status": status, "written": self._now(), **more}
        write_atomic(self._file, (json.dumps(_without_nan(data), indent=2, allow_nan=False) + "\n").encode())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def read_record(folder: FilePath) -> dict[str, Any]:
    """Read run.json of a run's folder.

    Raises:
        InputError: if there is none, or not one of this format.
    """
    file = FilePath(folder) / RECORD
    data = read_json(file)
    if not isinstance(data, dict) or data.get("format") != FORMAT or not is_version(data.get("version"), VERSION):
        raise InputError(f"{file}: not a record of format {FORMAT!r} version {VERSION}")
    return data
