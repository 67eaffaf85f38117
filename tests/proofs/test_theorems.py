"""Theorems about endless runs: no wrong verdict on claims of known truth, missing steps with a witness, and bad input refused."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from planted_theorems import planted
from tables.theorems import lassos, merge_lassos

from ccenv.base.config import shipped_names, validate
from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import Trace
from ccenv.proofs.certificates.check import check
from ccenv.proofs.certificates.reading import FORMAT, Certificate
from ccenv.proofs.certificates.statement import traces_to_end
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.solver.solvers import solve
from ccenv.proofs.theorems.compose import implications
from ccenv.proofs.theorems.language import Comparison, parse
from ccenv.proofs.theorems.lasso import lasso
from ccenv.proofs.theorems.prove import Prover, build_certificate
from ccenv.proofs.theorems.theorem import THEOREMS, load_theorem, read_theorem

pytest.importorskip("z3")

SMALL = Path(__file__).parent / "certificates" / "small.yaml"


pytestmark = pytest.mark.usefixtures("own_cache")


def check_planted(claims) -> None:
    for claim in claims:
        proof = Prover(60.0).prove(claim.loaded)
        assert proof.verdict == ("verified" if claim.true else "refuted"), claim.name
        if claim.true:
            document = FORMAT.parse(FORMAT.content(build_certificate(proof)), claim.name)
            assert check(validate(Certificate, document, claim.name)).verdict == "confirmed", claim.name


def test_no_wrong_verdict_on_a_sample_of_claims_of_known_truth() -> None:
    check_planted(planted()[::17])


@pytest.mark.slow
def test_no_wrong_verdict_on_claims_of_known_truth() -> None:
    claims = planted()
    assert (len({claim.name for claim in claims}), sum(claim.true for claim in claims)) == (100, 50)
    check_planted(claims)


@pytest.mark.parametrize("name", shipped_names(THEOREMS, ".yaml"))
def test_the_lemmas_of_a_shipped_theorem_compose(name) -> None:
    for step in implications(load_theorem(name)):
        assert Prover().imply(step).verdict == "verified", step.name


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_names(THEOREMS, ".yaml"))
def test_a_shipped_theorem_is_proved_and_its_certificate_confirmed(name) -> None:
    proof = Prover(240.0).prove(load_theorem(name))
    assert proof.verdict == "verified"
    document = FORMAT.parse(FORMAT.content(build_certificate(proof)), name)
    assert check(validate(Certificate, document, name)).verdict == "confirmed"


def test_the_command_prints_what_it_promises(capsys, answer) -> None:
    data = answer(["verify", "theorem", str(SMALL), "--json"])
    assert {"verdict", "statement", "utilisation", "inflight_bdp", "loss_per_rtt", "assumptions", "certificate"} <= set(data)
    assert (data["verdict"], data["utilisation"], data["loss_per_rtt"]) == ("verified", 0.3, 1.0)
    assert main(["certificate", "check", data["certificate"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statement"] == data["statement"]


def small(**changes: tuple[str, str]) -> str:
    """Write the small theorem with some texts replaced, and return the file's name."""
    text = SMALL.read_text(encoding="utf-8")
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    Path("changed.yaml").write_text(text, encoding="utf-8")
    return "changed.yaml"


