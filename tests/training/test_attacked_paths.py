"""Drawn paths under attack: who plays where, what a checkpoint keeps, and a run that was stopped in a round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.attacks.catalog import make_search
from ccenv.attacks.game import Game, Scene
from ccenv.base.config import validate
from ccenv.base.errors import InputError
from ccenv.envs.curve.settings import EnvSettings
from ccenv.network.adversary import MlpAdversary, RecordedAdversary
from ccenv.network.path import make_path
from ccenv.training.config import TrainConfig
from ccenv.training.recipes.attacked import ELSEWHERE, AttackedPaths, DrawnAttacks, Finding, lanes_under_attack, pack, unpack

K = 4
SETTINGS = EnvSettings(models=("cbr_delay", "ccac"), steps_per_rtt=K, episode_rtts=16)
DRAWN = DrawnAttacks(count=2, searches=("policy_cem:changes=0", "cem:population=4"), budget_flow_steps=2_000, keep_rounds=2)
N, SHARE = 32, 0.25


def attacked(**more: Any) -> AttackedPaths:
    return AttackedPaths(DRAWN, SETTINGS, N, SHARE, 3, **more)


@pytest.fixture(scope="module")
def found() -> list[Finding]:
    return attacked().attack(make_sender("learned_nominal"), 1)  # type: ignore[arg-type]


def test_each_search_plays_on_each_drawn_path(found: list[Finding]) -> None:
    assert len(found) == 4 and found[0].path == found[1].path != found[2].path
    assert [type(one.adversary) for one in found] == 2 * [MlpAdversary, RecordedAdversary]
    for one in found:
        flow = one.path.flows[0]
        assert 0.5 <= flow.jitter_s / flow.rtt_s <= 2.0
    again = attacked().attack(make_sender("learned_nominal"), 1)  # type: ignore[arg-type]
    assert pack(again).keys() == pack(found).keys()
    assert all(np.array_equal(pack(again)[name], array) for name, array in pack(found).items())
    other = attacked().attack(make_sender("learned_nominal"), 2)  # type: ignore[arg-type]
    assert not {one.path.link_rate_Bps for one in other} & {one.path.link_rate_Bps for one in found}


def test_a_checkpoint_keeps_findings_bit_for_bit(found: list[Finding]) -> None:
    again = unpack(pack(found))
    sender = make_sender("cc_probe_drain")
    assert [one.path for one in again] == [one.path for one in found] and [one.round_ for one in again] == [1] * 4
    for one, other in zip(found, again, strict=True):
        game = Game(Scene(sender, one.path, "ccac", steps_per_rtt=K))
        assert game.play_adversaries([one.adversary])[0] == game.play_adversaries([other.adversary])[0]
    assert pack([]) == {} and unpack({}) == []


def test_a_share_of_the_environments_meets_what_was_found(found: list[Finding]) -> None:
    players, source = attacked().meet(found, 1)
    lanes = lanes_under_attack(SETTINGS, N, SHARE)
    assert len(lanes) == 8 and min(lanes) >= N // 2, "cbr_delay is in the first half"
    plain = [b for b in range(N) if b not in lanes]
    assert all(players[b] is players[0] for b in plain)
    assert all(isinstance(players[b], (MlpAdversary, RecordedAdversary)) for b in lanes)
    assert len({len(players[b].moves) for b in lanes if isinstance(players[b], RecordedAdversary)}) == 1  # type: ignore[union-attr]
    drawn = source.draw(np.full(N, 5), np.arange(N), np.zeros(N, np.int64))
    rates = [one.path.link_rate_Bps for one in found]
    for b in lanes:
        assert drawn.initial_C_L_Bps[b] == 0.0
        if isinstance(players[b], RecordedAdversary):
            assert drawn.paths.link_rate_Bps[b] in rates, "moves belong to their path"
    assert not set(drawn.paths.link_rate_Bps[plain]) & set(rates)


def test_policies_also_play_where_nobody_searched(found: list[Finding]) -> None:
    many = AttackedPaths(DRAWN, SETTINGS, 512, 0.5, 3)
    players, source = many.meet(found, 1)
    lanes = lanes_under_attack(SETTINGS, 512, 0.5)
    drawn = source.draw(np.full(512, 5), np.arange(512), np.zeros(512, np.int64))
    rates = {one.path.link_rate_Bps for one in found}
    away = [b for b in lanes if drawn.paths.link_rate_Bps[b] not in rates]
    policies = [b for b in lanes if isinstance(players[b], MlpAdversary)]
    assert set(away) < set(policies) and 0.35 < len(away) / len(policies) < 0.65
    assert len({drawn.paths.link_rate_Bps[b] for b in away}) > ELSEWHERE / 4


def test_old_rounds_are_forgotten_and_stored_moves_stay(found: list[Finding]) -> None:
    path = make_path(link_rate_mbps=7, rtt_ms=30, jitter_ms=45, buffer_bdp=2)
    stored = RecordedAdversary("stored", np.random.default_rng(0).random((40, 4)))
    with_store = attacked(given=[(path, stored)], given_share=1.0)
    assert with_store.newest(found, 3) == [] and with_store.newest(found, 2) == found
    players, source = with_store.meet(found, 1)
    lanes = lanes_under_attack(SETTINGS, N, SHARE)
    drawn = source.draw(np.full(N, 5), np.arange(N), np.zeros(N, np.int64))
    for b in lanes:
        assert players[b].name == "stored" and drawn.paths.link_rate_Bps[b] == path.link_rate_Bps
        np.testing.assert_array_equal(players[b].moves[:40], stored.moves)  # type: ignore[union-attr]
        np.testing.assert_array_equal(players[b].moves[-1], stored.moves[-1])  # type: ignore[union-attr]


def config(robust: dict[str, Any], **more: Any) -> TrainConfig:
    data = {
        "name": "small",
        "total_steps": 512,
        "num_envs": 16,
        "environment": {"models": ["cbr_delay", "ccac"], "steps_per_rtt": K, "episode_rtts": 16},
        "ppo": {"n_steps": 8, "batch_size": 64, "hidden": [8], "n_epochs": 1},
        "evaluation": {"n_paths": 4},
        "robust": {
            **{"start_step": 128, "round_steps": 128, "paths": [], "share": 0.5},
            **{"drawn": DRAWN.model_dump(mode="json"), **robust},
        },
        **more,
    }
    return validate(TrainConfig, data, "small.yaml")


def test_a_run_goes_on_in_a_round_and_ends_the_same(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from ccenv.training.run import train

    train(config({}), tmp_path / "whole")
    short = config({}).model_copy(update={"total_steps": 384})
    train(short, tmp_path / "parts")
    train(config({}), tmp_path / "parts")
    train(config({"share": 0.0}), tmp_path / "control")
    weights = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", "parts", "control")]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(
    ("robust", "more", "said"),
    [
        ({"paths": ["deep"]}, {}, "set paths and policies to"),
        ({"share": 0.75}, {}, "share 0.75 asks for 12 environments, 8 of 16 play ccac"),
        ({"drawn": {"searches": ["hoard"]}}, {}, "unknown search 'hoard'"),
        ({"drawn": {"searches": ["slow_link"]}}, {}, "unknown search 'slow_link'"),
        ({"drawn": {"searches": ["policy_cem:changes=2"]}}, {}, "changes"),
        ({"drawn": {"cuont": 2}}, {}, "count"),
    ],
)
def test_what_cannot_be_attacked(robust: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(robust, **more)


def test_a_search_may_keep_the_policy_itself() -> None:
    scene = Scene(make_sender("cc_probe_drain"), make_path(link_rate_mbps=10, rtt_ms=40, jitter_ms=40), "ccac", "engine", K, 8, 8)
    found = make_search("policy_cem:changes=0").run(Game(scene), 10_000, 0)
    assert isinstance(found.adversary, MlpAdversary)
    assert isinstance(make_search("policy_cem").run(Game(scene), 10_000, 0).adversary, RecordedAdversary)
