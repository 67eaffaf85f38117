"""The store of answers about contracts around a program, one query and one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.agents.programs import Program, to_data
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, hash_value
from ccenv.base.store import ResultFolder
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.solver.solvers import plain_value, read_value
from ccenv.training.contracts.boxes import Levels, directions, is_below, widen_program
from ccenv.training.contracts.obstacles import Obstacle, find_obstacle, obstacle_around

ANSWERS = "answers.jsonl"
RESULTS = ("contract.json", "lemmas.yaml", "result.json")
FORMAT = Format("ccenv-contract-answers", 2, "answers about contracts", older="--fresh discards them", indent=None)

Answer = Literal["proved", "refuted", "undecided"]
Ask = Callable[[Levels], Mapping[str, Query]]
"""Returns the queries of a contract by name."""


class AnswerStore(ResultFolder):
    """Stored answers about contracts; the context replays them.

    A contract inside a proved one is proved, and one around a refuted one is refuted, query by query. A refutation includes its
    counterexample, which rules out every contract that allows the same choices.

    Attributes:
        held, refuted: query -> levels.
        undecided: query -> levels -> the time limit at which the solver gave up.
        obstacles: one per refutation, in the order of the answers.
        seconds: solver time of each contract, summed over its queries.
        last_proof_s: time of the newest proof of each query.
    """

    def __init__(self, folder: FilePath, program: Program, question: dict[str, Any], ask: Ask, fresh: bool = False) -> None:
        self._head = {"about": hash_value({"program": to_data(program), **question})}
        super().__init__(folder, "a widening", ANSWERS, FORMAT, self._head, fresh=fresh, owns=RESULTS)
        self.program = program
        self.held: dict[str, list[Levels]] = {}
        self.refuted: dict[str, list[Levels]] = {}
        self.undecided: dict[str, dict[Levels, float]] = {}
        self.obstacles: list[Obstacle] = []
        self.seconds: dict[Levels, float] = {}
        self.last_proof_s: dict[str, float] = {}
        self._ask = cache(ask)

    def start(self) -> None:
        """Replay the stored answers. Raises InputError for one that is damaged."""
        if self.stored is None:
            self.write(self._head)
        self.rows = self.journal(ANSWERS, self._replay, "an answer about a contract")

    @property
    def answers(self) -> int:
        """Number of answers."""
        return len(self.rows.lines)

    @property
    def levels(self) -> set[Levels]:
        """The contracts about which some query was proved."""
        return {levels for proved in self.held.values() for levels in proved}

    def _replay(self, row: Any) -> bool:
        """Take over a stored answer; False if it is none. Raises InputError for one that fits no query, or does not replay."""
        levels: Any = row.get("levels") if isinstance(row, dict) else None
        ranges = [range(direction.most + 1) for direction in directions(self.program)]
        if not isinstance(levels, list) or len(levels) != len(ranges):
            return False
        if not all(type(level) is int and level in allowed for level, allowed in zip(levels, ranges, strict=True)):
            return False
        answer, limit_s, seconds = row.get("answer"), row.get("limit_s"), row.get("seconds")
        times_valid = all(type(number) in (int, float) and number >= 0 for number in (limit_s, seconds))
        if answer not in ("proved", "refuted", "undecided") or not times_valid:
            return False
        queries = self._ask(tuple(levels))
        if row.get("query") not in queries:
            raise InputError(f"{str(row.get('query'))[:60]!r} is none of the queries")
        try:
            values = {str(name): read_value(value) for name, value in dict(row.get("values", {})).items()}
            self._add(queries[row["query"]], tuple(levels), answer, limit_s, values, seconds)
        except (CcenvError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the counterexample does not replay ({error})") from None
        return True

    def _add(
        self, query: Query, levels: Levels, answer: Answer, limit_s: float, values: Mapping[str, Any], seconds: float
    ) -> None:
        self.seconds[levels] = self.seconds.get(levels, 0.0) + seconds
        if answer == "proved":
            self.held.setdefault(query.name, []).append(levels)
            self.last_proof_s[query.name] = seconds
        elif answer == "refuted":
            self.refuted.setdefault(query.name, []).append(levels)
            contract = widen_program(self.program, levels, query.sender.name)
            self.obstacles.append(find_obstacle(self.program, query, contract, values))
        else:
            limits = self.undecided.setdefault(query.name, {})
            limits[levels] = max(limit_s, limits.get(levels, 0.0))

    def answer(self, query: str, levels: Levels, limit_s: float) -> Answer | None:
        """Return the answer that the store implies for a query; None: the solver must be asked."""
        if any(is_below(levels, wider) for wider in self.held.get(query, ())):
            return "proved"
        if any(is_below(inner, levels) for inner in self.refuted.get(query, ())):
            return "refuted"
        gave_up = self.undecided.get(query, {})
        return "undecided" if any(is_below(u, levels) and s >= limit_s for u, s in gave_up.items()) else None

    def proved_itself(self, query: str, levels: Levels) -> bool:
        """Tell whether a query was proved for this very contract, not for one around it."""
        return levels in self.held.get(query, ())

    def too_slow(self, limit_s: float) -> list[Obstacle]:
        """Return obstacles half-way between contracts that the solver gave up on at a limit and the nearest proved ones inside.

        They are a heuristic for where to continue, and exclude no proved contract.
        """
        obstacles = []
        for query, limits in self.undecided.items():
            for levels in (levels for levels, s in limits.items() if s >= limit_s):
                inside = [tuple(map(min, levels, held)) for held in self.held.get(query, ())]
                nearest = max(inside, key=sum, default=(0,) * len(levels))
                half_way = tuple(-(-(a + b) // 2) for a, b in zip(nearest, levels, strict=True))
                obstacles.append(obstacle_around(self.program, half_way))
        return obstacles

    def store(
        self, query: Query, levels: Levels, answer: Answer, limit_s: float, values: Mapping[str, Any], seconds: float
    ) -> None:
        """Keep an answer, in memory and on disk."""
        self._add(query, levels, answer, limit_s, values, seconds)
        row: dict[str, Any] = {"query": query.name, "levels": list(levels), "answer": answer, "limit_s": limit_s}
        row["seconds"] = round(seconds, 3)
        if answer == "refuted":
            row["values"] = {name: plain_value(value) for name, value in values.items()}
        self.rows.append(row)
