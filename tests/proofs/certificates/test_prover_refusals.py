"""What the prover refuses to read, the checker refuses too: every place of a refusal is met, and put to the checker."""

import ast
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import test_forged_certificates as forgeries
from forger import Data
from test_forged_certificates import Forgery, refused_fields, same_work_once, theorem  # noqa: F401 - a fixture

from ccenv.agents.programs import parse_program, program, reader
from ccenv.base.config import validate
from ccenv.base.errors import CcenvError
from ccenv.proofs.certificates.theorem import Theorem
from ccenv.proofs.senders.intervals import require_intervals
from ccenv.proofs.theorems import language
from ccenv.proofs.theorems import theorem as prover
from ccenv.proofs.theorems.compose import possibilities

READERS = (prover, language, language, reader, program)
ELSEWHERE = {"load_theorem", "with_constants", "load_program", "parse_program", "decide", "interval", "check_rates"}
"""Functions that refuse files, options and inputs, which no certificate has."""

NOT_IN_JSON = ("an input is given twice", "expected a JSON object", "hold_rtts is {self", "is not encoded", "the program reads")
"""Refusals that no certificate can bring about: an earlier reader refuses what leads there."""


def raise_sites() -> set[tuple[str, int]]:
    """Return file and line of every refusal in the prover's readers."""
    found = set()
    for module in READERS:
        file = str(module.__file__)
        for function in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and function.name not in ELSEWHERE:
                found |= {(file, node.lineno) for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc}
    return found


def sites_of_prover(data: Data) -> set[tuple[str, int]]:
    """Return where the prover refuses a theorem and a program; nothing if it reads them."""
    try:
        read = parse_program(data["program"])
        require_intervals(read)
        loaded = prover.read_theorem(validate(Theorem, data["theorem"], "theorem"), read, "theorem")
        _, query = next(iter(possibilities(loaded)))
        query.claim.premise(query.encoding().view)
    except CcenvError as error:
        return set(_raised(error))
    return set()


def _raised(error: BaseException | None) -> Iterator[tuple[str, int]]:
    while error is not None:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        error = error.__context__


def refusable() -> Iterator[Forgery]:
    def held(data: Data) -> None:
        data["theorem"] |= {"timeouts": "paper", "history_given": []}
        for lemma in data["theorem"]["lemmas"]:
            lemma["given"] = []

    def rule_of(value: Any, version: int = 1) -> Any:
        return lambda d: d["program"].update(rule=value, version=version)

    def tree(depth: int, *, wide: bool) -> Any:
        leaf: Any = {"rate": {"C_L": 1}}
        branch = tree(depth - 1, wide=wide) if depth else leaf
        return {"if": "loss", "then": branch, "else": branch if wide else leaf} if depth else leaf

    def without_buffer(data: Data) -> None:
        data["theorem"] |= {"buffer": "infinite", "start": ["true_beliefs", "C_L >= MSS", "buffer > 1"]}
        data["theorem"]["claims"].pop("loss_per_rtt")

    nested: Any = "C_L <= 1"
    for _ in range(14):
        nested = [nested]
    yield Forgery("lists in lists", r"theorem\.start", theorem(start=nested))
    yield Forgery("time-outs after 6 Rm", r"theorem\.T", held)
    yield Forgery("a term that ends with a star", r"theorem\.start", theorem(start="C_L <= 1 *"))
    yield Forgery("a buffer in an infinite one", r"theorem\.buffer", without_buffer)
    yield Forgery("many leaves", r"program\.rule", rule_of(tree(10, wide=True)))
    yield Forgery("many branches", r"program\.rule", rule_of(tree(33, wide=False)))
    for ends in (3, [], [{"C_L": 1}], [{"C_L": 1}] * 3, [{"C_L": 1}, 3], [{"C_L": 2}, {"C_L": 1}], [{"q_U": 1}, {"q_U": 2}]):
        yield Forgery(f"ends {ends}", r"program\.rule", rule_of({"rate_between": ends}, 2))
    for coefficient in ("999999999.999999999", "1/0", "01", " 1", None, True):
        yield Forgery(f"coefficient {coefficient!r}", r"program\.rule", rule_of({"rate": {"C_L": coefficient}}))
    for rule in (forgeries.numbers, forgeries.formulas, forgeries.lemmas, forgeries.ranks, forgeries.networks):
        yield from rule()


def test_what_the_prover_refuses_the_checker_refuses_too(genuine) -> None:
    met: set[tuple[str, int]] = set()
    for forgery in refusable():
        data = forgery.on(genuine)
        sites = sites_of_prover(data)
        met |= sites
        if sites:
            (kinds, fields), *_ = refused_fields(data)
            assert kinds <= {"read", "theorem", "program"}, (forgery.name, kinds, fields)
    rest = {linecache.getline(file, line).strip() for file, line in raise_sites() - met}
    assert {text for text in rest if not any(part in text for part in NOT_IN_JSON)} == set()
