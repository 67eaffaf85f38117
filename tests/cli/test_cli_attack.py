"""``ccenv attack``: JSON, traces on disk, resuming, one clear line for wrong input."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import load_trace

QUICK = ["--budget", "200000", "--steps-per-rtt", "4", "--warmup-rtts", "10", "--window-rtts", "10"]


def attack(capsys, *arguments):
    code = main(["attack", *arguments, *QUICK, "--json"])
    out, err = capsys.readouterr()
    return code, (json.loads(out) if out else None), err


def test_prints_and_stores_the_worst(capsys, tmp_path):
    out = tmp_path / "attack"
    code, data, _ = attack(capsys, "cc_qdel", "--out", str(out))
    assert code == 0
    assert data["legal"] is True
    assert data["worst_utilisation"] == min(f["worst_utilisation"] for f in data["by_adversary"].values())
    trace = load_trace(data["trace"])
    assert not check_trace(trace)
    gained = trace.S[-1, 0] - trace.S[40, 0]
    assert gained / (trace.header.path.link_rate_Bps * 10 * 0.04) == pytest.approx(data["worst_utilisation"])


def test_goes_on_with_an_interrupted_attack(capsys, tmp_path, monkeypatch):
    from ccenv.attacks.searches import population as cem

    out = tmp_path / "attack"
    first = attack(capsys, "copa", "--out", str(tmp_path / "other"))[1]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cem.Cem, "run", interrupted)
        assert main(["attack", "copa", *QUICK, "--out", str(out)]) == 130
    capsys.readouterr()
    again = attack(capsys, "copa", "--out", str(out))[1]
    for data in (first, again):
        for entry in data["by_adversary"].values():
            del entry["seconds"]
            for kind in ("trace", "moves"):
                assert Path(entry.pop(kind)).is_file()
    assert again["by_adversary"] == first["by_adversary"]


def test_a_trace_that_the_checker_refuses_means_exit_code_1(capsys, monkeypatch, tmp_path):
    """An engine that breaks a law, here by bytes that nobody sent, is not covered up."""

    def check_with_bytes_too_many(trace):
        return check_trace(replace(trace, S=trace.S + 1e9 * np.eye(len(trace.S))[:, -1:]))

    module = import_module("ccenv.attacks.run")  # the package has a function of this name
    monkeypatch.setattr(module, "check_trace", check_with_bytes_too_many)
    code, data, err = attack(capsys, "cubic", "--adversary", "corners", "--out", str(tmp_path / "a"))
    assert code == 1
    assert data["legal"] is False
    assert err.startswith("ccenv: not legal: corners: ")
    assert err.count("\n") == 1


def test_starvation_with_a_ratio(capsys, tmp_path):
    code = main(["attack", "vegas", "--adversary", "starvation", "--ratio", "20", "--out", str(tmp_path / "a"), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert code == 0
    assert data["by_adversary"]["starvation"]["ratio"] >= 20
    assert all(data["by_adversary"]["starvation"]["preconditions"].values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["copa", "--adversary", "starvatoin"], "starvation"),
        (["cpoa"], "copa"),
        (["copa", "--model", "ccaac"], "ccac"),
        (["copa", "--path", "depe"], "deep"),
        (["copa", "--model", "ideal"], "no choice"),
        (["copa", "--ratio", "20"], "--adversary starvation"),
        (["copa", "--jitter-rtts", "0.3"], "whole number of steps"),
        (["copa", "--jitter=-1"], "--jitter is '-1'"),
        (["copa", "--rtt-ms", "0"], "rtt_s is 0; it must be"),
        (["copa", "--buffer", "4parsecs"], "--buffer is '4parsecs'"),
        (["copa", "--timing", "smtt"], "Did you mean 'smt'"),
        (["external"], "unknown agent"),
    ],
)
def test_wrong_input_is_one_line(capsys, tmp_path, arguments, message):
    code, _, err = attack(capsys, *arguments, "--out", str(tmp_path / "a"))
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_damaged_part_of_an_attack_is_named(capsys, tmp_path):
    out = tmp_path / "attack"
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "corners")[0] == 0
    for kept in ("corners.npz", "corners.moves.npz"):
        whole = (out / kept).read_bytes()
        (out / kept).write_bytes(whole[:100])
        code, _, err = attack(capsys, "copa", "--out", str(out), "--adversary", "corners")
        assert code == 2
        assert f"{kept}: truncated" in err
        assert err.count("\n") == 1
        (out / kept).write_bytes(whole)
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "corners")[0] == 0


def test_another_attack_in_the_folder_is_refused(capsys, tmp_path):
    out = tmp_path / "attack"
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "corners")[0] == 0
    code, _, err = attack(capsys, "copa", "--out", str(out), "--adversary", "random_search")
    assert code == 2
    assert "--fresh" in err


def test_fresh_discards_the_attack_and_nothing_else(capsys, tmp_path):
    out = tmp_path / "attack"
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "corners")[0] == 0
    (out / "notes.txt").write_text("mine")
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "random_search", "--fresh")[0] == 0
    assert {file.name for file in out.iterdir()} == {
        *(".lock", "attack.json", "random_search.npz", "random_search.moves.npz", "notes.txt"),
    }


def test_runs_that_would_not_fit_into_memory_are_refused(capsys, tmp_path):
    assert main(["attack", "copa", "--steps-per-rtt", "1000000", "--out", str(tmp_path / "a")]) == 2
    assert "make runs of 120000000 steps; at most 100000" in capsys.readouterr().err


def test_scenarios_without_an_end_to_the_buffer_are_json(capsys, tmp_path):
    arguments = ("copa", "--path", "infinite", "--adversary", "evolution:population=4", "--out", str(tmp_path / "a"))
    code, data, _ = attack(capsys, *arguments)
    assert code == 0
    assert {f["buffer_bdp"] for f in data["by_adversary"]["evolution"]["details"]["different_failures"]} == {None}


PLAIN = """
import ccenv


