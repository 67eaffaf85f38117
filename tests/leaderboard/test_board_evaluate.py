"""Evaluation of entries: tasks, and the records of the baselines."""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_suite import small_suite
from submission_folders import CARD, make_good

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")


from ccenv.adversaries import ADVERSARIES
from ccenv.agents import AGENTS
from ccenv.agents.identity import sender_hash
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import CcenvError, InputError
from ccenv.base.files import is_empty
from ccenv.base.foreign import parse_json
from ccenv.cli.main import main
from ccenv.leaderboard.audit import run as audit_module
from ccenv.leaderboard.audit.contents import Contents, check_contents
from ccenv.leaderboard.audit.run import audit
from ccenv.leaderboard.evaluate import queue as evaluate_module
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.stages import VIEW, EnvelopeStage, SuiteStage
from ccenv.leaderboard.site import board as board_module
from ccenv.leaderboard.site import build as build_module
from ccenv.leaderboard.site import exchange, sources
from ccenv.leaderboard.site.build import build_site
from ccenv.leaderboard.site.exchange import import_board, read_export
from ccenv.leaderboard.site.sources import from_store
from ccenv.leaderboard.store import runs
from ccenv.leaderboard.store.database import BoardStore
from ccenv.leaderboard.store.home import Home, close_round, commitment, evaluation_seeds, find_secret, revealed_secrets
from ccenv.leaderboard.store.submit import entrants, submit_folder, submit_reviewed
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import read_submission
from ccenv.network.trace import load_trace
from ccenv.proofs.certificates.library import Stored

SUITE = small_suite(agents=[], scenarios=[small_suite().scenarios[0].model_dump()], adversaries=["kind", "slowest"])
STAGE = SuiteStage(SUITE)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "board")


def submitted(home: Home, tmp_path: Path) -> None:
    pack("cc_qdel", CARD, tmp_path / "program")
    with home.open() as store:
        submit_folder(store, home, tmp_path / "program")
        submit_reviewed(store, home, "reno")


def comparable(store: BoardStore) -> list[dict[str, Any]]:
    """What the stages stored, without times."""
    out = []
    for record in store.records("evaluation"):
        content = json.loads(json.dumps(record.content))
        del content["recorded_at"], content["manifest"]["finished_at"]
        out.append(content)
    return out


def test_a_submission_is_evaluated_with_its_own_seeds(home: Home, tmp_path: Path) -> None:
    submitted(home, tmp_path)
    with home.open() as store:
        evaluate(store, home, list_tasks(store, [STAGE]))
        first, second = store.records("evaluation")
        secret = find_secret(store, home, 1)
        for record in (first, second):
            manifest = record.content["manifest"]
            seeds = evaluation_seeds(secret, SUITE.sha256, record.subject, 2)
            assert tuple(manifest["suite"]["seeds"]) == seeds
            assert record.content["suite"]["seeds"] == [1, 2]  # as published
            cells = [parse_json(line, "cell") for line in store.file(record.files["cells.jsonl"]).splitlines()]
            assert len(cells) == manifest["n_cells"] == 4 and {cell["seed"] for cell in cells} == set(seeds)
            worst = manifest["summary"][0]["worst_case"]
            assert worst["value"] == min(cell["metrics"]["utilisation"] for cell in cells)
            (tmp_path / "worst.npz").write_bytes(store.file(record.files[worst["trace"]]))
            trace = load_trace(tmp_path / "worst.npz")
            view = parse_json(store.file(record.files[worst["trace"] + VIEW]), "view")
            delivered = np.diff([0.0, *view["time_s"]]) @ np.array(view["flows"][0]["delivered_mbps"]) * 1e6 / 8
            assert delivered == pytest.approx(trace.S[-1, 0] - trace.S[0, 0], rel=1e-3)
        assert first.content["manifest"]["suite"]["seeds"] != second.content["manifest"]["suite"]["seeds"]
        assert list_tasks(store, [STAGE]) == [] and store.check() == 5
    assert is_empty(home.folder / "work")


def test_seeds_need_the_secret_and_the_submission() -> None:
    seeds = evaluation_seeds(b"s" * 32, "a" * 64, "b" * 64, 50)
    assert len(set(seeds)) == 50 and all(0 <= seed < 2**31 for seed in seeds)
    assert seeds == evaluation_seeds(b"s" * 32, "a" * 64, "b" * 64, 50)
    for other in ((b"t" * 32, "a" * 64, "b" * 64), (b"s" * 32, "c" * 64, "b" * 64), (b"s" * 32, "a" * 64, "c" * 64)):
        assert not set(seeds) & set(evaluation_seeds(*other, 50))


