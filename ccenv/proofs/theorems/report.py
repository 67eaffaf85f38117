"""The report of a theorem as JSON; the certificate and counterexamples of lemmas become files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import CcenvError
from ccenv.base.files import make_folder
from ccenv.base.provenance import VERSION
from ccenv.proofs.certificates.statement import assumptions, figures, in_full, sentence, subject, times_to_converge
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.theorems.grid import Cell
from ccenv.proofs.theorems.prove import Decided, Proof, write_certificate
from ccenv.proofs.theorems.theorem import LoadedTheorem

_FOUND = {"refuted": "yes", "verified": "none of T samples", "unknown": "unknown"}


def tell(proof: Proof, folder: FilePath) -> dict[str, Any]:
    """Return the report of a proof, and write the certificate, or the trace that breaks a lemma.

    Raises CcenvError if the folder cannot be written.

    Returns:
        dict: ``verdict``, ``statement``, ``sentence`` (the statement with all its assumptions; None if not proved), the three
            figures (likewise), ``assumptions``, ``certificate`` (a path or None), ``reason`` (the missing step with its witness,
            or the lemma), ``lemmas``, ``composition``.
    """
    loaded = proof.loaded
    data, settles = loaded.theorem.to_dict(), proof.settled
    proved = proof.verdict == "verified"
    numbers = figures(data) if proved else dict.fromkeys(figures(data))
    statement = sentence(data, subject(loaded.program.name, loaded.program.is_shield), settles)
    assumed = assumptions(data, loaded.setting.sent_before_at_most)
    return {
        "verdict": proof.verdict,
        "statement": statement if proved else f"Not proved: {statement}",
        **numbers,
        "sentence": in_full(statement, assumed) if proved else None,
        "assumptions": assumed,
        "certificate": str(write_certificate(proof, folder)) if proved else None,
        "converges": times_to_converge(data, settles) if proved else None,
        "reason": _describe_reason(proof, folder),
        "theorem": loaded.theorem.name,
        "sender": loaded.program.name,
        "seconds": round(proof.seconds, 3),
        "lemmas": [
            {"name": one.lemma, "part": one.part, "verdict": one.verdict, "seconds": round(one.answer.seconds, 3)}
            for one in proof.lemmas
        ],
        "lassos": [{"claim": one.lemma, "found": _FOUND[one.verdict]} for one in proof.lassos],
        "composition": [
            {"name": step.name, "verdict": step.verdict} | ({"witness": step.witness} if step.witness else {})
            for step in proof.steps
        ],
        "ccenv_version": VERSION,
    }


def _describe_reason(proof: Proof, folder: FilePath) -> str | None:
    for one in proof.lassos:
        if one.verdict == "refuted":
            trace_text = _write_broken(one, proof, folder)
            return f"a trace that returns to its state is worse than {one.lemma}, and can be repeated for ever: {trace_text}"
    for case in proof.possible:
        if case.verdict != "verified":
            return f"{case.names[0]}: {'impossible: no trace' if case.verdict == 'refuted' else case.answer.reason}"
    for step in proof.steps:
        if step.verdict == "refuted":
            witness = ", ".join(f"{name} = {value}" for name, value in step.witness.items())
            return f"the lemmas do not compose: {step.name}: it does not follow at {witness}"
        if step.verdict == "unknown":
            return f"composition: {step.name}: {step.answer.reason}"
    for one in proof.lemmas:
        if one.verdict == "refuted":
            return f"lemma {one.lemma} ({one.part}) does not hold: {_write_broken(one, proof, folder)}"
        if one.verdict == "unknown":
            return f"lemma {one.lemma} ({one.part}) was not decided: {one.reason}"
    return None


def tell_cell(cell: Cell, folder: FilePath) -> dict[str, Any]:
    """Return the report of a theorem on another grid, and write the traces that break its lemmas.

    It has ``steps_per_rtt``, ``jitter_rtts``, per claim ``bound``, ``verdict``, ``every_k`` (whether it carries over to every
    grid with this D) and ``lacks`` (lemmas, each with its verdict and trace or reason), ``lemmas`` and ``seconds``. Raises
    CcenvError if the folder cannot be written.
    """
    loaded = cell.loaded
    name = f"K{loaded.setting.steps_per_rtt}-D{_stem(str(loaded.setting.jitter))}"
    files = {
        (one.lemma, one.part): _write_trace(one, loaded, folder, f"{loaded.theorem.name}-{name}-{one.part}-{_stem(one.lemma)}")
        for one in cell.decided
        if one.view is not None
    }
    claims = {}
    for claim in loaded.claims:
        carried = cell.claims[claim.name]
        lacks = [
            {"lemma": one.lemma, "part": one.part, "verdict": one.verdict, "sha256": one.sha256}
            | ({"trace": str(files[one.lemma, one.part])} if one.view is not None else {"reason": one.reason})
            for one in carried.lemmas
        ]
        claims[claim.name] = {
            "bound": float(claim.bound), "verdict": carried.verdict, "every_k": carried.every_k, "lacks": lacks,
        }  # fmt: skip
    return {
        "steps_per_rtt": loaded.setting.steps_per_rtt,
        "jitter_rtts": float(loaded.setting.jitter),
        "claims": claims,
        "lemmas": [
            {"name": one.lemma, "part": one.part, "verdict": one.verdict, "every_k": one.every_k, "sha256": one.sha256}
            for one in cell.decided
        ],
        "seconds": round(cell.seconds, 3),
    }


def tell_lassos(loaded: LoadedTheorem, found: Sequence[Decided], periods: int, folder: FilePath) -> dict[str, Any]:
    """Return the report of a search for lassos, and write the traces that can be repeated for ever.

    It has ``verdict`` (``refuted``, ``none found`` or ``unknown``), ``traces_joined``, and per claim ``bound``, ``found`` (yes,
    none, unknown), ``traces`` in the order in which they repeat, and ``reason``. Raises CcenvError if the folder cannot be
    written.
    """
    claims = {}
    for claim, one in zip(loaded.claims, found, strict=True):
        stem = f"{loaded.theorem.name}-lasso-{claim.name}-{_stem(str(claim.bound))}-{periods}"
        files = [str(_write_trace(replace(one, view=v), loaded, folder, f"{stem}-{k}")) for k, v in enumerate(one.views, start=1)]
        finding = {"refuted": "yes", "verified": "none"}.get(one.verdict, "unknown")
        claims[claim.name] = {"bound": float(claim.bound), "found": finding, "traces": files, "reason": one.reason}
        claims[claim.name] |= {"seconds": round(one.answer.seconds, 3), "sha256": one.sha256}
    seen = {one.verdict for one in found}
    verdict = "refuted" if "refuted" in seen else "unknown" if "unknown" in seen else "none found"
    about = {"theorem": loaded.theorem.name, "sender": loaded.program.name, "verdict": verdict, "traces_joined": periods}
    return about | {"claims": claims, "ccenv_version": VERSION}


def _write_broken(one: Decided, proof: Proof, folder: FilePath) -> str:
    """Write the counterexample of a lemma and return its place in words."""
    stem = f"{proof.loaded.program.name}-{one.part}-{_stem(one.lemma)}"
    return f"trace {_write_trace(one, proof.loaded, folder, stem)}"


def _write_trace(one: Decided, loaded: LoadedTheorem, folder: FilePath, stem: str) -> FilePath:
    if one.view is None:
        raise CcenvError(f"{one.lemma}: no counterexample to write")
    make_folder(folder)
    trace = as_trace(one.view, loaded.program.name, f"breaks lemma {one.lemma} ({one.part}) of {loaded.theorem.name}")
    file = folder / f"{stem}.npz"
    trace.save(file)
    return file


def _stem(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
