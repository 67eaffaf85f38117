"""``ccenv shield``: widen and join shields, and their frontier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import write_atomic
from ccenv.base.provenance import machine
from ccenv.cli.completion import names
from ccenv.cli.options import JsonOption, ProcessesOption, SettingsOption, fresh_option, out_option, seconds_option, settings
from ccenv.cli.output import line_printer, print_answer, print_text

if TYPE_CHECKING:
    from ccenv.agents.programs import Program
    from ccenv.training.shields.search import Widening

app = typer.Typer(
    name="shield",
    help="Shields: programs whose leaves are intervals of rates.\n\nExample: ccenv shield widen learned_nominal_u78 "
    "--utilisation 0.74 --budget 1200",
    no_args_is_help=True,
)
EXIT_NOT_PROVED = 1

TimeLimitOption = Annotated[float, seconds_option("--time-limit", "Time per solver call.")]


@app.command()
def widen(
    program: Annotated[
        str,
        typer.Argument(autocompletion=names("agents"), help="A registered belief program or shield, or the path of one (.json)."),
    ],
    *,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Utilisation that must stay proved.")],
    budget: Annotated[float, seconds_option("--budget", "Time for the search; a later call resumes it.")] = 600.0,
    time_limit: TimeLimitOption = 120.0,
    jobs: ProcessesOption = None,
    out: Annotated[Path | None, out_option("Folder for answers and result.")] = None,
    fresh: Annotated[bool, fresh_option("Discard the answers of earlier calls.")] = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Find the widest shield around a program whose lemmas hold (docs/shields.md).

    Exit code 1 where the program itself is not proved with these constants.

    Example: ccenv shield widen learned_nominal_u78 --utilisation 0.74 --budget 1200

    ccenv shield widen cc_qdel --utilisation 0.8 -s lemmas=cc_qdel

    ccenv shield widen learned_nominal_u78 --utilisation 0.77 -s timeouts=artefact
    """
    from ccenv.agents.programs import pseudo_code
    from ccenv.proofs.senders.catalog import program_of
    from ccenv.training.shields.widen import widen

    held = settings("shield widen", set_)
    task = _make_task(program, utilisation, budget, time_limit, held)
    if held["inside"] is not None:
        task = replace(task, inside=program_of(held["inside"]))
    folder = out or Path("runs") / "shield" / _folder(task)
    result = widen(task, folder, jobs=_count_jobs(jobs), backend=held["backend"], fresh=fresh, report=line_printer(json))
    keys = ("verified", "width_log2", "width_at_most", "seconds", "finished", "asked", "reason")
    width = f"width {result.width_log2:.3f} (mean log2(hi / lo)) at utilisation {utilisation:g}; {folder}"
    text = f"{pseudo_code(result.shield)}\n{width}" + ("" if result.verified else f"\n{result.reason}")
    print_answer({key: getattr(result, key) for key in keys} | {"folder": str(folder), "settings": held}, text, json)
    return 0 if result.verified else EXIT_NOT_PROVED


def _make_task(program: str, utilisation: float, budget_s: float, call_s: float, held: dict[str, Any]) -> Widening:
    """Settings that are not given default to the suite."""
    from ccenv.proofs.senders.catalog import program_of
    from ccenv.training.distill.claims import SAMPLES
    from ccenv.training.shields.search import Widening, load_kept_suite

    require_extra("z3", "verify")
    suite = None if held["lemmas"] is None else load_kept_suite(held["lemmas"])
    default = {"settle": 0, "default_T": SAMPLES} if suite is None else suite
    settle = default["settle"] if held["settle"] is None else held["settle"]
    samples = default["default_T"] if held["samples"] is None else held["samples"]
    return Widening(
        program_of(program), utilisation, budget_s, suite, settle, samples, call_s, held["seed"], timeouts=held["timeouts"]
    )


def _folder(task: Widening) -> str:
    return f"{task.program.name}-u{task.utilisation:g}{'' if task.timeouts is None else f'-{task.timeouts}'}"


