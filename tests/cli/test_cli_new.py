"""``ccenv new``: every file that it writes works as it is. ``ccenv compare --kind``, lists, warnings, progress and completion."""

import contextlib
import json
from pathlib import Path

import pytest

from ccenv.base.errors import CcenvWarning
from ccenv.cli.main import main
from ccenv.cli.new import TEMPLATES, render_template
from ccenv.cli.output import progress_lines

NETWORK = ["--rate", "12mbps", "--duration", "2s"]
RUNS = {
    "sender": [["compare", "mine.py", *NETWORK], ["attack", "mine.py:Sender:share=0.2", "--adversary", "kind"]],
    "compiled": [["compare", "mine.py", *NETWORK, "-s", "limit="], ["attack", "mine.py", "--adversary", "kind"]],
    "adversary": [["compare", "reno", "--network", "mine.py", *NETWORK], ["attack", "reno", "--adversary", "mine.py"]],
    "reward": [],
    "signals": [],
    "metric": [["compare", "reno", "--metric", "mine.py", *NETWORK]],
    "suite": [["bench", "run", "mine.yaml", "--only", "deep/reno/kind/1"], ["bench", "report", "runs/bench/mine"]],
    "config": [["show", "mine.yaml"]],
    "scenario": [["sim", "mine.yaml"]],
    "program": [["show", "mine.json"], ["compare", "mine.json", *NETWORK]],
    "shield": [["show", "mine.json"], ["compare", "shield:file=mine.json,chooser=middle", *NETWORK]],
    "lemmas": [["verify", "lemmas", "mine.yaml"]],
    "theorem": [["verify", "theorem", "mine.yaml"]],
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_new_file_works_as_it_is(kind: str, capsys: pytest.CaptureFixture[str], refused) -> None:
    assert main(["new", kind, "mine"]) == 0
    assert "Try:" in capsys.readouterr().out
    for words in RUNS[kind]:
        assert main(words) == 0, capsys.readouterr().err
    refused(["new", kind, "mine"], "--fresh")


def test_a_new_reward_is_a_reward() -> None:
    import gymnasium
    import numpy as np

    main(["new", "reward", "mine"])
    with pytest.warns(CcenvWarning, match="plain Python"):
        env = gymnasium.make("ccenv/Sender-v0", reward="mine.py")
    env.reset(seed=1)
    steps = [env.step(np.ones(1, np.float32))[1] for _ in range(8)]
    assert np.isfinite(steps).all() and np.any(steps)


def test_new_signals_are_signals() -> None:
    import gymnasium

    main(["new", "signals", "mine"])
    with pytest.warns(CcenvWarning, match="plain Python"):
        env = gymnasium.make("ccenv/Sender-v0", signals=["queue_ratio", "loss_rate", "mine.py"], history=8)
    assert env.reset(seed=1)[0].tolist() == [0.0] * 17 + [1.0]


def test_a_new_config_is_a_config_and_templates_name_their_file() -> None:
    from ccenv.training.config import load_config

    main(["new", "config", "mine"])
    assert load_config("mine.yaml").total_steps == 500_000
    assert all("{" not in render_template(kind, "mine") for kind in ("sender", "compiled", "adversary", "metric"))
    assert all(json.loads(render_template(kind, "mine"))["name"] == "mine" for kind in ("program", "shield"))


@pytest.mark.parametrize("kind", ["scenarios", "paths", "signals", "networks"])
def test_lists(kind: str, answer) -> None:
    found = answer(["list", kind, "--json"])
    assert len(found) >= 5 and all(len(item["summary"]) < 200 for item in found)


def test_lists_of_signals_with_meaning_and_unit_and_of_senders(answer) -> None:
    found = answer(["list", "signals", "--json"])
    assert all(len(item["tags"]) == 2 and item["tags"][1] and len(item["summary"]) > 4 for item in found)
    told = {item["name"]: (item["summary"], item["tags"][1]) for item in found}
    assert told["ack.acked_bytes"] == ("newly acknowledged by this signal, > 0", "bytes")
    assert told["tick.dt_s"] == ("length of a step", "s")
    assert told["queue_ratio"][0].startswith("mean RTT / smallest RTT - 1")
    assert answer(["list", "senders", "--json"]) == answer(["list", "agents", "--json"]) != []


@pytest.mark.parametrize("words", ["export mine.py -o x.c", "verify property mine.py --property invariant", "board pack mine.py"])
def test_python_is_told_the_way_to_a_program(words: str, refused) -> None:
    main(["new", "sender", "mine"])
    refused(words.split(), "ccenv new program")


def test_which_ranks_and_keeps(answer, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccenv.benchmarks.compare import which
    from ccenv.benchmarks.suite.curve import load_suite

    changes = {"seeds": (1, 2), "agents": ("reno", "copa"), "duration_s": 3.0, "warm_up_s": 1.0}
    few = load_suite("networks").model_copy(update=changes)
    monkeypatch.setattr(which, "load_suite", lambda name: few)
    rows = [answer(["compare", "--kind", "cable", "--jobs", "1", "--json"])["rows"] for _ in range(2)]
    assert rows[0] == rows[1]
    scores = [row["values"]["power"]["iqm"] for row in rows[0]]
    assert scores == sorted(scores, reverse=True)
    assert {row["sender"] for row in rows[0]} == {"reno", "copa"}


def test_overlapping_intervals_are_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    from ccenv.benchmarks.compare import which

    values = {"a": [9.0, 10.0], "b": [8.0, 9.5], "c": [1.0, 2.0]}
    records = [{"agent": name, "metrics": {"power": v}} for name, runs in values.items() for v in runs]
    suite = which.load_suite("networks").model_copy(update={"metrics": ("power",)})
    rows = which._rank_senders(suite, "cable", records, "power")
    assert {row.sender: row.place for row in rows} == {"a": 1, "b": 1, "c": 3}


def test_an_odd_unit_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "reno", "--rate", "48gbps", "--rtt", "1ms", "--duration", "10ms", "--buffer", "10packets"]) == 0
    said = capsys.readouterr().err.strip()
    assert said.startswith("ccenv: warning: rate is '48gbps', 48000 Mbit/s; at most 40000 Mbit/s is usual")
    assert "\n" not in said
    assert main(["compare", "reno", "--rate", "1mbps", "--rtt", "40s", "--duration", "10ms"]) == 0
    assert "rtt is '40s'" in capsys.readouterr().err


