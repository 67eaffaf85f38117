"""Decide a theorem, lemma by lemma and implication by implication, each answer with its evidence, and write its certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.programs import to_data
from ccenv.base.errors import CcenvError
from ccenv.base.files import make_folder
from ccenv.base.provenance import VERSION
from ccenv.network.laws import check_trace
from ccenv.proofs.certificates.reading import FORMAT
from ccenv.proofs.certificates.statement import LAWS_VERSION, assumptions, figures, sentence, subject, times_to_converge
from ccenv.proofs.claims.verifier import Verdict, confirm, replay_exactly
from ccenv.proofs.formulas.encode import Encoding
from ccenv.proofs.formulas.view import View, as_trace
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.solver.solvers import Answer, Store, query_hash, solve, to_smtlib, version_of
from ccenv.proofs.solver.terms import Formula
from ccenv.proofs.theorems.compose import (
    Implication,
    LemmaQuery,
    implications,
    lemma_queries,
    list_features,
    possibilities,
    settling,
)
from ccenv.proofs.theorems.language import Joined, on_states
from ccenv.proofs.theorems.lasso import lasso
from ccenv.proofs.theorems.theorem import LoadedTheorem

_VERDICTS: dict[str, Verdict] = {"unsat": "verified", "sat": "refuted"}


@dataclass
class Decided:
    """The answer to one query of a lemma."""

    lemma: str
    part: int
    verdict: Verdict
    text: str
    answer: Answer
    twin: str = ""  # SMT-LIB of the query without the conclusion, which must be satisfiable
    twin_answer: Answer | None = None
    reason: str = ""  # for `unknown`
    view: View | None = None  # the counterexample in exact numbers, for `refuted`; `views`: all traces of a lasso
    views: tuple[View, ...] = ()
    every_k: bool = False  # whether it is proved of every grid with this D

    @property
    def sha256(self) -> str | None:
        """Hash of the query's text, or None if none was asked."""
        return query_hash(self.text) if self.text else None


@dataclass
class Step:
    """The answer to one implication; ``witness`` has the values of features at which the facts hold and the goal does not."""

    name: str
    verdict: Verdict
    text: str
    answer: Answer
    witness: dict[str, str] = field(default_factory=dict)


@dataclass
class Shown:
    """Whether an assumption is satisfiable, so that the theorem is not vacuous."""

    names: list[str]  # of what the trace satisfies, or of the one assumption without a trace
    verdict: Verdict  # `verified` with a trace, `refuted` if there is none, or `unknown`
    answer: Answer
    view: View | None = None  # the trace in exact numbers


@dataclass
class Proof:
    """All decisions on a theorem."""

    loaded: LoadedTheorem
    lemmas: list[Decided]
    steps: list[Step]
    settles: dict[str, Step]  # claim -> whether its ranks reach their ends within a known time, and not only eventually
    possible: list[Shown] = field(default_factory=list)  # traces of the start, the invariant and the premises
    # of a theorem that was not proved, per claim: whether a trace that returns to its state breaks it
    lassos: list[Decided] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """``verified`` if every lemma and implication is; ``refuted`` if a lasso breaks a claim; else ``unknown``.

        A lemma that fails refutes no theorem.
        """
        if any(one.verdict == "refuted" for one in self.lassos):
            return "refuted"
        parts = [
            *(one.verdict for one in self.lemmas),
            *(one.verdict for one in self.steps),
            *(one.verdict for one in self.possible),
        ]
        return "verified" if all(verdict == "verified" for verdict in parts) else "unknown"

    @property
    def settled(self) -> dict[str, bool]:
        """Whether the exceptions of each claim with ranks come first."""
        return {name: step.verdict == "verified" for name, step in self.settles.items()}

    @property
    def seconds(self) -> float:
        """Solver time."""
        answers = [one.answer for one in (*self.lemmas, *self.lassos)]
        answers += [one.answer for one in (*self.steps, *self.settles.values())] + [one.answer for one in self.possible]
        answers += [one.twin_answer for one in self.lemmas if one.twin_answer is not None]
        return sum(answer.seconds for answer in answers)


