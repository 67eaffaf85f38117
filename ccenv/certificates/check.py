"""Check a certificate: derive every query anew, compare, reason anew, and, if asked, decide anew with a second solver.

A refusal has a kind (``KINDS``) and one line. What is derived here comes from the list of laws in docs/theorems.md, the theorem's
data and the program alone; nothing is shared with the prover but the sentence (:mod:`ccenv.certificates.statement`).
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any

from ccenv.certificates import beliefs, second
from ccenv.certificates import program as programs
from ccenv.certificates.canonical import Form, Reader, holds, told
from ccenv.certificates.claims import Read, on_trace, parts_of
from ccenv.certificates.claims import beliefs as beliefs_in
from ccenv.certificates.claims import features as features_in
from ccenv.certificates.compose import Lemma, Reading, impossible, obligations, read_theorem, settling
from ccenv.certificates.laws import Path
from ccenv.certificates.proofs import ProofChecker
from ccenv.certificates.reading import LAWS_VERSION, Certificate, QueryData
from ccenv.certificates.reason import follows
from ccenv.certificates.statement import assumptions, figures, number, sentence, subject, times_to_converge
from ccenv.errors import InputError

Decide = Callable[..., str]
"""(text, limit_s=...) -> the second solver's answer."""

KINDS = {
    "laws": "the certificate is about another version of the laws",
    "program": "the program cannot be read, or is not the one that the theorem names",
    "theorem": "the theorem's data cannot be read: unknown features, lemmas given in a circle, ...",
    "missing query": "a conclusion of a lemma has no query",
    "extra query": "a query belongs to no conclusion, or stands twice",
    "hash": "a query's text has another hash than the one that is written beside it",
    "answer": "an answer is not that of a proof",
    "meaning": "a query is not the lemma's: it assumes what laws, rules, program and premise do not say, or leaves something out",
    "witness": "the trace of the premise is none: it breaks a law, a rule or the premise",
    "composition": "the lemmas do not make the statement",
    "settling": "exceptions are said to come first, which does not follow",
    "statement": "the sentence is not the one that the data mean",
    "figures": "the figures are not those of the data",
    "assumptions": "the assumptions are not those of the data",
    "decided otherwise": "the second solver finds a trace that breaks a lemma",
}


