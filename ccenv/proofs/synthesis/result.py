"""The answer of a run (counts, funnel, solutions as belief programs), its report page, and why a program is no solution."""

from __future__ import annotations

import math
import platform
import re
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.programs import Program, parse_program, pseudo_code, to_data, to_json
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import make_folder, write_atomic
from ccenv.base.provenance import VERSION
from ccenv.network.trace import Trace
from ccenv.proofs.claims.report import save_counterexample, write_flow_counterexample
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.view import View, as_trace
from ccenv.proofs.solver.solvers import version_of
from ccenv.proofs.synthesis.prove import Task, broken_parts, claims, decide, require_consistent_beliefs
from ccenv.proofs.synthesis.query.classes import members
from ccenv.proofs.synthesis.query.flows import NEVER_REPEATS, check_flows
from ccenv.proofs.synthesis.query.objectives import Objectives
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import Candidate, Space, Terms
from ccenv.proofs.synthesis.search.cegis import Run


def result(run: Run) -> dict[str, Any]:
    """Return the answer as one JSON-ready object.

    ``raw`` counts the template's candidates, ``keys`` those that differ in the coefficients of belief inputs (the paper's count),
    ``canonical`` those that differ as functions. ``complete`` is false if a class stayed unknown.
    """
    solutions, keys, raw = [], set(), 0
    for rank, number in enumerate(sorted(run.proved)):
        count, class_keys, equal = _collect_members(run, number)
        keys |= class_keys
        raw += count
        program = run.space.program(simplest(run.space, equal), f"{run.query.name}.{rank + 1}", _source(run.query))
        proofs = run.proved[number]["queries"]
        solutions.append(
            {
                "name": program.name,
                "class": number,
                "raw": count,
                "keys": sorted(key_text(key) for key in class_keys),
                "program": to_data(program),
                "pseudo_code": pseudo_code(program),
                "queries": proofs,
            }
        )
    return {
        "query": run.query.name,
        "title": run.query.title,
        "source": run.query.source,
        "paper_keys": run.query.paper_keys,
        "complete": not run.unknown and not (run.families and run.families.left),
        "keys": len(keys),
        "raw": raw,
        "canonical": len(solutions),
        "cpu_seconds": round(sum(run.cpu_s.values()), 3),
        "z3_calls": run.z3_calls,
        "counterexamples": run.counterexamples,
        "funnel": _funnel(run),
        "cpu_seconds_by_phase": {name: round(value, 3) for name, value in run.cpu_s.items()},
        "unknown": [{"class": number, "reason": reason} for number, reason in sorted(run.unknown.items())],
        "solutions": solutions,
        "ccenv_version": VERSION,
        "solver": version_of("z3"),
        "machine": f"{platform.machine()} {platform.system()}, Python {platform.python_version()}",
    }


def _collect_members(run: Run, number: int) -> tuple[int, set[tuple[Terms, ...]], list[Candidate]]:
    """Return the number of raw candidates of a class, their keys, and candidates to show."""
    if run.families is not None:
        family = run.families.family(number)
        return family.raw(), family.keys(), list(family.candidates())
    equal = list(members(run.space, run.simulator.rows[number]))
    return len(equal), {run.space.key(candidate) for candidate in equal}, equal


def _funnel(run: Run) -> dict[str, int]:
    out = {"candidates": run.space.template.size()}
    if run.families is not None:
        out |= {"boxed": run.families.boxed, "listed": run.families.listed}
    return out | {
        "classes": len(run.simulator.rows),
        "after_simulation": run.after_simulation,
        "decided_by_solver": len(run.proved) + len(run.refuted),
        "proved": len(run.proved),
        "unknown": len(run.unknown) + (run.families.left if run.families else 0),
    }


def simplest(space: Space, equal: list[Candidate]) -> Candidate:
    """Return the most readable of equal candidates: few terms, conditions of positive sense, small numbers."""

    def cost(candidate: Candidate) -> tuple[Any, ...]:
        conditions = [space.conditions[i] for i in candidate.conditions]
        rates = [space.rates[i] for i in candidate.rates]
        terms = [term for part in [*conditions, *rates] for term in part]
        first = [part[0][1] < 0 for part in conditions if part]
        return (len(terms), sum(first), sum(abs(value) for _, value in terms), candidate.conditions, candidate.rates)

    return min(equal, key=cost)


def write_solutions(data: dict[str, Any], folder: FilePath) -> list[str]:
    """Write each solution as a belief program file and return the files."""
    make_folder(folder)
    for stale in folder.glob("*.json"):
        stale.unlink()
    files = []
    for solution in data["solutions"]:
        file = folder / f"{re.sub('[^A-Za-z0-9_.-]', '-', solution['name'])}.json"
        write_atomic(file, to_json(parse_program(solution["program"])).encode())
        files.append(str(file))
    return files


def key_text(key: tuple[Terms, ...]) -> str:
    """Return critical coefficients as text, conditions first, e.g. ``1 qdel_L ; 1/2 C_L ; 2 C_L``."""
    return " ; ".join(" ".join(f"{value} {name}" for name, value in part) or "-" for part in key)