@dataclass(frozen=True)
class Prover:
    """Decides queries with one set of limits."""

    time_limit_s: float = 120.0  # per solver call; z3 first, then yices if z3 reaches its limit
    store: Store | None = None  # of answers, or None
    reuse: bool = True  # whether stored answers count
    seed: int = 0  # of z3
    progress: Callable[[str], None] = lambda line: None  # receives a line per answer

    def prove(self, loaded: LoadedTheorem) -> Proof:
        """Decide a theorem. Raises ReplayError if the exact replayer does not reproduce a solver's trace (a bug, no verdict)."""
        possible = self.show(loaded)
        steps = [self.imply(step) for step in implications(loaded)]
        lemmas: list[Decided] = []
        if all(verdict == "verified" for verdict in [one.verdict for one in possible] + [step.verdict for step in steps]):
            for asked in lemma_queries(loaded):
                lemmas.append(self.decide(asked, twin=False))  # a trace shows that its premise is possible
                if lemmas[-1].verdict != "verified":
                    break
        settles = {claim.name: self.imply(settling(loaded, claim)) for claim in loaded.claims if claim.ranks}
        proof = Proof(loaded, lemmas, steps, settles, possible)
        if proof.verdict != "verified":
            proof.lassos = list(self.lassos(loaded))
        return proof

    def lassos(self, loaded: LoadedTheorem, periods: int = 1) -> Iterator[Decided]:
        """Look for lassos, claim by claim: ``refuted`` with the traces to repeat, ``verified`` if there are none.

        The absence of lassos of some length does not prove the claim.
        """
        for claim in loaded.claims:
            question = lasso(loaded, claim, periods)
            text = question.text()
            answer = self.ask(text, "z3", question.name)
            views = tuple(question.confirm(answer)) if answer.status == "sat" else ()
            verdict = _VERDICTS.get(answer.status, "unknown")
            yield Decided(claim.name, 1, verdict, text, answer, reason=answer.reason, view=next(iter(views), None), views=views)

    def imply(self, step: Implication) -> Step:
        import z3

        nodes = (*step.facts, Joined("not", (step.goal,)))
        variables = {one: z3.Real(one) for one in list_features(nodes)}
        formulas = [on_states(node, variables.__getitem__) for node in nodes]
        text = to_smtlib([z3.BoolVal(f) if isinstance(f, bool) else f for f in formulas if f is not True])
        answer = self.ask(text, "z3", step.name)
        witness = {one: str(answer.model.get(one, 0)) for one in variables} if answer.status == "sat" else {}
        return Step(step.name, _VERDICTS.get(answer.status, "unknown"), text, answer, witness)

    def show(self, loaded: LoadedTheorem) -> list[Shown]:
        """Find traces that satisfy start, invariant and premises; one often satisfies several.

        Raises ReplayError if the replayer or the checker of traces does not accept a solver's trace (a bug, not a verdict).
        """
        witnesses: list[Shown] = []
        for name, query in possibilities(loaded):
            first = next((one for one in witnesses if one.view is not None and query.claim.premise(one.view) is True), None)
            if first is not None:
                first.names.append(name)
                continue
            encoding = query.encoding()
            answer = self.ask(encoding.smtlib(*to_terms(query.claim.premise(encoding.view))), "z3", f"{name} is possible")
            view = replay_exactly(query, encoding, answer) if answer.status == "sat" else None
            if view is not None and (broken := check_trace(as_trace(view, loaded.program.name))):
                raise ReplayError(f"{name}: {broken[0].message}")
            verdict: Verdict = "verified" if view else "refuted" if answer.status == "unsat" else "unknown"
            witnesses.append(Shown([name], verdict, answer, view))
        return witnesses

    def decide(self, asked: LemmaQuery, *, twin: bool = True) -> Decided:
        """Decide a query of a lemma: a proof with its satisfiable twin, or a counterexample in exact numbers."""
        query = asked.query
        encoding = query.encoding()
        violation = query.claim.violation(encoding.view)
        text = encoding.smtlib(*to_terms(violation))
        answer = self.ask(text, "z3", query.name)
        if answer.status == "unknown":
            second = self.ask(text, "yices", query.name)
            if second.status != "unsat":
                return Decided(asked.lemma, asked.part, "unknown", text, answer, reason=answer.reason)
            answer = second
        if answer.status == "sat":
            return Decided(asked.lemma, asked.part, "refuted", text, answer, view=confirm(query, encoding, answer))
        if not twin:
            return Decided(asked.lemma, asked.part, "verified", text, answer)
        twin_text = encoding.smtlib(*to_terms(query.claim.premise(encoding.view)))
        twin_answer = self.ask(twin_text, "z3", f"{query.name}, satisfiable twin")
        if twin_answer.status != "sat":
            reason = "the network with the premise alone is not satisfiable: the lemma would hold of nothing"
            if twin_answer.status == "unknown":
                reason = f"the satisfiable twin was not decided: {twin_answer.reason}"
            return Decided(asked.lemma, asked.part, "unknown", text, answer, twin_text, twin_answer, reason)
        replay_exactly(query, encoding, twin_answer)
        return Decided(asked.lemma, asked.part, "verified", text, answer, twin_text, twin_answer)

    def search(self, asked: LemmaQuery, hint: Callable[[Encoding], Sequence[Formula]], limit_s: float) -> Decided | None:
        """Return a counterexample among the traces that a hint allows; None if there is none, or none was found in time."""
        encoding = asked.query.encoding()
        violation = to_terms(asked.query.claim.violation(encoding.view))
        name = f"{asked.query.name}, from a hint"
        answer = replace(self, time_limit_s=min(limit_s, self.time_limit_s)).ask(
            encoding.smtlib(*violation, *hint(encoding)), "z3", name
        )
        if answer.status != "sat":
            return None
        view = confirm(asked.query, encoding, answer)
        return Decided(asked.lemma, asked.part, "refuted", encoding.smtlib(*violation), answer, view=view)

    def ask(self, text: str, solver: str, name: str) -> Answer:
        stored = self.store.load(text, version_of(solver)) if self.store is not None and self.reuse else None
        if stored is not None:
            return stored
        answer = solve(text, solver, self.time_limit_s, self.seed)
        if self.store is not None:
            self.store.save(text, answer, {"name": name})
        self.progress(f"{name}: {answer.status} in {answer.seconds:.1f} s ({answer.solver})")
        return answer


