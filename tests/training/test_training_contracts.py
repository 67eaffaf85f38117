"""Environments and training inside a contract: the action is the position in the interval, and it stays inside."""

from __future__ import annotations

import json
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from contracts_data import contract, document
from hypothesis import given
from hypothesis import strategies as st

import ccenv  # noqa: F401  (registers the environments)
from ccenv.agents import make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.learned import load_policy, policy_notes, save_policy
from ccenv.agents.programs import interval, to_data, to_json
from ccenv.agents.sender import ContractSender
from ccenv.agents.wrapped import load_contract
from ccenv.base.errors import InputError, ProgramError
from ccenv.cli.main import main
from ccenv.training.config import load_config
from ccenv.training.evaluation import evaluate_sender
from ccenv.training.run import train

pytest.importorskip("stable_baselines3")

SMALL = [
    "num_envs=16", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[8]", "total_steps=1024", "environment.episode_rtts=10",
    "evaluation.n_paths=32", "evaluation.n_paths_during=16", "evaluation.every_steps=512",
]  # fmt: skip


@pytest.mark.parametrize(("action", "position"), [(-1.0, 0.0), (0.0, 0.5), (1.0, 1.0), (-9.0, 0.0), (9.0, 1.0)])
def test_an_action_is_the_position_in_the_interval(action, position):
    env = gym.make("ccenv/Sender-v0", contract=contract())
    env.reset(seed=1)
    core = env.unwrapped.task.core
    for _ in range(20):
        env.step(np.array([action], np.float32))
        lo, hi = core.flow("lo_Bps")[0, 0], core.flow("hi_Bps")[0, 0]
        assert core.flow("position")[0, 0] == position
        env.step(np.array([action], np.float32))
        assert core.flow("rate_Bps")[0, 0] == min(max(lo + position * (hi - lo), lo), hi)


def test_discrete_actions_are_evenly_spaced_positions():
    env = gym.make("ccenv/Sender-v0", contract=contract(), action="discrete", n_actions=5)
    env.reset(seed=1)
    for level in range(5):
        env.step(level)
        assert env.unwrapped.task.core.flow("position")[0, 0] == level / 4


def test_an_action_that_is_no_number_is_refused():
    env = gym.make("ccenv/Sender-v0", contract=contract(), disable_env_checker=True)
    env.reset(seed=1)
    with pytest.raises(InputError, match="not a number"):
        env.step(np.array([np.nan]))


def test_a_run_inside_a_contract_leaves_a_policy_with_its_contract(tmp_path):
    (tmp_path / "c.json").write_text(to_json(contract()))
    config = load_config("quick_sender", [*SMALL, f"contract={tmp_path / 'c.json'}"])
    assert config.environment.contract == to_data(contract())
    result = train(config, tmp_path / "run")
    sender = make_sender(str(result.folder))
    assert isinstance(sender, ContractSender) and sender.chooser == "policy"
    assert sender.program == contract()
    assert evaluate_sender(sender, 32, steps_per_rtt=4).score == pytest.approx(result.common.score, abs=0.05)
    assert "lo + u (hi - lo)" in policy_notes(result.folder)["action"]
    assert load_contract(str(result.folder)) == contract()
    again = train(config, tmp_path / "run")
    assert again.steps == result.steps and sender_hash(make_sender(str(again.folder))) == sender_hash(sender)


def test_rounds_against_attacks_stay_inside_the_contract(tmp_path):
    rounds = "robust={start_step: 512, round_steps: 256, budget_flow_steps: 5000, searches: [corners]}"
    config = load_config("quick_sender", [*SMALL, f"contract={json.dumps(document())}", rounds])
    sender = make_sender(str(train(config, tmp_path / "run").folder))
    assert isinstance(sender, ContractSender)


def test_a_policy_inside_a_contract_is_read_back(tmp_path):
    sender = make_sender("learned_contract_u80")
    save_policy(tmp_path, sender)
    loaded = load_policy(tmp_path)
    assert sender_hash(loaded) == sender_hash(sender) and loaded.program == sender.program
    card = json.loads((tmp_path / "policy.json").read_text())
    card["contract"]["rule"] = {"rate": {"C_L": 1}}
    (tmp_path / "policy.json").write_text(json.dumps(card))
    with pytest.raises(ProgramError, match="is no contract"):
        load_policy(tmp_path)
    with pytest.raises(InputError, match="no weights to write"):
        save_policy(tmp_path, ContractSender("c", contract(), "middle"))


def test_choosers_by_name(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(to_json(contract()))
    for chooser in ("lo", "hi", "middle", "random"):
        assert make_sender(f"contract:file={file},chooser={chooser}").chooser == chooser
    assert make_sender(f"contract:file={file}").chooser == "middle"
    save_policy(tmp_path, make_sender("learned_contract_u80"))
    assert make_sender(f"contract:file={file},policy={tmp_path}").policy is not None
    with pytest.raises(ProgramError, match="somebody must choose"):
        make_sender(str(file))
    with pytest.raises(InputError, match="unknown chooser"):
        make_sender(f"contract:file={file},chooser=best")


@pytest.mark.parametrize(
    ("name", "config", "score"),
    [
        ("learned_contract_u80", "learned_contract", 0.9745),
        ("learned_contract_u80_firm", "learned_contract_firm", 0.9745),
        ("learned_contract_u77_timeouts", "learned_contract_timeouts", 0.964),
    ],
)
def test_the_shipped_policies_have_their_score_and_their_contract(name, config, score):
    sender = make_sender(name)
    assert sender.program == load_config(config).environment.contract_program()
    assert evaluate_sender(sender, 64).score == pytest.approx(score, abs=0.006)


@given(
    ratio=st.fractions(1, 8),
    C_L=st.fractions(1, 1000),
    delayed=st.booleans(),
    utilised=st.booleans(),
)
def test_the_narrower_contract_lies_inside_the_proved_one(ratio, C_L, delayed, utilised):
    """Each lemma of the wider one, proved with every choice inside, is one of the narrower."""
    outer, inner = (make_sender(name).program for name in ("learned_contract_u80", "learned_contract_u80_firm"))
    beliefs = {"C_L": C_L, "C_U": ratio * C_L, "MSS/Rm": Fraction(1), "qdel_L": Fraction(delayed), "utilised": utilised}
    (low, high, _), (least, most, _) = interval(outer, beliefs), interval(inner, beliefs)
    assert low <= least <= most <= high


def test_the_command_line_refuses_a_program_in_one_line(capsys):
    assert main(["train", "quick_sender", "--set", "contract=cc_qdel"]) == 2
    assert "has no contract" in capsys.readouterr().err
