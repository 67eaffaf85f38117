"""``ccenv train``: train a sender by a config."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccenv.cli.output import JsonOption, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.training.config import TrainConfig
    from ccenv.training.logs import Progress


def command(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A shipped config (ccenv list configs) or a YAML file.")],
    *,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/CONFIG-SEED by default.")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard what the folder holds of an earlier run.")] = False,
    json: JsonOption = False,
) -> None:
    """Train a sender with PPO; the same command goes on with an interrupted run (docs/training.md).

    Example: ccenv train configs/train/quick_sender.yaml --set seed=1
    """
    from ccenv.training.config import load_config
    from ccenv.training.run import default_folder, train

    chosen = load_config(config, set_ or ())
    folder = out or default_folder(chosen)
    with _progress(chosen) as report:
        result = train(chosen, folder, restart=restart, report=report)
    if json:
        print_json(asdict(result))
        return
    if result.resumed_from_steps:
        print_text(f"went on from step {result.resumed_from_steps}")
    title = f"{chosen.name}, seed {chosen.seed}: {result.steps} steps in {result.seconds:.1f} s"
    print_table(title, ["on held-out paths", "value"], asdict(result.evaluation).items())
    print_text(f"wrote {result.folder}; use the folder as a sender, for example: ccenv bench run quick --agent {result.folder}")


@contextmanager
def _progress(config: TrainConfig) -> Iterator[Callable[[Progress], None]]:
    """Show a bar with the score on stderr; silent unless it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"train {config.name}", total=config.iterations * config.iteration_steps)
        held_out = ""

        def report(progress: Progress) -> None:
            nonlocal held_out
            if progress.evaluation_score == progress.evaluation_score:  # a number: an evaluation was made
                held_out = f", held out {progress.evaluation_score:.3f}"
            text = f"train {config.name}: score {progress.reward:.3f}{held_out}"
            bar.update(task, completed=progress.steps, description=text)

        yield report
