"""Kernels are kept by content, compiled once for all processes, and said to be compiled."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba import njit, types

from ccenv.base import provenance
from ccenv.base.kernels import announce, cache
from ccenv.base.kernels.decorator import kernel
from ccenv.base.kernels.threads import share
from ccenv.base.provenance import module_file

ROOT = Path(__file__).parents[2]
ENGINE = "engine/curve/step.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the package that the digests are taken of."""
    copy = tmp_path / "copy" / "ccenv"
    shutil.copytree(ROOT / "ccenv", copy, ignore=shutil.ignore_patterns("__pycache__", "*.json", "*.npz", "*.safetensors"))
    move(monkeypatch, copy)
    yield copy
    forget()


def move(monkeypatch: pytest.MonkeyPatch, package: Path) -> None:
    for module in (cache, provenance):
        monkeypatch.setattr(module, "ROOT", package)


def forget() -> None:
    for remembered in (cache._content, cache._imports, module_file, cache._state_folder, cache.closure_digest):
        remembered.cache_clear()


def digest(package: Path) -> str:
    forget()
    return cache.closure_digest(package / ENGINE)


def test_a_copy_has_the_digest_of_the_original(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = digest(package)
    move(monkeypatch, ROOT / "ccenv")
    assert digest(ROOT / "ccenv") == copied


@pytest.mark.parametrize(
    ("file", "compiles"),
    [
        (ENGINE, True),
        ("engine/curve/step.py", True),  # inlined
        ("agents/programs/__init__.py", True),  # constants, two imports away
        ("base/kernels/dispatcher.py", True),  # decides how is compiled
        ("base/kernels/cache.py", False),
        ("cli/main.py", False),
        ("engine/packet/kernel.py", False),
    ],
)
def test_what_a_kernel_imports_decides(package: Path, file: str, compiles: bool) -> None:
    before = digest(package)
    os.utime(package / file, (1, 1))
    assert digest(package) == before
    with (package / file).open("a", encoding="utf-8") as text:
        text.write("\n# changed\n")
    assert (digest(package) != before) == compiles


USER = """
from ccenv.base.kernels.decorator import kernel
@kernel
def times(x):
    return {} * x
"""


def test_machine_code_is_found_again_until_its_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    file = tmp_path / "user.py"

    def misses(folder: Path, result: float) -> int:
        forget()
        name = f"user_of_{folder.name}"  # as ccenv names a file of a user: by its place
        spec = importlib.util.spec_from_file_location(name, folder / file.name)
        module = importlib.util.module_from_spec(spec)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
            module.times(20.0)
        assert module.times(20.0) == result
        return module.times.stats.cache_misses.total()

    file.write_text(USER.format(2), encoding="utf-8")
    assert misses(tmp_path, 40.0) == 1
    os.utime(file, (1, 1))
    (tmp_path / "copy").mkdir()
    shutil.copy(file, tmp_path / "copy")
    assert misses(tmp_path, 40.0) == 0
    assert misses(tmp_path / "copy", 40.0) == 1  # another module, which must not look for the first one
    file.write_text(USER.format(3), encoding="utf-8")
    assert misses(tmp_path, 60.0) == 1
    for damaged in (b"", b"no machine code", b"cccenv.base.errors\nMoved\n."):  # the last: a class that is no longer there
        kept = [path for path in (tmp_path / "kept").rglob("times-*") if path.suffix != ".lock"]
        assert len(kept) == 3
        for path in kept:
            path.write_bytes(damaged)
        assert [misses(tmp_path, 60.0), misses(tmp_path, 60.0)] == [1, 0]


@kernel
def inner(x, out):  # type: ignore[no-untyped-def]
    out[0] += x
    return x + 1


@kernel
def outer(x, out):  # type: ignore[no-untyped-def]
    return inner(x, out) + inner(2, out)


class TestCalls:
    def test_one_function_serves_all_literals_and_python_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
        out = np.zeros(1)
        assert outer(3, out) == 7 and out[0] == 5
        assert [signature[0] for signature in inner.signatures] == [types.int64]
        assert inner(1, out) == 2  # compiled again: the one that kernels call has no wrapper
        assert out[0] == 6
        assert len(inner.signatures) == 1

        @njit
        def users(out):  # type: ignore[no-untyped-def]
            return inner(1, out)

        assert users(out) == 2

    def test_an_address_is_that_of_the_machine_code(self) -> None:
        assert inner.address(types.int64, types.Array(types.float64, 1, "C")) > 0

    def test_a_part_of_others_gets_machine_code_when_its_address_is_asked_for(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

        @kernel
        def part(x):  # type: ignore[no-untyped-def]
            return 2.0 * x

        @kernel
        def user(x):  # type: ignore[no-untyped-def]
            return part(x) + 1.0

        assert user(3.0) == 7.0
        assert [f.name.split("-")[0].rpartition(".")[2] for f in tmp_path.rglob("*.py3*") if f.suffix != ".lock"] == ["user"]
        assert part.address(types.float64) > 0 and part(3.0) == 6.0
        assert user(4.0) == 9.0


class TestFolder:
    @pytest.fixture
    def broken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return a cache folder that cannot be made: what a read-only home is, also for root."""
        (tmp_path / "file").write_text("", encoding="utf-8")
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "kept"))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        return tmp_path

    def test_one_that_cannot_be_written_is_replaced_with_one_line(self, broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
        @kernel
        def first(x):  # type: ignore[no-untyped-def]
            return x + 1

        @kernel
        def second(x):  # type: ignore[no-untyped-def]
            return x + 2

        assert (first(1), second(1)) == (2, 3)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert [str(broken / "file" / "kept") in line for line in captured.err.splitlines()] == [True]
        folder = Path(os.environ["NUMBA_CACHE_DIR"])
        assert folder.parent == broken and len(list(folder.glob("*/*first*"))) > 0

    def test_none_at_all_is_no_error(self, broken, monkeypatch, capsys):
        def full(prefix: str) -> str:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tempfile.mkdtemp", full)

        @kernel
        def third(x):  # type: ignore[no-untyped-def]
            return x + 3

        assert third(1) == 4
        assert len(capsys.readouterr().err.splitlines()) == 1

    def test_old_states_of_a_file_make_room(self, tmp_path: Path) -> None:
        now = time.time()
        ages_d = {"m.a-1": 0, "m.a-2": 1, "m.a-3": 20, "m.b-1": 20, **{f"m.a-x{i}": 2 + i / 10 for i in range(9)}}
        for name, age_d in ages_d.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "kernel").write_text("x", encoding="utf-8")
            os.utime(tmp_path / name, (now - age_d * 86_400,) * 2)
        cache._evict_old_states(tmp_path / "m.a-1")
        left = {folder.name for folder in tmp_path.iterdir()}
        assert left == {"m.b-1", "m.a-1", "m.a-2", *(f"m.a-x{i}" for i in range(6))}


FREEZES = """
import enum, os
import numpy as np
import other
from other import CONSTANT, helper
from ccenv.base.kernels.decorator import kernel

class Mode(enum.IntEnum):
    ON = int(os.environ["NUMBER"])

COMPUTED = float(os.environ["NUMBER"])
TABLE = np.full(2, COMPUTED)

@kernel
def default(x, added=COMPUTED):
    return x + added

@kernel
def nested(x):
    return default(x)

@kernel
def imported(x):
    return CONSTANT + other.CONSTANT + helper(x)

@kernel
def computed(x):
    return COMPUTED + TABLE[1] + nested(x) + Mode.ON.value

for each in (imported, computed):
    print(each(1.0), each.stats.cache_hits.total())
"""
OTHER = """
from ccenv.base.kernels.decorator import kernel
CONSTANT = {number}

@kernel
def helper(x):
    return x * {number}
"""


def test_what_a_function_of_a_user_freezes_decides(tmp_path: Path) -> None:
    file = tmp_path / "freezes.py"
    file.write_text(FREEZES)

    def run(other: int, number: int) -> list[float]:
        (tmp_path / "other.py").write_text(OTHER.format(number=other))
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBER": str(number), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, file], env=environment, check=True, capture_output=True, text=True)
        return [float(word) for word in done.stdout.split()]

    runs = [run(2, 2), run(2, 3), run(3, 3), run(3, 2)]
    assert [(imported, computed) for imported, _, computed, _ in runs] == [(6, 9), (6, 13), (9, 13), (9, 9)]
    assert [sum(run[column] for run in runs) for column in (1, 3)] == [2, 2]  # hits: the other two runs compiled


READS = """
import sys
import numpy as np
from ccenv.base.kernels.decorator import kernel

@kernel
def find(rows, n):
    return rows[0].value if n == 0 else find(rows, n - 1)

@kernel
def read(rows, n):
    return find(rows, n)

for names in sys.argv[1:]:
    rows = np.zeros(1, [(name, "f8") for name in names.split()])
    rows["value"] = 7
    print(read(rows, 5), end=" ")
"""


def test_machine_code_of_two_processes_does_not_mix_in_a_third(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(READS)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def read(*records: str) -> str:
        command = [sys.executable, tmp_path / "reads.py", *records]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert [read("value"), read("other value"), read("value", "other value")] == ["7.0 ", "7.0 ", "7.0 7.0 "]


def test_a_compilation_is_announced_once_and_its_time_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(announce, "AFTER_S", 0.05)
    before = announce.spent_s()
    for _ in range(2):
        with announce.announced(test_a_compilation_is_announced_once_and_its_time_is_kept, tmp_path):
            time.sleep(0.3)
    with announce.announced(digest, tmp_path):
        pass
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 2
    assert "about" not in lines[0]
    assert "about 1 s" in lines[1]
    assert announce.spent_s() - before > 0.5


@pytest.mark.parametrize(("n", "threads", "parts"), [(10, 1, 0), (10, 3, 0), (3, 8, 0), (7, 2, 7), (0, 4, 0)])
def test_ranges_cover_all_once(n: int, threads: int, parts: int) -> None:
    calls = np.zeros(n, np.int64)

    def run(first: int, last: int) -> None:
        calls[first:last] += 1

    share(run, n, threads, parts)
    assert (calls == 1).all()


def test_an_exception_of_a_thread_is_raised() -> None:
    def run(first: int, last: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        share(run, 4, 2)
