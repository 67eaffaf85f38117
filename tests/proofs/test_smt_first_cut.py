"""The first verdicts: proved, a step that fails at a legal trace that the engine reproduces, and unknown where time runs out."""

from __future__ import annotations

import json

import pytest

from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.proofs.claims.claims import Thresholds, build_claim, full_invariant
from ccenv.proofs.claims.verifier import STEP_FAILS, Verifier
from ccenv.proofs.formulas.moves import REPLAY_TOLERANCE, engine_replay
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.senders.catalog import smt_sender

pytest.importorskip("z3")


def verdicts(name: str, samples: int, setting: str = "history", buffer: str = "infinite", claim: str = "invariant") -> list[str]:
    sender = smt_sender(name)
    chosen = named_setting(setting, Setting(samples=samples, buffer=buffer), sender.largest_rate())
    results = [Verifier(60).decide(query) for query in build_claim(claim, chosen, sender, Thresholds())]
    return [result.reason or result.verdict for result in results]


@pytest.mark.parametrize(
    ("name", "samples", "buffer", "proved"),
    [
        ("cc_qdel", 4, "infinite", False),  # Table 2, G1: no solution at T = 4
        ("cc_qdel", 5, "infinite", True),
        ("cc_qdel", 7, "infinite", True),
        ("cc_probe_drain", 7, "infinite", False),  # needs a longer trace
        ("cc_probe_fast", 7, "small", True),  # G2
        ("cc_qdel", 7, "small", False),
    ],
)
def test_invariant_verdicts(name: str, samples: int, buffer: str, proved: bool) -> None:
    seen = verdicts(name, samples, buffer=buffer)
    assert seen[0] == "verified"  # belief bounds are sound for any sender
    assert seen[-1] == ("verified" if proved else STEP_FAILS)


def drains_by(tmp_path, mss: int) -> str:
    """Write cc_qdel with the drain rate C_L/2 + mss * MSS/Rm and return the file."""
    drain = {"rate": {"C_L": "1/2"} | ({"MSS/Rm": mss} if mss else {})}
    rule = {"if": {"qdel_L": 1}, "then": drain, "else": {"rate": {"C_L": 2}}}
    file = tmp_path / "drain.json"
    file.write_text(json.dumps({"format": "ccenv-program", "version": 1, "name": "drain", "source": "test", "rule": rule}))
    return str(file)


@pytest.mark.parametrize(("mss", "samples", "proved"), [(-1, 4, False), (-1, 5, True), (0, 5, False), (0, 6, True)])
def test_invariant_under_the_published_delay_rule(mss: int, samples: int, proved: bool, tmp_path) -> None:
    """Table 2, G1 (4 solutions at T = 5, none at T = 4): they count constants, so the drain rate is C_L/2 - MSS/Rm there."""
    assert verdicts(drains_by(tmp_path, mss), samples, "artefact")[-1] == ("verified" if proved else STEP_FAILS)


@pytest.mark.parametrize(("name", "samples"), [("cc_qdel", 5), ("cc_probe_drain", 5), ("cc_qdel", 4), ("cc_probe_fast", 5)])
def test_static_reduction_agrees_with_moving_beliefs(name: str, samples: int) -> None:
    sender = smt_sender(name)
    setting = named_setting("history", Setting(samples=samples), sender.largest_rate())
    reduced = {Verifier(60).decide(q).reason for q in build_claim("invariant", setting, sender, Thresholds())}
    full = [Verifier(60).decide(q).reason for q in full_invariant(setting, sender, Thresholds())]
    assert (STEP_FAILS in reduced) == (full == [STEP_FAILS])


def test_counterexample_is_legal_and_the_engine_reproduces_it() -> None:
    sender = smt_sender("cc_probe_drain")
    for buffer in ("infinite", "small", "arbitrary"):
        setting = named_setting("sound", Setting(samples=7, buffer=buffer))
        result = [Verifier(60).decide(q) for q in build_claim("invariant", setting, sender, Thresholds())][-1]
        assert (result.verdict, result.reason) == ("unknown", STEP_FAILS)
        assert result.view is not None
        trace = as_trace(result.view, sender.name)
        assert check_trace(trace) == []
        assert engine_replay(trace)[1] <= REPLAY_TOLERANCE


