"""``ccenv attack`` on curves and per packet: JSON, traces on disk, resuming, older code, one clear line for wrong input."""

import importlib.util
import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from own_process import run_apart

from ccenv.agents import load
from ccenv.attacks import run
from ccenv.attacks.boxes import run as boxes
from ccenv.base.files import locked
from ccenv.cli import attack as commands
from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import load_trace
from ccenv.simulation.packet_trace import check_packet_trace

QUICK = ["--budget", "200000", "-s", "steps_per_rtt=4", "-s", "warmup_rtts=10", "-s", "window_rtts=10"]
PACKETS = ["--scenario", "jittered", "--budget", "20000", "-s", "warmup_rtts=10", "-s", "window_rtts=10"]
ARENAS = {"curves": QUICK, "packets": PACKETS}
in_both_arenas = pytest.mark.parametrize("arena", ARENAS)


def attack(capsys, *arguments, arena="curves"):
    code = main(["attack", *arguments, *ARENAS[arena], "--json"])
    out, err = capsys.readouterr()
    return code, (json.loads(out) if out else None), err


def plain(data):
    """Return a result without times and files, in which equal attacks differ."""
    if isinstance(data, dict):
        return {name: plain(value) for name, value in data.items() if name not in ("seconds", "trace", "moves")}
    return data


@in_both_arenas
def test_prints_and_stores_the_worst(capsys, tmp_path, arena):
    out = tmp_path / "attack"
    code, data, _ = attack(capsys, "copa", "--seed", "1", "--out", str(out), arena=arena)
    assert code == 0
    assert data["legal"] is True
    assert data["worst_utilisation"] == min(f["worst_utilisation"] for f in data["by_adversary"].values())
    trace = load_trace(data["trace"])
    assert not (check_packet_trace if arena == "packets" else check_trace)(trace)
    if arena == "curves":
        gained = trace.S[-1, 0] - trace.S[40, 0]
        assert gained / (trace.header.path.link_rate_Bps * 10 * 0.04) == pytest.approx(data["worst_utilisation"])
    stored = json.loads((out / "attack.json").read_text())
    assert stored["format"] == {"curves": "ccenv-attack", "packets": "ccenv-packet-attack"}[arena]
    assert stored[{"curves": "findings", "packets": "by_adversary"}[arena]].keys() == data["by_adversary"].keys()
    assert (out / (stored["result"] if arena == "curves" else stored)["trace"]).samefile(data["trace"])

    assert attack(capsys, "copa", "--seed", "1", "--out", str(out), arena=arena)[1] == data  # all of it from disk
    code, _, err = attack(capsys, "copa", "--seed", "2", "--out", str(out), arena=arena)
    assert code == 2 and err.endswith("holds an attack with other settings: --fresh starts anew\n")
    again = attack(capsys, "copa", "--seed", "1", "--out", str(out), "--fresh", arena=arena)[1]
    assert plain(again) == plain(data)


def attack_until_the_third(number, arguments):
    """Attack in a process that gets a signal when its third search begins."""
    search, begun = run._search, []

    def search_until_the_third(arena, one, name, *more):
        begun.append(name)
        if len(begun) == 3:
            os.kill(os.getpid(), number)
        return search(arena, one, name, *more)

    run._search = search_until_the_third
    return main(arguments)


@pytest.mark.parametrize(("arena", "number", "code"), [("curves", signal.SIGINT, 130), ("packets", signal.SIGKILL, -9)])
def test_goes_on_with_an_interrupted_attack(capsys, tmp_path, monkeypatch, arena, number, code):
    whole = attack(capsys, "copa", "--out", str(tmp_path / "whole"), arena=arena)[1]
    arguments = ["attack", "copa", *ARENAS[arena], "--out", str(tmp_path / "part")]
    assert run_apart(attack_until_the_third, number, arguments, folder=tmp_path, limit_s=400).returncode == code
    searched, search = [], run._search
    monkeypatch.setattr(run, "_search", lambda *given: searched.append(given[2]) or search(*given))
    again = attack(capsys, "copa", "--out", str(tmp_path / "part"), arena=arena)[1]
    assert plain(again) == plain(whole)
    assert len(searched) == len(whole["by_adversary"]) - 2
    assert load_trace(again["trace"]).n_steps == load_trace(whole["trace"]).n_steps


