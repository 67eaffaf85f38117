"""What a submission provokes ends in a process that can be ended: it becomes a record with its reason, and the queue goes on."""

import json
import os
import time
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from board_records import SUITE
from misbehaving import Misbehaving

from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.leaderboard.evaluate.queue import Failed, Limits, Worker, make_limits

SMALL = Limits(cpu_s=1.0, memory_bytes=512 << 20)
STARTS_S = 60.0  # CPU time beside it, for a worker that first has to start, of all work that does not burn it
HOSTILE = [
    ("burn", "more than 1 s of CPU time for one part: ended"),
    ("burn in a child", "more than 1 s of CPU time for one part: ended"), ("memory", "more memory than the cap"),
    ("crash", "the worker ended with signal 11"), ("exit", "the worker ended with exit code 7"), ("value", "ValueError: two"),
    ("refuse", "x.json: too long"),
]  # fmt: skip


def test_hostile_work_is_ended_and_the_next_is_done() -> None:
    with Worker(SMALL) as worker:
        good = worker.do(Misbehaving("not at all", STARTS_S), lambda done, total: None)
        for how, reason in HOSTILE:
            failed = worker.do(Misbehaving(how, 0.0 if how.startswith("burn") else STARTS_S), lambda done, total: None)
            assert isinstance(failed, Failed), how
            assert reason in failed.reason, how
            good = worker.do(Misbehaving("not at all", STARTS_S), lambda done, total: None)
            assert not isinstance(good, Failed), how
        process = good[0]["process"]
    end_s = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and time.monotonic() < end_s:
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_limits_that_nothing_could_hold() -> None:
    assert make_limits(1.5, 0.25) == Limits(1.5, 256 << 20)
    for cpu_s, memory_gib in (
        (0.0, 8.0),
        (-1.0, 8.0),
        (float("nan"), 8.0),
        (1e8, 8.0),
        (1.0, 0.1),
        (1.0, float("inf")),
        (1.0, float("nan")),
    ):
        with pytest.raises(InputError, match=r"cell_(cpu_s|memory) is"):
            make_limits(cpu_s, memory_gib)


def test_a_failed_stage_is_stored_and_the_queue_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused) -> None:
    (tmp_path / "small.yaml").write_text(json.dumps(SUITE.model_dump(mode="json", exclude_none=True)))
    board = ["--board", str(tmp_path / "board")]
    play = ["board", "evaluate", *board, "--suite", str(tmp_path / "small.yaml"), "--budget", "0"]
    for name in ("reno", "cubic"):
        assert main(["board", "submit", name, *board]) == 0
    assert main([*play, "-s", "cell_cpu_s=0.001"]) == 0
    out = capsys.readouterr().out
    assert out.count("failed: more than 0.001 s of CPU time for one part") == 2 and main([*play, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stored"] == []  # the same code would only fail again
    assert main([*play, "-s", "retry=true", "--only", "cubic", "--json"]) == 0
    (stored,) = json.loads(capsys.readouterr().out)["stored"]
    assert (stored["kind"], stored["entry"]) == ("evaluation", "cubic")
    assert main([*play, "-s", "retry=true", "--only", "reno", "-s", "cell_cpu_s=0.001", "--json"]) == 0
    (stored,) = json.loads(capsys.readouterr().out)["stored"]
    assert stored["kind"] == "failure" and "CPU time" in stored["reason"]
    assert main(["board", "audit", *board, "-s", "sample=2", "-s", "proofs=0"]) == 0
    assert main(["board", "build", *board, "--out", str(tmp_path / "site")]) == 0
    shown = json.loads((tmp_path / "site" / "board.json").read_text())
    assert [failure["name"] for failure in shown["failures"]] == ["reno", "cubic", "reno"]
    refused([*play, "-s", "cell_cpu_s=0"], "cell_cpu_s is 0")
