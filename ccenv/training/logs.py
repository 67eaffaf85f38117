"""Logs of a run's progress: progress.csv and evaluations.jsonl always, TensorBoard and Weights & Biases on request."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path as FilePath
from typing import Any, Protocol

from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import make_folder, write_atomic
from ccenv.base.foreign import parse_json, read_text
from ccenv.training.config import TrainConfig
from ccenv.training.monitoring import Look
from ccenv.training.settings import LogSettings

MAX_BYTES = 64 << 20
PROGRESS, EVALUATIONS, VIDEOS = "progress.csv", "evaluations.jsonl", "videos"
_STEPS = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Progress:
    """Progress after an iteration; NaN where nothing was measured.

    Attributes:
        steps: environment steps so far.
        seconds: time spent training so far.
        reward: mean reward per step of the iteration.
        utilisation, queue, loss: means over the episodes that ended in the iteration.
        policy_loss, value_loss, approx_kl, explained_variance: of the last update.
        std: standard deviation of the actions.
        evaluation_score: on the paths for selection, where an evaluation was made.
        delay, jain: means over the episodes that ended in the iteration, as above.
        entropy_loss, clip_fraction: of the last update, of PPO.
        gradient_norm: mean over the minibatches of the iteration, before clipping; of SAC and TD3 the actor's.
    """

    steps: int
    seconds: float
    reward: float
    utilisation: float
    queue: float
    loss: float
    policy_loss: float
    value_loss: float
    approx_kl: float
    explained_variance: float
    std: float
    evaluation_score: float
    delay: float
    jain: float
    entropy_loss: float
    clip_fraction: float
    gradient_norm: float


class Log(Protocol):
    """A destination of progress."""

    def write(self, progress: Progress, look: Look) -> None:
        """Write one iteration and its evaluation."""

    def close(self) -> None:
        """Close the log."""


class CsvLog:
    """progress.csv: one row per iteration; rows after the step that a run resumes from are dropped."""

    columns = tuple(f.name for f in fields(Progress))

    def __init__(self, file: FilePath, keep_steps: int) -> None:
        kept: list[dict[str, str]] = []
        if keep_steps and file.is_file():
            rows = csv.DictReader(io.StringIO(read_text(file, MAX_BYTES), newline=""))
            try:
                kept = [row for row in rows if _STEPS.fullmatch(row.get("steps") or "") and int(row["steps"]) <= keep_steps]
            except csv.Error as error:
                raise InputError(f"{file}: not a table of progress ({error})") from None
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        write_atomic(file, text.getvalue().encode())
        self._stream = file.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._stream, self.columns, lineterminator="\n")

    def write(self, progress: Progress, look: Look) -> None:
        row = {name: "" if isinstance(v, float) and math.isnan(v) else f"{v:.6g}" for name, v in asdict(progress).items()}
        self._writer.writerow({**row, "steps": progress.steps})
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class EvaluationLog:
    """evaluations.jsonl: one line per evaluation during training; videos beside it, as videos/STEPS.gif."""

    def __init__(self, folder: FilePath, keep_steps: int) -> None:
        self._folder = folder
        self._lines = [line for line in read_evaluations(folder) if line["steps"] <= keep_steps] if keep_steps else []
        if (folder / EVALUATIONS).is_file():
            self._store()
        for video in (folder / VIDEOS).glob("*.gif"):
            if not (video.stem.isdecimal() and int(video.stem) <= keep_steps):
                video.unlink()

    def write(self, progress: Progress, look: Look) -> None:
        if look.video is not None:
            make_folder(self._folder / VIDEOS)
            write_atomic(self._folder / VIDEOS / f"{progress.steps}.gif", look.video)
        if look.values:
            self._lines.append({"steps": progress.steps, **look.values})
            self._store()

    def _store(self) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self._lines)
        write_atomic(self._folder / EVALUATIONS, text.encode())

    def close(self) -> None:
        """Do nothing: every line is on disk."""


def read_evaluations(folder: FilePath) -> list[dict[str, float]]:
    """Read evaluations.jsonl; an empty list if there is none.

    Raises InputError if a line is not an object of numbers with ``steps``.
    """
    file = folder / EVALUATIONS
    if not file.is_file():
        return []
    lines = []
    for number, text in enumerate(read_text(file, MAX_BYTES).splitlines(), start=1):
        line = parse_json(text, f"{file}:{number}")
        if not isinstance(line, dict) or not _is_count(line.get("steps")) or not all(map(_is_number, line.values())):
            raise InputError(f"{file}:{number}: not an evaluation: an object of numbers, steps among them")
        lines.append(line)
    return lines


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class TensorBoardLog:
    """Event files in the folder ``tensorboard``."""

    def __init__(self, folder: FilePath, purge_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=purge_step or None)

    def write(self, progress: Progress, look: Look) -> None:
        for name, value in (_measured_values(progress) | look.values).items():
            self._writer.add_scalar(name, value, progress.steps)
        if look.video is not None:
            from tensorboard.compat.proto.summary_pb2 import Summary

            picture = Summary.Image(encoded_image_string=look.video, colorspace=3)
            summary = Summary(value=[Summary.Value(tag="episode", image=picture)])
            self._writer._get_file_writer().add_summary(summary, progress.steps)  # type: ignore[no-untyped-call]
        self._writer.flush()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class WandbLog:
    """Weights & Biases, offline unless the config says otherwise."""

    def __init__(self, folder: FilePath, config: TrainConfig) -> None:
        import wandb

        self._folder = folder
        wandb_settings = config.log.wandb
        self._run: Any = wandb.init(
            project=wandb_settings.project,
            name=f"{config.name}-{config.seed}",
            mode=wandb_settings.mode,
            dir=str(folder),
            config=config.model_dump(mode="json"),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, progress: Progress, look: Look) -> None:
        values: dict[str, Any] = {"steps": progress.steps, **_measured_values(progress), **look.values}
        if look.video is not None:
            import wandb

            # W&B copies the file of EvaluationLog, which was written before.
            values["episode"] = wandb.Video(str(self._folder / VIDEOS / f"{progress.steps}.gif"), format="gif")
        self._run.log(values, step=progress.steps)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def _measured_values(progress: Progress) -> dict[str, float]:
    return {name: value for name, value in asdict(progress).items() if name != "steps" and not math.isnan(value)}


def check_logs(settings: LogSettings) -> None:
    """Raise MissingExtraError if an extra that the logs need is not installed, before a run writes anything."""
    if settings.tensorboard:
        require_extra("tensorboard", "train")
    if settings.wandb.enabled:
        require_extra("wandb", "wandb")


def open_logs(settings: LogSettings, folder: FilePath, config: TrainConfig, keep_steps: int) -> list[Log]:
    """Open the logs of a run that resumes from the step ``keep_steps`` (0: from the start)."""
    logs: list[Log] = [CsvLog(folder / PROGRESS, keep_steps), EvaluationLog(folder, keep_steps)]
    if settings.tensorboard:
        logs.append(TensorBoardLog(folder / "tensorboard", keep_steps))
    if settings.wandb.enabled:
        logs.append(WandbLog(folder, config))
    return logs
