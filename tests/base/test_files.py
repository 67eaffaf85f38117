"""Locks: one process at a time, gone with its holder; files with rights of their own."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ccenv.base.errors import CcenvError
from ccenv.base.files import LOCK, is_empty, locked, write_atomic

HOLD = """
import sys, time
from pathlib import Path
from ccenv.base.files import locked
with locked(Path(sys.argv[1]), "training run"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_told_who_holds_the_folder_and_a_killed_holder_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        says = f"{folder}: another training run is at work here (process {holder.pid}); wait for it, or end it"
        with pytest.raises(CcenvError, match=f"^{re.escape(says)}$"), locked(folder, "training run"):
            pass
    finally:
        holder.kill()
        holder.wait()
    with locked(folder, "training run"):
        assert (folder / LOCK).read_text() == f"{os.getpid()}\n"
    assert is_empty(folder)
    (folder / ".record.json.77.0a1b2c3d.tmp").touch()  # of a write that was killed
    assert is_empty(folder)
    (folder / "something").touch()
    assert not is_empty(folder)


def test_a_folder_that_cannot_be_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CcenvError, match="cannot be made"), locked(tmp_path / "file" / "run", "training run"):
        pass


def test_a_written_file_has_the_rights_asked_for(tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", b"x", mode=0o600)
    write_atomic(tmp_path / "public", b"x")
    before = os.umask(0)
    os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o666 & ~before


WRITE = """
import os, signal, sys
from ccenv.base import files
files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
files.write_atomic(sys.argv[1], b"half")
"""


def test_what_a_killed_write_left_goes_with_the_next_write_of_that_file_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "board.jsonl.xz"
    assert subprocess.run([sys.executable, "-c", WRITE, str(file)], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1 and not file.exists()
    at_work = tmp_path / f".{file.name}.{os.getpid()}.0a1b2c3d.tmp"
    held = tmp_path / f".{file.name}.9999999.0a1b2c3d.tmp"  # of a process of another machine
    others = [at_work, held, tmp_path / ".other.9999999.0a1b2c3d.tmp", tmp_path / f".{file.name}.tmp"]
    for other in others:
        other.touch()
    with held.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        write_atomic(file, b"whole")
    assert set(tmp_path.iterdir()) == {file, *others} and file.read_bytes() == b"whole"