def _count_jobs(jobs: int | None) -> int:
    return int(machine()["cores"]) if jobs is None else jobs


@app.command()
def hull(
    programs: Annotated[
        list[str],
        typer.Argument(
            autocompletion=names("agents"),
            help="Programs with the same conditions: names, files (.json), or a folder of ccenv synth's solutions.",
        ),
    ],
    *,
    out: Annotated[Path, out_option("Write the shield; the file's name is its name.", "FILE")] = Path("hull.json"),
    json: JsonOption = False,
) -> int:
    """Write the narrowest shield around programs, such as the solutions of a synthesis query. It still wants a proof.

    Of a folder the programs with the same conditions count, the largest such group.

    Example: ccenv shield hull learned_nominal_u78 --out hull.json

    ccenv shield hull runs/synth/g1_t5-*/solutions
    """
    from ccenv.agents.programs import pseudo_code, to_data, to_json
    from ccenv.proofs.senders.catalog import program_of
    from ccenv.training.shields.boxes import hull, largest_joinable_group

    chosen: list[Program] = []
    left_out = 0
    for spec in programs:
        files = sorted(map(str, Path(spec).glob("*.json"))) if Path(spec).is_dir() else [spec]
        if not files:
            raise InputError(f"{spec}: no program (.json) in this folder")
        members = largest_joinable_group([program_of(file) for file in files])
        chosen += members
        left_out += len(files) - len(members)
    shield = hull(chosen, out.stem)
    write_atomic(out, to_json(shield).encode())
    data = {"program": to_data(shield), "is_shield": shield.is_shield, "programs": len(chosen), "left_out": left_out}
    count = f"{len(chosen)} programs; {left_out} with other conditions left out; wrote {out}"
    print_answer(data | {"file": str(out)}, f"{pseudo_code(shield)}\n{count}", json)
    return 0


@app.command()
def frontier(
    programs: Annotated[
        list[str], typer.Argument(autocompletion=names("agents"), help="Belief programs or shields: names or files (.json).")
    ],
    *,
    utilisations: Annotated[str, typer.Option("--utilisations", help="What must stay proved: numbers joined by commas.")],
    budget: Annotated[float, seconds_option("--budget", "Time for each search; a later call resumes it.")] = 600.0,
    jobs: ProcessesOption = None,
    out: Annotated[Path, out_option("Folder: one of each search, and the report.")] = Path("runs/shield/frontier"),
    fresh: Annotated[bool, fresh_option("Discard the answers of earlier calls.")] = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Widen programs at several bounds, and write width and nominal score against proved utilisation.

    A point whose program is not proved at the bound stands in the table as such.

    Example: ccenv shield frontier learned_nominal_u78 --utilisations 0.65,0.7,0.74,0.78 --budget 1200

    ccenv shield frontier learned_nominal_u78 --utilisations 0.6,0.7,0.77 -s timeouts=artefact
    """
    from ccenv.base.figure import markdown
    from ccenv.training.shields.report import make_rows, read_data, write_report
    from ccenv.training.shields.widen import widen

    held = settings("shield frontier", set_)
    try:
        values = dict.fromkeys(float(part) for part in utilisations.split(","))
    except ValueError:
        raise InputError(f"--utilisations is {utilisations!r}; it must be numbers joined by commas, such as 0.7,0.74") from None
    tasks = [_make_task(program, value, budget, held["call_s"], held) for program in programs for value in values]
    folders = [out / _folder(task) for task in tasks]
    for task, folder in zip(tasks, folders, strict=True):
        if not json:
            print_text(f"{task.program.name} at {task.utilisation:g}")
        widen(task, folder, jobs=_count_jobs(jobs), backend=held["backend"], fresh=fresh, report=line_printer(json))
    files = write_report(folders, out, held["n_paths"])
    data = read_data(files[0])
    text = f"{markdown(make_rows(data))}\nwrote {', '.join(map(str, files))}"
    print_answer({"rows": data["rows"], "files": files, "settings": held}, text, json)
    return 0
