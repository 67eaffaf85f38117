"""What a forger does who knows the checker: change one thing in a certificate, and tell all else anew so that it agrees."""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.base.foreign import parse_fraction
from ccenv.proofs.certificates.compose import obligations, read_theorem
from ccenv.proofs.certificates.program import read_program
from ccenv.proofs.certificates.reading import FORMAT, Certificate
from ccenv.proofs.certificates.statement import assumptions, figures, sentence, subject, times_to_converge
from ccenv.proofs.theorems.prove import Prover, build_certificate
from ccenv.proofs.theorems.theorem import load_theorem

SMALL = Path(__file__).with_name("small.yaml")
Data = dict[str, Any]
Change = Callable[[Data], Any]


def proved(file: Path) -> Data:
    """Return the certificate of a theorem, as it stands in a file."""
    proof = Prover(60.0).prove(load_theorem(str(file)))
    assert proof.verdict == "verified"
    data: Data = json.loads(FORMAT.content(build_certificate(proof)))
    return data


def read(data: Data) -> Certificate:
    return validate(Certificate, FORMAT.check(data, "forged"), "forged")


def forged(data: Data, change: Change) -> Data:
    data = copy.deepcopy(data)
    change(data)
    return retold(data)


def retold(data: Data) -> Data:
    """Write the words, the figures, the steps and the hashes that belong to the rest; what cannot be read stays as it was."""
    for query in data["queries"]:
        query["sha256"] = hashlib.sha256(query["smtlib"].encode()).hexdigest()
    try:
        theorem, before = read(data).theorem.to_dict(), data["sent_before"]
        program = read_program(data["program"], "program")
        limit = None if before is None else (parse_fraction(before[0], "before"), parse_fraction(before[1], "before"))
        ranked = [name for name, claim in theorem["claims"].items() if claim["rank"]]
        settles = {name: data["settles"].get(name, True) for name in ranked}
        steps = obligations(read_theorem(theorem, limit, program), program.bounds())
        data |= {
            "composition": [{"name": name, "answer": "unsat"} for name, _, _ in steps],
            "statement": sentence(theorem, subject(program.name, program.is_shield), settles), "figures": figures(theorem),
            "assumptions": assumptions(theorem, limit), "settles": settles, "converges": times_to_converge(theorem, settles),
        }  # fmt: skip
    except InputError:
        pass  # the checker says what is wrong with it
    return data


def query_of(data: Data, lemma: str, part: int = 1) -> Data:
    return next(query for query in data["queries"] if (query["lemma"], query["part"]) == (lemma, part))


def lemma_of(data: Data, name: str) -> Data:
    return next(lemma for lemma in data["theorem"]["lemmas"] if lemma["name"] == name)


def asserted(data: Data, lemma: str, body: str) -> None:
    query = query_of(data, lemma)
    query["smtlib"] = query["smtlib"].replace("(check-sat)", f"(assert {body})\n(check-sat)")