def to_terms(formula: Formula) -> list[Formula]:
    """Return a formula as solver terms, none if it is trivially true."""
    import z3

    return [] if formula is True else [z3.BoolVal(False)] if formula is False else [formula]


def build_certificate(proof: Proof) -> dict[str, Any]:
    """Return the certificate of a proof without format and version. Raises CcenvError if the theorem was not proved."""
    if proof.verdict != "verified":
        raise CcenvError(f"{proof.loaded.theorem.name}: only a proved theorem has a certificate")
    loaded = proof.loaded
    data, settles, limit = loaded.theorem.to_dict(), proof.settled, loaded.setting.sent_before_at_most
    queries = [
        {
            "lemma": one.lemma,
            "part": one.part,
            "sha256": one.sha256,
            "smtlib": one.text,
            "answer": one.answer.status,
            "solver": one.answer.solver,
            "seconds": round(one.answer.seconds, 3),
        }
        for one in proof.lemmas
    ]
    return {
        "laws": LAWS_VERSION,
        "theorem": data,
        "program": to_data(loaded.program),
        "sent_before": None if limit is None else [str(limit[0]), str(limit[1])],
        "statement": sentence(data, subject(loaded.program.name, loaded.program.is_shield), settles),
        "figures": figures(data),
        "assumptions": assumptions(data, limit),
        "converges": times_to_converge(data, settles),
        "settles": settles,
        "queries": queries,
        "composition": [{"name": step.name, "answer": step.answer.status} for step in proof.steps],
        "witnesses": [{"shows": one.names, "values": _plain_values(one.answer.model)} for one in proof.possible],
        "made_with": {"ccenv": VERSION},
    }


def write_certificate(proof: Proof, folder: FilePath) -> FilePath:
    """Write ``NAME.certificate.json``. Raises CcenvError if the theorem was not proved, or the folder cannot be written."""
    make_folder(folder)
    file = folder / f"{proof.loaded.theorem.name}.certificate.json"
    FORMAT.write(file, build_certificate(proof))
    return file


def _plain_values(model: Mapping[str, Any]) -> dict[str, str | bool]:
    return {name: str(value) if isinstance(value, Fraction) else value for name, value in sorted(model.items())}
