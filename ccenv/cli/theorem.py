"""``ccenv verify theorem`` proves a statement about endless runs; ``ccenv certificate`` checks its certificate independently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError, require_extra, unknown_name
from ccenv.base.foreign import parse_fraction, parse_whole
from ccenv.base.provenance import VERSION
from ccenv.cli.options import (
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
from ccenv.cli.output import line_printer, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.proofs.certificates.check import Report
    from ccenv.proofs.certificates.fairness.reading import FairCertificate
    from ccenv.proofs.certificates.reading import Certificate
    from ccenv.proofs.theorems.prove import Prover
    from ccenv.proofs.theorems.theorem import LoadedTheorem

LIMIT_S = 240.0
MOST_JITTER_RTTS = 4
OUT = Path("runs/theorem")


def theorem(
    name: Annotated[str, argument("NAME", "A theorem: ccenv list configs names them; or a YAML file.")],
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per solver call; what takes longer is unknown.")] = LIMIT_S,
    out: Annotated[Path, out_option("Folder for the certificate, or for the trace that breaks a lemma or a claim.")] = OUT,
    grid: Annotated[bool, typer.Option("--grid", help="What carries over to other grids: a table of K and D.")] = False,
    flows: Annotated[
        str | None, option("ever_delay: a theorem about any number of flows (docs/fairness.md).", metavar="any")
    ] = None,
    fresh: Annotated[bool, fresh_option("Ignore stored answers of the very same query.")] = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Prove a statement about endless runs: lemmas, and the steps that join them (docs/theorems.md).

    Exit code 0 for verified, with a certificate; 1 for refuted, with a trace that can be repeated for ever; 3 for unknown, with
    the step or the lemma that is missing. With --grid every lemma is asked again with K = 1, 2, 4 samples per Rm and D = 0, Rm/2,
    Rm, 2 Rm; 0 if all claims carry over to every grid, 1 if a lemma that one needs has a counterexample, else 3. Interrupt it and
    run it again: answers are stored. With -s lasso=N a run is looked for that repeats N traces for ever and is worse than a
    claim: 1 with its traces, 0 if there is none, else 3.

    Example: ccenv verify theorem cc_qdel --json; ccenv verify theorem cc_qdel --grid --json
    Example: ccenv verify theorem ever_delay --flows any --set jitter=1/4 --set fairness=1.97 --set gain=1.7e-4
    """
    from ccenv.proofs.solver.solvers import Store
    from ccenv.proofs.theorems.prove import Prover
    from ccenv.proofs.theorems.report import tell
    from ccenv.proofs.theorems.theorem import load_theorem, with_constants

    if not time_limit > 0:
        raise InputError(f"--time-limit is {time_limit}; it must be above 0 seconds")
    require_extra("z3", "verify")
    if flows is not None or name == "ever_delay":
        held, constants = settings_and_others("verify theorem", set_)
        if grid or held["cells"] or held["bounds"] or held["lasso"] is not None:
            raise InputError("--flows asks about any number of flows: --grid, cells, lasso and bounds do not go with it")
        return _fair(name, flows, constants, held, (time_limit, fresh), out, json)
    loaded = load_theorem(name)
    held, constants = settings_and_others("verify theorem", set_, list(loaded.theorem.constants))
    lasso, grid = held["lasso"], grid or bool(held["cells"])
    prover = Prover(time_limit, Store(), not fresh, held["seed"], line_printer(json))
    if grid and lasso is not None:
        raise InputError("--grid and -s lasso ask different questions: give one of them")
    if held["bounds"] and lasso is None:
        raise InputError("-s bounds goes with -s lasso")
    if constants and not grid:
        raise InputError(f"-s {next(iter(constants))} goes with --grid: a certificate has the theorem's own constants")
    if lasso is not None:
        return _lasso(_set_bounds(loaded, held["bounds"]), prover, out, lasso, held, json)
    if grid:
        values = {key: str(value) for key, value in constants.items()}
        changed = with_constants(loaded, values) if values else loaded
        return _grid(changed, prover, out, _cells(held["cells"]), held, json)
    data = tell(prover.prove(loaded), out)
    keys = ("verdict", "reason", "utilisation", "inflight_bdp", "loss_per_rtt", "seconds", "certificate")
    return _print_proof(loaded.theorem.name, data, data["statement"], keys, held, json)


def _print_proof(name: str, data: dict[str, Any], statement: str, keys: Sequence[str], held: dict[str, Any], json: bool) -> int:
    if json:
        print_json(data | {"settings": held})
    else:
        print_text(statement)
        print_table(name, ["what", "value"], [(key, str(data[key])) for key in keys if data[key] is not None])
    return {"verified": 0, "refuted": 1}.get(data["verdict"], 3)


