"""``ccenv contract``: contracts, and how wide they may be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.completion import names
from ccenv.cli.options import JobsOption, fresh_option, out_option, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_text

app = typer.Typer(
    name="contract",
    help="Contracts: programs whose leaves are intervals of rates.\n\nExample: ccenv contract widen learned_nominal_u78 "
    "--utilisation 0.74 --budget 1200",
    no_args_is_help=True,
)
EXIT_NOT_PROVED = 1


@app.command()
def widen(
    program: Annotated[
        str,
        typer.Argument(
            autocompletion=names("agents"), help="A registered belief program or contract, or the path of one (.json)."
        ),
    ],
    *,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Utilisation that must stay proved.")],
    budget: Annotated[float, seconds_option("--budget", "Time for the search; a later call goes on.")] = 600.0,
    lemmas: Annotated[
        str | None, typer.Option("--lemmas", help="Keep the lemmas and constants of this suite (name or .yaml).")
    ] = None,
    settle: Annotated[
        int | None, typer.Option("--settle", min=0, max=8, help="Rm at the start of a trace that utilisation skips.")
    ] = None,
    samples: Annotated[int, typer.Option("--T", min=3, help="Trace length in samples one Rm apart.")] = 11,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per solver call.")] = 300.0,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    jobs: JobsOption = 1,
    backend: Annotated[str, typer.Option("--backend", help="What the workers are: processes or ray.")] = "processes",
    out: Annotated[Path | None, out_option("Folder for answers and result.")] = None,
    fresh: Annotated[bool, fresh_option("Discard the answers of earlier calls.")] = False,
    json: JsonOption = False,
) -> int:
    """Find the widest contract around a program whose lemmas hold (docs/contracts.md).

    Exit code 1 where the program itself is not proved with these constants.

    Example: ccenv contract widen learned_nominal_u78 --utilisation 0.74 --budget 1200
    """
    from ccenv.contract.widen import Widening, suite_to_keep, widen
    from ccenv.errors import require_extra
    from ccenv.programs import pseudo_code
    from ccenv.smt.senders.catalog import program_of

    require_extra("z3", "verify")
    suite = None if lemmas is None else suite_to_keep(lemmas)
    settled = (0 if suite is None else int(suite["settle"])) if settle is None else settle
    task = Widening(program_of(program), utilisation, budget, suite, settled, samples, time_limit, seed)
    folder = out or Path("runs") / "contract" / f"{task.program.name}-u{utilisation:g}"
    said = None if json else lambda line: print_text(f"  {line}")
    found = widen(task, folder, jobs=jobs, backend=backend, fresh=fresh, report=said)
    if json:
        print_json(
            {
                "verified": found.verified,
                "width_log2": found.width_log2,
                "seconds": found.seconds,
                "finished": found.finished,
                "asked": found.asked,
                "reason": found.reason,
                "folder": str(folder),
            }
        )
    else:
        print_text(pseudo_code(found.contract))
        print_text(f"width {found.width_log2:.3f} (mean log2(hi / lo)) at utilisation {utilisation:g}; {folder}")
        if not found.verified:
            print_text(found.reason)
    return 0 if found.verified else EXIT_NOT_PROVED


@app.command()
def hull(
    programs: Annotated[
        list[str],
        typer.Argument(autocompletion=names("agents"), help="Programs with the same conditions: names or files (.json)."),
    ],
    *,
    name: Annotated[str, typer.Option(help="Name of the contract.")] = "hull",
    out: Annotated[Path, out_option("Write the contract.", "FILE")] = Path("hull.json"),
    json: JsonOption = False,
) -> int:
    """Write the narrowest contract around programs, such as the solutions of a synthesis query. It still wants a proof.

    Example: ccenv contract hull learned_nominal_u78 --out hull.json
    """
    from ccenv.contract.hull import hull
    from ccenv.files import write_atomic
    from ccenv.programs import pseudo_code, to_data, to_json
    from ccenv.smt.senders.catalog import program_of

    contract = hull([program_of(spec) for spec in programs], name)
    write_atomic(out, to_json(contract).encode())
    if json:
        print_json({"program": to_data(contract), "is_contract": contract.is_contract, "file": str(out)})
    else:
        print_text(pseudo_code(contract))
        print_text(f"wrote {out}")
    return 0


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of ccenv contract widen.")],
    *,
    out: Annotated[Path, out_option("Folder for contracts.md and frontier.svg.")] = Path("runs/contract/report"),
    json: JsonOption = False,
) -> int:
    """Write a page and a picture of width against proved utilisation.

    Example: ccenv contract report runs/contract/learned_nominal_u78-u0.74
    """
    from ccenv.contract.report import write_report

    files = write_report(folders, out)
    if json:
        print_json({"files": [str(file) for file in files]})
    else:
        print_text("wrote " + ", ".join(str(file) for file in files))
    return 0


@app.command()
def plot(
    program: Annotated[
        str, typer.Argument(autocompletion=names("agents"), help="A contract or program: a registered name or a file (.json).")
    ],
    *,
    out: Annotated[Path, out_option("The picture, .svg or .png.", "FILE")] = Path("contract.svg"),
    json: JsonOption = False,
) -> int:
    """Draw the interval of a contract over C_U / C_L.

    Example: ccenv contract plot learned_contract_u80 --out interval.svg
    """
    from ccenv.contract.picture import interval_picture
    from ccenv.files import write_atomic
    from ccenv.network.plots import require_picture
    from ccenv.smt.senders.catalog import program_of

    file = require_picture(out)
    write_atomic(file, interval_picture(program_of(program), file.suffix))
    if json:
        print_json({"file": str(file)})
    else:
        print_text(f"wrote {file}")
    return 0
