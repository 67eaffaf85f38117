"""Ctrl-C and SIGTERM end every long command soon and keep what is done; workers end with a killed command."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import SUITE, start
from processes import alive, descendants, wait_until

SOON_S = 20.0  # a second, on a machine that is slow and does other things; what is ended would run for minutes
SAYS = {
    signal.SIGINT: "ccenv: interrupted; run the same command again: what can be resumed, resumes\n",
    signal.SIGTERM: "ccenv: terminated; run the same command again: what can be resumed, resumes\n",
}
IN_PROCESSES = "bench run long.yaml --out out -s backend=processes --jobs 2"

SOLVER = "libz3"
# What is started -> what shows that it is at work: a file (relative to its folder), or the solver's library in as many processes
# as it works in; or None: it is given some seconds.
QUICK = {
    "verify lemmas cc_qdel --T 11 --fresh": SOLVER,
    "verify lemmas cc_qdel --T 11 --fresh --jobs 2": SOLVER,
    IN_PROCESSES: "out/cells.jsonl",
}
SLOW = {
    "attack cubic --budget 2000000000 --out out": "out/attack.json",
    "attack cubic --budget 2000000000 --out late": None,
    "synth g1_t11_timeouts --out out": None,
    "synth g1_t11_timeouts --out out --jobs 2": None,
    "train quick_sender --set total_steps=9000000 --out out": "out/progress.csv",
    "ode sweep validation": None,
    "verify envelope cc_qdel --budget 600 --fresh --jobs 2": None,
    "verify property cc_qdel --T 12 --fresh --recheck yices": None,
    "distill learned_nominal --out out": None,
    "bench run long.yaml --out out -s backend=ray --jobs 2": "out/cells.jsonl",
}
AT_WORK_S = 6.0


def solvers(process: int) -> int:
    """Return how many processes, one and those below it, have loaded the solver."""
    found = 0
    for each in {process, *descendants(process)}:
        with suppress(OSError):  # it has ended
            found += SOLVER in Path(f"/proc/{each}/maps").read_text()
    return found


def at_work(process: subprocess.Popen[str], command: str, sign: str | None, folder: Path) -> None:
    if sign is None:
        wait_until(lambda: process.poll() is not None, AT_WORK_S)
    elif sign == SOLVER:
        workers = 2 if command.endswith("--jobs 2") else 1
        assert wait_until(lambda: solvers(process.pid) >= workers or process.poll() is not None, 600), command
        wait_until(lambda: process.poll() is not None, 1.0)
    else:
        assert wait_until(lambda: (folder / sign).exists() or process.poll() is not None, 600), command
    assert process.poll() is None, process.communicate()


def end(command: str, sign: str | None, folder: Path, number: signal.Signals) -> subprocess.Popen[str]:
    """Start a command, end it when it is at work, and hold it to a short time, one line, its code, and no process left."""
    process = start(folder, *command.split())
    at_work(process, command, sign, folder)
    below = descendants(process.pid)
    begin = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    took_s = time.monotonic() - begin
    assert process.returncode == 128 + number
    assert err.splitlines(keepends=True)[-1] == SAYS[number]
    assert "Traceback" not in err
    assert took_s < SOON_S
    assert wait_until(lambda: not alive(below), SOON_S)
    return process


def kill(process: subprocess.Popen[str], least: int = 2) -> None:
    """Kill a command with at least so many processes below it, of which none may be left."""
    below = descendants(process.pid)
    assert len(below) >= least
    process.kill()
    process.wait()  # not for its pipes: a process that is left would hold them
    assert wait_until(lambda: not alive(below), SOON_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "long.yaml").write_text(
        SUITE.format(name="long", duration_rtts=4000, agents="reno, cc_probe_drain", seeds=", ".join(map(str, range(1, 201))))
    )
    return tmp_path


@pytest.mark.parametrize("command", QUICK)
def test_a_signal_ends_a_command_soon(folder: Path, command: str) -> None:
    number = signal.SIGTERM if command.endswith(" 2") else signal.SIGINT
    end(command, QUICK[command], folder, number)


@pytest.mark.slow  # 10 s each
@pytest.mark.parametrize("number", list(SAYS), ids=lambda number: number.name)
@pytest.mark.parametrize("command", SLOW)
def test_a_signal_ends_every_long_command_soon(folder: Path, command: str, number: signal.Signals) -> None:
    end(command, SLOW[command], folder, number)


def test_what_an_ended_run_has_finished_is_kept_and_used(folder: Path, monkeypatch: pytest.MonkeyPatch, answer) -> None:
    command = "bench run long.yaml --out out"
    end(command, "out/cells.jsonl", folder, signal.SIGINT)
    kept = (folder / "out" / "cells.jsonl").read_bytes()
    assert kept.endswith(b"\n")
    monkeypatch.chdir(folder)
    assert answer([*command.split(), "--limit", "1", "--json"])["n_cells"] == kept.count(b"\n") + 1


@pytest.mark.parametrize("backend", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_killed_run_leaves_no_worker(folder: Path, backend: str) -> None:
    if backend == "ray":
        pytest.importorskip("ray")
    process = start(folder, *IN_PROCESSES.replace("processes", backend).split())
    assert wait_until((folder / "out" / "cells.jsonl").exists, 600)
    kill(process)


def test_a_killed_verification_leaves_no_worker(folder: Path) -> None:
    command = "verify lemmas cc_qdel --T 11 --fresh --jobs 2"
    process = start(folder, *command.split())
    at_work(process, command, SOLVER, folder)
    kill(process)


def test_an_external_solver_ends_with_the_process_that_asked() -> None:
    code = (
        "import ccenv.proofs.solver.solvers as s; print('at work', flush=True); "
        "s._run_external(['sh', '-c', 'exec sleep 600'], '', 600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "at work\n"
    assert wait_until(lambda: bool(descendants(process.pid)), 300)
    kill(process, least=1)


PARENT = """
import sys, time
import ccenv.base.interrupts
from ccenv.base.workers import Workers
def busy():
    if sys.argv[1] == "pipe":
        ccenv.base.interrupts._LIBC.prctl(1, 0, 0, 0, 0)  # as where the system has no such request
    time.sleep(600)
if __name__ == "__main__":
    with Workers(2) as workers:
        workers.submit(busy)
        workers.submit(busy)
        time.sleep(float(sys.argv[2]))
        print("at work", flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize(("how", "after_s"), [("pipe", 3.0), ("both", 3.0), ("both", 0.3)])
def test_workers_end_with_a_killed_parent_also_by_the_pipe_alone(tmp_path: Path, how: str, after_s: float) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), how, str(after_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None and process.stdout.readline() == "at work\n"
    kill(process)