class Plain(ccenv.PythonSender):
    def on_loss(self, loss):
        self.cwnd_bytes = max(self.mss_bytes, 0.5 * self.cwnd_bytes)
"""
SHORT = [
    "--steps-per-rtt",
    "4",
    "--warmup-rtts",
    "5",
    "--window-rtts",
    "5",
    "--adversary",
    "corners",
    "--adversary",
    "cem",
    "--json",
]


def test_a_budget_in_seconds_becomes_steps_once(capsys, tmp_path, monkeypatch):
    (tmp_path / "plain.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    command = ["attack", "plain.py", "--budget", "1s", *SHORT]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["budget_s"] == 1
    steps = first["budget_flow_steps"]
    assert int(str(steps).rstrip("0")) in (1, 2, 5)
    assert 9 * 40 < first["flow_steps"] <= steps
    module = import_module("ccenv.attacks.run")
    monkeypatch.setattr(module, "flow_steps_within", lambda *_: pytest.fail("timed again"))
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert main(["attack", "plain.py", "--budget", str(steps), "--out", "again", *SHORT]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["worst_utilisation"] == first["worst_utilisation"]
    assert again["flow_steps"] == first["flow_steps"]


def test_only_plain_python_has_a_default_in_seconds(tmp_path):
    from ccenv.agents.load import load_sender
    from ccenv.attacks.run import default_budget_s

    (tmp_path / "plain.py").write_text(PLAIN)
    assert default_budget_s(load_sender(str(tmp_path / "plain.py"))) == 60
    assert default_budget_s(load_sender("cubic")) is None


@pytest.mark.parametrize("budget", ["3furlongs", "0s", "-1s", "1.5", "s", "0", "-5"])
def test_a_budget_that_is_none_is_one_line(capsys, tmp_path, budget):
    assert main(["attack", "cubic", f"--budget={budget}", "--out", str(tmp_path / "a")]) == 2
    err = capsys.readouterr().err
    assert "--budget is" in err
    assert "at least 0" not in err
    assert err.count("\n") == 1
