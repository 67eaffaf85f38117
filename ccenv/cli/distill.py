"""``ccenv distill``: from a learned policy to a belief program of a few lines, and to a proof of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.shared import out_option, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

PROVED_BY_DEFAULT = 0.54


def command(
    checkpoint: Annotated[
        str, typer.Argument(autocompletion=names("agents"), help="Folder of a run, .safetensors file, or a policy of the zoo.")
    ],
    *,
    depth: Annotated[int, typer.Option(help="Conditions on the longest way to a leaf.")] = 3,
    prove: Annotated[bool, typer.Option("--prove", help="Also search programs until the solver verifies one.")] = False,
    utilisation: Annotated[
        list[float] | None, typer.Option(help=f"Utilisation to prove; {PROVED_BY_DEFAULT} by default. Repeatable: a frontier.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of paths, search and solver pool.")] = 0,
    budget: Annotated[float, seconds_option("--budget", "Wall time for the loop of each proof.")] = 900.0,
    rounds: Annotated[int, typer.Option(help="Rounds of each loop at most.")] = 40,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per solver call.")] = 300.0,
    recheck: Annotated[str | None, typer.Option(help="Second solver for the final proofs: yices or cvc5.")] = None,
    timeouts: Annotated[
        str | None, typer.Option(help="Also decide what belief time-outs change for proved programs: artefact or paper.")
    ] = None,
    n_paths: Annotated[int, typer.Option("--paths", help="Paths of the search; the reported score is on 1,024 others.")] = 256,
    generations: Annotated[int, typer.Option(help="Generations of the polish.")] = 16,
    out: Annotated[Path | None, out_option("Folder; runs/distill-NAME-SEED by default.")] = None,
    json: JsonOption = False,
) -> None:
    """Distil a learned policy into a belief program; the same command goes on with an interrupted run (docs/distillation.md).

    Example: ccenv distill runs/quick_sender-0 --depth 3 --prove --utilisation 0.54
    """
    from ccenv.training.distill.run import DistillSettings, distill
    from ccenv.training.distill.teacher import load_teacher
    from ccenv.base.errors import InputError

    teacher = load_teacher(checkpoint)
    for option, given in (("--recheck", recheck), ("--utilisation", utilisation), ("--timeouts", timeouts)):
        if given and not prove:
            raise InputError(f"{option} is for the proofs: give --prove too")
    targets = tuple(utilisation or [PROVED_BY_DEFAULT]) if prove else ()
    settings = DistillSettings(
        checkpoint,
        depth,
        seed,
        targets,
        n_paths=n_paths,
        generations=generations,
        budget_s=budget,
        rounds=rounds,
        time_limit_s=time_limit,
        recheck=recheck,
        timeouts=timeouts,
    )
    folder = out or Path("runs") / f"distill-{teacher.name}-d{depth}-{seed}"
    result = distill(settings, folder, lambda line: print(line, file=sys.stderr))
    if json:
        print_json(result)
        return
    print_text(result["pseudo_code"])
    rows = [[result["teacher_name"], result["teacher_score"], result["teacher"]["worst_utilisation"], ""]]
    rows += [[record["name"], record["score"], record["worst_utilisation"], ""] for record in [result]]
    for proof in result["proofs"]:
        print_text(proof["pseudo_code"])
        said = f"utilisation >= {proof['utilisation']}: {proof['verdict']}"
        rows.append([proof["name"], proof["score"], proof["worst_utilisation"], said])
    print_table("distillation", ["sender", "score", "worst utilisation, report scenes", "lemmas"], rows)
    print_text(f"wrote {folder}/report.md; a program is a sender: ccenv verify envelope {result['file']}")
