"""``ccenv/Game-v0`` and its duel: API checks, exact regret, masks, speed."""

import time
import warnings

import gymnasium as gym
import numpy as np
import pytest

from ccenv.base.errors import InputError
from ccenv.envs.game import GameEnv, GameVectorEnv, solved_game
from ccenv.proofs.games.players import regret_of, sender_on


def play(sender, network="optimal", game="cbr_small", n=64, seed=3):
    """Play a batch with a sender of the solver; return each episode's regret and the sum of the regrets of its decisions."""
    env = GameVectorEnv(num_envs=n, game=game, network=network, autoreset_mode="SAME_STEP")
    solved = env.task.core.solved
    player = sender_on(sender, solved)
    env.reset(seed=seed)
    total = np.zeros(n)
    for left in range(solved.horizon_steps, 0, -1):
        _, reward, over, truncated, info = env.step(player.at(left)[env.task.core.board])
        total += reward
        assert not truncated.any()
    assert over.all() and np.array_equal(info["final_info"]["regret"], -total)
    return -total, info["final_info"]["decision_regret_sum"]


@pytest.mark.parametrize("game", ["cbr_small", "cbr_late", "ccac_small"])
def test_best_play_has_the_value_as_regret_whatever_the_network_draws(game):
    value = solved_game(game, None).value
    regret, errors = play("optimal", game=game)
    assert (regret == value).all() and not errors.any()


def test_regret_is_the_value_and_the_errors_of_all_decisions():
    """Against the optimal network the value grows by exactly what each decision gives away."""
    regret, errors = play("cc_qdel")
    assert (regret == 34 + errors).all() and regret.max() > 34


def test_random_network_has_the_mean_that_the_solver_computes():
    regret, _ = play("C_L+1", network="random", n=4000)
    solved = solved_game("cbr_small", None)
    expected = regret_of(sender_on("C_L+1", solved), solved, "random")
    assert regret.mean() == pytest.approx(expected, abs=4 * regret.std() / 60)


def test_info_tells_legal_actions_and_the_least_regret():
    env = GameEnv()
    _, info = env.reset(seed=1)
    assert info["action_mask"].tolist() == [1, 1, 1] + [0] * 11
    _, _, _, _, info = env.step(2)  # the most that is legal: best play
    assert info["decision_regret"] == 0 and info["least_regret"] == 34
    assert info["action_mask"].tolist() == [1, 1, 1] + [0] * 11
    _, _, _, _, info = env.step(13)  # not legal: nothing is sent
    assert info["decision_regret"] > 0 and info["least_regret"] == 34 + info["decision_regret"]


def test_seeds_decide_all_and_a_batch_of_seeds_plays_what_single_environments_play():
    batch = GameVectorEnv(num_envs=3, network="random")
    batch.reset(seed=[5, 6, 7])
    singles = [GameEnv(network="random") for _ in range(3)]
    for seed, env in zip((5, 6, 7), singles, strict=True):
        env.reset(seed=seed)
    for _ in range(40):
        seen, reward, *_ = batch.step(np.array([2, 2, 2]))
        if batch.task.core.elapsed[0] == 0:
            break
        for b, env in enumerate(singles):
            own, gain, *_ = env.step(2)
            assert np.array_equal(own, seen[b]) and gain == reward[b]


def test_a_million_steps_a_second():
    """Measured in CPU time: the machine that tests may be busy. An eighth of it is a failure of the code, not of the machine."""
    env = gym.make_vec("ccenv/Game-v0", num_envs=4096, network="random")
    env.reset(seed=0)
    actions = np.full(4096, 2)
    env.step(actions)
    begin = time.process_time()
    for _ in range(50):
        env.step(actions)
    assert 50 * 4096 / (time.process_time() - begin) > 125_000


def test_wrong_actions_are_refused():
    env = GameVectorEnv(num_envs=3)
    env.reset(seed=0)
    with pytest.raises(InputError, match="one whole number for each of 3"):
        env.step(np.zeros(2))
    for wrong in ([0, 1, -1], [0.0, 1.5, 2.0], [0.0, np.nan, 1.0], [0.0, np.inf, 1.0]):
        with pytest.raises(InputError, match="whole numbers from 0 on"):
            env.step(np.array(wrong))


def test_pettingzoo_checks_and_the_value_between_two_best_players():
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    from ccenv.envs.game_duel import GameDuelEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(GameDuelEnv(), num_cycles=150)
        parallel_seed_test(lambda: GameDuelEnv(game="ideal"), num_cycles=80)
    env = GameDuelEnv()
    env.reset(seed=0)
    solved, total = env.core.solved, 0.0
    best = solved.best_actions()
    while env.agents:
        board, left = int(env.core.board[0]), int(env.core.episode_steps - env.core.elapsed[0])
        sent = int(best[left, board])
        env.step({"sender": sent, "network": 0})
        edges = solved.boards.answers(board, sent)
        costs = [int(solved.table[left - 1, solved.boards.target[e]]) - int(solved.boards.delivered[e]) for e in edges]
        _, rewards, *_ = env.step({"sender": 0, "network": int(np.argmax(costs))})
        total += rewards["sender"]
        assert rewards["network"] == -rewards["sender"]
    assert total == -solved.value
    with pytest.raises(InputError, match="it is an agent here"):
        GameDuelEnv(network="random")


def test_make_sb3_ends_games_without_a_limit_of_time():
    pytest.importorskip("stable_baselines3")
    from ccenv.envs.clients.sb3 import make_sb3

    env = make_sb3("ccenv/Game-v0", num_envs=2, game="ideal", horizon_steps=3)
    env.seed(1)
    env.reset()
    for _ in range(3):
        _, _, over, infos = env.step(np.array([1, 2]))
    assert over.all() and infos[0]["TimeLimit.truncated"] is False and infos[0]["regret"] > infos[1]["regret"]
