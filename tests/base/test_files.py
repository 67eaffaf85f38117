"""Files and folders: atomic writes, locks, and what a kill leaves."""

import fcntl
import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tables.bench_records import FORMAT as BENCH_RECORD
from tables.distillation import FORMAT as DISTILLATION_RECORD
from tables.training_records import FORMAT as LEARNING_RECORD

import ccenv
from ccenv.adversaries.learned import FOLDER as NETWORKS_FOLDER
from ccenv.adversaries.learned import NETWORKS, load_adversary, save_adversary
from ccenv.agents.learned import LearnedKind, load_policy, policy_notes, save_policy
from ccenv.agents.learned.zoo import FOLDER
from ccenv.agents.programs.reader import FORMAT as PROGRAM
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import LOCK, Format, hash_value, is_empty, json_bytes, locked, plain, write_atomic
from ccenv.base.foreign import JsonRules

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
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
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


def test_a_written_file_has_the_rights_asked_for_and_a_folder_that_cannot_be_is_one_error(tmp_path: Path) -> None:
    write_atomic(tmp_path / "secret", b"x", mode=0o600)
    write_atomic(tmp_path / "public", b"x")
    before = os.umask(0)
    os.umask(before)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o666 & ~before
    (tmp_path / "file").touch()
    with pytest.raises(CcenvError, match="cannot be made"), locked(tmp_path / "file" / "run", "training run"):
        pass


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


DATA = Path(__file__).parents[2] / "docs" / "data"
PACKAGE = Path(ccenv.__file__).parent
NOTE = Format(
    "ccenv-note", 3, "a note", "format_version", JsonRules(max_bytes=200, max_depth=3), older="ccenv note makes it again"
)


