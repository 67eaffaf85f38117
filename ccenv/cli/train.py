"""``ccenv train`` (by a config), ``ccenv distill`` (a policy into a proved program) and ``ccenv league`` (populations)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccenv.base.errors import InputError
from ccenv.base.files import plain
from ccenv.cli.completion import configs, names
from ccenv.cli.options import (
    JobsOption,
    JsonOption,
    SettingsOption,
    argument,
    fresh_option,
    option,
    out_option,
    seconds_option,
    settings,
    settings_and_others,
)
from ccenv.cli.output import print_json, print_table, print_text, progress_bar, progress_lines

if TYPE_CHECKING:
    from ccenv.training.config import TrainConfig
    from ccenv.training.logs import Progress
    from ccenv.training.rllib.run import RllibConfig, RllibResult
    from ccenv.training.run import TrainingResult


def command(
    config: Annotated[str, argument("CONFIG", "A shipped config (ccenv list configs) or a YAML file.", configs("train"))],
    assignments: Annotated[list[str] | None, argument("[KEY=VALUE]...", "Settings, as with -s: what a sweep passes.")] = None,
    *,
    out: Annotated[Path | None, out_option("Folder of the run; runs/CONFIG-SEED by default.")] = None,
    fresh: Annotated[bool, fresh_option("Discard what the folder holds of an earlier run.")] = False,
    seeds: Annotated[str | None, option("Train once per seed, one after the other.", metavar="S,S,...")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Train a sender or a network; the same command resumes an interrupted run (docs/training.md).

    Example: ccenv train configs/train/quick_sender.yaml -s seed=1
    """
    from ccenv.training.config import load_config, load_data
    from ccenv.training.run import default_folder, train

    overrides = [*(set_ or ()), *(assignments or ())]
    numbers = [] if seeds is None else seeds.split(",")
    if not all(number.isdigit() for number in numbers):
        raise InputError(f"--seeds {seeds!r}: whole numbers with commas between them are needed, such as 0,1,2")
    if len(numbers) > 1 and out is not None:
        raise InputError("--out is for one run; several --seeds go to runs/CONFIG-SEED")
    of_each = [[*overrides, f"seed={number}"] for number in numbers] or [overrides]
    if load_data(config, overrides)[0].get("trainer") == "rllib":
        _train_rllib(config, of_each, out, fresh, json)
        return
    configs = [load_config(config, each) for each in of_each]
    results = []
    for chosen in configs:
        with _progress(chosen) as report:
            results.append(train(chosen, out or default_folder(chosen), restart=fresh, report=report))
    if json:
        _print_json(configs, results)
        return
    for chosen, result in zip(configs, results, strict=True):
        _print(chosen, result)


def _train_rllib(name: str, of_each: list[list[str]], out: Path | None, fresh: bool, json: bool) -> None:
    from ccenv.base.config import validate
    from ccenv.training.config import load_data
    from ccenv.training.rllib.run import RllibConfig, train_rllib

    configs = [validate(RllibConfig, *load_data(name, overrides)) for overrides in of_each]
    results = []
    for config in configs:
        with progress_bar(f"rllib {config.name}") as report:
            results.append(train_rllib(config, out or Path("runs") / f"{config.name}-{config.seed}", report, fresh=fresh))
    if json:
        _print_json(configs, results)
        return
    for config, result in zip(configs, results, strict=True):
        title = (
            f"{config.name}, seed {config.seed}: {result.iterations} iterations, {result.steps} steps in {result.seconds:.1f} s"
        )
        print_table(title, ["sender in its own world, on paths for reports", "value"], asdict(result.evaluation).items())
        print_text(f"wrote {result.folder}")


def _print_json(configs: Sequence[TrainConfig | RllibConfig], results: Sequence[TrainingResult | RllibResult]) -> None:
    runs = [asdict(result) | {"settings": config} for config, result in zip(configs, results, strict=True)]
    print_json(runs[0] if len(runs) == 1 else runs)


def _print(config: TrainConfig, result: TrainingResult) -> None:
    if result.resumed_from_steps:
        print_text(f"went on from step {result.resumed_from_steps}")
    stopped = ", stopped early" if result.stopped_early else ""
    title = f"{config.name}, seed {config.seed}: {result.steps} steps in {result.seconds:.1f} s{stopped}"
    print_table(title, ["in its own world, on paths for reports", "value"], asdict(result.evaluation).items())
    use = f"ccenv bench run quick --agent {result.folder}"
    if config.trains == "network":
        use = f"ccenv attack {config.environment.senders[0]} --adversary {result.folder}"
    print_text(f"wrote {result.folder}; for example: {use}")


@contextmanager
def _progress(config: TrainConfig) -> Iterator[Callable[[Progress], None]]:
    """Show a bar with the score on stderr, or an occasional line without a terminal."""
    if not sys.stderr.isatty():
        show = progress_lines(f"train {config.name}, steps")
        yield lambda progress: show(progress.steps, config.iterations * config.iteration_steps)
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
                held_out = f", paths for selection {progress.evaluation_score:.3f}"
            text = f"train {config.name}: score {progress.reward:.3f}{held_out}"
            bar.update(task, completed=progress.steps, description=text)

        yield report


