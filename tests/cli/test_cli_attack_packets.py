"""``ccenv attack --scenario``: JSON, traces on disk, one clear line for wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import load_trace
from ccenv.simulation.packet_trace import packet_slack_bytes

QUICK = ["--scenario", "jittered", "--budget", "20000", "--warmup-rtts", "10", "--window-rtts", "10"]


def attack(capsys: Any, *arguments: str) -> tuple[int, Any, str]:
    code = main(["attack", *arguments, *QUICK, "--json"])
    out, err = capsys.readouterr()
    return code, (json.loads(out) if out else None), err


def test_prints_and_stores_the_worst(capsys: Any, tmp_path: Path) -> None:
    out = tmp_path / "attack"
    code, data, _ = attack(capsys, "copa", "--seed", "1", "--out", str(out))
    assert code == 0 and data["legal"] is True
    assert data["worst_utilisation"] == min(one["worst_utilisation"] for one in data["by_adversary"].values())
    trace = load_trace(data["trace"])
    assert not check_trace(trace, slack_bytes=packet_slack_bytes(trace))
    stored = json.loads((out / "attack.json").read_text())
    assert stored["format"] == "ccenv-packet-attack"
    assert stored["by_adversary"].keys() == {"corners", "cem", "two_phase", "policy_cem"}
    assert (out / stored["trace"]).samefile(data["trace"])

    assert attack(capsys, "copa", "--seed", "1", "--out", str(out))[1] == data  # all of it from disk
    assert attack(capsys, "copa", "--seed", "2", "--out", str(out))[2].endswith("--fresh starts anew\n")
    again = attack(capsys, "copa", "--seed", "1", "--out", str(out), "--fresh")[1]
    for finding in (*data["by_adversary"].values(), *again["by_adversary"].values()):
        del finding["seconds"]
    assert again == data


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["copa", "--model", "strong"], "leave out --model"),
        (["copa", "--flows", "2"], "leave out --flows"),
        (["copa", "--budget", "5s"], "it is counted in steps"),
        (["copa", "--warmup-rtts", "-1"], "--warmup-rtts is -1"),
        (["copa", "--scenario", "jitered"], "Did you mean 'jittered'?"),
        (["copa", "--scenario", "single"], "nothing to attack with"),
        (["copa", "--adversary", "cma_es"], "cma_es"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(arguments: list[str], said: str, capsys: Any, tmp_path: Path) -> None:
    out = tmp_path / "attack"
    assert main(["attack", *QUICK, *arguments, "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not out.exists()


def test_an_interrupted_attack_goes_on_with_the_same_command(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccenv.attacks.boxes import run as box_attack

    whole = attack(capsys, "copa", "--out", str(tmp_path / "whole"))[1]
    real, searched = box_attack.search, []

    def search(game: Any, name: str, *more: Any) -> Any:
        searched.append(name)
        if searched == ["corners", "cem"]:
            raise KeyboardInterrupt
        return real(game, name, *more)

    monkeypatch.setattr(box_attack, "search", search)
    out = tmp_path / "attack"
    assert main(["attack", "copa", *QUICK, "--out", str(out)]) == 130
    again = attack(capsys, "copa", "--out", str(out))[1]
    assert searched == ["corners", "cem", "cem", "two_phase", "policy_cem"]
    for finding in (*whole["by_adversary"].values(), *again["by_adversary"].values()):
        del finding["seconds"]
    del whole["trace"], again["trace"]
    assert again == whole


@pytest.mark.parametrize("damage", [{"worst_utilisation": "low"}, {"trace": "../x.npz"}, {"trace": "nowhere.npz"}, {"more": 1}])
def test_a_damaged_finding_is_refused(damage: dict[str, Any], capsys: Any, tmp_path: Path) -> None:
    out = tmp_path / "attack"
    quick = ["copa", "--adversary", "corners", "--out", str(out)]
    assert attack(capsys, *quick)[0] == 0
    stored = json.loads((out / "attack.json").read_text())
    stored["by_adversary"]["corners"] |= damage
    (out / "attack.json").write_text(json.dumps(stored))
    code, _, err = attack(capsys, *quick)
    assert code == 2 and "--fresh" in err and err.count("\n") == 1
    assert attack(capsys, *quick, "--fresh")[0] == 0


def test_a_second_attack_in_the_folder_waits_for_nobody(capsys: Any, tmp_path: Path) -> None:
    from ccenv.base.files import locked

    with locked(tmp_path / "attack", "attack"):
        code, _, err = attack(capsys, "copa", "--out", str(tmp_path / "attack"))
    assert code == 2 and "another attack is at work here" in err
