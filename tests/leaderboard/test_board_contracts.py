"""Submissions of kind contract: weights and the contract that they choose inside; the verdict rests on the contract."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from contracts_data import document, inside
from small_suite import small_suite
from submission_folders import CARD

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from ccenv.agents import make_sender
from ccenv.agents.learned import save_policy
from ccenv.agents.sender import ContractSender
from ccenv.base.errors import InputError
from ccenv.base.foreign.tensors import read_tensors, tensor_file
from ccenv.cli.main import main
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.stages import EnvelopeStage, SuiteStage
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.submit import submit_folder
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.leaderboard.submission.pack import pack
from ccenv.leaderboard.submission.reader import read_submission

SUITE = small_suite(agents=[], scenarios=[small_suite().scenarios[0].model_dump()], adversaries=["kind", "slowest"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pack("learned_contract_u80", CARD, tmp_path / "sub")
    return tmp_path / "sub"


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and its hash in the document, as a careful forger would."""
    (folder / name).write_bytes(content)
    card = json.loads((folder / "submission.json").read_text())
    card["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "submission.json").write_text(json.dumps(card))


def test_a_contract_is_packed_with_its_weights_and_read_back(folder: Path) -> None:
    submission = read_submission(folder)
    assert sorted(submission.files) == ["contract.json", "policy.safetensors", "submission.json"]
    assert submission.document.kind == "contract" and submission.document.track == "sender"
    player = submission.player
    assert isinstance(player, ContractSender) and player.chooser == "policy"
    assert player.program.rule == make_sender("learned_contract_u80").program.rule


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(document(rule={"rate_between": [{"C_L": 2}, {"C_L": 1}]})), "above its upper end"),
        (json.dumps({**document(version=1), "rule": {"rate": {"C_L": 1}}}), "is no contract"),
        (json.dumps(document(version=9)), "version"),
        ("{", "JSON"),
    ],
)
def test_a_forged_contract_is_refused(folder: Path, content: str, said: str) -> None:
    rewrite(folder, "contract.json", content.encode())
    with pytest.raises(InputError, match=said):
        read_submission(folder)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_command_line_checks_weights_and_contract(folder: Path, capsys: pytest.CaptureFixture[str], bad: float) -> None:
    assert main(["board", "check", str(folder)]) == 0
    tensors = read_tensors((folder / "policy.safetensors").read_bytes(), "weights")
    tensors["w0"][0, 0] = bad
    rewrite(folder, "policy.safetensors", tensor_file(tensors))
    assert main(["board", "check", str(folder)]) == 2
    assert "not finite" in capsys.readouterr().err
    assert main(["board", "submit", str(folder), "--board", str(folder.parent / "board")]) == 2
    assert not list((folder.parent / "board").rglob("policy.safetensors"))


def test_each_file_is_needed_and_hashed(folder: Path) -> None:
    good = (folder / "contract.json").read_bytes()
    (folder / "contract.json").write_bytes(good + b" ")
    with pytest.raises(InputError, match="changed after packing"):
        read_submission(folder)
    (folder / "contract.json").unlink()
    with pytest.raises(InputError, match=r"there is no contract\.json"):
        read_submission(folder)
    (folder / "contract.json").write_bytes(good)
    (folder / "program.json").write_bytes(good)
    with pytest.raises(InputError, match="does not belong to kind 'contract'"):
        read_submission(folder)


def test_a_contract_is_no_program(tmp_path: Path) -> None:
    pack("cc_qdel", CARD, tmp_path / "sub")
    rewrite(tmp_path / "sub", "program.json", json.dumps(document()).encode())
    with pytest.raises(InputError, match="decides no rate"):
        read_submission(tmp_path / "sub")


def test_what_plays_is_hashed_with_its_contract(tmp_path: Path) -> None:
    one, other = inside("policy", 1), inside("policy", 2)
    wider = ContractSender("x", make_sender("learned_contract_u80").program, "policy", one.policy)
    assert len({canonical_hash(player) for player in (one, other, wider)}) == 3
    save_policy(tmp_path, one)
    first, _ = pack(str(tmp_path), CARD, tmp_path / "a")
    save_policy(tmp_path, ContractSender("inside", wider.program, "policy", one.policy))
    second, _ = pack(str(tmp_path), CARD, tmp_path / "b")
    assert first.player_sha256 != second.player_sha256


def test_a_contract_goes_through_the_board_and_its_verdict_says_what_it_rests_on(folder: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    with home.open() as store:
        submit_folder(store, home, folder, own=True)
        evaluate(store, home, list_tasks(store, [SuiteStage(SUITE), EnvelopeStage(budget_s=2.0, samples=5)]))
        (record,) = store.records("evaluation")
        assert record.content["manifest"]["agents"][0]["kind"] == "contract"
        (envelope,) = store.records("envelope")
        assert envelope.content["reason"] == "" and envelope.content["rows"]
    assert main(["board", "build", "--board", str(home.folder), "--out", str(tmp_path / "site")]) == 0
    page = next((tmp_path / "site").rglob(f"{CARD.name or 'learned_contract_u80'}*.html")).read_text()
    assert "It rests on the contract of" in page
    assert "of its contract" in (tmp_path / "site" / "index.html").read_text()
