"""A run that is stopped and goes on ends as one that was never stopped."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccenv.training.config import TrainConfig
from ccenv.training.run import train


def stop_after(steps: int) -> Callable[[Any], None]:
    """Return a report of progress that presses Ctrl-C."""

    def report(progress: Any) -> None:
        if progress.steps == steps:
            raise KeyboardInterrupt

    return report


def progress_of(folder: Path) -> list[dict[str, str]]:
    """Return what a run tells after each iteration, but for the time that it took."""
    return [{**row, "seconds": ""} for row in csv.DictReader((folder / "progress.csv").open())]


def assert_goes_on(folder: Path, config: TrainConfig, stops: Sequence[int], control: TrainConfig | None = None) -> None:
    """Train into ``whole``, with Ctrl-C after so many steps into ``parts``; a control learns something else."""
    train(config, folder / "whole")
    for steps in stops:
        with pytest.raises(KeyboardInterrupt):
            train(config, folder / "parts", report=stop_after(steps))
    assert train(config, folder / "parts").resumed_from_steps == stops[-1]
    weights = [(folder / name / "policy.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1] and progress_of(folder / "whole") == progress_of(folder / "parts") != []
    if control is not None:
        train(control, folder / "control")
        assert (folder / "control" / "policy.safetensors").read_bytes() != weights[0]
