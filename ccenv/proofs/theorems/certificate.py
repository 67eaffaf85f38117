"""Write what was proved as a certificate, and tell it in the words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

from ccenv.proofs.certificates.reading import FORMAT
from ccenv.proofs.certificates.statement import LAWS_VERSION, assumptions, figures, sentence, subject, times_to_converge
from ccenv.base.errors import CcenvError
from ccenv.agents.programs import to_data
from ccenv.proofs.solver.store import query_hash
from ccenv.proofs.theorems.prove import Proof
from ccenv.proofs.theorems.theorem import LoadedTheorem
from ccenv.base.version import VERSION


def data_of(loaded: LoadedTheorem) -> dict[str, Any]:
    """Return a theorem's data as a certificate holds it: every key written out."""
    data: dict[str, Any] = loaded.theorem.model_dump(by_alias=True, mode="json")
    return data


def certificate_of(proof: Proof) -> dict[str, Any]:
    """Return the certificate of a proof, without the two keys that every document begins with.

    Raises:
        CcenvError: if the theorem was not proved.
    """
    if proof.verdict != "verified":
        raise CcenvError(f"{proof.loaded.theorem.name}: only a proved theorem has a certificate")
    loaded = proof.loaded
    data, settles, limit = data_of(loaded), settles_of(proof), loaded.setting.sent_before_at_most
    queries = [
        {
            "lemma": one.lemma,
            "part": one.part,
            "sha256": query_hash(one.text),
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
        "statement": sentence(data, subject(loaded.program.name, loaded.program.is_contract), settles),
        "figures": figures(data),
        "assumptions": assumptions(data, limit),
        "converges": times_to_converge(data, settles),
        "settles": settles,
        "queries": queries,
        "composition": [{"name": step.name, "answer": step.answer.status} for step in proof.steps],
        "witnesses": [{"shows": one.names, "values": _plain(one.answer.model)} for one in proof.possible],
        "made_with": {"ccenv": VERSION},
    }


def settles_of(proof: Proof) -> dict[str, bool]:
    """Return for each claim with ranks whether its exceptions come first."""
    return {name: step.verdict == "verified" for name, step in proof.settles.items()}


def write_certificate(proof: Proof, folder: FilePath) -> FilePath:
    """Write the certificate of a proof as ``NAME.certificate.json``.

    Raises:
        CcenvError: if the theorem was not proved, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CcenvError(f"{folder}: cannot be created ({error.strerror})") from None
    file = folder / f"{proof.loaded.theorem.name}.certificate.json"
    FORMAT.write(file, certificate_of(proof))
    return file


def _plain(model: Mapping[str, Any]) -> dict[str, str | bool]:
    return {name: str(value) if isinstance(value, Fraction) else value for name, value in sorted(model.items())}
