"""The answer of a run: counts, funnel, solutions as belief programs."""

from __future__ import annotations

import platform
import re
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.files import make_folder, write_atomic
from ccenv.agents.programs import pseudo_code, to_data, to_json
from ccenv.proofs.solver.solvers import version_of
from ccenv.proofs.synthesis.query.classes import members
from ccenv.proofs.synthesis.query.query import Query
from ccenv.proofs.synthesis.query.template import Candidate, Space, Terms
from ccenv.proofs.synthesis.search.state import Run
from ccenv.base.version import VERSION


def result(run: Run) -> dict[str, Any]:
    """Return the answer as one JSON-ready object.

    ``raw`` counts candidates as the template lists them, ``keys`` those that differ in the coefficients of belief inputs (the
    paper's count), ``canonical`` those that differ as functions. ``complete`` is false where a class stayed unknown.
    """
    solutions, keys, raw = [], set(), 0
    for rank, number in enumerate(sorted(run.proved)):
        count, own, equal = _members(run, number)
        keys |= own
        raw += count
        program = run.space.program(simplest(run.space, equal), f"{run.query.name}.{rank + 1}", _source(run.query))
        proofs = run.proved[number]["queries"]
        solutions.append(
            {
                "name": program.name,
                "class": number,
                "raw": count,
                "keys": sorted(key_text(key) for key in own),
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


def _members(run: Run, number: int) -> tuple[int, set[tuple[Terms, ...]], list[Candidate]]:
    """Return how many raw candidates a class stands for, their keys, and candidates to show."""
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
    """Return the candidate that reads most easily among equal ones: few terms, conditions of positive sense, small numbers."""

    def cost(candidate: Candidate) -> tuple[Any, ...]:
        conditions = [space.conditions[i] for i in candidate.conditions]
        rates = [space.rates[i] for i in candidate.rates]
        terms = [term for part in [*conditions, *rates] for term in part]
        first = [part[0][1] < 0 for part in conditions if part]
        return (len(terms), sum(first), sum(abs(value) for _, value in terms), candidate.conditions, candidate.rates)

    return min(equal, key=cost)


def write_solutions(data: dict[str, Any], folder: FilePath) -> list[str]:
    """Write each solution as a belief program file; returns the files."""
    from ccenv.agents.programs import parse_program

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
    """Return one line for people."""
    what = f"{data['query']}: {data['keys']} solutions by belief coefficients ({data['raw']} raw, {data['canonical']} functions)"
    if not data["complete"]:
        return f"{what} so far; {data['funnel']['unknown']} classes are undecided"
    if data["canonical"] == 0:
        return f"{data['query']}: no program of the template's {data['funnel']['candidates']} meets the query"
    return what