def test_what_fails_is_told_with_its_witness_or_its_trace(capsys) -> None:
    name = small(weaker=('if: [true_beliefs, "C_L >= goal"]', 'if: [true_beliefs, "C_L >= 1/2"]'))
    assert main(["verify", "theorem", name, "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "unknown" and data["certificate"] is None and data["utilisation"] is None
    assert "the lemmas do not compose: utilisation: a trace is good, or a rank moves" in data["reason"]
    (broken,) = [step for step in data["composition"] if step["verdict"] == "refuted"]
    assert Fraction(1, 4) <= Fraction(broken["witness"]["C_L"]) < Fraction(1, 2)
    assert main(["verify", "theorem", small(much=("f: 3/10", "f: 19/20")), "--json"]) in (1, 3)
    data = json.loads(capsys.readouterr().out)
    assert {(one["name"], one["verdict"]) for one in data["lemmas"]} >= {("pays", "refuted")}
    assert data["certificate"] is None and data["statement"].startswith("Not proved: ")


def test_a_refuted_claim_has_a_trace_that_returns_to_its_state() -> None:
    """The trace of sending a*C_L with every byte held for D: legal, replayed exactly, and the same at both ends."""
    claim = next(one for one in planted() if not one.true and one.name.startswith("loss"))
    question = lasso(claim.loaded, claim.loaded.claims[0])
    (found,) = Prover(60.0).lassos(claim.loaded)
    view = found.view
    assert found.verdict == "refuted" and view is not None
    last = view.last
    assert view.E[0] - view.S[0] == view.E[last] - view.S[last] and view.G[0] - view.S[0] == view.G[last] - view.S[last]
    assert view.C_L is not None and view.C_L[0] == view.C_L[last]
    assert sum(view.lost[1:]) > claim.loaded.claims[0].bound * last
    assert found.views == (view,) and question.query.claim.premise(view) is True


@pytest.mark.parametrize("periods", [2, 3])
def test_several_traces_join_end_to_end_and_return(periods) -> None:
    claim = next(one for one in planted() if not one.true and one.name.startswith("loss"))
    (found,) = Prover(60.0).lassos(claim.loaded, periods)
    assert found.verdict == "refuted" and len(found.views) == periods
    for end, start in zip(found.views, [*found.views[1:], found.views[0]], strict=True):
        gain = end.S[end.last]
        assert end.E[end.last] - gain == start.E[0] and end.G[end.last] - gain == start.G[0]
        assert end.rate[end.last] == start.rate[0] and end.alpha == start.alpha and end.beta == start.beta
        assert end.C_L is not None and start.C_L is not None and end.C_L[end.last] == start.C_L[0]
    lost = sum(sum(view.lost[1:]) for view in found.views)
    assert lost > claim.loaded.claims[0].bound * claim.loaded.setting.rtts * periods


def test_traces_that_do_not_return_are_no_lasso() -> None:
    claim = next(one for one in planted() if not one.true and one.name.startswith("loss"))
    question = lasso(claim.loaded, claim.loaded.claims[0], 2)
    answer = solve(question.text(), "z3", 60.0)
    assert question.confirm(answer)
    model = dict(answer.model)
    model["trace1_rate_0"] = Fraction(model["trace1_rate_0"]) + 1
    with pytest.raises(ReplayError):
        question.confirm(replace(answer, model=model))


def test_a_true_claim_has_no_lasso_of_two_traces() -> None:
    claim = next(one for one in planted() if one.true)
    assert {found.verdict for found in Prover(60.0).lassos(claim.loaded, 2)} == {"verified"}


def test_the_command_looks_for_lassos(refused, answer) -> None:
    asked = ["verify", "theorem", str(SMALL), "-s"]
    data = answer([*asked, "lasso=1", "-s", "bounds.inflight_bdp=20", "--json"])
    assert (data["verdict"], data["traces_joined"]) == ("none found", 1)
    assert data["claims"] == {"inflight_bdp": data["claims"]["inflight_bdp"] | {"bound": 20.0, "found": "none", "traces": []}}
    for wrong, said in (("utilization=1", "utilisation"), ("utilisation", "KEY=VALUE"), ("utilisation=x", "utilisation")):
        refused([*asked, "lasso=1", "-s", f"bounds.{wrong}"], said)
    for wrong in ("0", "9"):
        refused([*asked, f"lasso={wrong}"], "1 to 4")
    assert main([*asked, "1", "--grid"]) == 2 and main(["verify", "theorem", str(SMALL), "-s", "bounds.utilisation=1"]) == 2


def test_a_lasso_is_written_as_a_legal_trace(capsys) -> None:
    from ccenv.proofs.theorems.report import tell

    claim = next(one for one in planted() if not one.true)
    data = tell(Prover(60.0).prove(claim.loaded), Path("out"))
    assert data["verdict"] == "refuted" and "can be repeated for ever" in data["reason"]
    assert not check_trace(Trace.load(Path(data["reason"].rpartition("trace ")[2])))


WRONG = {
    "feature": ("C_L' <= 1", "C_X' <= 1", "C_X'"), "sign": ("C_L' <= 1", "C_L' <= 1 <= 2", "2 comparison signs"),
    "product": ("C_L' <= 1", "C_L' * C_L <= 1", "only numbers may be factors"),
    "peak from below": ("peak_inflight <= 20", "peak_inflight >= 20", "bounded from above"),
    "state": ("if: true_beliefs", "if: true_belief", "true_beliefs"),
    "prime in a premise": ('if: [true_beliefs, "queue > rest"]', 'if: ["queue\' > rest"]', "only what holds at one sample"),
    "given later": ("given: [stays true]", "given: [drains]", "earlier lemma"),
    "constant named as a feature": ("constants: {", "constants: {MSS: 3/8, ", "'MSS' bears"),
    "state named as a constant": ("states:\n", "states:\n  goal: [C_L <= 1]\n", "'goal' bears"),
    "range turned round": ("potential_range: [0, 4]", "potential_range: [4, 0]", "potential_range"),
    "name of two words": ("name: small\n", "name: small one\n", "small one"), "key": ("source: a test", "sauce: a test", "sauce"),
    "rank": ("times: grows", "times: 1", "must be above 1"),
    "time-outs": ("timeouts: none", "timeouts: artefact", "only those before it may be given"),
    "sender": ("sender: cc_qdel", "sender: reno", "is no belief program"), "number": ("f: 3/10", "f: many", "many"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_bad_theorems_are_refused_in_one_line(what, refused) -> None:
    old, new, said = WRONG[what]
    refused(["verify", "theorem", small(one=(old, new)), "--json"], said)


def test_a_theorem_that_nobody_wrote(refused) -> None:
    refused(["verify", "theorem", "cc_qdell"], "Did you mean 'cc_qdel'")


@pytest.mark.parametrize(("text", "terms", "constant", "strict"), [
    ("C_L' >= 3/2 C_L", {"C_L": Fraction(3, 2), "C_L'": Fraction(-1)}, 0, False),
    ("queue < 2 * k - 1", {"queue": Fraction(1)}, -5, True),
    ("served + 4 C_L' - 4 C_L >= k * rtts", {"served": -1, "C_L'": -4, "C_L": 4}, 18, False),
    ("- MSS <= 0.5", {"MSS": -1}, Fraction(-1, 2), False),
])  # fmt: skip
def test_comparisons_are_read_as_written(text, terms, constant, strict) -> None:
    node = parse(text, "test", {"k": Fraction(3), "rtts": Fraction(6)}, {})
    assert isinstance(node, Comparison)
    assert (dict(node.left.terms), node.left.constant, node.strict) == (terms, constant, strict)


@pytest.mark.parametrize(("rank", "segments", "start", "traces"), [
    ({"of": "C_L", "times": "2", "until": "1/2"}, 100, 0, 6), ({"of": "C_L", "times": "2", "until": "1/2"}, 2, 0, 0),
    ({"of": "C_L_lambda", "by_mss": "1/2", "until": "1/4"}, 100, 0, 48),
    ({"of": "queue", "minus": "3", "until": "4"}, 100, 12, 3), ({"of": "C_U", "over": "2", "until": "1", "jump": "3"}, 100, 0, 3),
])  # fmt: skip
def test_how_often_a_rank_moves(rank, segments, start, traces) -> None:
    assert traces_to_end(rank, {}, segments, Fraction(start)) == traces


def test_a_theorem_of_a_program_from_a_file_is_read_from_data() -> None:
    loaded = planted()[0].loaded
    again = read_theorem(loaded.theorem, loaded.program, "again")
    assert again == loaded


def test_an_answer_about_lassos_is_not_undone_by_a_shorter_limit() -> None:
    told = {"bound": 0.9, "found": "none", "reason": "", "seconds": 1.0, "sha256": "x", "traces": ["x"]}
    report = {"theorem": "a", "traces_joined": 2, "claims": {"utilisation": told}}
    first = merge_lassos([], [report])
    assert (
        first[0]["command"] == "ccenv verify theorem a -s lasso=2 -s bounds.utilisation=9/10 --json" and "traces" not in first[0]
    )
    assert merge_lassos(first, [{**report, "claims": {"utilisation": told | {"found": "unknown"}}}]) == first
    assert list(lassos({"lassos": first})[0].values()) == ["a", "2", "", "less than 0.9 of the link", ""]
