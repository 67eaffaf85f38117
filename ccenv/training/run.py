"""A training run in a folder: config, record, progress, checkpoint, policy."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ccenv.adversaries.learned import load_adversary
from ccenv.agents.learned.weights import LearnedPlayer
from ccenv.agents.sender import PolicySender, ShieldSender
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import Format, plain, write_atomic
from ccenv.base.foreign import read_json
from ccenv.base.provenance import code_hash, machine, now, versions
from ccenv.base.results import TableResult
from ccenv.base.store import ResultFolder
from ccenv.envs.packet.task import make_senders
from ccenv.network.adversary import MlpAdversary
from ccenv.training.checkpoint import TrainingState, read_checkpoint, write_checkpoint
from ccenv.training.config import TrainConfig, as_config, read_config
from ccenv.training.evaluation import Evaluation, evaluate_in_world, evaluate_mixture, evaluate_packet, evaluate_sender
from ccenv.training.logs import Log, Progress, check_logs, open_logs
from ccenv.training.monitoring import NOTHING, check_look, look_at
from ccenv.training.path_sets import PathSet

if TYPE_CHECKING:
    from ccenv.training.learner import Learner

CONFIG, RECORD, CHECKPOINT, BEST, OFFLINE = "config.yaml", "run.json", "checkpoint", "best", "offline"
FORMAT = Format("ccenv-run", 2, "a record of a training run", older="--restart trains it again", indent=2)
RUNNING, INTERRUPTED, DIVERGED, FINISHED = "running", "interrupted", "diverged", "finished"


@dataclass(frozen=True)
class TrainingResult(TableResult):
    """Result of a finished run. Scores are measured in the config's own world.

    Attributes:
        folder: of the run; ``ccenv.agents.make_sender`` takes it.
        steps: environment steps.
        seconds: wall time of training with its evaluations and attacks, without the final evaluations.
        cpu_seconds: processor time of the same.
        resumed_from_steps: step that this call resumed from; 0: from the start.
        evaluation: of the last policy on ``PathSet.REPORT``; for a network, the scores of its senders.
        common: the same in the common world (``evaluate_sender``), for a sender trained alone on its link; else None.
        best_select_score: highest score on ``PathSet.SELECT``, whose policy is in the folder ``best``; None without evaluations
            during training.
        best_steps: step of that policy; None without it.
        best_evaluation: of that policy on ``PathSet.REPORT``; None without it.
        stopped_early: the score on ``PathSet.STOP`` no longer rose.
        worlds: evaluation of the last policy in each of the config's ``evaluation.worlds``, on ``PathSet.REPORT``.
        offline: of a run on a data set: its behaviours' scores, the score before it played itself, the coverage
            (``ccenv.training.offline.report``).
    """

    folder: FilePath
    steps: int
    seconds: float
    cpu_seconds: float
    resumed_from_steps: int
    evaluation: Evaluation
    common: Evaluation | None
    best_select_score: float | None
    best_steps: int | None
    best_evaluation: Evaluation | None
    stopped_early: bool
    worlds: dict[str, Evaluation]
    offline: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"TrainingResult({self.folder}: {self.steps} steps, score {self.evaluation.score:.4g})"

    row_name = "policy"

    def _rows(self) -> list[dict[str, Any]]:
        return [{"policy": name, **asdict(evaluation)} for name, evaluation in self._evaluations().items()]

    def _evaluations(self) -> dict[str, Evaluation]:
        evaluations = {"last": self.evaluation, "best": self.best_evaluation, "last, common world": self.common}
        return {name: evaluation for name, evaluation in evaluations.items() if evaluation is not None} | self.worlds


def default_folder(config: TrainConfig) -> FilePath:
    """Return the default folder of a run, runs/NAME-SEED."""
    return FilePath("runs") / f"{config.name}-{config.seed}"


def train(
    config: TrainConfig | str,
    folder: FilePath | str | None = None,
    *,
    restart: bool = False,
    report: Callable[[Progress], None] | None = None,
) -> TrainingResult:
    """Train a sender or a network, or resume an interrupted run of the same config in the same folder.

    A resumed run ends with the same weights as an uninterrupted one.

    Args:
        config: the run, or the name of a shipped config or a YAML file.
        folder: for all output; by default runs/NAME-SEED.
        restart: discard an earlier run in the folder.
        report: called after each iteration.

    Raises:
        MissingExtraError: if a needed extra is not installed.
        InputError: if the folder holds something else, or a run of another config.
        CcenvError: if another process is training in the folder.
        DivergedError: if weights or losses are no longer finite; the last good checkpoint stays.
        KeyboardInterrupt: at Ctrl-C, after the last finished iteration has been saved.
    """
    config = as_config(config)
    folder = default_folder(config) if folder is None else FilePath(folder)
    require_extra("stable_baselines3", "train")
    require_extra("torch", "train")
    check_logs(config.log)
    check_look(config)
    if config.offline is not None:
        from ccenv.training.offline.config import require_data

        require_data()
    runs = ResultFolder(folder, "a training run", RECORD, FORMAT, marks=(CONFIG,))
    for settings in config.packet_worlds():
        make_senders(settings.distribution)
    with runs:
        return _train(config, folder, restart, report)


def _train(config: TrainConfig, folder: FilePath, restart: bool, report: Callable[[Progress], None] | None) -> TrainingResult:
    from ccenv.training.learner import DivergedError, Learner

    state = _prepare(config, folder, restart)
    learner = Learner(config, state)
    start = learner.state.iteration * config.iteration_steps
    record = _RunRecord(folder, config, read_code(folder) if start else [])
    record.write(RUNNING)
    logs = open_logs(config.log, folder, config, keep_steps=start)
    try:
        if not _should_stop(config, learner.marks):
            learner.run(_after_iteration(config, folder, learner, logs, report))
        result = _result(config, folder, learner, start)
        state = replace(learner.state, seconds=result.seconds, cpu_seconds=result.cpu_seconds)
        _save(config, folder, state, learner.player(), FINISHED, result)
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
    summary = asdict(result)
    del summary["folder"], summary["resumed_from_steps"]
    record.write(FINISHED, **summary)
    return result


def _result(config: TrainConfig, folder: FilePath, learner: Learner, start: int) -> TrainingResult:
    """Evaluate a finished run; nothing is chosen by these scores."""
    seconds, cpu_seconds = learner.clock.read()
    n_paths, marks, policy = config.evaluation.n_paths, learner.marks, learner.player()
    best = load_player(folder / BEST, config) if "best_score" in marks else None
    trains_alone = config.trains == "sender" and config.packet is None and len(config.environment.senders) == 1
    return TrainingResult(
        folder=folder,
        steps=learner.state.iteration * config.iteration_steps,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        resumed_from_steps=start,
        evaluation=evaluate_policy(config, policy, n_paths, PathSet.REPORT),
        common=evaluate_sender(policy, n_paths) if trains_alone and not isinstance(policy, MlpAdversary) else None,
        best_select_score=marks.get("best_score"),
        best_steps=int(marks["best_steps"]) if best else None,
        best_evaluation=evaluate_policy(config, best, n_paths, PathSet.REPORT) if best else None,
        stopped_early=_should_stop(config, marks),
        worlds={
            name: evaluate_packet(config.packet_settings(world), policy, n_paths)
            for name, world in config.evaluation.worlds.items()
            if not isinstance(policy, MlpAdversary)
        },
        offline=_report_offline(config, folder, policy),
    )


def _report_offline(config: TrainConfig, folder: FilePath, policy: LearnedPlayer | ShieldSender) -> dict[str, Any] | None:
    if config.offline is None or not isinstance(policy, PolicySender):
        return None
    from ccenv.training.offline.dataset import read_data
    from ccenv.training.offline.report import report_offline

    before = load_player(folder / OFFLINE, config) if (folder / OFFLINE).is_dir() else None
    before = before if isinstance(before, PolicySender) else None
    data = read_data(config.offline.data)
    return report_offline(data, config.packet_settings(), policy, before, config.evaluation.n_paths)


def load_player(folder: FilePath, config: TrainConfig) -> LearnedPlayer | ShieldSender:
    """Return the policy that a run of a config wrote into a folder. Raises InputError if it is damaged."""
    if config.trains == "sender":
        from ccenv.agents.learned import load_policy

        return load_policy(folder)

    return load_adversary(folder)


def _prepare(config: TrainConfig, folder: FilePath, restart: bool) -> TrainingState | None:
    """Check the folder of an earlier run; return the state to resume from."""
    config_file = folder / CONFIG
    if restart:
        for part in (CHECKPOINT, BEST, OFFLINE):
            shutil.rmtree(folder / part, ignore_errors=True)
    state = read_checkpoint(folder / CHECKPOINT)
    if state is not None and not read_config(config_file).same_run(config):
        raise InputError(f"{folder}: holds a run of another config; choose another --out, or --fresh to discard it")
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
        marks, look = dict(state.marks), NOTHING
        if due(config.evaluation.every_steps, progress.steps):
            policy, n_paths = learner.player(state), config.evaluation.n_paths_during
            if config.early_stop.patience:
                _mark_stop(config, marks, evaluate_policy(config, policy, n_paths, PathSet.STOP).score)
            evaluation = evaluate_policy(config, policy, n_paths, PathSet.SELECT)
            score, look = evaluation.score, look_at(config, policy, evaluation)
            progress = replace(progress, evaluation_score=score)
            if score > marks.get("best_score", -math.inf):
                marks["best_score"], marks["best_steps"] = score, progress.steps
                (folder / BEST).mkdir(exist_ok=True)
                _save_policy(folder / BEST, config, policy, {"steps": progress.steps, "select_score": score})
        begins = 0 if config.offline is None else config.offline.online_from_step
        if begins and begins <= progress.steps < begins + config.iteration_steps:
            (folder / OFFLINE).mkdir(exist_ok=True)
            _save_policy(folder / OFFLINE, config, learner.player(state), {"steps": progress.steps})
        learner.keep(marks)
        for log in logs:
            log.write(progress, look)
        if due(config.checkpoint_every_steps, progress.steps):
            _save(config, folder, learner.state, learner.player(), RUNNING)
        if report is not None:
            report(progress)
        return _should_stop(config, learner.marks)

    return after


def _mark_stop(config: TrainConfig, marks: dict[str, float], score: float) -> None:
    """Update the marks of early stopping with a score on ``PathSet.STOP``."""
    gained = score > marks.get("reference", -math.inf) + config.early_stop.min_gain
    marks["without_gain"] = 0 if gained else marks.get("without_gain", 0) + 1
    if gained:
        marks["reference"] = score


def _should_stop(config: TrainConfig, marks: dict[str, float]) -> bool:
    return 0 < config.early_stop.patience <= marks.get("without_gain", 0)


def evaluate_policy(config: TrainConfig, policy: LearnedPlayer | ShieldSender, n_paths: int, path_set: PathSet) -> Evaluation:
    """Score a policy in its config's own world: a sender by its reward, a network by the reward of the world's senders."""
    if isinstance(policy, MlpAdversary):
        return evaluate_in_world(config.environment, None, n_paths, path_set=path_set, adversary=policy)
    if config.mixture:
        parts = [(config.part_settings(part), part.num_envs) for part in config.mixture]
        return evaluate_mixture(parts, policy, n_paths, path_set=path_set)
    if config.packet is not None:
        return evaluate_packet(config.packet_settings(), policy, n_paths, path_set=path_set)
    return evaluate_in_world(config.environment, policy, n_paths, path_set=path_set)


def _save(
    config: TrainConfig,
    folder: FilePath,
    state: TrainingState,
    policy: LearnedPlayer | ShieldSender,
    status: str,
    result: TrainingResult | None = None,
) -> None:
    write_checkpoint(folder / CHECKPOINT, state)
    notes: dict[str, Any] = {"status": status, "steps": state.iteration * config.iteration_steps}
    if result is not None:
        notes["evaluation"] = asdict(result.evaluation)
        notes["common"] = None if result.common is None else asdict(result.common)
    _save_policy(folder, config, policy, notes)


def _save_policy(folder: FilePath, config: TrainConfig, policy: LearnedPlayer | ShieldSender, notes: dict[str, Any]) -> None:
    notes = notes | {"config": config.model_dump(mode="json")}
    if not isinstance(policy, MlpAdversary):
        from ccenv.agents.learned import save_policy

        inside = "rate = lo + u (hi - lo) of the shield, u = (output + 1) / 2 clipped to [0, 1]"
        free = {"action": _FIRST_ACTION} if isinstance(policy, PolicySender) and policy.is_first_version else {}
        save_policy(folder, policy, notes | ({"action": inside} if isinstance(policy, ShieldSender) else free))
    else:
        from ccenv.adversaries.learned import save_adversary

        save_adversary(folder, policy, notes)


_FIRST_ACTION = "log2(rate / C_L) = 3 * output, output clipped to [-1, 1]"


class _RunRecord:
    """run.json: the run's config, versions and machine, and how it ended."""

    def __init__(self, folder: FilePath, config: TrainConfig, code_before: list[str]) -> None:
        self._file = folder / RECORD
        self._now = now
        self._data: dict[str, Any] = {
            "name": config.name,
            "seed": config.seed,
            "versions": versions(),
            "machine": machine(),
            "started": now(),
            "code": [*(code for code in code_before if code != code_hash(train)), code_hash(train)],
            "config": config.model_dump(mode="json"),
        }

    def write(self, status: str, **more: Any) -> None:
        FORMAT.write(self._file, plain({**self._data, "status": status, "written": self._now(), **more}))


def read_code(folder: FilePath) -> list[str]:
    """Return the hashes of the code that trained a run, oldest first; empty if unknown.

    Raises InputError if run.json is not JSON.
    """
    file = FilePath(folder) / RECORD
    data = read_json(file) if file.is_file() else {}
    codes = data.get("code", []) if isinstance(data, dict) else []
    return [str(code) for code in codes] if isinstance(codes, list) else []


def read_record(folder: FilePath) -> dict[str, Any]:
    """Read run.json of a run's folder. Raises InputError if there is none, or not one of this format."""
    return FORMAT.read(FilePath(folder) / RECORD)