@dataclass
class Report:
    """What a check found.

    Attributes:
        refusals: (kind, line) pairs; none: the certificate holds as far as ``trusted`` is trusted.
        trusted: what the check took for granted.
        queries: how many were derived and compared.
        decided: query -> second solver's answer, where it was asked.
        seconds: of the check.
    """

    refusals: list[tuple[str, str]] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    queries: int = 0
    decided: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """``refused``; ``undecided`` where the second solver gave out; else ``confirmed``."""
        if self.refusals:
            return "refused"
        return "undecided" if "unknown" in self.decided.values() else "confirmed"

    def refuse(self, kind: str, line: str) -> None:
        """Note a refusal."""
        self.refusals.append((kind, line))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "verdict": self.verdict,
            "refusals": [{"kind": kind, "text": line} for kind, line in self.refusals],
            "trusted": self.trusted,
            "queries": self.queries,
            "decided_again": self.decided,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Own:
    """The checker's own query: what the laws, the rules, the program and the lemma's premise say, and the conclusion denied."""

    declarations: dict[str, str]
    facts: tuple[str, ...]
    denied: str

    def text(self, *more: str) -> str:
        """Return SMT-LIB of the facts and some more."""
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

    Args:
        certificate: as read.
        solver: ``yices`` or ``cvc5`` decides every query again, in the checker's own writing; None: answers are trusted.
        proofs: decides every query again with a proof that is checked; None: no solver is asked for proofs.
        limit_s: per query.
        progress: called with a line per query decided.

    Raises:
        MissingExtraError: if the solver is missing or too old.
    """
    began, report = time.perf_counter(), Report()
    name = proofs.name if proofs else second.version_of(solver) if solver else ""
    decide = None if proofs is None else proofs.decide
    if solver is not None and decide is None:
        decide = partial(second.decide, solver=solver)
    if certificate.laws != LAWS_VERSION:
        report.refuse("laws", f"the certificate is about laws of version {certificate.laws}, this checker about {LAWS_VERSION}")
        return report
    data = certificate.theorem_data()
    try:
        program = programs.read_program(certificate.program, "program")
        programs.require_intervals(program)
    except InputError as error:
        report.refuse("program", str(error))
        return report
    before = None if certificate.sent_before is None else _pair(certificate.sent_before, report)
    try:
        reading = read_theorem(data, before)
        if (wrong := impossible(reading, program.bounds())) is not None:
            report.refuse("theorem", f"{wrong} is impossible: nothing is said")
        _check_reasoning(reading, program, certificate, report)  # also whether ranks and states can be put into words
        _check_words(certificate, data, subject(program.name, program.is_contract), before, report)
        _check_queries(reading, program, certificate, report, decide, limit_s, progress)
    except InputError as error:
        report.refuse("theorem", str(error))
    except RecursionError:
        report.refuse("theorem", "a formula nests too deep")
    except KeyError as error:
        report.refuse("theorem", f"a name that nothing declares: {error}")
    report.trusted += _trusted(certificate, name)
    report.seconds = time.perf_counter() - began
    return report


def own_query(reading: Reading, lemma: Lemma, conclusion: Read, program: programs.Program, before: Any) -> Own:
    """Derive a query: the beliefs that program, conclusion, given lemmas and compound parts of the premise read are in it.

    Comparisons of the premise with other beliefs are left out, which claims more. C_L and C_U time out at the end of a trace,
    where the theorem says so and the conclusion reads one of them there.
    """
    data = reading.data
    pieces = list(parts_of(lemma.premise))
    read = program.bounds() | beliefs_in(conclusion)
    for piece in (*(piece for piece in pieces if piece[0] != "cmp"), *lemma.granted):
        read |= beliefs_in(piece)
    timeout = data["timeouts"] if features_in(conclusion) & {"C_L'", "C_U'"} else "none"
    timed = timeout != "none"
    if timed:
        read |= {"C_L", "C_U"}
    if "q_U" in read:
        read |= {"C_L_lambda"}
    buffer: Any = data["buffer"]
    if buffer not in ("infinite", "arbitrary", "large"):
        buffer = Fraction(1, 2) if buffer == "small" else number(buffer, {}, "buffer")
    first = (reading.jitter + 1,) if "C_L_lambda" in read else ()
    path = Path(data["model"], buffer, data["T"], before, program.delays(reading.jitter), first)
    kept = [piece for piece in (*pieces, *lemma.granted) if beliefs_in(piece) <= read]
    facts = (
        *path.laws(),
        *beliefs.rules(path, read, timeout, program.window),
        *programs.sends(program, path),
        *(on_trace(piece, path, timed=timed) for piece in kept),
    )
    names = path.declarations() | beliefs.declarations(path, read, timeout) | programs.declarations(program, path)
    return Own(names, facts, f"(not {on_trace(conclusion, path, timed=timed)})")


def _check_words(certificate: Certificate, data: dict[str, Any], about: str, before: Any, report: Report) -> None:
    if data["past"] == "history" and before is None:
        report.refuse("assumptions", "the theorem's past is 'history', but the certificate does not say what was sent before")
    if data["past"] == "sound" and before is not None:
        report.refuse("assumptions", "the theorem's past is 'sound', but the certificate limits what was sent before")
    meant = sentence(data, about, certificate.settles)
    if certificate.statement != meant:
        report.refuse("statement", f"the sentence is not what the data mean, which is: {meant}")
    if certificate.figures != figures(data) or certificate.converges != times_to_converge(data, certificate.settles):
        report.refuse("figures", f"the figures are not those of the data, which are {figures(data)}")
    if certificate.assumptions != assumptions(data, before):
        report.refuse("assumptions", "the assumptions are not those that the data make")


def _check_reasoning(reading: Reading, program: programs.Program, certificate: Certificate, report: Report) -> None:
    steps = {name: (facts, goal) for name, facts, goal in obligations(reading, program.bounds())}
    told = {step.name: step.answer for step in certificate.composition}
    for name in steps.keys() ^ told.keys():
        report.refuse("composition", f"{name!r} is {'missing' if name in steps else 'no step of this theorem'}")
    for name, (facts, goal) in steps.items():
        if told.get(name, "unsat") != "unsat":
            report.refuse("answer", f"composition: {name}: the answer is {told[name]!r}, that of a proof is 'unsat'")
        if not follows(facts, goal):
            report.refuse("composition", f"{name}: this does not follow from the lemmas")
    ranked = {name for name, claim in reading.data["claims"].items() if claim["rank"]}
    for name in certificate.settles.keys() ^ ranked:
        report.refuse("settling", f"{name}: whether exceptions come first is {'not told' if name in ranked else 'told, of none'}")
    for name in sorted(ranked & certificate.settles.keys()):
        if certificate.settles[name] and not follows(*settling(reading, name)):
            report.refuse("settling", f"{name}: nothing makes a rank move while it is not at its end")


def _check_queries(
    reading: Reading,
    program: programs.Program,
    certificate: Certificate,
    report: Report,
    decide: Decide | None,
    limit_s: float,
    progress: Callable[[str], None],
) -> None:
    given: dict[tuple[str, int], QueryData] = {}
    for query in certificate.queries:
        key = (query.lemma, query.part)
        if key in given:
            report.refuse("extra query", f"{_name(*key)} stands twice")
        given[key] = query
    before = None if certificate.sent_before is None else tuple(Fraction(part) for part in certificate.sent_before)
    reader = Reader()
    for lemma, part, conclusion in _conclusions(reading):
        name, found = _name(lemma.name, part), given.pop((lemma.name, part), None)
        if found is None:
            report.refuse("missing query", f"{name} has no query")
            continue
        own = own_query(reading, lemma, conclusion, program, before)
        report.queries += 1
        _compare(name, own, found, reader, report)
        if decide is not None:
            answer = decide(own.text(own.denied), limit_s=limit_s)
            report.decided[name] = answer
            progress(f"{name}: {answer}")
            if answer == "sat":
                report.refuse("decided otherwise", f"{name}: the second solver finds a trace that breaks it")
    for key in given:
        report.refuse("extra query", f"{_name(*key)} belongs to no conclusion of a lemma")


def _conclusions(reading: Reading) -> Iterator[tuple[Lemma, int, Read]]:
    for lemma in reading.lemmas:
        for part, conclusion in enumerate(lemma.conclusions, start=1):
            yield lemma, part, conclusion


def _compare(name: str, own: Own, found: QueryData, reader: Reader, report: Report) -> None:
    """Compare a query with the checker's own: both must assert the same. Then no trace of it, no trace of ours."""
    if hashlib.sha256(found.smtlib.encode()).hexdigest() != found.sha256:
        report.refuse("hash", f"{name}: the text has another hash than {found.sha256[:12]}...")
    if found.answer != "unsat":
        report.refuse("answer", f"{name}: the answer is {found.answer!r}, that of a proof is 'unsat'")
    known = {id(form) for form in _flat(reader.assertions(own.text(own.denied), name))}
    try:
        asserted = list(_flat(reader.assertions(found.smtlib, name)))
    except InputError as error:
        report.refuse("meaning", str(error))
        return
    strange = [form for form in asserted if id(form) not in known]
    if strange:
        report.refuse("meaning", f"{name}: the query assumes what nothing says: {_shown(strange[0])} ({len(strange)} such)")
    said = {id(form) for form in asserted}
    absent = [form for form in _flat(reader.assertions(own.text(own.denied), name)) if id(form) not in said]
    if absent:
        report.refuse("meaning", f"{name}: the query leaves out what it is about: {_shown(absent[0])} ({len(absent)} such)")
    values = _values(found.witness)
    if values is None:
        report.refuse("witness", f"{name}: the witness has a value that is no number")
        return
    done: dict[Form, Any] = {}
    broken = [form for form in reader.assertions(own.text(), name) if not holds(form, values, done)]
    if broken:
        report.refuse("witness", f"{name}: the trace breaks {_shown(broken[0])}")


