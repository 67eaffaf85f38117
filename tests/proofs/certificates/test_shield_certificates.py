"""Certificates about shields: the theorem is about every choice inside, and one proved of other intervals is refused."""

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from forger import Data, asserted, proved, query_of, read, retold

from ccenv.cli.main import main
from ccenv.proofs.certificates.check import check
from ccenv.proofs.certificates.statement import sentence
from ccenv.proofs.theorems.compose import lemma_queries
from ccenv.proofs.theorems.theorem import load_theorem

pytest.importorskip("z3")

SMALL = Path(__file__).with_name("small_shield.yaml")


@pytest.fixture(scope="module")
def genuine() -> Data:
    return proved(SMALL)


def test_the_theorem_is_about_whoever_chooses_inside(genuine) -> None:
    assert "whoever chooses inside the shield small_shield uses at least 0.25" in genuine["statement"]
    report = check(read(genuine), solver="yices", limit_s=60)
    assert report.verdict == "confirmed" and set(report.decided.values()) == {"unsat"}


def leaf(data: dict[str, Any]) -> list[Any]:
    """Return the ends of the interval where no queue is seen."""
    ends: list[Any] = data["program"]["rule"]["else"]["rate_between"]
    return ends


def point_program(data: dict[str, Any]) -> None:
    for side in ("then", "else"):
        rule = data["program"]["rule"][side]
        rule["rate"] = rule.pop("rate_between")[0]
    data["program"]["version"] = 1


def narrower_queries(data: dict[str, Any], tmp: Path) -> None:
    """Put the queries of a shield with another interval in place of those of this one."""
    shield = json.loads(SMALL.with_suffix(".json").read_text(encoding="utf-8"))
    shield["rule"]["else"]["rate_between"] = [{"C_L": "15/8"}, {"C_L": 2}]
    (tmp / "small_shield.json").write_text(json.dumps(shield), encoding="utf-8")
    (tmp / SMALL.name).write_text(SMALL.read_text(encoding="utf-8"), encoding="utf-8")
    for asked in lemma_queries(load_theorem(str(tmp / SMALL.name))):
        encoding = asked.query.encoding()
        text = encoding.smtlib(asked.query.claim.violation(encoding.view))
        query_of(data, asked.lemma, asked.part)["smtlib"] = text


def without_upper_end(data: dict[str, Any]) -> None:
    """Leave out of a query what a choice is at most: it is then about more than the shield."""
    query = query_of(data, "history")
    lines = query["smtlib"].split("\n(assert ")
    kept = [line for line in lines if "(<= rate_3 " not in line]
    assert len(kept) == len(lines) - 1
    query["smtlib"] = "\n(assert ".join(kept)


def choice_outside(data: dict[str, Any]) -> None:
    witness = data["witnesses"][0]["values"]
    witness["rate_2"] = str(Fraction(witness["rate_2"]) * 3)


FORGERIES: dict[str, tuple[str, Callable[..., Any]]] = {
    "wider interval": ("meaning", lambda d: leaf(d)[0].update(C_L="1")),
    "interval moved up": ("meaning", lambda d: (leaf(d)[0].update(C_L="5/2"), leaf(d)[1].update(C_L="3"))),
    "one end for the other": ("program", lambda d: leaf(d).reverse()), "its lower end alone": ("meaning", point_program),
    "queries of another interval": ("meaning", narrower_queries),
    "choice that a query forbids": ("meaning", lambda d: asserted(d, "pays", "(>= rate_2 (* 2.0 C_L_1))")),
    "choice that nothing bounds": ("meaning", without_upper_end), "choice outside in a trace": ("witness", choice_outside),
    "three ends": ("program", lambda d: leaf(d).append({"C_L": "4"})),
    "other condition": ("meaning", lambda d: d["program"]["rule"].update({"if": {"qdel_L": 1, "Rm": -1}})),
    "larger past": ("meaning", lambda d: d.update(sent_before=["1", "0"])),
    "a program's sentence": (
        "statement", lambda d: d.update(statement=sentence(d["theorem"], d["program"]["name"], d["settles"])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_of_a_shield_is_refused_by_name(name, genuine, tmp_path) -> None:
    kind, forge = FORGERIES[name]
    data = copy.deepcopy(genuine)
    forge(data, tmp_path) if forge is narrower_queries else forge(data)
    assert data != genuine
    if kind != "statement":  # by a forger who knows the checker
        retold(data)
    report = check(read(data))
    assert report.verdict == "refused"
    assert {found for found, _, _ in report.refusals} <= ({kind, "witness"} if kind == "meaning" else {kind})


def test_the_command_compares_the_shield_with_the_registered_one(genuine, tmp_path, capsys) -> None:
    """A theorem that was proved of other intervals does not pass under the name of a shipped shield."""
    data = copy.deepcopy(genuine)
    data["theorem"]["sender"] = "learned_shield_u77_timeouts"
    file = tmp_path / "shield.certificate.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    assert main(["certificate", "check", str(file), "--json"]) == 1
    assert {one["kind"] for one in json.loads(capsys.readouterr().out)["refusals"]} == {"program"}
