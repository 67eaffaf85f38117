"""Belief programs that share a link: cycles that starve a flow for ever, and a program that none can starve."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from ccenv.agents.programs import parse_program
from ccenv.attacks.constructions import late_start
from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import load_trace
from ccenv.proofs.claims.fairness import program_query
from ccenv.proofs.claims.verifier import Verifier
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.program import ProgramSmtSender

pytest.importorskip("z3")


@pytest.mark.parametrize(("name", "flows"), [("cc_qdel", 2), ("cc_qdel", 3), ("cc_probe_drain", 2)])
def test_a_cycle_starves_a_flow(name, flows) -> None:
    """The trace is replayed exactly; it ends as it begins, and no window of it repeated moves the starved flow's C_L."""
    ratio, samples = Fraction(10), 6
    result = Verifier(60).decide(program_query(smt_sender(name), ratio, samples, flows))
    assert result.verdict == "refuted" and result.view is not None
    view = result.view
    starved, other = view.flows[:2]
    cycle = samples - 2
    gains = [flow.S[-1] - flow.S[1] for flow in view.flows]
    assert gains[1] > ratio * gains[0]
    for flow in view.flows:
        assert flow.rate[1] == flow.rate[-1] and flow.E[1] - flow.S[1] == flow.E[-1] - flow.S[-1]
        assert flow.C_L is not None and flow.C_L[1] == flow.C_L[-1]
    curve = [starved.S[1 + k % cycle] + (k // cycle) * gains[0] for k in range(5 * cycle)]
    windows = [(curve[b] - curve[a]) / (b - a + 1) for a in range(len(curve)) for b in range(a + 1, len(curve))]
    assert max(windows) <= starved.C_L[-1] and other.C_L[-1] > starved.C_L[-1]


def test_senders_at_one_rate_cannot_starve_each_other() -> None:
    data = {"format": "ccenv-program", "version": 1, "name": "flat", "source": "a test", "rule": {"rate": {"MSS/Rm": 2}}}
    sender = ProgramSmtSender(parse_program(data))
    assert Verifier(60).decide(program_query(sender, Fraction(1), 6, 3)).verdict == "verified"


def test_fairness_of_a_program_on_the_command_line(tmp_path, monkeypatch, capsys, refused) -> None:
    monkeypatch.setenv("CCENV_CACHE", str(tmp_path / "cache"))
    arguments = ["verify", "fairness", "cc_probe_drain", "--flows", "3", "--T", "6", "--json", "--out", str(tmp_path)]
    assert main(arguments) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["flows"], data["ratio"], data["bound"]) == ("refuted", 3, 10.0, None)
    assert data["replay"]["engine"] == "reproduced"
    refused(["verify", "fairness", "reno", "--json"], "is no belief program")


def test_programs_without_an_encoding_are_played_from_a_late_start(tmp_path, capsys) -> None:
    """cc_probe_slow: newcomers stay at one segment per Rm for ever; the cycle lies in a legal run, which goes on with it."""
    arguments = ["verify", "fairness", "cc_probe_slow", "--flows", "3", "--json", "--out", str(tmp_path)]
    assert main(arguments) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["flows"], data["model"], data["bound"]) == ("refuted", 3, "cbr_delay", None)
    cycle, found = data["evidence"]["cycle_rtts"], data["evidence"]["found_ratio"]
    trace = load_trace(data["trace"])
    assert check_trace(trace) == []
    steps, K = cycle * trace.header.steps_per_rtt, trace.header.steps_per_rtt
    got = trace.S[-1] - trace.S[-1 - steps]
    assert got.max() / got.min() == pytest.approx(found) and found > 10
    assert got.min() == pytest.approx(cycle * trace.header.path.mss_bytes)
    before = trace.S[-1 - steps] - trace.S[-1 - 2 * steps]
    assert before == pytest.approx(got)
    assert trace.beliefs["C_L_lambda"][-1 - steps :: K, 1].max() == trace.beliefs["C_L_lambda"][-1, 1]


def test_a_late_start_without_a_cycle_is_unknown(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(late_start, "late_start", lambda *_: None)
    assert main(["verify", "fairness", "cc_probe_slow", "--json", "--out", str(tmp_path)]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "unknown" and "have no encoding" in data["reason"] and not list(tmp_path.iterdir())
    assert late_start.late_start_outcome
