"""Check a certificate of fairness: derive every query anew, compare, decide each lemma in Fractions, if asked by a solver too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ccenv.proofs.certificates.fairness.derive import Derivation, Lemma
from ccenv.proofs.certificates.fairness.meaning import assumptions, statement
from ccenv.proofs.certificates.fairness.reading import FairCertificate
from ccenv.proofs.certificates.proofs import decide, version_of


@dataclass
class FairReport:
    """What a check found."""

    refusals: list[tuple[str, str]] = field(default_factory=list)  # lemma, or part of the certificate, with one line each
    queries: int = 0  # how many lemmas there are
    decided: int = 0  # of these, how many were shown here without a solver
    solver: str | None = None  # the second solver with its version; None: none was asked
    undecided: list[str] = field(default_factory=list)  # lemmas on which it gave out
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """``confirmed``, ``refused`` or ``undecided``."""
        return "refused" if self.refusals else "undecided" if self.undecided else "confirmed"

    def to_dict(self) -> dict[str, Any]:
        """Return it for --json."""
        return {
            "verdict": self.verdict,
            "queries": self.queries,
            "decided_exactly": self.decided,
            "solver": self.solver,
            "undecided": self.undecided,
            "refusals": [{"lemma": lemma, "text": text} for lemma, text in self.refusals],
            "trusted": trusted(self.solver),
            "seconds": round(self.seconds, 3),
        }


def trusted(solver: str | None) -> list[str]:
    """Return what a confirmation rests on."""
    rests = ["the proof by hand in docs/fairness.md, which this checker's queries are the lemmas of", "Python's exact numbers"]
    return [*rests, f"not needed, asked all the same: {solver}"] if solver else rests


def check_fair(
    certificate: FairCertificate,
    *,
    solver: str | None = None,
    limit_s: float = 300.0,
    progress: Callable[[str], None] = lambda line: None,
) -> FairReport:
    """Check a certificate of fairness.

    Args:
        certificate: as read.
        solver: ``yices`` or ``cvc5`` decides the checker's own queries too.
        limit_s: per query of the solver.
        progress: is told of each hundred queries of the solver.
    """
    begin, report = time.perf_counter(), FairReport()
    try:
        derived = Derivation(certificate)
        lemmas = list(derived.lemmas())
    except (ValueError, ZeroDivisionError) as error:
        report.refusals.append(("L3 tables", str(error)))
        return report
    report.queries = len(lemmas)
    _compare(certificate, lemmas, report)
    for lemma in lemmas:
        if lemma.holds():
            report.decided += 1
        else:
            report.refusals.append((lemma.name, "it does not hold with these numbers"))
    _check_words(certificate, derived, report)
    if solver is not None and not report.refusals:
        _solve(lemmas, solver, limit_s, progress, report)
    report.seconds = time.perf_counter() - begin
    return report


def _compare(certificate: FairCertificate, lemmas: list[Lemma], report: FairReport) -> None:
    """Refuse a query that is not the checker's own, one that is missing, and one too many."""
    queries_left = {query.lemma: query for query in certificate.queries}
    if len(queries_left) != len(certificate.queries):
        report.refusals.append(("queries", "a query stands twice"))
    for lemma in lemmas:
        query = queries_left.pop(lemma.name, None)
        if query is None:
            report.refusals.append((lemma.name, "the query is missing"))
        elif query.smtlib != lemma.text:
            report.refusals.append((lemma.name, "the query is not the one that the certificate's numbers mean"))
        elif query.answer != "unsat":
            report.refusals.append((lemma.name, f"the answer is {query.answer!r}, that of a proof is 'unsat'"))
    report.refusals += ((name, "it is no query of this theorem") for name in queries_left)


def _check_words(certificate: FairCertificate, derived: Derivation, report: FairReport) -> None:
    """Refuse bounds, sentence and assumptions that are not what the numbers mean."""
    design, bounds = certificate.design, certificate.bounds
    if bounds.utilisation != design.utilisation:
        report.refusals.append(("L3 load", f"the bound of the load is {bounds.utilisation}, proved is {design.utilisation}"))
    if derived.bounds["rtt_rtts"] < derived.H[-1] + derived.D:
        report.refusals.append(("L3 peak", f"the bound of the RTT is {bounds.rtt_rtts}, proved is H + D at the band's top"))
    if certificate.statement != statement(design, bounds):
        report.refusals.append(("statement", "the sentence is not what the numbers mean"))
    if certificate.assumptions != assumptions(design, bounds):
        report.refusals.append(("assumptions", "these are not all that the theorem takes for granted"))


def _solve(lemmas: list[Lemma], solver: str, limit_s: float, progress: Callable[[str], None], report: FairReport) -> None:
    report.solver = version_of(solver)
    for place, lemma in enumerate(lemmas, start=1):
        status = decide(lemma.text, solver, limit_s)
        if status == "sat":
            report.refusals.append((lemma.name, f"{solver} finds numbers that break it"))
        elif status != "unsat":
            report.undecided.append(lemma.name)
        if place % 100 == 0:
            progress(f"{place} of {len(lemmas)} queries")
