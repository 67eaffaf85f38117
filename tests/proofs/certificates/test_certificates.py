"""Certificates: what is written is checked again, and what a stranger forged is refused."""

import ast
import copy
import json
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from forger import SMALL, asserted, forged, query_of, read, retold

from ccenv.agents.programs import parse_program, to_data
from ccenv.base.config import shipped_names
from ccenv.base.errors import InputError
from ccenv.base.foreign import read_yaml
from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.proofs.certificates import compose, laws
from ccenv.proofs.certificates import program as programs
from ccenv.proofs.certificates.canonical import Reader, holds
from ccenv.proofs.certificates.check import check, derive_query
from ccenv.proofs.certificates.claims import read_formula
from ccenv.proofs.certificates.laws import Path as Laws
from ccenv.proofs.certificates.library import find, read_stored
from ccenv.proofs.certificates.program import read_program, require_intervals
from ccenv.proofs.certificates.reason import follows
from ccenv.proofs.certificates.statement import rounded, sentence, traces_to_end
from ccenv.proofs.certificates.theorem import Theorem
from ccenv.proofs.claims.verifier import replay_exactly
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules, Setting, named_setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.senders.catalog import program_of
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.solver.solvers import Answer, to_smtlib
from ccenv.proofs.theorems.compose import lemma_queries, possibilities
from ccenv.proofs.theorems.prove import Prover
from ccenv.proofs.theorems.theorem import THEOREMS, load_theorem
from ccenv.proofs.theorems.theorem import read_theorem as prove_theorem

pytest.importorskip("z3")


ROOM = Path(compose.__file__).parent


def test_a_genuine_certificate_is_confirmed_also_by_a_second_solver(genuine) -> None:
    report = check(read(genuine))
    assert (report.verdict, report.refusals, report.queries) == ("confirmed", [], len(genuine["queries"]))
    again = check(read(genuine), solver="yices", limit_s=60)
    assert again.verdict == "confirmed" and set(again.decided.values()) == {"unsat"}
    assert any("yices" in line for line in again.trusted) and not any("z3" in line for line in again.trusted)


def test_an_answer_that_lies_is_found_by_the_second_solver(genuine, tmp_path) -> None:
    """Every query is derived as it should be, but the lemma is wrong and the solver never said unsat."""
    file = tmp_path / "wrong.yaml"
    file.write_text(SMALL.read_text(encoding="utf-8").replace("f: 3/10", "f: 99/100"), encoding="utf-8")
    data = copy.deepcopy(genuine)
    data["theorem"]["constants"]["f"] = "99/100"
    pays = next(asked.query for asked in lemma_queries(load_theorem(str(file))) if asked.lemma == "pays")
    encoding = pays.encoding()
    query_of(data, "pays")["smtlib"] = encoding.smtlib(pays.claim.violation(encoding.view))
    retold(data)
    assert check(read(data)).verdict == "confirmed"  # as far as the named solver is trusted
    report = check(read(data), solver="yices", limit_s=60)
    assert [(kind, field) for kind, field, _ in report.refusals] == [("decided otherwise", "queries.pays (1)")]


@pytest.mark.parametrize(("change", "said"), [
    (lambda d: d.update(version=3), "version"), (lambda d: d.update(format="ccenv-policy"), "format"),
    (lambda d: d.update(note="trust me"), "note"), (lambda d: d["queries"][0].pop("answer"), "answer"),
    (lambda d: d["theorem"].update(model="strong"), "model"),
])  # fmt: skip
def test_a_file_of_another_kind_is_refused_in_one_line(change, said, genuine, tmp_path) -> None:
    data = copy.deepcopy(genuine)
    change(data)
    file = tmp_path / "other.certificate.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError, match=rf"\A.*{said}.*\Z"):
        read_stored(file)


