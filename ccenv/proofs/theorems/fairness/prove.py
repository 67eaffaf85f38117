"""Prove the theorem for a design: tables, queries, verdict; the certificate is a file that a checker reads without the prover."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import InputError
from ccenv.base.files import make_folder
from ccenv.base.foreign import parse_number
from ccenv.base.provenance import VERSION
from ccenv.proofs.certificates.fairness.meaning import assumptions, in_full, statement
from ccenv.proofs.certificates.fairness.reading import FORMAT, SUFFIX, BoundsData, DesignData, QueryData
from ccenv.proofs.solver.solvers import Answer, Store, solve, version_of
from ccenv.proofs.theorems.fairness.design import design_of, find
from ccenv.proofs.theorems.fairness.queries import queries
from ccenv.proofs.theorems.fairness.tables import Tables, exact_tables

SENDER = "ever_delay"
FLOWS = "any"
SHIPPED: dict[str, dict[str, float]] = {
    "ever_delay": {},
    "ever_delay_full_4": {"fairness": 3.93, "jitter": 1, "shares": 136, "utilisation": 0.639, "gain": 4.8e-5},
    "ever_delay_full_3": {"fairness": 2.95, "jitter": 1, "shares": 114, "utilisation": 0.654, "gain": 5.9e-5},
    "ever_delay_quarter_4": {"fairness": 3.93, "jitter": 0.25, "shares": 179, "utilisation": 0.498, "gain": 1e-4},
    "ever_delay_quarter_2": {"fairness": 1.97, "jitter": 0.25, "shares": 122, "utilisation": 0.54, "gain": 1.7e-4},
    "ever_delay_eighth_2": {"fairness": 1.97, "jitter": 0.125, "shares": 164, "utilisation": 0.5, "gain": 2.1e-4},
    "ever_delay_shield": {"fairness": 2.5, "jitter": 0.125, "shares": 10, "utilisation": 0.5, "gain": 1e-4, "freedom": 1.1},
    "ever_delay_tokens": {"fairness": 2.5, "jitter": 0.125, "early": 0.125, "shares": 100, "utilisation": 0.5, "gain": 1e-4},
    "ever_delay_tokens_full": {"fairness": 4.2, "jitter": 1, "early": 1, "shares": 30, "utilisation": 0.5, "gain": 5e-5},
    "ever_delay_any_rm": {"fairness": 3, "jitter": 0.125, "early": 0.125, "unlike": 0.5, "utilisation": 0.5, "gain": 1e-4},
    "ever_delay_unlike": {"fairness": 3.5, "jitter": 1, "unlike": 0.9, "utilisation": 0.65, "gain": 5e-5},
    "ever_delay_shield_wide": {"fairness": 4, "jitter": 0.125, "shares": 10, "utilisation": 0.2, "gain": 1e-5, "freedom": 1.3},
    "ever_delay_full_fast": {"shares": 2, "utilisation": 0.6, "gain": 2e-3},
    "ever_delay_eighth_fast": {"fairness": 1.4, "jitter": 0.125, "shares": 10, "utilisation": 0.5, "gain": 2e-3},
}
"""Designs whose certificates ship; the first is the default."""


def values_of(texts: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a design as numbers; a text may be a fraction, such as 1/4. Raises InputError for anything else."""
    values = {}
    for name, text in texts.items():
        over, slash, under = str(text).partition("/")
        number = parse_number(over, f"-s {name}")
        divisor = parse_number(under, f"-s {name}") if slash else 1.0
        if divisor == 0:
            raise InputError(f"-s {name} is {text!r}; its divisor is 0")
        values[name] = number / divisor
    return values