def _source(query: Query) -> str:
    return f"ccenv synth {query.name} ({query.source})" if query.source else f"ccenv synth {query.name}"


def summary(data: dict[str, Any]) -> str:
    text = f"{data['query']}: {data['keys']} solutions by belief coefficients ({data['raw']} raw, {data['canonical']} functions)"
    if not data["complete"]:
        return f"{text} so far; {data['funnel']['unknown']} classes are undecided"
    if data["canonical"] == 0:
        return f"{data['query']}: no program of the template's {data['funnel']['candidates']} meets the query"
    return text


_WIDEST_REM = 24.0


def check_report(file: FilePath) -> None:
    """Raise InputError for a name that does not end in .html, MissingExtraError without Jinja2."""
    if file.suffix != ".html":
        raise InputError(f"-s report is {str(file)!r}; the page ends in '.html'")
    require_extra("jinja2", "board")


def write_report(data: dict[str, Any], file: FilePath) -> None:
    """Write the page of an answer, optionally with ``ranking`` and ``engine``; bars are logarithmic.

    Raises as :func:`check_report` does.
    """
    check_report(file)
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ccenv.proofs.synthesis"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    stages = [(name.replace("_", " "), n) for name, n in data["funnel"].items()]
    largest = math.log10(1 + max(n for _, n in stages))
    funnel = [(name, n, round(_WIDEST_REM * math.log10(1 + n) / largest, 2)) for name, n in stages]
    bounds = {row["name"]: row["summary"] for row in data.get("ranking", [])}
    for name, suite in data.get("lemmas", {}).get("solutions", {}).items():
        bounds[name] = f"{bounds[name]}; {suite['summary']}"
    page = environment.get_template("report.html")
    text = page.render(data=data, line=summary(data), funnel=funnel, bounds=bounds, engine=data.get("engine", {}))
    make_folder(file.parent)
    write_atomic(file, text.encode())


def why(query: Query, program: Program, folder: FilePath) -> dict[str, Any]:
    """Decide any belief program under a query; it need not be of the query's template. A counterexample goes to ``folder``.

    Raises InputError for a program whose inputs this network's encoding lacks.

    Returns:
        dict: status (proved, refuted, unknown), missed objectives, the trace file and the curve engine's difference.
    """
    unknown = program.inputs() - query.space().template.inputs() - {"MSS/Rm"}
    if unknown:
        raise InputError(f"program {program.name!r} reads {', '.join(sorted(unknown))}, which query {query.name!r} does not have")
    moving = query.beliefs.timeouts != "none"
    if query.flows > 1:
        check_flows(query)
    elif not moving:
        require_consistent_beliefs(query)
    any_start = query.beliefs.start == "any"
    task = Task(query.setting(), query.objectives, program, query.limits.call_s, query.seed, moving, any_start, query.flows)
    decision = decide(task)
    out: dict[str, Any] = {"program": program.name, "query": query.name, "status": decision.status, "claim": decision.claim}
    out |= {"reason": decision.reason, "seconds": round(decision.seconds, 3), "trace": None}
    if decision.claim == NEVER_REPEATS and decision.status == "refuted":
        return out | {"missed": f"no trace of {query.T} samples ends as it began"}
    if decision.view is None:
        return out
    if query.flows > 1:
        return out | _describe_flows(task, decision.claim, decision.view, folder)
    view = decision.view
    out |= {
        "missed": missed(query.objectives, view),
        "mss_over_bdp": float(view.alpha),
        "C_L": _series(view.C_L),
        "C_U": _series(view.C_U),
    }
    out |= {"rate": _series(view.rate[1:]), "inflight": _series([view.inflight(t) for t in range(view.last + 1)])}
    trace = as_trace(view, program.name, f"misses {out['missed']} of query {query.name} (T = {query.T})")
    file = save_counterexample(trace, folder, f"{query.name}-{program.name}")
    _, difference = engine_replay(trace)
    engine = "reproduced" if difference <= REPLAY_TOLERANCE else "differs"
    return out | {"trace": file, "engine": engine, "engine_relative_difference": difference}


def _describe_flows(task: Task, claim: str, view: View, folder: FilePath) -> dict[str, Any]:
    """Return the missed claim, rates, trace file and engine comparison of a counterexample of several flows."""
    (query,) = [query for query in claims(task) if query.name == claim]
    file, record = write_flow_counterexample(query, view, folder, task.seconds, task.seed)
    replay = {name: value for name, value in record.items() if name in ("engine", "engine_relative_difference")}
    trace = Trace.load(FilePath(file))
    shares = trace.rate_Bps[1:] / trace.link_rate_Bps[1:, None]
    rates = {f"rate_{i}": _series(shares[:, i]) for i in range(task.flows)}
    return {"missed": claim} | rates | {"trace": file} | replay


def missed(goals: Objectives, view: View) -> str:
    """Return the objectives that an exact trace misses, as text."""
    return ", ".join(broken_parts(goals, view))


def _series(values: Any) -> str | None:
    return None if values is None else " ".join(f"{float(value):.4g}" for value in values)