@in_both_arenas
def test_what_older_code_found_is_played_again(capsys, tmp_path, monkeypatch, arena):
    """Kept where the outcome is the same, searched again where not, or where there are no moves; and always told."""
    named = ["copa", *(f"--adversary={name}" for name in ("corners", "cem", "square:duty=0.5")), "--out", str(tmp_path / "a")]
    file, entries = tmp_path / "a" / "attack.json", {"curves": "findings", "packets": "by_adversary"}[arena]
    with monkeypatch.context() as older:
        older.setattr(commands, "code_hash", lambda *_: "older")
        first = attack(capsys, *named, arena=arena)[1]
    searched, search = [], run._search
    monkeypatch.setattr(run, "_search", lambda *given: searched.append(given[2]) or search(*given))
    for _ in range(2):  # the second time all of it comes from disk
        kept = attack(capsys, *named, arena=arena)[1]
        square = next(name for name in kept["by_adversary"] if name.startswith("square"))
        assert searched == [square]
        assert kept.pop("of_older_code") == ["corners", "cem"]
        assert [kept["by_adversary"][name].pop("found_by") for name in ("corners", "cem")] == ["older", "older"]
        assert plain(kept) == plain(first)
    assert main(["attack", *named, *ARENAS[arena]]) == 0
    assert "2 of 3 found by older code and played again with the same outcome: corn" in " ".join(capsys.readouterr().out.split())

    monkeypatch.setattr(commands, "code_hash", lambda *_: "newer")
    document = json.loads(file.read_text())
    document[entries]["cem"]["worst_utilisation"] *= 0.9
    file.write_text(json.dumps(document))
    searched.clear()
    again = attack(capsys, *named, arena=arena)[1]
    assert set(searched) == {"cem", square}
    assert again.pop("of_older_code") == ["corners"] and again["by_adversary"]["corners"].pop("found_by") == "older"
    assert plain(again) == plain(first)


def test_a_finished_attack_that_does_not_name_its_code_is_older(capsys, tmp_path):
    out = tmp_path / "attack"
    named = ["copa", "--adversary", "cem", "--adversary", "corners", "--out", str(out)]
    first = attack(capsys, *named)[1]
    document = json.loads((out / "attack.json").read_text()) | {"key": "of settings and code"}
    for entry in document["findings"].values():
        del entry["code"]
    (out / "attack.json").write_text(json.dumps(document | {"result": {}}))
    assert "--fresh" in attack(capsys, *named)[2]  # nothing tells its seed
    (out / "attack.json").write_text(json.dumps(document))
    assert "--fresh" in attack(capsys, *named, "--seed", "3")[2]
    again = attack(capsys, *named)[1]
    assert again.pop("of_older_code") == ["cem", "corners"]
    assert [entry.pop("found_by") for entry in again["by_adversary"].values()] == ["unknown", "unknown"]
    assert plain(again) == plain(first)


@in_both_arenas
def test_a_trace_that_the_checker_refuses_means_exit_code_1(capsys, monkeypatch, tmp_path, arena):
    """An engine that breaks a law, here by bytes that nobody sent, is not covered up."""
    module, name = {"curves": (run, "check_trace"), "packets": (boxes, "check_packet_trace")}[arena]
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda trace: real(replace(trace, S=trace.S + 1e9 * np.eye(len(trace.S))[:, -1:])))
    code, data, err = attack(capsys, "cubic", "--adversary", "corners", "--out", str(tmp_path / "a"), arena=arena)
    assert code == 1
    assert data["legal"] is False
    assert err.startswith("ccenv: not legal: corners: ") and err.count("\n") == 1