def _fair(
    name: str, flows: str | None, values: dict[str, Any], held: dict[str, Any], how: tuple[float, bool], out: Path, json: bool
) -> int:
    """Prove the theorem about any number of flows and print what was decided."""
    from ccenv.proofs.solver.solvers import Store
    from ccenv.proofs.theorems.fairness.prove import FLOWS, SENDER, prove, values_of

    if name != SENDER:
        raise unknown_name("sender with a theorem about any number of flows", name, [SENDER])
    if flows != FLOWS:
        given_flows = "is missing" if flows is None else f"is {flows}"
        raise InputError(f"--flows {given_flows}; the theorem of {SENDER} is about any number of flows: --flows {FLOWS}")
    limit_s, fresh = how
    design = values_of(values)
    data = prove(design, out, limit_s=limit_s, seed=held["seed"], store=Store(), fresh=fresh)
    keys = ("verdict", "reason", "ratio", "utilisation", "rtt_rtts", "queries", "seconds", "certificate")
    return _print_proof(name, data, data["sentence"] or "not proved", keys, held | design, json)


def _cells(texts: Sequence[str]) -> list[tuple[int, Fraction]]:
    """Return the grids of the option, or all grids of the table."""
    from ccenv.proofs.formulas.setting import MOST_STEPS_PER_RTT
    from ccenv.proofs.theorems.grid import JITTERS, STEPS_PER_RTT, has_samples

    if not texts:
        return [(steps, jitter) for steps in STEPS_PER_RTT for jitter in JITTERS if has_samples(steps, jitter)]
    cells = []
    for text in texts:
        steps_text, _, jitter_text = text.partition(":")
        if not jitter_text:
            raise InputError(f"-s cells is {text!r}; it must be K:D, such as 2:1/2")
        steps, jitter = parse_whole(steps_text, "-s cells: K"), parse_fraction(jitter_text, "-s cells: D")
        if not 1 <= steps <= MOST_STEPS_PER_RTT or not 0 <= jitter <= MOST_JITTER_RTTS:
            raise InputError(f"-s cells is {text!r}; K must be 1 to {MOST_STEPS_PER_RTT}, D 0 to {MOST_JITTER_RTTS} Rm")
        cells.append((steps, jitter))
    return cells


def _grid(
    loaded: LoadedTheorem, prover: Prover, out: Path, cells: Sequence[tuple[int, Fraction]], held: dict[str, Any], json: bool
) -> int:
    """Decide a theorem on each grid and print the table."""
    from ccenv.proofs.theorems.grid import decide, divisor, on_grid
    from ccenv.proofs.theorems.report import tell_cell

    theorems = [on_grid(loaded, steps, jitter) for steps, jitter in cells]  # all grids are read before the first is decided
    grid_cells = []
    for one, (steps, jitter) in zip(theorems, cells, strict=True):
        coarse = divisor(steps, jitter)
        coarser = None if coarse is None else on_grid(loaded, coarse, jitter)
        grid_cells.append(tell_cell(decide(one, prover, coarser), out))
    verdicts = {claim["verdict"] for cell in grid_cells for claim in cell["claims"].values()}
    verdict = "counterexample" if "counterexample" in verdicts else "unknown" if "unknown" in verdicts else "carries over"
    if json:
        about: dict[str, Any] = {"theorem": loaded.theorem.name, "sender": loaded.program.name, "verdict": verdict}
        constants = {name: str(value) for name, value in loaded.theorem.constants.items()}
        about |= {"constants": constants, "time_limit_s": prover.time_limit_s, "cells": grid_cells, "ccenv_version": VERSION}
        print_json(about | {"settings": held})
    else:
        names = [claim.name for claim in loaded.claims]
        rows = [
            [str(cell["steps_per_rtt"]), f"{cell['jitter_rtts']:g}", *(_format_claim(cell["claims"][name]) for name in names)]
            for cell in grid_cells
        ]
        print_table(loaded.theorem.name, ["K", "D, Rm", *names], rows)
    return {"carries over": 0, "counterexample": 1}.get(verdict, 3)


def _format_claim(claim: dict[str, Any]) -> str:
    lacks = ", ".join(f"{one['lemma']} {one['verdict']}" for one in claim["lacks"])
    return f"{claim['verdict']}: {lacks}" if lacks else str(claim["verdict"])


def _set_bounds(loaded: LoadedTheorem, bounds: dict[str, str]) -> LoadedTheorem:
    """Return a theorem with other bounds of its claims; if any are given, only with these claims."""
    claims = {claim.name: claim for claim in loaded.claims}
    for name in bounds:
        if name not in claims:
            raise unknown_name("claim", name, claims)
    bounded = [replace(claims[name], bound=parse_fraction(value, f"-s bounds.{name}")) for name, value in bounds.items()]
    return replace(loaded, claims=tuple(bounded)) if bounded else loaded


