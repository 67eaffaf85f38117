"""Analysis of a run of ``ccenv train``: one call returns its config, curves, evaluations and policy."""

from __future__ import annotations

import csv
import html
import io
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ccenv.agents.learned.weights import LearnedPlayer
from ccenv.agents.sender import ShieldSender
from ccenv.base.errors import InputError, require_extra
from ccenv.base.figure import finish, panels, picture
from ccenv.base.foreign import read_text
from ccenv.base.results import TableResult
from ccenv.training.config import TrainConfig, read_config
from ccenv.training.logs import MAX_BYTES, PROGRESS, read_evaluations
from ccenv.training.run import CONFIG, load_player, read_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = (
    ("reward per step", ("reward", "evaluation_score")),
    ("terms of the episodes", ("utilisation", "queue", "loss")),
    ("norm of the gradients", ("gradient_norm",)),
    ("update", ("explained_variance", "approx_kl", "clip_fraction")),
)


@dataclass(frozen=True)
class TrainingRun(TableResult):
    """A run opened from its folder.

    Attributes:
        config: with every default written out.
        record: run.json: status, machine, versions, result.
        progress: column -> one number per iteration, NaN where nothing was measured.
        evaluations: one dictionary per evaluation during training, each with ``steps``.
    """

    folder: FilePath
    config: TrainConfig
    record: dict[str, Any] = field(repr=False)
    progress: dict[str, list[float]] = field(repr=False)
    evaluations: list[dict[str, float]] = field(repr=False)

    def __repr__(self) -> str:
        steps = self.progress["steps"][-1] if self.progress["steps"] else 0
        return f"TrainingRun({self.config.name}, seed {self.config.seed}, {steps:.0f} steps, {self.record['status']})"

    @cached_property
    def player(self) -> LearnedPlayer | ShieldSender:
        """The policy in the folder. Raises InputError if it is damaged."""
        return load_player(self.folder, self.config)

    def _make_frame(self, pandas: Any) -> Any:
        return pandas.DataFrame(self.progress).set_index("steps")

    def evaluations_frame(self) -> Any:
        require_extra("pandas", "bench")
        import pandas

        return pandas.DataFrame(self.evaluations or {"steps": []}).set_index("steps")

    def figure(self) -> Figure:
        """Draw reward, terms, update, and each group of evaluations, over the steps."""
        groups = [(title, {n: self._column(n) for n in names if n in self.progress}) for title, names in _PANELS]
        groups += self._evaluation_panels()
        columns, rows = min(3, len(groups)), -(-len(groups) // 3)
        drawn, axes = panels(rows, columns, (4.2 * columns, 2.8 * rows))
        for ax in axes[len(groups) :]:
            ax.set_visible(False)
        for ax, (title, lines) in zip(axes, groups, strict=False):
            for name, (steps, values) in lines.items():
                ax.plot(steps, values, "." if len(steps) == 1 else "-", label=name)
            ax.set_title(title, fontsize=9)
            ax.tick_params(labelsize=8)
            finish(ax, "environment steps", size=8, loc="best", fontsize=7)
        return drawn

    def _column(self, name: str) -> tuple[list[float], list[float]]:
        pairs = [(s, v) for s, v in zip(self.progress["steps"], self.progress[name], strict=True) if not math.isnan(v)]
        return [s for s, _ in pairs], [v for _, v in pairs]

    def _evaluation_panels(self) -> list[tuple[str, dict[str, tuple[list[float], list[float]]]]]:
        def lines(group: str, last: str) -> dict[str, tuple[list[float], list[float]]]:
            names = sorted({n for line in self.evaluations for n in line if n.startswith(group) and n.endswith(last)})
            kept = {n: [(line["steps"], line[n]) for line in self.evaluations if n in line] for n in names}
            short = {n: n.removeprefix(group).removesuffix(last).strip("/") for n in names}
            return {short[n] or n: ([s for s, _ in pairs], [v for _, v in pairs]) for n, pairs in kept.items()}

        groups = (("score per network", "network/", "/score"), ("found by attacks", "exploitability/", ""))
        panels = [(title, lines(group, last)) for title, group, last in groups]
        return [(title, drawn) for title, drawn in panels if drawn]

    def _repr_html_(self) -> str:
        drawn = picture(self.figure(), ".svg").decode()
        return f"<p>{html.escape(repr(self))}</p>{drawn[drawn.index('<svg') :]}"


def open_run(folder: str | os.PathLike[str]) -> TrainingRun:
    """Open the folder of a run of ``ccenv train``, also while it is still training.

    Raises InputError if the folder is no run, or something in it is damaged.

    Example:
        ``open_run("runs/quick_sender-0").to_frame()[["reward", "gradient_norm"]].plot()``
    """
    root = FilePath(folder)
    if not (root / CONFIG).is_file():
        raise InputError(f"{root}: no training run; ccenv train writes one to runs/NAME-SEED")
    progress = _read_progress(root / PROGRESS)
    return TrainingRun(root, read_config(root / CONFIG), read_record(root), progress, read_evaluations(root))


def _read_progress(file: FilePath) -> dict[str, list[float]]:
    if not file.is_file():
        raise InputError(f"{file}: not there; runs of RLlib and damaged folders cannot be opened")
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(file, MAX_BYTES), newline=""), strict=True))
        columns = list(rows[0]) if rows else ["steps"]
        return {name: [float(row[name] if row[name] != "" else "nan") for row in rows] for name in columns}
    except (csv.Error, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{file}: not a table of progress ({error})") from None
