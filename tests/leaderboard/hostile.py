"""Hostile submissions, one per rule: each changes a good folder in one way. docs/board.md shows their refusals.

python tests/leaderboard/hostile.py     prints the table of docs/board.md
"""

import json
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from submission_folders import (
    CARD,
    WEIGHTS,
    edit,
    hard_linked,
    header,
    linked,
    make_good,
    many_files,
    one_weight,
    payload,
    piped,
    program,
    replace,
    signed_badly,
    weights,
    with_file,
)

from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.base.errors import CcenvError
from ccenv.base.foreign.tensors import tensor_file
from ccenv.leaderboard.site.exchange import export_board, import_board, read_export
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.schema import RECORDS
from ccenv.leaderboard.store.submit import submit_folder
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import read_submission


@dataclass(frozen=True)
class Hostile:
    """A fixture.

    Attributes:
        name: of the fixture.
        base: good submission that it starts from: program, policy, scripted or moves.
        attack: what it does, for the table.
        change: does it to a folder.
        refusal: part of the message that must refuse it.
    """

    name: str
    base: str
    attack: str
    change: Callable[[Path], None]
    refusal: str


# Pickle of an object whose reconstruction would run a command.
PICKLE = b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."
DEEP = '{"if":"loss","then":{"rate":{"C_L":1}},"else":'
RULE = '"rule":{"rate":{"C_L":%s}}'
PROGRAM = '{"format":"ccenv-program","version":1,"name":"x",' + RULE + "}"

SQUARE = b'{"format":"ccenv-adversary","version":1,"name":"square","parameters":{"period_rtts":"%s"}}'