def test_a_bound_is_told_beside_what_others_come_to(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["--model", "cbr_delay", "--flows", "2", "--goal", "starvation", "--adversary", "square"]
    _, data, _ = attack(capsys, "ever_delay:rm_ms=40", *given)
    assert list(data["beside"]) == ["copa", "exp_delay"]
    _, copa, _ = attack(capsys, "copa", *given)
    assert data["beside"]["copa"] == copa["worst_value"] >= 1.0
    assert "beside" not in copa and "theorem" not in copa
    assert data["theorem"]["certificate"] == "ever_delay" and [line[:3] for line in data["theorem"]["broken"]] == [
        "(1)",
        "(2)",
        "(6)",
    ]


def test_starvation_with_a_ratio(capsys, tmp_path):
    code = main(["attack", "vegas", "--adversary", "starvation", "-s", "ratio=20", "--out", str(tmp_path / "a"), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert code == 0
    assert data["by_adversary"]["starvation"]["ratio"] >= 20
    assert all(data["by_adversary"]["starvation"]["preconditions"].values())


@pytest.mark.parametrize("name", commands.NEEDS_CMA)
def test_a_missing_library_is_told_before_the_sender_is_compiled(monkeypatch, refused, name):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None if module == "cma" else find(module))
    monkeypatch.setattr(load, "load_sender", lambda *_: pytest.fail("compiled"))
    refused(["attack", "copa", "--adversary", f"{name}:population=4"], "ccenv[attack]")


@in_both_arenas
@pytest.mark.parametrize(
    "damage", [{"worst_utilisation": "low"}, {"trace": "../x.npz"}, {"trace": "nowhere.npz"}, {"more": 1}, "trace", "moves"]
)
def test_a_damaged_part_of_an_attack_is_named(capsys, tmp_path, damage, arena):
    out = tmp_path / "attack"
    quick = ["copa", "--adversary", "corners", "--out", str(out)]
    assert attack(capsys, *quick, arena=arena)[0] == 0
    file, entries = out / "attack.json", {"curves": "findings", "packets": "by_adversary"}[arena]
    stored = json.loads(file.read_text())
    entry = stored[entries]["corners"]
    if isinstance(damage, dict):
        entry |= damage
        file.write_text(json.dumps(stored))
    elif damage in entry:
        cut = out / entry[damage]
        cut.write_bytes(cut.read_bytes()[:100])
    else:
        return  # the moves per packet stand in the document
    code, _, err = attack(capsys, *quick, arena=arena)
    assert code == 2 and "--fresh" in err and err.count("\n") == 1
    assert isinstance(damage, dict) or f"{entry[damage]}: truncated" in err
    assert attack(capsys, *quick, "--fresh", arena=arena)[0] == 0


def test_a_folder_is_of_one_attack_at_a_time_and_fresh_discards_that_alone(capsys, tmp_path):
    with locked(tmp_path / "attack", "attack"):
        code, _, err = attack(capsys, "copa", "--out", str(tmp_path / "attack"))
    assert code == 2 and "another attack is at work here" in err
    out = tmp_path / "other"
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "corners")[0] == 0
    (out / "notes.txt").write_text("mine")
    assert attack(capsys, "copa", "--out", str(out), "--adversary", "random_search", "--fresh")[0] == 0
    assert {file.name for file in out.iterdir()} == {
        *(".lock", "attack.json", "random_search.npz", "random_search.moves.npz", "notes.txt")
    }


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
    "-s", "steps_per_rtt=4", "-s", "warmup_rtts=5", "-s", "window_rtts=5", "--adversary=corners", "--adversary=cem", "--json",
]  # fmt: skip


def test_a_budget_in_seconds_becomes_steps_once(capsys, answer, tmp_path, monkeypatch):
    (tmp_path / "plain.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    command = ["attack", "plain.py", "--budget", "1s", *SHORT]
    first = answer(command)
    assert first["budget_s"] == 1
    steps = first["budget_flow_steps"]
    assert int(str(steps).rstrip("0")) in (1, 2, 5)
    assert 9 * 40 < first["flow_steps"] <= steps
    monkeypatch.setattr(run, "flow_steps_within", lambda *_: pytest.fail("timed again"))
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == first
    again = answer(["attack", "plain.py", "--budget", str(steps), "--out", "again", *SHORT])
    assert again["worst_utilisation"] == first["worst_utilisation"] and again["flow_steps"] == first["flow_steps"]


def test_only_plain_python_has_a_default_in_seconds(tmp_path):
    from ccenv.agents.load import load_sender
    from ccenv.attacks.run import default_budget_s

    (tmp_path / "plain.py").write_text(PLAIN)
    assert default_budget_s(load_sender(str(tmp_path / "plain.py"))) == 60
    assert default_budget_s(load_sender("cubic")) is None
