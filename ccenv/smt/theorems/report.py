"""A proof of a theorem as one JSON-ready object; the certificate and a lemma's counterexample become files."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ccenv.certificates.statement import assumptions, figures, sentence, times_to_converge
from ccenv.errors import CcenvError
from ccenv.smt.network.export import as_trace
from ccenv.smt.theorems.certificate import data_of, settles_of, write_certificate
from ccenv.smt.theorems.prove import Decided, Proof
from ccenv.version import VERSION

_FOUND = {"refuted": "yes", "verified": "none of T samples", "unknown": "unknown"}


def tell(proof: Proof, folder: FilePath) -> dict[str, Any]:
    """Return what was decided, and write the certificate, or the trace that breaks a lemma.

    Args:
        proof: of a theorem.
        folder: where files go.

    Returns:
        dict: ``verdict``, ``statement``, the three figures (None where they are not proved), ``assumptions``, ``certificate``
            (a path or None), ``reason`` (the missing step with its witness, or the lemma), ``lemmas``, ``composition``.

    Raises:
        CcenvError: if the folder cannot be written.
    """
    loaded = proof.loaded
    data, settles = data_of(loaded), settles_of(proof)
    proved = proof.verdict == "verified"
    numbers = figures(data) if proved else dict.fromkeys(figures(data))
    what = sentence(data, loaded.program.name, settles)
    return {
        "verdict": proof.verdict,
        "statement": what if proved else f"Not proved: {what}",
        **numbers,
        "assumptions": assumptions(data, loaded.setting.sent_before_at_most),
        "certificate": str(write_certificate(proof, folder)) if proved else None,
        "converges": times_to_converge(data, settles) if proved else None,
        "reason": _reason(proof, folder),
        "theorem": loaded.theorem.name,
        "sender": loaded.program.name,
        "seconds": round(proof.seconds, 3),
        "lemmas": [
            {"name": one.lemma, "part": one.part, "verdict": one.verdict, "seconds": round(one.answer.seconds, 3)}
            for one in proof.lemmas
        ],
        "lassos": [{"claim": one.lemma, "found": _FOUND[one.verdict]} for one in proof.lassos],
        "composition": [{"name": step.name, "verdict": step.verdict} | _witness(step.witness) for step in proof.steps],
        "ccenv_version": VERSION,
    }


def _witness(witness: dict[str, str]) -> dict[str, Any]:
    return {"witness": witness} if witness else {}


def _reason(proof: Proof, folder: FilePath) -> str | None:
    for one in proof.lassos:
        if one.verdict == "refuted":
            found = _broken(one, proof, folder)
            return f"a trace that returns to its state is worse than {one.lemma}, and can be repeated for ever: {found}"
    for step in proof.steps:
        if step.verdict == "refuted":
            at = ", ".join(f"{name} = {value}" for name, value in step.witness.items())
            return f"the lemmas do not compose: {step.name}: it does not follow at {at}"
        if step.verdict == "unknown":
            return f"composition: {step.name}: {step.answer.reason}"
    for one in proof.lemmas:
        if one.verdict == "refuted":
            return f"lemma {one.lemma} ({one.part}) does not hold: {_broken(one, proof, folder)}"
        if one.verdict == "unknown":
            return f"lemma {one.lemma} ({one.part}) was not decided: {one.reason}"
    return None


def _broken(one: Decided, proof: Proof, folder: FilePath) -> str:
    """Write the counterexample of a lemma and return where it is."""
    if one.view is None:
        raise CcenvError(f"{one.lemma}: no counterexample to write")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be created ({error.strerror})") from None
    trace = as_trace(one.view, proof.loaded.program.name, f"breaks lemma {one.lemma} ({one.part}) of {proof.loaded.theorem.name}")
    file = folder / f"{proof.loaded.program.name}-{one.part}-{_stem(one.lemma)}.npz"
    trace.save(file)
    return f"trace {file}"


def _stem(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