def test_the_command_compares_with_the_registered_program(genuine, tmp_path, capsys) -> None:
    file = tmp_path / "small.certificate.json"
    file.write_text(json.dumps(genuine), encoding="utf-8")
    assert main(["certificate", "check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "confirmed"
    data = copy.deepcopy(genuine)
    data["theorem"]["sender"] = "cc_probe_fast"
    file.write_text(json.dumps(data), encoding="utf-8")
    assert main(["certificate", "check", str(file), "--json"]) == 1
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]
    assert (refusal["kind"], refusal["field"]) == ("program", "theorem.sender")


def test_the_checker_imports_neither_prover_nor_solver() -> None:
    for file in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            foreign = [name for name in names if name.startswith(("ccenv.proofs", "ccenv.agents.programs", "z3"))]
            assert not [name for name in foreign if not name.startswith("ccenv.proofs.certificates")], file.name


@pytest.mark.parametrize("name", shipped_names(THEOREMS, ".yaml"))
def test_the_traces_of_a_shipped_certificate_are_legal_for_the_checker_of_traces_too(name) -> None:
    """The certificate's own checker judges them by its laws; here the replayer and the laws of ``ccenv trace check`` do."""
    _, query = next(iter(possibilities(load_theorem(name))))
    encoding, witnesses = query.encoding(), read_stored(find(name)).certificate.witnesses
    for witness in witnesses:
        values = {key: value if isinstance(value, bool) else Fraction(value) for key, value in witness.values.items()}
        view = replay_exactly(query, encoding, Answer("sat", 0.0, "", model=values))
        assert check_trace(as_trace(view, name)) == []
    assert any("start" in witness.shows and "invariant" in witness.shows for witness in witnesses)


NETWORKS = [
    *(("ccac", buffer, timeout) for buffer in ("infinite", "arbitrary", "large") for timeout in ("none", "artefact", "paper")),
    *((model, buffer, "none") for model in ("cbr_delay", "ideal") for buffer in ("infinite", "arbitrary", "1")),
]
PROGRAMS = (
    *("cc_qdel", "cc_probe_fast", "cc_probe_drain", "cc_probe_slow", "cc_probe_qdel"),
    *("learned_nominal_u54", "learned_nominal_u78", "learned_shield_u80"),
)
HELD = {
    "format": "ccenv-program", "version": 1, "name": "held", "source": "a test", "probe_window_rtts": 2,
    "rule": {"if": "loss", "then": {"rate": {"C_L": "1/2"}, "hold_rtts": 3},
             "else": {"if": {"qdel_U": 1, "qdel_L": -2, "Rm": "-1/2"}, "then": {"rate": {"C_L_lambda": 1, "q_U/Rm": -1}},
                      "else": {"rate": {"rate": 1, "MSS/Rm": 1}, "hold_rtts": 2}}},
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS, ids=str)
@pytest.mark.parametrize("name", [*PROGRAMS, "held"])
def test_checker_and_prover_write_the_same_laws(name, network) -> None:
    """Neither says more: what the prover assumes is true by the list of laws, and the checker's own query is no easier."""
    model, buffer, timeout = network
    data = HELD if name == "held" else to_data(program_of(name))
    sender = ProgramSmtSender(parse_program(data))
    rules = BeliefRules(upper="exact", lambda_extra_steps=0, timeout=TIMEOUT_PRESETS.get(timeout))
    size: Any = Fraction(1) if buffer == "1" else buffer
    past = "sound" if sender.largest_rate() is None else "history"
    setting = named_setting(past, Setting(model, size, 5, beliefs=rules), sender.largest_rate())
    bounds = frozenset({"C_L", "C_U"}) if timeout != "none" else frozenset()
    encoding = encode(setting, sender, sender.needs(setting) | Needs(bounds))
    theirs = to_smtlib(encoding.formulas())
    program = programs.read_program(data, name)
    read_bounds = program.bounds() | bounds
    jitter = 0 if model == "ideal" else 1
    first = (jitter + 1,) if "C_L_lambda" in read_bounds else ()
    path = Laws(model, size, 5, setting.sent_before_at_most, program.delays(jitter), first)
    facts = [*path.laws(), *laws.rules(path, read_bounds, timeout, program.window), *programs.sends(program, path)]
    names = path.declarations() | laws.declarations(path, read_bounds, timeout) | programs.declarations(program, path)
    lines = [f"(declare-fun {known} () {sort})" for known, sort in names.items()] + [f"(assert {fact})" for fact in facts]
    reader = Reader()

    def parts(text: str) -> set[int]:
        forms = reader.assertions(text, name)
        return {id(part) for form in forms for part in (form[1] if form[0] == "and" else (form,)) if part != ("true",)}

    assert parts(theirs) == parts("\n".join(lines))


def test_own_query_is_what_stands_in_the_certificate(genuine) -> None:
    certificate = read(genuine)
    before = (Fraction(genuine["sent_before"][0]), Fraction(genuine["sent_before"][1]))
    program = read_program(certificate.program, "program")
    reading = compose.read_theorem(certificate.theorem.to_dict(), before, program)
    lemma = next(one for one in reading.lemmas if one.name == "pays")
    own = derive_query(reading, lemma, lemma.conclusions[0], program, before)
    assert own.text(own.denied).count("(assert") == len(own.facts) + 1 and not {"C_U_0", "q_U_0"} & set(own.declarations)


def cmp(text: str):
    return read_formula(text, "test", {}, {})


@pytest.mark.parametrize(("facts", "goal", "expected"), [
    (["C_L <= 1", "queue <= 2 C_L"], "queue <= 2", True), (["C_L <= 1", "queue <= 2 C_L"], "queue < 2", False),
    (["C_L < 1", "queue <= 2 C_L"], "queue < 2", True), (["C_L <= 1/3"], "C_L <= 1/4", False),
    (["C_L <= C_U", "C_U <= q_U", "q_U <= C_L"], "C_U >= q_U", True), (["C_L < C_U", "C_U < C_L"], "MSS <= 0", True),
])  # fmt: skip
def test_reasoning_by_elimination(facts, goal, expected) -> None:
    assert follows([cmp(fact) for fact in facts], cmp(goal)) is expected


def test_reasoning_by_cases() -> None:
    either = ("any", (cmp("C_L >= 1/2"), ("all", (cmp("C_L < 1/4"), cmp("queue <= 1")))))
    assert follows([either, cmp("C_L >= 1/4")], cmp("C_L >= 1/2")) and not follows([either], cmp("C_L >= 1/2"))
    assert follows([("not", ("any", (cmp("C_L < 1"), cmp("queue > 2"))))], ("all", (cmp("C_L >= 1"), cmp("queue <= 2"))))


@pytest.mark.parametrize("body", ["(" * 5000 + ")" * 5000, "(+ 1.0 true)", "(* alpha alpha)", "(f 1.0)"])
def test_texts_that_are_no_queries_are_refused(body) -> None:
    with pytest.raises(InputError):
        Reader().assertions(f"(declare-fun alpha () Real)\n(assert {body})\n(check-sat)\n", "hostile")


def test_forms_of_equal_texts_are_equal_and_evaluate() -> None:
    reader = Reader()
    head = "(declare-fun x () Real)\n(declare-fun y () Real)\n(declare-fun p () Bool)\n"
    (one,) = reader.assertions(head + "(assert (let ((a!1 (+ x 1.0))) (or (not p) (<= (* (/ 1.0 2.0) a!1) y))))", "one")
    (two,) = reader.assertions(head + "(assert (=> p (>= (- (* 2.0 y) x) 1.0)))", "two")
    assert one is two and holds(one, {"x": Fraction(1), "y": Fraction(1), "p": True}, {})
    assert not holds(one, {"x": Fraction(2), "y": Fraction(1), "p": True}, {})
    (chosen,) = reader.assertions(head + "(assert (= y (ite p x 3.0)))", "three")
    (other,) = reader.assertions(head + "(assert (= (ite (not p) 3.0 x) y))", "four")
    assert chosen is other and holds(chosen, {"x": Fraction(1), "y": Fraction(3), "p": False}, {})


WRITTEN: dict[str, Any] = read_yaml(SMALL)
CLAIMS = WRITTEN["claims"]


def prove(**changes: Any) -> Any:
    theorem = Theorem.model_validate(WRITTEN | changes)
    return Prover(20.0).prove(prove_theorem(theorem, load_theorem(str(SMALL)).program, "small"))


@pytest.mark.parametrize("change", [
    {"start": [*WRITTEN["start"], "C_L > 1"]}, {"start": [*WRITTEN["start"], "queue > inflight"]},
    {"model": "cbr_delay", "start": [*WRITTEN["start"], "queue <= -1/2"]},
    {"claims": CLAIMS | {"utilisation": CLAIMS["utilisation"] | {"when": "buffer < 1", "bound": 1}}},  # it is large
])  # fmt: skip
def test_the_prover_proves_nothing_about_nothing(change) -> None:
    proof = prove(past="sound", **change)
    assert proof.verdict != "verified" and any(step.verdict == "refuted" for step in proof.possible)


def test_the_prover_composes_what_every_trace_assumes() -> None:
    proof = prove(start=["true_beliefs"], invariant=["true_beliefs"])
    assert proof.verdict != "verified"
    (step,) = (step for step in proof.steps if step.verdict == "refuted" and step.name.startswith("a trace may begin"))
    assert "C_L" in step.witness


EXPANDING = [*(f"(let ((x{k + 1} (or x{k} (and x{k} (> C_L_0 {k}.0))))) " for k in range(300))]


@pytest.mark.parametrize("body", [
    "(let ((x0 (> C_L_0 0.0))) " + "".join(EXPANDING) + "x300" + ")" * 301,
    "(> " + "(let ((y (+ C_L_0 1.0))) " * 20 + "(ite (> y 0.0) y (- y))" + ")" * 20 + " 0.0)", "(let 3 true)", "(let ((x)) true)",
    "(let ((x true)))", "(let (x true) true)",
])  # fmt: skip
def test_texts_that_grow_or_break_are_refused(body, genuine) -> None:
    report = check(read(forged(genuine, lambda data: asserted(data, "stays true", body))))
    assert report.verdict == "refused" and report.seconds < 20
    assert {(kind, field) for kind, field, _ in report.refusals} == {("meaning", "queries.stays true (1).smtlib")}


def test_figures_are_rounded_to_the_side_on_which_they_hold(genuine) -> None:
    down = [rounded(Fraction(x), up=False) for x in ("0.74996", "3/4", "1/3", "12345", "0")]
    assert down == ["0.7499", "0.75", "0.3333", "12340", "0"]
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


@pytest.mark.parametrize(("low", "high", "condition", "empty"), [
    ({"C_L": 1}, {"C_L": 2}, {"C_L": 1}, False),
    ({"C_L": 2}, {"C_L": 1}, {"C_L": 1}, True),
    ({"C_L": 1}, {"C_U": 1}, {"C_L": 1}, True),  # until a time-out says so, C_U may be below C_L
    ({"C_L": 1}, {"C_U": 1}, {"C_U": 1, "C_L": -1}, False),
    ({"C_L": 1, "MSS/Rm": -1}, {"C_L": 1}, {"C_L": 1}, False),
    ({"MSS/Rm": "1/2"}, {"MSS/Rm": "1/4"}, {"C_L": 1}, False),  # both are raised to MSS/Rm
])  # fmt: skip
def test_an_interval_that_may_be_empty_is_refused(low, high, condition, empty) -> None:
    rule = {"if": condition, "then": {"rate_between": [low, high]}, "else": {"rate": {"C_L": 1}}}
    program = read_program({"format": "ccenv-program", "version": 2, "name": "x", "source": "a test", "rule": rule}, "x")
    with pytest.raises(InputError, match="empty for some beliefs") if empty else nullcontext():
        require_intervals(program)


def test_elimination_with_many_ranges_stays_quick() -> None:
    """Lemmas in ranges: premises that say nothing where a range was chosen are not taken apart again."""
    x, y = {"x": Fraction(1), "": Fraction(0)}, {"y": Fraction(1), "": Fraction(0)}

    def at_most(total: dict[str, Fraction], value: int) -> Any:
        return ("cmp", {**total, "": Fraction(-value)}, False)

    facts = [at_most(x, 30), ("not", at_most(x, 0))]
    facts += [("any", (("not", ("all", (("not", at_most(x, k)), at_most(x, k + 1)))), at_most(y, k))) for k in range(30)]
    assert follows(facts, at_most(y, 29)) and not follows(facts, at_most(y, 28))