def test_rounds(home: Home, tmp_path: Path) -> None:
    submitted(home, tmp_path)
    with home.open() as store:
        secret = home.secret(1)
        assert store.records("round")[0].content["commitment"] == commitment(secret)
        assert secret.hex() not in str([record.content for record in store.records()])
        assert (home.folder / "secrets" / "round-1.hex").stat().st_mode & 0o077 == 0
        close_round(store, home)
        assert revealed_secrets(store) == {1: secret.hex()}
        submit_reviewed(store, home, "cubic")
        assert [entrant.record.round for entrant in entrants(store)] == [1, 1, 2]
        (home.folder / "secrets" / "round-2.hex").write_text("00" * 32)
        with pytest.raises(CcenvError, match="not the one that was committed to"):
            evaluate(store, home, list_tasks(store, [STAGE], only=["cubic"]))
        assert store.records("evaluation") == []


def test_what_is_on_the_board_already_is_refused(home: Home, tmp_path: Path) -> None:
    submitted(home, tmp_path)
    pack("cc_qdel", Authorship("Someone Else", "MIT", "quick/1", name="mine"), tmp_path / "stolen")
    for name, author in (("first_come", "Grace Hopper"), ("First-C0me", "Someone Else"), ("cc_qdel", "Someone Else")):
        program = "cc_probe_slow" if author == "Grace Hopper" else "cc_probe_fast"
        pack(program, Authorship(author, "MIT", "quick/1", name=name), tmp_path / name)
    with home.open() as store:
        for folder in ("program", "stolen"):
            with pytest.raises(InputError, match="replayed: the board has exactly this program as 'cc_qdel' by Ada Lovelace"):
                submit_folder(store, home, tmp_path / folder)
        with pytest.raises(InputError, match="replayed"):
            submit_reviewed(store, home, "reno")
        submit_folder(store, home, tmp_path / "first_come")
        with pytest.raises(
            InputError, match="the name 'First-C0me' looks like 'first_come', which is taken by an entry of Grace"
        ):
            submit_folder(store, home, tmp_path / "First-C0me")
        with pytest.raises(InputError, match="the name 'cc_qdel' is kept for ccenv's own 'cc_qdel'"):
            submit_folder(store, home, tmp_path / "cc_qdel")
        with pytest.raises(InputError, match="pack it"):
            submit_reviewed(store, home, "cc_qdel")
        assert store.check() == 4


def test_what_is_scored_are_the_weights_on_the_grid(home: Home, tmp_path: Path) -> None:
    folder = make_good("policy", tmp_path / "policy")
    with home.open() as store:
        submit_folder(store, home, folder)
        (record,) = evaluate(store, home, list_tasks(store, [STAGE]))
    player = read_submission(folder).player
    assert isinstance(player, PolicySender)
    assert record.content["manifest"]["agents"][0]["sha256"] == sender_hash(player)


