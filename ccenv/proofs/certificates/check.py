"""Check a certificate: derive and compare every query, repeat the reasoning, and optionally decide with a second solver.

Everything is derived from the laws listed in docs/theorems.md, the theorem's data and the program; the checker shares only the
sentence (:mod:`ccenv.proofs.certificates.statement`) with the prover. ``KINDS`` lists the reasons for a refusal.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from ccenv.base.errors import InputError, cut
from ccenv.proofs.certificates import laws as beliefs
from ccenv.proofs.certificates import program as programs
from ccenv.proofs.certificates import proofs as second
from ccenv.proofs.certificates.canonical import Form, Reader, abbreviate, holds
from ccenv.proofs.certificates.claims import Read, on_trace, parts_of
from ccenv.proofs.certificates.claims import beliefs as beliefs_in
from ccenv.proofs.certificates.claims import features as features_in
from ccenv.proofs.certificates.compose import (
    Lemma,
    Reading,
    held_beliefs,
    obligations,
    possibilities,
    read_buffer,
    read_theorem,
    settling,
)
from ccenv.proofs.certificates.laws import Path
from ccenv.proofs.certificates.proofs import ProofChecker
from ccenv.proofs.certificates.reading import Certificate, QueryData
from ccenv.proofs.certificates.reason import Work, follows
from ccenv.proofs.certificates.statement import LAWS_VERSION, assumptions, figures, sentence, subject, times_to_converge
from ccenv.proofs.certificates.theorem import number

Decide = Callable[..., str]
"""(text, limit_s=...) -> the second solver's answer."""

Before: TypeAlias = "tuple[Fraction, Fraction] | None"
"""(a, b): at most a*C*Rm + b*MSS was sent in each step of the known past."""

KINDS = {
    "laws": "the certificate is about another version of the laws",
    "program": "the program cannot be read, or is not the one that the theorem names",
    "theorem": "the theorem's data cannot be read: unknown features, lemmas given in a circle, ...",
    "missing query": "a conclusion of a lemma has no query",
    "extra query": "a query belongs to no conclusion, or stands twice",
    "hash": "a query's text has another hash than the one that is written beside it",
    "answer": "an answer is not that of a proof",
    "meaning": "a query is not the lemma's: it assumes what laws, rules, program and premise do not say, or leaves something out",
    "witness": "no trace shows that the start, the invariant or a premise is possible: it breaks a law, a rule or what it shows",
    "composition": "the lemmas do not make the statement",
    "settling": "exceptions are said to come first, which does not follow",
    "statement": "the sentence is not the one that the data mean",
    "figures": "the figures are not those of the data",
    "assumptions": "the assumptions are not those of the data",
    "decided otherwise": "the second solver finds a trace that breaks a lemma",
}


class Refusal(NamedTuple):
    """Why a certificate is refused: one of ``KINDS``, the field of the certificate, and one line."""

    kind: str
    field: str
    text: str


@dataclass
class Report:
    """Result of a check."""

    # empty: the certificate holds if all of `trusted` does. What depends on a refused part is not checked
    refusals: list[Refusal] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    queries: int = 0  # number of queries derived and compared
    decided: dict[str, str] = field(default_factory=dict)  # query -> the second solver's answer, where it was asked
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """``refused``; ``undecided`` where the second solver reached its limit; else ``confirmed``."""
        if self.refusals:
            return "refused"
        return "undecided" if "unknown" in self.decided.values() else "confirmed"

    def refuse(self, kind: str, place: str, text: str) -> None:
        """Add a refusal."""
        self.refusals.append(Refusal(kind, place, text))

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "refusals": [refusal._asdict() for refusal in self.refusals],
            "trusted": self.trusted,
            "queries": self.queries,
            "decided_again": self.decided,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class DerivedQuery:
    """A query as the checker derives it: laws, rules, program and the lemma's premise, with the conclusion denied."""

    declarations: dict[str, str]
    facts: tuple[str, ...]
    denied: str

    def text(self, *more: str) -> str:
        """Return the SMT-LIB text of the facts and further assertions."""
        lines = [f"(declare-fun {name} () {sort})" for name, sort in sorted(self.declarations.items())]
        lines += [f"(assert {body})" for body in (*self.facts, *more)]
        return "\n".join(["(set-logic QF_LRA)", *lines, "(check-sat)"]) + "\n"


