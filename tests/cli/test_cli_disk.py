"""A full or read-only disk ends every command that writes in one line, with nothing half-written."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ccenv.cli.main import main


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write fails, as one on a full disk does
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize(
    ("limit", "command", "says"),
    [
        (0, "bench run quick --limit 1 --out out", "out/.lock: cannot be locked and written (File too large)"),
        (3000, "bench run quick --limit 1 --out out", "out/manifest.json: cannot be written (File too large)"),
        (0, "attack reno --budget 4000000 --out out", "out/.lock: cannot be locked and written (File too large)"),
        (0, "train quick_sender --out out", "cannot be"),
        (0, "board submit reno --board out", "the board's database: disk I/O error"),
        (0, "board pack cc_qdel --out out", "out/program.json: cannot be written (File too large)"),
        (0, "gap vegas --budget 200000 -s samples=4 --out out.json", "out.json: cannot be written (File too large)"),
        (0, "synth quick --out out", "/.lock: cannot be locked and written (File too large)"),
    ],
)
def test_a_full_disk_is_one_line(tmp_path, monkeypatch, capsys, limit, command, says):
    monkeypatch.chdir(tmp_path)
    with full_disk(limit):
        code = main(command.split())
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1), err
    assert err.startswith("ccenv: error: ")
    assert says in err
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    "command", ["bench run quick --out", "attack reno --out", "train quick_sender --out", "board submit reno --board"]
)
def test_a_folder_that_cannot_be_made_is_one_line(command: str, refused) -> None:
    refused([*command.split(), "/proc/none/out"], "ccenv: error: /proc/none/out")  # there nobody can, whatever rights they have


def test_a_refusal_of_the_system_names_the_file(monkeypatch: pytest.MonkeyPatch, refused) -> None:
    def fails(_: object) -> None:
        raise OSError(30, "Read-only file system", "some/file")

    monkeypatch.setattr("ccenv.network.trace.load_trace", fails)
    refused(["trace", "check", "x.npz"], "ccenv: error: some/file: Read-only file system\n")
