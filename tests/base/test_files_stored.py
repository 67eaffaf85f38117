"""Stored documents: what is written reads back, shipped documents stay as they are, and everything else is refused in a line."""

import json
import math
from pathlib import Path

import pytest
from tables.distillation import FORMAT as DISTILLATION_RECORD

from ccenv.adversaries.learned import FOLDER as NETWORKS_FOLDER
from ccenv.adversaries.learned import NETWORKS, load_adversary, save_adversary
from ccenv.agents.learned import load_policy, policy_notes, save_policy
from ccenv.agents.learned.zoo import FOLDER
from ccenv.agents.programs.reader import FORMAT as PROGRAM
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import Format, hash_of, json_bytes, plain
from ccenv.base.foreign import JsonRules
from ccenv.benchmarks.report.records import FORMAT as BENCH_RECORD
from ccenv.training.records import FORMAT as LEARNING_RECORD

DATA = Path(__file__).parents[2] / "docs" / "data"
NOTE = Format(
    "ccenv-note", 3, "a note", "format_version", JsonRules(max_bytes=200, max_depth=3), older="ccenv note makes it again"
)


def test_a_document_is_written_with_its_head_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "note.json"
    NOTE.write(file, {"text": "ü", "values": [1, 0.5]})
    assert file.read_text() == (
        '{\n "format": "ccenv-note",\n "format_version": 3,\n "text": "\\u00fc",\n "values": [\n  1,\n  0.5\n ]\n}\n'
    )
    assert NOTE.read(file) == {**NOTE.head, "text": "ü", "values": [1, 0.5]}
    NOTE.write(file, NOTE.read(file) | {"text": "new"})
    assert NOTE.read(file)["text"] == "new"
    assert [found.name for found in tmp_path.iterdir()] == ["note.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "note.json: not a note: expected a JSON object"),
        ("{}", "note.json: not a note: format is None; it must be 'ccenv-note'"),
        ('{"format": "ccenv-run", "format_version": 3}', "format is 'ccenv-run'; it must be 'ccenv-note'"),
        (
            '{"format": "ccenv-note", "format_version": 4}',
            "format_version is 4; this ccenv reads ccenv-note of format_version 3: use a newer ccenv",
        ),
        (
            '{"format": "ccenv-note", "format_version": 2}',
            "format_version is 2; this ccenv reads ccenv-note of format_version 3: ccenv note makes it again",
        ),
        ('{"format": "ccenv-note", "version": 3}', "format_version is None"),
        ('{"format": "ccenv-note", "format_version": 3.0}', "format_version is 3.0"),
        ('{"format": "ccenv-note", "format_version": true}', "format_version is True"),
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


def test_what_cannot_be_written_leaves_the_old_document(tmp_path: Path) -> None:
    file = tmp_path / "note.json"
    NOTE.write(file, {"x": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        NOTE.write(file, {"x": math.nan})
    assert NOTE.read(file)["x"] == 1
    with pytest.raises(CcenvError, match="cannot be written"):
        NOTE.write(tmp_path / "none" / "note.json", {})
    with pytest.raises(InputError, match="cannot be read"):
        NOTE.read(tmp_path / "none.json")


def test_numbers_that_are_not_finite_become_text_or_null() -> None:
    value = {"a": math.inf, "b": (-math.inf, math.nan), 3: 1.5}
    assert plain(value) == {"a": "inf", "b": ["-inf", None], "3": 1.5}
    assert json_bytes(plain(value), indent=None) == b'{"a":"inf","b":["-inf",null],"3":1.5}\n'


def test_a_hash_does_not_depend_on_the_order_of_keys() -> None:
    assert hash_of({"a": 1, "b": [2.0]}) == hash_of({"b": [2.0], "a": 1})
    assert hash_of({"a": 1}) != hash_of({"a": 1.5})


SHIPPED = [
    (LEARNING_RECORD, DATA / "learning.json"),
    (DISTILLATION_RECORD, DATA / "distillation.json"),
    *((BENCH_RECORD, file) for file in sorted((DATA / "bench").glob("*/record.json"))),
    *((PROGRAM, file) for file in sorted(FOLDER.glob("*_[du][0-9]*.json")) if "contract" not in file.stem),
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


def test_there_are_shipped_documents_of_every_kind() -> None:
    assert len(SHIPPED) > 20
    assert {json.loads(file.read_bytes())["format"] for _, file in SHIPPED} == {
        "ccenv-learning-record",
        "ccenv-distillation-record",
        "ccenv-bench-record",
        "ccenv-program",
    }
