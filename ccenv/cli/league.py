"""``ccenv league``: populations of senders and networks that answer each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.shared import JobsOption, fresh_option, out_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

RUNS = Path("runs") / "league"


def command(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A shipped league (ccenv list configs) or a YAML file.")],
    *,
    rounds: Annotated[int | None, typer.Option(help="Instead of the config's; a finished league goes on with more.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the config's.")] = None,
    out: Annotated[Path | None, out_option("Folder of the league; runs/league/CONFIG-SEED by default.")] = None,
    fresh: Annotated[bool, fresh_option("Discard what the folder holds of an earlier league.")] = False,
    jobs: JobsOption = 1,
    backend: Annotated[str, typer.Option(help="Where workers run: processes or ray.")] = "processes",
    json: JsonOption = False,
) -> None:
    """Let senders and networks answer each other in rounds; the same command goes on with an interrupted league (docs/league.md).

    Example: ccenv league quick --jobs 2
    Example: ccenv league configs/league/full.yaml --rounds 20 --json
    """
    from ccenv.cli.progress import progress_bar
    from ccenv.training.league.config import load_league
    from ccenv.training.league.run import league
    from ccenv.training.league.store import CURVE, PICTURE

    given = {name: value for name, value in (("rounds", rounds), ("seed", seed)) if value is not None}
    settings = load_league(config, given)
    folder = out or RUNS / f"{settings.name}-{settings.seed}"
    with progress_bar(f"league {settings.name}") as show:
        data = league(settings, folder, jobs=jobs, backend=backend, fresh=fresh, report=show)
    if json:
        print_json({**data, "folder": str(folder), "picture": str(folder / PICTURE), "curve": str(folder / CURVE)})
        return
    columns = ["round", "value", "exploitability", "interval", "senders in the mixture", "best sender", "guarantee", "nominal"]
    rows = []
    for one in data["rounds"]:
        low, high = one["interval"]
        mixed = ", ".join(f"{name} {weight:.2f}" for name, weight in one["sender_mixture"].items())
        best = [one["best_sender"], one["best_guarantee"], one["best_nominal"]]
        rows.append([one["round"], one["value"], one["exploitability"], f"{low:.3f} to {high:.3f}", mixed, *best])
    print_table(f"league {settings.name}, seed {settings.seed}", columns, rows)
    best = data["best"]
    named = folder / best["folder"] if best["folder"] else best["sender"]
    print_text(f"best sender {named}: guarantee {best['guarantee']:.4f}, nominal score {best['nominal_score']:.4f}")
    print_text(f"wrote {folder}: {RUNS.name}.json, {PICTURE}, {CURVE}")