FIXTURES = (
    Hostile("too_long", "program", "a document of 17 kB", edit(summary="x" * 17_000), "longer than 16384 bytes"),
    Hostile("payload_too_long", "program", "a program of 70 kB", program(" " * 70_000), "longer than 65472 bytes"),
    Hostile("duplicate_key", "program", "a key twice", replace('"licence"', '"licence":"GPL-3.0-only","licence"'), "given twice"),
    Hostile("nan", "program", "`NaN` as a number", replace('"training": {}', '"training":{"steps":NaN}'), "NaN is not a number"),
    Hostile("infinity", "program", "`Infinity` as a number", replace('"training": {}', '"training":{"steps":-Infinity}'),
            "-Infinity is not a number"),
    Hostile("huge_exponent", "program", "`1e9999999`", replace('"training": {}', '"training":{"steps":1e9999999}'),
            "number 1e9999999 is not allowed: no exponent"),
    Hostile("many_digits", "program", "a number of 5,000 digits",
            replace('"training": {}', '"training":{"steps":' + "9" * 5_000 + "}"), "at most 18 digits"),
    Hostile("program_exponent", "program", "an exponent in a program", program(PROGRAM % '"1e9999999"'), "without exponent"),
    Hostile("program_float", "program", "a float in a program", program(PROGRAM % "1.5"), "write an integer or a text"),
    Hostile("unknown_field", "program", "a field that the format does not have", edit(licens="MIT"), "unknown key 'licens'"),
    Hostile("deep_document", "program", "1,000 nested lists",
            replace('"training": {}', '"training":' + "[" * 1_000 + "]" * 1_000), "1001 levels of nesting"),
    Hostile("deep_program", "program", "40 nested conditions",
            program('{"format":"ccenv-program","version":1,"name":"x","rule":' + DEEP * 40 + '{"rate":{"C_L":1}}' + "}" * 41),
            "more than 32 nested conditions"),
    Hostile("bottomless_program", "program", "30,000 nested lists in a program", program("[" * 30_000),
            "30000 levels of nesting; at most 64 are allowed"),
    Hostile("not_utf8", "program", "no UTF-8", with_file("submission.json", b'{"format":"\xff\xfe"}'), "not UTF-8"),
    Hostile("not_an_object", "program", "a list instead of an object", with_file("submission.json", b"[]"), "a JSON object"),
    Hostile("foreign_version", "program", "another format version", edit(format_version=2), "format_version 1"),
    Hostile("control_character", "program", "an escape character in the name", edit(name="a\x1b[31mb"), "U+001B"),
    Hostile("bidi_character", "program", "a right-to-left override in the author", edit(author="Ada\u202eecalevoL"), "U+202E"),
    Hostile("invisible_character", "program", "a zero-width space in the summary", edit(summary="a\u200bb"), "U+200B"),
    Hostile("name_with_dots", "program", "`..` in the name", edit(name="../../etc"), "name: not allowed; a letter"),
    Hostile("html_author", "program", "HTML in the author", edit(author="<script>alert(1)</script>"), "no HTML"),
    Hostile("html_summary", "program", "HTML in the summary", edit(summary="<img src=x onerror=alert(1)>"), "no HTML"),
    Hostile("javascript_url", "program", "a `javascript:` address", edit(url="javascript:alert(1)"),
            "url: not allowed; https://host/path"),
    Hostile("http_url", "program", "address without TLS", edit(url="http://example.org/"), "url: not allowed; https://host/path"),
    Hostile("url_with_user", "program", "a user name in an address", edit(url="https://a.example@b.example/"),
            "url: not allowed; https://host/path"),
    Hostile("wrong_kind", "program", "a kind that is code", edit(kind="module"),
            "kind: Input should be 'program', 'policy', 'contract', 'scripted', 'moves' or 'network'"),
    Hostile("path_in_files", "program", "`..` among the files", edit(files={"../program.json": "a" * 64}), "has exactly program"),
    Hostile("changed_payload", "program", "changed after packing", with_file("program.json", b"{}"), "changed after packing"),
    Hostile("python_file", "program", "a Python module beside the data", with_file("policy.py"), "unknown file 'policy.py'"),
    Hostile("onnx_file", "policy", "an ONNX file beside the data", with_file("policy.onnx"), "unknown file 'policy.onnx'"),
    Hostile("archive", "program", "an archive beside the data", with_file("data.tar.gz"), "unknown file 'data.tar.gz'"),
    Hostile("many_files", "program", "20 more files", many_files, "more than 16 entries"),
    Hostile("symbolic_link", "program", "a symbolic link", linked, "a link; plain files only"),
    Hostile("hard_link", "program", "a hard link", hard_linked, "has 2 names"),
    Hostile("pipe", "program", "a named pipe, which would block", piped, "not a plain file"),
    Hostile("pickle", "policy", "pickle bytes instead of tensors", payload(WEIGHTS, PICKLE), "the header claims"),
    Hostile("header_bomb", "policy", "a header that claims 2^60 bytes", payload(WEIGHTS, struct.pack("<Q", 2**60) + b"{}"),
            "the header claims 1152921504606846976 bytes"),
    Hostile("truncated_header", "policy", "header beyond the file", payload(WEIGHTS, struct.pack("<Q", 99) + b"{}"), "tensors"),
    Hostile("header_duplicate", "policy", "a tensor named twice",
            payload(WEIGHTS, header(lambda t: b'{"w0":1,' + json.dumps(t).encode()[1:])), "key 'w0' is given twice"),
    Hostile("wrong_names", "policy", "a tensor of another name",
            payload(WEIGHTS, tensor_file({**weights(), "w9": np.ones((1, 1))})), "exactly"),
    Hostile("wrong_dtype", "policy", "float16", payload(WEIGHTS, header(lambda t: t["w0"].update(dtype="F16"))), "has dtype"),
    Hostile("wrong_shape", "policy", "a transposed matrix",
            payload(WEIGHTS, tensor_file(weights(w0=np.ones((3, N_OBSERVATION))))), "has shape"),
    Hostile("overlap", "policy", "tensors that share bytes",
            payload(WEIGHTS, header(lambda t: t["b0"].update(data_offsets=[0, 24]))), "overlap"),
    Hostile(
        "rest", "policy", "bytes after tensors", payload(WEIGHTS, tensor_file(weights()) + b"x" * 9), "after the last tensor"
    ),
    Hostile("nan_weight", "policy", "a weight that is not a number", payload(WEIGHTS, one_weight(np.nan)), "not finite"),
    Hostile("huge_weight", "policy", "a weight of 1e300", payload(WEIGHTS, one_weight(1e300)), "at most 1024"),
    Hostile("wide_network", "policy", "a layer of a million units",
            edit(architecture={"family": "mlp", "activation": "tanh", "layers": [10, 10**6, 1], "observation_version": 1}),
            "less than or equal to 256"),
    Hostile("foreign_architecture", "policy", "an architecture that is not on the list",
            edit(architecture={"family": "transformer", "activation": "tanh", "layers": [10, 1], "observation_version": 1}),
            "architecture.family"),
    Hostile("move_outside", "moves", "a move outside [0, 1]",
            payload("moves.safetensors", tensor_file({"moves": np.full((2, 4), 2.0)})), "lie in [0, 1]"),
    Hostile("moves_twice", "network", "two outputs for one move of the network",
            edit(moves={"columns": [2, 2], "decision_steps": 0, "episode_rtts": 64}), "columns [2, 2]: each at most once"),
    Hostile("wrong_outputs", "network", "more moves than outputs",
            edit(moves={"columns": [0, 1, 2], "decision_steps": 0, "episode_rtts": 64}), "3 outputs are needed"),
    Hostile("unknown_parameter", "scripted", "a parameter that the adversary does not have",
            payload("adversary.json", b'{"format":"ccenv-adversary","version":1,"name":"square","parameters":{"cheat":1}}'),
            "unknown parameter 'cheat'"),
    *(
        Hostile(f"parameter_{name}", "scripted", "a parameter that is no finite number, written as text",
                payload("adversary.json", SQUARE % text.encode()), "parameters.period_rtts: Input should be a finite number")
        for name, text in (("infinite", "1e400"), ("not_a_number", "NaN"))
    ),
    Hostile("registry_escape", "scripted", "a path instead of an adversary's name",
            payload("adversary.json", b'{"format":"ccenv-adversary","version":1,"name":"os.system"}'),
            "name: String should match pattern"),
    Hostile("bad_signature", "program", "a signature that is none", signed_badly, "not a valid ed25519 signature"),
)  # fmt: skip


