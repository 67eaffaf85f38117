"""What a stranger found who tried to forge certificates: claims about nothing, sums of peaks, other names, endless texts."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from forger import SMALL, forged, query_of, read

from ccenv.base.errors import InputError
from ccenv.base.foreign import read_yaml
from ccenv.cli.main import main
from ccenv.proofs.certificates.check import check
from ccenv.proofs.certificates.program import read_program, require_intervals
from ccenv.proofs.certificates.reason import follows
from ccenv.proofs.certificates.statement import rounded, sentence, traces_to_end
from ccenv.proofs.certificates.theorem import Theorem
from ccenv.proofs.theorems.prove import Prover
from ccenv.proofs.theorems.theorem import load_theorem
from ccenv.proofs.theorems.theorem import read_theorem as prove_theorem

pytest.importorskip("z3")


def contradictory(data: dict[str, Any]) -> None:
    data["theorem"]["start"] = [*data["theorem"]["start"], "C_L > 1"]


def impossible_queue(data: dict[str, Any]) -> None:
    data["theorem"]["start"] = [*data["theorem"]["start"], "queue > inflight"]


def negative_queue(data: dict[str, Any]) -> None:
    data["theorem"] |= {"model": "cbr_delay", "start": [*data["theorem"]["start"], "queue <= -1/2"]}


def vacuous_when(data: dict[str, Any]) -> None:
    data["theorem"]["claims"]["utilisation"]["when"] = "buffer < 1"  # it is large
    data["theorem"]["claims"]["utilisation"]["bound"] = 1


def no_smallest_mark(data: dict[str, Any]) -> None:
    for where in ("start", "invariant"):
        data["theorem"][where] = ["true_beliefs"]


def changed(change: Callable[[dict[str, Any]], None]) -> Any:
    data = {"theorem": read_yaml(SMALL)}
    change(data)
    return prove_theorem(Theorem.model_validate(data["theorem"]), load_theorem(str(SMALL)).program, "small")


@pytest.mark.parametrize("change", [contradictory, impossible_queue, negative_queue, vacuous_when])
def test_the_prover_proves_nothing_about_nothing(change) -> None:
    data = {"theorem": read_yaml(SMALL)}
    data["theorem"]["past"] = "sound"
    change(data)
    proof = Prover(20.0).prove(prove_theorem(Theorem.model_validate(data["theorem"]), load_theorem(str(SMALL)).program, "small"))
    assert proof.verdict != "verified"
    assert any(step.verdict == "refuted" for step in proof.possible)


def test_the_prover_composes_what_every_trace_assumes() -> None:
    loaded = changed(no_smallest_mark)
    proof = Prover(20.0).prove(loaded)
    assert proof.verdict != "verified"
    (step,) = (step for step in proof.steps if step.verdict == "refuted" and step.name.startswith("a trace may begin"))
    assert "C_L" in step.witness


EXPANDING = [
    *(f"(let ((x{k + 1} (or x{k} (and x{k} (> C_L_0 {k}.0))))) " for k in range(300)),
]


@pytest.mark.parametrize(
    "body",
    [
        "(let ((x0 (> C_L_0 0.0))) " + "".join(EXPANDING) + "x300" + ")" * 301,
        "(> " + "(let ((y (+ C_L_0 1.0))) " * 20 + "(ite (> y 0.0) y (- y))" + ")" * 20 + " 0.0)",
        "(let 3 true)",
        "(let ((x)) true)",
        "(let ((x true)))",
        "(let (x true) true)",
    ],
)
def test_texts_that_grow_or_break_are_refused(body, genuine) -> None:
    def more(data: dict[str, Any]) -> None:
        query = query_of(data, "stays true")
        query["smtlib"] = query["smtlib"].replace("(check-sat)", f"(assert {body})\n(check-sat)")

    report = check(read(forged(genuine, more)))
    assert report.verdict == "refused" and report.seconds < 20
    assert {(kind, field) for kind, field, _ in report.refusals} == {("meaning", "queries.stays true (1).smtlib")}


def test_figures_are_rounded_to_the_side_on_which_they_hold(genuine) -> None:
    assert [rounded(Fraction(x), up=False) for x in ("0.74996", "3/4", "1/3", "12345", "0")] == [
        "0.7499",
        "0.75",
        "0.3333",
        "12340",
        "0",
    ]
    assert [rounded(Fraction(x), up=True) for x in ("3.50049", "7/2", "1/3", "-1/3")] == ["3.501", "3.5", "0.3334", "-0.3333"]
    theorem = copy.deepcopy(genuine["theorem"])
    theorem["constants"]["f"] = "0.29999"
    assert "at least 0.2999 of the link" in sentence(theorem, "x", genuine["settles"])
    assert "max(0, ceil((queue at the start - 6) / (1/2)))" in sentence(theorem, "x", genuine["settles"])


def test_steps_are_counted_exactly_or_not_at_all() -> None:
    rank = {"of": "C_L", "times": "3/2", "until": 1}
    assert traces_to_end(rank, {}, 10) == 6  # 1.5**5 = 7.6, 1.5**6 = 11.4
    with pytest.raises(InputError, match="at most 100000"):
        traces_to_end(rank | {"times": "1.00001"}, {}, 10)


def test_another_program_may_not_take_a_registered_name(genuine, tmp_path: Path, capsys) -> None:
    def told(name: str, sender: str) -> tuple[int, dict[str, Any]]:
        def change(data: dict[str, Any]) -> None:
            data["program"]["name"], data["theorem"]["sender"] = name, sender

        file = tmp_path / "x.certificate.json"
        file.write_text(json.dumps(forged(genuine, change)))
        code = main(["certificate", "check", str(file), "--json"])
        return code, json.loads(capsys.readouterr().out)

    for name, sender in (("cc_probe_drain", "mine.json"), ("cc_qdel", "cc_probe_drain"), ("CC_QDEL", "mine.json")):
        code, data = told(name, sender)
        assert code == 1 and data["refusals"][0]["kind"] == "program", name
    code, data = told("mine", "mine.json")
    assert code == 0 and any("no registered program is called 'mine'" in line for line in data["trusted"])


@pytest.mark.parametrize(
    ("low", "high", "condition", "empty"),
    [
        ({"C_L": 1}, {"C_L": 2}, {"C_L": 1}, False),
        ({"C_L": 2}, {"C_L": 1}, {"C_L": 1}, True),
        ({"C_L": 1}, {"C_U": 1}, {"C_L": 1}, True),  # until a time-out says so, C_U may be below C_L
        ({"C_L": 1}, {"C_U": 1}, {"C_U": 1, "C_L": -1}, False),
        ({"C_L": 1, "MSS/Rm": -1}, {"C_L": 1}, {"C_L": 1}, False),
        ({"MSS/Rm": "1/2"}, {"MSS/Rm": "1/4"}, {"C_L": 1}, False),  # both are raised to MSS/Rm
    ],
)
def test_an_interval_that_may_be_empty_is_refused(low, high, condition, empty) -> None:
    rule = {"if": condition, "then": {"rate_between": [low, high]}, "else": {"rate": {"C_L": 1}}}
    program = read_program({"format": "ccenv-program", "version": 2, "name": "x", "source": "a test", "rule": rule}, "x")
    if empty:
        with pytest.raises(InputError, match="empty for some beliefs"):
            require_intervals(program)
    else:
        require_intervals(program)


def test_elimination_with_many_ranges_stays_quick() -> None:
    """Lemmas in ranges: premises that say nothing where a range was chosen are not taken apart again."""
    x, y = {"x": Fraction(1), "": Fraction(0)}, {"y": Fraction(1), "": Fraction(0)}

    def at_most(total: dict[str, Fraction], value: int) -> Any:
        return ("cmp", {**total, "": Fraction(-value)}, False)

    facts = [at_most(x, 30), ("not", at_most(x, 0))]
    facts += [("any", (("not", ("all", (("not", at_most(x, k)), at_most(x, k + 1)))), at_most(y, k))) for k in range(30)]
    assert follows(facts, at_most(y, 29))
    assert not follows(facts, at_most(y, 28))
