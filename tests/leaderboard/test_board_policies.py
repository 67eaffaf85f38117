"""Policies with an interface, cells and heads on the board: packed, read through every rule, compared, evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policy_zoo import AURORA, interface, random_policy
from small_suite import small_suite

pytest.importorskip("sqlalchemy", reason="the extra board is not installed")

from ccenv.agents.identity import sender_hash
from ccenv.agents.interface.interface import SENDER_V0
from ccenv.agents.learned import save_policy
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.leaderboard.evaluate.queue import evaluate, list_tasks
from ccenv.leaderboard.evaluate.stages import SuiteStage
from ccenv.leaderboard.store.home import Home
from ccenv.leaderboard.store.submit import submit_folder
from ccenv.leaderboard.submission.document import DOCUMENT
from ccenv.leaderboard.submission.identity import canonical_hash
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.leaderboard.submission.reader import read_submission

SUITE = small_suite(agents=[], scenarios=[small_suite().scenarios[0].model_dump()], adversaries=["kind"])
POLICIES = {
    "gru": random_policy(interface(signals="company", action="rate_exp2"), (8, 6), stages=("dense", "gru"), name="my_gru"),
    "deep": random_policy(AURORA, (64, 64, 32), name="my_deep"),
    "categorical": random_policy(
        interface(signals=["queue_log2", "loss_rate"], action="cwnd_exp2_over", inner="cubic"),
        head="categorical",
        outputs=5,
        name="my_cat",
    ),
}


def packed(sender: PolicySender, folder: Path) -> Path:
    (folder / "files").mkdir(parents=True)
    save_policy(folder / "files", sender)
    pack(str(folder / "files"), Authorship("Ada Lovelace", "MIT", "quick/1"), folder / "out")
    return folder / "out"


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_what_it_was_but_for_the_grid(tmp_path: Path, name: str) -> None:
    sender, submission = POLICIES[name], read_submission(packed(POLICIES[name], tmp_path))
    player = submission.player
    assert isinstance(player, PolicySender)
    assert (player.interface, player.head, player.stage_kinds) == (sender.interface, sender.head, sender.stage_kinds)
    for mine, theirs in zip(sender.arrays, player.arrays, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.5 / 4096)


def test_how_an_interface_is_written_makes_no_new_policy() -> None:
    sees = interface(signals=["loss_rate", "queue_log2"], history=2, action="rate_exp2")
    one = random_policy(sees, (4,), seed=3)
    turned = one.weights[0].reshape(2, 2, 4)[:, ::-1].reshape(4, 4)
    other = interface(signals=["queue_log2", "loss_rate"], history=2, action="rate_exp2", parameters={"step": 0.3})
    same = PolicySender("other", (turned, *one.weights[1:]), one.biases, "tanh", other)
    assert canonical_hash(same) == canonical_hash(one)
    assert canonical_hash(
        random_policy(interface(signals=["loss_rate", "queue_log2"], history=2, action="rate_delta"), (4,), seed=3)
    ) != (canonical_hash(one))
    first = random_policy(SENDER_V0, (4,))
    written_out = interface(**{**SENDER_V0.model_dump(), "parameters": {"range": 3.0}})
    assert canonical_hash(PolicySender("x", first.weights, first.biases, "tanh", written_out)) == canonical_hash(first)


def change(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / DOCUMENT).read_text())
    document["architecture"] = {k: v for k, v in {**document["architecture"], **changes}.items() if v is not None}
    (folder / DOCUMENT).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"family": "mlp"}, "observation_version"),
        ({"observation_version": 1}, "no observation_version"),
        ({"interface": None}, "has stages, head and interface"),
        ({"head": "categorical"}, "2 or more outputs"),
        ({"stages": ["dense", "lstm", "dense"]}, "tensor"),
        ({"stages": ["dense", "dense", "dense"]}, "tensors"),
        ({"interface": {"signals": ["true_share_log2"], "action": "rate_exp2"}}, "for critics"),
        ({"interface": {"signals": ["sendratio"], "action": "rate_exp2"}}, "Did you mean 'send_ratio'"),
        ({"interface": {"signals": "company", "action": "cwnd_exp2_over", "inner": "os.system"}}, "no classic CCA"),
    ],
)
def test_forged_architectures_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = packed(POLICIES["gru"], tmp_path)
    change(folder, **changes)
    with pytest.raises(InputError) as failure:
        read_submission(folder)
    assert words in str(failure.value) and "\n" not in str(failure.value)


def test_policies_are_taken_in_and_evaluated(tmp_path: Path) -> None:
    home = Home(tmp_path / "board")
    players = set()
    with home.open() as store:
        for name, sender in POLICIES.items():
            folder = packed(sender, tmp_path / name)
            submit_folder(store, home, folder)
            players.add(sender_hash(read_submission(folder).player))  # type: ignore[arg-type]
        records = evaluate(store, home, list_tasks(store, [SuiteStage(SUITE)]))
    assert {record.content["manifest"]["agents"][0]["sha256"] for record in records} == players