PROVED_BY_DEFAULT = 0.54


def run_distill(
    checkpoint: Annotated[
        str, typer.Argument(autocompletion=names("agents"), help="Folder of a run, .safetensors file, or a policy of the zoo.")
    ],
    *,
    depth: Annotated[int, typer.Option(help="Conditions on the longest way to a leaf.")] = 3,
    prove: Annotated[bool, typer.Option("--prove", help="Also search programs until the solver verifies one.")] = False,
    seed: Annotated[int, typer.Option(help="Of paths, search and solver pool.")] = 0,
    budget: Annotated[float, seconds_option("--budget", "Wall time for the loop of each proof.")] = 900.0,
    set_: SettingsOption = None,
    out: Annotated[Path | None, out_option("Folder; runs/distill-NAME-SEED by default.")] = None,
    json: JsonOption = False,
) -> None:
    """Distil a learned policy into a belief program; the same command resumes an interrupted run (docs/distillation.md).

    Example: ccenv distill runs/quick_sender-0 --depth 3 --prove -s utilisation=0.54,0.6
    """
    from ccenv.training.distill.objective import load_teacher
    from ccenv.training.distill.run import DistillSettings, distill

    teacher = load_teacher(checkpoint)
    held = settings("distill", set_)
    targets = held["utilisation"] or (PROVED_BY_DEFAULT,)
    for key, value in (("recheck", held["recheck"]), ("utilisation", held["utilisation"]), ("timeouts", held["timeouts"])):
        if value and not prove:
            raise InputError(f"-s {key} is for the proofs: give --prove too")
    more = {key: value for key, value in held.items() if key != "utilisation"}
    chosen = DistillSettings(checkpoint, depth, seed, targets if prove else (), budget_s=budget, **more)
    folder = out or Path("runs") / f"distill-{teacher.name}-d{depth}-{seed}"
    result = distill(chosen, folder, lambda line: print(line, file=sys.stderr))
    if json:
        print_json(result | {"settings": held})
        return
    print_text(result["pseudo_code"])
    rows = [[result["teacher_name"], result["teacher_score"], result["teacher"]["worst_utilisation"], ""]]
    rows += [[record["name"], record["score"], record["worst_utilisation"], ""] for record in [result]]
    for proof in result["proofs"]:
        print_text(proof["pseudo_code"])
        verdict = f"utilisation >= {proof['utilisation']}: {proof['verdict']}"
        rows.append([proof["name"], proof["score"], proof["worst_utilisation"], verdict])
    print_table("distillation", ["sender", "score", "worst utilisation, report scenes", "lemmas"], rows)
    print_text(f"wrote {folder}/report.md; a program is a sender: ccenv verify envelope {result['file']}")


RUNS = Path("runs") / "league"


def run_league(
    config: Annotated[str, argument("CONFIG", "A shipped league (ccenv list configs) or a YAML file.")],
    *,
    out: Annotated[Path | None, out_option("Folder of the league; runs/league/CONFIG-SEED by default.")] = None,
    fresh: Annotated[bool, fresh_option("Discard what the folder holds of an earlier league.")] = False,
    jobs: JobsOption = 1,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Play a league, in which senders and networks answer each other; the same command resumes it (docs/league.md).

    Example: ccenv league quick --jobs 2
    Example: ccenv league configs/league/full.yaml -s rounds=20 --json
    """
    from ccenv.training.league.config import load_league
    from ccenv.training.league.run import league
    from ccenv.training.league.store import CURVE, PICTURE

    held, overrides = settings_and_others("league", set_)
    chosen = load_league(config, overrides)
    folder = out or RUNS / f"{chosen.name}-{chosen.seed}"
    with progress_bar(f"league {chosen.name}") as show:
        data = league(chosen, folder, jobs=jobs, backend=held["backend"], fresh=fresh, report=show)
    if json:
        files = {"folder": str(folder), "picture": str(folder / PICTURE), "curve": str(folder / CURVE)}
        print_json(data | files | {"settings": plain(chosen) | held})
        return
    columns = ["round", "value", "exploitability", "interval", "senders in the mixture", "best sender", "guarantee", "nominal"]
    rows = []
    for one in data["rounds"]:
        low, high = one["interval"]
        mixed = ", ".join(f"{name} {weight:.2f}" for name, weight in one["sender_mixture"].items())
        best = [one["best_sender"], one["best_guarantee"], one["best_nominal"]]
        rows.append([one["round"], one["value"], one["exploitability"], f"{low:.3f} to {high:.3f}", mixed, *best])
    print_table(f"league {chosen.name}, seed {chosen.seed}", columns, rows)
    for one in (one for one in data["rounds"] if "code" in one):
        replay = "the same round" if one["replayed"] else "another round"
        print_text(
            f"round {one['round']} was decided by older code ({one['code'][:12]}); this code gets {replay} from its answers"
        )
    best = data["best"]
    named = folder / best["folder"] if best["folder"] else best["sender"]
    print_text(f"best sender {named}: guarantee {best['guarantee']:.4f}, nominal score {best['nominal_score']:.4f}")
    print_text(f"wrote {folder}: {RUNS.name}.json, {PICTURE}, {CURVE}")