def test_time_limit_is_unknown_and_never_a_yes() -> None:
    sender = smt_sender("cc_qdel")
    query = build_claim("invariant", Setting(samples=12), sender, Thresholds())[-1]
    result = Verifier(0.02).decide(query)
    assert result.verdict == "unknown"
    assert "time limit" in result.reason


def test_command_line(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path / "cache"))
    folder = str(tmp_path / "out")
    assert main(["verify", "property", "cc_qdel", "--T", "5", "--json", "--recheck", "yices", "--out", folder]) == 0
    proved = json.loads(capsys.readouterr().out)
    assert proved["verdict"] == "verified"
    assert proved["sanity"]["satisfiable"] is True
    assert proved["recheck"]["confirmed"] is True
    assert proved["trace"] is None
    assert main(["verify", "property", "cc_probe_drain", "--T", "7", "--json", "--out", folder]) == 3
    failed = json.loads(capsys.readouterr().out)
    assert (failed["verdict"], failed["reason"]) == ("unknown", STEP_FAILS)
    assert failed["shows"]["utilisation"] > 0.5 and "fails" in failed and "violates" not in failed
    assert failed["replay"]["engine"] == "reproduced"
    assert main(["trace", "check", failed["trace"]]) == 0
    assert main(["replay", failed["trace"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1])["reproduced"] is True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "cc_qdel", "--T", "7"], "ccenv verify property cc_qdel [OPTIONS]"),
        (["verify", "aimd", "--property", "fairness"], "ccenv verify fairness aimd [OPTIONS]"),
        (["verify", "cc_qdel", "--property", "steady_utilisation"], "ccenv verify steady cc_qdel [OPTIONS]"),
        (["verify", "property", "cc_qdel", "--property", "steady_utilisation"], "ccenv verify steady cc_qdel [OPTIONS]"),
        (["verify", "lemma", "cc_qdel"], "Did you mean 'lemmas'?"),
        (["verify", "property", "cc_qdell"], "Did you mean 'cc_qdel'"),
        (["verify", "property", "cc_qdel", "--T", "2"], "3 to 40 samples"),
        (["verify", "property", "cc_qdel", "--T", "0"], "--T"),
        (["verify", "property", "cc_qdel", "--bisect"], "No such option: --bisect"),
        (["verify", "lemmas", "cc_qdel", "--upper", "exact"], "No such option: --upper"),
        (["verify", "envelope", "cc_qdel", "--model", "ideal"], "No such option: --model"),
        (["verify", "fairness", "aimd", "--at-most", "2", "--buffer", "2"], "No such option: --buffer"),
        (["verify", "property", "cc_qdel", "--model", "cac"], "Did you mean 'ccac'"),
        (["verify", "property", "cc_qdel", "--buffer", "smal"], "Did you mean 'small'"),
        (["verify", "property", "cc_qdel", "--property", "invariants"], "Did you mean 'invariant'"),
        (["verify", "property", "cc_qdel", "--recheck", "yice"], "Did you mean 'yices'"),
        (["verify", "property", "cc_qdel", "--property", "inflight"], "--at-most"),
        (
            ["verify", "property", "cc_qdel", "--property", "utilisation", "--at-least", "2"],
            "--at-least is 2; it must be at most 1",
        ),
        (["verify", "property", "cc_qdel", "--at-least", "0.99"], "'invariant' does not take --at-least"),
        (
            ["verify", "property", "cc_qdel", "--property", "queue", "--at-most", "5", "--at-least", "1"],
            "'queue' does not take --at-least",
        ),
        (["verify", "property", "cubic"], "no encoding"),
    ],
)
def test_bad_input_is_one_line(arguments, says, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
