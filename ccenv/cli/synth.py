"""``ccenv synth``: find all belief programs of a template that provably meet a query, or that there are none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError, require_extra
from ccenv.cli.completion import configs
from ccenv.cli.options import JobsOption, JsonOption, SettingsOption, argument, fresh_option, out_option, seconds_option, settings
from ccenv.cli.output import line_printer, print_json, print_table, print_text, progress_bar

if TYPE_CHECKING:
    from ccenv.proofs.synthesis.query.query import Query

EXIT_INCOMPLETE = 3


def command(
    words: Annotated[
        list[str],
        argument("QUERY | why QUERY PROGRAM", "A shipped query or a YAML file; a program by its name or file.", configs("synth")),
    ],
    jobs: JobsOption = 1,
    fresh: Annotated[bool, fresh_option("Start anew; by default a run resumes.")] = False,
    budget: Annotated[float | None, seconds_option("--budget", "CPU time, instead of the query's limits.budget_s.")] = None,
    time_limit: Annotated[
        float | None, seconds_option("--time-limit", "Time per solver call, instead of the query's limits.call_s.")
    ] = None,
    out: Annotated[Path, out_option("Folder for runs, solutions and traces.")] = Path("runs/synth"),
    bounds: Annotated[
        int, typer.Option(min=0, help="Number of solutions to rank by their best provable utilisation and inflight (bisected).")
    ] = 0,
    lemmas: Annotated[
        float,
        typer.Option(min=0, help="With --bounds: seconds for lemmas F.1 to F.7 of each, with bisected constants; resumable."),
    ] = 0.0,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Find every program of a query's template that provably meets its objectives, or prove that there is none.

    why QUERY PROGRAM: print what rules a program out, with a trace file for ccenv trace replay.

    Exit code 0 for a complete answer (also "none"), 3 if candidates or proofs to be rechecked stayed open, 2 for an error; for
    why 0 for proved, 1 for refuted (no solution of the query), 3 for unknown.

    Example: ccenv synth g1_t5

    ccenv synth g1_t5 --bounds 2 -s report=page.html -s recheck=yices

    ccenv synth why g1_t5 cc_probe_fast

    ccenv synth why g1_t5 mine.json
    """
    from ccenv.proofs.synthesis.query.query import load_query

    held = settings("synth", set_)
    pipeline = {"--jobs": jobs != 1, "-s backend": held["backend"] != "processes", "--fresh": fresh}
    pipeline |= {"-s recheck": held["recheck"] is not None, "--bounds": bounds > 0, "--lemmas": lemmas > 0}
    pipeline |= {"-s report": held["report"] is not None}
    if len(words) == 3 and words[0] == "why":
        require_extra("z3", "verify")
        _refuse_options(
            "why", pipeline | {"--budget": budget is not None, "--time-limit": time_limit is not None, "-s plain": held["plain"]}
        )
        return _why(load_query(words[1]), words[2], out, held, json)
    if len(words) != 1:
        raise InputError(f"give one query, or why, a query and a program; got {' '.join(words)!r}")
    _check(held["recheck"], {"--budget": budget, "--time-limit": time_limit})
    limits = {name: value for name, value in (("budget_s", budget), ("call_s", time_limit)) if value is not None}
    query = load_query(words[0])
    query = query.model_copy(update={"limits": query.limits.model_copy(update=limits)})
    if held["plain"]:
        _refuse_options("-s plain", pipeline)
        return _run_plain(query, held, json)
    if lemmas and not bounds:
        raise InputError("--lemmas needs --bounds N: how many solutions they are about")
    return _search(query, jobs, held, not fresh, bounds, lemmas, out, json)


def _refuse_options(what: str, options: dict[str, bool]) -> None:
    unused = [option for option, is_given in options.items() if is_given]
    if unused:
        raise InputError(f"{what} does not take {', '.join(unused)}")


def _check(recheck: str | None, limits: dict[str, float | None]) -> None:
    from ccenv.proofs.solver.solvers import check_second_solver
    from ccenv.proofs.synthesis.query.query import MOST_SECONDS

    require_extra("z3", "verify")
    check_second_solver(recheck)
    for option, value in limits.items():
        if value is not None and not 0 < value <= MOST_SECONDS:
            raise InputError(f"{option} is {value}; it must be above 0 and at most {MOST_SECONDS:g} seconds")


