"""The loop from a template to a proved program: polish against a pool of traces, check on fresh ones, ask the solver, repeat.

Only the solver decides ``verified``. Its counterexamples and those of the fast simulation (``traces``) join the pool.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.programs import Program, to_json
from ccenv.base.errors import InputError
from ccenv.base.files import write_atomic
from ccenv.base.foreign import parse_json, read_arrays, read_bounded
from ccenv.proofs.claims.verifier import Verifier
from ccenv.proofs.solver.solvers import Store
from ccenv.training.distill.claims import ClaimNumbers, claim_queries
from ccenv.training.distill.objective import Objective
from ccenv.training.distill.traces import LEMMAS, Traces, from_view, join, neighbours, random_traces, violations
from ccenv.training.distill.tree import Template, polish

MAX_STATE_BYTES = 256 << 20
_STATE = {"starts": "<f8", "moves": "<f8", "mean": "<f8", "note": "|u1"}
POOL = 60_000  # random traces on which every candidate is judged
FRESH = 240_000  # further traces that a candidate must pass before the solver is asked
QUICK = 6_000  # traces of the pool on which every candidate is judged first
KEPT = 400  # violated traces that a round adds to the pool
NEAR = 20_000  # neighbours tried around a counterexample
FIRST_GENERATIONS, LATER_GENERATIONS = 14, 6
FIRST_REACH, LATER_REACH = 1.0, 0.35
BROKEN_LEMMA = 0.02  # penalty of a broken lemma, on top of its violation
LARGEST_PENALTY = 0.5  # per lemma


@dataclass
class Proof:
    """Result of the loop: the proved program, or the best candidate if the budget ended first (``unknown``).

    ``rounds`` have value, failed check, size of the pool and seconds; ``traces`` is the size of the pool at the end.
    """

    program: Program
    numbers: ClaimNumbers
    verdict: str
    rounds: list[dict[str, object]]
    traces: int


def prove(
    template: Template,
    start: np.ndarray,
    numbers: ClaimNumbers,
    objective: Objective,
    *,
    name: str,
    source: str = "",
    seed: int = 0,
    rounds: int = 40,
    budget_s: float = 900.0,
    time_limit_s: float = 300.0,
    store: Store | None = None,
    state: FilePath | None = None,
    state_key: str = "",
    report: Callable[[dict[str, object]], None] | None = None,
) -> Proof:
    """Search the best-scoring program of a template, with guards that the solver supports, that the solver verifies.

    ``start`` are the template's first numbers, ``numbers`` the constants to prove. No round starts after ``budget_s`` wall
    seconds; ``time_limit_s`` is per solver call. A killed loop resumes from the file ``state`` (.npz) if ``state_key``, which
    identifies everything else that decides the search, is the same. ``report`` gets each round's record.
    """
    begin = time.perf_counter()
    loop = _Loop(numbers, objective, Verifier(time_limit_s, store=store), seed, state_key)
    mean, records = loop.load(state) or (start, [])
    verdict = "unknown"
    while True:
        number = len(records)
        first = number == 0
        polished = polish(
            template,
            mean,
            loop.judge,
            name=name,
            source=source,
            seed=seed + number,
            generations=FIRST_GENERATIONS if first else LATER_GENERATIONS,
            reach=FIRST_REACH if first else LATER_REACH,
        )
        mean = polished.numbers
        outcome = loop.examine(polished.program, number)
        record: dict[str, object] = {
            "round": number,
            "value": round(polished.value, 4),
            "outcome": outcome,
            "traces": len(loop.pool),
            "seconds": round(time.perf_counter() - begin, 1),
        }
        records.append(record)
        loop.save(state, mean, records)
        if report is not None:
            report(record)
        if outcome == "verified":
            verdict = "verified"
        if verdict == "verified" or len(records) >= rounds or time.perf_counter() - begin > budget_s:
            break
    return Proof(polished.program, numbers, verdict, records, len(loop.pool))


def read_state(file: FilePath) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the note of an interrupted search. Raises InputError for other files; shapes are not checked."""
    data = read_arrays(read_bounded(file, MAX_STATE_BYTES), str(file), _STATE, MAX_STATE_BYTES)
    if set(data) != set(_STATE):
        raise InputError(f"{file}: needs the arrays {', '.join(_STATE)}")
    if not data["starts"].ndim or not data["moves"].ndim or data["mean"].ndim != 1 or not np.isfinite(data["mean"]).all():
        raise InputError(f"{file}: starts and moves must be lists of traces, mean a list of finite numbers")
    note = parse_json(data["note"].tobytes(), f"{file}, note")
    if not isinstance(note, dict) or set(note) != {"records", "refused", "claim"}:
        raise InputError(f"{file}: its note is not one of a search for a proof")
    refused, records = note["refused"], note["records"]
    if not isinstance(refused, list) or not all(isinstance(name, str) for name in refused):
        raise InputError(f"{file}: 'refused' must be a list of texts")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{file}: 'records' must be a list of rounds")
    return data, note