def _lasso(loaded: LoadedTheorem, prover: Prover, out: Path, periods: int, held: dict[str, Any], json: bool) -> int:
    """Search lassos that violate a claim and print them; return the exit code."""
    from ccenv.proofs.theorems.report import tell_lassos

    data = tell_lassos(loaded, list(prover.lassos(loaded, periods)), periods, out)
    if json:
        print_json(data | {"settings": held})
    else:
        rows = [(name, f"{one['bound']:g}", one["found"], ", ".join(one["traces"])) for name, one in data["claims"].items()]
        print_table(f"{loaded.theorem.name}: {data['verdict']}", ["claim", "bound", "found", "traces"], rows)
    return {"none found": 0, "refuted": 1}.get(data["verdict"], 3)


app = typer.Typer(
    help="""Check certificates of theorems.

    Example: ccenv certificate check runs/theorem/cc_qdel.certificate.json
    """
)

EXIT_CODES = {"confirmed": 0, "refused": 1, "undecided": 3}


@app.callback()
def group() -> None:
    """Make a group of commands although there is only one."""


@app.command("check")
def check_command(
    file: Annotated[str, argument("FILE", "A certificate (.certificate.json, .fairness.json, also .xz), or a shipped theorem.")],
    solve: Annotated[bool, typer.Option("--solve", help="Decide the checker's own queries again with a second solver.")] = False,
    time_limit: Annotated[float, seconds_option("--time-limit", "Time per query of --solve; a longer one is undecided.")] = 300.0,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Derive every query anew, compare, reason anew; with --solve or -s proofs=true also decide anew (docs/theorems.md).

    Exit code 0 where the certificate is confirmed, 1 where it is refused, 3 where the second solver gave out.

    Example: ccenv certificate check runs/theorem/cc_qdel.certificate.json --solve --json
    """
    from ccenv.proofs.certificates.check import check
    from ccenv.proofs.certificates.fairness.reading import find_fair
    from ccenv.proofs.certificates.library import find, read_stored
    from ccenv.proofs.certificates.proofs import find_checker
    from ccenv.proofs.certificates.statement import in_full

    if not time_limit > 0:
        raise InputError(f"--time-limit is {time_limit}; it must be above 0 seconds")
    held = settings("certificate check", set_)
    proofs, second = held["proofs"], held["solver"] if solve else None
    if solve and proofs:
        raise InputError("--solve asks a second solver, -s proofs has proofs checked: give one of them")
    if (fair := find_fair(file)) is not None:
        if proofs:
            raise InputError("-s proofs is for certificates of programs: the queries of a certificate of fairness are not linear")
        return _check_fair(fair, second, time_limit, held, json)
    path, checker = find(file), find_checker() if proofs else None
    certificate = read_stored(path).certificate
    report = check(certificate, solver=second, proofs=checker, limit_s=time_limit, progress=line_printer(json))
    if not report.refusals:
        _compare_with_registered(certificate, report)
    sentence = None if report.refusals else in_full(certificate.statement, certificate.assumptions)
    refusals = [(category, f"{field}: {text}") for category, field, text in report.refusals]
    return _print_check(certificate, report.to_dict() | {"sentence": sentence}, refusals, path, held, json)


def _check_fair(path: Path, solver: str | None, limit_s: float, held: dict[str, Any], json: bool) -> int:
    from ccenv.proofs.certificates.fairness.check import check_fair
    from ccenv.proofs.certificates.fairness.meaning import in_full
    from ccenv.proofs.certificates.fairness.reading import read_fair

    certificate = read_fair(path)
    report = check_fair(certificate, solver=solver, limit_s=limit_s, progress=line_printer(json))
    sentence = None if report.refusals else in_full(certificate.design, certificate.bounds)
    return _print_check(certificate, report.to_dict() | {"sentence": sentence}, report.refusals, path, held, json)


def _print_check(
    certificate: Certificate | FairCertificate,
    result: dict[str, Any],
    refusals: list[tuple[str, str]],
    path: Path,
    held: dict[str, Any],
    json: bool,
) -> int:
    """Print the result of a check with what the certificate says, if it is not refused."""
    statement, assumptions = certificate.statement, certificate.assumptions
    if json:
        print_json(result | {"statement": statement, "assumptions": assumptions, "file": str(path), "settings": held})
    else:
        print_text("refused: nothing is said" if refusals else statement)
        rows = refusals or [("assumed", line) for line in assumptions]
        print_table(result["verdict"], ["what", "text"], [*rows, *(("trusted", line) for line in result["trusted"])])
    return EXIT_CODES[result["verdict"]]


def _compare_with_registered(certificate: Certificate, report: Report) -> None:
    """Refuse a program under the name of another registered one; note it if no registered program has its name."""
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
