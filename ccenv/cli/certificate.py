"""``ccenv certificate``: check a theorem's certificate without the prover that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ccenv.cli.shared import seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.proofs.certificates.check import Report
    from ccenv.proofs.certificates.reading import Certificate

app = typer.Typer(
    help="""Check certificates of theorems.

    Example: ccenv certificate check runs/theorem/cc_qdel.certificate.json
    """
)

EXIT_CODES = {"confirmed": 0, "refused": 1, "undecided": 3}


@app.callback()
def group() -> None:
    """Hold the sub-commands, also while there is one."""


@app.command("check")
def check_command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A certificate (.certificate.json, also .xz), or a shipped theorem.")
    ],
    solve: Annotated[bool, typer.Option("--solve", help="Decide the checker's own queries again with a second solver.")] = False,
    solver: Annotated[str, typer.Option(help="The second solver: yices or cvc5.")] = "yices",
    proofs: Annotated[bool, typer.Option("--proofs", help="Decide them with cvc5 and have its proofs checked by ethos.")] = False,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per query of --solve; a longer one is undecided.")] = 300.0,
    json: JsonOption = False,
) -> int:
    """Derive every query anew, compare, reason anew; with --solve or --proofs also decide anew (docs/theorems.md).

    Exit code 0 where the certificate is confirmed, 1 where it is refused, 3 where the second solver gave out.

    Example: ccenv certificate check runs/theorem/cc_qdel.certificate.json --solve --json
    """
    from ccenv.proofs.certificates.check import check
    from ccenv.proofs.certificates.library import find, read_stored
    from ccenv.proofs.certificates.proofs import find_checker
    from ccenv.proofs.certificates.statement import in_full
    from ccenv.base.errors import InputError

    if not time_limit > 0:
        raise InputError(f"--time-limit is {time_limit}; it must be above 0 seconds")
    if solve and proofs:
        raise InputError("--solve asks a second solver, --proofs has proofs checked: give one of them")
    path, checker = find(file), find_checker() if proofs else None
    certificate = read_stored(path).certificate
    progress = None if json else lambda line: print_text(f"  {line}")
    second = solver if solve else None
    report = check(certificate, solver=second, proofs=checker, limit_s=time_limit, progress=progress or (lambda line: None))
    if not report.refusals:
        _compare_with_registered(certificate, report)
    told, taken = certificate.statement, certificate.assumptions
    sentence = None if report.refusals else in_full(told, taken)
    if json:
        print_json(report.to_dict() | {"statement": told, "sentence": sentence, "assumptions": taken, "file": str(path)})
    else:
        print_text("refused: nothing is said" if report.refusals else told)
        rows = [(kind, f"{field}: {text}") for kind, field, text in report.refusals] or [("assumed", line) for line in taken]
        print_table(report.verdict, ["what", "text"], [*rows, *(("trusted", line) for line in report.trusted)])
    return EXIT_CODES[report.verdict]


def _compare_with_registered(certificate: Certificate, report: Report) -> None:
    """Refuse a program under the name of another one that is registered; say so where no registered one has its name."""
    from ccenv.base.errors import InputError
    from ccenv.agents.programs import parse_program
    from ccenv.proofs.senders.catalog import registered_as, require_own_name

    program = parse_program(certificate.program)
    names = {"program.name": program.name, "theorem.sender": certificate.theorem.sender}
    for field, name in names.items():
        try:
            require_own_name(program, name)
        except InputError as error:
            report.refuse("program", field, str(error))
    if not any(map(registered_as, names.values())):
        report.trusted.append(
            f"no registered program is called {program.name!r}: the sentence is about the program in the certificate"
        )
