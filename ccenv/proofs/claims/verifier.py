"""Decide queries: three-valued verdicts, with a satisfiable twin for every proof and an exact replay for every counterexample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from ccenv.base.workers import Result as Pending
from ccenv.base.workers import Workers
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.formulas.encode import BOUNDS, Encoding, Needs, SmtSender, encode
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError, replay
from ccenv.proofs.solver.solvers import Answer, Store, query_hash, solve, to_smtlib, version_of
from ccenv.proofs.solver.terms import Formula, same_truth

Verdict = Literal["verified", "refuted", "unknown"]

READABLE_BDP = 100
"""For a counterexample with more bytes sent (in C*Rm) a smaller one is requested."""

READABLE_LIMIT_S = 10.0

STEP_FAILS = "step fails"
"""Reason for a trace that violates a step of an argument about a sender's runs, which says nothing about a run."""

MOST_CUBES = 6
"""Largest number of booleans that a query is split by: 2^6 cubes."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a run, as plain data for other processes.

    Attributes:
        time_limit_s: per solver call.
        recheck: second solver that decides every proof again, or None.
        reuse: whether stored answers count.
        folder: for traces.
        cubes: split each query into 2^cubes.
    """

    time_limit_s: float = 600.0
    seed: int = 0
    recheck: str | None = None
    reuse: bool = True
    folder: str = "runs/verify"
    cubes: int = 0

    def verifier(self, workers: Workers | None = None, **changes: Any) -> Verifier:
        """Return a verifier with these limits, but for some changes."""
        names = ("time_limit_s", "seed", "recheck", "reuse", "cubes")
        limits = {name: getattr(self, name) for name in names} | changes
        return Verifier(**limits, store=Store(), workers=workers or Workers())


@dataclass(frozen=True)
class Query:
    """One question: can flows of this sender on this network violate this property?

    ``bounds`` is ``full``, or ``constant`` for claims about traces on which no bound moves.
    """

    name: str
    setting: Setting
    sender: SmtSender
    claim: Property
    bounds: Literal["full", "constant"] = "full"
    flows: int = 1

    def encoding(self) -> Encoding:
        """Return the network and the sender as formulas, without the property."""
        return encode(self.setting, self.sender, self.claim.needs, bounds=self.bounds, flows=self.flows)