def test_a_document_is_written_with_its_head_and_read_back_and_what_cannot_be_written_leaves_it(tmp_path: Path) -> None:
    file = tmp_path / "note.json"
    NOTE.write(file, {"text": "ü", "values": [1, 0.5]})
    assert file.read_text() == (
        '{\n "format": "ccenv-note",\n "format_version": 3,\n "text": "\\u00fc",\n "values": [\n  1,\n  0.5\n ]\n}\n'
    )
    assert NOTE.read(file) == {**NOTE.head, "text": "ü", "values": [1, 0.5]}
    NOTE.write(file, NOTE.read(file) | {"text": "new"})
    assert NOTE.read(file)["text"] == "new"
    assert [found.name for found in tmp_path.iterdir()] == ["note.json"]
    NOTE.write(file, {"x": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        NOTE.write(file, {"x": math.nan})
    assert NOTE.read(file)["x"] == 1
    with pytest.raises(CcenvError, match="cannot be written"):
        NOTE.write(tmp_path / "none" / "note.json", {})
    with pytest.raises(InputError, match="cannot be read"):
        NOTE.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "note.json: not a note: expected a JSON object"),
        ('{"format": "ccenv-note", "format_version": 3.0}', "format_version is 3.0"),
        ('{"format": "ccenv-note", "format": "ccenv-note"}', "given twice"),
        ('{"format": "ccenv-note", "format_version": 3, "x": NaN}', "NaN is not a number"),
        ('{"format": "ccenv-note", "format_version": 3, "x": [[[0]]]}', "at most 3 are allowed"),
        ('{"format": "ccenv-note", "format_version": 3, "x": "' + "x" * 200 + '"}', "longer than 200 bytes"),
    ],
)
def test_another_document_is_refused_in_one_line(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "note.json"
    file.write_text(content)
    for read in (lambda: NOTE.read(file), lambda: NOTE.parse(content, str(file))):
        with pytest.raises(InputError) as caught:
            read()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_numbers_that_are_not_finite_become_text_or_null_and_a_hash_ignores_the_order_of_keys() -> None:
    value = {"a": math.inf, "b": (-math.inf, math.nan), 3: 1.5}
    assert plain(value) == {"a": "inf", "b": ["-inf", None], "3": 1.5}
    assert json_bytes(plain(value), indent=None) == b'{"a":"inf","b":["-inf",null],"3":1.5}\n'
    assert hash_value({"a": 1, "b": [2.0]}) == hash_value({"b": [2.0], "a": 1})
    assert hash_value({"a": 1}) != hash_value({"a": 1.5})


def stored_formats() -> list[Format]:
    """Return every format that a module of the package defines."""
    sources = (file for file in sorted(PACKAGE.rglob("*.py")) if "Format(" in file.read_text(encoding="utf-8"))
    names = (".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for file in sources)
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    values += [part for value in values if isinstance(value, LearnedKind) for part in vars(value).values()]
    return sorted({form for form in values if isinstance(form, Format)}, key=lambda form: (form.name, form.version, form.what))


FORMATS = [*stored_formats(), BENCH_RECORD, LEARNING_RECORD, DISTILLATION_RECORD]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.name}-{form.version}-{form.what}")
def test_every_stored_format_reads_its_versions_and_refuses_others_in_one_line(form: Format) -> None:
    versions = (form.version, *form.also)
    for version in versions:
        assert form.parse(json_bytes({"format": form.name, form.version_key: version}), "file")[form.version_key] == version
    refused = {
        b"{": "file: ",
        b"[]": f"file: not {form.what}: expected a JSON object",
        json_bytes({**form.head, "format": "other"}): f"format is 'other'; it must be {form.name!r}",
        json_bytes({"format": form.name}): f"{form.version_key} is None; this ccenv reads",
        json_bytes({**form.head, form.version_key: True}): f"{form.version_key} is True",
        json_bytes({**form.head, form.version_key: max(versions) + 1}): "use a newer ccenv",
        json_bytes({**form.head, form.version_key: min(versions) - 1}): f"{form.version_key} is {min(versions) - 1}",
        json_bytes({**form.head, form.version_key: 0}): form.older,
    }
    for content, words in refused.items():
        with pytest.raises(InputError) as caught:
            form.parse(content, "file")
        assert words in str(caught.value) and "\n" not in str(caught.value)


SHIPPED = [
    (LEARNING_RECORD, DATA / "learning.json"),
    (DISTILLATION_RECORD, DATA / "distillation.json"),
    *((BENCH_RECORD, file) for file in sorted((DATA / "bench").glob("*/record.json"))),
    *((PROGRAM, file) for file in sorted(FOLDER.glob("*_[du][0-9]*.json")) if "shield" not in file.stem),
]


@pytest.mark.parametrize(("form", "file"), SHIPPED, ids=[f"{file.parent.name}-{file.stem}" for _, file in SHIPPED])
def test_a_shipped_document_written_again_is_the_same_file(form: Format, file: Path) -> None:
    assert form.content(form.read(file)) == file.read_bytes()


def test_cards_of_the_zoo_written_again_are_the_same_files(tmp_path: Path) -> None:
    for name in ("learned_nominal", "learned_robust", "learned_low_delay"):
        save_policy(tmp_path / name, load_policy(FOLDER / name), policy_notes(FOLDER / name))
        for suffix in (".json", ".safetensors"):
            assert (tmp_path / f"{name}{suffix}").read_bytes() == (FOLDER / f"{name}{suffix}").read_bytes()
    for file in sorted(NETWORKS_FOLDER.glob("*.json")):
        save_adversary(tmp_path / file.stem, load_adversary(file), NETWORKS.read_card(file).notes)
        again = json.loads((tmp_path / file.name).read_bytes())
        assert again.pop("levels") == 0  # the shipped cards are older than this key
        assert json_bytes(again, indent=2) == file.read_bytes()
        assert (tmp_path / file.name).with_suffix(".safetensors").read_bytes() == file.with_suffix(".safetensors").read_bytes()