def _run_plain(query: Query, held: dict[str, Any], json: bool) -> int:
    from ccenv.proofs.synthesis.search.cegis import cegis

    data = cegis(query, query.limits.budget_s)
    if json:
        print_json(data | {"settings": held})
    else:
        rows = [(name.replace("_", " "), value) for name, value in data.items() if name != "solutions"]
        print_table(f"{query.name} by plain CEGIS", ["what", "value"], rows)
    return 0 if data["complete"] else EXIT_INCOMPLETE


def _search(query: Query, jobs: int, held: dict[str, Any], reuse: bool, bounds: int, lemmas: float, out: Path, json: bool) -> int:
    from ccenv.proofs.synthesis.result import check_report, result, write_report, write_solutions
    from ccenv.proofs.synthesis.run import recheck_solutions, solve_query, start, warm_up

    report = None if held["report"] is None else Path(held["report"])
    if report is not None:
        check_report(report)
    warm_up()
    folder = out / f"{query.name}-{query.fingerprint()}"
    if bounds and query.flows == 2:
        raise InputError("--bounds is for queries about one flow")
    with progress_bar(query.name) as progress:
        run = start(query, folder, reuse, progress)
        solve_query(run, jobs, held["backend"], progress)
    data = result(run)
    if held["recheck"] is not None:
        data["recheck"] = recheck_solutions(run, held["recheck"])
    if bounds:
        from ccenv.proofs.synthesis.bounds import behaviour, rank

        data["ranking"] = rank(query, data["solutions"], bounds, query.limits.budget_s)
        data["engine"] = behaviour(query, data["solutions"], bounds)
    if lemmas:
        from ccenv.proofs.synthesis.bounds import lemma_suites

        data["lemmas"] = lemma_suites(query, data["solutions"], bounds, lemmas, line_printer(json))
    data["folder"] = str(folder)
    if report is not None:
        write_report(data, report)
        data["report"] = str(report)
    data["files"] = write_solutions(data, folder / "solutions")
    if json:
        print_json(data | {"settings": held})
    else:
        _print(data)
    open_proofs = data.get("recheck", {}).get("open")
    return 0 if data["complete"] and not open_proofs else EXIT_INCOMPLETE


def _print(data: dict[str, Any]) -> None:
    from ccenv.proofs.synthesis.result import summary

    print_text(summary(data))
    print_table("funnel", ["stage", "number"], [(name.replace("_", " "), n) for name, n in data["funnel"].items()])
    rows = [(s["name"], s["raw"], " ".join(map(str.strip, s["pseudo_code"].splitlines()[1:-1]))) for s in data["solutions"]]
    if rows:
        print_table("solutions", ["program", "raw", "rule"], rows)
    print_text(f"{data['cpu_seconds']} CPU s, {data['z3_calls']} solver calls, {data['counterexamples']} counterexamples")
    for row in data.get("ranking", []):
        print_text(f"{row['name']}: {row['summary']}")
    for name, suite in data.get("lemmas", {}).get("solutions", {}).items():
        print_text(f"{name}, {suite['summary']}")
    if "reason" in data.get("lemmas", {}):
        print_text(f"no lemmas: {data['lemmas']['reason']}")
    if "recheck" in data:
        print_text(f"{data['recheck']['solver']}: {data['recheck']['confirmed']} of {data['canonical']} proofs confirmed")
    print_text(f"programs in {data['folder']}/solutions")


def _why(query: Query, name: str, out: Path, held: dict[str, Any], json: bool) -> int:
    from ccenv.proofs.senders.catalog import program_of
    from ccenv.proofs.synthesis.result import why

    data = why(query, program_of(name), out / "why")
    if json:
        print_json(data | {"settings": held})
    else:
        rows = [(key, value) for key, value in data.items() if value not in (None, "")]
        print_table(f"{data['program']} in {query.name}", ["what", "value"], rows)
    return {"refuted": 1, "proved": 0}.get(data["status"], EXIT_INCOMPLETE)