@dataclass
class Result:
    """A verdict with its evidence.

    Attributes:
        name: of the query.
        verdict: ``verified`` (no trace of the model violates the property), ``refuted`` (``view`` breaks the claim, replayed
            exactly) or ``unknown`` (see reason; where a step of an argument fails, ``view`` is the trace at which it does).
        seconds: solver time, the twin included.
        reason: for ``unknown``.
        sanity: the twin without the property, which must be satisfiable, or the claim would hold vacuously.
        evidence: hashes, files, solver versions, limits.
        recheck: the second solver's answer, if any.
        view: the counterexample to the query in exact numbers.
        values: the solver's model of it, every declared variable.
    """

    name: str
    verdict: Verdict
    seconds: float
    reason: str = ""
    sanity: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    recheck: dict[str, Any] | None = None
    view: View | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Verifier:
    """Decides queries with one set of limits."""

    time_limit_s: float = 600.0  # per solver call
    seed: int = 0
    recheck: str | None = None  # None, `yices` or `cvc5`: decides every proof a second time
    store: Store | None = None  # of evidence, or None
    reuse: bool = True  # whether stored answers count
    progress: Callable[[str], None] | None = None  # receives one line per solver call
    # run the queries given to :meth:`start`, and the cubes of a query, in parallel. Answers are read in a fixed order, so that
    # verdicts and counterexamples do not depend on timing
    workers: Workers = field(default_factory=Workers)
    cubes: int = 0  # split each query into 2^cubes by the sender's delay observations; 0: not at all
    twins: bool = True  # check that each verified query has traces without the property; False: the caller knows
    _running: dict[str, Pending] = field(default_factory=dict, repr=False)

    def start(self, queries: Iterable[Query]) -> None:
        """Start the queries on the workers, for which :meth:`decide` then waits. Does nothing without parallel workers."""
        if not self.workers.parallel:
            return
        for query in queries:
            encoding = query.encoding()
            formulas = _add_formulas(encoding, [query.claim.violation(encoding.view)])
            text = to_smtlib(formulas)
            if self._load(text, "z3") is None:
                self._submit(self._cubes(encoding, formulas) or [text])

    def stop(self) -> None:
        """Stop queries that were started and not decided."""
        self.workers.drop()
        self._running.clear()

    def decide(self, query: Query) -> Result:
        """Decide a query. Raises ReplayError if the exact replayer does not reproduce a counterexample (a bug, not a verdict)."""
        encoding = query.encoding()
        violation = query.claim.violation(encoding.view)
        about = {"name": query.name, "claim": query.claim.text, "sender": query.sender.name, "setting": query.setting.to_dict()}
        answer, text = self._ask(encoding, [violation], about)
        evidence = self._evidence(answer, text)
        if answer.status == "unknown":
            return Result(query.name, "unknown", answer.seconds, answer.reason, evidence=evidence)
        if answer.status == "sat":
            answer, view = self._shrink(query, encoding, violation, answer)
            # A satisfiable query stays satisfiable without the violated property: it is its own sane twin.
            result = Result(query.name, "refuted", answer.seconds, sanity={"satisfiable": True}, evidence=evidence, view=view)
            if query.claim.repeated is not None and not query.claim.repeats:
                result.verdict, result.reason = "unknown", STEP_FAILS
            result.values = complete_values(encoding, answer)
            return result
        if not self.twins:
            return Result(query.name, "verified", answer.seconds, evidence=evidence)
        return self._proof(query, encoding, answer, text, evidence, about)

    def _shrink(self, query: Query, encoding: Encoding, violation: Formula, answer: Answer) -> tuple[Answer, View]:
        """Return a counterexample with a moderate queue if there is one, else the given one."""
        view = confirm(query, encoding, answer)
        if view.E[-1] + view.lost_until(view.last) <= READABLE_BDP:
            return answer, view
        terms = encoding.view
        small = [violation, terms.E[terms.last] + terms.lost_until(terms.last) <= READABLE_BDP]
        again = solve(to_smtlib(encoding.formulas() + small), "z3", min(self.time_limit_s, READABLE_LIMIT_S), self.seed)
        if again.status != "sat":
            return answer, view
        return replace(again, seconds=answer.seconds), confirm(query, encoding, again)

    def _proof(
        self, query: Query, encoding: Encoding, answer: Answer, text: str, evidence: dict[str, Any], about: dict[str, Any]
    ) -> Result:
        twin, twin_text = self._ask(encoding, [query.claim.premise(encoding.view)], about | {"twin": True})
        sanity: dict[str, Any] = {
            "satisfiable": {"sat": True, "unsat": False}.get(twin.status),
            "seconds": round(twin.seconds, 3),
        }
        sanity |= {"sha256": query_hash(twin_text)}
        seconds = answer.seconds + twin.seconds
        if twin.status == "sat":
            # The twin's trace must be a real one too.
            replay_exactly(query, encoding, twin)
        else:
            reason = "the model without the property is not satisfiable: the claim would hold of nothing"
            if twin.status == "unknown":
                reason = f"the satisfiable twin was not decided: {twin.reason}"
            return Result(query.name, "unknown", seconds, reason, sanity, evidence)
        result = Result(query.name, "verified", seconds, sanity=sanity, evidence=evidence)
        if self.recheck is not None:
            self._recheck(result, text)
        return result

    def _recheck(self, result: Result, text: str) -> None:
        second = self._solve_stored(text, str(self.recheck), {"name": result.name, "recheck": True})
        result.recheck = {"solver": second.solver, "status": second.status, "seconds": round(second.seconds, 3)}
        result.seconds += second.seconds
        if second.status == "sat":
            result.verdict, result.reason = "unknown", f"{second.solver} disagrees: it finds the query satisfiable"
        elif second.status == "unknown":
            result.recheck["reason"] = second.reason

    def _ask(self, encoding: Encoding, extra: list[Formula], about: dict[str, Any]) -> tuple[Answer, str]:
        formulas = _add_formulas(encoding, extra)
        text = to_smtlib(formulas)
        texts = [] if about.get("twin") else self._cubes(encoding, formulas)
        if not texts:
            return self._solve_stored(text, "z3", about), text
        answer = self._load(text, "z3")
        if answer is None:
            self._submit(texts)
            answer = self._solve_cubes(texts, about)
            self._save(text, answer, about | {"cubes": len(texts)})
        return answer, text

    def _cubes(self, encoding: Encoding, formulas: list[Formula]) -> list[str]:
        """Return one text per combination of truth values of delays that the query reads; none if it is not split."""
        flags = [sample[min(sample)] for sample in encoding.view.late[1:] if sample][: self.cubes]
        if not flags:
            return []
        signs = product([True, False], repeat=len(flags))
        return [to_smtlib([*formulas, *(same_truth(f, sign) for f, sign in zip(flags, row, strict=True))]) for row in signs]

    def _solve_cubes(self, texts: Sequence[str], about: dict[str, Any]) -> Answer:
        """Return the answer of all cubes together: the first satisfiable one, else unknown if any is."""
        answers: list[Answer] = []
        for number, text in enumerate(texts, start=1):
            answers.append(self._solve_stored(text, "z3", about | {"cube": f"{number} of {len(texts)}"}))
            if answers[-1].status == "sat":
                break
        decisive = max(answers, key=lambda answer: ("unsat", "unknown", "sat").index(answer.status))
        return replace(decisive, seconds=sum(answer.seconds for answer in answers))

    def _submit(self, texts: Iterable[str]) -> None:
        for text in texts:
            if text not in self._running and self._load(text, "z3") is None:
                self._running[text] = self.workers.submit(solve, text, "z3", self.time_limit_s, self.seed)

    def _load(self, text: str, solver: str) -> Answer | None:
        return self.store.load(text, version_of(solver)) if self.store is not None and self.reuse else None

    def _save(self, text: str, answer: Answer, about: dict[str, Any]) -> None:
        if self.store is not None:
            self.store.save(text, answer, about)

    def _solve_stored(self, text: str, solver: str, about: dict[str, Any]) -> Answer:
        stored = self._load(text, solver)
        if stored is not None:
            return stored
        pending = self._running.pop(text, None) if solver == "z3" else None
        answer = solve(text, solver, self.time_limit_s, self.seed) if pending is None else pending()
        if self.progress is not None:
            cube = f", cube {about['cube']}" if "cube" in about else ""
            self.progress(f"{about['name']}{cube}: {answer.status} in {answer.seconds:.1f} s ({answer.solver})")
        self._save(text, answer, about)
        return answer

    def _evidence(self, answer: Answer, text: str) -> dict[str, Any]:
        evidence = {"sha256": query_hash(text), "solver": answer.solver, "time_limit_s": self.time_limit_s, "seed": self.seed}
        if self.store is not None:
            evidence["file"] = str(self.store.query_file(text))
        return evidence


