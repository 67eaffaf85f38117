"""Who is who: one name, one player, in databases of every version and from processes that come at once."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from forging import KEY, OTHER_KEY, Forgery
from own_process import ready_processes
from submission_folders import make_good

from ccenv.adversaries import ADVERSARIES
from ccenv.agents import AGENTS, make_sender
from ccenv.agents.programs import parse_program
from ccenv.agents.sender import PolicySender, ProgramSender
from ccenv.base.errors import CcenvError, InputError
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.records import DATABASE
from ccenv.leaderboard.store.submit import entrants, submit_folder, submit_reviewed
from ccenv.leaderboard.submission.document import fold_text
from ccenv.leaderboard.submission.identity import canonical_hash, check_reserved, registered_names
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import read_submission
from ccenv.leaderboard.submission.signature import available

# The tables of version 1 as it created them in SQLite.
VERSION_1 = """
CREATE TABLE ccenv_board_versions (version INTEGER NOT NULL, step TEXT NOT NULL, PRIMARY KEY (version));
CREATE TABLE ccenv_board_records (
    number INTEGER NOT NULL, kind VARCHAR(20) NOT NULL, subject VARCHAR(64) NOT NULL, slot VARCHAR(300) NOT NULL,
    content TEXT NOT NULL, sha256 VARCHAR(64) NOT NULL, chain VARCHAR(64) NOT NULL, PRIMARY KEY (number), UNIQUE (slot)
);
CREATE INDEX ix_ccenv_board_records_kind ON ccenv_board_records (kind);
CREATE INDEX ix_ccenv_board_records_subject ON ccenv_board_records (subject);
CREATE TABLE ccenv_board_files (sha256 VARCHAR(64) NOT NULL, content BLOB NOT NULL, PRIMARY KEY (sha256));
CREATE TRIGGER ccenv_board_records_no_update BEFORE UPDATE ON ccenv_board_records
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER ccenv_board_records_no_delete BEFORE DELETE ON ccenv_board_records
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER ccenv_board_files_no_update BEFORE UPDATE ON ccenv_board_files
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER ccenv_board_files_no_delete BEFORE DELETE ON ccenv_board_files
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
INSERT INTO ccenv_board_versions VALUES (1, 'records and files');
"""


def old_board(forgery: Forgery, folder: Path) -> Home:
    """Write a database of version 1 with the records of an export."""
    forgery.write(folder / "rows.jsonl")
    (folder / "old").mkdir()
    with sqlite3.connect(folder / "old" / DATABASE) as connection:
        connection.executescript(VERSION_1)
        for row in forgery.records:
            columns = ", ".join(f":{name}" for name in row)
            connection.execute(f"INSERT INTO ccenv_board_records ({', '.join(row)}) VALUES ({columns})", row)
        connection.executemany("INSERT INTO ccenv_board_files VALUES (?, ?)", forgery.files.items())
    connection.close()
    return Home(folder / "old")


def test_a_database_of_version_1_gets_its_claims(forgery: Forgery, tmp_path: Path) -> None:
    home = old_board(forgery, tmp_path)
    pack("cc_probe_fast", Authorship("Someone Else", "MIT", "quick/1", name="P1ain"), tmp_path / "alike")
    pack("cc_probe_drain", Authorship("Someone Else", "MIT", "quick/1", name="mine"), tmp_path / "stolen")
    before = [row["chain"] for row in forgery.records]
    for _ in range(2):  # the second time there is nothing to do
        with home.open() as store:
            assert [record.chain for record in store.records()] == before
            assert audit(store, home, sample=2, certificates=0, keep=False)["problems"] == []
    with home.open() as store:
        with pytest.raises(InputError, match="the name 'P1ain' looks like 'plain', which is taken"):
            submit_folder(store, home, tmp_path / "alike")
        with pytest.raises(InputError, match="replayed: the board has exactly this program as 'plain'"):
            submit_folder(store, home, tmp_path / "stolen")
        submit_reviewed(store, home, "cubic")
    with sqlite3.connect(home.folder / DATABASE) as connection:
        assert [row[0] for row in connection.execute("SELECT version FROM ccenv_board_versions ORDER BY version")] == [1, 2, 3]
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute("DELETE FROM ccenv_board_claims")


def test_an_old_database_with_a_hostile_record_opens_and_the_audit_names_it(forgery: Forgery, tmp_path: Path) -> None:
    forgery.edit(forgery.record("submission", "plain"), lambda content: content["card"].update(author="Mallory"))
    home = old_board(forgery, tmp_path)
    with home.open() as store:
        problems = audit(store, home, sample=0, certificates=0, keep=False)["problems"]
    assert any("its card has author 'Mallory'" in problem for problem in problems)


def hand_in(board: str, folder: str, gate: Any, said: Any) -> None:
    home = Home(Path(board))
    with home.open() as store:
        gate.wait()
        try:
            said.put(submit_folder(store, home, Path(folder))[0].number)
        except CcenvError as error:
            said.put(str(error))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("cc_probe_fast", "twin"), ("cc_probe_slow", "Tw1n"), "looks like"),
        (("cc_probe_fast", "twin"), ("cc_probe_slow", "twin"), "is taken"),
        (("cc_probe_fast", "one"), ("cc_probe_fast", "two"), "replayed"),
    ],
)
def test_two_processes_share_neither_a_name_nor_a_player(tmp_path, first, second, message):
    with Home(tmp_path / "board").open() as store:
        submit_reviewed(store, Home(tmp_path / "board"), "reno")
    context = ready_processes()
    gate, said = context.Barrier(2), context.Queue()
    processes = []
    for number, (spec, name) in enumerate((first, second)):
        pack(spec, Authorship("Someone", "MIT", "quick/1", name=name), tmp_path / str(number))
        arguments = (str(tmp_path / "board"), str(tmp_path / str(number)), gate, said)
        processes.append(context.Process(target=hand_in, args=arguments))
        processes[-1].start()
    answers = [said.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    (number,) = [answer for answer in answers if isinstance(answer, int)]
    (refusal,) = [answer for answer in answers if isinstance(answer, str)]
    assert message in refusal and number == 3
    with Home(tmp_path / "board").open() as store:
        assert len(entrants(store)) == 2 and store.check() == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vegas", "Vegas"), ("vegas", "vega5"), ("cubic", "cub1c"), ("copa", "c0pa"), ("reno", "r\u0435no"), ("a-b", "a_b"),
        ("bbr3", "bbr_3"), ("cc_qdel", "ccqdel"), ("cc_qdel", "c.c-qdel"), ("modern", "modem"),
    ],
)  # fmt: skip
def test_hostile_names_that_look_alike_are_one(one: str, other: str) -> None:
    assert fold_text(one) == fold_text(other)


def test_hostile_near_copies_are_one_player(tmp_path: Path) -> None:
    policy = read_submission(make_good("policy", tmp_path / "policy")).player
    assert isinstance(policy, PolicySender)
    (w0, w1), (b0, b1) = policy.weights, policy.biases
    order, wider = [2, 0, 1], np.hstack([w0, w0[:, :1] + 1])
    copies = {
        "negative zeros": replace(policy, biases=(b0, -b1 if not b1.any() else b1 + -0.0)),
        "permuted units": replace(policy, weights=(w0[:, order], w1[order]), biases=(b0[order], b1)),
        "mirrored unit": replace(policy, weights=(w0 * [-1, 1, 1], w1 * [[-1], [1], [1]]), biases=(b0 * [-1, 1, 1], b1)),
        "unread unit": replace(policy, weights=(wider, np.vstack([w1, 0 * w1[:1]])), biases=(np.append(b0, 1.0), b1)),
    }
    for what, copy in copies.items():
        assert canonical_hash(copy) == canonical_hash(policy), what
    assert canonical_hash(replace(policy, biases=(b0, b1 + 1))) != canonical_hash(policy)


def test_hostile_programs_with_a_branch_written_twice_are_one_player(tmp_path: Path) -> None:
    folder = make_good("program", tmp_path / "program")
    data = json.loads((folder / "program.json").read_text())
    twice = {**data, "rule": {"if": data["rule"]["if"], "then": data["rule"], "else": data["rule"]["else"]}}

    one, other = (ProgramSender("x", parse_program(json.dumps(d).encode(), "x")) for d in (data, twice))
    assert canonical_hash(one) == canonical_hash(other)


OWN = ("learned_fair", "learned_nominal", "learned_shield_u77_timeouts", "uniform", "network_nominal")


@pytest.mark.parametrize("name", OWN)
def test_what_ccenv_registers_keeps_its_name_when_its_weights_are_on_the_grid(name: str, tmp_path: Path) -> None:
    submission, _ = pack(name, Authorship("ccenv", "MIT", "quick/1"), tmp_path / "own")
    check_reserved(submission.document.name, submission.document.author, submission.player)
    with pytest.raises(InputError, match=f"the name '{name}' is kept"):
        check_reserved(name, "ccenv", make_sender("cc_probe_fast"))


def test_names_that_ccenv_registers_differ_in_more_than_separators() -> None:
    assert len(registered_names()) == len({*AGENTS.names(), *ADVERSARIES.names(aliases=True)})


@pytest.mark.skipif(not available(), reason="ssh-keygen is not installed")
def test_an_author_who_signed_once_signs_all_that_follows(workshop: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    card = Authorship("Grace Hopper", "MIT", "quick/1", name="more")
    pack("cc_probe_fast", card, tmp_path / "unsigned")
    pack("cc_probe_fast", card, tmp_path / "other", workshop / OTHER_KEY)
    pack("cc_probe_fast", card, tmp_path / "own", workshop / KEY)
    with home.open() as store:
        submit_folder(store, home, workshop / "signed")
        for folder in ("unsigned", "other"):
            with pytest.raises(InputError, match="'Grace Hopper' signed 'signed' with"):
                submit_folder(store, home, tmp_path / folder)
        submit_folder(store, home, tmp_path / "own")
        assert len(entrants(store)) == 2