def stopped(home: Home, tmp_path: Path, moment: str) -> int:
    """Evaluate in a child that dies at a moment; return its exit code."""
    pid = os.fork()
    if pid == 0:
        try:

            def progress(done: int, total: int) -> None:
                if moment == f"cell {done}":
                    os._exit(9)

            class Dying(BoardStore):
                def append(self, *arguments: Any) -> Any:
                    if moment == "before storing":
                        os._exit(9)
                    stored = super().append(*arguments)
                    if moment == "after storing":
                        os._exit(9)
                    return stored

            if moment == "player written":
                evaluate_module.Job = lambda *a: os._exit(9)  # type: ignore[assignment, misc]
            with Dying(f"sqlite:///{home.folder / 'board.db'}") as store:
                evaluate(store, home, list_tasks(store, [STAGE]), show=lambda place, task: nullcontext(progress))
            os._exit(0)
        except BaseException:  # a child must not return into the tests
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_killed_at_every_stage(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(home, tmp_path)
    moments = ["player written", "cell 0", "cell 4", "before storing", "after storing", "cell 0", "before storing"]
    counts = []
    for moment in moments:
        assert stopped(home, tmp_path, moment) == 9
        with home.open() as store:
            store.check()
            counts.append(len(store.records("evaluation")))
    assert counts == [0, 0, 0, 0, 1, 1, 1]
    with home.open() as store:
        evaluate(store, home, list_tasks(store, [STAGE]))
        resumed = comparable(store)
        store.check()
    other = Home(tmp_path / "other")
    (other.folder / "secrets").mkdir(parents=True)
    (other.folder / "secrets" / "round-1.hex").write_bytes((home.folder / "secrets" / "round-1.hex").read_bytes())
    submitted(other, tmp_path)
    with other.open() as store:
        evaluate(store, other, list_tasks(store, [STAGE]))
        assert comparable(store) == resumed  # as if nothing had happened
    assert len(resumed) == 2


def test_the_envelope_and_a_sender_without_an_encoding(home: Home, tmp_path: Path) -> None:
    pytest.importorskip("z3", reason="the extra verify is not installed")
    pack("cc_qdel", CARD, tmp_path / "program")
    with home.open() as store:
        submit_folder(store, home, tmp_path / "program")
        submit_reviewed(store, home, "vegas")
        evaluate(store, home, list_tasks(store, [EnvelopeStage(0.5, samples=3)]))
        program, classic = (record.content for record in store.records("envelope"))
        assert {row["verdict"] for row in program["rows"]} <= {"verified", "refuted", "unknown"}
        assert all(row["bound"] is None for row in program["rows"] if row["verdict"] != "verified")
        assert len(program["rows"]) > 10
        assert classic["rows"] == [] and classic["reason"].startswith("agent 'vegas' has no encoding")
        with pytest.raises(InputError, match="T is 2"):  # a wrong setting is no sender without an encoding
            evaluate(store, home, list_tasks(store, [EnvelopeStage(0.5, samples=2)]))
        assert len(store.records("envelope")) == 2 and list_tasks(store, [EnvelopeStage(0.5, samples=3)]) == []
        assert len(list_tasks(store, [EnvelopeStage(9.0, samples=3)])) == 2  # a larger budget is worth doing again
        assert list_tasks(store, [EnvelopeStage(9.0, samples=3)], pending=True) == []


def test_names_and_emptiness(home: Home, tmp_path: Path) -> None:
    with home.open() as store:
        with pytest.raises(InputError, match="nothing was handed in"):
            list_tasks(store, [STAGE])
        submit_reviewed(store, home, "reno")
        with pytest.raises(InputError, match="Did you mean 'reno'"):
            list_tasks(store, [STAGE], only=["renno"])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run: Callable[..., int] = lambda *words: main(["board", *words])  # noqa: E731
    assert run("evaluate") == 2
    assert "there is no board yet" in capsys.readouterr().err
    assert run("submit", "reno", "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "reno"
    assert run("submit", "absent") == 2
    assert "neither a folder nor a classic CCA" in capsys.readouterr().err
    assert run("evaluate", "--budget", "-1") == 2 and run("round", "--json") == 0
    assert json.loads(capsys.readouterr().out.strip())["rounds"][0]["secret"] is None
    assert run("round", "clsoe") == 2


EXPORT = Path(__file__).parents[2] / "docs" / "data" / "leaderboard.jsonl.xz"


def test_the_shipped_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed once, its suites too, and rendered once, where a user's import, audit and site do it anew: 12 CPU seconds."""
    monkeypatch.setattr(Stored, "confirm", lambda self: None)  # tests/proofs/certificates check them
    suites, published = dict[int, Any](), runs.published_suite  # of the contents, which `parsed` keeps
    once = lambda of, where: suites.get(id(of)) or suites.setdefault(id(of), published(of, where))  # noqa: E731
    for module in (runs, audit_module, sources):
        monkeypatch.setattr(module, "published_suite", once)
    parsed: list[Contents] = []
    boards, rendered = [object()], list[Any]()
    with monkeypatch.context() as imported:
        imported.setattr(exchange, "check_contents", lambda *of: parsed.append(check_contents(*of)) or parsed[0])
        imported.setattr(sources, "from_contents", lambda *_: None)
        imported.setattr(board_module, "make_board", lambda *_: boards[0])
        imported.setattr(build_module, "site_files", rendered.append)
        export = read_export(EXPORT)
    assert rendered == boards  # an import makes every page; here build_site does

    class Parsed(Contents):
        def __init__(self, read: Any) -> None:
            self.__dict__ = parsed[0].__dict__

        def add(self, record: Any) -> None:
            if record.number > count:
                super().add(record)
            assert self.items[record.number - 1].record == record

    home = Home(tmp_path / "board")
    with home.open() as store:
        count = import_board(store, home, export)
        names = {entrant.record.card.name for entrant in entrants(store)}
        assert {*AGENTS.names("synthesized"), *AGENTS.names("learned"), *AGENTS.names("distilled")} <= names
        assert len(names & set(AGENTS.names("classic"))) >= 17
        assert all(names & {entry.name, *entry.aliases} for entry in ADVERSARIES)
        monkeypatch.setattr(audit_module, "Contents", Parsed)
        outcome = audit(store, home, sample=0, certificates=0, keep=False)
        assert outcome["problems"] == []  # hashes, seeds from the revealed secret, summaries from the cells
        assert outcome["n_records"] == len(parsed[0].items) == store.check() == count + 1
        monkeypatch.setattr(sources, "check_contents", lambda *_: parsed[0])
        result = build_site(from_store(store, home), tmp_path / "site")
    assert result["suites"] >= 2 and result["senders"] >= 29 and result["adversaries"] >= 13
    assert '"stale": true' not in (tmp_path / "site" / "board.json").read_text()  # no row is of older code
    assert EXPORT.stat().st_size < 6_000_000