def _add_formulas(encoding: Encoding, extra: list[Formula]) -> list[Formula]:
    """Return the encoding's formulas and ``extra``, without trivially true ones."""
    formulas = encoding.formulas() + [formula for formula in extra if formula is not True]
    if any(formula is False for formula in formulas):
        import z3

        formulas = [z3.BoolVal(formula) if isinstance(formula, bool) else formula for formula in formulas]
    return formulas


def confirm(query: Query, encoding: Encoding, answer: Answer) -> View:
    """Replay a counterexample exactly, check that it violates the property, and return it in exact numbers.

    Raises ReplayError if the replay disagrees with the solver, or the replayed trace does not violate the property.
    """
    view = replay_exactly(query, encoding, answer)
    if query.claim.violation(view) is not True:
        raise ReplayError(f"{query.name}: the replayed counterexample does not violate the property")
    return view


def replay_exactly(query: Query, encoding: Encoding, answer: Answer) -> View:
    """Return a solver's trace in exact numbers. Raises ReplayError if it breaks a law or the sender's rule."""
    values = complete_values(encoding, answer)
    bounds = frozenset(name for name in BOUNDS if getattr(encoding.view.each[0], name) is not None)
    needs: Needs = query.sender.needs(query.setting) | query.claim.needs
    return replay(query.setting, values, bounds, needs.probe_window, query.sender.decider(), query.flows)


def complete_values(encoding: Encoding, answer: Answer) -> dict[str, Any]:
    """Return a value for every declared variable, 0 or false if the solver left it open."""
    import z3

    values = {name: (False if z3.is_bool(term) else 0) for name, term in encoding.variables.all.items()}
    return values | answer.model