def refusal_of(fixture: Hostile, folder: Path) -> str:
    """Return the message that refuses a fixture, with the folder called DIR."""
    place = make_good(fixture.base, folder / "DIR")
    read_submission(place)  # good before the change
    fixture.change(place)
    try:
        read_submission(place)
    except CcenvError as error:
        return str(error).replace(str(place), "DIR")
    raise ValueError(f"{fixture.name} was not refused")


def board_refusals(folder: Path) -> list[tuple[str, str, str]]:
    """Return what a board refuses that a folder alone cannot show: (fixture, what it tries, message)."""
    home = Home(folder / "board")
    pack("cc_qdel", CARD, folder / "first")
    stolen = Authorship(author="Someone Else", licence="MIT", suite="quick/1", name="mine")
    pack("cc_qdel", stolen, folder / "stolen")
    pack("cc_probe_slow", Authorship(author="Grace Hopper", licence="MIT", suite="quick/1", name="first_come"), folder / "second")
    for name, author in (
        ("first_come", "Someone Else"),
        ("First-C0me", "Someone Else"),
        ("vegas", "Someone Else"),
        ("ccqdel", "Someone Else"),
        ("new", "team ccenv"),
    ):
        pack("cc_probe_fast", Authorship(author=author, licence="MIT", suite="quick/1", name=name), folder / f"named {name}")
    out = []

    def refused(name: str, attack: str, attempt: Callable[[], object]) -> None:
        try:
            attempt()
        except CcenvError as error:
            out.append((name, attack, str(error).replace(str(folder), "DIR")))
        else:
            raise ValueError(f"{name} was not refused")

    with home.open() as store:
        submit_folder(store, home, folder / "first")
        refused("replayed", "the same submission again", lambda: submit_folder(store, home, folder / "first"))
        refused("stolen", "the same program under another name", lambda: submit_folder(store, home, folder / "stolen"))
        submit_folder(store, home, folder / "second")
        for fixture, attack, name in (
            ("name_taken", "another program under a taken name", "first_come"),
            ("name_alike", "a name that looks like a taken one", "First-C0me"),
            ("name_kept", "the name of reviewed code", "vegas"),
            ("name_squatted", "a shipped name without its separator", "ccqdel"),
            ("author_kept", "ccenv itself as the author", "new"),
        ):
            refused(fixture, attack, lambda name=name: submit_folder(store, home, folder / f"named {name}"))  # type: ignore[misc]
        export_board(store, folder / "export.jsonl")
    for name, attack, old, new in (
        ("edited_record", "a record edited in an export", "Ada Lovelace", "Bob"),
        ("edited_file", "a file edited in an export", '{"file":"', '{"file":"0'),
    ):
        (folder / "edited.jsonl").write_text((folder / "export.jsonl").read_text().replace(old, new, 1))
        with Home(folder / name).open() as copy:
            refused(name, attack, lambda copy=copy: import_board(copy, home, read_export(folder / "edited.jsonl")))  # type: ignore[misc]
    with sqlite3.connect(home.folder / "board.db") as connection:
        connection.execute(f"DROP TRIGGER {RECORDS.name}_no_update")
        connection.execute(f"UPDATE {RECORDS.name} SET content = replace(content, 'Ada Lovelace', 'Bob')")
    with home.open() as store:
        refused("edited_database", "a record edited in the database", store.check)
    return out