def test_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("ccenv.cli.output.EVERY_S", 15.0)
    monkeypatch.setattr("ccenv.cli.output.time.monotonic", lambda: now[0])
    show = progress_lines("suite quick")
    for done in range(101):
        now[0] = float(done)
        show(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ccenv: suite quick: 15 of 100, about 85 s left" and len(lines) == 6


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(("typed", "expected"), [("comp", "compare"), ("attack cub", "cubic"), ("bench run --age", "--agent")])
def test_other_shells_complete_too(capsys, monkeypatch, shell, typed, expected):
    monkeypatch.delenv("COMP_WORDS", raising=False)
    monkeypatch.setenv("_CCENV_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"ccenv {typed}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        main([])
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("attack cub", ["cubic"]),
        ("attack copa --adversary hoa", ["hoard"]),
        ("attack copa --goal fa", ["fairness"]),
        ("bench run qui", ["quick"]),
        ("sim reno_del", ["reno_delack4"]),
        ("train ppo_send", ["ppo_sender"]),
        ("list sui", ["suites"]),
        ("compare cubic bbr3 learned_nominal_u", ["learned_nominal_u78"]),
        ("compare nothing_begins_so", []),
        ("comp", ["compare"]),
        ("compare --netw", ["--network"]),
    ],
)
def test_completion_offers_values(capsys, monkeypatch, typed, expected):
    monkeypatch.setenv("_CCENV_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"ccenv {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    with contextlib.suppress(SystemExit):
        main([])
    offered = capsys.readouterr().out.split()
    assert offered == expected if len(expected) != 1 else expected[0] in offered
