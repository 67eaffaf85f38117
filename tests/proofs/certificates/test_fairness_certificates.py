"""Certificates of fairness: the shipped ones are confirmed, forty forgeries are refused by the name of their lemma."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest

from ccenv.base.errors import InputError, UnknownNameError
from ccenv.cli.main import main
from ccenv.proofs.certificates.fairness.check import check_fair
from ccenv.proofs.certificates.fairness.derive import Derivation
from ccenv.proofs.certificates.fairness.exact import is_positive, log_low_high
from ccenv.proofs.certificates.fairness.meaning import assumptions, statement
from ccenv.proofs.certificates.fairness.reading import FairCertificate, find_fair, parse_fair, read_fair, shipped_fair

Data = dict[str, Any]
SHIPPED = shipped_fair()


@pytest.fixture(scope="module")
def genuine() -> Data:
    return json.loads(read_fair(SHIPPED["ever_delay"]).model_dump_json())


@pytest.mark.parametrize("name", list(SHIPPED))
def test_shipped_certificates_are_confirmed(name):
    report = check_fair(read_fair(SHIPPED[name]))
    assert report.verdict == "confirmed", report.refusals[:3]
    assert report.decided == report.queries > 70


def retold(data: Data) -> Data:
    """Return the data with queries, sentence and assumptions that its numbers mean: a forger who knows the checker."""
    certificate = FairCertificate.model_validate(data)
    one = data["queries"][0]
    data["queries"] = [one | {"lemma": lemma.name, "smtlib": lemma.text} for lemma in Derivation(certificate).lemmas()]
    data["statement"] = statement(certificate.design, certificate.bounds)
    data["assumptions"] = assumptions(certificate.design, certificate.bounds)
    return data


def shift(path: str, by: str) -> Callable[[Data], None]:
    def change(data: Data) -> None:
        *outer, last = path.split(".")
        at: Any = data
        for name in outer:
            at = at[int(name)] if isinstance(at, list) else at[name]
        key: Any = int(last) if isinstance(at, list) else last
        text = f"{Decimal(at[key]) + Decimal(by):f}"
        at[key] = text.rstrip("0").rstrip(".") if "." in text else text

    return change


class Forgery(NamedTuple):
    """A number that is changed, and the lemma that is then refused; late: nothing else is changed with it."""

    path: str
    by: str
    lemma: str
    late: bool = False


FORGERIES = (
    # the numbers of the theorem, all else in agreement
    Forgery("bounds.ratio", "-0.05", "L2 ratio"), Forgery("bounds.ratio", "0.1", "L2 bound"),
    Forgery("bounds.utilisation", "0.05", "L3 load"), Forgery("bounds.rtt_rtts", "-0.5", "L3 peak"),
    Forgery("design.utilisation", "0.1", "L3 load"), Forgery("design.utilisation", "-0.1", "L2 ratio"),
    Forgery("design.jitter_rtts", "0.1", "L3 trough"), Forgery("design.jitter_rtts", "0.3", "L2 exponential"),
    Forgery("design.shares", "20", "L4 range"), Forgery("design.fairness", "-0.2", "L2 bound"),
    Forgery("design.early", "0.1", "L2 exponential"), Forgery("design.unlike", "0.1", "L2 ratio"),
    # the rule
    Forgery("rule.slope", "0.02", "L2 exponential"), Forgery("rule.slope", "-0.02", "L4 range"),
    Forgery("rule.gain", "0.00012", "L3 peak"), Forgery("rule.gain", "0.01", "L3 tables"),
    Forgery("rule.offset", "-0.01", "L4 bottom"), Forgery("rule.offset", "0.1", "L4 range"),
    Forgery("rule.start", "-0.05", "L6 start"), Forgery("rule.relief", "-0.05", "L6 start"),
    # the constants of the proof
    Forgery("constants.spread", "-0.01", "L2 exponential"), Forgery("constants.entropy", "-0.01", "L5 entropy"),
    Forgery("constants.entropy", "0.05", "L4 drift"), Forgery("constants.curvature", "-0.004", "L4 drift"),
    Forgery("constants.curvature", "0.9", "L4 drift"),
    # the tables
    Forgery("tables.w.10", "0.01", "L3 peak 9"), Forgery("tables.w.0", "-0.05", "L3 load 0"),
    Forgery("tables.w.60", "0.3", "L3 peak"), Forgery("tables.high.20", "-0.02", "L3 peak"),
    Forgery("tables.high.40", "0.2", "L3 trough"), Forgery("tables.high.60", "-0.05", "L3 peak 59"),
    Forgery("tables.low.50", "0.05", "L3 trough"), Forgery("tables.low.50", "-0.1", "L3 peak"),
    Forgery("tables.low.20", "0.5", "L3 trough"), Forgery("tables.low.5", "-0.5", "L3 tables"),
    Forgery("tables.rise.30", "-0.1", "L4 drift 30"), Forgery("tables.fall.30", "-0.1", "L4 drift 30"),
    Forgery("tables.rise.59", "2", "L6 start"), Forgery("tables.fall.59", "3", "L6 start"),
    Forgery("tables.fall.59", "-3", "L3 tables"),
    # a number alone: the query is no longer the one that the numbers mean
    Forgery("tables.high.33", "0.000001", "L3 peak 33", late=True), Forgery("rule.gain", "-0.000001", "L2 spread", late=True),
    Forgery("constants.spread", "0.000000001", "L2 ratio", late=True),
    Forgery("design.jitter_rtts", "0.000000000001", "L1 view", late=True),
    Forgery("design.unlike", "1.1", "L3 tables", late=True),
)  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: f"{forgery.path}{forgery.by}{'-alone' * forgery.late}")
def test_forgeries_are_refused_by_their_lemma(genuine, forgery):
    data = json.loads(json.dumps(genuine))
    shift(forgery.path, forgery.by)(data)
    report = check_fair(parse_fair(json.dumps(data if forgery.late else retold(data)).encode(), "forged"))
    assert report.verdict == "refused"
    assert any(name.startswith(forgery.lemma) for name, _ in report.refusals), report.refusals[:6]


@pytest.mark.parametrize(("change", "lemma"), [
    (lambda data: data.update(queries=[one for one in data["queries"] if one["lemma"] != "L3 peak 7"]), "L3 peak 7"),
    (lambda data: data["queries"].append(data["queries"][3]), "queries"),
    (lambda data: data.update(statement=data["statement"].replace("at least 0.65", "at least 0.95")), "statement"),
    (lambda data: data["assumptions"].pop(2), "assumptions"),
    (lambda data: data["queries"][9].update(answer="sat"), "L3 tables 0"),
    (lambda data: data["queries"][9].update(smtlib="(check-sat)\n"), "L3 tables 0"),
    (lambda data: data["queries"][9].update(lemma="L3 peak 99"), "L3 peak 99"),
    (lambda data: data["tables"]["low"].pop(), "L3 tables"), (lambda data: data["tables"]["w"].reverse(), "L3 tables"),
])  # fmt: skip
def test_changed_words_and_queries_are_refused(genuine, change, lemma):
    data = json.loads(json.dumps(genuine))
    change(data)
    report = check_fair(parse_fair(json.dumps(data).encode(), "forged"))
    assert lemma in {name for name, _ in report.refusals}


@pytest.mark.parametrize("value", ["1e5", "-", "NaN", "1/3", "0.1234567890123"])
def test_numbers_are_plain_decimals(genuine, value):
    data = json.loads(json.dumps(genuine))
    data["rule"]["slope"] = value
    with pytest.raises(InputError, match=r"forged: rule\.slope"):
        parse_fair(json.dumps(data).encode(), "forged")


@pytest.mark.parametrize("value", ["0.000001", "0.65", "1", "1.5", "2", "2.718281828", "136", "99999"])
def test_logarithms_are_bounded(value):
    import math

    low, high = log_low_high(Fraction(value))
    assert low <= Fraction(math.log(float(Fraction(value)))) + Fraction(1, 10**13)
    assert high >= Fraction(math.log(float(Fraction(value)))) - Fraction(1, 10**13)
    assert 0 < high - low <= Fraction(2, 10**12) or value == "1"


@pytest.mark.parametrize(("coefficients", "positive", "at_least_zero"), [
    ((1,), True, True), ((-1, 2), False, False), ((1, -2, 1), False, True), ((2, -2, 1), True, True), ((1, -3, 2), False, False),
])  # fmt: skip
def test_positive_polynomials(coefficients, positive, at_least_zero):
    """On [0, 1]; (1 - w)^2 touches 0 at the end, (1 - w)(1 - 2w) is below 0 inside."""
    part = tuple(map(Fraction, coefficients))
    ends = Fraction(0), Fraction(1)
    assert is_positive(part, *ends) == positive and is_positive(part, *ends, strict=False) == at_least_zero


def test_names_of_certificates(tmp_path):
    assert find_fair("ever_delay") == SHIPPED["ever_delay"] and find_fair("cc_qdel") is None
    with pytest.raises(UnknownNameError):
        find_fair("ever_delay_none")


def test_command(capsys, answer, tmp_path, genuine):
    told = answer(["certificate", "check", "ever_delay", "--json"])
    assert told["verdict"] == "confirmed" and told["decided_exactly"] == told["queries"]
    assert told["sentence"].count("(6)") == 1
    shift("rule.gain", "0.001")(data := json.loads(json.dumps(genuine)))
    (file := tmp_path / "forged.fairness.json").write_text(json.dumps(data))
    assert main(["certificate", "check", str(file), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["sentence"] is None and told["refusals"][0]["lemma"] == "L2 spread"
    assert main(["certificate", "check", str(file), "-s", "proofs=true"]) == 2


@pytest.mark.slow
def test_second_solver_confirms():
    pytest.importorskip("z3")
    report = check_fair(read_fair(SHIPPED["ever_delay_eighth_fast"]), solver="yices", limit_s=60.0)
    assert report.verdict == "confirmed"