def _flat(forms: list[Form]) -> Iterator[Form]:
    for form in forms:
        if form[0] == "and":
            yield from form[1]
        elif form[0] != "true":
            yield form


def _shown(form: Form) -> str:
    text = told(form)
    return text if len(text) <= 160 else text[:157] + "..."


def _values(witness: dict[str, str | bool]) -> dict[str, Fraction | bool] | None:
    found: dict[str, Fraction | bool] = {}
    for name, value in witness.items():
        if isinstance(value, bool):
            found[name] = value
        elif re.fullmatch(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,4000})?", value, re.ASCII):
            found[name] = Fraction(value)
        else:
            return None
    return found


def _pair(given: tuple[str, str], report: Report) -> tuple[Fraction, Fraction] | None:
    if any(re.fullmatch(r"-?[0-9]{1,9}(/[1-9][0-9]{0,8})?", part, re.ASCII) is None for part in given):
        report.refuse("assumptions", "what was sent before the start is no pair of numbers")
        return None
    return Fraction(given[0]), Fraction(given[1])


def _name(lemma: str, part: int) -> str:
    return f"{lemma} ({part})"


def _trusted(certificate: Certificate, solver: str) -> list[str]:
    told = [
        "the list of laws in docs/theorems.md describes the network, and this checker writes it out",
        "Python's exact numbers",
    ]
    told.append("the program in the certificate is the one that you mean")
    if solver:
        return [*told, f"{solver}: that the checker's own queries have no trace"]
    solvers = sorted({query.solver for query in certificate.queries})
    return [*told, f"{' and '.join(solvers)}: that the queries have no trace (--solve decides the checker's own queries again)"]