def prove(
    values: dict[str, float],
    folder: FilePath,
    *,
    limit_s: float = 60.0,
    seed: int = 0,
    store: Store | None = None,
    fresh: bool = False,
    progress: Callable[[str], None] = lambda line: None,
    name: str = SENDER,
) -> dict[str, Any]:
    """Prove the theorem for a design and write its certificate.

    Args:
        values: of the design (:class:`Design`) that differ from the default's.
        folder: where the certificate goes.
        limit_s: per query; what takes longer is unknown.
        seed: of the solver.
        store: of answers; None: none is kept.
        fresh: ignore stored answers.
        progress: is told what was decided.
        name: of the certificate.

    Returns:
        dict: verdict, the three bounds, sentence, queries (how many), certificate (a path, or None), reason (the lemma that
            failed, or None).

    Raises:
        InputError: if the design does not exist; names the nearest that does.
    """
    begin = time.perf_counter()
    design = design_of(values)
    tables = exact_tables(design, find(design))
    records = []
    reason: str | None = None
    verdict = "verified"
    for lemma, text in queries(tables):
        answer = _decide(text, lemma, limit_s, seed, store, fresh)
        records.append({"lemma": lemma, "smtlib": text, **_plain(answer)})
        if answer.status != "unsat":
            verdict = "unknown"  # a lemma that fails ends the argument, and breaks no claim about the sender
            reason = (
                reason or f"lemma {lemma} {'does not hold' if answer.status == 'sat' else 'was not decided: ' + answer.reason}"
            )
    progress(f"{len(records)} queries: {verdict}")
    asked = {name: decimal(Fraction(str(value))) for name, value in design.model_dump(exclude={"gain", "jitter"}).items()}
    design_data = DesignData(jitter_rtts=decimal(Fraction(str(design.jitter))), **asked)
    bounds = BoundsData(**{name: decimal(getattr(tables, name)) for name in ("ratio", "utilisation", "rtt_rtts")})
    proved = verdict == "verified"
    file = folder / f"{name}{SUFFIX}"
    if proved:
        make_folder(folder)
        FORMAT.write(file, _certificate(tables, design_data, bounds, records))
    return {
        "verdict": verdict,
        "ratio": float(bounds.ratio) if proved else None,
        "utilisation": float(bounds.utilisation) if proved else None,
        "rtt_rtts": float(bounds.rtt_rtts) if proved else None,
        "jitter_rtts": float(design_data.jitter_rtts),
        "flows": FLOWS,
        "shares": float(design_data.shares),
        "gain_per_rtt": design.gain,
        "queries": len(records),
        "statement": statement(design_data, bounds) if proved else None,
        "sentence": in_full(design_data, bounds) if proved else None,
        "assumptions": assumptions(design_data, bounds),
        "certificate": str(file) if proved else None,
        "reason": reason,
        "sender": SENDER,
        "seconds": round(time.perf_counter() - begin, 3),
        "ccenv_version": VERSION,
    }


def _decide(text: str, lemma: str, limit_s: float, seed: int, store: Store | None, fresh: bool) -> Answer:
    stored = None if store is None or fresh else store.load(text, version_of("z3"))
    if stored is not None:
        return stored
    answer = solve(text, "z3", limit_s, seed)
    if store is not None and answer.status == "unsat":  # a model of polynomials may hold roots, which no file has a form for
        store.save(text, answer, {"theorem": SENDER, "lemma": lemma})
    return answer


def _plain(answer: Answer) -> dict[str, Any]:
    return {"answer": answer.status, "solver": answer.solver, "seconds": round(answer.seconds, 4)}


def _certificate(tables: Tables, design: DesignData, bounds: BoundsData, records: list[dict[str, Any]]) -> dict[str, Any]:
    rule = {
        "slope": tables.slope, "gain": tables.gain, "offset": tables.offset,
        "start": tables.start, "relief": tables.relief,
    }  # fmt: skip
    constants = {"spread": tables.spread, "entropy": tables.entropy, "curvature": tables.curvature}
    lists = {name: [decimal(value) for value in getattr(tables, name)] for name in ("w", "low", "high", "rise", "fall")}
    return {
        "sender": SENDER,
        "design": design.model_dump(),
        "rule": {name: decimal(value) for name, value in rule.items()},
        "constants": {name: decimal(value) for name, value in constants.items()},
        "tables": lists,
        "bounds": bounds.model_dump(),
        "statement": statement(design, bounds),
        "assumptions": assumptions(design, bounds),
        "queries": [QueryData(**one).model_dump() for one in records],
        "made_with": {"ccenv": VERSION},
    }


def decimal(value: Fraction) -> str:
    """Return an exact number as a decimal without an exponent; it must have one of at most twelve digits."""
    scaled = value * 10**12
    if scaled.denominator != 1:
        raise InputError(f"ever_delay: {float(value):g} has more than twelve digits after the point; round it")
    whole, rest = divmod(abs(scaled.numerator), 10**12)
    digits = f"{rest:012d}".rstrip("0")
    return f"{'-' if value < 0 else ''}{whole}{'.' + digits if digits else ''}"