class _Loop:
    """The pool, the judge of candidates, and the three checks of a candidate."""

    def __init__(self, numbers: ClaimNumbers, objective: Objective, verifier: Verifier, seed: int, key: str = "") -> None:
        self.numbers = numbers
        self.searched = numbers.stricter()
        self.objective = objective
        self.verifier = verifier
        self.seed = seed
        self.key = key
        self.pool: Traces = random_traces(POOL, seed)
        self.refused: set[str] = set()

    def save(self, state: FilePath | None, mean: np.ndarray, records: list[dict[str, object]]) -> None:
        if state is None:
            return
        text = json.dumps({"records": records, "refused": sorted(self.refused), "claim": self._claim()})
        content = io.BytesIO()
        learnt = self.pool.part(np.arange(POOL, len(self.pool)))
        note = np.frombuffer(text.encode(), np.uint8)
        np.savez_compressed(content, starts=learnt.starts, moves=learnt.moves, mean=mean, note=note)
        write_atomic(state, content.getvalue())

    def load(self, state: FilePath | None) -> tuple[np.ndarray, list[dict[str, object]]] | None:
        """Restore what ``save`` wrote; None if there is no file, or one of another claim or seed."""
        if state is None or not state.is_file():
            return None
        data, note = read_state(state)
        if note["claim"] != self._claim():
            return None
        shapes = [data[name].shape[1:] for name in ("starts", "moves")]
        if shapes != [self.pool.starts.shape[1:], self.pool.moves.shape[1:]] or len(data["starts"]) != len(data["moves"]):
            raise InputError(f"{state}: its traces have shapes {data['starts'].shape} and {data['moves'].shape}")
        self.pool = join([self.pool, Traces(data["starts"], data["moves"])])
        self.refused = set(note["refused"])
        return data["mean"], note["records"]

    def _claim(self) -> list[str]:
        return [self.key, str(self.seed), str(self.objective.n_paths), *(str(number) for number in self.numbers.as_tuple())]

    def judge(self, programs: Sequence[Program]) -> np.ndarray:
        """Return values minus penalties; -1 for a program that the solver refuted or could not decide."""
        values = self.objective.values(programs).copy()
        for i, program in enumerate(programs):
            if to_json(program) in self.refused:
                values[i] = -1.0
                continue
            # Most candidates fail on the learnt or the first traces; only the others are worth the whole pool.
            penalty = self._penalty(program, self.pool.part(np.r_[:QUICK, POOL : len(self.pool)]))
            values[i] -= penalty or self._penalty(program, self.pool)
        return values

    def _penalty(self, program: Program, traces: Traces) -> float:
        worst = violations(program, traces, self.searched).max(axis=0)
        return float(np.where(worst > 0, BROKEN_LEMMA + np.minimum(worst, LARGEST_PENALTY), 0.0).sum())

    def examine(self, program: Program, number: int) -> str:
        """Check a candidate and add its violations to the pool; return ``verified`` or the failed check."""
        broken = self._name_broken_lemmas(program, self.pool)
        if broken:
            return f"pool: {broken}"
        fresh = join([random_traces(FRESH, self.seed + 1000 + number), neighbours(self.pool, NEAR, self.seed + number)])
        broken = self._name_broken_lemmas(program, fresh)
        if broken:
            self._learn(program, fresh)
            return f"simulation: {broken}"
        return self._ask_solver(program, number)

    def _name_broken_lemmas(self, program: Program, traces: Traces) -> str:
        worst = violations(program, traces, self.searched).max(axis=0)
        return ", ".join(lemma for lemma, violation in zip(LEMMAS, worst, strict=True) if violation > 0)

    def _learn(self, program: Program, traces: Traces) -> None:
        broken = violations(program, traces, self.searched)
        for lemma in range(len(LEMMAS)):
            worst = np.argsort(-broken[:, lemma], kind="stable")[:KEPT]
            worst = worst[broken[worst, lemma] > 0]
            if len(worst):
                self.pool = join([self.pool, traces.part(worst)])

    def _ask_solver(self, program: Program, number: int) -> str:
        for name, queries in claim_queries(program, self.numbers):
            for query in queries:
                result = self.verifier.decide(query)
                if result.verdict != "verified":
                    self.refused.add(to_json(program))
                if result.view is None and result.verdict != "verified":
                    return f"solver: {query.name} not decided ({result.reason})"
                if result.view is not None:
                    counterexample = from_view(result.view, program)
                    self.pool = join([self.pool, counterexample])
                    self._learn(program, neighbours(counterexample, NEAR, self.seed + number))
                    return f"solver: {name}"
        return "verified"