def check(
    certificate: Certificate,
    *,
    solver: str | None = None,
    proofs: ProofChecker | None = None,
    limit_s: float = 300.0,
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Check a certificate.

    Raises MissingExtraError if the solver is missing or too old.

    Args:
        certificate: as read.
        solver: ``yices`` or ``cvc5`` decides every derived query; None: the stored answers are trusted.
        proofs: decides every derived query with a checked proof; None: no proofs.
        limit_s: per query.
        progress: receives a line per decided query.
    """
    began, report = time.perf_counter(), Report()
    name = proofs.name if proofs else second.version_of(solver) if solver else ""
    decide = None if proofs is None else proofs.decide
    if solver is not None and decide is None:
        decide = partial(second.decide, solver=solver)
    stage = "program"
    try:
        program = programs.read_program(certificate.program, "program")
        programs.require_intervals(program)
        stage = "theorem"
        _check_theorem(certificate, program, report, decide, limit_s, progress)
    except InputError as error:
        place, _, text = str(error).partition(": ")
        report.refuse(stage, place, text)
    except RecursionError:
        report.refuse(stage, stage, "it nests too deep")
    report.trusted += _trusted(certificate, name)
    report.seconds = time.perf_counter() - began
    return report


def _check_theorem(
    certificate: Certificate,
    program: programs.Program,
    report: Report,
    decide: Decide | None,
    limit_s: float,
    progress: Callable[[str], None],
) -> None:
    """Check words and reasoning, then witnesses, then queries; each stage runs only if none before it refused."""
    if certificate.laws != LAWS_VERSION:
        report.refuse("laws", "laws", f"it is {certificate.laws}, this checker knows version {LAWS_VERSION} of the laws")
        return
    data, before = certificate.theorem.to_dict(), None
    if certificate.sent_before is not None:
        before = number(certificate.sent_before[0], {}, "sent_before"), number(certificate.sent_before[1], {}, "sent_before")
    if (data["past"] == "history") != (before is not None):
        report.refuse("assumptions", "sent_before", f"what was sent before does not go with the past {data['past']!r}")
    reading = read_theorem(data, before, program)
    _check_words(certificate, data, subject(program.name, program.is_shield), before, report)
    _check_reasoning(reading, program, certificate, report)
    if report.refusals:
        return
    reader = Reader()
    _check_witnesses(reading, program, before, certificate, reader, report)
    if report.refusals:
        return
    queries = _check_queries(reading, program, before, certificate, reader, report)
    if decide is None or report.refusals:
        return
    for name, query in queries.items():
        report.decided[name] = decide(query.text(query.denied), limit_s=limit_s)
        progress(f"{name}: {report.decided[name]}")
        if report.decided[name] == "sat":
            report.refuse("decided otherwise", f"queries.{name}", "the second solver finds a trace that breaks it")


def _trace(
    reading: Reading, program: programs.Program, before: Before, read: frozenset[str], timeout: str = "none"
) -> tuple[Path, dict[str, str], tuple[str, ...]]:
    """Return the path, the names with their sorts, and the assertions of a trace that holds the beliefs ``read``."""
    first = (reading.jitter + 1,) if "C_L_lambda" in read else ()
    data = reading.data
    path = Path(data["model"], read_buffer(data), data["T"], before, program.delays(reading.jitter), first)
    names = path.declarations() | beliefs.declarations(path, read, timeout) | programs.declarations(program, path)
    return path, names, (*path.laws(), *beliefs.rules(path, read, timeout, program.window), *programs.sends(program, path))


def derive_query(reading: Reading, lemma: Lemma, conclusion: Read, program: programs.Program, before: Before) -> DerivedQuery:
    """Derive a query with the beliefs that program, conclusion, granted lemmas and compound parts of the premise read.

    Comparisons of the premise with other beliefs are left out, which makes the claim stronger. C_L and C_U time out at the end of
    a trace if the theorem says so and the conclusion reads one of them there.
    """
    pieces = list(parts_of(lemma.premise))
    read = program.bounds() | beliefs_in(conclusion)
    for piece in (*(piece for piece in pieces if piece[0] != "cmp"), *lemma.granted):
        read |= beliefs_in(piece)
    timeout = reading.data["timeouts"] if features_in(conclusion) & {"C_L'", "C_U'"} else "none"
    timed = timeout != "none"
    if timed:
        read |= {"C_L", "C_U"}
    if "q_U" in read:
        read |= {"C_L_lambda"}
    path, names, facts = _trace(reading, program, before, read, timeout)
    assumed = [piece for piece in (*pieces, *lemma.granted) if beliefs_in(piece) <= read]
    facts = (*facts, *(on_trace(piece, path, timed=timed) for piece in assumed))
    return DerivedQuery(names, facts, f"(not {on_trace(conclusion, path, timed=timed)})")


def _check_words(certificate: Certificate, data: dict[str, Any], who: str, before: Before, report: Report) -> None:
    derived_sentence = sentence(data, who, certificate.settles)
    if certificate.statement != derived_sentence:
        report.refuse("statement", "statement", f"the sentence is not what the data mean, which is: {derived_sentence}")
    for field_name, refusal, derived in (
        ("figures", "figures", figures(data)),
        ("converges", "figures", times_to_converge(data, certificate.settles)),
        ("assumptions", "assumptions", assumptions(data, before)),
    ):
        if getattr(certificate, field_name) != derived:
            report.refuse(refusal, field_name, f"not what the data mean, which is: {derived}")


def _check_reasoning(reading: Reading, program: programs.Program, certificate: Certificate, report: Report) -> None:
    steps = {name: (facts, goal) for name, facts, goal in obligations(reading, program.bounds())}
    names = [step.name for step in certificate.composition]
    for name in sorted({*steps, *names}):
        if (count := names.count(name)) != (name in steps):
            text = "a step is missing" if name in steps and not count else "it is no step of this theorem, or stands twice"
            report.refuse("composition", f"composition.{name}", text)
    for step in certificate.composition:
        if step.answer != "unsat":
            report.refuse("answer", f"composition.{step.name}", f"the answer is {step.answer!r}, that of a proof is 'unsat'")
    work = Work()
    for name, (facts, goal) in steps.items():
        if not follows(facts, goal, work):
            report.refuse("composition", f"composition.{name}", "this does not follow from the lemmas")
    ranked = {name for name, claim in reading.data["claims"].items() if claim["rank"]}
    for name in sorted(certificate.settles.keys() ^ ranked):
        text = f"whether exceptions come first is {'not told' if name in ranked else 'told, of none'}"
        report.refuse("settling", f"settles.{name}", text)
    for name in sorted(ranked & certificate.settles.keys()):
        if certificate.settles[name] and not follows(*settling(reading, name), work):
            report.refuse("settling", f"settles.{name}", "nothing makes a rank move while it is not at its end")


def _check_witnesses(
    reading: Reading, program: programs.Program, before: Before, certificate: Certificate, reader: Reader, report: Report
) -> None:
    """Evaluate the witness traces, which show that start, invariant and premises are possible, in exact numbers."""
    path, names, facts = _trace(reading, program, before, held_beliefs(reading, program.bounds()))
    laws, required, shown_by = (
        reader.assertions(DerivedQuery(names, facts, "").text(), "witnesses"),
        dict(possibilities(reading)),
        set[str](),
    )
    for place, witness in enumerate(certificate.witnesses):
        where, values, done = f"witnesses.{place}", _values(witness.values), dict[Form, Any]()
        if values is None or not values.keys() <= names.keys():
            report.refuse("witness", f"{where}.values", "a value is no number, or of a name that no trace has")
            continue
        forms = list(laws)
        for name in witness.shows:
            if name not in required or name in shown_by:
                report.refuse("witness", f"{where}.shows", f"{name!r} is not to be shown, or shown twice")
                continue
            shown_by.add(name)
            forms += reader.assertions(
                DerivedQuery(names, (), "").text(*(on_trace(part, path, timed=False) for part in required[name])),
                f"theorem.{name}",
            )
        broken = [form for form in forms if not holds(form, values, done)]
        if broken:
            first = cut(abbreviate(broken[0]), 160)
            text = f"the trace that shows {', '.join(witness.shows)} breaks {first} ({len(broken)} such)"
            report.refuse("witness", f"{where}.values", text)
    for name in sorted(required.keys() - shown_by):
        report.refuse("witness", f"theorem.{name}", "no trace shows that it is possible: the theorem may be about nothing")


def _check_queries(
    reading: Reading, program: programs.Program, before: Before, certificate: Certificate, reader: Reader, report: Report
) -> dict[str, DerivedQuery]:
    """Compare every query with the derived one; return the derived ones by name."""
    unmatched: dict[tuple[str, int], QueryData] = {}
    for query in certificate.queries:
        key = (query.lemma, query.part)
        if key in unmatched:
            report.refuse("extra query", f"queries.{_name(*key)}", "it stands twice")
        unmatched[key] = query
    queries: dict[str, DerivedQuery] = {}
    for lemma in reading.lemmas:
        for part, conclusion in enumerate(lemma.conclusions, start=1):
            name, query_data = _name(lemma.name, part), unmatched.pop((lemma.name, part), None)
            if query_data is None:
                report.refuse("missing query", f"queries.{name}", "a conclusion of the lemma has no query")
                continue
            queries[name] = derive_query(reading, lemma, conclusion, program, before)
            report.queries += 1
            _compare(f"queries.{name}", queries[name], query_data, reader, report)
    for key in unmatched:
        report.refuse("extra query", f"queries.{_name(*key)}", "it belongs to no conclusion of a lemma")
    return queries


def _compare(name: str, derived: DerivedQuery, query: QueryData, reader: Reader, report: Report) -> None:
    """Refuse a query that does not assert the same as the derived one: only then does its answer apply to ours."""
    if hashlib.sha256(query.smtlib.encode()).hexdigest() != query.sha256:
        report.refuse("hash", f"{name}.sha256", f"the text has another hash than {query.sha256[:12]}...")
    if query.answer != "unsat":
        report.refuse("answer", f"{name}.answer", f"the answer is {query.answer!r}, that of a proof is 'unsat'")
    meant = {id(form): form for form in _flat(reader.assertions(derived.text(derived.denied), name))}
    try:
        said = {id(form): form for form in _flat(reader.assertions(query.smtlib, name))}
    except InputError as error:
        report.refuse("meaning", f"{name}.smtlib", str(error))
        return
    for these, those, what in ((said, meant, "assumes what nothing says"), (meant, said, "leaves out what it is about")):
        if strange := [form for key, form in these.items() if key not in those]:
            first = cut(abbreviate(strange[0]), 160)
            report.refuse("meaning", f"{name}.smtlib", f"the query {what}: {first} ({len(strange)} such)")


def _flat(forms: list[Form]) -> Iterator[Form]:
    for form in forms:
        if form[0] == "and":
            yield from form[1]
        elif form[0] != "true":
            yield form


def _values(witness: dict[str, str | bool]) -> dict[str, Fraction | bool] | None:
    exact: dict[str, Fraction | bool] = {}
    for name, value in witness.items():
        if isinstance(value, bool):
            exact[name] = value
        elif re.fullmatch(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,4000})?", value, re.ASCII):
            exact[name] = Fraction(value)
        else:
            return None
    return exact


def _name(lemma: str, part: int) -> str:
    return f"{lemma} ({part})"


def _trusted(certificate: Certificate, solver: str) -> list[str]:
    trusted = [
        "the list of laws in docs/theorems.md describes the network, and this checker writes it out",
        "Python's exact numbers",
    ]
    trusted.append("the program in the certificate is the one that you mean")
    if solver:
        return [*trusted, f"{solver}: that the checker's own queries have no trace"]
    solvers = sorted({query.solver for query in certificate.queries})
    return [
        *trusted,
        f"{' and '.join(solvers)}: that the queries have no trace (--solve decides the checker's own queries again)",
    ]
