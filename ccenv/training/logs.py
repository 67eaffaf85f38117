"""Where a run's progress goes: progress.csv always, TensorBoard and Weights & Biases on demand."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path as FilePath
from typing import Any, Protocol

from ccenv.errors import InputError, require_extra
from ccenv.files import write_atomic
from ccenv.foreign import read_text
from ccenv.training.config import LogSettings, TrainConfig

MAX_BYTES = 64 << 20
_STEPS = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Progress:
    """What is known after an iteration; NaN where nothing was measured.

    Attributes:
        steps: environment steps so far.
        seconds: time spent training so far.
        reward: mean reward per step of the iteration.
        utilisation, queue, loss: means over the episodes that ended in the iteration.
        policy_loss, value_loss, approx_kl, explained_variance: of the last update.
        std: standard deviation of the actions.
        evaluation_score: on the paths for selection, where an evaluation was made.
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


class Log(Protocol):
    """Somewhere to write progress."""

    def write(self, progress: Progress) -> None:
        """Write one iteration."""

    def close(self) -> None:
        """Finish."""


class CsvLog:
    """progress.csv: one row per iteration; rows after the step that a run resumes from are dropped.

    Args:
        file: where.
        keep_steps: rows up to this step are kept.
    """

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

    def write(self, progress: Progress) -> None:
        """Append a row."""
        row = {name: "" if isinstance(v, float) and math.isnan(v) else f"{v:.6g}" for name, v in asdict(progress).items()}
        self._writer.writerow({**row, "steps": progress.steps})
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class TensorBoardLog:
    """Event files in the folder ``tensorboard``."""

    def __init__(self, folder: FilePath, purge_step: int) -> None:
        """Open the writer; events after ``purge_step`` of an interrupted run are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=purge_step or None)

    def write(self, progress: Progress) -> None:
        """Write one scalar per number."""
        for name, value in asdict(progress).items():
            if name != "steps" and not math.isnan(value):
                self._writer.add_scalar(name, value, progress.steps)

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class WandbLog:
    """Weights & Biases, offline unless the config says otherwise."""

    def __init__(self, folder: FilePath, config: TrainConfig) -> None:
        """Start a run in the folder."""
        import wandb

        chosen = config.log.wandb
        self._run: Any = wandb.init(
            project=chosen.project,
            name=f"{config.name}-{config.seed}",
            mode=chosen.mode,
            dir=str(folder),
            config=config.model_dump(mode="json"),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def write(self, progress: Progress) -> None:
        """Write the numbers."""
        known = {name: value for name, value in asdict(progress).items() if not math.isnan(value)}
        self._run.log(known, step=progress.steps)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def check_logs(settings: LogSettings) -> None:
    """Check that what the logs need is installed, before a run writes anything.

    Raises:
        MissingExtraError: if not.
    """
    if settings.tensorboard:
        require_extra("tensorboard", "train")
    if settings.wandb.enabled:
        require_extra("wandb", "wandb")


def open_logs(settings: LogSettings, folder: FilePath, config: TrainConfig, keep_steps: int) -> list[Log]:
    """Open the logs of a run.

    Args:
        settings: which.
        folder: of the run.
        config: of the run.
        keep_steps: step that the run resumes from; 0: from the start.
    """
    logs: list[Log] = [CsvLog(folder / "progress.csv", keep_steps)]
    if settings.tensorboard:
        logs.append(TensorBoardLog(folder / "tensorboard", keep_steps))
    if settings.wandb.enabled:
        logs.append(WandbLog(folder, config))
    return logs
